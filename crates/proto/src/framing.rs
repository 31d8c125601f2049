//! Cuts the octet stream of a connection into PDU headers and data (NVMe TCP Transport, section 3.6).
//!
//! The caller offers what it has received; each [`Framer::next`] uses some of it. Data is never
//! copied here: a step names the octets, the caller puts them where they belong. Data that the
//! caller received straight into its place is reported by [`Framer::placed`].

use crate::error::PeerMisbehaved;
use crc_fast::{CrcAlgorithm, Digest};
use roadtrain_wire::pdu::{
    CH_BYTES, CommonHeader, DIGEST_BYTES, Digests, Fes, Layout, header_digest,
};
use roadtrain_wire::zerocopy::transmute_ref;
use std::ops::Range;

/// What comes next in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing can be done before the input holds at least that many octets.
    Need(usize),
    /// A header, checked against its digest; it lies at the start of the octets just used.
    Header(Layout),
    /// Data, at that range of the input.
    Data(Range<usize>),
    /// The data of the PDU is complete; whether its digest was right.
    DataEnd {
        /// The digest, if any, matched.
        intact: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Header,
    /// Padding still to skip, then data still to come.
    Data {
        skip: u32,
        left: u32,
        digest: bool,
    },
}

/// Receive side of one connection's framing.
pub struct Framer {
    from_host: bool,
    digests: Digests,
    alignment: u32,
    state: State,
    crc: Digest,
    /// The common header that was checked last, and what it says: most are like the one before.
    known: Option<([u8; CH_BYTES], Layout)>,
}

impl Framer {
    /// A framer of what the host (or else the controller) sends. No digests until [`Framer::agree`].
    #[must_use]
    pub fn new(from_host: bool) -> Self {
        Framer {
            from_host,
            digests: Digests::default(),
            alignment: 1,
            state: State::Header,
            crc: Digest::new(CrcAlgorithm::Crc32Iscsi),
            known: None,
        }
    }

    /// From the next PDU on these digests are used, and data starts at multiples of `alignment` octets.
    #[inline]
    pub fn agree(&mut self, digests: Digests, alignment: u32) {
        self.digests = digests;
        self.alignment = alignment;
        self.known = None;
    }

    /// True if a header comes next.
    #[must_use]
    #[inline]
    pub fn is_at_header(&self) -> bool {
        self.state == State::Header
    }

    /// The next step, and how many octets of `input` it used up.
    ///
    /// # Errors
    /// A header that is malformed, not for this direction, or whose digest is wrong.
    #[inline(always)]
    pub fn next(&mut self, input: &[u8]) -> Result<(usize, Step), PeerMisbehaved> {
        match self.state {
            State::Header => self.header(input),
            State::Data { left: 0, digest, .. } => Ok(self.data_end(input, digest)),
            State::Data { skip, left, digest } => Ok(self.data(input, skip, left, digest)),
        }
    }

    #[inline(always)]
    fn header(&mut self, input: &[u8]) -> Result<(usize, Step), PeerMisbehaved> {
        let Some(octets) = input.first_chunk() else {
            return Ok((0, Step::Need(CH_BYTES)));
        };
        let layout = match self.known {
            Some((known, layout)) if known == *octets => layout,
            _ => self.check(octets)?,
        };
        let end = layout.header_bytes as usize;
        if input.len() < end {
            return Ok((0, Step::Need(end)));
        }
        self.check_header_digest(&input[..end], layout.kind.header_bytes())?;
        if layout.data_bytes > 0 {
            let skip = layout.data_offset - layout.header_bytes;
            let digest = layout.has_data_digest;
            self.state = State::Data { skip, left: layout.data_bytes, digest };
        }
        Ok((end, Step::Header(layout)))
    }

    /// What a common header says, if it is right.
    #[inline(never)]
    fn check(&mut self, octets: &[u8; CH_BYTES]) -> Result<Layout, PeerMisbehaved> {
        let ch: &CommonHeader = transmute_ref!(octets);
        let layout = ch.layout(self.digests, self.alignment)?;
        if layout.kind.is_from_host() != self.from_host {
            return Err(PeerMisbehaved::new(Fes::PduSequenceError, "PDU type of the other side"));
        }
        self.known = Some((*octets, layout));
        Ok(layout)
    }

    #[inline]
    fn check_header_digest(&self, header: &[u8], hlen: usize) -> Result<(), PeerMisbehaved> {
        let (body, digest) = header.split_at(hlen);
        if digest.is_empty() || header_digest(body) == *digest {
            return Ok(());
        }
        let mut received = [0; DIGEST_BYTES];
        received.copy_from_slice(digest);
        let fei = u32::from_le_bytes(received);
        Err(PeerMisbehaved { fes: Fes::HeaderDigestError, fei, what: "header digest" })
    }

    #[inline]
    fn data(&mut self, input: &[u8], skip: u32, left: u32, digest: bool) -> (usize, Step) {
        let skipped = (skip as usize).min(input.len());
        let length = (left as usize).min(input.len() - skipped);
        let range = skipped..skipped + length;
        if length == 0 {
            self.state = State::Data { skip: skip - skipped as u32, left, digest };
            return (skipped, Step::Need(1));
        }
        if digest {
            self.crc.update(&input[range.clone()]);
        }
        self.state = State::Data { skip: 0, left: left - length as u32, digest };
        (range.end, Step::Data(range))
    }

    #[inline]
    fn data_end(&mut self, input: &[u8], digest: bool) -> (usize, Step) {
        if !digest {
            self.state = State::Header;
            return (0, Step::DataEnd { intact: true });
        }
        let Some(received) = input.first_chunk::<DIGEST_BYTES>() else {
            return (0, Step::Need(DIGEST_BYTES));
        };
        let computed = self.crc.finalize_reset() as u32;
        self.state = State::Header;
        (DIGEST_BYTES, Step::DataEnd { intact: computed.to_le_bytes() == *received })
    }

    /// Octets of data that come next and may be received straight into their place: none while
    /// padding, a digest or a header is next.
    #[must_use]
    #[inline]
    pub fn wanted(&self) -> u32 {
        match self.state {
            State::Data { skip: 0, left, .. } => left,
            _ => 0,
        }
    }

    /// Of the PDU whose data is arriving: octets of padding, then of data, still to come.
    #[must_use]
    #[inline]
    pub fn data_left(&self) -> (u32, u32) {
        match self.state {
            State::Header => (0, 0),
            State::Data { skip, left, .. } => (skip, left),
        }
    }

    /// `data` was received straight into its place; at most [`Framer::wanted`] octets.
    pub fn placed(&mut self, data: &[u8]) {
        if let State::Data { skip: 0, left, digest } = self.state {
            debug_assert!(data.len() <= left as usize, "placed more than was wanted");
            if digest {
                self.crc.update(data);
            }
            self.state = State::Data { skip: 0, left: left - data.len() as u32, digest };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use roadtrain_wire::pdu::PduType;
    use roadtrain_wire::zerocopy::IntoBytes;

    const ALIGNMENT: u32 = 4;

    fn framer(digests: Digests) -> Framer {
        let mut framer = Framer::new(true);
        framer.agree(digests, ALIGNMENT);
        framer
    }

    /// A header and what follows it, perhaps with a wrong octet.
    fn header(digests: Digests) -> impl Strategy<Value = Vec<u8>> {
        let kind = prop::sample::select(vec![PduType::CapsuleCmd, PduType::H2cData]);
        let wrong = prop::option::weighted(0.3, (0..CH_BYTES, 0..8u8));
        (kind, 0..2u32, wrong).prop_map(move |(kind, data, wrong)| {
            let ch = CommonHeader::new(kind, data * 512, digests, ALIGNMENT);
            let mut octets = ch.as_bytes().to_vec();
            octets.resize(usize::from(ch.hlen), 0);
            octets.extend(header_digest(&octets));
            if let Some((at, bit)) = wrong {
                octets[at] ^= 1 << bit;
            }
            octets
        })
    }

    proptest! {
        /// That a header was like it before does not make it any better.
        #[test]
        fn a_header_is_judged_by_itself(
            (digests, headers) in (any::<bool>(), any::<bool>()).prop_flat_map(|(header_too, data)| {
                let digests = Digests { header: header_too, data };
                (Just(digests), prop::collection::vec(header(digests), 1..20))
            })
        ) {
            let mut used = framer(digests);
            for octets in headers {
                used.state = State::Header;
                let (mut fresh, octets) = (framer(digests), &octets[..]);
                prop_assert_eq!(used.next(octets), fresh.next(octets));
                prop_assert_eq!(used.state, fresh.state);
            }
        }
    }
}

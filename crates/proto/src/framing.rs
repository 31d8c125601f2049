//! Splits the byte stream of a connection into PDU headers and data (NVMe TCP Transport, section 3.6).
//!
//! The caller offers the bytes that it has received; each [`PduFramer::next`] uses some of them. The framer never copies
//! data: a step names the bytes, and the caller moves them to their destination. [`PduFramer::placed`] reports data that
//! the caller received directly into its destination.

use crate::error::TermReqError;
use crc_fast::{CrcAlgorithm, Digest};
use roadtrain_wire::pdu::{
    CH_BYTES, CommonHeader, DIGEST_BYTES, Digests, Fes, PduLayout, header_digest,
};
use roadtrain_wire::zerocopy::transmute_ref;
use std::ops::Range;

/// Next element of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FramingStep {
    /// The input has to hold at least that many bytes.
    Need(usize),
    /// A header, checked against its digest, at the start of the used bytes.
    Header(PduLayout),
    /// Data, at that range of the input.
    Data(Range<usize>),
    /// End of the PDU's data.
    DataEnd {
        /// True if the data digest matched, or there is none.
        intact: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FramingState {
    Header,
    /// Bytes of padding and of data that are still to come.
    Data {
        skip: u32,
        left: u32,
        digest: bool,
    },
}

/// Receive side of one connection's framing.
pub struct PduFramer {
    from_host: bool,
    digests: Digests,
    alignment: u32,
    state: FramingState,
    crc: Digest,
    /// The common header that was checked last, and its layout: most headers equal the one before.
    known: Option<([u8; CH_BYTES], PduLayout)>,
}

impl PduFramer {
    /// A framer of PDUs that the host (or else the controller) sends. Without digests until [`PduFramer::agree`].
    #[must_use]
    pub fn new(from_host: bool) -> Self {
        PduFramer {
            from_host,
            digests: Digests::default(),
            alignment: 1,
            state: FramingState::Header,
            crc: Digest::new(CrcAlgorithm::Crc32Iscsi),
            known: None,
        }
    }

    /// Sets the digests, and the alignment of data in bytes, from the next PDU on.
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
        self.state == FramingState::Header
    }

    /// Returns the next step, and the number of bytes of `input` that it used.
    ///
    /// # Errors
    /// The header is malformed, has the wrong direction, or its digest is wrong.
    #[inline(always)]
    pub fn next(&mut self, input: &[u8]) -> Result<(usize, FramingStep), TermReqError> {
        match self.state {
            FramingState::Header => self.header(input),
            FramingState::Data { left: 0, digest, .. } => Ok(self.data_end(input, digest)),
            FramingState::Data { skip, left, digest } => Ok(self.data(input, skip, left, digest)),
        }
    }

    #[inline(always)]
    fn header(&mut self, input: &[u8]) -> Result<(usize, FramingStep), TermReqError> {
        let Some(bytes) = input.first_chunk() else {
            return Ok((0, FramingStep::Need(CH_BYTES)));
        };
        let layout = match self.known {
            Some((known, layout)) if known == *bytes => layout,
            _ => self.check(bytes)?,
        };
        let end = layout.header_bytes as usize;
        if input.len() < end {
            return Ok((0, FramingStep::Need(end)));
        }
        self.check_header_digest(&input[..end], layout.kind.header_bytes())?;
        if layout.data_bytes > 0 {
            let skip = layout.data_offset - layout.header_bytes;
            let digest = layout.has_data_digest;
            self.state = FramingState::Data { skip, left: layout.data_bytes, digest };
        }
        Ok((end, FramingStep::Header(layout)))
    }

    /// Checks a common header and returns its layout.
    #[inline(never)]
    fn check(&mut self, bytes: &[u8; CH_BYTES]) -> Result<PduLayout, TermReqError> {
        let ch: &CommonHeader = transmute_ref!(bytes);
        let layout = ch.layout(self.digests, self.alignment)?;
        if layout.kind.is_from_host() != self.from_host {
            return Err(TermReqError::new(Fes::PduSequenceError, "PDU type of the other side"));
        }
        self.known = Some((*bytes, layout));
        Ok(layout)
    }

    #[inline]
    fn check_header_digest(&self, header: &[u8], hlen: usize) -> Result<(), TermReqError> {
        let (body, digest) = header.split_at(hlen);
        if digest.is_empty() || header_digest(body) == *digest {
            return Ok(());
        }
        let mut received = [0; DIGEST_BYTES];
        received.copy_from_slice(digest);
        let fei = u32::from_le_bytes(received);
        Err(TermReqError { fes: Fes::HeaderDigestError, fei, what: "header digest" })
    }

    #[inline]
    fn data(&mut self, input: &[u8], skip: u32, left: u32, digest: bool) -> (usize, FramingStep) {
        let skipped = (skip as usize).min(input.len());
        let length = (left as usize).min(input.len() - skipped);
        let range = skipped..skipped + length;
        if length == 0 {
            self.state = FramingState::Data { skip: skip - skipped as u32, left, digest };
            return (skipped, FramingStep::Need(1));
        }
        if digest {
            self.crc.update(&input[range.clone()]);
        }
        self.state = FramingState::Data { skip: 0, left: left - length as u32, digest };
        (range.end, FramingStep::Data(range))
    }

    #[inline]
    fn data_end(&mut self, input: &[u8], digest: bool) -> (usize, FramingStep) {
        if !digest {
            self.state = FramingState::Header;
            return (0, FramingStep::DataEnd { intact: true });
        }
        let Some(received) = input.first_chunk::<DIGEST_BYTES>() else {
            return (0, FramingStep::Need(DIGEST_BYTES));
        };
        let computed = self.crc.finalize_reset() as u32;
        self.state = FramingState::Header;
        (DIGEST_BYTES, FramingStep::DataEnd { intact: computed.to_le_bytes() == *received })
    }

    /// Bytes of data that may be received directly into their destination: 0 while padding, a digest or a header comes
    /// next.
    #[must_use]
    #[inline]
    pub fn wanted(&self) -> u32 {
        match self.state {
            FramingState::Data { skip: 0, left, .. } => left,
            _ => 0,
        }
    }

    /// Bytes of padding and of data of the current PDU that are still to come.
    #[must_use]
    #[inline]
    pub fn data_left(&self) -> (u32, u32) {
        match self.state {
            FramingState::Header => (0, 0),
            FramingState::Data { skip, left, .. } => (skip, left),
        }
    }

    /// Reports that `data` was received directly into its destination: at most [`PduFramer::wanted`] bytes.
    pub fn placed(&mut self, data: &[u8]) {
        if let FramingState::Data { skip: 0, left, digest } = self.state {
            debug_assert!(data.len() <= left as usize, "placed more than was wanted");
            if digest {
                self.crc.update(data);
            }
            self.state = FramingState::Data { skip: 0, left: left - data.len() as u32, digest };
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

    fn framer(digests: Digests) -> PduFramer {
        let mut framer = PduFramer::new(true);
        framer.agree(digests, ALIGNMENT);
        framer
    }

    /// A header and the bytes behind it, perhaps with a wrong byte.
    fn header(digests: Digests) -> impl Strategy<Value = Vec<u8>> {
        let kind = prop::sample::select(vec![PduType::CapsuleCmd, PduType::H2cData]);
        let wrong = prop::option::weighted(0.3, (0..CH_BYTES, 0..8u8));
        (kind, 0..2u32, wrong).prop_map(move |(kind, data, wrong)| {
            let ch = CommonHeader::new(kind, data * 512, digests, ALIGNMENT);
            let mut bytes = ch.as_bytes().to_vec();
            bytes.resize(usize::from(ch.hlen), 0);
            bytes.extend(header_digest(&bytes));
            if let Some((at, bit)) = wrong {
                bytes[at] ^= 1 << bit;
            }
            bytes
        })
    }

    proptest! {
        /// Checks that a wrong header is refused also after a right header that resembles it.
        #[test]
        fn a_header_is_judged_by_itself(
            (digests, headers) in (any::<bool>(), any::<bool>()).prop_flat_map(|(header_too, data)| {
                let digests = Digests { header: header_too, data };
                (Just(digests), prop::collection::vec(header(digests), 1..20))
            })
        ) {
            let mut used = framer(digests);
            for bytes in headers {
                used.state = FramingState::Header;
                let (mut fresh, bytes) = (framer(digests), &bytes[..]);
                prop_assert_eq!(used.next(bytes), fresh.next(bytes));
                prop_assert_eq!(used.state, fresh.state);
            }
        }
    }
}

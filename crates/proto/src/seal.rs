//! Sealed frames (docs/reference/ethernet.md): only the two ends of a lane can make them, and only they can read them.
//!
//! This module decides for both ends when frames are sealed, their numbers, and what may still be in the clear. The
//! caller provides the cipher ([`SealCipher`]) and the buffers.

use crate::security::{
    BLOCKS_MAX, DirectionKeys, FrameKeys, NONCE_BYTES, PROOF_BYTES, Secret, Suite,
};
pub use roadtrain_wire::ether::TAG_BYTES;
use roadtrain_wire::ether::{FrameHeader, FrameType, flags, set_hcrc};
use roadtrain_wire::zerocopy::IntoBytes;

/// Maximum links of a lane.
pub const LINKS_MAX: usize = 16;

/// Frames that a key may seal: fewer than there are SEQ numbers, so that no number comes twice under one key.
const FRAMES_MAX: u64 = 1 << 31;
/// Forged frames after which a lane ends (as in RFC 9147, 4.5.3).
const FORGED_MAX: u64 = 1 << 36;

/// Direction of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealDirection {
    /// Frames that are sent.
    Seal,
    /// Frames that are received.
    Open,
}

/// Error of the cipher library: the frame is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CipherFailed;

/// AES-GCM with one key in one direction.
pub trait SealCipher: Sized {
    /// A cipher with that key.
    ///
    /// # Errors
    /// The library's.
    fn new(suite: Suite, key: &[u8], direction: SealDirection) -> Result<Self, CipherFailed>;
    /// Begins a frame, whose header is only authenticated.
    ///
    /// # Errors
    /// The library's.
    fn begin(&mut self, nonce: &[u8; NONCE_BYTES], header: &[u8]) -> Result<(), CipherFailed>;
    /// Processes the body's next bytes from `input` to `output`, which has the same length.
    ///
    /// # Errors
    /// The library's.
    fn update(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), CipherFailed>;
    /// Processes the body's next bytes in place.
    ///
    /// # Errors
    /// The library's.
    fn update_in_place(&mut self, bytes: &mut [u8]) -> Result<(), CipherFailed>;
    /// Returns the tag of the sealed frame.
    ///
    /// # Errors
    /// The library's.
    fn tag(&mut self) -> Result<[u8; TAG_BYTES], CipherFailed>;
    /// True if the tag of the opened frame is right.
    fn verify(&mut self, tag: &[u8; TAG_BYTES]) -> bool;
}

/// Limits of the use of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLimits {
    /// Blocks of AES.
    pub blocks: u64,
    /// Frames.
    pub frames: u64,
}

impl KeyLimits {
    /// AES-GCM's own limits, at a target.
    pub const TARGET: KeyLimits = KeyLimits { blocks: BLOCKS_MAX, frames: FRAMES_MAX };
    /// A host's limits: it renews its lanes a little earlier, so that no target has to end them.
    pub const HOST: KeyLimits = KeyLimits {
        blocks: BLOCKS_MAX - (BLOCKS_MAX >> 4),
        frames: FRAMES_MAX - (FRAMES_MAX >> 4),
    };
}

/// Cipher state of one direction.
struct DirectionCipher<C> {
    cipher: C,
    iv: [u8; NONCE_BYTES],
    left: KeyLimits,
}

impl<C: SealCipher> DirectionCipher<C> {
    fn new(
        suite: Suite,
        keys: &DirectionKeys,
        direction: SealDirection,
        left: KeyLimits,
    ) -> Result<Self, CipherFailed> {
        Ok(DirectionCipher {
            cipher: C::new(suite, keys.key.reveal(), direction)?,
            iv: keys.iv,
            left,
        })
    }

    fn begin(&mut self, header: &FrameHeader) -> Result<(), CipherFailed> {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(header.number.get().to_be_bytes()) {
            *byte ^= number;
        }
        let header = FrameHeader { hcrc: 0.into(), ..*header }; // as the final header has it
        self.cipher.begin(&nonce, header.as_bytes())
    }

    /// Counts a frame with a body of that many bytes.
    fn count(&mut self, bytes: usize) -> Result<(), CipherFailed> {
        let blocks = bytes.div_ceil(16) as u64 + 5; // with those of header and tag
        let KeyLimits { blocks: left, frames } = self.left;
        let left = left.checked_sub(blocks).zip(frames.checked_sub(1));
        let (blocks, frames) = left.unwrap_or_default();
        self.left = KeyLimits { blocks, frames };
        left.map(drop).ok_or(CipherFailed)
    }

    fn is_used_up(&self) -> bool {
        self.left.blocks == 0 || self.left.frames == 0
    }
}

/// Reason why a frame was dropped before any of its contents were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameRefusal {
    /// The frame is in the clear, in a lane that is sealed.
    Clear,
    /// The frame's tag is wrong: no holder of the key has made it.
    Forged,
    /// The frame repeats an earlier one.
    Replayed,
}

/// Location of a frame's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenedFrame {
    /// The frame itself.
    Clear,
    /// The output buffer of [`Seal::open`].
    Sealed {
        /// Bytes in the output buffer.
        bytes: usize,
        /// True if the lane is sealed from now on.
        is_first: bool,
        /// True for the first sealed frame of its link: the link then trusts its peer.
        is_links_first: bool,
        /// True if no later frame of the link has come: a replay cannot have this property.
        is_newest: bool,
    },
}

/// One end of a lane with sealed frames.
pub struct Seal<C> {
    sends: DirectionCipher<C>,
    receives: DirectionCipher<C>,
    /// NUMBER of the next frame.
    next: u64,
    /// True if the frame that is being sealed has had no error.
    is_intact: bool,
    /// True if frames are sent sealed, and others are refused.
    is_on: bool,
    own_proof: [u8; PROOF_BYTES],
    peer_proof: [u8; PROOF_BYTES],
    /// By LINK: the lowest NUMBER of the next frame without SEQ. The channel checks frames with SEQ.
    unnumbered: [u64; LINKS_MAX],
    /// By LINK: one more than the highest received NUMBER.
    ends: [u64; LINKS_MAX],
    /// Bit mask of the links that have received a sealed frame.
    trusted: u16,
    forged: u64,
}

impl<C: SealCipher> Seal<C> {
    /// The host's end, once the target has accepted the host: sealed at once.
    ///
    /// # Errors
    /// The library's.
    pub fn host(keys: &FrameKeys, limits: KeyLimits) -> Result<Self, CipherFailed> {
        Ok(Seal { is_on: true, ..Self::new(keys.suite, (&keys.host, &keys.target), limits)? })
    }

    /// The target's end, once the host has authenticated: sealed from the first sealed frame of the host on.
    ///
    /// # Errors
    /// The library's.
    pub fn target(keys: &FrameKeys, limits: KeyLimits) -> Result<Self, CipherFailed> {
        Self::new(keys.suite, (&keys.target, &keys.host), limits)
    }

    fn new(
        suite: Suite,
        (own, peer): (&DirectionKeys, &DirectionKeys),
        limits: KeyLimits,
    ) -> Result<Self, CipherFailed> {
        Ok(Seal {
            sends: DirectionCipher::new(suite, own, SealDirection::Seal, limits)?,
            receives: DirectionCipher::new(suite, peer, SealDirection::Open, limits)?,
            next: 0,
            is_intact: true,
            is_on: false,
            own_proof: own.proof,
            peer_proof: peer.proof,
            unnumbered: [0; LINKS_MAX],
            ends: [0; LINKS_MAX],
            trusted: 0,
            forged: 0,
        })
    }

    /// True if frames are sent sealed, and others are refused.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns the proofs with which the two ends close the lane.
    #[must_use]
    pub fn proofs(&self) -> Proofs {
        Proofs { own: self.own_proof, peer: self.peer_proof }
    }

    /// True if the keys are used up: the lane has to end.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        self.sends.is_used_up() || self.receives.is_used_up() || self.forged >= FORGED_MAX
    }

    // ---- What arrives ----

    /// True if a sealed frame of that link was received: its channel's state comes from the peer.
    pub fn trusts(&self, link: u8) -> bool {
        self.trusted.checked_shr(link.into()).unwrap_or_default() & 1 != 0
    }

    /// Opens a frame's body to `out`, if it is sealed. A forged frame costs this once, and changes nothing.
    ///
    /// # Errors
    /// The frame has to be dropped.
    pub fn open(
        &mut self,
        header: &FrameHeader,
        kind: FrameType,
        body: &[u8],
        out: &mut [u8],
    ) -> Result<OpenedFrame, FrameRefusal> {
        if header.flags.get() & flags::SEALED == 0 {
            let is_taken = !self.is_on || kind == FrameType::Leave; // Leave carries a proof
            return if is_taken { Ok(OpenedFrame::Clear) } else { Err(FrameRefusal::Clear) };
        }
        let (is_numbered, number) = (header.flags.get() & flags::SEQ != 0, header.number.get());
        let Some(least) = self.unnumbered.get(usize::from(header.link)).copied() else {
            return Err(FrameRefusal::Forged);
        };
        if !is_numbered && number < least {
            return Err(FrameRefusal::Replayed);
        }
        let Some(bytes) = self.open_body(header, body, out) else {
            self.forged += 1;
            return Err(FrameRefusal::Forged);
        };
        if !is_numbered {
            self.unnumbered[usize::from(header.link)] = number.saturating_add(1);
        }
        let is_first = !std::mem::replace(&mut self.is_on, true);
        let bit = 1 << header.link;
        let is_links_first = self.trusted & bit == 0;
        self.trusted |= bit;
        let end = &mut self.ends[usize::from(header.link)];
        let is_newest = number >= *end;
        *end = (*end).max(number.saturating_add(1));
        Ok(OpenedFrame::Sealed { bytes, is_first, is_links_first, is_newest })
    }

    fn open_body(&mut self, header: &FrameHeader, body: &[u8], out: &mut [u8]) -> Option<usize> {
        let (sealed, tag) = body.split_last_chunk()?;
        let (out, incoming) = (out.get_mut(..sealed.len())?, &mut self.receives);
        incoming.begin(header).and_then(|()| incoming.cipher.update(sealed, out)).ok()?;
        if !incoming.cipher.verify(tag) {
            return None;
        }
        incoming.count(sealed.len()).ok()?;
        Some(sealed.len())
    }

    // ---- What leaves ----

    /// Begins to seal a frame: BODY is the length in the clear. All of the header is final then, HCRC included.
    pub fn begin(&mut self, header: &mut FrameHeader) {
        let bytes = header.body.get();
        let bits = header.flags.get() & !flags::CRC | flags::SEALED;
        (header.flags, header.bcrc) = (bits.into(), 0.into());
        (header.number, header.body) = (self.next.into(), (bytes + TAG_BYTES as u16).into());
        self.next += 1;
        let begun = self.sends.count(bytes.into()).and_then(|()| self.sends.begin(header));
        self.is_intact = begun.is_ok();
        set_hcrc(header);
    }

    /// Seals the body's next bytes.
    pub fn update(&mut self, input: &[u8], output: &mut [u8]) {
        self.is_intact = self.is_intact && self.sends.cipher.update(input, output).is_ok();
    }

    /// Seals the body's next bytes in place.
    pub fn update_in_place(&mut self, bytes: &mut [u8]) {
        self.is_intact = self.is_intact && self.sends.cipher.update_in_place(bytes).is_ok();
    }

    /// Returns the tag, which follows the body. `None`: the frame must not leave, because the key is used up.
    #[must_use]
    pub fn finish(&mut self) -> Option<[u8; TAG_BYTES]> {
        if self.is_intact { self.sends.cipher.tag().ok() } else { None }
    }

    /// Seals a frame in memory. True if it may leave.
    #[must_use]
    pub fn seal(&mut self, header: &mut FrameHeader, body: &mut Vec<u8>) -> bool {
        header.body = (body.len() as u16).into();
        self.begin(header);
        self.update_in_place(body);
        let tag = self.finish();
        body.extend(tag.iter().flatten());
        tag.is_some()
    }
}

/// Opens a frame of a lane that may have no keys: see [`Seal::open`].
///
/// # Errors
/// The frame has to be dropped.
pub fn open<C: SealCipher>(
    seal: Option<&mut Seal<C>>,
    header: &FrameHeader,
    kind: FrameType,
    body: &[u8],
    out: &mut [u8],
) -> Result<OpenedFrame, FrameRefusal> {
    match seal {
        Some(seal) => seal.open(header, kind, body, out),
        None if header.flags.get() & flags::SEALED != 0 => Err(FrameRefusal::Forged),
        None => Ok(OpenedFrame::Clear),
    }
}

/// Proofs that end a sealed lane: bytes that only its two ends know, until one of them ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proofs {
    /// This end's.
    pub own: [u8; PROOF_BYTES],
    /// The other end's.
    pub peer: [u8; PROOF_BYTES],
}

/// True if bytes behind a Leave begin with that proof; compares in constant time.
#[must_use]
pub fn proves(bytes: &[u8], proof: &[u8; PROOF_BYTES]) -> bool {
    bytes.first_chunk::<PROOF_BYTES>().is_some_and(|shown| Secret::new(proof).is(shown))
}

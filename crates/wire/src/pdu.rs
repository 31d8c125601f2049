//! NVMe/TCP protocol data units (NVMe TCP Transport Specification 1.0, section 3.6).
//!
//! | PDU | type | direction | HLEN | data |
//! |---|---|---|---|---|
//! | ICReq | 00h | host | 128 | |
//! | ICResp | 01h | controller | 128 | |
//! | H2CTermReq | 02h | host | 24 | the PDU in error |
//! | C2HTermReq | 03h | controller | 24 | the PDU in error |
//! | CapsuleCmd | 04h | host | 72 | in-capsule data |
//! | CapsuleResp | 05h | controller | 24 | |
//! | H2CData | 06h | host | 24 | yes |
//! | C2HData | 07h | controller | 24 | yes |
//! | R2T | 09h | controller | 24 | |

use crate::cqe::Cqe;
use crate::sqe::Sqe;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the common header.
pub const CH_BYTES: usize = 8;
/// Bytes of a header or data digest.
pub const DIGEST_BYTES: usize = 4;
/// Maximum bytes of a PDU's header, with its digest.
pub const HEADER_BYTES_MAX: usize = 128 + DIGEST_BYTES;
/// Maximum bytes of data in an H2CTermReq or C2HTermReq PDU.
pub const TERM_DATA_BYTES_MAX: usize = 128;

/// PDU types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the specification's own")]
pub enum PduType {
    IcReq = 0,
    IcResp = 1,
    H2cTermReq = 2,
    C2hTermReq = 3,
    CapsuleCmd = 4,
    CapsuleResp = 5,
    H2cData = 6,
    C2hData = 7,
    R2t = 9,
}

impl PduType {
    /// Returns the type with that value.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::IcReq,
            1 => Self::IcResp,
            2 => Self::H2cTermReq,
            3 => Self::C2hTermReq,
            4 => Self::CapsuleCmd,
            5 => Self::CapsuleResp,
            6 => Self::H2cData,
            7 => Self::C2hData,
            9 => Self::R2t,
            _ => return None,
        })
    }

    /// Returns the bytes of the header without digest (HLEN).
    #[must_use]
    #[inline]
    pub const fn header_bytes(self) -> usize {
        match self {
            PduType::IcReq | PduType::IcResp => 128,
            PduType::CapsuleCmd => 72,
            _ => 24,
        }
    }

    /// True if the host sends it (else the controller does).
    #[must_use]
    #[inline]
    pub const fn is_from_host(self) -> bool {
        matches!(self, Self::IcReq | Self::H2cTermReq | Self::CapsuleCmd | Self::H2cData)
    }

    /// True if it may carry digests: PDUs that set up or end a connection never do.
    #[must_use]
    #[inline]
    pub const fn has_digests(self) -> bool {
        self as u8 > PduType::C2hTermReq as u8
    }

    /// True if it may carry data.
    #[must_use]
    #[inline]
    pub const fn may_have_data(self) -> bool {
        use PduType::*;
        matches!(self, H2cTermReq | C2hTermReq | CapsuleCmd | H2cData | C2hData)
    }
}

/// Flags of the common header.
pub mod flag {
    /// A header digest follows the header.
    pub const HDGST: u8 = 1 << 0;
    /// A data digest follows the data.
    pub const DDGST: u8 = 1 << 1;
    /// H2CData, C2HData: the last of its transfer.
    pub const LAST: u8 = 1 << 2;
    /// C2HData: the command succeeded; no CapsuleResp follows.
    pub const SUCCESS: u8 = 1 << 3;
}

/// Fatal error status of H2CTermReq and C2HTermReq (FES, section 3.6.2.4 and 3.6.2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Fes {
    /// FEI: offset of the field in the PDU header.
    InvalidPduHeaderField = 1,
    /// A PDU out of sequence.
    PduSequenceError = 2,
    /// FEI: the digest received.
    HeaderDigestError = 3,
    /// Data beyond the requested range.
    DataTransferOutOfRange = 4,
    /// More R2Ts than MAXR2T (from the host), or more data than MAXH2CDATA (from the controller).
    LimitExceeded = 5,
    /// FEI: offset of the field.
    UnsupportedParameter = 6,
}

impl Fes {
    /// Returns the status with that value.
    #[must_use]
    pub fn from_value(value: u16) -> Option<Self> {
        use Fes::*;
        [
            InvalidPduHeaderField,
            PduSequenceError,
            HeaderDigestError,
            DataTransferOutOfRange,
            LimitExceeded,
            UnsupportedParameter,
        ]
        .into_iter()
        .find(|&fes| fes as u16 == value)
    }
}

/// Common header (CH) of every PDU (section 3.6.1).
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct CommonHeader {
    /// See [`PduType`].
    pub pdu_type: u8,
    pub flags: u8,
    /// Bytes of the header, without digest.
    pub hlen: u8,
    /// Offset of the data from the start of the PDU; 0 without data.
    pub pdo: u8,
    /// Bytes of the whole PDU.
    pub plen: U32,
}

/// Header and data digests of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Digests {
    /// Header digest.
    pub header: bool,
    /// Data digest.
    pub data: bool,
}

impl Digests {
    /// Parses the DGST byte of ICReq and ICResp; `None` if reserved bits are set.
    #[must_use]
    #[inline]
    pub fn from_byte(dgst: u8) -> Option<Self> {
        (dgst & !3 == 0).then_some(Digests { header: dgst & 1 != 0, data: dgst & 2 != 0 })
    }

    /// Returns the DGST byte.
    #[must_use]
    #[inline]
    pub fn to_byte(self) -> u8 {
        u8::from(self.header) | u8::from(self.data) << 1
    }

    /// Returns the flags of a PDU with these digests, with or without data.
    #[must_use]
    #[inline]
    pub const fn flags(self, has_data: bool) -> u8 {
        (self.header as u8 * flag::HDGST) | ((self.data && has_data) as u8 * flag::DDGST)
    }
}

/// Positions of the parts of a PDU, in bytes from its start: the result of a checked common header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PduLayout {
    pub kind: PduType,
    /// Bytes of the header with its digest.
    pub header_bytes: u32,
    /// Offset of the data (0: none).
    pub data_offset: u32,
    /// Bytes of data without padding and digest.
    pub data_bytes: u32,
    /// True if a data digest follows the data.
    pub has_data_digest: bool,
    /// Bytes of the whole PDU.
    pub pdu_bytes: u32,
}

/// A wrong field of the common header: its offset, for FEI of "Invalid PDU Header Field".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Bytes from the start of the PDU.
    pub offset: u32,
}

const TYPE: FieldError = FieldError { offset: 0 };
const FLAGS: FieldError = FieldError { offset: 1 };
const HLEN: FieldError = FieldError { offset: 2 };
const PDO: FieldError = FieldError { offset: 3 };
const PLEN: FieldError = FieldError { offset: 4 };

impl CommonHeader {
    /// A header of `kind` for `data_bytes` of data, padded so that the data starts at a multiple of
    /// `alignment` bytes (1 to 128; HPDA or CPDA).
    #[inline]
    #[must_use]
    pub fn new(kind: PduType, data_bytes: u32, digests: Digests, alignment: u32) -> Self {
        let digests = if kind.has_digests() { digests } else { Digests::default() };
        let header = kind.header_bytes() as u32 + u32::from(digests.header) * DIGEST_BYTES as u32;
        let mut ch = CommonHeader {
            pdu_type: kind as u8,
            flags: digests.flags(data_bytes > 0),
            hlen: kind.header_bytes() as u8,
            pdo: 0,
            plen: header.into(),
        };
        if data_bytes > 0 {
            let is_aligned = is_multiple(header, alignment);
            let pdo = if is_aligned { header } else { header.next_multiple_of(alignment.max(1)) };
            ch.pdo = pdo as u8;
            let digest = u32::from(digests.data) * DIGEST_BYTES as u32;
            ch.plen = (pdo + data_bytes + digest).into();
        }
        ch
    }

    /// Checks every field against the PDU's type, the negotiated digests and `alignment`: HPDA or CPDA in bytes, 1 for
    /// none. Returns the positions of the parts.
    ///
    /// # Errors
    /// The first wrong field.
    #[inline]
    pub fn layout(&self, digests: Digests, alignment: u32) -> Result<PduLayout, FieldError> {
        let kind = PduType::from_byte(self.pdu_type).ok_or(TYPE)?;
        let digests = if kind.has_digests() { digests } else { Digests::default() };
        if usize::from(self.hlen) != kind.header_bytes() {
            return Err(HLEN);
        }
        let header = u32::from(self.hlen) + u32::from(digests.header) * DIGEST_BYTES as u32;
        let (pdo, plen) = (u32::from(self.pdo), self.plen.get());
        let has_data = match kind {
            PduType::H2cTermReq | PduType::C2hTermReq => plen > header,
            _ => kind.may_have_data() && plen > header,
        };
        self.check_flags(kind, digests, has_data)?;
        if !has_data {
            // PDO is reserved then; some hosts set it, so it is ignored.
            return if plen == header { Ok(self.at(kind, header, 0, 0, false)) } else { Err(PLEN) };
        }
        if !kind.has_digests() {
            let data = plen - header;
            let fits = data as usize <= TERM_DATA_BYTES_MAX;
            return if fits { Ok(self.at(kind, header, header, data, false)) } else { Err(PLEN) };
        }
        if pdo < header || !is_multiple(pdo, alignment) {
            return Err(PDO);
        }
        let digest = u32::from(digests.data) * DIGEST_BYTES as u32;
        match plen.checked_sub(pdo + digest) {
            Some(data) if data > 0 => Ok(self.at(kind, header, pdo, data, digests.data)),
            _ => Err(PLEN),
        }
    }

    fn check_flags(
        &self,
        kind: PduType,
        digests: Digests,
        has_data: bool,
    ) -> Result<(), FieldError> {
        let more = match kind {
            PduType::H2cData => flag::LAST,
            PduType::C2hData => flag::LAST | flag::SUCCESS,
            _ => 0,
        };
        // A digest flag must match the negotiation; DDGST without data is tolerated.
        let wanted = digests.flags(has_data);
        let optional = if digests.data && !has_data { flag::DDGST } else { 0 };
        if self.flags & !more & !optional == wanted { Ok(()) } else { Err(FLAGS) }
    }

    fn at(&self, kind: PduType, header: u32, offset: u32, data: u32, digest: bool) -> PduLayout {
        PduLayout {
            kind,
            header_bytes: header,
            data_offset: offset,
            data_bytes: data,
            has_data_digest: digest,
            pdu_bytes: self.plen.get(),
        }
    }
}

/// True if data may start at `offset`. Avoids a division for alignments of up to a dword, which all known hosts and
/// controllers use.
#[inline]
const fn is_multiple(offset: u32, alignment: u32) -> bool {
    match alignment {
        0 | 1 => true,
        4 => offset & 3 == 0,
        _ => offset.is_multiple_of(alignment),
    }
}

/// Returns the CRC32C of a header: the HDGST that follows it.
#[must_use]
#[inline]
pub fn header_digest(header: &[u8]) -> [u8; 4] {
    crc_fast::crc32_iscsi(header).to_le_bytes()
}

macro_rules! pdu_struct {
    ($(#[$doc:meta])* $name:ident, $bytes:literal { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name {
            pub ch: CommonHeader,
            $($(#[$field_doc])* pub $field: $kind,)*
        }
        const _: () = assert!(size_of::<$name>() == $bytes);
    };
}

pdu_struct! {
    /// Initialize Connection Request (section 3.6.2.2).
    IcReq, 128 {
        /// PDU format version, 0.
        pfv: U16,
        /// Host PDU data alignment, in dwords minus one (0..=31).
        hpda: u8,
        /// Requested digests.
        dgst: u8,
        /// Maximum outstanding R2Ts of a command, minus one.
        maxr2t: U32,
        reserved: [u8; 112],
    }
}

pdu_struct! {
    /// Initialize Connection Response (section 3.6.2.3).
    IcResp, 128 {
        /// PDU format version, 0.
        pfv: U16,
        /// Controller PDU data alignment, in dwords minus one (0..=31).
        cpda: u8,
        /// Granted digests.
        dgst: u8,
        /// Maximum bytes of data in an H2CData PDU, 4,096 or more, a multiple of 4.
        maxh2cdata: U32,
        reserved: [u8; 112],
    }
}

pdu_struct! {
    /// H2CTermReq and C2HTermReq (sections 3.6.2.4 and 3.6.2.5); the start of the PDU in error follows.
    TermReq, 24 {
        /// See [`Fes`].
        fes: U16,
        /// Fatal error information.
        fei: [u8; 4],
        reserved: [u8; 10],
    }
}

pdu_struct! {
    /// Command capsule (section 3.6.2.6).
    CapsuleCmd, 72 {
        /// The command.
        sqe: Sqe,
    }
}

pdu_struct! {
    /// Response capsule (section 3.6.2.7).
    CapsuleResp, 24 {
        /// The completion.
        cqe: Cqe,
    }
}

pdu_struct! {
    /// Host to controller data (section 3.6.2.8).
    H2cData, 24 {
        /// Command capsule CID.
        cccid: U16,
        /// Transfer tag of the R2T.
        ttag: U16,
        /// Data offset in the command's buffer.
        datao: U32,
        /// Bytes of data.
        datal: U32,
        reserved: [u8; 4],
    }
}

pdu_struct! {
    /// Controller to host data (section 3.6.2.9).
    C2hData, 24 {
        /// Command capsule CID.
        cccid: U16,
        reserved: [u8; 2],
        /// Data offset in the command's buffer.
        datao: U32,
        /// Bytes of data.
        datal: U32,
        reserved2: [u8; 4],
    }
}

pdu_struct! {
    /// Ready to transfer (section 3.6.2.10).
    R2t, 24 {
        /// Command capsule CID.
        cccid: U16,
        /// Transfer tag, for the H2CData.
        ttag: U16,
        /// Requested offset.
        r2to: U32,
        /// Requested bytes.
        r2tl: U32,
        reserved: [u8; 4],
    }
}

/// Returns HPDA or CPDA (dwords minus one) in bytes, `None` above 31.
#[must_use]
#[inline]
pub fn alignment_bytes(pda: u8) -> Option<u32> {
    (pda <= 31).then(|| (u32::from(pda) + 1) * 4)
}

impl IcReq {
    /// An ICReq that requests `digests`, with data aligned to `hpda` and `maxr2t` + 1 R2Ts a command.
    #[must_use]
    pub fn new(digests: Digests, hpda: u8, maxr2t: u32) -> Self {
        IcReq {
            ch: CommonHeader::new(PduType::IcReq, 0, Digests::default(), 1),
            pfv: 0.into(),
            hpda,
            dgst: digests.to_byte(),
            maxr2t: maxr2t.into(),
            reserved: [0; 112],
        }
    }
}

impl IcResp {
    /// An ICResp that grants `digests`, with data aligned to `cpda` and at most `maxh2cdata` bytes in an H2CData.
    #[must_use]
    pub fn new(digests: Digests, cpda: u8, maxh2cdata: u32) -> Self {
        IcResp {
            ch: CommonHeader::new(PduType::IcResp, 0, Digests::default(), 1),
            pfv: 0.into(),
            cpda,
            dgst: digests.to_byte(),
            maxh2cdata: maxh2cdata.into(),
            reserved: [0; 112],
        }
    }
}

impl TermReq {
    /// An H2CTermReq (`from_host`) or C2HTermReq, followed by `data_bytes` (at most 128) of the PDU in error.
    #[must_use]
    pub fn new(from_host: bool, fes: Fes, fei: u32, data_bytes: u32) -> Self {
        let kind = if from_host { PduType::H2cTermReq } else { PduType::C2hTermReq };
        let mut ch = CommonHeader::new(kind, 0, Digests::default(), 1);
        ch.plen = (ch.plen.get() + data_bytes).into();
        TermReq { ch, fes: (fes as u16).into(), fei: fei.to_le_bytes(), reserved: [0; 10] }
    }
}

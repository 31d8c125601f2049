//! Submission queue entry: the 64-byte command (NVMe Base 2.0, section 3.3.3.1).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a submission queue entry.
pub const SQE_BYTES: usize = 64;

/// Bytes of an entry of a Copy's list of source ranges (format 0).
pub const COPY_RANGE_BYTES: u32 = 32;

/// PSDT value in [`Sqe::flags`] for "SGL, no metadata buffer": the only one over fabrics.
pub const FLAG_SGL: u8 = 0x40;
/// PSDT in [`Sqe::flags`] (NVMe Base 2.1, section 3.4.2).
pub const FLAG_PSDT: u8 = 0xc0;

/// FUSE in [`Sqe::flags`] (NVMe Base 2.1, section 3.4.2): bits with the part of a fused operation.
pub const FLAG_FUSE: u8 = 0x03;
/// FUSE: the first command of a fused operation.
pub const FUSE_FIRST: u8 = 0x01;
/// FUSE: the second command of a fused operation.
pub const FUSE_SECOND: u8 = 0x02;

/// SGL data block descriptor whose address is an offset into the capsule (in-capsule data).
pub const SGL_OFFSET: u8 = 0x01;
/// Transport SGL data block: the transport moves the data (R2T/H2CData or C2HData).
pub const SGL_TRANSPORT: u8 = 0x5a;

/// I/O and admin opcodes.
pub mod opcode {
    pub const FLUSH: u8 = 0x00;
    /// I/O: write logical blocks.
    pub const WRITE: u8 = 0x01;
    /// I/O: read logical blocks.
    pub const READ: u8 = 0x02;
    /// I/O: mark logical blocks as unreadable until they are written.
    pub const WRITE_UNCORRECTABLE: u8 = 0x04;
    /// I/O: compare logical blocks with the host's data.
    pub const COMPARE: u8 = 0x05;
    /// I/O: set logical blocks to zero.
    pub const WRITE_ZEROES: u8 = 0x08;
    /// I/O: dataset management (deallocate).
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    /// I/O: check that logical blocks can be read.
    pub const VERIFY: u8 = 0x0c;
    /// I/O: copy logical blocks within a namespace.
    pub const COPY: u8 = 0x19;
    /// I/O: see [`crate::reservation`].
    pub const RESERVATION_REGISTER: u8 = 0x0d;
    pub const RESERVATION_REPORT: u8 = 0x0e;
    pub const RESERVATION_ACQUIRE: u8 = 0x11;
    pub const RESERVATION_RELEASE: u8 = 0x15;
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0a;
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    /// See [`crate::namespace_management`].
    pub const NAMESPACE_MANAGEMENT: u8 = 0x0d;
    pub const NAMESPACE_ATTACHMENT: u8 = 0x15;
    pub const KEEP_ALIVE: u8 = 0x18;
    pub const CROSS_CONTROLLER_RESET: u8 = 0x38;
    /// See [`crate::lba_status`].
    pub const GET_LBA_STATUS: u8 = 0x86;
    /// Admin and I/O: fabrics command set; FCTYPE is the type of the command.
    pub const FABRICS: u8 = 0x7f;
}

/// Bits of CDW12 in Read, Write, Compare and Write Zeroes (NVM Command Set 1.0, section 3.2).
pub mod cdw12 {
    /// Force unit access.
    pub const FUA: u32 = 1 << 30;
    /// Write Zeroes: deallocate.
    pub const DEAC: u32 = 1 << 25;
    /// Protection information action and checks; must be zero without metadata.
    pub const PRINFO: u32 = 0xf << 26;
    /// Copy: format of the source ranges.
    pub const COPY_FORMAT: u32 = 0xf << 8;
    /// Copy: protection information of reads and writes, and checks of storage tags; must be zero without metadata.
    pub const COPY_PRINFO: u32 = 0xf << 26 | 0xf << 12 | 3 << 24;
}

/// The SGL descriptor in DPTR (NVMe Base 2.0, section 4.1.2).
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
pub struct Sgl {
    /// Address, or offset into the capsule's data.
    pub address: U64,
    /// Bytes of data.
    pub length: U32,
    pub reserved: [u8; 3],
    /// Type (high nibble) and subtype (low nibble): [`SGL_OFFSET`], [`SGL_TRANSPORT`].
    pub kind: u8,
}

/// Submission queue entry.
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
pub struct Sqe {
    pub opcode: u8,
    /// FUSE (bits 1:0) and PSDT (bits 7:6).
    pub flags: u8,
    pub cid: U16,
    /// Namespace identifier; for fabrics commands the first byte is FCTYPE.
    pub nsid: U32,
    /// Command dword 2.
    pub cdw2: U32,
    /// Command dword 3.
    pub cdw3: U32,
    /// Metadata pointer.
    pub mptr: U64,
    /// Data pointer.
    pub sgl: Sgl,
    /// Command dword 10.
    pub cdw10: U32,
    /// Command dword 11.
    pub cdw11: U32,
    /// Command dword 12.
    pub cdw12: U32,
    /// Command dword 13.
    pub cdw13: U32,
    /// Command dword 14.
    pub cdw14: U32,
    /// Command dword 15.
    pub cdw15: U32,
}

const _: () = assert!(size_of::<Sqe>() == SQE_BYTES);

impl Sqe {
    /// A command with only its opcode and namespace, without data.
    #[must_use]
    #[inline]
    pub fn new(opcode: u8, nsid: u32) -> Self {
        let mut sqe = Sqe { opcode, flags: FLAG_SGL, nsid: nsid.into(), ..Sqe::default() };
        sqe.sgl.kind = SGL_TRANSPORT;
        sqe
    }

    /// A Read, Write, Compare or Write Zeroes command of `blocks` (1..=65536) from `slba`.
    #[must_use]
    #[inline]
    pub fn rw(opcode: u8, nsid: u32, slba: u64, blocks: u32) -> Self {
        let mut sqe = Sqe::new(opcode, nsid);
        sqe.set_slba(slba);
        sqe.cdw12 = (blocks.wrapping_sub(1) & 0xffff).into();
        sqe
    }

    /// Sets CDW10 and CDW11 to a starting LBA.
    #[inline]
    pub fn set_slba(&mut self, slba: u64) {
        self.cdw10 = (slba as u32).into();
        self.cdw11 = ((slba >> 32) as u32).into();
    }

    /// Returns the starting LBA of commands that have one.
    #[must_use]
    #[inline]
    pub fn slba(&self) -> u64 {
        u64::from(self.cdw10.get()) | u64::from(self.cdw11.get()) << 32
    }

    /// Returns the number of logical blocks, counted from 1.
    #[must_use]
    #[inline]
    pub fn blocks(&self) -> u32 {
        (self.cdw12.get() & 0xffff) + 1
    }

    /// Returns FCTYPE of a fabrics command.
    #[must_use]
    #[inline]
    pub fn fctype(&self) -> u8 {
        self.nsid.get() as u8
    }

    /// Sets the SGL for `length` bytes of in-capsule data, from offset 0.
    #[inline]
    pub fn set_in_capsule(&mut self, length: u32) {
        self.sgl = Sgl { length: length.into(), kind: SGL_OFFSET, ..Sgl::default() };
    }

    /// Sets the SGL for `length` bytes moved by the transport.
    #[inline]
    pub fn set_transport(&mut self, length: u32) {
        self.sgl = Sgl { length: length.into(), kind: SGL_TRANSPORT, ..Sgl::default() };
    }
}

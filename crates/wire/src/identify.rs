//! Identify data structures (NVMe Base 2.1, section 5.1.13; NVM Command Set 1.1, section 4.1.5).
//!
//! Each page is a struct of its full 4,096 bytes: a target fills one and sends `as_bytes()`, a host
//! views what it received with `ref_from_bytes`. Reserved and unused fields are zero (`new_zeroed`).

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of every Identify data structure.
pub const IDENTIFY_BYTES: usize = 4096;
/// NSID of all namespaces.
pub const NSID_ALL: u32 = 0xffff_ffff;
/// I/O command set identifier of the NVM command set.
pub const CSI_NVM: u8 = 0;
/// Entries of a namespace list.
pub const NAMESPACE_LIST_ENTRIES: usize = IDENTIFY_BYTES / 4;

/// Controller or Namespace Structure: data structure that Identify returns.
pub mod cns {
    /// Identify Namespace data structure of an NSID (NVM command set).
    pub const NAMESPACE: u8 = 0x00;
    pub const CONTROLLER: u8 = 0x01;
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace Identification Descriptor list.
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// I/O Command Set specific Identify Namespace data structure.
    pub const NAMESPACE_COMMAND_SET: u8 = 0x05;
    /// I/O Command Set specific Identify Controller data structure.
    pub const CONTROLLER_COMMAND_SET: u8 = 0x06;
    /// I/O Command Set specific Active Namespace ID list.
    pub const ACTIVE_NAMESPACES_COMMAND_SET: u8 = 0x07;
    /// I/O Command Set Independent Identify Namespace data structure.
    pub const NAMESPACE_INDEPENDENT: u8 = 0x08;
    /// NSIDs of the subsystem, attached or not.
    pub const ALLOCATED_NAMESPACES: u8 = 0x10;
    /// Identify Namespace data structure of an allocated NSID.
    pub const ALLOCATED_NAMESPACE: u8 = 0x11;
    /// Controllers that a namespace is attached to, from CNTID on.
    pub const ATTACHED_CONTROLLERS: u8 = 0x12;
    /// Controllers of the subsystem, from CNTID on.
    pub const CONTROLLERS: u8 = 0x13;
    /// Identify I/O Command Set data structure.
    pub const COMMAND_SETS: u8 = 0x1c;
}

/// CNTRLTYPE: kinds of controller.
pub mod cntrltype {
    pub const IO: u8 = 1;
    pub const DISCOVERY: u8 = 2;
}

/// CMIC: multi-path I/O and namespace sharing.
pub mod cmic {
    /// The subsystem may have two or more ports.
    pub const MULTI_PORT: u8 = 1 << 0;
    /// The subsystem may have two or more controllers.
    pub const MULTI_CONTROLLER: u8 = 1 << 1;
    /// Asymmetric namespace access is reported.
    pub const ANA: u8 = 1 << 3;
}

/// OAES: optional asynchronous events; the same bits enable them in feature 0Bh.
pub mod oaes {
    pub const NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
    pub const ANA_CHANGE: u32 = 1 << 11;
    pub const CROSS_CONTROLLER_RESET: u32 = 1 << 20;
    pub const DISCOVERY_LOG: u32 = 1 << 31;
}

/// CTRATT: controller attributes.
pub mod ctratt {
    /// 128-bit host identifiers.
    pub const HOST_ID_128: u32 = 1 << 0;
    pub const TRAFFIC_BASED_KEEP_ALIVE: u32 = 1 << 6;
}

/// LPA: log page attributes.
pub mod lpa {
    pub const COMMAND_EFFECTS: u8 = 1 << 1;
    /// Extended data: 32-bit NUMD and a log page offset.
    pub const EXTENDED_DATA: u8 = 1 << 2;
    /// Log pages 00h, 12h and 13h, and scopes in 05h.
    pub const MISCELLANEOUS: u8 = 1 << 5;
}

/// ANACAP: asymmetric namespace access capabilities.
pub mod anacap {
    /// ANA Optimized may be reported; so the next four.
    pub const OPTIMIZED: u8 = 1 << 0;
    pub const NON_OPTIMIZED: u8 = 1 << 1;
    pub const INACCESSIBLE: u8 = 1 << 2;
    pub const PERSISTENT_LOSS: u8 = 1 << 3;
    pub const CHANGE: u8 = 1 << 4;
    /// A namespace keeps its ANA group while attached.
    pub const GROUP_FIXED: u8 = 1 << 6;
}

/// OACS: optional admin commands.
pub mod oacs {
    /// See [`crate::namespace_management`].
    pub const NAMESPACE_MANAGEMENT: u16 = 1 << 3;
    /// See [`crate::lba_status`].
    pub const GET_LBA_STATUS: u16 = 1 << 9;
}

/// ONCS: optional NVM commands.
pub mod oncs {
    pub const COMPARE: u16 = 1 << 0;
    pub const WRITE_UNCORRECTABLE: u16 = 1 << 1;
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// Save in Set Features and Select in Get Features.
    pub const SAVE_SELECT: u16 = 1 << 4;
    pub const RESERVATIONS: u16 = 1 << 5;
    pub const VERIFY: u16 = 1 << 7;
    pub const COPY: u16 = 1 << 8;
}

/// RESCAP: reservation capabilities of a namespace.
pub mod rescap {
    /// Persist Through Power Loss.
    pub const PERSISTENCE: u8 = 1 << 0;
    /// All six types.
    pub const ALL_TYPES: u8 = 0b111_1110;
    /// IEKEY as in NVMe 1.3 and later.
    pub const IEKEY: u8 = 1 << 7;
}

/// CDFS: formats of the ranges of a Copy.
pub mod cdfs {
    pub const FORMAT_0: u16 = 1 << 0;
}

/// FUSES: fused operations.
pub mod fuses {
    pub const COMPARE_AND_WRITE: u16 = 1 << 0;
}

/// VWC: volatile write cache.
pub mod vwc {
    /// A volatile write cache is present.
    pub const PRESENT: u8 = 1 << 0;
    /// Flush with NSID FFFFFFFFh flushes every attached namespace.
    pub const FLUSH_ALL_SUPPORTED: u8 = 0b11 << 1;
}

/// SGLS: SGL support.
pub mod sgls {
    /// SGLs without alignment or granularity requirements.
    pub const SUPPORTED: u32 = 0b01;
    /// An address may be an offset into the capsule (in-capsule data).
    pub const OFFSET: u32 = 1 << 20;
    /// Transport SGL data blocks.
    pub const TRANSPORT: u32 = 1 << 21;
}

/// OFCS: optional fabrics commands.
pub mod ofcs {
    /// Disconnect (of an I/O queue).
    pub const DISCONNECT: u16 = 1 << 0;
}

/// Identify Controller (CNS 01h), with the fabrics fields from byte 1792.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyController {
    pub vid: U16,
    pub ssvid: U16,
    /// Serial number, ASCII, padded with spaces.
    pub sn: [u8; 20],
    /// Model number, ASCII, padded with spaces.
    pub mn: [u8; 40],
    /// Firmware revision, ASCII, padded with spaces.
    pub fr: [u8; 8],
    pub rab: u8,
    pub ieee: [u8; 3],
    pub cmic: u8,
    /// Largest transfer: 2^MDTS pages of CAP.MPSMIN; 0 is unlimited.
    pub mdts: u8,
    pub cntlid: U16,
    pub ver: U32,
    /// In microseconds.
    pub rtd3r: U32,
    /// In microseconds.
    pub rtd3e: U32,
    pub oaes: U32,
    pub ctratt: U32,
    pub reserved100: [u8; 11],
    pub cntrltype: u8,
    pub fguid: [u8; 16],
    pub crdt: [U16; 3],
    pub crcap: u8,
    /// Controller Instance Uniquifier; 0: none.
    pub ciu: u8,
    /// Controller Instance Random Number.
    pub cirn: U64,
    pub reserved144: [u8; 112],
    /// See [`oacs`].
    pub oacs: U16,
    /// Abort command limit, minus one.
    pub acl: u8,
    /// Asynchronous event request limit, minus one.
    pub aerl: u8,
    pub frmw: u8,
    pub lpa: u8,
    /// Error log page entries, minus one.
    pub elpe: u8,
    pub npss: u8,
    pub avscc: u8,
    pub apsta: u8,
    pub wctemp: U16,
    pub cctemp: U16,
    pub mtfa: U16,
    pub hmpre: U32,
    pub hmmin: U32,
    pub tnvmcap: U128,
    pub unvmcap: U128,
    pub rpmbs: U32,
    pub edstt: U16,
    pub dsto: u8,
    pub fwug: u8,
    /// Granularity of the keep alive timer in units of 100 ms.
    pub kas: U16,
    pub hctma: U16,
    pub mntmt: U16,
    pub mxtmt: U16,
    pub sanicap: U32,
    pub hmminds: U32,
    pub hmmaxd: U16,
    pub nsetidmax: U16,
    pub endgidmax: U16,
    /// ANA transition time in seconds.
    pub anatt: u8,
    /// See [`anacap`].
    pub anacap: u8,
    /// Largest ANA group identifier.
    pub anagrpmax: U32,
    /// ANA groups that there can be.
    pub nanagrpid: U32,
    pub pels: U32,
    pub domain: U16,
    pub reserved358: [u8; 28],
    /// Command Quiesce Time in milliseconds: time for which a controller that has lost its host may continue commands.
    pub cqt: U16,
    pub reserved388: [u8; 124],
    /// Submission queue entry size: maximum (7:4) and required (3:0), as powers of two.
    pub sqes: u8,
    /// Completion queue entry size, likewise.
    pub cqes: u8,
    /// Outstanding commands a queue, over fabrics.
    pub maxcmd: U16,
    pub nn: U32,
    pub oncs: U16,
    pub fuses: U16,
    pub fna: u8,
    pub vwc: u8,
    pub awun: U16,
    pub awupf: U16,
    pub icsvscc: u8,
    pub nwpc: u8,
    pub acwu: U16,
    pub cdfs: U16,
    pub sgls: U32,
    /// Most namespaces at once.
    pub mnan: U32,
    pub maxdna: U128,
    pub maxcna: U32,
    pub oaqd: U32,
    pub reserved568: [u8; 200],
    /// NQN, NUL-terminated.
    pub subnqn: [u8; 256],
    pub reserved1024: [u8; 768],
    /// I/O command capsule, in units of 16 bytes (4 is a bare command).
    pub ioccsz: U32,
    /// I/O response capsule, in units of 16 bytes.
    pub iorcsz: U32,
    /// In-capsule data offset, in units of 16 bytes.
    pub icdoff: U16,
    /// Bit 0: static controller model.
    pub fcatt: u8,
    /// SGL descriptors a command may have; 0 is unlimited.
    pub msdbd: u8,
    pub ofcs: U16,
    /// Discovery controller type: 1 is a direct discovery controller.
    pub dctype: u8,
    /// Cross-Controller Resets that may be in progress; 0: the command is not supported.
    pub ccrl: u8,
    pub reserved1808: [u8; 240],
    pub psd: [PowerState; 32],
    pub vendor: [u8; 1024],
}

/// Offset in [`IdentifyController::vendor`] of the endpoint that Roadtrain's targets report: a mark, and 8 bytes.
const ENDPOINT_AT: usize = 512;
const ENDPOINT_MARK: &[u8; 8] = b"RTendpnt";

impl IdentifyController {
    /// Returns the endpoint: a number of the place where the target's process listens. It stays the same when another
    /// process listens there, which is possible only when the first one has ended. 0: not reported.
    #[must_use]
    pub fn endpoint(&self) -> u64 {
        let field = self.vendor[ENDPOINT_AT..].strip_prefix(ENDPOINT_MARK);
        field.and_then(<[u8]>::first_chunk).map_or(0, |number| u64::from_le_bytes(*number))
    }

    /// Sets the endpoint.
    pub fn set_endpoint(&mut self, endpoint: u64) {
        let field = &mut self.vendor[ENDPOINT_AT..];
        field[..8].copy_from_slice(ENDPOINT_MARK);
        field[8..16].copy_from_slice(&endpoint.to_le_bytes());
    }
}

/// Power State descriptor: only the maximum power is modelled.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PowerState {
    /// Maximum power in centiwatts; 0 is not reported.
    pub mp: U16,
    /// Other fields, all zero here.
    pub rest: [u8; 30],
}

/// Bits of NSFEAT in Identify Namespace.
pub mod nsfeat {
    /// NAWUN, NAWUPF and NACWU are this namespace's; else the controller's count.
    pub const ATOMICITY: u8 = 1 << 1;
    /// NPWG, NPWA, NPDG, NPDA and NOWS are defined.
    pub const OPTIMAL_IO: u8 = 1 << 4;
    /// In the I/O Command Set Independent structure: no volatile write cache for this namespace.
    pub const VWC_NOT_PRESENT: u8 = 1 << 5;
}

/// Bits of DLFEAT in Identify Namespace.
pub mod dlfeat {
    /// Deallocated blocks read as zeroes.
    pub const READS_ZERO: u8 = 0b001;
    /// Mask of the value that deallocated blocks read as.
    pub const READS: u8 = 0b111;
    /// Write Zeroes may deallocate (DEAC).
    pub const WRITE_ZEROES_DEALLOCATES: u8 = 1 << 3;
}

/// NMIC: the namespace may be attached to several controllers.
pub const NMIC_SHARED: u8 = 1 << 0;
/// NSATTR: the namespace is write protected.
pub const NSATTR_WRITE_PROTECTED: u8 = 1 << 0;
/// NSTAT: the namespace is ready.
pub const NSTAT_READY: u8 = 1 << 0;

/// LBA Format data structure.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LbaFormat {
    /// Metadata bytes.
    pub ms: U16,
    /// Logical block data size, as a power of two (9 is 512).
    pub lbads: u8,
    pub rp: u8,
}

/// Identify Namespace (CNS 00h), NVM command set.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// Size in logical blocks.
    pub nsze: U64,
    /// Capacity in logical blocks.
    pub ncap: U64,
    /// Logical blocks allocated.
    pub nuse: U64,
    pub nsfeat: u8,
    /// LBA formats, minus one.
    pub nlbaf: u8,
    /// LBA format in use, bits 3:0.
    pub flbas: u8,
    pub mc: u8,
    pub dpc: u8,
    pub dps: u8,
    /// See [`NMIC_SHARED`].
    pub nmic: u8,
    /// See [`rescap`].
    pub rescap: u8,
    pub fpi: u8,
    pub dlfeat: u8,
    pub nawun: U16,
    pub nawupf: U16,
    pub nacwu: U16,
    pub nabsn: U16,
    pub nabo: U16,
    pub nabspf: U16,
    pub noiob: U16,
    /// In bytes.
    pub nvmcap: U128,
    /// Preferred write granularity in logical blocks, minus one; so the next four.
    pub npwg: U16,
    pub npwa: U16,
    pub npdg: U16,
    pub npda: U16,
    pub nows: U16,
    pub mssrl: U16,
    pub mcl: U32,
    pub msrc: u8,
    pub kpios: u8,
    pub nulbaf: u8,
    pub reserved83: u8,
    pub kpiodaag: U32,
    pub reserved88: U32,
    /// ANA group; 0: none.
    pub anagrpid: U32,
    pub reserved96: [u8; 3],
    /// See [`NSATTR_WRITE_PROTECTED`].
    pub nsattr: u8,
    pub nvmsetid: U16,
    pub endgid: U16,
    pub nguid: [u8; 16],
    pub eui64: [u8; 8],
    pub lbaf: [LbaFormat; 64],
    pub vendor: [u8; 3712],
}

/// Mark of a write verifier in the vendor-specific bytes of a namespace's page, set by this project's targets.
const WRITE_VERIFIER: [u8; 8] = *b"RT-WVERF";

impl IdentifyNamespace {
    /// Returns the write verifier: a number that changes when acknowledged writes that were not flushed may be lost.
    /// `None`: not reported.
    ///
    /// It is in the first 16 vendor-specific bytes (384 to 399): the characters `RT-WVERF`, then the number in little
    /// endian.
    #[must_use]
    pub fn write_verifier(&self) -> Option<u64> {
        let (mark, rest) = self.vendor.split_first_chunk::<8>()?;
        let verifier = u64::from_le_bytes(*rest.first_chunk()?);
        (*mark == WRITE_VERIFIER).then_some(verifier)
    }

    /// Sets the write verifier: see [`IdentifyNamespace::write_verifier`].
    pub fn set_write_verifier(&mut self, verifier: u64) {
        self.vendor[..8].copy_from_slice(&WRITE_VERIFIER);
        self.vendor[8..16].copy_from_slice(&verifier.to_le_bytes());
    }

    /// Returns the bytes of a logical block, or `None` when the format in use is invalid (below 512 bytes, above 64
    /// KiB, or with metadata).
    #[must_use]
    pub fn block_bytes(&self) -> Option<u32> {
        let index = usize::from(self.flbas & 0xf) | usize::from(self.flbas >> 5 & 3) << 4;
        let format = self.lbaf[index];
        (format.ms.get() == 0 && (9..=16).contains(&format.lbads)).then(|| 1 << format.lbads)
    }

    /// True if the page describes an active namespace (an inactive one is all zeroes).
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.nsze.get() != 0
    }

    /// True if the namespace is write protected.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.nsattr & NSATTR_WRITE_PROTECTED != 0
    }
}

/// I/O Command Set specific Identify Namespace (CNS 05h) of the NVM command set.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespaceNvm {
    pub lbstm: U64,
    pub pic: u8,
    pub pifa: u8,
    pub reserved10: U16,
    pub elbaf: [U32; 64],
    pub reserved268: [u8; 3828],
}

/// I/O Command Set specific Identify Controller (CNS 06h) of the NVM command set. All sizes are powers
/// of two in pages of CAP.MPSMIN; 0 is no limit.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyControllerNvm {
    pub vsl: u8,
    pub wzsl: u8,
    pub wusl: u8,
    pub dmrl: u8,
    /// Dataset Management range size limit, in logical blocks.
    pub dmrsl: U32,
    /// Dataset Management size limit, in logical blocks.
    pub dmsl: U64,
    /// Later fields, all zero here.
    pub reserved16: [u8; 4080],
}

/// I/O Command Set Independent Identify Namespace (CNS 08h).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespaceIndependent {
    /// See [`nsfeat::VWC_NOT_PRESENT`].
    pub nsfeat: u8,
    pub nmic: u8,
    pub rescap: u8,
    pub fpi: u8,
    /// ANA group; 0: none.
    pub anagrpid: U32,
    pub nsattr: u8,
    pub reserved9: u8,
    pub nvmsetid: U16,
    pub endgid: U16,
    /// See [`NSTAT_READY`].
    pub nstat: u8,
    pub reserved15: [u8; 4081],
}

/// Identify I/O Command Set data structure (CNS 1Ch): the supported combinations.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyCommandSets {
    /// Bit n of a vector: the command set with CSI n.
    pub vectors: [U64; 512],
}

/// A list of NSIDs in increasing order, zero-filled (CNS 02h, 07h, 10h).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NamespaceList {
    /// The entries; the first zero ends the list.
    pub nsids: [U32; NAMESPACE_LIST_ENTRIES],
}

impl NamespaceList {
    /// A list of the first 1,024 of `nsids`.
    #[must_use]
    pub fn from_nsids(nsids: impl IntoIterator<Item = u32>) -> Self {
        let mut list = Self::new_zeroed();
        for (entry, nsid) in list.nsids.iter_mut().zip(nsids) {
            *entry = nsid.into();
        }
        list
    }

    /// Returns the NSIDs in the list.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.nsids.iter().map(|nsid| nsid.get()).take_while(|&nsid| nsid != 0)
    }
}

macro_rules! page_asserts {
    ($($page:ty),*) => { $(const _: () = assert!(size_of::<$page>() == IDENTIFY_BYTES);)* };
}
page_asserts!(
    IdentifyController,
    IdentifyNamespace,
    IdentifyNamespaceNvm,
    IdentifyControllerNvm,
    IdentifyNamespaceIndependent,
    IdentifyCommandSets,
    NamespaceList
);

const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(IdentifyController, cntrltype) == 111);
    assert!(offset_of!(IdentifyController, ciu) == 135);
    assert!(offset_of!(IdentifyController, cirn) == 136);
    assert!(offset_of!(IdentifyController, oacs) == 256);
    assert!(offset_of!(IdentifyController, kas) == 320);
    assert!(offset_of!(IdentifyController, cmic) == 76);
    assert!(offset_of!(IdentifyController, oaes) == 92);
    assert!(offset_of!(IdentifyController, anatt) == 342);
    assert!(offset_of!(IdentifyController, nanagrpid) == 348);
    assert!(offset_of!(IdentifyController, cqt) == 386);
    assert!(offset_of!(IdentifyController, sqes) == 512);
    assert!(offset_of!(IdentifyController, sgls) == 536);
    assert!(offset_of!(IdentifyController, subnqn) == 768);
    assert!(offset_of!(IdentifyController, ioccsz) == 1792);
    assert!(offset_of!(IdentifyController, ccrl) == 1807);
    assert!(offset_of!(IdentifyController, psd) == 2048);
    assert!(offset_of!(IdentifyNamespace, nvmcap) == 48);
    assert!(offset_of!(IdentifyNamespace, anagrpid) == 92);
    assert!(offset_of!(IdentifyNamespace, nguid) == 104);
    assert!(offset_of!(IdentifyNamespace, lbaf) == 128);
    assert!(offset_of!(IdentifyNamespaceNvm, elbaf) == 12);
    assert!(offset_of!(IdentifyNamespaceIndependent, anagrpid) == 4);
    assert!(offset_of!(IdentifyNamespaceIndependent, nstat) == 14);
};

/// Returns `text` as a fixed ASCII field: cut or padded with spaces, other characters become `?`.
#[must_use]
pub fn ascii_field<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (byte, c) in field.iter_mut().zip(text.chars()) {
        *byte = if c.is_ascii_graphic() || c == ' ' { c as u8 } else { b'?' };
    }
    field
}

/// Returns the text of a fixed ASCII field without its padding (spaces or NULs); empty if it is not printable ASCII.
#[must_use]
pub fn parse_ascii(field: &[u8]) -> &str {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    let text = core::str::from_utf8(&field[..end]).unwrap_or("");
    let is_printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    if text.bytes().all(is_printable) { text.trim() } else { "" }
}

/// A Namespace Identification Descriptor (CNS 03h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceDescriptor {
    /// IEEE Extended Unique Identifier.
    Eui64([u8; 8]),
    /// Namespace Globally Unique Identifier.
    Nguid([u8; 16]),
    Uuid([u8; 16]),
    Csi(u8),
}

impl NamespaceDescriptor {
    /// Writes the descriptor to the start of `page` and returns the bytes written; `None` when it does not fit.
    pub fn emit(&self, page: &mut [u8]) -> Option<usize> {
        let (nidt, value): (u8, &[u8]) = match self {
            Self::Eui64(value) => (1, value),
            Self::Nguid(value) => (2, value),
            Self::Uuid(value) => (3, value),
            Self::Csi(value) => (4, core::slice::from_ref(value)),
        };
        let length = 4 + value.len();
        let out = page.get_mut(..length)?;
        out[..4].copy_from_slice(&[nidt, value.len() as u8, 0, 0]);
        out[4..].copy_from_slice(value);
        Some(length)
    }
}

/// Returns the descriptors in a Namespace Identification Descriptor list; skips unknown types, and stops at the first
/// that is malformed.
pub fn namespace_descriptors(page: &[u8]) -> impl Iterator<Item = NamespaceDescriptor> + '_ {
    let mut rest = page;
    core::iter::from_fn(move || {
        loop {
            let (&[nidt, nidl, _, _], tail) = rest.split_first_chunk()?;
            if nidl == 0 {
                return None;
            }
            let (value, tail) = tail.split_at_checked(usize::from(nidl))?;
            rest = tail;
            let descriptor = match nidt {
                1 => value.try_into().ok().map(NamespaceDescriptor::Eui64),
                2 => value.try_into().ok().map(NamespaceDescriptor::Nguid),
                3 => value.try_into().ok().map(NamespaceDescriptor::Uuid),
                4 => value.first().copied().map(NamespaceDescriptor::Csi),
                _ => continue,
            };
            return descriptor;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_round_trip() {
        let mut page = [0; IDENTIFY_BYTES];
        let all = [
            NamespaceDescriptor::Uuid([7; 16]),
            NamespaceDescriptor::Nguid([8; 16]),
            NamespaceDescriptor::Eui64([9; 8]),
            NamespaceDescriptor::Csi(CSI_NVM),
        ];
        let mut at = 0;
        for descriptor in all {
            at += descriptor.emit(&mut page[at..]).unwrap();
        }
        assert_eq!(at, 20 + 20 + 12 + 5);
        assert!(namespace_descriptors(&page).eq(all));
    }

    #[test]
    fn malformed_descriptors_end_the_walk() {
        assert_eq!(namespace_descriptors(&[]).count(), 0);
        assert_eq!(namespace_descriptors(&[3, 16, 0, 0, 1, 2]).count(), 0);
        assert_eq!(namespace_descriptors(&[3, 4, 0, 0, 1, 2, 3, 4]).count(), 0);
        let unknown_then_csi = [0xee, 1, 0, 0, 5, 4, 1, 0, 0, 0, 0];
        assert!(namespace_descriptors(&unknown_then_csi).eq([NamespaceDescriptor::Csi(0)]));
    }

    #[test]
    fn ascii_fields_pad_and_trim() {
        assert_eq!(&ascii_field::<8>("ab"), b"ab      ");
        assert_eq!(&ascii_field::<2>("abc"), b"ab");
        assert_eq!(&ascii_field::<2>("\n\u{e9}"), b"??");
        assert_eq!(parse_ascii(b" ab   "), "ab");
        assert_eq!(parse_ascii(b"ab\0c"), "ab");
        assert_eq!(parse_ascii(&[0xff, 0xfe]), "");
    }

    #[test]
    fn block_size_comes_from_the_format_in_use() {
        let mut page = IdentifyNamespace::new_zeroed();
        assert_eq!(page.block_bytes(), None);
        page.lbaf[1].lbads = 12;
        page.flbas = 1;
        assert_eq!(page.block_bytes(), Some(4096));
        page.lbaf[1].ms = 8.into();
        assert_eq!(page.block_bytes(), None);
        page.flbas = 0xff;
        assert_eq!(page.block_bytes(), None);
    }

    #[test]
    fn lists_stop_at_zero_and_at_the_page_end() {
        let list = NamespaceList::from_nsids(1..=2000);
        assert_eq!(list.iter().count(), NAMESPACE_LIST_ENTRIES);
        assert!(NamespaceList::from_nsids([3, 9]).iter().eq([3, 9]));
    }
}

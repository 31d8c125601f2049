//! Discovery log page (LID 70h; NVMe Base 2.1, section 5.1.12.3.1).
//!
//! The page is a 1,024-byte [`DiscoveryLogHeader`] followed by NUMREC [`DiscoveryEntry`]s of 1,024
//! bytes. A host reads it in pieces; when GENCTR differs between the first and the last piece, it
//! starts again.

use crate::fabrics::{nqn_field, parse_nqn};
use crate::identify::parse_ascii;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the header and of each entry.
pub const DISCOVERY_ENTRY_BYTES: usize = 1024;

/// TRTYPE: transports.
pub mod trtype {
    pub const TCP: u8 = 3;
    /// Frames on Ethernet (docs/reference/ethernet.md): a reserved value, only in logs that are read over frames.
    pub const FRAMES: u8 = 0xf0;
}

/// ADRFAM: address families.
pub mod adrfam {
    /// IPv4.
    pub const IPV4: u8 = 1;
    /// IPv6.
    pub const IPV6: u8 = 2;
}

/// SUBTYPE: kinds of entries.
pub mod subtype {
    pub const REFERRAL: u8 = 1;
    pub const NVM: u8 = 2;
    /// The discovery subsystem that returns the log.
    pub const CURRENT_DISCOVERY: u8 = 3;
}

/// TREQ: transport requirements.
pub mod treq {
    /// Connections must be secured as in the entry's TSAS.
    pub const SECURE_REQUIRED: u8 = 1;
    /// Connections may be secured.
    pub const SECURE_ALLOWED: u8 = 2;
    /// Mask of these bits of TREQ.
    pub const SECURE_MASK: u8 = 3;
    /// The controller can disable SQ flow control.
    pub const DISABLE_SQ_FLOW_CONTROL: u8 = 1 << 2;
}

/// SECTYPE: security of connections, the first byte of TSAS.
pub mod sectype {
    /// No security.
    pub const NONE: u8 = 0;
    /// TLS 1.3.
    pub const TLS13: u8 = 2;
}

/// EFLAGS of an entry for a discovery subsystem.
pub mod eflags {
    /// Explicit persistent connections are supported.
    pub const PERSISTENT: u16 = 1 << 1;
}

/// Head of the discovery log page.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DiscoveryLogHeader {
    /// Generation counter: changes with the page's content.
    pub genctr: U64,
    /// Entries that follow.
    pub numrec: U64,
    /// Record format, 0.
    pub recfmt: U16,
    pub reserved: [u8; 1006],
}

/// Discovery log entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DiscoveryEntry {
    pub trtype: u8,
    pub adrfam: u8,
    pub subtype: u8,
    pub treq: u8,
    /// Port of the subsystem.
    pub portid: U16,
    /// Controller, or FFFFh for the dynamic controller model.
    pub cntlid: U16,
    /// Largest admin submission queue.
    pub asqsz: U16,
    pub eflags: U16,
    pub reserved12: [u8; 20],
    /// Transport service (TCP port), ASCII.
    pub trsvcid: [u8; 32],
    pub reserved64: [u8; 192],
    /// Subsystem NQN, NUL-terminated.
    pub subnqn: [u8; 256],
    /// Transport address, ASCII.
    pub traddr: [u8; 256],
    /// Transport specific: for TCP the first byte is SECTYPE (0: no security).
    pub tsas: [u8; 256],
}

const _: () = assert!(size_of::<DiscoveryLogHeader>() == DISCOVERY_ENTRY_BYTES);
const _: () = assert!(size_of::<DiscoveryEntry>() == DISCOVERY_ENTRY_BYTES);
const _: () = assert!(core::mem::offset_of!(DiscoveryEntry, subnqn) == 256);

impl DiscoveryLogHeader {
    /// A header of `numrec` entries.
    #[must_use]
    pub fn new(genctr: u64, numrec: u64) -> Self {
        DiscoveryLogHeader { genctr: genctr.into(), numrec: numrec.into(), ..Self::new_zeroed() }
    }
}

impl DiscoveryEntry {
    /// A TCP entry of `subtype` for `subnqn`; the address fields are empty until
    /// [`set_address`](Self::set_address).
    #[must_use]
    pub fn new(subtype: u8, subnqn: &str) -> Self {
        DiscoveryEntry {
            trtype: trtype::TCP,
            subtype,
            subnqn: nqn_field(subnqn),
            ..Self::new_zeroed()
        }
    }

    /// Sets family, address and service; text that does not fit is cut.
    pub fn set_address(&mut self, adrfam: u8, traddr: &str, trsvcid: &str) {
        self.adrfam = adrfam;
        self.traddr = padded(traddr);
        self.trsvcid = padded(trsvcid);
    }

    /// NQN of the subsystem, if it is well formed.
    #[must_use]
    pub fn subnqn(&self) -> Option<&str> {
        parse_nqn(&self.subnqn)
    }

    /// Transport address; empty if it is not ASCII.
    #[must_use]
    pub fn traddr(&self) -> &str {
        parse_ascii(&self.traddr)
    }

    /// Transport service (TCP port); empty if it is not ASCII.
    #[must_use]
    pub fn trsvcid(&self) -> &str {
        parse_ascii(&self.trsvcid)
    }
}

/// ASCII padded with NULs, as Linux sends and expects it.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    for (byte, c) in field.iter_mut().take(N - 1).zip(text.bytes()) {
        *byte = c;
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_back() {
        let mut entry = DiscoveryEntry::new(subtype::NVM, "nqn.2024-01.test:a");
        entry.set_address(adrfam::IPV4, "10.0.2.15", "4420");
        let view = DiscoveryEntry::ref_from_bytes(entry.as_bytes()).unwrap();
        assert_eq!(view.subnqn(), Some("nqn.2024-01.test:a"));
        assert_eq!((view.traddr(), view.trsvcid()), ("10.0.2.15", "4420"));
        assert_eq!(&entry.as_bytes()[..3], &[3, 1, 2]);
        assert_eq!(&entry.as_bytes()[32..37], b"4420\0");
        assert_eq!(&entry.as_bytes()[512..522], b"10.0.2.15\0");
    }

    #[test]
    fn hostile_entries_are_read_without_panic() {
        let entry = DiscoveryEntry::ref_from_bytes(&[0xff; DISCOVERY_ENTRY_BYTES]).unwrap();
        assert_eq!((entry.subnqn(), entry.traddr(), entry.trsvcid()), (None, "", ""));
        let mut long = DiscoveryEntry::new(subtype::NVM, "nqn");
        long.set_address(adrfam::IPV4, LONG, "1");
        assert_eq!(long.traddr().len(), 255);
    }

    const LONG: &str = match core::str::from_utf8(&[b'x'; 300]) {
        Ok(text) => text,
        Err(_) => "",
    };
}

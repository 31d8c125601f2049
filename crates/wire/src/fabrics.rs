//! NVMe over Fabrics commands (NVMe Base 2.0, section 6) and their data.

use crate::sqe::{Sqe, opcode};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Fabrics command types (FCTYPE).
pub mod fctype {
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    /// Disconnect (of an I/O queue).
    pub const DISCONNECT: u8 = 0x08;
}

/// Maximum bytes of in-capsule data of a fabrics command over TCP, on every queue.
pub const FABRICS_IN_CAPSULE_BYTES: u32 = 8192;
/// Bytes of a Connect command's data.
pub const CONNECT_DATA_BYTES: usize = 1024;
/// CNTLID by which a host requests any controller (dynamic controller model).
pub const CNTLID_DYNAMIC: u16 = 0xffff;
/// Maximum bytes of an NQN, without the terminating NUL (NVMe Base 2.0, section 4.5).
pub const NQN_BYTES_MAX: usize = 223;

/// True if `nqn` is a valid name of a host or a subsystem.
#[must_use]
pub fn is_nqn(nqn: &str) -> bool {
    let is_odd = |c: char| c.is_control() || c.is_whitespace();
    nqn.starts_with("nqn.") && (5..=NQN_BYTES_MAX).contains(&nqn.len()) && !nqn.contains(is_odd)
}
/// NQN of the discovery subsystem that every target has.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Bit of Connect's result: authentication is required.
pub const AUTHREQ_ATR: u32 = 1 << 17;
/// Bit of Connect's result: authentication with a secure channel is required.
pub const AUTHREQ_ASCR: u32 = 1 << 18;

/// Bits of the Connect command's CATTR.
pub mod cattr {
    /// Priority class of an I/O queue, bits 01:00: from 0, urgent, to 3, low.
    pub const PRIORITY_CLASS: u8 = 3;
    /// The lowest priority class.
    pub const PRIORITY_LOW: u8 = 3;
    pub const DISABLE_SQ_FLOW_CONTROL: u8 = 1 << 2;
}

/// A Disconnect command (section 6.4), which ends the I/O queue on which it is sent.
#[must_use]
pub fn disconnect() -> Sqe {
    fabrics_sqe(fctype::DISCONNECT)
}

/// Connect command fields (section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Record format, 0.
    pub recfmt: u16,
    /// Queue identifier: 0 is the admin queue.
    pub qid: u16,
    /// Entries of the submission queue, minus one.
    pub sqsize: u16,
    pub cattr: u8,
    /// Keep Alive Timeout in milliseconds (admin queue).
    pub kato_ms: u32,
}

impl Connect {
    /// Parses the fields of a Connect `sqe`.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let (dw10, dw11) = (sqe.cdw10.get(), sqe.cdw11.get());
        Connect {
            recfmt: dw10 as u16,
            qid: (dw10 >> 16) as u16,
            sqsize: dw11 as u16,
            cattr: (dw11 >> 16) as u8,
            kato_ms: sqe.cdw12.get(),
        }
    }

    /// Returns a Connect command whose data is in the capsule.
    #[must_use]
    pub fn emit(&self) -> Sqe {
        let mut sqe = fabrics_sqe(fctype::CONNECT);
        sqe.cdw10 = (u32::from(self.recfmt) | u32::from(self.qid) << 16).into();
        sqe.cdw11 = (u32::from(self.sqsize) | u32::from(self.cattr) << 16).into();
        sqe.cdw12 = self.kato_ms.into();
        sqe.set_in_capsule(CONNECT_DATA_BYTES as u32);
        sqe
    }
}

/// A fabrics command of that type with no data.
#[must_use]
pub fn fabrics_sqe(fctype: u8) -> Sqe {
    Sqe::new(opcode::FABRICS, u32::from(fctype))
}

/// Connect command data (section 6.3, 1,024 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ConnectData {
    pub hostid: [u8; 16],
    /// Requested controller; [`CNTLID_DYNAMIC`] for any.
    pub cntlid: U16,
    pub reserved: [u8; 238],
    /// Subsystem NQN, NUL-terminated.
    pub subnqn: [u8; 256],
    /// Host NQN, NUL-terminated.
    pub hostnqn: [u8; 256],
    pub reserved2: [u8; 256],
}

const _: () = assert!(size_of::<ConnectData>() == CONNECT_DATA_BYTES);

impl ConnectData {
    /// Connect data; names longer than [`NQN_BYTES_MAX`] are cut (callers check before).
    #[must_use]
    pub fn new(hostid: [u8; 16], cntlid: u16, subnqn: &str, hostnqn: &str) -> Self {
        ConnectData {
            hostid,
            cntlid: cntlid.into(),
            reserved: [0; 238],
            subnqn: nqn_field(subnqn),
            hostnqn: nqn_field(hostnqn),
            reserved2: [0; 256],
        }
    }
}

/// Returns an NQN as a 256-byte field, NUL-terminated.
#[must_use]
pub fn nqn_field(nqn: &str) -> [u8; 256] {
    let mut field = [0; 256];
    let length = nqn.len().min(NQN_BYTES_MAX);
    field[..length].copy_from_slice(&nqn.as_bytes()[..length]);
    field
}

/// Parses the NQN in a 256-byte field: terminated within 224 bytes, UTF-8 without control characters, not empty; else
/// `None`.
#[must_use]
pub fn parse_nqn(field: &[u8; 256]) -> Option<&str> {
    let end = field.iter().take(NQN_BYTES_MAX + 1).position(|&b| b == 0)?;
    let nqn = core::str::from_utf8(&field[..end]).ok()?;
    (!nqn.is_empty() && !nqn.contains(char::is_control)).then_some(nqn)
}

/// Size of a property in Property Get and Set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertySize {
    /// 4 bytes.
    Four,
    /// 8 bytes.
    Eight,
}

/// Property Get and Property Set fields (sections 6.5 and 6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// Size, `None` when the field is reserved.
    pub size: Option<PropertySize>,
    pub offset: u32,
    pub value: u64,
}

/// Offsets of controller properties (section 3.1.3).
pub mod property {
    /// Controller capabilities, 8 bytes.
    pub const CAP: u32 = 0x00;
    /// Version.
    pub const VS: u32 = 0x08;
    /// Controller configuration.
    pub const CC: u32 = 0x14;
    /// Controller status.
    pub const CSTS: u32 = 0x1c;
    /// NVM subsystem reset.
    pub const NSSR: u32 = 0x20;
    /// Controller ready timeouts.
    pub const CRTO: u32 = 0x68;
}

impl Property {
    /// Parses the fields of a Property Get or Set `sqe`.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let size = match sqe.cdw10.get() & 7 {
            0 => Some(PropertySize::Four),
            1 => Some(PropertySize::Eight),
            _ => None,
        };
        let value = u64::from(sqe.cdw12.get()) | u64::from(sqe.cdw13.get()) << 32;
        Property { size, offset: sqe.cdw11.get(), value }
    }

    /// A Property Get command.
    #[must_use]
    pub fn get(offset: u32, size: PropertySize) -> Sqe {
        let mut sqe = fabrics_sqe(fctype::PROPERTY_GET);
        sqe.cdw10 = u32::from(size == PropertySize::Eight).into();
        sqe.cdw11 = offset.into();
        sqe
    }

    /// A Property Set command of a 4-byte property.
    #[must_use]
    pub fn set(offset: u32, value: u32) -> Sqe {
        let mut sqe = fabrics_sqe(fctype::PROPERTY_SET);
        sqe.cdw11 = offset.into();
        sqe.cdw12 = value.into();
        sqe
    }
}

/// Authentication Send and Receive fields (sections 6.1 and 6.2): framing only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthenticationFields {
    /// Security protocol specific (SPSP0 in the low byte).
    pub spsp: u16,
    /// Security protocol: E9h.
    pub secp: u8,
    /// Bytes to send (TL) or to receive (AL).
    pub length: u32,
}

impl AuthenticationFields {
    /// Parses the fields of an Authentication Send or Receive `sqe`.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let dw10 = sqe.cdw10.get();
        AuthenticationFields {
            spsp: (dw10 >> 8) as u16,
            secp: (dw10 >> 24) as u8,
            length: sqe.cdw11.get(),
        }
    }

    /// Returns an Authentication Send or Receive command (`fctype`); the caller sets the SGL.
    #[must_use]
    pub fn emit(&self, fctype: u8) -> Sqe {
        let mut sqe = fabrics_sqe(fctype);
        sqe.cdw10 = (u32::from(self.spsp) << 8 | u32::from(self.secp) << 24).into();
        sqe.cdw11 = self.length.into();
        sqe
    }
}

//! Identity of this host: its NQN and its identifier.

use roadtrain_wire::fabrics::is_nqn;
use std::fs;
use std::io::Read;

const HOSTNQN_PATH: &str = "/etc/nvme/hostnqn";
const MACHINE_ID_PATH: &str = "/etc/machine-id";
const UUID_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// Identity of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// Host NQN.
    pub nqn: String,
    /// Host identifier.
    pub id: [u8; 16],
}

impl HostIdentity {
    /// Chooses the identity: from the options; else from the system's configuration; else derived from the machine's
    /// id, so that it stays the same; else random.
    ///
    /// # Errors
    /// The NQN or identifier is invalid.
    pub fn choose(nqn: Option<&str>, id: Option<&str>) -> Result<HostIdentity, String> {
        let nqn = match nqn {
            Some(nqn) => nqn.to_owned(),
            None => system_nqn(),
        };
        check_nqn(&nqn)?;
        let id = match id {
            Some(text) => host_id(text)?,
            None => id_of(&nqn),
        };
        Ok(HostIdentity { nqn, id })
    }
}

/// Reads a host identifier, which may not be zero (NVMe Base 2.1, section 6.3).
fn host_id(text: &str) -> Result<[u8; 16], String> {
    let id = parse_uuid(text)?;
    let has_any = id != [0; 16];
    has_any.then_some(id).ok_or_else(|| format!("'{text}' is no host identifier: it is zero"))
}

/// Checks the form of an NQN (NVMe Base 2.0, section 4.5).
///
/// # Errors
/// Describes the error, with an example.
pub fn check_nqn(nqn: &str) -> Result<(), String> {
    let hint = "write nqn.2025-01.io.example:name (at most 223 bytes)";
    is_nqn(nqn).then_some(()).ok_or_else(|| format!("'{nqn}' is not an NQN: {hint}"))
}

/// Reads a UUID with or without dashes.
///
/// # Errors
/// Describes the expected form.
pub fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let is_uuid = digits.len() == 32 && digits.chars().all(|c| c.is_ascii_hexdigit());
    match u128::from_str_radix(&digits, 16) {
        Ok(value) if is_uuid => Ok(value.to_be_bytes()),
        _ => Err(format!("'{text}' is not a UUID: write 01234567-89ab-cdef-0123-456789abcdef")),
    }
}

/// Writes a UUID with dashes.
#[must_use]
pub fn show_uuid(id: &[u8; 16]) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(*id));
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn system_nqn() -> String {
    let configured = fs::read_to_string(HOSTNQN_PATH).unwrap_or_default();
    if check_nqn(configured.trim()).is_ok() {
        return configured.trim().to_owned();
    }
    let id = match fs::read_to_string(MACHINE_ID_PATH) {
        // The machine's id itself is confidential (machine-id(5)): derive from it.
        Ok(machine) if !machine.trim().is_empty() => derive(machine.trim()),
        _ => random(),
    };
    format!("{UUID_NQN}{}", show_uuid(&id))
}

/// Returns the UUID in the NQN; else one derived from the NQN, as it must not change either.
fn id_of(nqn: &str) -> [u8; 16] {
    let uuid = nqn.strip_prefix(UUID_NQN).and_then(|text| parse_uuid(text).ok());
    uuid.filter(|id| *id != [0; 16]).unwrap_or_else(|| derive(nqn))
}

/// A stable UUID for a text: two FNV-1a hashes, marked as version 8 (RFC 9562: made as the maker likes).
fn derive(text: &str) -> [u8; 16] {
    let hash = |basis: u64| {
        text.bytes().fold(basis, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
    };
    let (high, low) = (hash(0xcbf2_9ce4_8422_2325), hash(0x9ae1_6a3b_2f90_404f));
    mark((u128::from(high) << 64 | u128::from(low)).to_be_bytes(), 8)
}

fn random() -> [u8; 16] {
    let mut id = [0; 16];
    let read = fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut id));
    if read.is_err() {
        return derive(&format!("{} {:?}", std::process::id(), std::time::SystemTime::now()));
    }
    mark(id, 4)
}

fn mark(mut id: [u8; 16], version: u8) -> [u8; 16] {
    id[6] = id[6] & 0x0f | version << 4;
    id[8] = id[8] & 0x3f | 0x80;
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_round_trip() {
        let text = "01234567-89ab-cdef-0123-456789abcdef";
        let id = parse_uuid(text).unwrap();
        assert_eq!(id[..4], [0x01, 0x23, 0x45, 0x67]);
        assert_eq!(show_uuid(&id), text);
        assert_eq!(parse_uuid(&text.replace('-', "")), Ok(id));
        for bad in [
            "",
            "0123",
            "zz234567-89ab-cdef-0123-456789abcdef",
            "+1234567-89ab-cdef-0123-456789abcdef",
        ] {
            parse_uuid(bad).expect_err(bad);
        }
    }

    #[test]
    fn identity_is_stable_and_follows_the_nqn() {
        let nqn = "nqn.2014-08.org.nvmexpress:uuid:01234567-89ab-cdef-0123-456789abcdef";
        let identity = HostIdentity::choose(Some(nqn), None).unwrap();
        assert_eq!(show_uuid(&identity.id), "01234567-89ab-cdef-0123-456789abcdef");
        let named = HostIdentity::choose(Some("nqn.x:host"), None).unwrap();
        assert_eq!(named, HostIdentity::choose(Some("nqn.x:host"), None).unwrap());
        assert_ne!(named.id, HostIdentity::choose(Some("nqn.x:other"), None).unwrap().id);
        assert_eq!(HostIdentity::choose(None, None), HostIdentity::choose(None, None));
    }

    #[test]
    fn nonsense_is_refused() {
        for nqn in ["", "nqn.", "iqn.x", "nqn.with space", "nqn.line\nbreak"] {
            check_nqn(nqn).expect_err(nqn);
        }
        check_nqn(&format!("nqn.{}", "x".repeat(220))).expect_err("too long");
        assert!(HostIdentity::choose(Some("x"), None).is_err());
        assert!(HostIdentity::choose(None, Some("x")).is_err());
        assert!(HostIdentity::choose(None, Some(&show_uuid(&[0; 16]))).is_err());
        let zeros = format!("{UUID_NQN}{}", show_uuid(&[0; 16]));
        assert_ne!(HostIdentity::choose(Some(&zeros), None).unwrap().id, [0; 16]);
    }
}

//! Names that are derived, so that the driver needs no state: volumes, snapshots, NQNs, IDs, attachments.
//!
//! A CSI name has up to 128 bytes of any characters; a volume of a target has up to 63. Names of volumes:
//!
//! - `csi.NAME` or `csi.NAME~SOURCE`: a volume; NAME is the CSI name where it fits, else `_` and its digest
//! - `csi-snap.DIGEST.SOURCE`: a snapshot; SOURCE is the UUID of its volume, without hyphens
//! - `csi-copy.DIGEST`: a snapshot that exists while a volume is copied

use sha2::{Digest, Sha256};

const VOLUME_PREFIX: &str = "csi.";
const SNAPSHOT_PREFIX: &str = "csi-snap.";
const COPY_PREFIX: &str = "csi-copy.";
/// Most bytes of a CSI name that is kept as it is.
const PLAIN_BYTES_MAX: usize = 45;
const SUBSYSTEM_PREFIX: &str = "nqn.2025-01.io.roadtrain:csi:volume:";
const NODE_PREFIX: &str = "nqn.2025-01.io.roadtrain:csi:node:";

/// Returns the first `digits` hexadecimal digits of the SHA-256 of a text.
fn digest(text: &str, digits: usize) -> String {
    let hash = Sha256::digest(text.as_bytes());
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    hex[..digits.min(hex.len())].to_owned()
}

fn is_plain(name: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    !name.is_empty() && name.len() <= PLAIN_BYTES_MAX && name.chars().all(is_fine)
}

/// Returns the part of a volume's name that depends on its CSI name only.
fn stem(csi_name: &str) -> String {
    match is_plain(csi_name) {
        true => format!("{VOLUME_PREFIX}{csi_name}"),
        false => format!("{VOLUME_PREFIX}_{}", digest(csi_name, 40)),
    }
}

/// Name of the volume with this CSI name and this source (the UUID of a volume or snapshot).
pub(crate) fn volume(csi_name: &str, source: Option<&str>) -> String {
    match source {
        None => stem(csi_name),
        Some(uuid) => format!("{}~{}", stem(csi_name), digest(uuid, 12)),
    }
}

/// True if the volume `name` was made for this CSI name, whatever its source.
pub(crate) fn is_volume_of(name: &str, csi_name: &str) -> bool {
    name.split('~').next() == Some(stem(csi_name).as_str())
}

/// True if this is a name of a volume of the driver.
pub(crate) fn is_volume(name: &str) -> bool {
    name.starts_with(VOLUME_PREFIX)
}

/// Name of the snapshot with this CSI name of the volume with this UUID.
pub(crate) fn snapshot(csi_name: &str, source: &str) -> String {
    format!("{}{}", snapshot_stem(csi_name), source.replace('-', ""))
}

fn snapshot_stem(csi_name: &str) -> String {
    format!("{SNAPSHOT_PREFIX}{}.", digest(csi_name, 20))
}

/// True if the volume `name` is the snapshot with this CSI name, whatever its source.
pub(crate) fn is_snapshot_of(name: &str, csi_name: &str) -> bool {
    name.starts_with(&snapshot_stem(csi_name))
}

/// Returns the UUID of the volume that the snapshot `name` is of; `None` if this is no snapshot of the driver.
pub(crate) fn snapshot_source(name: &str) -> Option<String> {
    let (_, hex) = name.strip_prefix(SNAPSHOT_PREFIX)?.split_once('.')?;
    let is_uuid = hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_uuid.then(|| with_hyphens(hex))
}

/// Name of the snapshot that exists while the volume `volume_name` becomes a copy of another volume.
pub(crate) fn copy(volume_name: &str) -> String {
    format!("{COPY_PREFIX}{}", digest(volume_name, 40))
}

/// NQN of a volume's subsystem.
pub(crate) fn subsystem(uuid: &str) -> String {
    format!("{SUBSYSTEM_PREFIX}{uuid}")
}

/// Returns the UUID of the volume that a subsystem is of.
pub(crate) fn subsystem_volume(nqn: &str) -> Option<&str> {
    nqn.strip_prefix(SUBSYSTEM_PREFIX)
}

/// Serial number of a volume's subsystem: 20 digits of its UUID.
pub(crate) fn serial(uuid: &str) -> String {
    uuid.replace('-', "").chars().take(20).collect()
}

/// Returns the node's ID, which is its host NQN: `name` if that is an NQN, else one that ends with it.
pub(crate) fn node(name: &str) -> String {
    match is_node(name) {
        true => name.to_owned(),
        false => format!("{NODE_PREFIX}{name}"),
    }
}

/// True if this may be the ID of a node.
pub(crate) fn is_node(id: &str) -> bool {
    id.starts_with("nqn.") && id.len() <= 223 && id.contains(':')
}

/// Host identifier of a node, a UUID.
pub(crate) fn host_id(node: &str) -> String {
    let mut hex = digest(node, 32);
    // Version 8: of a form that is the application's own; the variant is RFC 9562's.
    hex.replace_range(12..13, "8");
    hex.replace_range(16..17, "a");
    with_hyphens(&hex)
}

fn with_hyphens(hex: &str) -> String {
    let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32]);
    format!("{a}-{b}-{c}-{d}-{e}")
}

/// ID of the attachment of a volume on a node.
pub(crate) fn attachment(uuid: &str) -> String {
    format!("csi-{uuid}")
}

/// Returns the UUID of the volume that an attachment is of.
pub(crate) fn attachment_volume(id: &str) -> Option<&str> {
    id.strip_prefix("csi-").filter(|uuid| is_uuid(uuid))
}

/// ID of a volume or snapshot: the target's name and the UUID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectId {
    pub(crate) target: String,
    pub(crate) uuid: String,
}

impl ObjectId {
    /// Parses `TARGET/UUID`; `None` if no object of the driver has such an ID.
    pub(crate) fn parse(text: &str) -> Option<ObjectId> {
        let (target, uuid) = text.split_once('/')?;
        let is_whole = !target.is_empty() && is_uuid(uuid);
        is_whole.then(|| ObjectId { target: target.to_owned(), uuid: uuid.to_owned() })
    }
}

impl std::fmt::Display for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.target, self.uuid)
    }
}

fn is_uuid(text: &str) -> bool {
    let is_right = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'),
    };
    text.len() == 36 && text.bytes().enumerate().all(is_right)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "01234567-89ab-4cde-8f01-23456789abcd";

    #[test]
    fn names_fit_and_differ() {
        let long = "x".repeat(128);
        for name in ["pvc-1", "_odd", "ä/ö", "csi~a", &long, &"y".repeat(PLAIN_BYTES_MAX)] {
            for source in [None, Some(UUID)] {
                let made = volume(name, source);
                assert!(made.len() <= 63, "{made}");
                assert!(is_volume_of(&made, name) && is_volume(&made), "{made}");
                assert!(!is_volume_of(&made, "pvc-2"));
            }
        }
        assert_eq!(volume("pvc-1", None), "csi.pvc-1");
        assert_ne!(volume("pvc-1", Some(UUID)), volume("pvc-1", None));
        // A name with the form of another one's digest gets a digest itself.
        let digest_of_long = volume(&long, None)[4..].to_owned();
        assert_ne!(volume(&digest_of_long, None), volume(&long, None));
        assert!(copy(&volume(&long, Some(UUID))).len() <= 63 && !is_volume(&copy("a")));
    }

    #[test]
    fn snapshots_name_their_source() {
        let name = snapshot("snapshot-1", UUID);
        assert!(name.len() <= 63 && !is_volume(&name), "{name}");
        assert_eq!(snapshot_source(&name).as_deref(), Some(UUID));
        assert!(is_snapshot_of(&name, "snapshot-1") && !is_snapshot_of(&name, "snapshot-2"));
        for other in ["csi.pvc-1", "csi-snap.a", "csi-snap.a.0123", "csi-copy.00"] {
            assert_eq!(snapshot_source(other), None, "{other}");
        }
    }

    #[test]
    fn ids_are_parsed() {
        let id = ObjectId { target: "a".into(), uuid: UUID.into() };
        assert_eq!(ObjectId::parse(&id.to_string()), Some(id));
        for wrong in ["", "a", "/", &format!("/{UUID}"), &format!("a/{UUID}0"), "a/b/c", "a/ä"] {
            assert_eq!(ObjectId::parse(wrong), None, "{wrong}");
        }
        assert_eq!(attachment_volume(&attachment(UUID)), Some(UUID));
        assert_eq!(attachment_volume("csi-other"), None);
        assert_eq!(subsystem_volume(&subsystem(UUID)), Some(UUID));
    }

    #[test]
    fn nodes_have_host_nqns() {
        assert_eq!(node("worker-1"), "nqn.2025-01.io.roadtrain:csi:node:worker-1");
        assert_eq!(node("nqn.2014-08.org.nvmexpress:uuid:1"), "nqn.2014-08.org.nvmexpress:uuid:1");
        assert!(is_node(&node("worker-1")) && !is_node("worker-1"));
        let id = host_id(&node("worker-1"));
        assert!(is_uuid(&id) && id != host_id(&node("worker-2")), "{id}");
        assert_eq!((&id[14..15], &id[19..20]), ("8", "a"));
    }
}

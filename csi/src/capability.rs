//! Volume capabilities that the driver has.

use crate::node::filesystem::FileSystemKind;
use crate::proto::VolumeCapability;
use crate::proto::volume_capability::AccessType;
use crate::proto::volume_capability::access_mode::Mode;
use tonic::Status;

/// Capability of a volume, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedCapability<'a> {
    /// File system, flags of mount; `None`: as a block device.
    pub(crate) file_system: Option<(FileSystemKind, &'a [String])>,
    /// True if no node writes it.
    pub(crate) is_read_only: bool,
    /// True if several nodes may use it at the same time.
    pub(crate) is_shared: bool,
    /// True if only one pod may use it.
    pub(crate) is_for_one_pod: bool,
}

/// Checks one capability.
///
/// # Errors
/// INVALID_ARGUMENT, with the reason.
pub(crate) fn check(
    capability: Option<&VolumeCapability>,
) -> Result<CheckedCapability<'_>, Status> {
    let invalid = |what: &str| Err(Status::invalid_argument(format!("volume capability: {what}")));
    let Some(capability) = capability else { return invalid("is missing") };
    let mode = capability.access_mode.map_or(Mode::Unknown, |access| access.mode());
    let (is_shared, is_read_only) = match mode {
        Mode::Unknown => return invalid("needs an access mode"),
        Mode::SingleNodeWriter | Mode::SingleNodeSingleWriter | Mode::SingleNodeMultiWriter => {
            (false, false)
        }
        Mode::SingleNodeReaderOnly => (false, true),
        Mode::MultiNodeReaderOnly => (true, true),
        Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter => (true, false),
    };
    let file_system = match &capability.access_type {
        None => return invalid("needs an access type, block or mount"),
        Some(AccessType::Block(_)) => None,
        Some(AccessType::Mount(mount)) => {
            let Some(kind) = FileSystemKind::parse(&mount.fs_type) else {
                return invalid(&format!("file system {}: use ext4 or xfs", mount.fs_type));
            };
            if is_shared && !is_read_only {
                return invalid(
                    "only one node may write a file system: use a block volume, or another access mode",
                );
            }
            Some((kind, mount.mount_flags.as_slice()))
        }
    };
    let is_for_one_pod = mode == Mode::SingleNodeSingleWriter;
    Ok(CheckedCapability { file_system, is_read_only, is_shared, is_for_one_pod })
}

/// Checks all capabilities of a call.
///
/// # Errors
/// INVALID_ARGUMENT: there is none, or one is not supported.
pub(crate) fn check_all(capabilities: &[VolumeCapability]) -> Result<(), Status> {
    if capabilities.is_empty() {
        return Err(Status::invalid_argument("volume capabilities are missing"));
    }
    capabilities.iter().try_for_each(|one| check(Some(one)).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::volume_capability::{AccessMode, BlockVolume, MountVolume};

    fn capability(mode: Mode, fs_type: Option<&str>) -> VolumeCapability {
        let access_type = match fs_type {
            None => AccessType::Block(BlockVolume {}),
            Some(fs_type) => {
                AccessType::Mount(MountVolume { fs_type: fs_type.into(), ..MountVolume::default() })
            }
        };
        let access_mode = Some(AccessMode { mode: mode.into() });
        VolumeCapability { access_mode, access_type: Some(access_type) }
    }

    #[test]
    fn modes_are_checked() {
        let check_one = |mode, fs_type| {
            let capability = capability(mode, fs_type);
            check(Some(&capability)).map(|fine| (fine.is_shared, fine.is_read_only)).ok()
        };
        assert_eq!(check_one(Mode::SingleNodeWriter, Some("")), Some((false, false)));
        assert_eq!(check_one(Mode::SingleNodeSingleWriter, Some("xfs")), Some((false, false)));
        assert_eq!(check_one(Mode::MultiNodeReaderOnly, Some("ext4")), Some((true, true)));
        assert_eq!(check_one(Mode::MultiNodeMultiWriter, None), Some((true, false)));
        assert_eq!(check_one(Mode::MultiNodeMultiWriter, Some("ext4")), None);
        assert_eq!(check_one(Mode::SingleNodeWriter, Some("ntfs")), None);
        assert_eq!(check_one(Mode::Unknown, None), None);
        assert!(check(None).is_err() && check_all(&[]).is_err());
        let bare =
            VolumeCapability { access_type: None, ..capability(Mode::SingleNodeWriter, None) };
        assert!(check_all(&[bare]).is_err());
    }
}

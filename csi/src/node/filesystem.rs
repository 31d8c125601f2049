//! File systems of volumes: found, made, checked, mounted and grown by the system's programs.

use super::command;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Most time for a check or for making a file system.
const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_secs(60);
/// Byte of XFS's superblock that is 1 while mkfs.xfs writes the rest.
const XFS_IN_PROGRESS: u64 = 126;

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystemKind {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
}

impl FileSystemKind {
    /// Parses a name; an empty one is the default.
    pub(crate) fn parse(name: &str) -> Option<FileSystemKind> {
        match name {
            "" | "ext4" => Some(FileSystemKind::Ext4),
            "xfs" => Some(FileSystemKind::Xfs),
            _ => None,
        }
    }

    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FileSystemKind::Ext4 => "ext4",
            FileSystemKind::Xfs => "xfs",
        }
    }

    /// Command that makes one on an empty device. It discards nothing: a thick volume keeps its space.
    fn make(self) -> &'static [&'static str] {
        match self {
            FileSystemKind::Ext4 => &["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard"],
            FileSystemKind::Xfs => &["mkfs.xfs", "-q", "-f", "-K"],
        }
    }

    /// Options for mounting it. Copies of a volume have one XFS UUID, so it must not count. A volume that several nodes
    /// read is not even written by the replay of a journal.
    fn mount_options(self, is_read_only: bool) -> &'static [&'static str] {
        match (self, is_read_only) {
            (FileSystemKind::Ext4, false) => &[],
            (FileSystemKind::Ext4, true) => &["ro", "noload"],
            (FileSystemKind::Xfs, false) => &["nouuid"],
            (FileSystemKind::Xfs, true) => &["nouuid", "ro", "norecovery"],
        }
    }
}

/// Way in which a volume is mounted.
#[derive(Clone, Debug)]
pub(crate) struct DesiredMount<'a> {
    /// Kind that an empty volume gets.
    pub(crate) kind: FileSystemKind,
    /// Further options of mkfs.
    pub(crate) make_options: &'a str,
    /// Options of mount.
    pub(crate) options: &'a [String],
    /// True if no node writes it.
    pub(crate) is_read_only: bool,
}

/// Finds what is on a device; `None`: it is blank.
async fn probe(device: &str) -> Result<Option<String>, String> {
    // A device that cannot be read is not blank. It may not answer, and blocks no other call then.
    let path = device.to_owned();
    let first = tokio::task::spawn_blocking(move || first_block(&path));
    match tokio::time::timeout(SHORT, first).await {
        Ok(read) => read
            .map_err(|error| error.to_string())?
            .map_err(|error| format!("{device}: {error}"))?,
        Err(_) => return Err(format!("{device} does not answer within {} s", SHORT.as_secs())),
    };
    let found = command::run(&["blkid", "-p", "-o", "export", device], SHORT).await?;
    if found.status == Some(2) {
        return Ok(None);
    }
    let text = found.ok()?;
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
    let what =
        value("TYPE=").or_else(|| value("PTTYPE=").map(|name| format!("partition table {name}")));
    Ok(Some(what.unwrap_or_else(|| "something unknown".into())))
}

fn first_block(device: &str) -> std::io::Result<()> {
    std::fs::File::open(device)?.read_exact(&mut vec![0; 64 << 10])
}

/// True if the device has an XFS whose mkfs was killed.
fn is_half_made_xfs(device: &str) -> bool {
    let mut byte = [0];
    let read =
        std::fs::File::open(device).and_then(|file| file.read_exact_at(&mut byte, XFS_IN_PROGRESS));
    read.is_ok() && byte[0] == 1
}

/// Mounts a device; one that is blank gets a file system first.
///
/// # Errors
/// It has something else, is damaged, or cannot be mounted.
pub(crate) async fn mount(
    device: &str,
    target: &Path,
    desired: &DesiredMount<'_>,
) -> Result<(), String> {
    let found = match probe(device).await? {
        Some(name) if name == "xfs" && is_half_made_xfs(device) => None,
        found => found,
    };
    let kind = match found {
        Some(name) => FileSystemKind::parse(&name)
            .ok_or_else(|| format!("{device} has {name}, which the driver does not mount"))?,
        None if desired.is_read_only => {
            return Err(format!("{device} is blank, and no node may write it"));
        }
        None => {
            let mut words = desired.kind.make().to_vec();
            words.extend(desired.make_options.split_whitespace());
            words.push(device);
            command::run(&words, LONG).await?.ok()?;
            desired.kind
        }
    };
    if kind == FileSystemKind::Ext4 && !desired.is_read_only {
        let checked = command::run(&["e2fsck", "-p", device], LONG).await?;
        // 1: it was repaired.
        if !matches!(checked.status, Some(0 | 1)) {
            return Err(checked.failure());
        }
    }
    let mut options: Vec<&str> = kind.mount_options(desired.is_read_only).to_vec();
    options.extend(desired.options.iter().map(String::as_str));
    let options = options.join(",");
    let target = target.display().to_string();
    let mut words = vec!["mount", "-t", kind.name()];
    if !options.is_empty() {
        words.extend(["-o", &options]);
    }
    words.extend([device, &target]);
    command::run(&words, SHORT).await?.ok().map(drop)
}

/// Lets the mounted file system have all of its device.
///
/// # Errors
/// It cannot be grown.
pub(crate) async fn grow(device: &str, point: &Path) -> Result<(), String> {
    let point = point.display().to_string();
    match probe(device).await?.as_deref().and_then(FileSystemKind::parse) {
        Some(FileSystemKind::Ext4) => command::run(&["resize2fs", device], LONG).await?.ok()?,
        Some(FileSystemKind::Xfs) => {
            command::run(&["xfs_growfs", "-d", &point], LONG).await?.ok()?
        }
        None => return Err(format!("{device} has no file system that can grow")),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        assert_eq!(FileSystemKind::parse(""), Some(FileSystemKind::Ext4));
        assert_eq!(FileSystemKind::parse("xfs").map(FileSystemKind::name), Some("xfs"));
        assert_eq!(FileSystemKind::parse("ntfs"), None);
        assert!(FileSystemKind::Xfs.mount_options(true).contains(&"norecovery"));
    }

    #[tokio::test]
    async fn devices_that_cannot_be_read_are_not_blank() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("short");
        std::fs::write(&path, b"short").unwrap();
        assert!(probe(path.to_str().unwrap()).await.is_err());
        assert!(probe("/nonexistent").await.is_err());
    }

    #[test]
    fn half_made_xfs_is_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let mut image = vec![0; 512];
        std::fs::write(&path, &image).unwrap();
        assert!(!is_half_made_xfs(path.to_str().unwrap()));
        image[126] = 1;
        std::fs::write(&path, &image).unwrap();
        assert!(is_half_made_xfs(path.to_str().unwrap()));
    }
}

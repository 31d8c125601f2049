//! Mounts of this node.

use crate::plan::stage::{BlockDevice, DeviceNumber};
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};
use std::io;
use std::path::{Path, PathBuf};

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// Device of its file system.
    pub(crate) number: DeviceNumber,
    /// Folder or file of its file system that is shown.
    pub(crate) root: PathBuf,
    /// Where it is.
    pub(crate) point: PathBuf,
    /// True if it is read-only.
    pub(crate) is_read_only: bool,
}

/// Parses `/proc/self/mountinfo`; lines of another form are left out.
fn parse(text: &str) -> Vec<MountEntry> {
    let entry = |line: &str| {
        let mut words = line.split(' ');
        let (major, minor) = words.nth(2)?.split_once(':')?;
        let number = (major.parse().ok()?, minor.parse().ok()?);
        let root = unescape(words.next()?).into();
        let point = unescape(words.next()?);
        let is_read_only = words.next()?.split(',').any(|option| option == "ro");
        Some(MountEntry { number, root, point: point.into(), is_read_only })
    };
    text.lines().filter_map(entry).collect()
}

/// Replaces `\040` and its like by the characters.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(|_| first == b'\\') {
            Some(code) => {
                bytes.push(code);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the mount at a path: the one on top.
///
/// # Errors
/// The mounts cannot be read.
pub(crate) fn at(path: &Path) -> io::Result<Option<MountEntry>> {
    let text = std::fs::read_to_string("/proc/self/mountinfo")?;
    let path = resolved(path);
    Ok(parse(&text).into_iter().rev().find(|entry| entry.point == path))
}

/// Returns where a device is mounted, as a file system or, bound over a file, as itself.
///
/// # Errors
/// The mounts cannot be read.
pub(crate) fn of_device(device: &BlockDevice) -> io::Result<Vec<PathBuf>> {
    let text = std::fs::read_to_string("/proc/self/mountinfo")?;
    Ok(mounts_of(parse(&text), device))
}

fn mounts_of(entries: Vec<MountEntry>, device: &BlockDevice) -> Vec<PathBuf> {
    let node = device.path.strip_prefix("/dev");
    let is_of_device = |entry: &MountEntry| {
        let is_node =
            entry.root.to_str().is_some_and(|root| Some(root) == node || root == device.path);
        entry.number == device.number || is_node
    };
    entries.into_iter().filter(is_of_device).map(|entry| entry.point).collect()
}

/// Resolves links in all of a path but its last part, which may be a mount that does not answer.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
    match (parent, path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

/// Bind-mounts a folder or file.
pub(crate) fn bind(source: &Path, target: &Path) -> io::Result<()> {
    Ok(mount_bind(source, target)?)
}

/// Makes a bind mount read-only.
pub(crate) fn remount_read_only(target: &Path) -> io::Result<()> {
    Ok(mount_remount(target, MountFlags::BIND | MountFlags::RDONLY, "")?)
}

/// Unmounts what is on top at a path; with `is_lazy` also while it is in use. It may take long: what is cached is written.
pub(crate) async fn unmount_top(target: &Path, is_lazy: bool) -> io::Result<()> {
    let flags = if is_lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    let target = target.to_owned();
    let call = move || unmount(target, flags | UnmountFlags::NOFOLLOW);
    Ok(tokio::task::spawn_blocking(call).await.map_err(io::Error::other)??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_parsed() {
        let text = "36 35 98:0 / /mnt\\040a rw,noatime master:1 - ext3 /dev/root rw\n\
            37 35 0:22 /x /b ro,relatime - tmpfs tmpfs rw\nnonsense\n";
        let entries = parse(text);
        let first = MountEntry {
            number: (98, 0),
            root: "/".into(),
            point: "/mnt a".into(),
            is_read_only: false,
        };
        assert_eq!(entries[0], first);
        assert!(entries[1].is_read_only && entries.len() == 2);
        assert_eq!(unescape("a\\134b\\"), "a\\b\\");
    }

    #[test]
    fn mounts_of_a_device() {
        let text = "1 0 7:2 / /staging rw - ext4 /dev/loop2 rw\n\
            2 0 7:2 / /pod rw - ext4 /dev/loop2 rw\n\
            3 0 0:5 /loop2 /raw rw - devtmpfs devtmpfs rw\n\
            4 0 0:5 /loop20 /other rw - devtmpfs devtmpfs rw\n\
            5 0 0:5 / /dev rw - devtmpfs devtmpfs rw\n";
        let device = BlockDevice { path: "/dev/loop2".into(), number: (7, 2) };
        let points = ["/staging", "/pod", "/raw"].map(PathBuf::from);
        assert_eq!(mounts_of(parse(text), &device), points);
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(at(Path::new("/proc")).unwrap().is_some());
        assert_eq!(at(Path::new("/proc/self")).unwrap(), None);
    }
}

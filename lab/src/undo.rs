//! Folders, mounts and loop devices that are undone when they are dropped.

use crate::command::{self, run, undo};
use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);

/// A folder of ours.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes it; it must not exist.
    pub(crate) fn new(path: PathBuf) -> anyhow::Result<Self> {
        fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A file system that is still mounted there is not ours to empty.
        if mounts().iter().any(|mount| mount.starts_with(&self.0)) {
            eprintln!("  something is still mounted under {}", self.0.display());
        } else if let Err(e) = fs::remove_dir_all(&self.0) {
            eprintln!("  {}: {e}", self.0.display());
        }
    }
}

/// Something mounted by us or by a program of ours, which may undo it itself.
pub(crate) struct LabMount(PathBuf);

impl LabMount {
    /// Mounts: `mount ARGUMENTS... AT`.
    pub(crate) fn new(arguments: &str, at: &Path) -> anyhow::Result<Self> {
        run(command::words(&format!("mount {arguments}")).arg(at), LIMIT)?;
        Ok(Self(at.to_owned()))
    }

    /// A mount that another program makes, or will.
    pub(crate) fn by_others(at: &Path) -> Self {
        Self(at.to_owned())
    }
}

impl Drop for LabMount {
    fn drop(&mut self) {
        if !is_mounted(&self.0) {
            return;
        }
        let unmounted = undo(Command::new("umount").arg(&self.0), LIMIT).or_else(|e| {
            eprintln!("  {e:#}: unmounted lazily");
            undo(Command::new("umount").arg("-l").arg(&self.0), LIMIT)
        });
        if let Err(e) = unmounted {
            eprintln!("  {e:#}");
        }
    }
}

/// A loop device over a file.
pub(crate) struct LabLoopDevice {
    path: PathBuf,
    /// Its largest request before it was limited.
    unlimited: Option<String>,
}

impl LabLoopDevice {
    /// Makes one, past the page cache.
    pub(crate) fn new(file: &Path) -> anyhow::Result<Self> {
        let mut losetup = command::words("losetup --direct-io=on --find --show");
        let name = run(losetup.arg(file), LIMIT)?;
        match name.trim() {
            name if name.starts_with("/dev/loop") => {
                Ok(Self { path: name.into(), unlimited: None })
            }
            other => bail!("losetup says: {other}"),
        }
    }

    /// No request is larger from now on. The number keeps its limit beyond the device's end.
    pub(crate) fn limit_requests(&mut self, kib: usize) -> anyhow::Result<()> {
        let limit = self.limit_file();
        let before = fs::read_to_string(&limit).with_context(|| limit.display().to_string())?;
        fs::write(&limit, kib.to_string()).with_context(|| limit.display().to_string())?;
        self.unlimited = Some(before);
        Ok(())
    }

    fn limit_file(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default();
        Path::new("/sys/block").join(name).join("queue/max_sectors_kb")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LabLoopDevice {
    fn drop(&mut self) {
        if let Some(before) = &self.unlimited
            && let Err(e) = fs::write(self.limit_file(), before)
        {
            eprintln!("  {}: {e}", self.limit_file().display());
        }
        if let Err(e) = undo(Command::new("losetup").arg("-d").arg(&self.path), LIMIT) {
            eprintln!("  {e:#}");
        }
    }
}

/// True if a file system is mounted exactly there.
pub(crate) fn is_mounted(path: &Path) -> bool {
    mounts().iter().any(|mount| mount == path)
}

fn mounts() -> Vec<PathBuf> {
    parse_mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// The mount points; ours contain nothing that the kernel escapes.
fn parse_mounts(mountinfo: &str) -> Vec<PathBuf> {
    mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read() {
        let text = "22 1 254:0 / / rw,relatime - ext4 /dev/root rw\n\
                    40 22 0:35 / /tmp/a/store rw - tmpfs tmpfs rw\n";
        assert_eq!(parse_mounts(text), [Path::new("/"), Path::new("/tmp/a/store")]);
        assert!(is_mounted(Path::new("/proc")));
        assert!(!is_mounted(Path::new("/pro")));
    }

    #[test]
    fn a_folder_goes_with_its_contents() {
        let path = std::env::temp_dir().join(format!("roadtrain-undo-{}", std::process::id()));
        let folder = Folder::new(path.clone()).expect("new");
        fs::write(folder.path().join("file"), "x").expect("a folder");
        assert!(Folder::new(path.clone()).is_err(), "it exists");
        drop(folder);
        assert!(!path.exists());
    }
}

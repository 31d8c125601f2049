//! Files next to a store for state that outlives the target: reservations and marks.
//!
//! The new content goes to a second file, which is flushed and then renamed to the name of the first. So the file
//! always has either the old content or the new one.

use roadtrain_store::{OpenError, StoreKind, StoreSpec};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tracing::warn;

/// Largest file that is read, in bytes. 1,024 registrants need less, and so do 2,048 marks.
const BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
thread_local! {
    /// Calls of [`sync_folder`] by this thread. A test cannot observe stable storage.
    static FOLDERS_SYNCED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Location of a namespace's state that outlives the target.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum KeptPlace {
    /// Next to an exported file, under its name plus a suffix; otherwise nowhere.
    #[default]
    NextToStore,
    /// Next to this file, likewise: for blocks that another program has opened.
    NextToFile(PathBuf),
    /// This file.
    File(PathBuf),
    /// In memory, as the blocks: for memory that another program has opened.
    InMemory,
    /// Nowhere: the state is not kept.
    Nowhere,
}

/// Kind of kept file.
pub(super) struct KeptFileKind {
    /// Suffix after the name of an exported file.
    pub(super) suffix: &'static str,
    /// Log message for a namespace without this file: the function it lacks.
    pub(super) without: &'static str,
    /// Actions for error messages: keep, read, use.
    pub(super) actions: [&'static str; 3],
    /// Advice for a file that is damaged or cannot be kept.
    pub(super) advice: &'static str,
}

impl KeptPlace {
    /// Returns the path of the file for a namespace with this store.
    pub(super) fn path(&self, spec: Option<&StoreSpec>, kind: &KeptFileKind) -> Option<PathBuf> {
        match (self, spec.map(|spec| &spec.kind)) {
            (KeptPlace::File(path), _) => Some(path.clone()),
            (KeptPlace::NextToFile(path), _)
            | (KeptPlace::NextToStore, Some(StoreKind::File { path, .. })) => {
                Some(with_suffix(path, kind.suffix))
            }
            (KeptPlace::NextToStore | KeptPlace::InMemory | KeptPlace::Nowhere, _) => None,
        }
    }

    /// Returns the path if the file can be written.
    ///
    /// # Errors
    ///
    /// The file cannot be written, and it was configured or exists: its state must not be lost.
    pub(super) fn writable(
        &self,
        spec: Option<&StoreSpec>,
        kind: &KeptFileKind,
    ) -> Result<Option<PathBuf>, OpenError> {
        let Some(path) = self.path(spec, kind) else { return Ok(None) };
        if let Err(source) = check_folder(&path) {
            let error =
                |source| OpenError::Io { path: path.clone(), action: kind.actions[0], source };
            if let KeptPlace::File(_) = self {
                return Err(error(source));
            }
            if !matches!(path.try_exists(), Ok(false)) {
                let advice = format!("{source}; make its folder writable, or {}", kind.advice);
                return Err(error(io::Error::other(advice)));
            }
            warn!(path = %path.display(), "{}: {source}", kind.without);
            return Ok(None);
        }
        Ok(Some(path))
    }
}

impl KeptFileKind {
    /// Reads the file and parses it; `None` if there is no file.
    pub(super) fn read<T>(
        &self,
        path: &Path,
        parse: impl FnOnce(&[u8]) -> Result<T, roadtrain_target_proto::ImageError>,
    ) -> Result<Option<T>, OpenError> {
        let error = |action| move |source| OpenError::Io { path: path.into(), action, source };
        let [_, cannot_read, cannot_use] = self.actions.map(error);
        let image = match fs::metadata(path) {
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(failure) => return Err(cannot_read(failure)),
            Ok(file) if file.len() > BYTES_MAX => {
                return Err(cannot_read(io::Error::other("it is too long to be one of ours")));
            }
            Ok(_) => fs::read(path).map_err(cannot_read)?,
        };
        let parsed = parse(&image)
            .map_err(|damage| io::Error::other(format!("{damage}; restore it, or {}", self.advice)))
            .map_err(cannot_use)?;
        Ok(Some(parsed))
    }
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Checks that files can be created in the folder of `path`. A file in use may be about to get new content.
///
/// A process that was killed may have renamed the file just before. Makes that stable: else a power failure brings the
/// old content back, after this process has acted on the new one.
fn check_folder(path: &Path) -> io::Result<()> {
    let probe = with_suffix(path, ".probe");
    create(&probe)?;
    fs::remove_file(&probe)?;
    if path.exists() { sync_folder(path) } else { Ok(()) }
}

/// Flushes the file names in the folder of `path`.
fn sync_folder(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    FOLDERS_SYNCED.with(|count| count.set(count.get() + 1));
    File::open(folder(path))?.sync_all()
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Replaces the content of the file by `image`, on stable storage.
pub(super) fn write(path: &Path, image: &[u8]) -> io::Result<()> {
    let new = with_suffix(path, ".new");
    let mut file = create(&new)?;
    file.write_all(image)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_folder(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: KeptFileKind = KeptFileKind {
        suffix: ".kept",
        without: "nothing is kept",
        actions: ["keep it in", "read it in", "use it in"],
        advice: "remove it",
    };

    fn of_file(path: PathBuf) -> StoreSpec {
        let kind = StoreKind::File { path, size: None, create: false };
        StoreSpec { kind, lba_bytes: 512, read_only: false }
    }

    fn read(path: &Path) -> Option<Vec<u8>> {
        KIND.read(path, |image| Ok(image.to_vec())).unwrap()
    }

    #[test]
    fn a_file_has_the_old_content_or_the_new_one_at_each_step() {
        let folder = tempfile::tempdir().unwrap();
        let spec = of_file(folder.path().join("disk.img"));
        let place = || KeptPlace::NextToStore.writable(Some(&spec), &KIND).unwrap().unwrap();
        let (path, new) = (place(), folder.path().join("disk.img.kept.new"));
        assert_eq!((&path, read(&path)), (&folder.path().join("disk.img.kept"), None));
        write(&path, b"old").unwrap();
        let names = || fs::read_dir(folder.path()).unwrap().count();
        assert_eq!((read(&path), names()), (Some(b"old".to_vec()), 1), "nothing else is left");
        // State after a kill during the write, or before the rename. A start and a reload leave the new file alone.
        for half in [&b""[..], b"ne", b"new"] {
            fs::write(&new, half).unwrap();
            assert_eq!((place(), read(&path)), (path.clone(), Some(b"old".to_vec())));
            assert_eq!(fs::read(&new).unwrap(), half);
        }
        // State after a kill that follows the rename.
        fs::rename(&new, &path).unwrap();
        assert_eq!(read(&path), Some(b"new".to_vec()));
        // A leftover file does not disturb the next write.
        fs::write(&new, "something longer than what is to come").unwrap();
        write(&path, b"newer").unwrap();
        assert_eq!((read(&path), names()), (Some(b"newer".to_vec()), 1));
    }

    /// The process is killed after the rename and before the folder is flushed. The next power failure must not restore
    /// the old content.
    #[test]
    fn a_start_makes_stable_what_it_finds() {
        let folder = tempfile::tempdir().unwrap();
        let spec = of_file(folder.path().join("disk.img"));
        let synced = || {
            let before = FOLDERS_SYNCED.get();
            KeptPlace::NextToStore.writable(Some(&spec), &KIND).unwrap().unwrap();
            FOLDERS_SYNCED.get() - before
        };
        assert_eq!(synced(), 0, "there is nothing yet");
        fs::write(folder.path().join("disk.img.kept"), "new").unwrap();
        assert_eq!(synced(), 1);
    }

    #[test]
    fn there_is_a_place_only_where_there_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let beside =
            |spec: Option<&StoreSpec>| KeptPlace::NextToStore.writable(spec, &KIND).unwrap();
        assert_eq!(beside(None), None);
        assert_eq!(beside(Some(&of_file(folder.path().join("absent/disk.img")))), None);
        // A folder without room is one where the first file cannot be created, also by root.
        let spec = of_file(folder.path().join("disk.img"));
        fs::create_dir(folder.path().join("disk.img.kept.probe")).unwrap();
        assert_eq!(beside(Some(&spec)), None);
        fs::write(folder.path().join("disk.img.kept"), "kept").unwrap();
        let error = KeptPlace::NextToStore.writable(Some(&spec), &KIND).unwrap_err().to_string();
        assert!(
            error.contains("disk.img.kept: ")
                && error.contains("make its folder writable, or remove it"),
            "{error}"
        );
        let absent = KeptPlace::File(folder.path().join("absent/kept"));
        assert!(absent.writable(None, &KIND).is_err());
        assert_eq!(KeptPlace::Nowhere.writable(None, &KIND).unwrap(), None);
    }
}

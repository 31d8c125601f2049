//! Files beside a store, with what is to be known of it when the target comes again: reservations, marks.
//!
//! A file is written anew, beside the old one, brought to stable storage, and then given the old one's name. So it has
//! the old content or the new one, whatever happens.

use roadtrain_store::{OpenError, StoreKind, StoreSpec};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tracing::warn;

/// Longest file that is read: 1,024 registrants need less, and so do 2,048 marks.
const BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
thread_local! {
    /// Calls of [`sync_folder`] by this thread: no test can see what is stable.
    static FOLDERS_SYNCED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Where something of a namespace is kept that outlives the target.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum KeptPlace {
    /// Beside a file that is exported, under its name with something behind it; else nowhere.
    #[default]
    Beside,
    /// Beside this file, likewise: of blocks that somebody else has opened.
    BesideFile(PathBuf),
    /// In this file.
    File(PathBuf),
    /// Nowhere.
    Nowhere,
}

/// A kind of file.
pub(super) struct Kind {
    /// Behind the name of an exported file.
    pub(super) suffix: &'static str,
    /// What a namespace does not have without it.
    pub(super) without: &'static str,
    /// What is done to it, as errors say it: kept, read, used.
    pub(super) actions: [&'static str; 3],
    /// How to go on without it when it is damaged, or cannot be kept.
    pub(super) advice: &'static str,
}

impl KeptPlace {
    /// The file, for a namespace whose blocks are there.
    pub(super) fn path(&self, spec: Option<&StoreSpec>, kind: &Kind) -> Option<PathBuf> {
        match (self, spec.map(|spec| &spec.kind)) {
            (KeptPlace::File(path), _) => Some(path.clone()),
            (KeptPlace::BesideFile(path), _)
            | (KeptPlace::Beside, Some(StoreKind::File { path, .. })) => {
                Some(with_suffix(path, kind.suffix))
            }
            (KeptPlace::Beside | KeptPlace::Nowhere, _) => None,
        }
    }

    /// The same, if the file can be written.
    ///
    /// # Errors
    /// The file cannot be written, and was named or is there: it may have what no host may miss.
    pub(super) fn writable(
        &self,
        spec: Option<&StoreSpec>,
        kind: &Kind,
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

impl Kind {
    /// What `parse` makes of the file's content; `None`: there is no file.
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

/// Checks that files can be made where `path` is. The new content of a file in use may just be written.
///
/// A process that was killed may have renamed the file just before. Makes that stable: else a power failure brings the old
/// content back, after this process has acted on the new one.
fn check_folder(path: &Path) -> io::Result<()> {
    let probe = with_suffix(path, ".probe");
    create(&probe)?;
    fs::remove_file(&probe)?;
    if path.exists() { sync_folder(path) } else { Ok(()) }
}

/// Makes the names of files in the folder of `path` stable.
fn sync_folder(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    FOLDERS_SYNCED.with(|count| count.set(count.get() + 1));
    File::open(folder(path))?.sync_all()
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Makes `image` the content of the file, on stable storage.
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

    const KIND: Kind = Kind {
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
        let place = || KeptPlace::Beside.writable(Some(&spec), &KIND).unwrap().unwrap();
        let (path, new) = (place(), folder.path().join("disk.img.kept.new"));
        assert_eq!((&path, read(&path)), (&folder.path().join("disk.img.kept"), None));
        write(&path, b"old").unwrap();
        let names = || fs::read_dir(folder.path()).unwrap().count();
        assert_eq!((read(&path), names()), (Some(b"old".to_vec()), 1), "nothing else is left");
        // Killed while it is written, and before it has its name. A start and a reload leave it alone.
        for half in [&b""[..], b"ne", b"new"] {
            fs::write(&new, half).unwrap();
            assert_eq!((place(), read(&path)), (path.clone(), Some(b"old".to_vec())));
            assert_eq!(fs::read(&new).unwrap(), half);
        }
        // Killed when it has its name.
        fs::rename(&new, &path).unwrap();
        assert_eq!(read(&path), Some(b"new".to_vec()));
        // What was left is in nobody's way.
        fs::write(&new, "something longer than what is to come").unwrap();
        write(&path, b"newer").unwrap();
        assert_eq!((read(&path), names()), (Some(b"newer".to_vec()), 1));
    }

    /// Killed when the file has its name, and before the folder is stable. The next power failure is not to bring old
    /// content back.
    #[test]
    fn a_start_makes_stable_what_it_finds() {
        let folder = tempfile::tempdir().unwrap();
        let spec = of_file(folder.path().join("disk.img"));
        let synced = || {
            let before = FOLDERS_SYNCED.get();
            KeptPlace::Beside.writable(Some(&spec), &KIND).unwrap().unwrap();
            FOLDERS_SYNCED.get() - before
        };
        assert_eq!(synced(), 0, "there is nothing yet");
        fs::write(folder.path().join("disk.img.kept"), "new").unwrap();
        assert_eq!(synced(), 1);
    }

    #[test]
    fn there_is_a_place_only_where_there_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let beside = |spec: Option<&StoreSpec>| KeptPlace::Beside.writable(spec, &KIND).unwrap();
        assert_eq!(beside(None), None);
        assert_eq!(beside(Some(&of_file(folder.path().join("absent/disk.img")))), None);
        // A folder without a place is one where the first file that is made cannot be made, also for root.
        let spec = of_file(folder.path().join("disk.img"));
        fs::create_dir(folder.path().join("disk.img.kept.probe")).unwrap();
        assert_eq!(beside(Some(&spec)), None);
        fs::write(folder.path().join("disk.img.kept"), "kept").unwrap();
        let error = KeptPlace::Beside.writable(Some(&spec), &KIND).unwrap_err().to_string();
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

//! Files of reservations that persist through power loss.
//!
//! A file is written anew, beside the old one, brought to stable storage, and then given the old one's name. So it has
//! the old content or the new one, whatever happens.

use roadtrain_proto::target::reservations::{State, parse_image};
use roadtrain_store::{OpenError, StoreKind, StoreSpec};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use tracing::{info, warn};

/// Longest file that is read: 1,024 registrants need less.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where the reservations of a namespace are kept that persist through power loss.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum ReservationPlace {
    /// Beside a file that is exported and may be written, under its name with `.reservations` behind it; else nowhere.
    #[default]
    Beside,
    /// In this file.
    File(PathBuf),
    /// Nowhere: hosts are told that nothing persists.
    Nowhere,
}

impl ReservationPlace {
    /// The file, for a namespace whose blocks are there.
    pub(super) fn path(&self, spec: Option<&StoreSpec>) -> Option<PathBuf> {
        match (self, spec) {
            (ReservationPlace::File(path), _) => Some(path.clone()),
            (ReservationPlace::Nowhere, _) => None,
            (
                ReservationPlace::Beside,
                Some(StoreSpec { kind: StoreKind::File { path, .. }, read_only: false, .. }),
            ) => Some(with_suffix(path, ".reservations")),
            (ReservationPlace::Beside, _) => None,
        }
    }

    /// What is known of the namespace with that NGUID, and where it is kept; `None`: nowhere.
    ///
    /// # Errors
    /// There is a file that cannot be read, or is damaged, or one that was named cannot be written.
    pub(super) fn open(
        &self,
        spec: Option<&StoreSpec>,
        nguid: &[u8; 16],
    ) -> Result<Option<Kept>, OpenError> {
        let Some(path) = self.path(spec) else { return Ok(None) };
        if let Err(source) = check_folder(&path) {
            if *self != ReservationPlace::Beside {
                return Err(OpenError::Io { path, action: "keep reservations in", source });
            }
            warn!(path = %path.display(), "reservations do not persist through power loss: {source}");
            return Ok(None);
        }
        let state = read(&path, nguid)?;
        Ok(Some(Kept { path, state }))
    }
}

/// What is known of a namespace, and where it is kept.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) path: PathBuf,
    pub(super) state: State,
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
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

/// Whether files can be made where `path` is. The new content of a file in use may just be written.
fn check_folder(path: &Path) -> io::Result<()> {
    let probe = with_suffix(path, ".probe");
    create(&probe)?;
    fs::remove_file(&probe)
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn read(path: &Path, nguid: &[u8; 16]) -> Result<State, OpenError> {
    let error = |action| move |source| OpenError::Io { path: path.into(), action, source };
    let cannot = error("read the reservations in");
    let image = match fs::metadata(path) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(State::default()),
        Err(failure) => return Err(cannot(failure)),
        Ok(file) if file.len() > FILE_BYTES_MAX => {
            return Err(cannot(io::Error::other("it is too long to be one of ours")));
        }
        Ok(_) => fs::read(path).map_err(cannot)?,
    };
    let advice = "restore it, or remove it to begin without reservations";
    let parsed = parse_image(&image)
        .map_err(|damage| io::Error::other(format!("{damage}; {advice}")))
        .map_err(error("use the reservations in"))?;
    match parsed {
        (of, state) if of == *nguid => {
            if let (Some(_), count) = (state.reservation, state.registrants.len()) {
                info!(path = %path.display(), registrants = count, "a reservation is held");
            }
            Ok(state)
        }
        (of, _) => {
            let of = u128::from_be_bytes(of);
            warn!(path = %path.display(), "it has the reservations of another namespace (NGUID {of:032x}), which are not used");
            Ok(State::default())
        }
    }
}

/// Makes `image` the content of the file, on stable storage.
pub(super) fn write(path: &Path, image: &[u8]) -> io::Result<()> {
    let new = with_suffix(path, ".new");
    let mut file = create(&new)?;
    file.write_all(image)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder(path))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_proto::target::reservations::Registrant;

    fn state() -> State {
        let registrants = vec![Registrant { host: [1; 16], key: 5 }];
        State { generation: 1, persists: true, registrants, reservation: None }
    }

    fn of_file(path: PathBuf, read_only: bool) -> StoreSpec {
        let kind = StoreKind::File { path, size: None, create: false };
        StoreSpec { kind, lba_bytes: 512, read_only }
    }

    #[test]
    fn what_was_written_is_read_by_its_namespace_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (place, spec) =
            (ReservationPlace::Beside, of_file(folder.path().join("disk.img"), false));
        let open = || place.open(Some(&spec), &[7; 16]).unwrap().unwrap();
        assert_eq!(open().state, State::default());
        assert_eq!(open().path, folder.path().join("disk.img.reservations"));
        write(&open().path, &state().image(&[7; 16])).unwrap();
        assert_eq!(open().state, state());
        let other = place.open(Some(&spec), &[8; 16]).unwrap().unwrap();
        assert_eq!(other.state, State::default());
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "nothing else is left: {names:?}");
        // A reload looks again while a change is being saved.
        let new = folder.path().join("disk.img.reservations.new");
        fs::write(&new, "half").unwrap();
        open();
        assert_eq!(fs::read(&new).unwrap(), b"half");
    }

    #[test]
    fn a_damaged_file_is_refused_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        let mut image = state().image(&[7; 16]);
        image[40] ^= 1;
        fs::write(&path, image).unwrap();
        let error = ReservationPlace::File(path.clone()).open(None, &[7; 16]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(path.to_str().unwrap()) && text.contains("damaged"), "{text}");
    }

    #[test]
    fn there_is_a_place_only_where_there_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let beside = |spec: Option<&StoreSpec>| {
            ReservationPlace::Beside.open(spec, &[7; 16]).unwrap().is_some()
        };
        assert!(!beside(None));
        assert!(!beside(Some(&of_file(folder.path().join("disk.img"), true))));
        assert!(!beside(Some(&of_file(folder.path().join("absent/disk.img"), false))));
        let absent = ReservationPlace::File(folder.path().join("absent/kept"));
        assert!(absent.open(None, &[7; 16]).is_err());
        assert!(ReservationPlace::Nowhere.open(None, &[7; 16]).unwrap().is_none());
    }
}

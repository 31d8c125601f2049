//! The writer of a running target's state file: as a whole, or a change in its journal.

use super::journal::{JournalHead, StateChange, hex, journal_of};
use super::{SavedModel, file};
use roadtrain_proto::digest::digest;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Fewest devices and namespaces for a journal: fewer are written as a whole each time.
const OBJECTS_MIN: usize = 128;

/// The state file of a running target, with its journal.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    /// Digest of the file as this process has written it; `None`: the file has to be written as a whole.
    digest: Option<u128>,
    journal: Option<(File, u64)>,
    /// Changes that may still be appended before the whole file is written again.
    changes_left: usize,
}

impl StateFile {
    /// Creates the writer of the file at `path`. It first writes the whole file.
    #[must_use]
    pub fn new(path: PathBuf) -> StateFile {
        StateFile { path, digest: None, journal: None, changes_left: 0 }
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the whole state to stable storage, and removes the journal.
    ///
    /// # Errors
    /// Writing failed; the file is unchanged, or has the new state.
    pub fn save(&mut self, state: &SavedModel) -> io::Result<()> {
        (self.digest, self.journal) = (None, None);
        let text = file::save(&self.path, state)?;
        let removed = std::fs::remove_file(journal_of(&self.path));
        removed.or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        let namespaces = state.subsystems.iter().map(|one| one.namespaces.len());
        let objects = state.devices.len() + namespaces.sum::<usize>();
        if objects >= OBJECTS_MIN {
            (self.digest, self.changes_left) = (Some(digest(&[text.as_bytes()])), objects);
        }
        Ok(())
    }

    /// Writes a change to stable storage. False if the whole state has to be written instead.
    ///
    /// # Errors
    /// Writing failed: the whole state has to be written before the next change.
    pub fn append(&mut self, change: &StateChange) -> io::Result<bool> {
        let Some(follows) = self.digest else { return Ok(false) };
        if change.is_empty() {
            return Ok(true);
        }
        if self.changes_left == 0 {
            return Ok(false);
        }
        let done = self.write(follows, change);
        match done {
            Ok(()) => self.changes_left -= 1,
            Err(_) => (self.digest, self.journal) = (None, None),
        }
        done.map(|()| true)
    }

    /// True if changes are in the journal.
    #[must_use]
    pub fn has_journal(&self) -> bool {
        self.journal.is_some()
    }

    fn write(&mut self, follows: u128, change: &StateChange) -> io::Result<()> {
        let mut line = serde_json::to_vec(change)?;
        line.push(b'\n');
        let (file, bytes) = match &mut self.journal {
            Some((file, bytes)) => (file, bytes),
            none => {
                let (path, mut options) = (journal_of(&self.path), OpenOptions::new());
                let options = options.write(true).create(true).truncate(true).mode(0o600);
                let mut file = options.open(path)?;
                let mut head = serde_json::to_vec(&JournalHead { follows: hex(follows) })?;
                head.push(b'\n');
                file.write_all(&head)?;
                file::sync_folder(&self.path)?;
                let (file, bytes) = none.insert((file, head.len() as u64));
                (file, bytes)
            }
        };
        let written = file.write_all(&line).and_then(|()| file.sync_data());
        if written.is_err() {
            let _ = file.set_len(*bytes); // or the caller's next file supersedes the line
        }
        written.inspect(|()| *bytes += line.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{device, namespace};
    use super::super::{ManagedModel, SavedSubsystem, load, read};
    use super::*;
    use std::fs;

    fn model(count: u32) -> ManagedModel {
        let subsystem = |nqn: &str| SavedSubsystem {
            nqn: nqn.into(),
            max_namespaces: 16_384,
            ..SavedSubsystem::default()
        };
        let mut subsystems = vec![subsystem("nqn.2026-11.test:a"), subsystem("nqn.2026-11.test:b")];
        let namespaces = (1..=count / 2).map(|n| namespace(n * 2, &format!("d{n}")));
        subsystems[0].namespaces = namespaces.collect();
        let devices = (1..=count).map(|n| device(&format!("d{n}"))).collect();
        ManagedModel { devices, subsystems, ..ManagedModel::default() }
    }

    /// Changes the model, and writes the change into the file. Returns whether the journal has it.
    fn save(
        file: &mut StateFile,
        model: &mut ManagedModel,
        change: impl Fn(&mut ManagedModel),
    ) -> bool {
        let old = model.clone();
        change(model);
        let change = StateChange::between(&old, model, &[]);
        let is_appended = change.is_some_and(|change| file.append(&change).unwrap());
        if !is_appended {
            file.save(&model.state()).unwrap();
        }
        is_appended
    }

    #[test]
    fn a_journal_continues_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.toml");
        let (mut file, mut model) = (StateFile::new(path.clone()), model(1000));
        let add =
            |name: &'static str| move |model: &mut ManagedModel| model.devices.push(device(name));
        assert!(!save(&mut file, &mut model, add("first")), "the first change writes the file");
        let written = fs::read(&path).unwrap();
        type Change = fn(&mut ManagedModel);
        let changes: &[(&str, Change)] = &[
            ("a device", |model| model.devices.push(device("new"))),
            ("a namespace between others", |model| {
                model.subsystems[0].namespaces.insert(1, namespace(3, "new"));
            }),
            ("a namespace of another subsystem", |model| {
                model.subsystems[1].namespaces.push(namespace(9, "d999"));
            }),
            ("a removed device with its namespace", |model| drop(model.remove_device("d7"))),
            ("another device of a namespace", |model| {
                model.subsystems[0].namespaces[0].device = "d998".into();
            }),
            ("nothing", |_| ()),
        ];
        for (what, change) in changes {
            assert!(save(&mut file, &mut model, change), "{what}");
            assert_eq!(read(&path).unwrap(), model.state(), "{what}");
        }
        assert_eq!(fs::read(&path).unwrap(), written, "the file stays");
        assert_eq!(
            load(&path, &[], &crate::model::RemoteDevices::default()).unwrap().state(),
            model.state()
        );
        let referral = |model: &mut ManagedModel| model.has_tcp = true;
        assert!(!save(&mut file, &mut model, referral), "another kind of change");
        assert_eq!(read(&path).unwrap(), model.state());
        assert!(!journal_of(&path).exists());
        // Another process continues with a file of its own.
        assert!(save(&mut file, &mut model, add("more")));
        let mut successor = StateFile::new(path.clone());
        assert!(!save(&mut successor, &mut model, add("most")));
        assert_eq!(read(&path).unwrap(), model.state());
    }

    #[test]
    fn the_whole_file_is_written_again_after_many_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.toml");
        let (mut file, mut model) = (StateFile::new(path.clone()), model(1024));
        let add = |model: &mut ManagedModel| {
            let name = format!("new{}", model.devices.len());
            model.devices.push(device(&name));
        };
        let whole: Vec<usize> = (0..4000).filter(|_| !save(&mut file, &mut model, add)).collect();
        assert_eq!(whole, [0, 1538], "as often as its size doubles");
        assert_eq!(read(&path).unwrap(), model.state());
    }

    #[test]
    fn a_small_state_has_no_journal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.toml");
        let (mut file, mut model) = (StateFile::new(path.clone()), model(10));
        for name in ["a", "b"] {
            assert!(!save(&mut file, &mut model, |model| model.devices.push(device(name))));
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    /// A crash may cut the last line, and a file may be newer than a journal that was not removed yet.
    #[test]
    fn what_was_not_done_is_not_replayed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.toml");
        let (mut file, mut model) = (StateFile::new(path.clone()), model(1024));
        let add = |model: &mut ManagedModel| {
            let name = format!("new{}", model.devices.len());
            model.devices.push(device(&name));
        };
        save(&mut file, &mut model, add);
        save(&mut file, &mut model, add);
        let before = model.state();
        save(&mut file, &mut model, add);
        let journal = fs::read(journal_of(&path)).unwrap();
        fs::write(journal_of(&path), &journal[..journal.len() - 1]).unwrap();
        assert_eq!(read(&path).unwrap(), before);
        fs::write(journal_of(&path), &journal).unwrap();
        assert_eq!(read(&path).unwrap(), model.state());

        let doubled = [&journal[..], journal.rsplit(|byte| *byte == b'\n').nth(1).unwrap(), b"\n"];
        fs::write(journal_of(&path), doubled.concat()).unwrap();
        read(&path).unwrap(); // a device twice is found when the state is loaded
        let broken = [&journal[..], b"{}x\n"].concat();
        fs::write(journal_of(&path), broken).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("line 4 of its journal"), "{error}");

        save(&mut file, &mut model, |model| model.has_tcp = true);
        fs::write(journal_of(&path), &journal).unwrap();
        assert_eq!(read(&path).unwrap(), model.state(), "it follows another file");
    }
}

//! The state file: the objects that RPC created, kept however the process ends.
//!
//! A new file is written next to the old one and synced, then renamed over it, and the folder is synced. So the file
//! has the old content or the new one after any crash.

use super::journal::{journal_of, replay};
use super::{ManagedDevice, ManagedModel, NamedKey, RemoteDevices, SavedModel, SavedSubsystem};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest file that is read, in bytes: some 100,000 namespaces.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Reason why a state file cannot be used.
#[derive(Debug)]
pub struct StateError {
    path: PathBuf,
    problem: String,
}

impl std::fmt::Display for StateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.problem)
    }
}

impl std::error::Error for StateError {}

/// Reads the file at `path`, with the changes in its journal; a missing file is empty.
///
/// # Errors
/// The file cannot be read or is invalid.
pub fn read(path: &Path) -> Result<SavedModel, StateError> {
    let unfit = |problem: String| StateError { path: path.into(), problem };
    let text = match fs::metadata(path) {
        Ok(metadata) if metadata.len() > FILE_BYTES_MAX => Err(io::Error::other("it is too long")),
        Ok(_) => fs::read_to_string(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(SavedModel::default()),
        Err(error) => Err(error),
    };
    let text = text.map_err(|error| unfit(error.to_string()))?;
    let mut state = toml::from_str(&text).map_err(|error| unfit(error.to_string()))?;
    match fs::read_to_string(journal_of(path)) {
        Ok(journal) => replay(&text, &journal, &mut state).map_err(unfit)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(unfit(format!("its journal: {error}"))),
    }
    Ok(state)
}

/// Opens everything that the file at `path` names; every path has to be below one of `roots`. The caller adds what it
/// opens itself, and then calls [`ManagedModel::order_devices`].
///
/// # Errors
/// The file cannot be read or is invalid, or an object cannot be opened, or a path is outside of `roots`.
pub fn load(
    path: &Path,
    roots: &[PathBuf],
    remote: &RemoteDevices,
) -> Result<ManagedModel, StateError> {
    let unfit = |problem: String| StateError { path: path.into(), problem };
    let state = read(path)?;
    let is_allowed = |path: &Path| state.owner_paths.contains(path) || may_be_opened(roots, path);
    let elsewhere = state.paths().into_iter().find(|(_, path)| !is_allowed(path));
    if let Some((what, path)) = elsewhere {
        return Err(unfit(format!(
            "{what}: {} is not below one of the file_roots of the configuration: add its folder (--file-root)",
            path.display()
        )));
    }
    let mut model = ManagedModel {
        has_tcp: state.tcp,
        limits: state.limits,
        subsystems: state.subsystems,
        referrals: state.referrals,
        rbd_clusters: state.rbd_clusters,
        order: state.order,
        remote: remote.clone(),
        ..ManagedModel::default()
    };
    for spec in state.keys {
        let what = format!("key {}: {}", spec.name, spec.path.display());
        let key = NamedKey::open(spec).map_err(|error| unfit(format!("{what}: {error}")))?;
        model.keys.push(Arc::new(key));
    }
    model.check_keys().map_err(&unfit)?;
    model.subsystems.iter().try_for_each(SavedSubsystem::check_management).map_err(&unfit)?;
    for spec in &state.devices {
        let device = ManagedDevice::from_spec(spec, remote);
        let device = device.map_err(|problem| unfit(format!("device {}: {problem}", spec.name)))?;
        model.devices.push(Arc::new(device));
    }
    for spec in &state.lvstores {
        let opened = model.open_lvstore(spec);
        opened.map_err(|problem| unfit(format!("lvstore {}: {problem}", spec.name)))?;
    }
    Ok(model)
}

/// True if RPC may open `path`. A file that does not exist yet is judged by its folder; a path without a folder cannot
/// be opened anyway.
fn may_be_opened(roots: &[PathBuf], path: &Path) -> bool {
    let real = path.canonicalize().or_else(|error| path.parent().ok_or(error)?.canonicalize());
    let Ok(real) = real else { return true };
    let roots = roots.iter().filter_map(|root| root.canonicalize().ok());
    roots.into_iter().any(|root| real.starts_with(root))
}

impl SavedModel {
    /// Adds the paths outside of `roots`: clients open none there, so the owner has opened them. The paths are free of
    /// symbolic links.
    #[must_use]
    pub fn with_owner_paths(mut self, roots: &[PathBuf]) -> SavedModel {
        let roots: Vec<_> = roots.iter().filter_map(|root| root.canonicalize().ok()).collect();
        let is_outside = |path: &Path| !roots.iter().any(|root| path.starts_with(root));
        let outside = self.paths().into_iter().filter(|(_, path)| is_outside(path));
        self.owner_paths = outside.map(|(_, path)| path.to_owned()).collect();
        self
    }

    /// Returns the files, devices and folders that the state names, each with the object it belongs to.
    fn paths(&self) -> Vec<(String, &Path)> {
        let mut paths: Vec<(String, &Path)> = Vec::new();
        paths.extend(self.keys.iter().map(|key| (format!("key {}", key.name), &*key.path)));
        for device in &self.devices {
            let own = device.path.as_deref().into_iter();
            let of = device.rbd.iter().flat_map(|image| image.paths());
            paths.extend(own.chain(of).map(|path| (format!("device {}", device.name), path)));
        }
        for cluster in &self.rbd_clusters {
            let what = format!("cluster {}", cluster.name);
            paths.extend(cluster.access.paths().map(|path| (what.clone(), path)));
        }
        for store in &self.lvstores {
            let what = format!("lvstore {}", store.name);
            paths.extend(store.path.as_deref().map(|path| (what, path)));
        }
        for subsystem in &self.subsystems {
            for namespace in &subsystem.namespaces {
                let what = format!("namespace {} of {}", namespace.nsid, subsystem.nqn);
                paths.extend(namespace.paths().map(|path| (what.clone(), path)));
            }
        }
        paths
    }
}

/// Writes `state` to stable storage. Returns the text of the file.
///
/// # Errors
/// Writing failed; the file is unchanged.
pub(super) fn save(path: &Path, state: &SavedModel) -> io::Result<String> {
    let text = toml::to_string(state).map_err(io::Error::other)?;
    let new = beside(path);
    let written = write(&new, text.as_bytes()).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written?;
    sync_folder(path)?;
    Ok(text)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".new");
    name.into()
}

pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        AnaWord, Base, ClassWord, DeviceKind, HostKeys, LvStore, RateLimitsSpec, SavedGroup,
        SavedListener, SavedNamespace, SavedSubsystem, new_uuid,
    };
    use crate::volumes::VolumeStore;
    use std::collections::BTreeSet;

    fn model() -> ManagedModel {
        let device = ManagedDevice::open(
            ("Malloc0".into(), new_uuid().unwrap()),
            DeviceKind::Malloc,
            (512, 1 << 20, false),
        );
        let namespace = SavedNamespace {
            nguid: Some("00112233445566778899aabbccddeeff".into()),
            class: Some(ClassWord::Bulk),
            uncorrectable: Some("none".into()),
            hosts: Some(["nqn.2025-01.io.example:h".to_owned()].into()),
            ana_group: 7,
            ..SavedNamespace::new(3, "Malloc0")
        };
        let listener = |port, ana| SavedListener {
            address: "127.0.0.1".into(),
            port,
            ana,
            secure: port == 4421,
            groups: vec![SavedGroup { group: 7, ana: AnaWord::Inaccessible }],
        };
        let host = RateLimitsSpec { write_iops: 7, burst_us: Some(0), ..RateLimitsSpec::default() };
        let subsystem = SavedSubsystem {
            nqn: "nqn.2025-01.io.example:a".into(),
            serial: Some("S".into()),
            model: None,
            max_namespaces: 32,
            allow_any_host: false,
            hosts: ["nqn.2025-01.io.example:h".to_owned()].into(),
            administrators: BTreeSet::new(),
            namespace_store: None,
            ana_reporting: true,
            host_keys: [("nqn.2025-01.io.example:h".to_owned(), HostKeys::default())].into(),
            host_limits: [("nqn.2025-01.io.example:h".to_owned(), host)].into(),
            min_cntlid: None,
            max_cntlid: Some(99),
            dmrsl: 8,
            wzsl: 0,
            namespaces: vec![namespace],
            all_listeners: false,
            listeners: vec![
                listener(4420, AnaWord::Optimized),
                listener(4421, AnaWord::Inaccessible),
            ],
        };
        let devices = vec![Arc::new(device.unwrap())];
        let limits = RateLimitsSpec { iops: 5, ..RateLimitsSpec::default() };
        let limits = [("Malloc0".to_owned(), limits)].into();
        ManagedModel {
            devices,
            limits,
            subsystems: vec![subsystem],
            has_tcp: true,
            ..ManagedModel::default()
        }
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.toml");
        assert_eq!(
            load(&path, &[folder.path().to_owned()], &RemoteDevices::default()).unwrap().state(),
            SavedModel::default()
        );
        let state = model().state();
        save(&path, &state).unwrap();
        let loaded = load(&path, &[folder.path().to_owned()], &RemoteDevices::default()).unwrap();
        assert_eq!(loaded.state(), state);
        let exported = &loaded.exports()[0];
        assert_eq!(exported.namespaces.len(), 1);
        let [(host, rates)] = &exported.host_rates.iter().collect::<Vec<_>>()[..] else {
            panic!("{:?}", exported.host_rates)
        };
        assert_eq!(
            (host.as_str(), rates.write_iops.unwrap().get()),
            ("nqn.2025-01.io.example:h", 7)
        );
        assert_eq!(rates.burst, Some(std::time::Duration::ZERO));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
    }

    /// Volumes keep their positions between other devices and between volumes of another store.
    #[test]
    fn devices_and_volumes_keep_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.toml");
        let mut model = ManagedModel::default();
        let opened = |model: &mut ManagedModel, name: &str, is_from_startup| {
            let at = folder.path().join(name);
            let store = VolumeStore::open(&at, name, Some(64 << 20), 512).unwrap();
            model.add_lvstore(LvStore::new(store, Base::Folder(at), is_from_startup)).unwrap();
        };
        opened(&mut model, "start", true);
        opened(&mut model, "made", false);
        let null = |model: &mut ManagedModel, name: &str| {
            let names = (name.to_owned(), new_uuid().unwrap());
            let device = ManagedDevice::open(names, DeviceKind::Null, (512, 4096, false)).unwrap();
            model.devices.push(Arc::new(device));
        };
        let volume = |model: &mut ManagedModel, store: &str, name: &str| {
            let lvstore = model.lvstore(store).unwrap().clone();
            let uuid = lvstore.store.create(name, 4 << 20, true).unwrap();
            let device = lvstore.device(&lvstore.store.volume(uuid).unwrap()).unwrap();
            model.devices.push(Arc::new(device));
        };
        null(&mut model, "n1");
        volume(&mut model, "made", "m1");
        volume(&mut model, "start", "s1");
        assert!(model.state().order.is_empty(), "they are opened in that order anyway");
        volume(&mut model, "made", "m2");
        null(&mut model, "n2");
        let names = |model: &ManagedModel| -> Vec<String> {
            model.devices.iter().map(|device| device.name.clone()).collect()
        };
        let (state, order) = (model.state(), names(&model));
        assert_eq!(state.order, order);
        save(&path, &state).unwrap();
        drop(model);
        let mut model =
            load(&path, &[folder.path().to_owned()], &RemoteDevices::default()).unwrap();
        opened(&mut model, "start", true);
        assert_ne!(names(&model), order);
        model.order_devices();
        assert_eq!((names(&model), model.state()), (order, state));
    }

    #[test]
    fn what_makes_no_sense_says_where() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.toml");
        for (text, why) in [
            ("tpc = true", "tpc"),
            ("[[device]]\nname = \"a\"\nkind = \"aio\"\nlba = 512\nuuid = \"1\"", "device a"),
        ] {
            fs::write(&path, text).unwrap();
            let error = load(&path, &[folder.path().to_owned()], &RemoteDevices::default())
                .unwrap_err()
                .to_string();
            assert!(error.contains("state.toml") && error.contains(why), "{error}");
        }
    }

    /// The file may be older than the configuration, or written by another user.
    #[test]
    fn what_is_not_below_a_root_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let [root, other] = ["root", "other"].map(|name| folder.path().join(name));
        [&root, &other].into_iter().for_each(|path| fs::create_dir(path).unwrap());
        let path = folder.path().join("state.toml");
        fs::write(other.join("disk"), [0; 4096]).unwrap();
        std::os::unix::fs::symlink(other.join("disk"), root.join("link")).unwrap();
        let device = |file: PathBuf| {
            let file = file.display();
            format!(
                "[[device]]\nname = \"a\"\nkind = \"aio\"\nlba = 512\nuuid = \"1\"\npath = \"{file}\""
            )
        };
        let cluster =
            format!("[[rbd_cluster]]\nname = \"a\"\nconf = \"{}\"", other.join("disk").display());
        for text in [device(other.join("disk")), device(root.join("link")), cluster] {
            fs::write(&path, text).unwrap();
            let error = load(&path, std::slice::from_ref(&root), &RemoteDevices::default())
                .unwrap_err()
                .to_string();
            assert!(error.contains("a: ") && error.contains("file_roots"), "{error}");
        }
    }
}

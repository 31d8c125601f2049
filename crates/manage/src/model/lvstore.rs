//! Stores of volumes in the model: each volume is a device whose name is its UUID.

use super::place::VolumeDevice;
use super::{DeviceKind, ManagedDevice, ManagedModel};
use crate::volumes::{Uuid, Volume, VolumeStore};
use roadtrain_store::{OpenError, StoreKind, StoreSpec, open};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tracing::error;

/// An open store of volumes.
pub struct LvStore {
    /// Store with its volumes.
    pub store: Arc<VolumeStore>,
    /// Its name.
    pub name: String,
    /// UUID of the store, stored with it.
    pub uuid: Uuid,
    /// Location of its volumes.
    pub base: Base,
    /// True if the store was named when the target was started, so that RPC does not remove it.
    pub is_from_startup: bool,
}

/// Location of a store's volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// In a folder.
    Folder(PathBuf),
    /// In memory; the store replaces that memory device.
    Device(String),
}

/// A store in the state file. Its folder has everything else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LvStoreSpec {
    /// Its name.
    pub name: String,
    /// Its folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Memory device that the store replaces, if it has no folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Block size of its volumes in bytes.
    pub lba: u32,
}

impl std::fmt::Debug for LvStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LvStore").field("name", &self.name).finish_non_exhaustive()
    }
}

impl LvStore {
    /// Wraps a store that is open.
    #[must_use]
    pub fn new(store: VolumeStore, base: Base, is_from_startup: bool) -> LvStore {
        let (name, uuid) = store.identity();
        LvStore { store: Arc::new(store), name, uuid, base, is_from_startup }
    }

    /// Returns its entry for the state file; `None`: the command line or the configuration file names the store.
    #[must_use]
    pub fn spec(&self) -> Option<LvStoreSpec> {
        let (path, device) = match &self.base {
            Base::Folder(path) => (Some(path.clone()), None),
            Base::Device(name) => (None, Some(name.clone())),
        };
        let spec = LvStoreSpec { name: self.name.clone(), path, device, lba: self.store.lba() };
        (!self.is_from_startup).then_some(spec)
    }

    /// Returns the alias of a volume: `store/volume`.
    #[must_use]
    pub fn alias(&self, volume: &str) -> String {
        format!("{}/{volume}", self.name)
    }

    /// Opens a volume as a device.
    ///
    /// # Errors
    /// Its file cannot be opened.
    pub fn device(&self, volume: &Volume) -> Result<ManagedDevice, OpenError> {
        let path = self.store.file(volume.uuid);
        let kind = StoreKind::File { path, size: None, create: false };
        let (lba_bytes, read_only) = (self.store.lba(), volume.is_read_only());
        Ok(ManagedDevice {
            name: volume.uuid.to_string(),
            aliases: vec![self.alias(&volume.name)],
            uuid: volume.uuid.0,
            kind: DeviceKind::Volume(VolumeDevice { store: self.store.clone(), uuid: volume.uuid }),
            file: self.store.lasting_file(volume.uuid),
            store: open(&StoreSpec { kind, lba_bytes, read_only })?,
            standby: None,
        })
    }
}

impl ManagedModel {
    /// Returns the store with that name.
    #[must_use]
    pub fn lvstore(&self, name: &str) -> Option<&Arc<LvStore>> {
        self.lvstores.iter().find(|store| store.name == name)
    }

    /// Returns the store that replaces that memory device.
    #[must_use]
    pub fn lvstore_on(&self, device: &str) -> Option<&Arc<LvStore>> {
        let is_it = |base: &Base| matches!(base, Base::Device(name) if name == device);
        self.lvstores.iter().find(|store| is_it(&store.base))
    }

    /// Returns the store that a volume is in.
    #[must_use]
    pub fn lvstore_of(&self, volume: &VolumeDevice) -> Option<&Arc<LvStore>> {
        self.lvstore_with(&volume.store)
    }

    /// Returns the entry of an open store.
    #[must_use]
    pub fn lvstore_with(&self, store: &Arc<VolumeStore>) -> Option<&Arc<LvStore>> {
        self.lvstores.iter().find(|one| Arc::ptr_eq(&one.store, store))
    }

    /// Renames a store, and updates the aliases of its volumes and the subsystems that name it.
    pub fn rename_lvstore(&mut self, store: &Arc<VolumeStore>, name: &str) {
        let Some(old) = self.lvstore_with(store).map(|one| Some(one.name.clone())) else { return };
        for lvstore in self.lvstores.iter_mut().filter(|one| Arc::ptr_eq(&one.store, store)) {
            let LvStore { store, uuid, base, is_from_startup, .. } = &**lvstore;
            *lvstore = Arc::new(LvStore {
                store: store.clone(),
                name: name.to_owned(),
                uuid: *uuid,
                base: base.clone(),
                is_from_startup: *is_from_startup,
            });
        }
        self.name_volumes(store);
        for subsystem in &mut self.subsystems {
            if subsystem.namespace_store == old {
                subsystem.namespace_store = Some(name.to_owned());
            }
        }
    }

    /// Updates the aliases of a store's volumes to the present names.
    pub fn name_volumes(&mut self, store: &Arc<VolumeStore>) {
        let Some(lvstore) = self.lvstore_with(store).cloned() else { return };
        for device in &mut self.devices {
            let DeviceKind::Volume(VolumeDevice { store: of, uuid }) = &device.kind else {
                continue;
            };
            let volume = of.volume(*uuid).filter(|_| Arc::ptr_eq(of, store));
            if let Some(volume) = volume {
                *device = Arc::new(device.with_aliases(vec![lvstore.alias(&volume.name)]));
            }
        }
    }

    /// Sorts the volumes of a store by creation. Volumes created at the same time have no fixed order.
    pub fn order_volumes(&mut self, lvstore: &LvStore) {
        let own = |device: &ManagedDevice| match &device.kind {
            DeviceKind::Volume(volume) => Arc::ptr_eq(&volume.store, &lvstore.store),
            _ => false,
        };
        let list = lvstore.store.list();
        let order: BTreeMap<Uuid, usize> =
            list.iter().enumerate().map(|(at, volume)| (volume.uuid, at)).collect();
        let place = |device: &Arc<ManagedDevice>| order.get(&Uuid(device.uuid)).copied();
        let places: Vec<usize> =
            (0..self.devices.len()).filter(|&at| own(&self.devices[at])).collect();
        let mut volumes: Vec<Arc<ManagedDevice>> =
            places.iter().map(|&at| self.devices[at].clone()).collect();
        volumes.sort_by_key(place);
        for (at, volume) in places.into_iter().zip(volumes) {
            self.devices[at] = volume;
        }
    }

    /// Sorts devices into the saved order, once everything that it names is open. Other devices come last.
    pub fn order_devices(&mut self) {
        let order = std::mem::take(&mut self.order);
        let places: BTreeMap<&str, usize> =
            order.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
        let place = |device: &Arc<ManagedDevice>| places.get(device.name.as_str()).copied();
        self.devices.sort_by_key(|device| place(device).unwrap_or(usize::MAX));
    }

    /// Returns the names of all devices, if their order differs from that in which they are opened.
    pub(super) fn order_to_keep(&self) -> Vec<String> {
        // The command line's stores are opened last.
        let store_at = |volume: &VolumeDevice| {
            let mut lvstores = self.lvstores.iter().enumerate();
            let (at, one) = lvstores.find(|(_, one)| Arc::ptr_eq(&one.store, &volume.store))?;
            Some((one.is_from_startup, at))
        };
        let opened = |device: &Arc<ManagedDevice>| match &device.kind {
            DeviceKind::Volume(volume) => store_at(volume),
            _ => None,
        };
        match self.devices.is_sorted_by_key(opened) {
            true => Vec::new(),
            false => self.devices.iter().map(|device| device.name.clone()).collect(),
        }
    }

    /// Adds a store with its volumes, in the order of their creation.
    ///
    /// # Errors
    /// Another store has that name.
    pub fn add_lvstore(&mut self, lvstore: LvStore) -> Result<(), String> {
        let name = &lvstore.name;
        if self.lvstore(name).is_some() {
            return Err(format!("there are two stores of volumes named {name}"));
        }
        for volume in lvstore.store.list() {
            match lvstore.device(&volume) {
                Ok(device) => self.devices.push(Arc::new(device)),
                // One broken volume does not keep the others from use.
                Err(error) => error!("volume {name}/{} cannot be used: {error}", volume.name),
            }
        }
        self.lvstores.push(Arc::new(lvstore));
        Ok(())
    }

    /// Opens a store of the state file.
    ///
    /// # Errors
    /// The store does not exist, or a part of it cannot be opened.
    pub fn open_lvstore(&mut self, spec: &LvStoreSpec) -> Result<(), String> {
        let open = |path: &PathBuf| {
            let store = VolumeStore::reopen(path, &spec.name, spec.lba);
            let store = store.map_err(|error| error.to_string())?;
            Ok::<_, String>((store, Base::Folder(path.clone())))
        };
        let (store, base) = match (&spec.path, &spec.device) {
            (Some(path), None) => open(path)?,
            (None, Some(name)) => {
                let device =
                    self.device(name).ok_or_else(|| format!("there is no device {name}"))?;
                let bytes = device.store.geometry().bytes();
                let store = VolumeStore::memory(&spec.name, bytes, spec.lba);
                (store.map_err(|error| error.to_string())?, Base::Device(name.clone()))
            }
            _ => return Err("it needs a path or a device".into()),
        };
        self.add_lvstore(LvStore::new(store, base, false))
    }
}

//! Stores of volumes in the model: each volume is a device, whose name is its UUID.

use super::place::VolumeOf;
use super::{Device, DeviceKind, Model};
use crate::volumes::{Store, Uuid, Volume};
use roadtrain_store::{OpenError, StoreKind, StoreSpec, open};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tracing::error;

/// A store of volumes that is open.
pub struct LvStore {
    /// Its volumes.
    pub store: Arc<Store>,
    /// Its name.
    pub name: String,
    /// Its UUID, which it keeps.
    pub uuid: Uuid,
    /// Where its volumes are.
    pub base: Base,
    /// Was named when the target was started, so RPC does not remove it.
    pub is_of_start: bool,
}

/// Where a store's volumes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// In a folder.
    Folder(PathBuf),
    /// In memory, in the place of a device of memory.
    Device(String),
}

/// How a store is written down. Its folder has all else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LvStoreSpec {
    /// Its name.
    pub name: String,
    /// Its folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Or the device in whose place it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Octets of a block of its volumes.
    pub lba: u32,
}

impl std::fmt::Debug for LvStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LvStore").field("name", &self.name).finish_non_exhaustive()
    }
}

impl LvStore {
    /// Of a store that is open.
    #[must_use]
    pub fn new(store: Store, base: Base, is_of_start: bool) -> LvStore {
        let (name, uuid) = store.identity();
        LvStore { store: Arc::new(store), name, uuid, base, is_of_start }
    }

    /// How it is written down; `None`: the command line has it, or the configuration file.
    #[must_use]
    pub fn spec(&self) -> Option<LvStoreSpec> {
        let (path, device) = match &self.base {
            Base::Folder(path) => (Some(path.clone()), None),
            Base::Device(name) => (None, Some(name.clone())),
        };
        let spec = LvStoreSpec { name: self.name.clone(), path, device, lba: self.store.lba() };
        (!self.is_of_start).then_some(spec)
    }

    /// What people call a volume of it.
    #[must_use]
    pub fn alias(&self, volume: &str) -> String {
        format!("{}/{volume}", self.name)
    }

    /// The device that a volume is.
    ///
    /// # Errors
    /// Its file cannot be opened.
    pub fn device(&self, volume: &Volume) -> Result<Device, OpenError> {
        let path = self.store.file(volume.uuid);
        let kind = StoreKind::File { path, size: None, create: false };
        let (lba_bytes, read_only) = (self.store.lba(), volume.is_read_only());
        Ok(Device {
            name: volume.uuid.to_string(),
            aliases: vec![self.alias(&volume.name)],
            uuid: volume.uuid.0,
            kind: DeviceKind::Volume(VolumeOf { store: self.store.clone(), uuid: volume.uuid }),
            file: self.store.lasting_file(volume.uuid),
            store: open(&StoreSpec { kind, lba_bytes, read_only })?,
        })
    }
}

impl Model {
    /// The store with that name.
    #[must_use]
    pub fn lvstore(&self, name: &str) -> Option<&Arc<LvStore>> {
        self.lvstores.iter().find(|store| store.name == name)
    }

    /// The store in the place of that device.
    #[must_use]
    pub fn lvstore_on(&self, device: &str) -> Option<&Arc<LvStore>> {
        let is_it = |base: &Base| matches!(base, Base::Device(name) if name == device);
        self.lvstores.iter().find(|store| is_it(&store.base))
    }

    /// The store that a volume is in.
    #[must_use]
    pub fn lvstore_of(&self, volume: &VolumeOf) -> Option<&Arc<LvStore>> {
        self.lvstore_with(&volume.store)
    }

    /// The store whose volumes are there.
    #[must_use]
    pub fn lvstore_with(&self, store: &Arc<Store>) -> Option<&Arc<LvStore>> {
        self.lvstores.iter().find(|one| Arc::ptr_eq(&one.store, store))
    }

    /// Gives a store another name; its volumes are called by it.
    pub fn rename_lvstore(&mut self, store: &Arc<Store>, name: &str) {
        for lvstore in self.lvstores.iter_mut().filter(|one| Arc::ptr_eq(&one.store, store)) {
            let LvStore { store, uuid, base, is_of_start, .. } = &**lvstore;
            *lvstore = Arc::new(LvStore {
                store: store.clone(),
                name: name.to_owned(),
                uuid: *uuid,
                base: base.clone(),
                is_of_start: *is_of_start,
            });
        }
        self.name_volumes(store);
    }

    /// Volumes of a store are called by the names that they and the store have by now.
    pub fn name_volumes(&mut self, store: &Arc<Store>) {
        let Some(lvstore) = self.lvstore_with(store).cloned() else { return };
        for device in &mut self.devices {
            let DeviceKind::Volume(VolumeOf { store: of, uuid }) = &device.kind else { continue };
            let volume = of.volume(*uuid).filter(|_| Arc::ptr_eq(of, store));
            if let Some(volume) = volume {
                *device = Arc::new(device.with_aliases(vec![lvstore.alias(&volume.name)]));
            }
        }
    }

    /// Brings the volumes of a store into the order in which they were made: those that are made at the same time come
    /// in any.
    pub fn order_volumes(&mut self, lvstore: &LvStore) {
        let own = |device: &Device| match &device.kind {
            DeviceKind::Volume(volume) => Arc::ptr_eq(&volume.store, &lvstore.store),
            _ => false,
        };
        let list = lvstore.store.list();
        let order: BTreeMap<Uuid, usize> =
            list.iter().enumerate().map(|(at, volume)| (volume.uuid, at)).collect();
        let place = |device: &Arc<Device>| order.get(&Uuid(device.uuid)).copied();
        let places: Vec<usize> =
            (0..self.devices.len()).filter(|&at| own(&self.devices[at])).collect();
        let mut volumes: Vec<Arc<Device>> =
            places.iter().map(|&at| self.devices[at].clone()).collect();
        volumes.sort_by_key(place);
        for (at, volume) in places.into_iter().zip(volumes) {
            self.devices[at] = volume;
        }
    }

    /// Brings devices into the order that was written down, when everything is there that it names. Others come behind.
    pub fn order_devices(&mut self) {
        let order = std::mem::take(&mut self.order);
        let places: BTreeMap<&str, usize> =
            order.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
        let place = |device: &Arc<Device>| places.get(device.name.as_str()).copied();
        self.devices.sort_by_key(|device| place(device).unwrap_or(usize::MAX));
    }

    /// The names of all devices, if they are in another order than that in which they are opened.
    pub(super) fn order_to_keep(&self) -> Vec<String> {
        // The command line's stores are opened last.
        let store_at = |volume: &VolumeOf| {
            let mut lvstores = self.lvstores.iter().enumerate();
            let (at, one) = lvstores.find(|(_, one)| Arc::ptr_eq(&one.store, &volume.store))?;
            Some((one.is_of_start, at))
        };
        let opened = |device: &Arc<Device>| match &device.kind {
            DeviceKind::Volume(volume) => store_at(volume),
            _ => None,
        };
        match self.devices.is_sorted_by_key(opened) {
            true => Vec::new(),
            false => self.devices.iter().map(|device| device.name.clone()).collect(),
        }
    }

    /// Adds a store with its volumes, which are in the order in which they were made.
    ///
    /// # Errors
    /// There is one of that name.
    pub fn add_lvstore(&mut self, lvstore: LvStore) -> Result<(), String> {
        let name = &lvstore.name;
        if self.lvstore(name).is_some() {
            return Err(format!("there are two stores of volumes named {name}"));
        }
        for volume in lvstore.store.list() {
            match lvstore.device(&volume) {
                Ok(device) => self.devices.push(Arc::new(device)),
                // The others are there all the same.
                Err(error) => error!("volume {name}/{} cannot be used: {error}", volume.name),
            }
        }
        self.lvstores.push(Arc::new(lvstore));
        Ok(())
    }

    /// Opens a store that is written down.
    ///
    /// # Errors
    /// It is not there, or something of it cannot be opened.
    pub fn open_lvstore(&mut self, spec: &LvStoreSpec) -> Result<(), String> {
        let open = |path: &PathBuf| {
            let store = Store::reopen(path, &spec.name, spec.lba);
            let store = store.map_err(|error| error.to_string())?;
            Ok::<_, String>((store, Base::Folder(path.clone())))
        };
        let (store, base) = match (&spec.path, &spec.device) {
            (Some(path), None) => open(path)?,
            (None, Some(name)) => {
                let device =
                    self.device(name).ok_or_else(|| format!("there is no device {name}"))?;
                let bytes = device.store.geometry().bytes();
                let store = Store::memory(&spec.name, bytes, spec.lba);
                (store.map_err(|error| error.to_string())?, Base::Device(name.clone()))
            }
            _ => return Err("it needs a path or a device".into()),
        };
        self.add_lvstore(LvStore::new(store, base, false))
    }
}

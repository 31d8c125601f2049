//! The objects created by RPC: keys, devices, and subsystems with their namespaces, hosts and listeners. The model is a
//! value: a method changes a copy, and [`Manager::change`](crate::rpc::Manager::change) applies it completely or not at
//! all.

mod changes;
mod device;
mod file;
mod journal;
mod key;
mod limits;
mod lvstore;
mod place;
mod rbd;
mod referral;
#[cfg(test)]
mod samples;
mod state_file;
mod subsystem;

pub use device::{
    DeviceKind, ManagedDevice, RemoteDevices, RemoteParser, new_uuid, parse_uuid, remote_word,
    show_uuid,
};
pub use file::{StateError, load, read};
pub use journal::StateChange;
pub use key::{HostKeys, KeyKind, KeySpec, NamedKey, NamedKeyError};
pub(crate) use limits::MIB;
pub use limits::RateLimitsSpec;
pub use lvstore::{Base, LvStore, LvStoreSpec};
pub use place::{RbdAccess, RbdCluster, RbdImageSpec, VolumeDevice};
pub use referral::SavedReferral;
pub use state_file::StateFile;
pub use subsystem::{AnaWord, SavedGroup, SavedListener, SavedNamespace, SavedSubsystem};

use roadtrain_target_engine::{Subsystem, TlsUse};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

/// All objects created by RPC.
#[derive(Clone, Debug, Default)]
pub struct ManagedModel {
    /// Keys in the order of their creation.
    pub keys: Vec<Arc<NamedKey>>,
    /// Devices in the order of their creation.
    pub devices: Vec<Arc<ManagedDevice>>,
    /// Device names in the saved order, until [`ManagedModel::order_devices`] has applied it.
    pub order: Vec<String>,
    /// Ceph clusters that devices use.
    pub rbd_clusters: Vec<RbdCluster>,
    /// Rate limits of devices, by name.
    pub limits: BTreeMap<String, RateLimitsSpec>,
    /// Stores of volumes; each volume is a device, too.
    pub lvstores: Vec<Arc<LvStore>>,
    /// Subsystems, sorted by NQN.
    pub subsystems: Vec<SavedSubsystem>,
    /// Other discovery controllers, for referrals to hosts.
    pub referrals: Vec<SavedReferral>,
    /// True once a client has created the transport, which always exists.
    pub has_tcp: bool,
    /// NQNs that the configuration file has as well: its subsystems are served, those here are kept for later.
    pub shadowed: BTreeSet<String>,
    /// Blocks over the network: what the program brings to open them.
    pub remote: RemoteDevices,
    /// Namespaces of the configuration file's subsystems that use devices until the next reload, by device.
    pub lent: BTreeMap<String, (String, u32)>,
}

/// A removed device, with its limits and namespaces.
#[derive(Clone, Debug, Default)]
pub struct RemovedDevice {
    devices: Vec<Arc<ManagedDevice>>,
    limits: Option<(String, RateLimitsSpec)>,
    /// Namespaces by the NQNs of their subsystems.
    namespaces: Vec<(String, SavedNamespace)>,
}

/// The part of the model that the state file keeps: TOML, with tables of its own. docs/guide/manage.md describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SavedModel {
    /// True once a client has created the transport.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tcp: bool,
    /// Names of devices and volumes in the order of their creation, if it differs from the file's: devices, then the
    /// volumes of each store.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub order: Vec<String>,
    /// Paths outside of `file_roots` that the owner of the process has opened at its control socket.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub owner_paths: BTreeSet<std::path::PathBuf>,
    /// Keys, with the paths of their files.
    #[serde(rename = "key", skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeySpec>,
    /// Ceph clusters.
    #[serde(rename = "rbd_cluster", skip_serializing_if = "Vec::is_empty")]
    pub rbd_clusters: Vec<RbdCluster>,
    /// Devices.
    #[serde(rename = "device", skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<device::DeviceSpec>,
    /// Rate limits of devices, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, RateLimitsSpec>,
    /// Stores of volumes.
    #[serde(rename = "lvstore", skip_serializing_if = "Vec::is_empty")]
    pub lvstores: Vec<LvStoreSpec>,
    /// Subsystems.
    #[serde(rename = "subsystem", skip_serializing_if = "Vec::is_empty")]
    pub subsystems: Vec<SavedSubsystem>,
    /// Other discovery controllers.
    #[serde(rename = "referral", skip_serializing_if = "Vec::is_empty")]
    pub referrals: Vec<SavedReferral>,
}

impl ManagedModel {
    /// Returns the part that the state file keeps.
    #[must_use]
    pub fn state(&self) -> SavedModel {
        SavedModel {
            tcp: self.has_tcp,
            keys: self.keys.iter().map(|key| key.spec.clone()).collect(),
            devices: self.devices.iter().filter_map(|device| device.spec()).collect(),
            rbd_clusters: self.rbd_clusters.clone(),
            limits: self.limits.clone(),
            lvstores: self.lvstores.iter().filter_map(|store| store.spec()).collect(),
            order: self.order_to_keep(),
            subsystems: self.subsystems.clone(),
            referrals: self.referrals.clone(),
            owner_paths: BTreeSet::new(),
        }
    }

    /// Returns the device with that name, alias or UUID.
    #[must_use]
    pub fn device(&self, name: &str) -> Option<&Arc<ManagedDevice>> {
        let named = self.devices.iter().find(|device| device.name == name);
        let uuid = parse_uuid(name);
        let is_called = |device: &&Arc<ManagedDevice>| device.is_called_or_has(name, uuid);
        named.or_else(|| self.devices.iter().find(is_called))
    }

    /// Returns all devices by name, for queries about many of them.
    #[must_use]
    pub fn devices_by_name(&self) -> HashMap<&str, &Arc<ManagedDevice>> {
        self.devices.iter().map(|device| (device.name.as_str(), device)).collect()
    }

    /// Returns the namespace of each device that has one, for queries about many of them.
    #[must_use]
    pub fn claims_by_device(&self) -> HashMap<&str, (&str, u32)> {
        let lent = self.lent.iter().map(|(device, (nqn, nsid))| (&**device, (&**nqn, *nsid)));
        lent.chain(self.claims().map(|(place, device)| (device, place))).collect()
    }

    /// Returns the subsystem with that NQN.
    #[must_use]
    pub fn subsystem(&self, nqn: &str) -> Option<&SavedSubsystem> {
        self.subsystems.iter().find(|subsystem| subsystem.nqn == nqn)
    }

    /// Returns the subsystem with that NQN, mutably.
    pub fn subsystem_mut(&mut self, nqn: &str) -> Option<&mut SavedSubsystem> {
        self.subsystems.iter_mut().find(|subsystem| subsystem.nqn == nqn)
    }

    /// Returns the subsystems that are served.
    pub fn served(&self) -> impl Iterator<Item = &SavedSubsystem> {
        self.subsystems.iter().filter(|one| !self.shadowed.contains(&one.nqn))
    }

    /// True for a subsystem of the state that is served.
    #[must_use]
    pub fn serves(&self, nqn: &str) -> bool {
        self.served().any(|one| one.nqn == nqn)
    }

    /// Returns the namespace that uses a device: NQN and NSID.
    #[must_use]
    pub fn claim(&self, device: &str) -> Option<(&str, u32)> {
        let own = self.subsystems.iter().find_map(|subsystem| {
            let namespace = subsystem.namespaces.iter().find(|one| one.device == device)?;
            Some((subsystem.nqn.as_str(), namespace.nsid))
        });
        own.or_else(|| self.lent.get(device).map(|(nqn, nsid)| (nqn.as_str(), *nsid)))
    }

    /// Returns every namespace, by subsystem and NSID, with its device.
    pub fn claims(&self) -> impl Iterator<Item = ((&str, u32), &str)> {
        self.subsystems.iter().flat_map(|subsystem| {
            let namespaces = subsystem.namespaces.iter();
            namespaces.map(|one| ((subsystem.nqn.as_str(), one.nsid), one.device.as_str()))
        })
    }

    /// Removes a device and its namespace.
    pub fn remove_device(&mut self, name: &str) -> RemovedDevice {
        let mut removed = RemovedDevice::default();
        for subsystem in &mut self.subsystems {
            let of_it = subsystem.namespaces.extract_if(.., |one| one.device == name);
            removed.namespaces.extend(of_it.map(|namespace| (subsystem.nqn.clone(), namespace)));
        }
        removed.devices.extend(self.devices.extract_if(.., |device| device.name == name));
        removed.limits = self.limits.remove_entry(name);
        removed
    }

    /// Restores a removed device, except namespaces whose NSID is taken by now.
    pub fn put_back(&mut self, removed: RemovedDevice) {
        self.devices.extend(removed.devices);
        self.limits.extend(removed.limits);
        for (nqn, namespace) in removed.namespaces {
            let subsystem = self.subsystem_mut(&nqn);
            let is_free = |subsystem: &&mut SavedSubsystem| {
                subsystem.namespaces.iter().all(|one| one.nsid != namespace.nsid)
            };
            if let Some(subsystem) = subsystem.filter(is_free) {
                subsystem.namespaces.push(namespace);
                subsystem.namespaces.sort_by_key(|one| one.nsid);
            }
        }
    }

    /// Checks that another process would find every object.
    ///
    /// # Errors
    /// The object that would be lost, and the remedy.
    pub fn check_kept(&self) -> Result<(), String> {
        let memory = self.devices.iter().find(|device| device.kind == DeviceKind::Malloc);
        let store = self.lvstores.iter().find(|lvstore| matches!(lvstore.base, Base::Device(_)));
        let what = match (memory, store) {
            (Some(device), _) => format!("device {}", device.name),
            (None, Some(lvstore)) => format!("the store of volumes {}", lvstore.name),
            (None, None) => return Ok(()),
        };
        Err(format!("{what} is in this process's memory, and would be lost: remove it first"))
    }

    /// Returns the subsystems for the engine to export.
    #[must_use]
    pub fn exports(&self) -> Vec<Subsystem> {
        let devices = self.devices_by_name();
        let find = |name: &str| devices.get(name).copied();
        self.served().map(|subsystem| subsystem.export(self, find, |_| true)).collect()
    }

    /// Returns every address of a listener, with its use of TLS.
    #[must_use]
    pub fn addresses(&self) -> BTreeMap<SocketAddr, TlsUse> {
        addresses(self.served())
    }

    /// Checks the addresses of the configuration file: an address of a listener with secure connections has to require
    /// TLS. `tls` returns the configured use of TLS at an address.
    ///
    /// # Errors
    /// The address that does not require TLS.
    pub fn check_listeners(
        &self,
        listen: &[SocketAddr],
        tls: impl Fn(&SocketAddr) -> TlsUse,
    ) -> Result<(), String> {
        let mut secured = self.addresses().into_iter().filter(|(_, own)| *own == TlsUse::Required);
        let weaker = secured.find(|(at, _)| listen.contains(at) && tls(at) != TlsUse::Required);
        match weaker {
            Some((at, _)) => Err(format!(
                "{at}: JSON-RPC has made a listener with secure_channel there: require TLS at that address, or \
                 remove the listener"
            )),
            None => Ok(()),
        }
    }
}

impl SavedModel {
    /// Returns every address of a listener, with its use of TLS.
    #[must_use]
    pub fn addresses(&self) -> BTreeMap<SocketAddr, TlsUse> {
        addresses(self.subsystems.iter())
    }
}

fn addresses<'a>(
    subsystems: impl Iterator<Item = &'a SavedSubsystem>,
) -> BTreeMap<SocketAddr, TlsUse> {
    let listeners = subsystems.flat_map(|subsystem| &subsystem.listeners);
    listeners.filter_map(|one| Some((one.address()?, one.tls()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_file_takes_no_security_from_a_listener() {
        let at = ["127.0.0.1:4421".parse().unwrap()];
        let checked = |secure: bool, listen: &[SocketAddr], tls: TlsUse| {
            let subsystem = serde_json::json!({
                "nqn": "nqn.2025-01.io.example:a", "max_namespaces": 32,
                "listener": [{"address": "127.0.0.1", "port": 4421, "secure": secure}],
            });
            let subsystems = vec![serde_json::from_value(subsystem).unwrap()];
            ManagedModel { subsystems, ..ManagedModel::default() }.check_listeners(listen, |_| tls)
        };
        for tls in [TlsUse::Off, TlsUse::Allowed] {
            assert!(checked(true, &at, tls).unwrap_err().contains("127.0.0.1:4421"));
            assert_eq!(checked(false, &at, tls), Ok(()));
            assert_eq!(checked(true, &["127.0.0.1:4420".parse().unwrap()], tls), Ok(()));
        }
        assert_eq!(checked(true, &at, TlsUse::Required), Ok(()));
    }
}

//! Subsystems created by RPC.

use super::{HostKeys, ManagedDevice, ManagedModel, RateLimitsSpec, parse_uuid};
use roadtrain_proto::policy::Class;
use roadtrain_reactor::ip_address;
use roadtrain_target_engine::{
    AnaListener, AnaState, AnaStates, Export, KeptPlace, Subsystem, TlsUse,
};
use roadtrain_target_proto::{NamespaceManagement, NamespaceView};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A subsystem in the state file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedSubsystem {
    /// Its NQN.
    pub nqn: String,
    /// Serial number; `None`: derived from NQN and machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Model number; `None`: the product's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Most namespaces, and largest NSID.
    pub max_namespaces: u32,
    /// True if any host may connect, named or not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_any_host: bool,
    /// NQNs of the hosts that may connect.
    #[serde(default, rename = "allow_hosts", skip_serializing_if = "BTreeSet::is_empty")]
    pub hosts: BTreeSet<String>,
    /// NQNs of the hosts that may manage its namespaces by NVMe commands.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub administrators: BTreeSet<String>,
    /// Store of volumes in which those hosts create namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_store: Option<String>,
    /// True if listeners may have ANA states of their own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ana_reporting: bool,
    /// Keys of hosts, by their NQNs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_keys: BTreeMap<String, HostKeys>,
    /// Rate limits of hosts over all namespaces, by host NQN. Hosts need not be among those that may connect.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_limits: BTreeMap<String, RateLimitsSpec>,
    /// First controller identifier; `None`: the target's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_cntlid: Option<u16>,
    /// Last controller identifier; `None`: the target's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cntlid: Option<u16>,
    /// Dataset Management range size limit in logical blocks; 0: none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dmrsl: u32,
    /// Write Zeroes size limit as a power of two of 4 KiB pages; 0: none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wzsl: u8,
    /// True if all addresses of the target reach the subsystem while it has no listener of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all_listeners: bool,
    /// Namespaces, by NSID.
    #[serde(default, rename = "namespace", skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<SavedNamespace>,
    /// Addresses of the subsystem.
    #[serde(default, rename = "listener", skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<SavedListener>,
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A namespace: a device in a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedNamespace {
    /// Namespace identifier.
    pub nsid: u32,
    /// The device's name.
    pub device: String,
    /// UUID, if it is not the device's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// NGUID, if it does not follow from the UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nguid: Option<String>,
    /// File for reservations that persist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservations: Option<PathBuf>,
    /// File for marks of Write Uncorrectable, or `none`; `None`: next to the file of the blocks, or in memory for memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncorrectable: Option<PathBuf>,
    /// Priority class of requests without one; `None`: as their connection has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassWord>,
    /// NQNs of the hosts that see it; `None`: all hosts of the subsystem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<BTreeSet<String>>,
    /// ANA group.
    #[serde(default = "first_group", skip_serializing_if = "is_first_group")]
    pub ana_group: u32,
}

/// Priority class of a namespace's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassWord {
    /// A caller waits for each request.
    Latency,
    /// Neither of the others.
    Normal,
    /// Throughput matters.
    Bulk,
}

impl From<ClassWord> for Class {
    fn from(word: ClassWord) -> Class {
        match word {
            ClassWord::Latency => Class::Latency,
            ClassWord::Normal => Class::Normal,
            ClassWord::Bulk => Class::Bulk,
        }
    }
}

impl From<Class> for ClassWord {
    fn from(class: Class) -> ClassWord {
        match class {
            Class::Latency => ClassWord::Latency,
            Class::Normal => ClassWord::Normal,
            Class::Bulk => ClassWord::Bulk,
        }
    }
}

fn first_group() -> u32 {
    NamespaceView::ALL.ana_group
}

fn is_first_group(group: &u32) -> bool {
    *group == first_group()
}

/// An address of a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedListener {
    /// Address as the client wrote it.
    pub address: String,
    /// TCP port.
    pub port: u16,
    /// ANA state.
    #[serde(default, skip_serializing_if = "AnaWord::is_best")]
    pub ana: AnaWord,
    /// True if only connections with TLS are accepted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secure: bool,
    /// ANA states of groups, instead of the listener's.
    #[serde(default, rename = "group", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<SavedGroup>,
}

/// ANA state of a group at a listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedGroup {
    /// ANA group.
    pub group: u32,
    /// Its state.
    pub ana: AnaWord,
}

/// ANA states that RPC can set, in SPDK's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnaWord {
    /// Optimized.
    #[default]
    Optimized,
    /// Non-optimized.
    NonOptimized,
    /// Inaccessible.
    Inaccessible,
}

impl AnaWord {
    fn is_best(&self) -> bool {
        *self == AnaWord::Optimized
    }
}

impl From<AnaWord> for AnaState {
    fn from(word: AnaWord) -> AnaState {
        match word {
            AnaWord::Optimized => AnaState::Optimized,
            AnaWord::NonOptimized => AnaState::NonOptimized,
            AnaWord::Inaccessible => AnaState::Inaccessible,
        }
    }
}

impl SavedListener {
    /// Returns the socket address; `None`: the text is no IP address.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        ip_address::parse(&self.address, self.port).ok()?
    }

    /// Sets the ANA state of a group, or (`None`) of the listener and all groups.
    pub fn set_ana(&mut self, group: Option<u32>, ana: AnaWord) {
        let Some(group) = group else {
            (self.ana, self.groups) = (ana, Vec::new());
            return;
        };
        self.groups.retain(|one| one.group != group);
        self.groups.push(SavedGroup { group, ana });
        self.groups.sort_by_key(|one| one.group);
    }

    /// Returns the ANA state of a group.
    #[must_use]
    pub fn ana_of(&self, group: u32) -> AnaWord {
        let own = self.groups.iter().find(|one| one.group == group);
        own.map_or(self.ana, |one| one.ana)
    }

    /// Returns its use of TLS.
    #[must_use]
    pub fn tls(&self) -> TlsUse {
        if self.secure { TlsUse::Required } else { TlsUse::Off }
    }
}

impl SavedSubsystem {
    /// Returns the subsystem for the engine to export, with those of its namespaces for which `is_wanted` is true.
    /// `find` finds a device by its name.
    pub(super) fn export<'a>(
        &self,
        model: &ManagedModel,
        find: impl Fn(&str) -> Option<&'a Arc<ManagedDevice>>,
        is_wanted: impl Fn(&SavedNamespace) -> bool,
    ) -> Subsystem {
        let plain = Subsystem::new(self.nqn.clone());
        let listeners = self.listeners.iter();
        let listeners = listeners.filter_map(|one| Some((one.address()?, one.ana.into())));
        let is_everywhere = self.all_listeners && self.listeners.is_empty();
        let (namespaces, limits) = (self.namespaces.iter(), self.host_limits.iter());
        let namespaces = namespaces.filter(|one| is_wanted(one));
        let namespaces =
            namespaces.filter_map(|one| Some(one.export_of(find(&one.device)?, model)));
        Subsystem {
            serial: self.serial.clone(),
            model: self.model.clone().unwrap_or(plain.model),
            allowed_hosts: (!self.allow_any_host).then(|| self.hosts.clone()),
            listeners: (!is_everywhere).then(|| listeners.collect()),
            ana_groups: self.ana_groups(),
            namespaces: namespaces.collect(),
            host_rates: limits.map(|(host, limits)| (host.clone(), limits.rates())).collect(),
            cntlids: self.min_cntlid.unwrap_or(*plain.cntlids.start())
                ..=self.max_cntlid.unwrap_or(*plain.cntlids.end()),
            dmrsl: self.dmrsl,
            wzsl: self.wzsl,
            management: self.management(model),
            ..plain
        }
    }

    /// Returns which hosts may manage its namespaces; `None` without their store.
    fn management(&self, model: &ManagedModel) -> Option<NamespaceManagement> {
        let lvstore = model.lvstore(self.namespace_store.as_deref()?)?;
        let lba_shift = lvstore.store.lba().trailing_zeros() as u8;
        Some(NamespaceManagement { administrators: self.administrators.clone(), lba_shift })
    }

    /// Checks that it has both administrators and a store for their namespaces, or neither.
    ///
    /// # Errors
    /// The value that is missing.
    pub fn check_management(&self) -> Result<(), String> {
        let missing = match (self.administrators.is_empty(), &self.namespace_store) {
            (true, None) | (false, Some(_)) => return Ok(()),
            (true, Some(_)) => "administrators: no host could use its namespace_store",
            (false, None) => "namespace_store: administrators need a store of volumes",
        };
        Err(format!("subsystem {} lacks {missing}", self.nqn))
    }

    fn ana_groups(&self) -> BTreeMap<u32, AnaStates> {
        let mut groups = BTreeMap::<u32, AnaStates>::new();
        for listener in &self.listeners {
            let Some(address) = listener.address() else { continue };
            for SavedGroup { group, ana } in &listener.groups {
                let states = groups.entry(*group).or_default();
                states.set(AnaListener::Tcp(address), Some((*ana).into()));
            }
        }
        groups
    }

    /// Returns the subsystem without its namespaces.
    pub(super) fn without_namespaces(&self) -> SavedSubsystem {
        SavedSubsystem {
            nqn: self.nqn.clone(),
            serial: self.serial.clone(),
            model: self.model.clone(),
            max_namespaces: self.max_namespaces,
            allow_any_host: self.allow_any_host,
            hosts: self.hosts.clone(),
            administrators: self.administrators.clone(),
            namespace_store: self.namespace_store.clone(),
            ana_reporting: self.ana_reporting,
            host_keys: self.host_keys.clone(),
            host_limits: self.host_limits.clone(),
            min_cntlid: self.min_cntlid,
            max_cntlid: self.max_cntlid,
            dmrsl: self.dmrsl,
            wzsl: self.wzsl,
            all_listeners: self.all_listeners,
            namespaces: Vec::new(),
            listeners: self.listeners.clone(),
        }
    }

    /// Returns the lowest free NSID.
    #[must_use]
    pub fn free_nsid(&self) -> Option<u32> {
        let mut is_used = vec![false; self.namespaces.len() + 1];
        for namespace in &self.namespaces {
            let place = is_used.get_mut((namespace.nsid as usize).wrapping_sub(1));
            place.into_iter().for_each(|is_used| *is_used = true);
        }
        let free = (1..).zip(is_used).find(|(_, is_used)| !is_used).map(|(nsid, _)| nsid);
        free.filter(|nsid| *nsid <= self.max_namespaces)
    }
}

impl SavedNamespace {
    /// Value of `uncorrectable` for marks that are not kept.
    pub const NOWHERE: &str = "none";

    /// Shows a device as namespace `nsid`, to all hosts of the subsystem, without further settings.
    #[must_use]
    pub fn new(nsid: u32, device: impl Into<String>) -> SavedNamespace {
        SavedNamespace {
            nsid,
            device: device.into(),
            uuid: None,
            nguid: None,
            reservations: None,
            uncorrectable: None,
            class: None,
            hosts: None,
            ana_group: first_group(),
        }
    }

    /// Returns the files that it names.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let marks = self.uncorrectable.iter().filter(|path| path.as_os_str() != Self::NOWHERE);
        self.reservations.iter().chain(marks).map(PathBuf::as_path)
    }

    /// Checks that `device` can have the settings.
    ///
    /// # Errors
    /// The setting that it cannot have, and the remedy.
    pub fn check_device(&self, device: &ManagedDevice) -> Result<(), String> {
        let has_file = self.uncorrectable.as_ref().is_some_and(|path| path != Self::NOWHERE);
        match has_file && device.kind.is_memory() {
            true => Err(format!(
                "uncorrectable: {} has its marks in memory, as its blocks: leave the file out",
                device.name
            )),
            false => Ok(()),
        }
    }

    /// Returns the place of its marks.
    fn marks_place(&self, device: &ManagedDevice) -> KeptPlace {
        match (&self.uncorrectable, &device.file) {
            (Some(path), _) if path == Self::NOWHERE => KeptPlace::Nowhere,
            (Some(path), _) => KeptPlace::File(path.clone()),
            (None, Some(file)) => KeptPlace::NextToFile(file.clone()),
            (None, None) if device.kind.is_memory() => KeptPlace::InMemory,
            (None, None) => KeptPlace::Nowhere,
        }
    }

    /// Returns the namespace for the engine to export; `None` without its device.
    #[must_use]
    pub fn export(&self, model: &ManagedModel) -> Option<Export> {
        Some(self.export_of(model.device(&self.device)?, model))
    }

    fn export_of(&self, device: &ManagedDevice, model: &ManagedModel) -> Export {
        let uuid = self.uuid.as_deref().and_then(parse_uuid).unwrap_or(device.uuid);
        let nguid = self.nguid.as_deref().and_then(parse_uuid);
        let reservations = self.reservations.clone();
        let none = if device.file.is_some() { KeptPlace::Nowhere } else { KeptPlace::default() };
        let reservations = reservations.map_or(none, KeptPlace::File);
        let uncorrectable = self.marks_place(device);
        let limits = model.limits.get(&device.name).copied().unwrap_or_default();
        let plain = match &device.standby {
            Some(spec) => Export { standby: true, ..Export::new(self.nsid, spec.clone()) },
            None => Export::with_store(self.nsid, device.store.clone()),
        };
        let (uuid, rates, class) = (Some(uuid), limits.rates(), self.class.map(Class::from));
        let view = self.view();
        Export { uuid, nguid, class, rates, reservations, uncorrectable, view, ..plain }
    }

    /// Returns which hosts see it, and its ANA group.
    #[must_use]
    pub fn view(&self) -> NamespaceView {
        NamespaceView { hosts: self.hosts.clone(), ana_group: self.ana_group }
    }

    /// Sets which hosts see it, and its ANA group.
    pub fn set_view(&mut self, view: NamespaceView) {
        (self.hosts, self.ana_group) = (view.hosts, view.ana_group);
    }
}

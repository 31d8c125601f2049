//! Blocks and options of a namespace, as one word of the command line or one table of the configuration.

mod nbd;
mod nvme;
mod rbd;
mod saved;

use crate::args::{ClassName, named};
use crate::config::SettingForm;
use crate::identity::parse_uuid;
use crate::rates::RateArgs;
use crate::units::{parse_size, size_field};
use crate::usage::closest;
use nvme::ConnectSettings;
use roadtrain_host_engine::Class;
use roadtrain_manage::model::SsdPace;
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_target_engine::{Export, KeptPlace};
use roadtrain_target_proto::{ANA_GROUPS_MAX, NamespaceView};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

const EXAMPLE: &str = "write mem:1GiB, ssd:1GiB, null:1TiB, file:disk.img,size=2GiB, block:/dev/loop0, rbd:POOL/IMAGE, \
                       nvme:ADDR/NQN/NSID or nbd:unix:/run/x.sock; for ctl also device:NAME";
/// Longest service time of an emulated SSD in microseconds.
const SERVICE_US_MAX: u32 = SsdPace::SERVICE_US_MAX;

/// Storage of a namespace's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamespaceKind {
    /// Memory.
    Mem,
    /// Memory, at the pace of an SSD.
    Ssd,
    /// No storage: reads return zeroes.
    Null,
    /// A regular file.
    File,
    /// A block device.
    Block,
    /// An image of a Ceph cluster.
    Rbd,
    /// A namespace of another target.
    Nvme,
    /// An export of an NBD server.
    Nbd,
    /// An existing device or volume, by its name; not in a configuration file.
    Device,
}

/// A namespace to export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSettings {
    /// Namespace ID; `None` on the command line: the next free one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nsid: Option<u32>,
    /// Storage of the blocks.
    pub kind: NamespaceKind,
    /// File or device node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Image of a Ceph cluster, `POOL/[NAMESPACE/]IMAGE[@SNAPSHOT]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Namespace of another target, `ADDR[:PORT]/NQN/NSID`, or NBD server, `unix:PATH` or `tcp:HOST:PORT`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// More addresses of that target: each is a path to the namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Options of the connection to that target, as `attach` has them, or to that NBD server.
    #[serde(default, skip_serializing_if = "ConnectSettings::is_empty")]
    pub connect: ConnectSettings,
    /// Name of a device or volume of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// An image's: the cluster's configuration file; `None`: $CEPH_CONF, or /etc/ceph/ceph.conf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conf: Option<PathBuf>,
    /// An image's: the Ceph user whose rights are used, without `client.`; `None`: admin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// An image's: file with that user's key; `None`: as the cluster's configuration says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keyring: Option<PathBuf>,
    /// An encrypted image's: file with its passphrase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passphrase_file: Option<PathBuf>,
    /// An encrypted image's: `user` key of the kernel's keyrings with its passphrase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passphrase_key: Option<String>,
    /// Size in bytes with which a missing image is created.
    #[serde(default, with = "size_field", skip_serializing_if = "Option::is_none")]
    pub create: Option<u64>,
    /// Size in bytes. A file without it must exist; a block device has its own.
    #[serde(default, with = "size_field", skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Block size in bytes: 512 or 4096.
    #[serde(default = "default_lba")]
    pub lba: u32,
    /// Refuse writes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Service time of an emulated SSD in microseconds; `None`: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_us: Option<u32>,
    /// Commands that an emulated SSD serves at once, others wait; `None`: 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel: Option<u16>,
    /// Priority class of requests without one; `None`: as their connection has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassName>,
    /// Rate limits for all hosts together.
    #[serde(default, skip_serializing_if = "RateArgs::is_empty")]
    pub rates: RateArgs,
    /// NQNs of the hosts that see the namespace; `None`: all hosts of the subsystem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<BTreeSet<String>>,
    /// ANA group, 1 to 512; `None`: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ana_group: Option<u32>,
    /// UUID shown to hosts; when missing it follows from the nguid, or from what identifies the blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// NGUID shown to hosts; when missing it follows from the uuid, or from what identifies the blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nguid: Option<String>,
    /// File for reservations that persist through power loss, or `none`; by default in the same folder as the file of
    /// the blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<PathBuf>,
    /// File for marks of Write Uncorrectable, or `none`; by default next to the file of the blocks, or in memory for
    /// memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncorrectable: Option<PathBuf>,
    /// True to wait, if another process has the blocks, until that ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub standby: bool,
}

/// Options of a namespace on the command line.
const OPTIONS: [&str; 29] = [
    "size",
    "lba",
    "nsid",
    "uuid",
    "nguid",
    "host",
    "hidden",
    "ana-group",
    "reservations",
    "uncorrectable",
    "ro",
    "rw",
    "standby",
    "class",
    "iops",
    "read-iops",
    "write-iops",
    "bandwidth",
    "read-bandwidth",
    "write-bandwidth",
    "burst",
    "service-us",
    "parallel",
    "conf",
    "id",
    "keyring",
    "passphrase-file",
    "passphrase-key",
    "create",
];

/// Value instead of a file for state that is not kept.
const NOWHERE: &str = "none";

fn default_lba() -> u32 {
    512
}

impl NamespaceSettings {
    /// Creates memory of this size, without further options.
    #[must_use]
    pub fn mem(size: u64) -> Self {
        NamespaceSettings { size: Some(size), ..NamespaceSettings::new(NamespaceKind::Mem) }
    }

    fn new(kind: NamespaceKind) -> Self {
        NamespaceSettings {
            nsid: None,
            kind,
            path: None,
            image: None,
            remote: None,
            paths: Vec::new(),
            connect: ConnectSettings::default(),
            device: None,
            conf: None,
            id: None,
            keyring: None,
            passphrase_file: None,
            passphrase_key: None,
            create: None,
            size: None,
            lba: default_lba(),
            read_only: false,
            service_us: None,
            parallel: None,
            class: None,
            rates: RateArgs::default(),
            hosts: None,
            ana_group: None,
            uuid: None,
            nguid: None,
            reservations: None,
            uncorrectable: None,
            standby: false,
        }
    }

    /// Returns the pace of an emulated SSD.
    #[must_use]
    pub fn pace(&self) -> SsdPace {
        let SsdPace { service_us, parallel } = SsdPace::DEFAULT;
        SsdPace {
            service_us: self.service_us.unwrap_or(service_us),
            parallel: self.parallel.unwrap_or(parallel),
        }
    }

    /// Checks the settings without opening a file.
    ///
    /// # Errors
    /// The error, with a valid alternative.
    pub(crate) fn check(&self, form: SettingForm) -> Result<(), String> {
        let kind = self.name();
        if self.lba != 512 && self.lba != 4096 {
            let lba = form.value("lba", self.lba);
            return Err(format!("{lba} is not a block size: use 512 or 4096"));
        }
        self.check_path(form)?;
        self.check_image(form)?;
        self.check_remote(form)?;
        self.check_device()?;
        self.check_size(form)?;
        self.check_pace(form)?;
        let rates = self.rates.rates_as(form).map(drop);
        rates.map_err(
            |error| if form == SettingForm::Key { format!("rates: {error}") } else { error },
        )?;
        if self.standby
            && !matches!(self.kind, NamespaceKind::File | NamespaceKind::Block | NamespaceKind::Rbd)
        {
            return Err(format!("standby is for file, block and rbd, not for {kind}"));
        }
        if self.standby && self.read_only {
            return Err("standby is for writers: several may read".into());
        }
        self.check_kept()
    }

    fn check_path(&self, form: SettingForm) -> Result<(), String> {
        let kind = self.name();
        let needs_path = matches!(self.kind, NamespaceKind::File | NamespaceKind::Block);
        let example = match form {
            SettingForm::Key if self.kind == NamespaceKind::Block => "write path = \"/dev/loop0\"",
            SettingForm::Key => "write path = \"disk.img\"",
            _ => EXAMPLE,
        };
        match &self.path {
            None if needs_path => Err(format!("{kind} needs a path: {example}")),
            Some(path) if needs_path && path.as_os_str().is_empty() => {
                Err(format!("{kind} has an empty path: {example}"))
            }
            Some(_) if !needs_path && form == SettingForm::Key => {
                Err(format!("{kind} has no path: leave path out"))
            }
            Some(_) if !needs_path => Err(format!("{kind} has no path: {EXAMPLE}")),
            _ => Ok(()),
        }
    }

    fn check_size(&self, form: SettingForm) -> Result<(), String> {
        let kind = self.name();
        let example = if form == SettingForm::Key { "write size = \"1GiB\"" } else { EXAMPLE };
        let has_own_size = matches!(
            self.kind,
            NamespaceKind::File
                | NamespaceKind::Block
                | NamespaceKind::Rbd
                | NamespaceKind::Nvme
                | NamespaceKind::Nbd
                | NamespaceKind::Device
        );
        match self.size {
            Some(_) if self.kind == NamespaceKind::Rbd => {
                let create = form.text("create", "SIZE");
                Err(format!("an image has its own size: leave size out, or write {create}"))
            }
            None if !has_own_size => Err(format!("{kind} needs a size: {example}")),
            Some(_) if self.kind == NamespaceKind::Nvme => {
                Err("a namespace of another target has its own size: leave size out".into())
            }
            Some(_) if self.kind == NamespaceKind::Nbd => {
                Err("an export has its own size: leave size out".into())
            }
            Some(_) if self.kind == NamespaceKind::Block => {
                Err("a block device has its own size: leave size out".into())
            }
            Some(0) => Err("a size of 0 is no namespace".into()),
            Some(size) if size % u64::from(self.lba) != 0 => {
                Err(format!("a size of {size} is not a multiple of the block size, {}", self.lba))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the files for reservations and marks suit the blocks.
    fn check_kept(&self) -> Result<(), String> {
        let kind = self.name();
        let [uuid, nguid] = self.ids()?;
        let is_file = |kept| matches!(kept_place(kept), KeptPlace::File(_));
        let is_lost =
            matches!(self.kind, NamespaceKind::Mem | NamespaceKind::Ssd | NamespaceKind::Null);
        if is_file(&self.uncorrectable) && is_lost {
            return Err(format!(
                "uncorrectable: {kind} has its marks in memory, as its blocks: leave the file out"
            ));
        }
        if is_file(&self.reservations) && is_lost && uuid.is_none() && nguid.is_none() {
            return Err(format!(
                "reservations: {kind} is another namespace at each start: give it a uuid or nguid"
            ));
        }
        Ok(())
    }

    /// Returns the files for reservations and marks, if they are given.
    #[cfg(feature = "rbd")]
    pub(crate) fn kept_files(&self) -> impl Iterator<Item = &std::path::Path> {
        let given = self.reservations.iter().chain(&self.uncorrectable);
        given.map(PathBuf::as_path).filter(|path| path.as_os_str() != NOWHERE)
    }

    /// Makes paths absolute with this process's directory.
    pub(crate) fn make_paths_absolute(&mut self) {
        let kept = self.reservations.iter_mut().chain(&mut self.uncorrectable);
        let kept = kept.filter(|path| path.as_os_str() != NOWHERE);
        let ceph = self.conf.iter_mut().chain(&mut self.keyring).chain(&mut self.passphrase_file);
        for path in self.path.iter_mut().chain(ceph).chain(kept) {
            *path = std::path::absolute(&*path).unwrap_or_else(|_| path.clone());
        }
        self.make_connect_paths_absolute();
    }

    /// Returns UUID and NGUID, if given.
    ///
    /// # Errors
    /// An invalid identifier.
    pub fn ids(&self) -> Result<[Option<[u8; 16]>; 2], String> {
        let parse = |name, text: &Option<String>| match text.as_deref().map(parse_uuid) {
            Some(Ok(id)) if id == [0; 16] => Err(format!("{name}: zeroes mean that there is none")),
            Some(Ok(id)) => Ok(Some(id)),
            Some(Err(error)) => Err(format!("{name}: {error}")),
            None => Ok(None),
        };
        Ok([parse("uuid", &self.uuid)?, parse("nguid", &self.nguid)?])
    }

    /// Converts the settings for the engine.
    ///
    /// # Errors
    /// The error, with a valid alternative.
    pub(crate) fn export(&self) -> Result<Export, String> {
        let nsid = self.nsid.ok_or("every namespace needs its nsid")?;
        self.check(SettingForm::Key).map_err(|error| format!("namespace {nsid}: {error}"))?;
        let (path, size) = (self.path.clone().unwrap_or_default(), self.size.unwrap_or(0));
        let kind = match self.kind {
            NamespaceKind::Mem => StoreKind::Memory { size },
            NamespaceKind::Ssd => {
                let SsdPace { service_us, parallel } = self.pace();
                let service = Duration::from_micros(service_us.into());
                StoreKind::Ssd { size, service, parallel }
            }
            NamespaceKind::Null => StoreKind::Null { size },
            NamespaceKind::File => {
                StoreKind::File { path, size: self.size, create: self.size.is_some() }
            }
            NamespaceKind::Block => StoreKind::Block { path },
            NamespaceKind::Rbd => self.image_store()?,
            NamespaceKind::Nvme | NamespaceKind::Nbd => {
                self.remote_store().map_err(|error| format!("namespace {nsid}: {error}"))?
            }
            NamespaceKind::Device => {
                let hint = "show it with `roadtrain ctl namespace add` while the target runs";
                return Err(format!("namespace {nsid}: a device is of a running target: {hint}"));
            }
        };
        let [uuid, nguid] = self.ids()?;
        let store = StoreSpec { kind, lba_bytes: self.lba, read_only: self.read_only };
        let class = self.class.map(Class::from);
        Ok(Export {
            uuid,
            nguid,
            class,
            rates: self.rates.rates_as(SettingForm::Key)?,
            reservations: kept_place(&self.reservations),
            uncorrectable: kept_place(&self.uncorrectable),
            standby: self.standby,
            view: self.view(),
            ..Export::new(nsid, store)
        })
    }

    /// Returns which hosts see the namespace, and its ANA group.
    pub(crate) fn view(&self) -> NamespaceView {
        let ana_group = self.ana_group.unwrap_or(NamespaceView::ALL.ana_group);
        NamespaceView { hosts: self.hosts.clone(), ana_group }
    }

    fn check_device(&self) -> Result<(), String> {
        let is_device = self.kind == NamespaceKind::Device;
        match &self.device {
            Some(_) if !is_device => Err(format!("{} has no device", self.name())),
            Some(name) if name.is_empty() => {
                Err("device has an empty name: write device:NAME".into())
            }
            None if is_device => Err("device needs a name: write device:NAME".into()),
            Some(_) if self.size.is_some() || self.read_only || self.lba != default_lba() => {
                Err("a device has its own size, block size and access: leave them out".into())
            }
            _ => Ok(()),
        }
    }

    fn check_pace(&self, form: SettingForm) -> Result<(), String> {
        let service_us = form.name("service_us");
        match (self.service_us, self.parallel) {
            (None, None) => Ok(()),
            _ if self.kind != NamespaceKind::Ssd => {
                Err(format!("{service_us} and parallel are for ssd, not for {}", self.name()))
            }
            (Some(us), _) if us > SERVICE_US_MAX => {
                let given = form.value("service_us", us);
                Err(format!("{given}: use 0 to {SERVICE_US_MAX}"))
            }
            (_, Some(0)) => Err(format!("{}: use 1 to {}", form.value("parallel", 0), u16::MAX)),
            _ => Ok(()),
        }
    }

    fn name(&self) -> &'static str {
        match self.kind {
            NamespaceKind::Mem => "mem",
            NamespaceKind::Ssd => "ssd",
            NamespaceKind::Null => "null",
            NamespaceKind::File => "file",
            NamespaceKind::Block => "block",
            NamespaceKind::Rbd => "rbd",
            NamespaceKind::Nvme => "nvme",
            NamespaceKind::Nbd => "nbd",
            NamespaceKind::Device => "device",
        }
    }

    fn set(&mut self, option: &str) -> Result<(), String> {
        let (key, value) = option.split_once('=').map_or((option, None), |(k, v)| (k, Some(v)));
        if let Some(set) = value.and_then(|value| self.rates.set(key, value)) {
            return set.map_err(|error| format!("{key}: {error}"));
        }
        if self.set_connect(key, value) {
            return Ok(());
        }
        match (key, value) {
            ("size", Some(value)) => self.size = Some(parse_size(value)?),
            ("lba", Some(value)) => {
                let bytes = parse_size(value).ok().and_then(|b| u32::try_from(b).ok());
                self.lba = bytes.ok_or_else(|| format!("lba={value}: use 512 or 4096"))?;
            }
            ("nsid", Some(value)) => {
                let nsid = value.parse().map_err(|_| format!("nsid={value} is not a number"))?;
                self.nsid = Some(nsid);
            }
            ("service-us", Some(value)) => {
                let us = value.parse();
                self.service_us =
                    Some(us.map_err(|_| format!("service-us={value}: use 0 to {SERVICE_US_MAX}"))?);
            }
            ("parallel", Some(value)) => {
                let parallel = value.parse();
                self.parallel =
                    Some(parallel.map_err(|_| format!("parallel={value}: use 1 to {}", u16::MAX))?);
            }
            ("conf", Some(value)) => self.conf = Some(value.into()),
            ("id", Some(value)) => self.id = Some(value.into()),
            ("keyring", Some(value)) => self.keyring = Some(value.into()),
            ("passphrase-file", Some(value)) => self.passphrase_file = Some(value.into()),
            ("passphrase-key", Some(value)) => self.passphrase_key = Some(value.into()),
            ("create", Some(value)) => self.create = Some(parse_size(value)?),
            ("class", Some(value)) => self.class = Some(named(key, value)?),
            ("uuid", Some(value)) => self.uuid = Some(value.into()),
            ("nguid", Some(value)) => self.nguid = Some(value.into()),
            ("reservations", Some("")) => return Err("reservations= needs a file, or none".into()),
            ("reservations", Some(value)) => self.reservations = Some(value.into()),
            ("uncorrectable", Some("")) => {
                return Err("uncorrectable= needs a file, or none".into());
            }
            ("uncorrectable", Some(value)) => self.uncorrectable = Some(value.into()),
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("standby", None) => self.standby = true,
            ("hidden", None) => self.hosts = Some(self.hosts.take().unwrap_or_default()),
            ("host", Some(value)) => {
                self.hosts.get_or_insert_default().insert(value.to_owned());
            }
            ("ana-group", Some(value)) => {
                let group = value.parse().ok().filter(|group| (1..=ANA_GROUPS_MAX).contains(group));
                let unfit = || format!("ana-group={value}: use 1 to {ANA_GROUPS_MAX}");
                self.ana_group = Some(group.ok_or_else(unfit)?);
            }
            _ => return Err(self.unknown_option(option, key, value.is_some())),
        }
        Ok(())
    }

    /// Returns the error of an unknown option, with the closest known one.
    fn unknown_option(&self, option: &str, key: &str, has_value: bool) -> String {
        let all =
            "`roadtrain serve --help` has all; a path with a comma needs a configuration file";
        let known = OPTIONS.into_iter().chain(self.connect_options().iter().copied());
        match closest(key, known) {
            Some(known) if known == key => {
                let form = if has_value { key.to_owned() } else { format!("{key}=VALUE") };
                format!("'{option}': write {form}")
            }
            Some(known) => format!("unknown option '{option}': did you mean {known}? ({all})"),
            None => format!("unknown option '{option}': {all}"),
        }
    }
}

/// Returns the place for reservations or marks.
fn kept_place(given: &Option<PathBuf>) -> KeptPlace {
    match given {
        None => KeptPlace::NextToStore,
        Some(path) if path.as_os_str() == NOWHERE => KeptPlace::Nowhere,
        Some(path) => KeptPlace::File(path.clone()),
    }
}

impl FromStr for NamespaceSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let head = parts.next().unwrap_or_default();
        let (kind, argument) =
            head.split_once(':').ok_or_else(|| format!("'{head}' has no colon: {EXAMPLE}"))?;
        let mut spec = match kind {
            "mem" | "ssd" | "null" => {
                let kind = match kind {
                    "mem" => NamespaceKind::Mem,
                    "ssd" => NamespaceKind::Ssd,
                    _ => NamespaceKind::Null,
                };
                NamespaceSettings {
                    size: Some(parse_size(argument)?),
                    ..NamespaceSettings::new(kind)
                }
            }
            "file" | "block" => {
                let kind = if kind == "file" { NamespaceKind::File } else { NamespaceKind::Block };
                NamespaceSettings { path: Some(argument.into()), ..NamespaceSettings::new(kind) }
            }
            "device" => NamespaceSettings {
                device: Some(argument.into()),
                ..NamespaceSettings::new(NamespaceKind::Device)
            },
            "rbd" => NamespaceSettings {
                image: Some(argument.into()),
                ..NamespaceSettings::new(NamespaceKind::Rbd)
            },
            "nvme" => NamespaceSettings::nvme(argument),
            "nbd" => NamespaceSettings::nbd(argument),
            _ => return Err(format!("unknown kind '{kind}': {EXAMPLE}")),
        };
        parts.try_for_each(|option| spec.set(option))?;
        spec.check(SettingForm::Word)?;
        Ok(spec)
    }
}

impl fmt::Display for NamespaceSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.path, self.size) {
            _ if self.kind == NamespaceKind::Rbd => self.write_image(f)?,
            _ if matches!(self.kind, NamespaceKind::Nvme | NamespaceKind::Nbd) => {
                self.write_remote(f)?
            }
            _ if self.kind == NamespaceKind::Device => {
                write!(f, "device:{}", self.device.as_deref().unwrap_or_default())?;
            }
            (Some(path), None) => write!(f, "{}:{}", self.name(), path.display())?,
            (Some(path), Some(size)) => {
                write!(f, "{}:{},size={size}", self.name(), path.display())?;
            }
            (None, size) => write!(f, "{}:{}", self.name(), size.unwrap_or(0))?,
        }
        if self.lba != default_lba() {
            write!(f, ",lba={}", self.lba)?;
        }
        if let Some(us) = self.service_us {
            write!(f, ",service-us={us}")?;
        }
        if let Some(parallel) = self.parallel {
            write!(f, ",parallel={parallel}")?;
        }
        if let Some(class) = self.class {
            write!(f, ",class={class}")?;
        }
        write!(f, "{}", self.rates)?;
        if let Some(nsid) = self.nsid {
            write!(f, ",nsid={nsid}")?;
        }
        if let Some(uuid) = &self.uuid {
            write!(f, ",uuid={uuid}")?;
        }
        if let Some(nguid) = &self.nguid {
            write!(f, ",nguid={nguid}")?;
        }
        if let Some(path) = &self.reservations {
            write!(f, ",reservations={}", path.display())?;
        }
        if let Some(path) = &self.uncorrectable {
            write!(f, ",uncorrectable={}", path.display())?;
        }
        if self.standby {
            f.write_str(",standby")?;
        }
        match &self.hosts {
            Some(hosts) if hosts.is_empty() => f.write_str(",hidden")?,
            hosts => hosts.iter().flatten().try_for_each(|host| write!(f, ",host={host}"))?,
        }
        if let Some(group) = self.ana_group {
            write!(f, ",ana-group={group}")?;
        }
        if self.read_only { f.write_str(",ro") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> NamespaceSettings {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn specs_that_parse() {
        assert_eq!(parse("mem:1GiB"), NamespaceSettings::mem(1 << 30));
        let null = parse("null:1TiB,lba=4k");
        assert_eq!((null.kind, null.size, null.lba), (NamespaceKind::Null, Some(1 << 40), 4096));
        let ssd = parse("ssd:1GiB,service-us=10,parallel=4");
        assert_eq!(
            (ssd.kind, ssd.pace()),
            (NamespaceKind::Ssd, SsdPace { service_us: 10, parallel: 4 })
        );
        assert_eq!(parse("ssd:4k").pace(), SsdPace { service_us: 100, parallel: 64 });
        let file = parse("file:disk.img,size=2GiB,lba=4096,ro");
        assert_eq!(file.path.as_deref(), Some("disk.img".as_ref()));
        assert_eq!((file.size, file.lba, file.read_only), (Some(2 << 30), 4096, true));
        assert_eq!(parse("block:/dev/loop0,nsid=7").nsid, Some(7));
        assert_eq!(parse("mem:4k").class, None);
        assert_eq!(parse("mem:4k,class=latency").class, Some(ClassName::Latency));
        assert_eq!(parse("file:a:b").path.as_deref(), Some("a:b".as_ref()), "only the first colon");
    }

    #[test]
    fn specs_that_do_not_say_why() {
        for (text, why) in [
            ("mem", "no colon"),
            ("", "no colon"),
            ("mem:", "not a size"),
            ("mem:0", "no namespace"),
            ("mem:1000", "multiple"),
            ("mem:1GiB,lba=1024", "512 or 4096"),
            ("mem:1GiB,size", "write size=VALUE"),
            ("mem:1GiB,sze=1", "did you mean size?"),
            ("mem:1GiB,zzz", "unknown option 'zzz': `roadtrain serve --help`"),
            ("disk:1GiB", "unknown kind"),
            ("file:", "empty path"),
            ("file:a,b", "comma"),
            ("block:/dev/x,size=1GiB", "its own size"),
            ("mem:1GiB,nsid=x", "not a number"),
            ("mem:1GiB,uuid=12", "uuid: '12' is not a UUID"),
            ("mem:1GiB,nguid=12", "nguid: '12' is not"),
            ("mem:1GiB,nguid=00000000000000000000000000000000", "there is none"),
            ("mem:1GiB,reservations=kept", "give it a uuid"),
            ("block:/dev/x,reservations=", "needs a file"),
            ("block:/dev/x,uncorrectable=", "needs a file"),
            ("mem:1GiB,uncorrectable=kept", "in memory"),
            ("mem:1GiB,standby", "not for mem"),
            ("block:/dev/x,standby,ro", "for writers"),
            ("rbd:", "POOL/IMAGE"),
            ("rbd:image", "POOL/IMAGE"),
            ("rbd:a/b/c/d", "POOL/IMAGE"),
            ("rbd:a//c", "POOL/IMAGE"),
            ("rbd:a/b@", "POOL/IMAGE"),
            ("rbd:a/b@c,create=1GiB", "a snapshot is there or not"),
            ("rbd:a/b,create=1000", "multiple"),
            ("rbd:a/b,size=1GiB", "its own size"),
            ("mem:1GiB,id=tenant", "for rbd"),
            ("mem:1GiB,passphrase-file=/k", "for rbd"),
            ("rbd:a/b,passphrase-key", "write passphrase-key=VALUE"),
            ("rbd:a/b,passphrase-file=", "passphrase-file needs the name of a file"),
            ("rbd:a/b,passphrase-key=", "passphrase-key needs the name of a key"),
            ("rbd:a/b,passphrase-file=/k,passphrase-key=k", "leave one of both out"),
            ("rbd:a/b,passphrase-file=/k,create=1GiB", "rbd encryption format"),
            ("ssd:", "not a size"),
            ("ssd:1GiB,service-us=1000001", "0 to 1000000"),
            ("ssd:1GiB,service-us=-1", "0 to 1000000"),
            ("ssd:1GiB,parallel=0", "1 to 65535"),
            ("ssd:1GiB,parallel=65536", "1 to 65535"),
            ("mem:1GiB,class=urgent", "class=urgent: use latency, normal, bulk"),
            ("mem:1GiB,iops=0", "lets nothing through"),
            ("mem:1GiB,bandwidth=fast", "bandwidth: unknown unit"),
            ("mem:1GiB,iops=1,burst=2h", "60 s at most"),
            ("mem:1GiB,service-us=1", "for ssd"),
            ("null:1GiB,parallel=1", "for ssd"),
        ] {
            let error = text.parse::<NamespaceSettings>().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn specs_print_as_they_parse() {
        for text in [
            "mem:4096",
            "ssd:4096",
            "ssd:8192,lba=4096,service-us=0,parallel=65535,nsid=2",
            "file:x,size=8192,lba=4096,nsid=3,ro",
            "null:4096,class=bulk,nsid=1",
            "block:/dev/loop0",
            "mem:4096,iops=1000,write-bandwidth=1048576,burst=0.1",
            "file:x,nsid=2,standby",
            "rbd:pool/image",
            "rbd:pool/space/image@then,conf=/etc/ceph/other.conf,id=tenant,keyring=/k,lba=4096,ro",
            "rbd:pool/image,create=4096,nsid=2",
            "rbd:pool/image,id=tenant,passphrase-file=/etc/k,nsid=2,standby",
            "rbd:pool/image@then,passphrase-key=disks-a",
            "block:/dev/loop0,reservations=/var/lib/kept",
            "file:x,reservations=none,ro",
            "block:/dev/loop0,reservations=/var/lib/kept,uncorrectable=/var/lib/marks",
            "mem:4096,uncorrectable=none",
            "mem:4096,uuid=01234567-89ab-cdef-0123-456789abcdef,nguid=0123456789abcdef0123456789abcdef",
        ] {
            assert_eq!(parse(text).to_string(), text);
        }
    }
}

//! What a target exports, as its configuration says it.

use super::identity::NamespaceId;
use core::net::SocketAddr;
use roadtrain_wire::fabrics::{DISCOVERY_NQN, NQN_BYTES_MAX};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Largest NSID, and most namespaces of a subsystem (NN and MNAN).
pub const NAMESPACES_MAX: u32 = 1024;

/// Everything a target exports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetConfig {
    /// NVM subsystems; the discovery subsystem is always there.
    pub subsystems: Vec<SubsystemConfig>,
    /// Where the target listens, for the discovery log. When empty, the log names the address by
    /// which the host has reached the discovery controller.
    pub listeners: Vec<Listener>,
    /// What the target grants; fixed when it starts.
    pub limits: Limits,
    /// A number that tells this target's machine from others: serial numbers are derived from it, so that two
    /// machines with the same NQN do not look like one subsystem. Fixed when the target starts.
    pub origin: u128,
}

/// What a target grants every controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// I/O queues of a controller.
    pub io_queues_max: u16,
    /// Entries of a submission queue (CAP.MQES + 1).
    pub queue_entries_max: u16,
    /// Largest transfer as a power of two of 4 KiB pages: 1 to [`Limits::MDTS_MAX`].
    pub mdts: u8,
    /// In-capsule data of an I/O command in octets, a multiple of 16.
    pub in_capsule_bytes_max: u32,
    /// Controllers at once, over all subsystems.
    pub controllers_max: u16,
    /// Of these, with the same host NQN.
    pub host_controllers_max: u16,
    /// Connected queues with the same host NQN, admin queues as well.
    pub host_queues_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            io_queues_max: 128,
            queue_entries_max: 1024,
            mdts: 8,
            in_capsule_bytes_max: 16 * 1024,
            controllers_max: 8192,
            host_controllers_max: 1024,
            host_queues_max: 4096,
        }
    }
}

impl Limits {
    /// Largest MDTS: 1 MiB, the longest buffer there is. A command that needed a longer one would wait for ever.
    pub const MDTS_MAX: u8 = 8;

    /// Most octets one command moves.
    #[must_use]
    pub fn transfer_bytes_max(&self) -> u32 {
        4096 << self.mdts
    }
}

/// An address the target listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Port identifier in discovery log entries.
    pub portid: u16,
    /// Address; an unspecified one (`0.0.0.0`, `::`) is shown as the address the host has reached.
    pub address: SocketAddr,
}

/// An NVM subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsystemConfig {
    /// Its NQN.
    pub nqn: String,
    /// Serial number, at most 20 ASCII characters; derived from the origin and the NQN when `None`.
    pub serial: Option<String>,
    /// Model number, at most 40 ASCII characters.
    pub model: String,
    /// NQNs of the hosts that may connect; `None` is any host.
    pub allowed_hosts: Option<BTreeSet<String>>,
    /// Its namespaces.
    pub namespaces: Vec<NamespaceConfig>,
}

impl SubsystemConfig {
    /// A subsystem any host may use, without namespaces.
    #[must_use]
    pub fn new(nqn: impl Into<String>) -> Self {
        SubsystemConfig {
            nqn: nqn.into(),
            serial: None,
            model: "Roadtrain".to_owned(),
            allowed_hosts: None,
            namespaces: Vec::new(),
        }
    }
}

/// A namespace, as far as hosts can see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceConfig {
    /// 1..=[`NAMESPACES_MAX`].
    pub nsid: u32,
    /// Size in logical blocks, not 0.
    pub blocks: u64,
    /// Logical block size as a power of two: 9 (512 octets) or 12 (4 KiB).
    pub lba_shift: u8,
    /// Writes are refused.
    pub read_only: bool,
    /// What tells it from every other. `None`: derived from the subsystem's NQN and the NSID, which says nothing
    /// of the blocks; only for a target whose blocks have no identity.
    pub id: Option<NamespaceId>,
    /// Writes may sit in a volatile cache until they are flushed.
    pub volatile_cache: bool,
    /// Deallocated blocks read as zeroes until they are written.
    pub deallocated_reads_zero: bool,
    /// Octets that writes and deallocations are best aligned to: a power of two, at least a block.
    pub granule_bytes: u32,
}

impl NamespaceConfig {
    /// A writable namespace of `blocks` blocks of `1 << lba_shift` octets, with a volatile cache and
    /// zeroes where blocks were deallocated.
    #[must_use]
    pub fn new(nsid: u32, blocks: u64, lba_shift: u8) -> Self {
        NamespaceConfig {
            nsid,
            blocks,
            lba_shift,
            read_only: false,
            id: None,
            volatile_cache: true,
            deallocated_reads_zero: true,
            granule_bytes: 4096,
        }
    }
}

/// Why a configuration, or a change to it, cannot be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Not an NQN.
    #[error("{0:?} is not an NQN of at most 223 octets that begins with \"nqn.\"")]
    Nqn(String),
    /// Twice the same subsystem.
    #[error("subsystem {0} is there already")]
    DuplicateSubsystem(String),
    /// No such subsystem.
    #[error("there is no subsystem {0}")]
    UnknownSubsystem(String),
    /// Serial or model number.
    #[error("subsystem {0}: serial number (20) or model number (40 ASCII characters) unfit")]
    Text(String),
    /// NSID out of range.
    #[error("subsystem {0}: namespace {1} is outside of 1 to {max}", max = NAMESPACES_MAX)]
    Nsid(String, u32),
    /// Twice the same NSID.
    #[error("subsystem {0}: namespace {1} is there already")]
    DuplicateNamespace(String, u32),
    /// Two namespaces would look like one to hosts, which would write to either.
    #[error(
        "namespace {1} of {0} has the identity of namespace {3} of {2}: export the blocks once, or give each \
         a uuid and an nguid of its own"
    )]
    DuplicateIdentity(String, u32, String, u32),
    /// No such namespace.
    #[error("subsystem {0}: there is no namespace {1}")]
    UnknownNamespace(String, u32),
    /// Size, block size or granule.
    #[error("subsystem {0}: namespace {1}: {2}")]
    Namespace(String, u32, &'static str),
    /// Limits out of range.
    #[error("limits: {0}")]
    Limits(&'static str),
}

impl TargetConfig {
    /// # Errors
    /// What is wrong first.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.limits.check()?;
        let mut nqns = BTreeSet::new();
        for subsystem in &self.subsystems {
            subsystem.check()?;
            if !nqns.insert(&subsystem.nqn) {
                return Err(ConfigError::DuplicateSubsystem(subsystem.nqn.clone()));
            }
        }
        self.check_identities()
    }

    /// No UUID and no NGUID may be there twice, in whichever subsystems.
    fn check_identities(&self) -> Result<(), ConfigError> {
        let mut known: BTreeMap<[u8; 16], (&str, u32)> = BTreeMap::new();
        for subsystem in &self.subsystems {
            for namespace in &subsystem.namespaces {
                let here = (subsystem.nqn.as_str(), namespace.nsid);
                for half in namespace.id.iter().flat_map(|id| [id.uuid, id.nguid]) {
                    match known.insert(half, here) {
                        Some(other) if other != here => {
                            let (nqn, other_nqn) = (here.0.to_owned(), other.0.to_owned());
                            let (nsid, other) = (here.1, other.1);
                            return Err(ConfigError::DuplicateIdentity(
                                nqn, nsid, other_nqn, other,
                            ));
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }
}

impl Limits {
    fn check(&self) -> Result<(), ConfigError> {
        let fits = [
            (self.io_queues_max >= 1 && self.io_queues_max < 0xffff, "I/O queues"),
            (self.queue_entries_max >= 32, "fewer than 32 queue entries"),
            ((1..=Self::MDTS_MAX).contains(&self.mdts), "MDTS outside of 1 to 8"),
            (self.in_capsule_bytes_max.is_multiple_of(16), "in-capsule size not a multiple of 16"),
            ((1..=0xffef).contains(&self.controllers_max), "controllers outside of 1 to 65519"),
            (self.host_controllers_max >= 1, "no controller of a host"),
            (self.host_queues_max >= 2, "fewer than 2 connections of a host"),
        ];
        match fits.iter().find(|(fits, _)| !fits) {
            Some((_, what)) => Err(ConfigError::Limits(what)),
            None => Ok(()),
        }
    }
}

impl SubsystemConfig {
    /// # Errors
    /// What is wrong first.
    pub fn check(&self) -> Result<(), ConfigError> {
        let is_ascii = |text: &str, most: usize| {
            text.len() <= most && text.chars().all(|c| c.is_ascii_graphic() || c == ' ')
        };
        check_nqn(&self.nqn)?;
        if self.nqn == DISCOVERY_NQN {
            return Err(ConfigError::DuplicateSubsystem(self.nqn.clone()));
        }
        if !is_ascii(self.serial.as_deref().unwrap_or(""), 20) || !is_ascii(&self.model, 40) {
            return Err(ConfigError::Text(self.nqn.clone()));
        }
        let mut nsids = BTreeSet::new();
        for namespace in &self.namespaces {
            namespace.check(&self.nqn)?;
            if !nsids.insert(namespace.nsid) {
                return Err(ConfigError::DuplicateNamespace(self.nqn.clone(), namespace.nsid));
            }
        }
        self.allowed_hosts.iter().flatten().try_for_each(|nqn| check_nqn(nqn))
    }
}

impl NamespaceConfig {
    /// # Errors
    /// What is wrong first; `nqn` names the subsystem in it.
    pub fn check(&self, nqn: &str) -> Result<(), ConfigError> {
        if self.nsid == 0 || self.nsid > NAMESPACES_MAX {
            return Err(ConfigError::Nsid(nqn.to_owned(), self.nsid));
        }
        let granule = self.granule_bytes;
        let fits = [
            (self.lba_shift == 9 || self.lba_shift == 12, "block size is neither 512 nor 4096"),
            (self.blocks > 0, "no blocks"),
            (self.blocks <= u64::MAX >> 13, "too many blocks"),
            (granule.is_power_of_two() && granule <= 1 << 24, "granule is no power of two"),
            (granule >> self.lba_shift.min(31) >= 1, "granule is smaller than a block"),
        ];
        match fits.iter().find(|(fits, _)| !fits) {
            Some((_, what)) => Err(ConfigError::Namespace(nqn.to_owned(), self.nsid, what)),
            None => Ok(()),
        }
    }
}

fn check_nqn(nqn: &str) -> Result<(), ConfigError> {
    if nqn.starts_with("nqn.") && nqn.len() <= NQN_BYTES_MAX && !nqn.contains('\0') {
        return Ok(());
    }
    Err(ConfigError::Nqn(nqn.to_owned()))
}

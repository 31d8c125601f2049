//! Configuration of the objects that a target exports.

use super::ana::{AnaState, AnaStates};
use super::authentication::HostAuthentication;
use super::config_error::{ConfigError, ConfigObject};
use super::identity::{self, NamespaceId};
use super::listen::{TargetListener, TlsUse};
use super::namespace_request::NamespaceManagement;
use super::rate::RateSettings;
use super::view::{NamespaceView, check_group};
use core::net::SocketAddr;
use core::ops::RangeInclusive;
use roadtrain_proto::block_limits::{BLOCKS_MAX, BlockLimits};
use roadtrain_wire::fabrics::{DISCOVERY_NQN, is_nqn};
use std::collections::{BTreeMap, BTreeSet};

/// Largest NSID, and most namespaces of a subsystem (NN and MNAN).
pub const NAMESPACES_MAX: u32 = 16_384;
/// Most namespaces of a target, over all subsystems.
pub const TARGET_NAMESPACES_MAX: usize = 65_536;

/// A namespace in a configuration: either as hosts see it ([`NamespaceConfig`]), or as an operator requests it, with
/// its store.
pub trait NamespaceDescription: Clone + PartialEq {
    /// 1..=[`NAMESPACES_MAX`].
    fn nsid(&self) -> u32;

    /// Returns the namespace's identity, if known.
    fn id(&self) -> Option<NamespaceId>;

    /// Returns the size in bytes, if known.
    fn bytes(&self) -> Option<u64>;

    /// Returns the same namespace with another size.
    ///
    /// # Errors
    /// A hint for a valid value of `bytes`.
    fn resized(&self, bytes: u64) -> Result<Self, String>;

    /// Returns the rate limits.
    fn rates(&self) -> RateSettings {
        RateSettings::UNLIMITED
    }

    /// Returns the same namespace with other rate limits; hosts do not see them.
    #[must_use]
    fn limited(&self, _rates: RateSettings) -> Self {
        self.clone()
    }

    /// Returns which hosts see the namespace, and its ANA group.
    fn view(&self) -> &NamespaceView;

    /// Returns the same namespace with another view.
    #[must_use]
    fn viewed(&self, view: NamespaceView) -> Self;

    /// Checks everything but the NSID and the view.
    ///
    /// # Errors
    /// The field, its value, and a hint for a valid value.
    fn check(&self) -> Result<(), (&'static str, String, &'static str)>;
}

/// Everything a target exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetConfig<N = NamespaceConfig> {
    /// NVM subsystems; the discovery subsystem is always there.
    pub subsystems: Vec<SubsystemConfig<N>>,
    /// Listening addresses, for the discovery log.
    pub listeners: Vec<TargetListener>,
    /// Other discovery controllers over TCP, to which the discovery log refers hosts. Fixed when the target starts.
    pub referrals: Vec<SocketAddr>,
    /// Authentication required of hosts, and their keys.
    pub authentication: HostAuthentication,
    /// TLS use of listeners ([`TargetConfig::listeners_at`]).
    pub tls: TlsUse,
    /// TLS use of the listeners at these addresses, instead.
    pub tls_at: BTreeMap<SocketAddr, TlsUse>,
    /// ANA states of the listeners.
    pub ana: AnaStates,
    /// Limits for controllers; fixed when the target starts.
    pub limits: TargetLimits,
    /// Number of this target's machine, from which serial numbers are derived: two machines with the same NQN do not
    /// appear as one subsystem. Fixed when the target starts.
    pub origin: u128,
    /// Number of the target's network namespace in this boot of its machine; 0: not known. Fixed when the target
    /// starts.
    pub network: u128,
}

impl<N> TargetConfig<N> {
    /// Returns the serial number that hosts see of a subsystem.
    #[must_use]
    pub fn serial(&self, subsystem: &SubsystemConfig<N>) -> String {
        let derived = || identity::serial(self.origin, &subsystem.nqn);
        subsystem.serial.clone().unwrap_or_else(derived)
    }
}

impl<N> Default for TargetConfig<N> {
    fn default() -> Self {
        let (subsystems, listeners, referrals) = (Vec::new(), Vec::new(), Vec::new());
        let (authentication, tls) = (HostAuthentication::default(), TlsUse::Off);
        let limits = TargetLimits::default();
        let (tls_at, ana) = (BTreeMap::new(), AnaStates::default());
        TargetConfig {
            subsystems,
            listeners,
            referrals,
            authentication,
            tls,
            tls_at,
            ana,
            limits,
            origin: 0,
            network: 0,
        }
    }
}

/// Limits of a target for its controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetLimits {
    /// I/O queues of a controller.
    pub io_queues_max: u16,
    /// Entries of a submission queue (CAP.MQES + 1).
    pub queue_entries_max: u16,
    /// Largest transfer as a power of two of 4 KiB pages: 1 to [`TargetLimits::MDTS_MAX`].
    pub mdts: u8,
    /// In-capsule data of an I/O command in bytes, a multiple of 16.
    pub in_capsule_bytes_max: u32,
    /// Controllers at a time, over all subsystems.
    pub controllers_max: u16,
    /// Controllers with the same host NQN.
    pub host_controllers_max: u16,
    /// Connected queues with the same host NQN, admin queues included.
    pub host_queues_max: u32,
    /// Smallest controller identifier; other processes that serve the same subsystem use other ranges.
    pub cntlid_min: u16,
    /// Largest controller identifier, at most [`TargetLimits::CNTLID_MAX`].
    pub cntlid_max: u16,
}

impl Default for TargetLimits {
    fn default() -> Self {
        TargetLimits {
            io_queues_max: 128,
            queue_entries_max: 1024,
            mdts: 8,
            in_capsule_bytes_max: 16 * 1024,
            controllers_max: 8192,
            host_controllers_max: 1024,
            host_queues_max: 4096,
            cntlid_min: 1,
            cntlid_max: TargetLimits::CNTLID_MAX,
        }
    }
}

impl TargetLimits {
    /// Largest MDTS: 1 MiB, the longest buffer. A command that needs a longer one would wait forever.
    pub const MDTS_MAX: u8 = 8;

    /// Largest valid controller identifier; those above are reserved.
    pub const CNTLID_MAX: u16 = 0xffef;

    /// Returns the number of controllers possible at a time.
    #[must_use]
    pub fn cntlids(&self) -> u16 {
        self.controllers_max.min(self.cntlid_max - self.cntlid_min + 1)
    }

    /// Returns the range of controller identifiers.
    #[must_use]
    pub fn cntlid_range(&self) -> RangeInclusive<u16> {
        self.cntlid_min..=self.cntlid_max
    }

    /// True if a controller of this target can have the identifier.
    #[must_use]
    pub fn has_cntlid(&self, cntlid: u16) -> bool {
        self.cntlid_range().contains(&cntlid)
    }

    /// Returns the bytes that one command transfers at most.
    #[must_use]
    pub fn transfer_bytes_max(&self) -> u32 {
        4096 << self.mdts
    }
}

/// An NVM subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsystemConfig<N = NamespaceConfig> {
    pub nqn: String,
    /// Serial number, at most 20 ASCII characters; derived from the origin and the NQN when `None`.
    pub serial: Option<String>,
    /// Model number, at most 40 ASCII characters.
    pub model: String,
    /// NQNs of the hosts that may connect; `None` is any host.
    pub allowed_hosts: Option<BTreeSet<String>>,
    /// Rate limits of hosts, by NQN. Other hosts are not limited.
    pub host_rates: BTreeMap<String, RateSettings>,
    /// Listeners at which hosts reach the subsystem, with the ANA state of each; `None`: all but those reserved for
    /// subsystems that name them.
    pub listeners: Option<BTreeMap<SocketAddr, AnaState>>,
    /// ANA states of groups at listeners; a group without one has the state of the listener.
    pub ana_groups: BTreeMap<u32, AnaStates>,
    /// Identifiers of its controllers, as far as they are in the target's range ([`TargetLimits::cntlid_range`]). Fixed when
    /// the subsystem is added, as are the next two.
    pub cntlids: RangeInclusive<u16>,
    /// Dataset Management range size limit (DMRSL) in logical blocks, advisory for hosts; 0: none.
    pub dmrsl: u32,
    /// Write Zeroes size limit (WZSL) as a power of two of 4 KiB pages, advisory for hosts; 0: none.
    pub wzsl: u8,
    /// Management of the namespaces by hosts; `None`: no host may manage them.
    pub management: Option<NamespaceManagement>,
    pub namespaces: Vec<N>,
}

impl<N> SubsystemConfig<N> {
    /// Creates a subsystem without namespaces that any host may use.
    #[must_use]
    pub fn new(nqn: impl Into<String>) -> Self {
        SubsystemConfig {
            nqn: nqn.into(),
            serial: None,
            model: "Roadtrain".to_owned(),
            allowed_hosts: None,
            host_rates: BTreeMap::new(),
            listeners: None,
            ana_groups: BTreeMap::new(),
            cntlids: 1..=TargetLimits::CNTLID_MAX,
            dmrsl: 0,
            wzsl: 0,
            management: None,
            namespaces: Vec::new(),
        }
    }

    /// Returns the identifiers of its controllers at a target with these limits; empty if the ranges do not overlap.
    #[must_use]
    pub fn cntlid_range(&self, limits: &TargetLimits) -> RangeInclusive<u16> {
        let (min, max) = (*self.cntlids.start(), *self.cntlids.end());
        min.max(limits.cntlid_min)..=max.min(limits.cntlid_max)
    }
}

/// A namespace, as far as hosts can see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceConfig {
    /// 1..=[`NAMESPACES_MAX`].
    pub nsid: u32,
    /// Size in logical blocks, not 0.
    pub blocks: u64,
    /// Logical block size as a power of two: 9 (512 bytes) or 12 (4 KiB).
    pub lba_shift: u8,
    /// True if writes are refused.
    pub read_only: bool,
    /// Identity. `None`: derived from the subsystem's NQN and the NSID, for a target whose stores have no identity.
    pub id: Option<NamespaceId>,
    /// Writes may remain in a volatile cache until they are flushed.
    pub volatile_cache: bool,
    /// Write verifier: changes when acknowledged writes that were not flushed may be lost. Not visible to hosts.
    pub write_verifier: Option<u64>,
    /// Deallocated blocks read as zeroes until they are written.
    pub deallocated_reads_zero: bool,
    /// Limits for efficient use of the blocks.
    pub limits: BlockLimits,
    /// Hosts can reserve the namespace. False: hosts of other targets use the blocks, too, and would not know.
    pub offers_reservations: bool,
    /// Reservations can persist through power loss.
    pub keeps_reservations: bool,
    /// Upper bound of the ANA state on all listeners of this target: inaccessible while another target owns the blocks.
    pub ana: AnaState,
    /// Number of ownership changes of the blocks between targets. The reservations of another owner are not known here,
    /// so those of an earlier number have ended. Not visible to hosts.
    pub ownership_term: u64,
    /// Hosts that see the namespace, and its ANA group.
    pub view: NamespaceView,
}

impl NamespaceConfig {
    /// Creates a writable namespace of `blocks` blocks of `1 << lba_shift` bytes, with a volatile cache; deallocated
    /// blocks read as zeroes.
    #[must_use]
    pub fn new(nsid: u32, blocks: u64, lba_shift: u8) -> Self {
        NamespaceConfig {
            nsid,
            blocks,
            lba_shift,
            read_only: false,
            id: None,
            volatile_cache: true,
            write_verifier: None,
            deallocated_reads_zero: true,
            limits: BlockLimits::default(),
            offers_reservations: true,
            keeps_reservations: false,
            ana: AnaState::Optimized,
            ownership_term: 0,
            view: NamespaceView::ALL,
        }
    }
}

impl<N: NamespaceDescription> TargetConfig<N> {
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.limits.check()?;
        let mut nqns = BTreeSet::new();
        for subsystem in &self.subsystems {
            subsystem.check()?;
            subsystem.check_cntlids(&self.limits)?;
            if !nqns.insert(&subsystem.nqn) {
                return Err(ConfigError::Exists(ConfigObject::subsystem(&subsystem.nqn)));
            }
        }
        self.check_count()?;
        self.check_listeners()?;
        self.check_referrals()?;
        self.check_ana()?;
        self.check_identities()
    }

    /// Checks the number of namespaces over all subsystems.
    fn check_count(&self) -> Result<(), ConfigError> {
        let count: usize = self.subsystems.iter().map(|one| one.namespaces.len()).sum();
        match count <= TARGET_NAMESPACES_MAX {
            true => Ok(()),
            false => Err(too_many_namespaces(count)),
        }
    }

    /// Checks that no two listeners share an address or a port identifier.
    fn check_listeners(&self) -> Result<(), ConfigError> {
        let clash = |one: &TargetListener, other: &TargetListener| {
            let is_there = one.address == other.address && one.address.port() != 0;
            is_there || one.portid == other.portid
        };
        let earlier = |at: usize| &self.listeners[..at];
        let mut listeners = self.listeners.iter().enumerate();
        let twice = listeners.find(|(at, one)| earlier(*at).iter().any(|other| clash(one, other)));
        twice.map_or(Ok(()), |(_, one)| {
            Err(ConfigError::Exists(ConfigObject::Listener(one.address)))
        })
    }

    /// Checks that each referral names a reachable address, and each address once.
    fn check_referrals(&self) -> Result<(), ConfigError> {
        for (at, address) in self.referrals.iter().enumerate() {
            let place = || ConfigObject::Referral(*address);
            let ip = address.ip();
            if ip.is_unspecified() || ip.is_multicast() || address.port() == 0 {
                let hint = "write the address and port of a discovery controller";
                return Err(ConfigError::invalid(place(), "address", address, hint));
            }
            if self.referrals[..at].contains(address) {
                return Err(ConfigError::Exists(place()));
            }
        }
        Ok(())
    }

    /// Checks that each ANA state belongs to a listener.
    fn check_ana(&self) -> Result<(), ConfigError> {
        for subsystem in &self.subsystems {
            let place = || ConfigObject::subsystem(&subsystem.nqn);
            subsystem.ana_groups.keys().try_for_each(|group| check_group(place, *group))?;
        }
        let groups = self.subsystems.iter().flat_map(|subsystem| subsystem.ana_groups.values());
        let all = [&self.ana].into_iter().chain(groups);
        let orphan = all.filter_map(|states| states.first_orphan(&self.listeners)).next();
        orphan.map_or(Ok(()), |listener| Err(ConfigError::Unknown(ConfigObject::Ana(listener))))
    }

    /// Returns listeners at `addresses`. Existing listeners keep their port identifiers; each gets the TLS use of this
    /// configuration.
    #[must_use]
    pub fn listeners_at(&self, addresses: &[SocketAddr]) -> Vec<TargetListener> {
        let mut there = self.listeners.clone();
        let mut portids =
            (1..=u16::MAX).filter(|id| self.listeners.iter().all(|l| l.portid != *id));
        let listener = |&address: &SocketAddr| {
            let at = there.iter().position(|listener| listener.address == address);
            let tls = self.tls_at.get(&address).copied().unwrap_or(self.tls);
            let new = || {
                Some(TargetListener { portid: portids.next()?, address, tls, named_only: false })
            };
            at.map(|at| TargetListener { tls, ..there.remove(at) }).or_else(new)
        };
        addresses.iter().filter_map(listener).collect()
    }

    /// Checks that no two namespaces of any subsystems share a UUID or an NGUID: hosts would take them for one.
    fn check_identities(&self) -> Result<(), ConfigError> {
        let mut known: BTreeMap<[u8; 16], (&str, u32)> = BTreeMap::new();
        for subsystem in &self.subsystems {
            for namespace in &subsystem.namespaces {
                let here = (subsystem.nqn.as_str(), namespace.nsid());
                for half in namespace.id().iter().flat_map(|id| [id.uuid, id.nguid]) {
                    match known.insert(half, here) {
                        Some(other) if other != here => {
                            return Err(ConfigError::SameIdentity {
                                place: ConfigObject::namespace(here.0, here.1),
                                other: ConfigObject::namespace(other.0, other.1),
                            });
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }
}

impl TargetLimits {
    fn check(&self) -> Result<(), ConfigError> {
        let (queues, entries) = (self.io_queues_max, self.queue_entries_max);
        let (controllers, capsule) = (self.controllers_max, self.in_capsule_bytes_max);
        let (min, max) = (self.cntlid_min, self.cntlid_max);
        let fits = [
            ((1..0xffff).contains(&queues), "I/O queues", u32::from(queues), "1 to 65534"),
            (entries >= 32, "queue entries", entries.into(), "32 at least"),
            ((1..=Self::MDTS_MAX).contains(&self.mdts), "MDTS", self.mdts.into(), "1 to 8"),
            (capsule.is_multiple_of(16), "in-capsule bytes", capsule, "a multiple of 16"),
            (min >= 1 && min <= max, "first controller identifier", min.into(), "1 to the last"),
            (max <= Self::CNTLID_MAX, "last controller identifier", max.into(), "at most 65519"),
            ((1..=0xffef).contains(&controllers), "controllers", controllers.into(), "1 to 65519"),
            (self.host_controllers_max >= 1, "controllers of a host", 0, "1 at least"),
            (self.host_queues_max >= 2, "queues of a host", self.host_queues_max, "2 at least"),
        ];
        let unfit = fits.iter().find(|(fits, ..)| !fits);
        unfit.map_or(Ok(()), |(_, field, value, hint)| {
            Err(ConfigError::invalid(ConfigObject::Limits, field, value, *hint))
        })
    }
}

impl<N: NamespaceDescription> SubsystemConfig<N> {
    /// # Errors
    /// The first invalid value.
    pub fn check(&self) -> Result<(), ConfigError> {
        let place = || ConfigObject::subsystem(&self.nqn);
        check_nqn(place, "nqn", &self.nqn)?;
        if let Some(month) = impossible_month(&self.nqn) {
            let hint = format!("there is no month {month}: write nqn.YYYY-MM.REVERSED-DOMAIN:NAME");
            return Err(ConfigError::invalid(place(), "nqn", format!("{:?}", self.nqn), hint));
        }
        if self.nqn == DISCOVERY_NQN {
            return Err(ConfigError::Exists(place()));
        }
        let text = |field: &'static str, text: &str, most: usize, hint: &str| {
            let is_ascii = |c: char| c.is_ascii_graphic() || c == ' ';
            match text.len() <= most && text.chars().all(is_ascii) {
                true => Ok(()),
                false => Err(ConfigError::invalid(place(), field, format!("{text:?}"), hint)),
            }
        };
        const SERIAL: &str = "write 1 to 20 ASCII characters, or leave it out to have one made";
        if let Some(serial) = &self.serial {
            text("serial", serial, 20, SERIAL)?;
            if serial.trim().is_empty() {
                let value = format!("{serial:?}");
                return Err(ConfigError::invalid(place(), "serial", value, SERIAL));
            }
        }
        text("model", &self.model, 40, "write at most 40 ASCII characters")?;
        let mut nsids = BTreeSet::new();
        for namespace in &self.namespaces {
            check_namespace(&self.nqn, namespace)?;
            if !nsids.insert(namespace.nsid()) {
                return Err(ConfigError::Exists(ConfigObject::namespace(
                    &self.nqn,
                    namespace.nsid(),
                )));
            }
        }
        let administrators = self.management.iter().flat_map(|one| &one.administrators);
        let hosts = self.allowed_hosts.iter().flatten().chain(self.host_rates.keys());
        let hosts = hosts.chain(administrators);
        hosts.into_iter().try_for_each(|host| check_host(&self.nqn, host))
    }
}

impl<N> SubsystemConfig<N> {
    fn check_cntlids(&self, limits: &TargetLimits) -> Result<(), ConfigError> {
        let (min, max) = (*self.cntlids.start(), *self.cntlids.end());
        let is_range = (1..=max).contains(&min) && max <= TargetLimits::CNTLID_MAX;
        if is_range && !self.cntlid_range(limits).is_empty() {
            return Ok(());
        }
        let (first, last) = (limits.cntlid_min, limits.cntlid_max);
        let hint = format!("give at least one of those of the target, {first} to {last}");
        let value = format!("{min} to {max}");
        Err(ConfigError::invalid(ConfigObject::subsystem(&self.nqn), "controller IDs", value, hint))
    }
}

/// Returns the error for a target with `count` namespaces.
pub(super) fn too_many_namespaces(count: usize) -> ConfigError {
    let hint = format!("a target has at most {TARGET_NAMESPACES_MAX}: start another one");
    ConfigError::invalid(ConfigObject::Limits, "namespaces", count, hint)
}

/// # Errors
/// The first invalid value of a namespace of subsystem `nqn`.
pub(super) fn check_namespace(
    nqn: &str,
    namespace: &impl NamespaceDescription,
) -> Result<(), ConfigError> {
    let nsid = namespace.nsid();
    let place = || ConfigObject::namespace(nqn, nsid);
    if nsid == 0 || nsid > NAMESPACES_MAX {
        let hint = format!("choose a number from 1 to {NAMESPACES_MAX}");
        return Err(ConfigError::invalid(place(), "nsid", nsid, hint));
    }
    namespace.view().check(place)?;
    let unfit = namespace.check();
    unfit.map_err(|(field, value, hint)| ConfigError::invalid(place(), field, value, hint))
}

/// # Errors
/// `host` is not an NQN.
pub(super) fn check_host(nqn: &str, host: &str) -> Result<(), ConfigError> {
    check_nqn(|| ConfigObject::subsystem(nqn), "host", host)
}

fn check_nqn(
    place: impl Fn() -> ConfigObject,
    field: &'static str,
    nqn: &str,
) -> Result<(), ConfigError> {
    if is_nqn(nqn) {
        return Ok(());
    }
    let hint = "write nqn.2025-01.io.example:name (at most 223 bytes)";
    Err(ConfigError::invalid(place(), field, format!("{nqn:?}"), hint))
}

/// Returns the month of an NQN's date (`nqn.YYYY-MM.`) if it is not a valid month.
fn impossible_month(nqn: &str) -> Option<&str> {
    let (year, month) = nqn.strip_prefix("nqn.")?.get(..7)?.split_once('-')?;
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_date = year.len() == 4 && is_number(year) && is_number(month);
    (is_date && !("01"..="12").contains(&month)).then_some(month)
}

impl NamespaceDescription for NamespaceConfig {
    fn nsid(&self) -> u32 {
        self.nsid
    }

    fn id(&self) -> Option<NamespaceId> {
        self.id
    }

    fn bytes(&self) -> Option<u64> {
        self.blocks.checked_mul(1u64.checked_shl(self.lba_shift.into())?)
    }

    fn resized(&self, bytes: u64) -> Result<Self, String> {
        let block = 1u64.checked_shl(self.lba_shift.into()).unwrap_or(1);
        match bytes.is_multiple_of(block) {
            true => Ok(NamespaceConfig { blocks: bytes / block, ..self.clone() }),
            false => Err(format!("use whole blocks of {block} bytes")),
        }
    }

    fn view(&self) -> &NamespaceView {
        &self.view
    }

    fn viewed(&self, view: NamespaceView) -> Self {
        NamespaceConfig { view, ..self.clone() }
    }

    fn check(&self) -> Result<(), (&'static str, String, &'static str)> {
        let shift = self.lba_shift;
        let fits = [
            (shift == 9 || shift == 12, "block size", u64::from(shift), "use 512 or 4096 bytes"),
            (self.blocks > 0, "blocks", self.blocks, "give it at least one block"),
            (self.blocks <= BLOCKS_MAX, "blocks", self.blocks, "use 2251799813685247 at most"),
        ];
        let unfit = fits.into_iter().find(|(fits, ..)| !fits);
        let unfit = unfit.map(|(_, field, value, hint)| (field, value.to_string(), hint));
        unfit.map_or_else(|| self.limits.check(shift), Err)
    }
}

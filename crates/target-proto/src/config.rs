//! What a target exports, as its configuration says it.

use super::ana::{AnaState, AnaStates};
use super::authentication::Authentication;
use super::config_error::{ConfigError, Place};
use super::identity::{self, NamespaceId};
use super::listen::{Listener, TlsUse};
use super::rate::Rates;
use core::net::SocketAddr;
use core::ops::RangeInclusive;
use roadtrain_proto::block_limits::{BLOCKS_MAX, BlockLimits};
use roadtrain_wire::fabrics::{DISCOVERY_NQN, is_nqn};
use std::collections::{BTreeMap, BTreeSet};

/// Largest NSID, and most namespaces of a subsystem (NN and MNAN).
pub const NAMESPACES_MAX: u32 = 1024;

/// A namespace in a configuration: what hosts see of it ([`NamespaceConfig`]), or what somebody asks for, with the
/// place where its blocks are kept.
pub trait Description: Clone + PartialEq {
    /// 1..=[`NAMESPACES_MAX`].
    fn nsid(&self) -> u32;

    /// What tells it from every other, if that is known.
    fn id(&self) -> Option<NamespaceId>;

    /// Its size in octets, if that is known.
    fn bytes(&self) -> Option<u64>;

    /// The same with another size.
    ///
    /// # Errors
    /// What is to be given instead of `bytes`.
    fn resized(&self, bytes: u64) -> Result<Self, String>;

    /// What it may do in a second.
    fn rates(&self) -> Rates {
        Rates::UNLIMITED
    }

    /// The same with other limits on its rate; hosts do not see them.
    #[must_use]
    fn limited(&self, _rates: Rates) -> Self {
        self.clone()
    }

    /// Whether it can be, but for its NSID.
    ///
    /// # Errors
    /// The field, its value, and what is to be given instead.
    fn check(&self) -> Result<(), (&'static str, String, &'static str)>;
}

/// Everything a target exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetConfig<N = NamespaceConfig> {
    /// NVM subsystems; the discovery subsystem is always there.
    pub subsystems: Vec<SubsystemConfig<N>>,
    /// Where the target listens, for the discovery log.
    pub listeners: Vec<Listener>,
    /// Other discovery controllers over TCP, to which the discovery log refers hosts. Fixed when the target starts.
    pub referrals: Vec<SocketAddr>,
    /// Which hosts authenticate.
    pub authentication: Authentication,
    /// What listeners ask for ([`TargetConfig::listeners_at`]).
    pub tls: TlsUse,
    /// What those at these addresses ask for instead.
    pub tls_at: BTreeMap<SocketAddr, TlsUse>,
    /// How good the paths to the namespaces are.
    pub ana: AnaStates,
    /// What the target grants; fixed when it starts.
    pub limits: Limits,
    /// A number that tells this target's machine from others: serial numbers are derived from it, so that two
    /// machines with the same NQN do not look like one subsystem. Fixed when the target starts.
    pub origin: u128,
    /// A number that tells the network namespace in which the target listens, and the boot of its machine, from others;
    /// 0: not known. Fixed when the target starts.
    pub network: u128,
}

impl<N> TargetConfig<N> {
    /// The serial number that a subsystem has for hosts.
    #[must_use]
    pub fn serial(&self, subsystem: &SubsystemConfig<N>) -> String {
        let derived = || identity::serial(self.origin, &subsystem.nqn);
        subsystem.serial.clone().unwrap_or_else(derived)
    }
}

impl<N> Default for TargetConfig<N> {
    fn default() -> Self {
        let (subsystems, listeners, referrals) = (Vec::new(), Vec::new(), Vec::new());
        let (authentication, tls) = (Authentication::default(), TlsUse::Off);
        let limits = Limits::default();
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
    /// Smallest controller identifier; other processes that serve the same subsystem have others.
    pub cntlid_min: u16,
    /// Largest controller identifier, at most [`Limits::CNTLID_MAX`].
    pub cntlid_max: u16,
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
            cntlid_min: 1,
            cntlid_max: Limits::CNTLID_MAX,
        }
    }
}

impl Limits {
    /// Largest MDTS: 1 MiB, the longest buffer there is. A command that needed a longer one would wait for ever.
    pub const MDTS_MAX: u8 = 8;

    /// Largest controller identifier that there can be; those above are reserved.
    pub const CNTLID_MAX: u16 = 0xffef;

    /// How many controllers there can be at once.
    #[must_use]
    pub fn cntlids(&self) -> u16 {
        self.controllers_max.min(self.cntlid_max - self.cntlid_min + 1)
    }

    /// Identifiers that controllers can have.
    #[must_use]
    pub fn cntlid_range(&self) -> RangeInclusive<u16> {
        self.cntlid_min..=self.cntlid_max
    }

    /// Whether a controller here can have that identifier.
    #[must_use]
    pub fn has_cntlid(&self, cntlid: u16) -> bool {
        self.cntlid_range().contains(&cntlid)
    }

    /// Most octets one command moves.
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
    /// What hosts may do in a second, by their NQNs. Others are not limited.
    pub host_rates: BTreeMap<String, Rates>,
    /// Where it can be reached, and how good that way is; `None`: everywhere but where listeners are for those only
    /// that name them.
    pub listeners: Option<BTreeMap<SocketAddr, AnaState>>,
    /// Identifiers of its controllers, as far as they are among the target's ([`Limits::cntlid_range`]). Fixed when it is
    /// added, as the next two are.
    pub cntlids: RangeInclusive<u16>,
    /// Dataset Management range size limit (DMRSL) in logical blocks, for hosts to keep to; 0: none.
    pub dmrsl: u32,
    /// Write Zeroes size limit (WZSL) as a power of two of 4 KiB pages, for hosts to keep to; 0: none.
    pub wzsl: u8,
    pub namespaces: Vec<N>,
}

impl<N> SubsystemConfig<N> {
    /// A subsystem any host may use, without namespaces.
    #[must_use]
    pub fn new(nqn: impl Into<String>) -> Self {
        SubsystemConfig {
            nqn: nqn.into(),
            serial: None,
            model: "Roadtrain".to_owned(),
            allowed_hosts: None,
            host_rates: BTreeMap::new(),
            listeners: None,
            cntlids: 1..=Limits::CNTLID_MAX,
            dmrsl: 0,
            wzsl: 0,
            namespaces: Vec::new(),
        }
    }

    /// Identifiers that its controllers have at a target with these limits; none, if it has none of the target's.
    #[must_use]
    pub fn cntlid_range(&self, limits: &Limits) -> RangeInclusive<u16> {
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
    /// Logical block size as a power of two: 9 (512 octets) or 12 (4 KiB).
    pub lba_shift: u8,
    /// Writes are refused.
    pub read_only: bool,
    /// What tells it from every other. `None`: derived from the subsystem's NQN and the NSID, which says nothing
    /// of the blocks; only for a target whose blocks have no identity.
    pub id: Option<NamespaceId>,
    /// Writes may sit in a volatile cache until they are flushed.
    pub volatile_cache: bool,
    /// Changes when acknowledged writes that were not flushed may be lost; `None`: hosts are not told.
    pub write_verifier: Option<u64>,
    /// Deallocated blocks read as zeroes until they are written.
    pub deallocated_reads_zero: bool,
    /// How to use the blocks well.
    pub limits: BlockLimits,
    /// There is a place for reservations that persist through power loss.
    pub keeps_reservations: bool,
    /// What it is in reach of this target at best, whatever the listener: inaccessible while another one has its blocks.
    pub ana: AnaState,
    /// How often its blocks have gone to another target or come from one. What that one has done with reservations is not
    /// known here, so those of an earlier number have ended. Hosts are not told.
    pub tenure: u64,
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
            write_verifier: None,
            deallocated_reads_zero: true,
            limits: BlockLimits::default(),
            keeps_reservations: false,
            ana: AnaState::Optimized,
            tenure: 0,
        }
    }
}

impl<N: Description> TargetConfig<N> {
    /// # Errors
    /// What is wrong first.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.limits.check()?;
        let mut nqns = BTreeSet::new();
        for subsystem in &self.subsystems {
            subsystem.check()?;
            subsystem.check_cntlids(&self.limits)?;
            if !nqns.insert(&subsystem.nqn) {
                return Err(ConfigError::Exists(Place::subsystem(&subsystem.nqn)));
            }
        }
        self.check_listeners()?;
        self.check_referrals()?;
        self.check_ana()?;
        self.check_identities()
    }

    /// No address and no port identifier may be there twice.
    fn check_listeners(&self) -> Result<(), ConfigError> {
        let clash = |one: &Listener, other: &Listener| {
            let is_there = one.address == other.address && one.address.port() != 0;
            is_there || one.portid == other.portid
        };
        let earlier = |at: usize| &self.listeners[..at];
        let mut listeners = self.listeners.iter().enumerate();
        let twice = listeners.find(|(at, one)| earlier(*at).iter().any(|other| clash(one, other)));
        twice.map_or(Ok(()), |(_, one)| Err(ConfigError::Exists(Place::Listener(one.address))))
    }

    /// Each leads to one place, and to another one.
    fn check_referrals(&self) -> Result<(), ConfigError> {
        for (at, address) in self.referrals.iter().enumerate() {
            let place = || Place::Referral(*address);
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

    /// A state is of a way that hosts can take.
    fn check_ana(&self) -> Result<(), ConfigError> {
        let stray = self.ana.stray(&self.listeners);
        stray.map_or(Ok(()), |listener| Err(ConfigError::Unknown(Place::Ana(listener))))
    }

    /// Listeners at `addresses`: those that are there already keep their numbers. Each asks for TLS as the configuration
    /// says now.
    #[must_use]
    pub fn listeners_at(&self, addresses: &[SocketAddr]) -> Vec<Listener> {
        let mut there = self.listeners.clone();
        let mut portids =
            (1..=u16::MAX).filter(|id| self.listeners.iter().all(|l| l.portid != *id));
        let listener = |&address: &SocketAddr| {
            let at = there.iter().position(|listener| listener.address == address);
            let tls = self.tls_at.get(&address).copied().unwrap_or(self.tls);
            let new =
                || Some(Listener { portid: portids.next()?, address, tls, named_only: false });
            at.map(|at| Listener { tls, ..there.remove(at) }).or_else(new)
        };
        addresses.iter().filter_map(listener).collect()
    }

    /// No UUID and no NGUID may be there twice, in whichever subsystems: hosts would write to either.
    fn check_identities(&self) -> Result<(), ConfigError> {
        let mut known: BTreeMap<[u8; 16], (&str, u32)> = BTreeMap::new();
        for subsystem in &self.subsystems {
            for namespace in &subsystem.namespaces {
                let here = (subsystem.nqn.as_str(), namespace.nsid());
                for half in namespace.id().iter().flat_map(|id| [id.uuid, id.nguid]) {
                    match known.insert(half, here) {
                        Some(other) if other != here => {
                            return Err(ConfigError::SameIdentity {
                                place: Place::namespace(here.0, here.1),
                                other: Place::namespace(other.0, other.1),
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

impl Limits {
    fn check(&self) -> Result<(), ConfigError> {
        let (queues, entries) = (self.io_queues_max, self.queue_entries_max);
        let (controllers, capsule) = (self.controllers_max, self.in_capsule_bytes_max);
        let (min, max) = (self.cntlid_min, self.cntlid_max);
        let fits = [
            ((1..0xffff).contains(&queues), "I/O queues", u32::from(queues), "1 to 65534"),
            (entries >= 32, "queue entries", entries.into(), "32 at least"),
            ((1..=Self::MDTS_MAX).contains(&self.mdts), "MDTS", self.mdts.into(), "1 to 8"),
            (capsule.is_multiple_of(16), "in-capsule octets", capsule, "a multiple of 16"),
            (min >= 1 && min <= max, "first controller identifier", min.into(), "1 to the last"),
            (max <= Self::CNTLID_MAX, "last controller identifier", max.into(), "at most 65519"),
            ((1..=0xffef).contains(&controllers), "controllers", controllers.into(), "1 to 65519"),
            (self.host_controllers_max >= 1, "controllers of a host", 0, "1 at least"),
            (self.host_queues_max >= 2, "queues of a host", self.host_queues_max, "2 at least"),
        ];
        let unfit = fits.iter().find(|(fits, ..)| !fits);
        unfit.map_or(Ok(()), |(_, field, value, hint)| {
            Err(ConfigError::invalid(Place::Limits, field, value, *hint))
        })
    }
}

impl<N: Description> SubsystemConfig<N> {
    /// # Errors
    /// What is wrong first.
    pub fn check(&self) -> Result<(), ConfigError> {
        let place = || Place::subsystem(&self.nqn);
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
                return Err(ConfigError::Exists(Place::namespace(&self.nqn, namespace.nsid())));
            }
        }
        let hosts = self.allowed_hosts.iter().flatten().chain(self.host_rates.keys());
        hosts.into_iter().try_for_each(|host| check_host(&self.nqn, host))
    }
}

impl<N> SubsystemConfig<N> {
    fn check_cntlids(&self, limits: &Limits) -> Result<(), ConfigError> {
        let (min, max) = (*self.cntlids.start(), *self.cntlids.end());
        let is_range = (1..=max).contains(&min) && max <= Limits::CNTLID_MAX;
        if is_range && !self.cntlid_range(limits).is_empty() {
            return Ok(());
        }
        let (first, last) = (limits.cntlid_min, limits.cntlid_max);
        let hint = format!("give at least one of those of the target, {first} to {last}");
        let value = format!("{min} to {max}");
        Err(ConfigError::invalid(Place::subsystem(&self.nqn), "controller IDs", value, hint))
    }
}

/// # Errors
/// What is wrong first with a namespace of subsystem `nqn`.
pub(super) fn check_namespace(nqn: &str, namespace: &impl Description) -> Result<(), ConfigError> {
    let (place, nsid) = (Place::namespace(nqn, namespace.nsid()), namespace.nsid());
    if nsid == 0 || nsid > NAMESPACES_MAX {
        let hint = format!("choose a number from 1 to {NAMESPACES_MAX}");
        return Err(ConfigError::invalid(place, "nsid", nsid, hint));
    }
    let unfit = namespace.check();
    unfit.map_err(|(field, value, hint)| ConfigError::invalid(place, field, value, hint))
}

/// # Errors
/// `host` is no NQN.
pub(super) fn check_host(nqn: &str, host: &str) -> Result<(), ConfigError> {
    check_nqn(|| Place::subsystem(nqn), "host", host)
}

fn check_nqn(place: impl Fn() -> Place, field: &'static str, nqn: &str) -> Result<(), ConfigError> {
    if is_nqn(nqn) {
        return Ok(());
    }
    let hint = "write nqn.2025-01.io.example:name (at most 223 octets)";
    Err(ConfigError::invalid(place(), field, format!("{nqn:?}"), hint))
}

/// The month of a name's date (`nqn.YYYY-MM.`), if there is no such month.
fn impossible_month(nqn: &str) -> Option<&str> {
    let (year, month) = nqn.strip_prefix("nqn.")?.get(..7)?.split_once('-')?;
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_date = year.len() == 4 && is_number(year) && is_number(month);
    (is_date && !("01"..="12").contains(&month)).then_some(month)
}

impl Description for NamespaceConfig {
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
            false => Err(format!("use whole blocks of {block} octets")),
        }
    }

    fn check(&self) -> Result<(), (&'static str, String, &'static str)> {
        let shift = self.lba_shift;
        let fits = [
            (shift == 9 || shift == 12, "block size", u64::from(shift), "use 512 or 4096 octets"),
            (self.blocks > 0, "blocks", self.blocks, "give it at least one block"),
            (self.blocks <= BLOCKS_MAX, "blocks", self.blocks, "use 2251799813685247 at most"),
        ];
        let unfit = fits.into_iter().find(|(fits, ..)| !fits);
        let unfit = unfit.map(|(_, field, value, hint)| (field, value.to_string(), hint));
        unfit.map_or_else(|| self.limits.check(shift), Err)
    }
}

//! Brings a controller up (NVMe Base 2.0, section 3.5.1): Connect, enable, Identify, queues, namespaces.

use super::blocking::BlockingQpair;
use super::config::HostConfig;
use super::error::{HostError, connect_hint};
use super::ether::Past;
use super::link::{Link, LinkError};
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::fabrics::{
    CNTLID_DYNAMIC, Connect, ConnectData, DISCOVERY_NQN, Property, PropertySize, cattr, property,
};
use roadtrain_wire::feature::{HOST_BEHAVIOR_BYTES, NumberOfQueues, SetFeatures, fid};
use roadtrain_wire::identify::{
    IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, NamespaceDescriptor, cns,
    namespace_descriptors, nsfeat,
};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::little_endian::U16;
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Entries of the admin queue.
const ADMIN_ENTRIES: u16 = 32;
/// Largest transfer used even if the controller takes more.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Octets of a command capsule without data.
const CAPSULE_BYTES: u32 = 64;
/// First wait before a busy controller is asked again; it doubles.
const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// Longest such wait.
const BUSY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// CC: enabled, 64-octet SQEs (2^6), 16-octet CQEs (2^4).
const CC_ENABLE: u32 = 1 | 6 << 16 | 4 << 20;
/// CC.SHN: normal shutdown.
const CC_SHUTDOWN: u32 = 1 << 14;
/// CSTS.SHST: shutdown complete.
const CSTS_SHUTDOWN_COMPLETE: u64 = 2 << 2;

/// UUID and EUI-64.
type Ids = ([u8; 16], [u8; 8]);

/// A namespace as the host sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// NSID.
    pub nsid: u32,
    /// Logical blocks.
    pub blocks: u64,
    /// Octets of a logical block.
    pub block_bytes: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// NGUID (zeroes: none).
    pub nguid: [u8; 16],
    /// UUID (zeroes: none).
    pub uuid: [u8; 16],
    /// EUI-64 (zeroes: none).
    pub eui64: [u8; 8],
    /// Preferred write granularity in blocks (1: none told), from the peer, so any number.
    pub preferred_write_blocks: u32,
    /// Preferred deallocate granularity in blocks, likewise.
    pub preferred_discard_blocks: u32,
    /// Optimal write size in blocks, likewise.
    pub optimal_write_blocks: u32,
}

impl NamespaceInfo {
    /// Whether both are the same blocks under the same addresses, as far as the target tells: a namespace may grow
    /// and shrink, but what identifies it stays.
    #[must_use]
    pub fn is_same(&self, other: &NamespaceInfo) -> bool {
        let ids = |n: &NamespaceInfo| (n.nguid, n.uuid, n.eui64, n.block_bytes);
        ids(self) == ids(other)
    }
}

/// What a controller said about itself.
#[derive(Clone, Debug)]
pub struct ControllerInfo {
    /// Controller identifier.
    pub cntlid: u16,
    /// Most octets of a read or write.
    pub transfer_bytes_max: u32,
    /// In-capsule data of an I/O command.
    pub in_capsule_bytes: u32,
    /// Entries of an I/O queue at most.
    pub queue_entries_max: u16,
    /// I/O queues granted.
    pub io_queues: u32,
    /// The Identify Controller page.
    pub identify: Box<IdentifyController>,
    /// Active namespaces.
    pub namespaces: Vec<NamespaceInfo>,
}

/// A connected admin queue.
pub struct Admin {
    pub(super) qpair: BlockingQpair,
    /// The controller's identifier.
    pub cntlid: u16,
    cap: u64,
}

impl Admin {
    /// Connects the admin queue of `config.subsystem_nqn` and enables the controller.
    ///
    /// # Errors
    /// Anything that keeps the controller from being ready.
    pub fn connect(config: &HostConfig) -> Result<Self, HostError> {
        Admin::connect_after(&mut Past::default(), config)
    }

    /// As [`Admin::connect`], after the connections of the `past`.
    pub(super) fn connect_after(past: &mut Past, config: &HostConfig) -> Result<Self, HostError> {
        let qpair = BlockingQpair::connect_admin(config, ADMIN_ENTRIES, past);
        let mut qpair = qpair.map_err(|source| unreachable(config, source))?;
        let kato_ms = u32::try_from(config.keep_alive.as_millis()).unwrap_or(u32::MAX);
        let connect = Connect { recfmt: 0, qid: 0, sqsize: ADMIN_ENTRIES - 1, cattr: 0, kato_ms };
        let cqe = connect_queue(&mut qpair, config, &connect, CNTLID_DYNAMIC)?;
        let mut admin = Admin { qpair, cntlid: cqe.dw0.get() as u16, cap: 0 };
        admin.enable(config.timeout)?;
        Ok(admin)
    }

    /// As [`Admin::connect`], but a controller that is busy is tried again for
    /// [`HostConfig::connect_timeout`]: it may still end commands of this host that an earlier connection left.
    ///
    /// # Errors
    /// As [`Admin::connect`].
    pub fn connect_patiently(config: &HostConfig) -> Result<Self, HostError> {
        let deadline = Instant::now() + config.connect_timeout;
        let mut pause = BUSY_PAUSE;
        loop {
            let error = match Admin::connect(config) {
                Err(error) if error.is_busy() => error,
                ended => return ended,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(error);
            }
            if pause == BUSY_PAUSE {
                info!(target = %config.address, "the controller is busy; trying again for {left:.0?}");
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(BUSY_PAUSE_MAX);
        }
    }

    fn enable(&mut self, timeout: Duration) -> Result<(), HostError> {
        self.cap = self.property(property::CAP, PropertySize::Eight)?;
        self.run("Property Set CC", &Property::set(property::CC, CC_ENABLE), &[], &mut [])?;
        // CAP.TO is in units of 500 ms.
        let ready_within = Duration::from_millis((self.cap >> 24 & 0xff) * 500).max(timeout);
        let deadline = Instant::now() + ready_within;
        loop {
            let csts = self.property(property::CSTS, PropertySize::Four)?;
            match csts {
                csts if csts & 2 != 0 => {
                    return Err(HostError::Controller("the controller has a fatal status".into()));
                }
                csts if csts & 1 != 0 => return Ok(()),
                _ if Instant::now() > deadline => {
                    let text = format!("the controller is not ready after {ready_within:?}");
                    return Err(HostError::Controller(text));
                }
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Runs an admin command that must succeed.
    ///
    /// # Errors
    /// The connection's, or its status.
    pub fn run(
        &mut self,
        what: &'static str,
        sqe: &Sqe,
        out: &[u8],
        input: &mut [u8],
    ) -> Result<Cqe, HostError> {
        let cqe = self.qpair.command(sqe, out, input);
        let cqe = cqe.map_err(|source| HostError::Lost { what, source })?;
        match cqe.status() {
            status if status.is_success() => Ok(cqe),
            status => Err(HostError::Command { what, status }),
        }
    }

    fn property(&mut self, offset: u32, size: PropertySize) -> Result<u64, HostError> {
        Ok(self.run("Property Get", &Property::get(offset, size), &[], &mut [])?.result())
    }

    /// An Identify page.
    ///
    /// # Errors
    /// As [`Admin::run`].
    pub fn identify(&mut self, cns: u8, nsid: u32) -> Result<Vec<u8>, HostError> {
        let mut sqe = Sqe::new(opcode::IDENTIFY, nsid);
        sqe.cdw10 = u32::from(cns).into();
        let mut page = vec![0; IDENTIFY_BYTES];
        self.run("Identify", &sqe, &[], &mut page)?;
        Ok(page)
    }

    /// The Identify Controller page.
    ///
    /// # Errors
    /// As [`Admin::run`].
    pub fn identify_controller(&mut self) -> Result<Box<IdentifyController>, HostError> {
        let page = self.identify(cns::CONTROLLER, 0)?;
        let identify = IdentifyController::read_from_bytes(&page);
        identify.map(Box::new).map_err(|_| HostError::Controller("short Identify page".into()))
    }

    /// Asks what the controller can do, for `io_queues` I/O queues.
    ///
    /// # Errors
    /// As [`Admin::run`].
    pub fn information(&mut self, io_queues: u32) -> Result<ControllerInfo, HostError> {
        let identify = self.identify_controller()?;
        self.heed_retry_delays(&identify)?;
        let wanted = NumberOfQueues { submission: io_queues, completion: io_queues };
        let set = SetFeatures::emit(fid::NUMBER_OF_QUEUES, wanted.emit());
        let granted = self.run("Set Features (queues)", &set, &[], &mut [])?.dw0.get();
        let granted = NumberOfQueues::parse(granted)
            .map_or(1, |queues| queues.submission.min(queues.completion));
        // MDTS is in pages of CAP.MPSMIN; 0 is no limit.
        let page_bytes = 4096u64 << (self.cap >> 48 & 0xf);
        let transfer_bytes_max = match identify.mdts {
            0 => TRANSFER_BYTES_MAX,
            mdts => (page_bytes << mdts.min(20)).min(TRANSFER_BYTES_MAX.into()) as u32,
        };
        let namespaces = self.namespaces()?;
        Ok(ControllerInfo {
            cntlid: self.cntlid,
            transfer_bytes_max: transfer_bytes_max.min(self.qpair.data_bytes_max()),
            in_capsule_bytes: (identify.ioccsz.get() * 16).saturating_sub(CAPSULE_BYTES),
            queue_entries_max: ((self.cap & 0xffff) + 1).min(1024) as u16,
            io_queues: io_queues.min(granted),
            identify,
            namespaces,
        })
    }

    /// A controller tells how long to wait before another try (CRD) only to hosts that say they heed it.
    fn heed_retry_delays(&mut self, identify: &IdentifyController) -> Result<(), HostError> {
        if identify.crdt.iter().all(|units| units.get() == 0) {
            return Ok(());
        }
        let mut data = [0; HOST_BEHAVIOR_BYTES];
        data[0] = 1; // ACRE
        let set = SetFeatures::emit(fid::HOST_BEHAVIOR, 0);
        match self.run("Set Features (host behavior)", &set, &data, &mut []) {
            Err(HostError::Command { .. }) => Ok(()), // then it tells none
            done => done.map(|_| ()),
        }
    }

    /// Asks for the command `cid` of queue `qid` to be aborted. Whether it is, its own completion says.
    ///
    /// # Errors
    /// As [`Admin::run`].
    pub(super) fn abort(&mut self, qid: u16, cid: u16) -> Result<(), HostError> {
        let mut sqe = Sqe::new(opcode::ABORT, 0);
        sqe.cdw10 = (u32::from(cid) << 16 | u32::from(qid)).into();
        self.run("Abort", &sqe, &[], &mut []).map(|_| ())
    }

    /// The active namespaces.
    ///
    /// # Errors
    /// As [`Admin::run`].
    pub fn namespaces(&mut self) -> Result<Vec<NamespaceInfo>, HostError> {
        let mut found = Vec::new();
        let mut after = 0;
        loop {
            let page = self.identify(cns::ACTIVE_NAMESPACES, after)?;
            let (ids, _) = page.as_chunks::<4>();
            let ids = ids.iter().map(|id| u32::from_le_bytes(*id)).take_while(|&id| id != 0);
            let before = found.len();
            for nsid in ids {
                if nsid <= after {
                    return Err(HostError::Controller("namespace list out of order".into()));
                }
                after = nsid;
                found.extend(self.namespace(nsid)?);
            }
            if found.len() - before < IDENTIFY_BYTES / 4 {
                return Ok(found);
            }
        }
    }

    fn namespace(&mut self, nsid: u32) -> Result<Option<NamespaceInfo>, HostError> {
        let page = self.identify(cns::NAMESPACE, nsid)?;
        let Ok(identify) = IdentifyNamespace::ref_from_bytes(&page) else { return Ok(None) };
        let Some(block_bytes) = identify.block_bytes().filter(|_| identify.is_active()) else {
            return Ok(None); // gone meanwhile, or of a format without use here
        };
        let Some((uuid, eui64)) = self.descriptors(nsid, identify.eui64)? else { return Ok(None) };
        let told = identify.nsfeat & nsfeat::OPTIMAL_IO != 0;
        let blocks = |field: U16| if told { u32::from(field.get()) + 1 } else { 1 };
        Ok(Some(NamespaceInfo {
            nsid,
            blocks: identify.nsze.get(),
            block_bytes,
            read_only: identify.is_read_only(),
            nguid: identify.nguid,
            uuid,
            eui64,
            preferred_write_blocks: blocks(identify.npwg),
            preferred_discard_blocks: blocks(identify.npdg),
            optimal_write_blocks: blocks(identify.nows),
        }))
    }

    /// The namespace's UUID, and its EUI-64 where Identify Namespace has not told it; `None` when it is gone.
    fn descriptors(&mut self, nsid: u32, eui64: [u8; 8]) -> Result<Option<Ids>, HostError> {
        let page = match self.identify(cns::NAMESPACE_DESCRIPTORS, nsid) {
            Ok(page) => page,
            Err(HostError::Command { status, .. }) if status.is(Status::INVALID_NAMESPACE) => {
                return Ok(None);
            }
            // An older controller has no such list, and says so for good.
            Err(HostError::Command { status, .. }) if status.is_dnr() => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut ids = ([0; 16], eui64);
        for descriptor in namespace_descriptors(&page) {
            match descriptor {
                NamespaceDescriptor::Uuid(uuid) => ids.0 = uuid,
                NamespaceDescriptor::Eui64(eui64) => ids.1 = eui64,
                _ => {}
            }
        }
        Ok(Some(ids))
    }

    /// Connects I/O queue `qid`, ready for a lane.
    ///
    /// # Errors
    /// The target's refusal, or the connection's.
    pub(super) fn connect_lane(
        &self,
        config: &HostConfig,
        info: &ControllerInfo,
        qid: u16,
    ) -> Result<Link, HostError> {
        let entries = config.queue_entries.min(info.queue_entries_max);
        let attempt = |flow_control| {
            let cattr = flow_control | config.class.to_cattr();
            let qpair = self.qpair.connect_lane(config, entries, qid - 1);
            let mut qpair = qpair.map_err(|source| unreachable(config, source))?;
            let connect = Connect { recfmt: 0, qid, sqsize: entries - 1, cattr, kato_ms: 0 };
            connect_queue(&mut qpair, config, &connect, info.cntlid)?;
            Ok(qpair)
        };
        let qpair = match attempt(cattr::DISABLE_SQ_FLOW_CONTROL) {
            Err(HostError::Refused { .. }) => attempt(0)?, // a target that insists on flow control
            other => other?,
        };
        if qpair.data_bytes_max() < info.transfer_bytes_max {
            let text = "the target gives an I/O queue less room for data than the admin queue";
            return Err(HostError::Controller(text.into()));
        }
        qpair
            .into_link(info.in_capsule_bytes, config.policy)
            .map_err(|source| HostError::Lost { what: "Connect", source })
    }

    /// Shuts the controller down in order.
    pub fn shut_down(mut self, timeout: Duration) {
        let cc = Property::set(property::CC, CC_ENABLE | CC_SHUTDOWN);
        match self.run("Property Set CC", &cc, &[], &mut []) {
            Ok(_) => {}
            Err(error @ HostError::Command { .. }) => {
                return warn!(
                    "the target is not shut down, what was written last may be lost: {error}"
                );
            }
            Err(_) => return,
        }
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            match self.property(property::CSTS, PropertySize::Four) {
                Ok(csts) if csts & 0xc == CSTS_SHUTDOWN_COMPLETE => break,
                Ok(_) => std::thread::sleep(Duration::from_millis(10)),
                Err(_) => return,
            }
        }
        self.qpair.close();
    }
}

fn unreachable(config: &HostConfig, source: LinkError) -> HostError {
    match source {
        LinkError::Refused(status) => {
            refused(config, format!("a lane to {}", config.subsystem_nqn), status)
        }
        source => HostError::Unreachable { address: config.address.clone(), source },
    }
}

fn connect_queue(
    qpair: &mut BlockingQpair,
    config: &HostConfig,
    connect: &Connect,
    cntlid: u16,
) -> Result<Cqe, HostError> {
    let data = ConnectData::new(config.host_id, cntlid, &config.subsystem_nqn, &config.host_nqn);
    let lost = |source: LinkError| HostError::Lost { what: "Connect", source };
    let cqe = qpair.command(&connect.emit(), data.as_bytes(), &mut []).map_err(lost)?;
    let status = cqe.status();
    if !status.is_success() {
        let queue = if connect.qid == 0 { "admin queue" } else { "I/O queue" };
        let what = format!("Connect of the {queue} to {}", config.subsystem_nqn);
        return Err(refused(config, what, status));
    }
    // Bits 17 and 18 of the result ask for authentication (AUTHREQ).
    if connect.qid == 0 && cqe.dw0.get() >> 17 & 3 != 0 && config.subsystem_nqn != DISCOVERY_NQN {
        let what = "Connect without authentication".into();
        return Err(refused(config, what, Status::AUTHENTICATION_REQUIRED));
    }
    Ok(cqe)
}

fn refused(config: &HostConfig, what: String, status: Status) -> HostError {
    let address = config.address.clone();
    HostError::Refused { address, what, status, hint: connect_hint(status) }
}

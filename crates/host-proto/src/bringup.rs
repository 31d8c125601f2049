//! Brings a controller up (NVMe Base 2.0, section 3.5.1) and shuts it down: Connect, enable, Identify, queues,
//! namespaces. Each is a part of a [procedure](super::procedure).

use super::authenticate;
pub use super::namespace_info::NamespaceInfo;
use super::namespace_scan::{self, identify};
use super::old_commands::OldCommands;
use super::procedure::{ControllerCommand, ProcedureDriver, ProcedureFailure};
pub use super::wants::Wants;
use core::time::Duration;
use roadtrain_proto::policy::Class;
use roadtrain_proto::security::TlsPsk;
use roadtrain_proto::security::dhchap::context_of;
use roadtrain_wire::cross_reset::{
    self, ControllerInstance, CrossResetEntry, IMMEDIATE, reset_flags, reset_status,
};
use roadtrain_wire::fabrics::{
    CNTLID_DYNAMIC, Connect, ConnectData, Property, PropertySize, cattr, property,
};
use roadtrain_wire::feature::{HOST_BEHAVIOR_BYTES, NumberOfQueues, SetFeatures, fid};
use roadtrain_wire::identify::{IdentifyController, cns, ctratt, oaes};
use roadtrain_wire::log::{GetLogPage, lid};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};

/// Entries of the admin queue.
const ADMIN_ENTRIES: u16 = 32;
/// Maximum entries of an I/O queue, even if the controller takes more.
const QUEUE_ENTRIES_MAX: u64 = 1024;
/// Maximum transfer size in bytes, even if the controller takes more.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Bytes of a command capsule without data.
const CAPSULE_BYTES: u32 = 64;
/// CC: enabled, 64-byte SQEs (2^6), 16-byte CQEs (2^4).
const CC_ENABLE: u32 = 1 | 6 << 16 | 4 << 20;
/// CC.SHN: normal shutdown.
const CC_SHUTDOWN: u32 = 1 << 14;
/// CSTS.SHST: shutdown complete.
const CSTS_SHUTDOWN_COMPLETE: u64 = 2 << 2;
/// Unit of KAS.
const KAS_UNIT: Duration = Duration::from_millis(100);
/// Pause between two reads of CSTS.
const CSTS_PAUSE: Duration = Duration::from_millis(10);

/// Maximum pause between two reads of a controller reset's status.
const RESET_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Outcome for a lost controller, known before another controller's lanes are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fencing {
    /// Ended by the target: its commands are not executed any more.
    Ended,
    /// Unknown to the target, but the target's process has the endpoint of the lost controller
    /// ([`IdentifyController::endpoint`]): that controller has ended.
    Replaced,
    /// Unknown to the target: it may live in another process.
    Unknown,
    /// Cross-Controller Reset is not supported.
    NotOffered,
    /// Refused by the target, for good.
    Refused(Status),
}

impl Fencing {
    /// True if no command that was sent to the controller is executed any more.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(self, Fencing::Ended | Fencing::Replaced)
    }
}

/// Properties of a controller.
#[derive(Clone, Debug)]
pub struct ControllerInfo {
    pub cntlid: u16,
    /// Maximum bytes of a read or write.
    pub transfer_bytes_max: u32,
    /// Maximum in-capsule data of an I/O command, in bytes.
    pub in_capsule_bytes: u32,
    /// Maximum entries of an I/O queue.
    pub queue_entries_max: u16,
    pub io_queues: u32,
    /// Additional I/O queues that the controller grants, for express connections.
    pub express_queues: u32,
    /// True if the target has required authentication on the admin queue.
    pub authenticated: bool,
    /// The Identify Controller page.
    pub identify: Box<IdentifyController>,
    pub namespaces: Vec<NamespaceInfo>,
}

/// Enabled controller.
#[derive(Clone, Debug)]
pub struct Enabled {
    pub cntlid: u16,
    /// Controller capabilities (CAP).
    pub cap: u64,
    /// Maximum bytes of data of one command on the admin queue's connection.
    pub data_bytes_max: u32,
    /// True if the target has required authentication on the admin queue.
    pub authenticated: bool,
    /// Negotiated PSK, if the host wants one.
    pub psk: Option<TlsPsk>,
}

/// Connects the admin queue and enables the controller. A host that wants a PSK negotiates it first, unless it has an
/// earlier one.
///
/// # Errors
/// Anything that keeps the controller from being ready.
pub async fn connect<E>(
    driver: &ProcedureDriver<E>,
    wants: &Wants,
    before: Option<TlsPsk>,
) -> Result<Enabled, ProcedureFailure<E>> {
    let psk = match before.filter(|_| wants.concatenates) {
        None if wants.concatenates => Some(make_psk(driver, wants).await?),
        before => before,
    };
    let data_bytes_max = driver.open(0, ADMIN_ENTRIES, 0, psk.as_ref()).await?;
    let outcome = connect_queue(driver, wants, &admin_queue(wants), CNTLID_DYNAMIC).await?;
    let authenticated = authenticate::admin_queue(driver, wants, outcome).await?;
    let cap = get_property(driver, property::CAP, PropertySize::Eight).await?;
    set_cc(driver, CC_ENABLE).await?;
    // CAP.TO is in units of 500 ms.
    let ready_within = Duration::from_millis((cap >> 24 & 0xff) * 500).max(wants.timeout);
    let deadline = driver.now() + ready_within;
    loop {
        match get_property(driver, property::CSTS, PropertySize::Four).await? {
            csts if csts & 2 != 0 => {
                return Err(ProcedureFailure::Controller(
                    "the controller has a fatal status".into(),
                ));
            }
            csts if csts & 1 != 0 => break,
            _ if driver.now() > deadline => {
                let text = format!("the controller is not ready after {ready_within:?}");
                return Err(ProcedureFailure::Controller(text));
            }
            _ => driver.pause(CSTS_PAUSE).await,
        }
    }
    Ok(Enabled { cntlid: outcome.0 as u16, cap, data_bytes_max, authenticated, psk })
}

fn admin_queue(wants: &Wants) -> Connect {
    let kato_ms = u32::try_from(wants.keep_alive.as_millis()).unwrap_or(u32::MAX);
    Connect { recfmt: 0, qid: 0, sqsize: ADMIN_ENTRIES - 1, cattr: 0, kato_ms }
}

/// Negotiates a PSK on a connection of its own, which the admin queue's connection then replaces.
async fn make_psk<E>(
    driver: &ProcedureDriver<E>,
    wants: &Wants,
) -> Result<TlsPsk, ProcedureFailure<E>> {
    driver.open(0, ADMIN_ENTRIES, 0, None).await?;
    let (result, _) = connect_queue(driver, wants, &admin_queue(wants), CNTLID_DYNAMIC).await?;
    authenticate::psk(driver, wants, result).await
}

/// Sends Connect. Returns its result, and the authentication context.
async fn connect_queue<E>(
    driver: &ProcedureDriver<E>,
    wants: &Wants,
    connect: &Connect,
    cntlid: u16,
) -> Result<(u32, [u8; 32]), ProcedureFailure<E>> {
    let qid = connect.qid;
    let data = ConnectData::new(wants.host_id, cntlid, &wants.subsystem_nqn, &wants.host_nqn);
    let sqe = connect.emit();
    let command = ControllerCommand {
        out: data.as_bytes().to_vec(),
        ..ControllerCommand::new("Connect", sqe)
    };
    let (cqe, _) = driver.command(qid, command).await?;
    let status = cqe.status();
    if !status.is_success() {
        return Err(ProcedureFailure::Refused { qid, status });
    }
    let result = cqe.dw0.get();
    Ok((result, context_of(&sqe, data.as_bytes(), result)))
}

async fn get_property<E>(
    driver: &ProcedureDriver<E>,
    offset: u32,
    size: PropertySize,
) -> Result<u64, ProcedureFailure<E>> {
    let get = ControllerCommand::new("Property Get", Property::get(offset, size));
    Ok(driver.run(get).await?.0.result())
}

async fn set_cc<E>(driver: &ProcedureDriver<E>, cc: u32) -> Result<(), ProcedureFailure<E>> {
    driver
        .run(ControllerCommand::new("Property Set CC", Property::set(property::CC, cc)))
        .await
        .map(|_| ())
}

/// Shuts the controller down normally.
///
/// # Errors
/// The connection fails, the controller refuses, or the timeout passes: the last written data may then be lost.
pub async fn shut_down<E>(
    driver: &ProcedureDriver<E>,
    timeout: Duration,
) -> Result<(), ProcedureFailure<E>> {
    set_cc(driver, CC_ENABLE | CC_SHUTDOWN).await?;
    let deadline = driver.now() + timeout;
    while get_property(driver, property::CSTS, PropertySize::Four).await? & 0xc
        != CSTS_SHUTDOWN_COMPLETE
    {
        if driver.now() >= deadline {
            let text = format!("the shutdown of the controller is not complete after {timeout:?}");
            return Err(ProcedureFailure::Controller(text));
        }
        driver.pause(CSTS_PAUSE).await;
    }
    Ok(())
}

/// Reads the controller's properties and requests `io_queues` I/O queues, and `express_queues` more for express
/// connections.
///
/// # Errors
/// The connection or a command fails.
pub async fn information<E>(
    driver: &ProcedureDriver<E>,
    enabled: &Enabled,
    io_queues: u32,
    express_queues: u32,
) -> Result<ControllerInfo, ProcedureFailure<E>> {
    let queue_entries_max = queue_entries_max(enabled.cap)?;
    let page = identify(driver, cns::CONTROLLER, 0).await?;
    let page = IdentifyController::read_from_bytes(&page);
    let identify = page.map_err(|_| ProcedureFailure::Controller("short Identify page".into()))?;
    heed_retry_delays(driver, &identify).await?;
    let count = io_queues + express_queues;
    let wanted = NumberOfQueues { submission: count, completion: count };
    let set = SetFeatures::emit(fid::NUMBER_OF_QUEUES, wanted.emit());
    let (cqe, _) = driver.run(ControllerCommand::new("Set Features (queues)", set)).await?;
    let granted = NumberOfQueues::parse(cqe.dw0.get())
        .map_or(1, |queues| queues.submission.min(queues.completion));
    // MDTS is in pages of CAP.MPSMIN; 0 is no limit.
    let page_bytes = 4096u64 << (enabled.cap >> 48 & 0xf);
    let transfer_bytes_max = match identify.mdts {
        0 => TRANSFER_BYTES_MAX,
        mdts => (page_bytes << mdts.min(20)).min(TRANSFER_BYTES_MAX.into()) as u32,
    };
    Ok(ControllerInfo {
        cntlid: enabled.cntlid,
        transfer_bytes_max: transfer_bytes_max.min(enabled.data_bytes_max),
        in_capsule_bytes: (identify.ioccsz.get() * 16).saturating_sub(CAPSULE_BYTES),
        queue_entries_max,
        io_queues: io_queues.min(granted),
        express_queues: granted.saturating_sub(io_queues).min(express_queues),
        authenticated: enabled.authenticated,
        identify: Box::new(identify),
        namespaces: namespace_scan::all(driver).await?,
    })
}

/// Returns the maximum entries of an I/O queue (CAP.MQES).
fn queue_entries_max<E>(cap: u64) -> Result<u16, ProcedureFailure<E>> {
    match ((cap & 0xffff) + 1).min(QUEUE_ENTRIES_MAX) as u16 {
        // One entry is always free, and the specification requires at least two.
        0..2 => {
            Err(ProcedureFailure::Controller("the controller has no room for an I/O queue".into()))
        }
        entries => Ok(entries),
    }
}

/// Enables retry delays: a controller reports them (CRD) only to hosts that declare support.
async fn heed_retry_delays<E>(
    driver: &ProcedureDriver<E>,
    identify: &IdentifyController,
) -> Result<(), ProcedureFailure<E>> {
    if identify.crdt.iter().all(|units| units.get() == 0) {
        return Ok(());
    }
    let mut out = vec![0; HOST_BEHAVIOR_BYTES];
    out[0] = 1; // ACRE
    let set = SetFeatures::emit(fid::HOST_BEHAVIOR, 0);
    let command =
        ControllerCommand { out, ..ControllerCommand::new("Set Features (host behavior)", set) };
    driver.command(0, command).await.map(|_| ()) // a controller that refuses it reports no delays
}

/// Returns the controller's instance, by which another controller can reset it; `None`: it reports none.
#[must_use]
pub fn instance(info: &ControllerInfo) -> Option<ControllerInstance> {
    let (cntlid, ciu, cirn) = (info.cntlid, info.identify.ciu, info.identify.cirn.get());
    (ciu != 0).then_some(ControllerInstance { cntlid, ciu, cirn })
}

/// Returns how long a controller may still execute commands after a host with this keep-alive timeout stops sending
/// (NVMe Base 2.1, section 9.6). Its timer expires, which it may notice one period late, or two with traffic-based keep
/// alive. Then its Command Quiesce Time passes. A controller rounds the timeout up to its granularity (KAS). `None`:
/// there is no timer.
#[must_use]
pub fn quiet_time(keep_alive: Duration, identify: &IdentifyController) -> Option<Duration> {
    let by_traffic = identify.ctratt.get() & ctratt::TRAFFIC_BASED_KEEP_ALIVE != 0;
    let periods = if by_traffic { 3 } else { 2 };
    let quiesce = Duration::from_millis(identify.cqt.get().into());
    let granule = u128::from(identify.kas.get().max(1)) * KAS_UNIT.as_nanos();
    let keep_alive_ns = keep_alive.as_nanos().next_multiple_of(granule);
    let keep_alive = Duration::from_nanos(u64::try_from(keep_alive_ns).unwrap_or(u64::MAX));
    (!keep_alive.is_zero()).then(|| keep_alive.saturating_mul(periods) + quiesce)
}

/// Has the target end an unreachable controller of this host, and waits until none of its commands can be executed any
/// more. `None`: this did not happen in time. While the reset is in progress, the controller is claimed.
///
/// # Errors
/// The connection fails.
pub async fn try_to_end<E>(
    driver: &ProcedureDriver<E>,
    patience: Duration,
    identify: &IdentifyController,
    lost: ControllerInstance,
    old: &OldCommands,
) -> Result<Option<Fencing>, ProcedureFailure<E>> {
    if identify.ccrl == 0 {
        return Ok(Some(Fencing::NotOffered));
    }
    let deadline = driver.now() + patience;
    let mut pause = CSTS_PAUSE;
    while driver.now() < deadline {
        let command = ControllerCommand::new("Cross-Controller Reset", lost.emit());
        let (cqe, _) = driver.command(0, command).await?;
        let status = cqe.status();
        if status.is_success() && cqe.dw0.get() & IMMEDIATE != 0 {
            return Ok(Some(Fencing::Ended));
        }
        let is_in_progress = status.is_success() || status.is(Status::CROSS_RESET_IN_PROGRESS);
        if !is_in_progress && status.is_dnr() {
            return Ok(Some(Fencing::Refused(status)));
        }
        old.claim(driver.now(), lost);
        // The log is read in any case: reading removes completed resets, which frees entries.
        while driver.now() < deadline {
            match reset_of(driver, lost).await? {
                Some((reset_status::SUCCEEDED, true)) => return Ok(Some(Fencing::Ended)),
                Some((reset_status::SUCCEEDED, false)) if old.is_at(lost, identify) => {
                    return Ok(Some(Fencing::Replaced));
                }
                Some((reset_status::SUCCEEDED, false)) => return Ok(Some(Fencing::Unknown)),
                Some((reset_status::IN_PROGRESS, _)) => old.claim(driver.now(), lost),
                _ => break,
            }
            driver.pause(pause.min(deadline.since(driver.now()))).await;
            pause = (pause * 2).min(RESET_PAUSE_MAX);
        }
        driver.pause(pause.min(deadline.since(driver.now()))).await;
    }
    old.claim(driver.now(), lost);
    Ok(None)
}

/// Returns the status of a controller's reset, and whether the target knew the controller; `None`: there is no reset.
async fn reset_of<E>(
    driver: &ProcedureDriver<E>,
    lost: ControllerInstance,
) -> Result<Option<(u8, bool)>, ProcedureFailure<E>> {
    let log = GetLogPage {
        lsp: cross_reset::REMOVE_COMPLETED,
        ..GetLogPage::new(lid::CROSS_CONTROLLER_RESET, cross_reset::LOG_BYTES as u32)
    };
    let command = ControllerCommand::new("Get Log Page (resets)", log.emit(u32::MAX));
    let command = ControllerCommand { bytes_in: cross_reset::LOG_BYTES as u32, ..command };
    let (_, page) = driver.run(command).await?;
    Ok(find_reset(&page, lost))
}

/// Finds the reset of a controller in a log page. Entries do not have its random number: of several candidates, the
/// least conclusive one counts.
fn find_reset(page: &[u8], lost: ControllerInstance) -> Option<(u8, bool)> {
    let is_it = |entry: &&CrossResetEntry| entry.icid.get() == lost.cntlid && entry.ciu == lost.ciu;
    let found = cross_reset::entries(page).iter().filter(is_it);
    let found = found.map(|entry| (entry.status, entry.flags & reset_flags::VALIDATED != 0));
    found.min_by_key(|&(status, is_valid)| (status != reset_status::IN_PROGRESS, is_valid))
}

/// Connects I/O queue `qid` for a lane.
///
/// # Errors
/// The target refuses, or the connection fails.
pub async fn connect_lane<E>(
    driver: &ProcedureDriver<E>,
    wants: &Wants,
    info: &ControllerInfo,
    qid: u16,
) -> Result<(), ProcedureFailure<E>> {
    let place = IoQueueParams { qid, lane: usize::from(qid) - 1, class: wants.class };
    connect_io(driver, wants, info, &place).await
}

/// Connects I/O queue `qid` as an express connection of a lane.
///
/// # Errors
/// As [`connect_lane`].
pub async fn connect_express<E>(
    driver: &ProcedureDriver<E>,
    wants: &Wants,
    info: &ControllerInfo,
    qid: u16,
    lane: usize,
) -> Result<(), ProcedureFailure<E>> {
    connect_io(driver, wants, info, &IoQueueParams { qid, lane, class: Class::Normal }).await
}

/// I/O queue, with its lane and class.
struct IoQueueParams {
    qid: u16,
    lane: usize,
    class: Class,
}

async fn connect_io<E>(
    driver: &ProcedureDriver<E>,
    wants: &Wants,
    info: &ControllerInfo,
    &IoQueueParams { qid, lane, class }: &IoQueueParams,
) -> Result<(), ProcedureFailure<E>> {
    let entries = wants.queue_entries.min(info.queue_entries_max);
    let mut flow_control = if wants.sq_flow_control { 0 } else { cattr::DISABLE_SQ_FLOW_CONTROL };
    loop {
        let data_bytes_max = driver.open(qid, entries, lane, None).await?;
        let cattr = flow_control | class.to_cattr();
        let connect = Connect { recfmt: 0, qid, sqsize: entries - 1, cattr, kato_ms: 0 };
        let outcome = match connect_queue(driver, wants, &connect, info.cntlid).await {
            Ok(_) if data_bytes_max < info.transfer_bytes_max => {
                let text = "the target gives an I/O queue less room for data than the admin queue";
                return Err(ProcedureFailure::Controller(text.into()));
            }
            // The target requires SQ flow control.
            Err(ProcedureFailure::Refused { status, .. })
                if flow_control != 0 && !status.is(Status::CONNECT_CONTROLLER_BUSY) =>
            {
                flow_control = 0;
                continue;
            }
            done => done?,
        };
        return authenticate::io_queue(driver, wants, info.authenticated, qid, outcome).await;
    }
}

/// Enables namespace events, and ANA events if `of_ana`. False if the controller has none, which is not an error.
///
/// # Errors
/// The connection fails.
pub async fn switch_events_on<E>(
    driver: &ProcedureDriver<E>,
    identify: &IdentifyController,
    of_ana: bool,
) -> Result<bool, ProcedureFailure<E>> {
    let wanted = oaes::NAMESPACE_ATTRIBUTE | if of_ana { oaes::ANA_CHANGE } else { 0 };
    let wanted = identify.oaes.get() & wanted;
    if wanted == 0 {
        return Ok(false);
    }
    let set = SetFeatures::emit(fid::ASYNC_EVENT_CONFIG, wanted);
    let (cqe, _) = driver.command(0, ControllerCommand::new("Set Features (events)", set)).await?;
    Ok(cqe.status().is_success())
}

/// Returns an Abort of command `cid` of queue `qid`. Only the command's own completion shows if it was aborted: the
/// controller may not know it, or not be able to abort it.
#[must_use]
pub fn abort(qid: u16, cid: u16) -> Sqe {
    let mut sqe = Sqe::new(opcode::ABORT, 0);
    sqe.cdw10 = (u32::from(cid) << 16 | u32::from(qid)).into();
    sqe
}

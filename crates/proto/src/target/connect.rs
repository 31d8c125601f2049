//! Connect: checks, and the controllers that come of it (NVMe Base 2.1, section 6.3).

use super::aborts::Aborts;
use super::ana::AnaOfController;
use super::authentication::Asked;
use super::control::Target;
use super::controller::{Controller, ControllerShared};
use super::events::Events;
use super::feature_values::Features;
use super::identify;
use super::keep_alive::KeepAlive;
use super::kind::ControllerKind;
use super::listen;
use super::property::{Issuer, Properties};
use super::removed::RemovedNamespaces;
use super::reservations::Notices;
use super::resets::Resets;
use super::stability::User;
use crate::policy::Class;
use crate::security::dhchap::{Concatenation, context_of};
use crate::security::{Channel, SecuredAs};
use crate::time::Instant;
use core::mem::offset_of;
use core::net::SocketAddr;
use core::time::Duration;
use roadtrain_wire::fabrics::{
    AUTHREQ_ASCR, AUTHREQ_ATR, CNTLID_DYNAMIC, Connect, ConnectData, DISCOVERY_NQN, NQN_BYTES_MAX,
    cattr, parse_nqn,
};
use roadtrain_wire::sqe::{FLAG_SGL, Sqe};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thiserror::Error;

const OCTET_QID: u8 = 42;
const OCTET_SQSIZE: u8 = 44;

/// A queue that was connected.
#[derive(Clone, Debug)]
pub struct Connected {
    pub cntlid: u16,
    /// The queue: 0 is the admin queue.
    pub qid: u16,
    /// Entries of the submission queue.
    pub entries: u16,
    /// Whether completions carry SQHD; when not, it is FFFFh in the answer to Connect.
    pub sq_flow_control: bool,
    /// Class of the queue's commands, unless they or their namespace say otherwise.
    pub class: Class,
    pub kind: ControllerKind,
    /// The controller's keep-alive timeout; zero when it has none.
    pub keep_alive: Duration,
    /// NQN of the subsystem.
    pub subnqn: Arc<str>,
    /// NQN of the host.
    pub hostnqn: Arc<str>,
    pub hostid: [u8; 16],
    /// The HOSTID that the Connect of an I/O queue has named, where that is not the controller's; only the first time.
    pub other_hostid: Option<[u8; 16]>,
    /// What lanes and control plane share.
    pub shared: Arc<ControllerShared>,
    /// What the host has to prove before the queue executes commands.
    pub asked: Option<Asked>,
    /// What was said so far: part of what the keys of sealed frames are derived of.
    pub context: [u8; 32],
    /// DW0 of the completion.
    pub result: u32,
}

impl Connected {
    /// The controller as stores know it.
    #[must_use]
    pub fn user(&self) -> User {
        User { cntlid: self.cntlid, hostid: self.hostid, hostnqn: self.hostnqn.clone() }
    }
}

/// Why a queue was not connected: what to answer, and what to tell whoever looks after the target.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} {value}: {status}")]
pub struct ConnectRefused {
    /// Status of the completion, Do Not Retry included.
    pub status: Status,
    /// DW0 of the completion: which parameter is wrong (IPO, IATTR).
    pub result: u32,
    /// Name of the field that is to blame.
    pub field: &'static str,
    /// Its value, fit for a log whatever the host has sent.
    pub value: String,
}

impl ConnectRefused {
    /// `status`, blaming a field that the completion does not name.
    pub(super) fn new(status: Status, field: &'static str, value: impl ToString) -> Self {
        ConnectRefused { status: status.dnr(), result: 0, field, value: value.to_string() }
    }

    /// Connect Invalid Parameters, blaming `octet` of the command.
    fn command(octet: u8, field: &'static str, value: impl ToString) -> Self {
        let status = Status::CONNECT_INVALID_PARAMETERS;
        ConnectRefused { result: octet.into(), ..ConnectRefused::new(status, field, value) }
    }

    /// Connect Invalid Parameters, blaming `octet` of the data (IATTR set).
    fn data(octet: usize, field: &'static str, value: impl ToString) -> Self {
        let status = Status::CONNECT_INVALID_PARAMETERS;
        ConnectRefused {
            result: octet as u32 | 1 << 16,
            ..ConnectRefused::new(status, field, value)
        }
    }
}

/// A name as the host has sent it: printable, and no longer than an NQN may be.
fn show_name(field: &[u8; 256]) -> String {
    let end = field.iter().position(|&octet| octet == 0).unwrap_or(NQN_BYTES_MAX);
    format!("\"{}\"", field[..end.min(NQN_BYTES_MAX)].escape_ascii())
}

/// How logs call a host.
#[must_use]
pub fn host_name(hostnqn: &str) -> &str {
    if hostnqn.is_empty() { "anonymous" } else { hostnqn }
}

/// Authentication requirements of a Connect's completion. Hosts take the second bit as an order to make a PSK.
fn requirements(asked: Option<&Asked>) -> u32 {
    match asked.map(|asked| asked.concatenation) {
        None => 0,
        Some(Concatenation::Required) => AUTHREQ_ATR | AUTHREQ_ASCR,
        Some(_) => AUTHREQ_ATR,
    }
}

/// Connect data whose names are well formed.
struct Names<'a> {
    subnqn: &'a str,
    /// Empty for an anonymous host: some hosts have no name unless they are given one.
    hostnqn: &'a str,
    hostid: [u8; 16],
    cntlid: u16,
}

impl<'a> Names<'a> {
    fn parse(data: &'a ConnectData) -> Result<Self, ConnectRefused> {
        let subnqn = parse_nqn(&data.subnqn).ok_or_else(|| bad_subnqn(data))?;
        let hostnqn = match data.hostnqn[0] {
            0 => "",
            _ => parse_nqn(&data.hostnqn).ok_or_else(|| bad_hostnqn(data))?,
        };
        Ok(Names { subnqn, hostnqn, hostid: data.hostid, cntlid: data.cntlid.get() })
    }
}

fn bad_subnqn(data: &ConnectData) -> ConnectRefused {
    ConnectRefused::data(offset_of!(ConnectData, subnqn), "SUBNQN", show_name(&data.subnqn))
}

fn bad_hostnqn(data: &ConnectData) -> ConnectRefused {
    ConnectRefused::data(offset_of!(ConnectData, hostnqn), "HOSTNQN", show_name(&data.hostnqn))
}

fn bad_cntlid(cntlid: u16) -> ConnectRefused {
    ConnectRefused::data(offset_of!(ConnectData, cntlid), "CNTLID", cntlid)
}

/// Whether `data` names the host and the subsystem that the stream was secured with.
///
/// # Errors
/// The field that says another one.
pub(super) fn check_names(secured_as: &SecuredAs, data: &[u8]) -> Result<(), ConnectRefused> {
    // Data that is none is refused later.
    let Ok(data) = ConnectData::ref_from_bytes(data) else { return Ok(()) };
    let other = |status, field, value: &[u8; 256], name: &str| {
        let value = format!("{}, but its TLS key is that of {name}", show_name(value));
        Err(ConnectRefused::new(status, field, value))
    };
    if parse_nqn(&data.hostnqn) != Some(&*secured_as.hostnqn) {
        let status = Status::CONNECT_INVALID_HOST;
        return other(status, "HOSTNQN", &data.hostnqn, &secured_as.hostnqn);
    }
    if parse_nqn(&data.subnqn) != Some(&*secured_as.subnqn) {
        let status = Status::CONNECT_INVALID_PARAMETERS;
        return other(status, "SUBNQN", &data.subnqn, &secured_as.subnqn);
    }
    Ok(())
}

impl Target {
    /// [`Target::connect_over`] a connection that is plain, where nothing is left of others.
    ///
    /// # Errors
    /// As that one.
    pub fn connect(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data: &[u8],
        local: SocketAddr,
        random: u64,
    ) -> Result<Connected, ConnectRefused> {
        self.connect_over(Channel::Plain, now, sqe, data, (local, random), |_| false)
    }

    /// The first command of a connection, which must be Connect with its 1,024 octets of data in the
    /// capsule. `local` is our address as the host has reached it; `random` is a number that nobody can guess. `remains`
    /// says whether there is a connection of a controller that may be gone; see [`Presences::remains_of_any`].
    ///
    /// [`Presences::remains_of_any`]: super::presence::Presences::remains_of_any
    ///
    /// # Errors
    /// The status and DW0 to answer with; the queue is not connected.
    pub fn connect_over(
        &mut self,
        channel: Channel<'_>,
        now: Instant,
        sqe: &Sqe,
        data: &[u8],
        (local, random): (SocketAddr, u64),
        remains: impl Fn(u16) -> bool,
    ) -> Result<Connected, ConnectRefused> {
        if sqe.flags != FLAG_SGL {
            return Err(ConnectRefused::new(Status::INVALID_FIELD, "PSDT and FUSE", sqe.flags));
        }
        let connect = Connect::parse(sqe);
        if connect.recfmt != 0 {
            let status = Status::CONNECT_INCOMPATIBLE_FORMAT;
            return Err(ConnectRefused::new(status, "RECFMT", connect.recfmt));
        }
        let length = data.len();
        let data = ConnectData::ref_from_bytes(data).map_err(|_| {
            let status = Status::DATA_SGL_LENGTH_INVALID;
            ConnectRefused::new(status, "octets of data", length)
        })?;
        let names = Names::parse(data)?;
        if connect.sqsize == 0 || connect.sqsize >= self.config.limits.queue_entries_max {
            return Err(ConnectRefused::command(OCTET_SQSIZE, "SQSIZE", connect.sqsize));
        }
        self.check_listener(local, &names, data)?;
        let (cntlid, other_hostid) = match connect.qid {
            0 => {
                let from = (local, random);
                (self.connect_admin(now, &connect, (data, &names), from, remains)?, None)
            }
            qid => self.connect_io(now, qid, data, &names)?,
        };
        // The two functions above return controllers that are there.
        let missing = || ConnectRefused::new(Status::INTERNAL_ERROR, "CNTLID", cntlid);
        let controller = self.controllers.get(&cntlid).ok_or_else(missing)?;
        let asked = self.asks(controller, channel, connect.qid);
        let result = u32::from(cntlid) | requirements(asked.as_ref());
        let context = match asked {
            Some(_) => context_of(sqe, data.as_bytes(), result),
            None => [0; 32],
        };
        Ok(Connected {
            cntlid,
            qid: connect.qid,
            entries: connect.sqsize + 1,
            sq_flow_control: connect.cattr & cattr::DISABLE_SQ_FLOW_CONTROL == 0,
            class: Class::from_cattr(connect.cattr),
            kind: controller.kind,
            keep_alive: Duration::from_millis(controller.keep_alive.kato_ms().into()),
            subnqn: controller.subnqn.clone(),
            hostnqn: controller.hostnqn.clone(),
            hostid: controller.hostid,
            other_hostid,
            shared: controller.shared.clone(),
            result,
            context,
            asked,
        })
    }

    /// What a new queue's host is asked for. One that has made its PSK has proved who it is.
    fn asks(&self, controller: &Controller, channel: Channel<'_>, qid: u16) -> Option<Asked> {
        if matches!(channel, Channel::Secured(by) if by.by_generated) {
            return None;
        }
        let is_discovery = controller.kind == ControllerKind::Discovery;
        let (authentication, subnqn) = (&self.config.authentication, &controller.subnqn);
        let concatenation = authentication.concatenation(channel, qid, subnqn);
        authentication.asks(&controller.hostnqn, subnqn, is_discovery, concatenation)
    }

    fn connect_admin(
        &mut self,
        now: Instant,
        connect: &Connect,
        (data, names): (&ConnectData, &Names<'_>),
        (local, random): (SocketAddr, u64),
        remains: impl Fn(u16) -> bool,
    ) -> Result<u16, ConnectRefused> {
        let kind = self.kind_of(data, names)?;
        if names.cntlid != CNTLID_DYNAMIC {
            return Err(bad_cntlid(names.cntlid));
        }
        // Another try may find a controller free: no Do Not Retry.
        let status = Status::CONNECT_CONTROLLER_BUSY;
        let count = self.controllers.len();
        let busy = || ConnectRefused {
            status,
            ..ConnectRefused::new(
                status,
                "controllers in use",
                format!("{count}, --max-controllers and --cntlid-range say how many may be"),
            )
        };
        self.check_share(names.hostnqn, true)?;
        let cntlid = self.allocate_cntlid(remains).ok_or_else(busy)?;
        let keep_alive = match kind {
            ControllerKind::Io => KeepAlive::new(now, connect.kato_ms),
            ControllerKind::Discovery => KeepAlive::of_discovery(now, connect.kato_ms),
        };
        let issuer = *self.issuer.get_or_insert_with(|| Issuer::new(random));
        let controller = Controller {
            cntlid,
            kind,
            subnqn: names.subnqn.into(),
            hostnqn: names.hostnqn.into(),
            hostid: names.hostid,
            has_other_hostids: false,
            local,
            shared: Arc::default(),
            properties: Properties::new(cntlid, random, issuer),
            keep_alive,
            features: Features::default(),
            events: Events::new(identify::optional_events(kind)),
            changed: BTreeSet::new(),
            removed: RemovedNamespaces::default(),
            genctr_seen: 0,
            queues: BTreeSet::new(),
            draining: 0,
            quiescing: None,
            aborts: Aborts::default(),
            resets: Resets::default(),
            notices: Notices::default(),
            persisting: BTreeMap::new(),
            ana: AnaOfController::new(self.ana_of(names.subnqn, local)),
        };
        if let Some(subsystem) = self.subsystems.get_mut(names.subnqn) {
            subsystem.attach(cntlid, controller.shared.clone());
        }
        self.set_timer(controller.keep_alive.deadline());
        self.controllers.insert(cntlid, controller);
        Ok(cntlid)
    }

    /// Whether a host may have one more queue, for a new controller or an old one. Hosts without a name are not one
    /// host: their addresses bound them.
    fn check_share(&self, hostnqn: &str, is_new: bool) -> Result<(), ConnectRefused> {
        if hostnqn.is_empty() {
            return Ok(());
        }
        let own = self.controllers.values().filter(|c| *c.hostnqn == *hostnqn);
        let (controllers, queues) = own.fold((0, 0), |(controllers, queues), c| {
            (controllers + 1, queues + 1 + c.queues.len())
        });
        let (field, count, option) = if queues >= self.config.limits.host_queues_max as usize {
            ("connections of the host", queues, "--max-connections-per-host")
        } else if is_new && controllers >= usize::from(self.config.limits.host_controllers_max) {
            ("controllers of the host", controllers, "--max-controllers-per-host")
        } else {
            return Ok(());
        };
        // Another try may find room: no Do Not Retry.
        let status = Status::CONNECT_CONTROLLER_BUSY;
        let value = format!("{count}, {option} says how many may be");
        Err(ConnectRefused { status, ..ConnectRefused::new(status, field, value) })
    }

    /// The kind of controller the subsystem has, if the host may connect to it.
    fn kind_of(
        &self,
        data: &ConnectData,
        names: &Names<'_>,
    ) -> Result<ControllerKind, ConnectRefused> {
        if names.subnqn == DISCOVERY_NQN {
            return Ok(ControllerKind::Discovery);
        }
        let subsystem = self.subsystems.get(names.subnqn);
        let subsystem = subsystem.ok_or_else(|| bad_subnqn(data))?;
        if !subsystem.allows(names.hostnqn) {
            let status = Status::CONNECT_INVALID_HOST.dnr();
            return Err(ConnectRefused { status, ..bad_hostnqn(data) });
        }
        Ok(ControllerKind::Io)
    }

    /// Whether the host's subsystem can be reached where the host has come in.
    fn check_listener(
        &self,
        local: SocketAddr,
        names: &Names<'_>,
        data: &ConnectData,
    ) -> Result<(), ConnectRefused> {
        let Some(subsystem) = self.subsystems.get(names.subnqn) else { return Ok(()) };
        let way = listen::way(subsystem.listeners.as_ref(), &self.config.listeners, local);
        if way.is_some() {
            return Ok(());
        }
        let status = Status::CONNECT_INVALID_HOST.dnr();
        let value = format!("{}, which has no listener at {local}", show_name(&data.subnqn));
        Err(ConnectRefused { status, value, ..bad_subnqn(data) })
    }

    /// The controller, and the HOSTID if that is another one than the controller's for the first time: some hosts make
    /// one for each Connect, and other targets take them. What counts is the admin queue's.
    fn connect_io(
        &mut self,
        now: Instant,
        qid: u16,
        data: &ConnectData,
        names: &Names<'_>,
    ) -> Result<(u16, Option<[u8; 16]>), ConnectRefused> {
        let io_queues_max = self.config.limits.io_queues_max;
        let controller = self.controllers.get_mut(&names.cntlid);
        let controller = controller.ok_or_else(|| bad_cntlid(names.cntlid))?;
        if *controller.subnqn != *names.subnqn {
            return Err(bad_subnqn(data));
        }
        if *controller.hostnqn != *names.hostnqn {
            return Err(bad_hostnqn(data));
        }
        if controller.kind == ControllerKind::Discovery || qid > io_queues_max {
            return Err(ConnectRefused::command(OCTET_QID, "QID", qid));
        }
        let sequence = Status::COMMAND_SEQUENCE_ERROR;
        if !controller.properties.is_ready() {
            let value = format!("{} of a controller that is not ready", names.cntlid);
            return Err(ConnectRefused::new(sequence, "CNTLID", value));
        }
        if controller.queues.contains(&qid) {
            let value = format!("{qid}, which is connected");
            return Err(ConnectRefused::new(sequence, "QID", value));
        }
        self.check_share(names.hostnqn, false)?;
        let Some(controller) = self.controllers.get_mut(&names.cntlid) else {
            return Err(bad_cntlid(names.cntlid));
        };
        controller.queues.insert(qid);
        controller.keep_alive.restart(now);
        let is_other = controller.hostid != names.hostid;
        let is_first = is_other && !core::mem::replace(&mut controller.has_other_hostids, true);
        Ok((controller.cntlid, is_first.then_some(names.hostid)))
    }

    /// The next identifier in turn: one that was in use is not used again for long, nor while a connection `remains` of
    /// its last owner, so that what was meant for that one, or comes from it, does not reach the next one.
    fn allocate_cntlid(&mut self, remains: impl Fn(u16) -> bool) -> Option<u16> {
        let limits = &self.config.limits;
        if self.controllers.len() >= usize::from(limits.cntlids()) {
            return None;
        }
        let next = |last: u16| match last.checked_add(1) {
            Some(next) if limits.has_cntlid(next) => next,
            _ => limits.cntlid_min,
        };
        let is_free = |cntlid: &u16| !self.controllers.contains_key(cntlid) && !remains(*cntlid);
        let mut all =
            core::iter::successors(Some(next(self.cntlid_last)), |last| Some(next(*last)));
        let there = usize::from(limits.cntlid_max - limits.cntlid_min) + 1;
        self.cntlid_last = all.by_ref().take(there).find(is_free)?;
        Some(self.cntlid_last)
    }
}

//! Connect: checks, and the controllers that come of it (NVMe Base 2.1, section 6.3).

use super::control::Target;
use super::controller::{Controller, ControllerKind, ControllerShared};
use super::error_log::ErrorLog;
use super::events::Events;
use super::features::Features;
use super::identify;
use super::keep_alive::KeepAlive;
use super::property::Properties;
use crate::error::CommandError;
use crate::policy::Class;
use crate::time::Instant;
use core::mem::offset_of;
use core::net::SocketAddr;
use core::time::Duration;
use roadtrain_wire::fabrics::{
    CNTLID_DYNAMIC, Connect, ConnectData, DISCOVERY_NQN, cattr, parse_nqn,
};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::FromBytes;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Largest controller identifier; those above are reserved.
const CNTLID_MAX: u16 = 0xffef;

const OCTET_RECFMT: u8 = 40;
const OCTET_QID: u8 = 42;
const OCTET_SQSIZE: u8 = 44;

/// A queue that was connected.
#[derive(Clone, Debug)]
pub struct Connected {
    /// Its controller.
    pub cntlid: u16,
    /// The queue: 0 is the admin queue.
    pub qid: u16,
    /// Entries of the submission queue.
    pub entries: u16,
    /// Whether completions carry SQHD; when not, it is FFFFh in the answer to Connect.
    pub sq_flow_control: bool,
    /// Class of the queue's commands, unless they or their namespace say otherwise.
    pub class: Class,
    /// Kind of its controller.
    pub kind: ControllerKind,
    /// The controller's keep-alive timeout; zero when it has none.
    pub keep_alive: Duration,
    /// NQN of the subsystem.
    pub subnqn: Arc<str>,
    /// NQN of the host.
    pub hostnqn: Arc<str>,
    /// What lanes and control plane share.
    pub shared: Arc<ControllerShared>,
    /// DW0 of the completion.
    pub result: u32,
}

/// Connect Invalid Parameters, blaming `octet` of the command.
fn bad_field(octet: u8) -> CommandError {
    CommandError {
        result: octet.into(),
        ..CommandError::at(Status::CONNECT_INVALID_PARAMETERS, octet)
    }
}

/// `status`, blaming `octet` of the data (IATTR set).
fn bad_data(status: Status, octet: usize) -> CommandError {
    CommandError { result: octet as u32 | 1 << 16, ..CommandError::new(status) }
}

fn bad_parameter(octet: usize) -> CommandError {
    bad_data(Status::CONNECT_INVALID_PARAMETERS, octet)
}

/// Connect data whose names are well formed.
struct Names<'a> {
    subnqn: &'a str,
    hostnqn: &'a str,
    hostid: [u8; 16],
    cntlid: u16,
}

impl<'a> Names<'a> {
    fn parse(data: &'a ConnectData) -> Result<Self, CommandError> {
        let nqn = |field, octet| parse_nqn(field).ok_or(bad_parameter(octet));
        Ok(Names {
            subnqn: nqn(&data.subnqn, offset_of!(ConnectData, subnqn))?,
            hostnqn: nqn(&data.hostnqn, offset_of!(ConnectData, hostnqn))?,
            hostid: data.hostid,
            cntlid: data.cntlid.get(),
        })
    }
}

impl Target {
    /// The first command of a connection, which must be Connect with its 1,024 octets of data in the
    /// capsule. `local` is our address as the host has reached it.
    ///
    /// # Errors
    /// The status and DW0 to answer with; the queue is not connected.
    pub fn connect(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data: &[u8],
        local: SocketAddr,
    ) -> Result<Connected, CommandError> {
        let connect = Connect::parse(sqe);
        if connect.recfmt != 0 {
            let status = Status::CONNECT_INCOMPATIBLE_FORMAT;
            return Err(CommandError::at(status, OCTET_RECFMT));
        }
        let data = ConnectData::ref_from_bytes(data)
            .map_err(|_| CommandError::new(Status::DATA_SGL_LENGTH_INVALID))?;
        let names = Names::parse(data)?;
        if connect.sqsize == 0 || connect.sqsize >= self.limits.queue_entries_max {
            return Err(bad_field(OCTET_SQSIZE));
        }
        let cntlid = match connect.qid {
            0 => self.connect_admin(now, &connect, &names, local)?,
            qid => self.connect_io(now, qid, &names)?,
        };
        let controller = self.controllers.get(&cntlid).ok_or(CommandError::new(
            Status::INTERNAL_ERROR, // the two functions above return controllers that are there
        ))?;
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
            shared: controller.shared.clone(),
            result: cntlid.into(),
        })
    }

    fn connect_admin(
        &mut self,
        now: Instant,
        connect: &Connect,
        names: &Names<'_>,
        local: SocketAddr,
    ) -> Result<u16, CommandError> {
        let kind = self.kind_of(names)?;
        if names.cntlid != CNTLID_DYNAMIC {
            return Err(bad_parameter(offset_of!(ConnectData, cntlid)));
        }
        // Another try may find a controller free: no Do Not Retry.
        let busy = CommandError {
            status: Status::CONNECT_CONTROLLER_BUSY,
            ..CommandError::new(Status::CONNECT_CONTROLLER_BUSY)
        };
        let cntlid = self.allocate_cntlid().ok_or(busy)?;
        let keep_alive = match kind {
            ControllerKind::Io => KeepAlive::new(now, connect.kato_ms),
            ControllerKind::Discovery => KeepAlive::of_discovery(now, connect.kato_ms),
        };
        let controller = Controller {
            cntlid,
            kind,
            subnqn: names.subnqn.into(),
            hostnqn: names.hostnqn.into(),
            hostid: names.hostid,
            local,
            shared: Arc::default(),
            properties: Properties::default(),
            keep_alive,
            features: Features::default(),
            events: Events::new(identify::optional_events(kind)),
            errors: ErrorLog::default(),
            changed: BTreeSet::new(),
            genctr_seen: 0,
            queues: BTreeSet::new(),
        };
        if let Some(subsystem) = self.subsystems.get_mut(names.subnqn) {
            subsystem.attach(cntlid, controller.shared.clone());
        }
        self.set_timer(controller.keep_alive.deadline());
        self.controllers.insert(cntlid, controller);
        Ok(cntlid)
    }

    /// The kind of controller the subsystem has, if the host may connect to it.
    fn kind_of(&self, names: &Names<'_>) -> Result<ControllerKind, CommandError> {
        if names.subnqn == DISCOVERY_NQN {
            return Ok(ControllerKind::Discovery);
        }
        let subsystem = self.subsystems.get(names.subnqn);
        let subsystem = subsystem.ok_or(bad_parameter(offset_of!(ConnectData, subnqn)))?;
        if !subsystem.allows(names.hostnqn) {
            let octet = offset_of!(ConnectData, hostnqn);
            return Err(bad_data(Status::CONNECT_INVALID_HOST, octet));
        }
        Ok(ControllerKind::Io)
    }

    fn connect_io(
        &mut self,
        now: Instant,
        qid: u16,
        names: &Names<'_>,
    ) -> Result<u16, CommandError> {
        let io_queues_max = self.limits.io_queues_max;
        let controller = self.controllers.get_mut(&names.cntlid);
        let controller = controller.ok_or(bad_parameter(offset_of!(ConnectData, cntlid)))?;
        if *controller.subnqn != *names.subnqn {
            return Err(bad_parameter(offset_of!(ConnectData, subnqn)));
        }
        if *controller.hostnqn != *names.hostnqn {
            return Err(bad_parameter(offset_of!(ConnectData, hostnqn)));
        }
        if controller.hostid != names.hostid {
            return Err(bad_parameter(offset_of!(ConnectData, hostid)));
        }
        if controller.kind == ControllerKind::Discovery || qid > io_queues_max {
            return Err(bad_field(OCTET_QID));
        }
        if !controller.properties.is_ready() || controller.queues.contains(&qid) {
            return Err(CommandError::at(Status::COMMAND_SEQUENCE_ERROR, OCTET_QID));
        }
        controller.queues.insert(qid);
        controller.keep_alive.restart(now);
        Ok(controller.cntlid)
    }

    /// The next identifier in turn: one that was in use is not used again for long, so that what was
    /// meant for its last owner does not reach the next one.
    fn allocate_cntlid(&mut self) -> Option<u16> {
        if self.controllers.len() >= usize::from(self.limits.controllers_max) {
            return None;
        }
        loop {
            self.cntlid_last =
                if self.cntlid_last >= CNTLID_MAX { 1 } else { self.cntlid_last + 1 };
            if !self.controllers.contains_key(&self.cntlid_last) {
                return Some(self.cntlid_last);
            }
        }
    }
}

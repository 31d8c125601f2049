//! Connect: checks, and claims of controllers (NVMe Base 2.1, section 6.3).

use super::authentication::AuthenticationRequirement;
use super::carrier::Carrier;
use super::connected::{
    ConnectNames, ConnectRefused, ConnectedQueue, QueueClaim, bad_cntlid, no_controller_left,
    quoted, show_name,
};
use super::control::TargetControl;
use super::keep_alive::KeepAlive;
use super::kind::ControllerKind;
use super::listen;
use core::net::SocketAddr;
use core::time::Duration;
use roadtrain_proto::policy::Class;
use roadtrain_proto::security::dhchap::{Concatenation, context_of};
use roadtrain_proto::security::{ConnectionSecurity, SecuredAs};
use roadtrain_proto::time::Instant;
use roadtrain_wire::fabrics::{
    AUTHREQ_ASCR, AUTHREQ_ATR, CNTLID_DYNAMIC, Connect, ConnectData, DISCOVERY_NQN, cattr,
    parse_nqn,
};
use roadtrain_wire::sqe::{FLAG_SGL, Sqe};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};

const BYTE_QID: u8 = 42;
const BYTE_SQSIZE: u8 = 44;

/// Returns the authentication requirements for a Connect's completion. Hosts take the second bit as an order to
/// generate a PSK.
fn requirements(requirement: Option<&AuthenticationRequirement>) -> u32 {
    match requirement.map(|requirement| requirement.concatenation) {
        None => 0,
        Some(Concatenation::Required) => AUTHREQ_ATR | AUTHREQ_ASCR,
        Some(_) => AUTHREQ_ATR,
    }
}

/// Checks that `data` names the host and the subsystem of the connection's TLS key.
///
/// # Errors
/// The field with another name.
pub(super) fn check_names(secured_as: &SecuredAs, data: &[u8]) -> Result<(), ConnectRefused> {
    // Data of a wrong length is refused later.
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

impl TargetControl {
    /// Connects over a plain connection ([`TargetControl::connect_over`]) without stale connections, and grants the queue
    /// ([`TargetControl::grant`]) without authentication.
    ///
    /// # Errors
    /// See [`TargetControl::connect_over`].
    pub fn connect(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data: &[u8],
        local: SocketAddr,
        random: u64,
    ) -> Result<ConnectedQueue, ConnectRefused> {
        let connected =
            self.connect_over(ConnectionSecurity::Plain, now, sqe, data, (local, random), |_| {
                false
            })?;
        self.grant(now, &connected)?;
        Ok(connected)
    }

    /// Executes the first command of a connection, which must be Connect with 1,024 bytes of in-capsule data. `local`
    /// is the local address of the connection; `random` is an unpredictable number. `has_leftovers` is true for a
    /// controller identifier whose former owner may still have a connection; see
    /// [`Presences::any_has_leftovers_of`].
    ///
    /// Nothing is granted here. The queue, and with queue 0 the controller, exist from [`TargetControl::grant`] on, which
    /// follows at once where no authentication is required. Where it is, a refusal is reported only after it, so that
    /// no status reveals which subsystems, hosts and controllers exist.
    ///
    /// [`Presences::any_has_leftovers_of`]: super::host_connections::HostConnections::any_has_leftovers_of
    ///
    /// # Errors
    /// The status and DW0 of the completion; the queue is not connected.
    pub fn connect_over(
        &mut self,
        channel: ConnectionSecurity<'_>,
        now: Instant,
        sqe: &Sqe,
        data: &[u8],
        (local, random): (SocketAddr, u64),
        has_leftovers: impl Fn(u16) -> bool,
    ) -> Result<ConnectedQueue, ConnectRefused> {
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
            ConnectRefused::new(status, "bytes of data", length)
        })?;
        let names = ConnectNames::parse(data)?;
        if connect.sqsize == 0 || connect.sqsize >= self.config.limits.queue_entries_max {
            return Err(ConnectRefused::command(BYTE_SQSIZE, "SQSIZE", connect.sqsize));
        }
        let carrier = Carrier::from(channel);
        let hides = self.hides(carrier, connect.qid, names.subnqn);
        let checked = self.check_carrier(carrier, connect.qid, &names);
        let checked = checked.and_then(|()| self.check_grantable(connect.qid, &names, local));
        let refusal = match checked {
            Err(refused) if hides => Some(refused),
            checked => checked.map(|()| None)?,
        };
        let mut claim = QueueClaim { carrier, local, random, refusal, ..QueueClaim::default() };
        let mut connected = match connect.qid {
            0 => self.claim_controller(now, &connect, &names, (&mut claim, has_leftovers))?,
            qid => self.claim_queue(qid, &names),
        };
        let requirement = self.requirement_of(&connected, carrier);
        let requirement = if claim.refusal.is_some() {
            requirement.map(AuthenticationRequirement::without_keys)
        } else {
            requirement
        };
        connected.entries = connect.sqsize + 1;
        connected.sq_flow_control = connect.cattr & cattr::DISABLE_SQ_FLOW_CONTROL == 0;
        connected.class = Class::from_cattr(connect.cattr);
        connected.result = u32::from(connected.cntlid) | requirements(requirement.as_ref());
        if requirement.is_some() {
            connected.context = context_of(sqe, data.as_bytes(), connected.result);
        }
        Ok(ConnectedQueue { requirement: requirement.map(Box::new), claim, ..connected })
    }

    /// Returns the authentication required of a new queue's host. A host that has generated the connection's PSK is
    /// authenticated.
    pub(super) fn requirement_of(
        &self,
        queue: &ConnectedQueue,
        carrier: Carrier,
    ) -> Option<AuthenticationRequirement> {
        if carrier == Carrier::Generated {
            return None;
        }
        let is_discovery = queue.kind == ControllerKind::Discovery;
        let (authentication, subnqn) = (&self.config.authentication, &queue.subnqn);
        let concatenation = authentication.concatenation(carrier, queue.qid, subnqn);
        authentication.requirement_for(&queue.hostnqn, subnqn, is_discovery, concatenation)
    }

    /// Claims a controller identifier for a host until the controller is granted.
    fn claim_controller(
        &mut self,
        now: Instant,
        connect: &Connect,
        names: &ConnectNames<'_>,
        (claim, has_leftovers): (&mut QueueClaim, impl Fn(u16) -> bool),
    ) -> Result<ConnectedQueue, ConnectRefused> {
        let count = self.controllers.len();
        let cntlid = self
            .allocate_cntlid(names.subnqn, has_leftovers)
            .ok_or_else(|| no_controller_left(count))?;
        let kind = match names.subnqn {
            DISCOVERY_NQN => ControllerKind::Discovery,
            _ => ControllerKind::Io,
        };
        (claim.kato_ms, claim.number) = (connect.kato_ms, self.claims.enter(cntlid));
        let keep_alive = KeepAlive::of(kind, now, connect.kato_ms).kato_ms();
        let keep_alive = Duration::from_millis(keep_alive.into());
        Ok(ConnectedQueue { kind, keep_alive, ..names.queue(cntlid, 0) })
    }

    /// Claims an I/O queue of a controller, which need not exist. The HOSTID of the admin queue applies: some hosts
    /// generate one for each Connect, and other targets accept that.
    fn claim_queue(&self, qid: u16, names: &ConnectNames<'_>) -> ConnectedQueue {
        let queue = names.queue(names.cntlid, qid);
        let Some(controller) = self.controllers.get(&names.cntlid) else { return queue };
        let keep_alive = Duration::from_millis(controller.keep_alive.kato_ms().into());
        let is_new = controller.hostid != names.hostid && !controller.has_other_hostids;
        let (hostid, other_hostid) = (controller.hostid, is_new.then_some(names.hostid));
        ConnectedQueue {
            keep_alive,
            hostid,
            other_hostid,
            shared: controller.shared.clone(),
            ..queue
        }
    }

    /// Checks that the queue can be granted: its listener, host, subsystem and controller.
    pub(super) fn check_grantable(
        &self,
        qid: u16,
        names: &ConnectNames<'_>,
        local: SocketAddr,
    ) -> Result<(), ConnectRefused> {
        self.check_listener(local, names)?;
        match qid {
            0 => self.check_admin(names),
            qid => self.check_io(qid, names),
        }
    }

    fn check_admin(&self, names: &ConnectNames<'_>) -> Result<(), ConnectRefused> {
        if names.subnqn != DISCOVERY_NQN {
            let subsystem = self.subsystems.get(names.subnqn);
            let subsystem = subsystem.ok_or_else(|| names.bad_subnqn())?;
            if !subsystem.allows(names.hostnqn) {
                let status = Status::CONNECT_INVALID_HOST.dnr();
                return Err(ConnectRefused { status, ..names.bad_hostnqn() });
            }
        }
        if names.cntlid != CNTLID_DYNAMIC {
            return Err(bad_cntlid(names.cntlid));
        }
        self.check_host_limits(names.hostnqn, true)
    }

    /// Checks that a host may have one more queue; `is_new`: of a new controller. Anonymous hosts are not counted as
    /// one host: the limit for their address applies.
    fn check_host_limits(&self, hostnqn: &str, is_new: bool) -> Result<(), ConnectRefused> {
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
        // A retry may succeed: no Do Not Retry.
        let status = Status::CONNECT_CONTROLLER_BUSY;
        let value = format!("{count}: {option} is the limit");
        Err(ConnectRefused { status, ..ConnectRefused::new(status, field, value) })
    }

    /// Checks that the host's subsystem is reachable at the listener of the connection.
    fn check_listener(
        &self,
        local: SocketAddr,
        names: &ConnectNames<'_>,
    ) -> Result<(), ConnectRefused> {
        let Some(subsystem) = self.subsystems.get(names.subnqn) else { return Ok(()) };
        let state = listen::path_state(subsystem.listeners.as_ref(), &self.config.listeners, local);
        if state.is_some() {
            return Ok(());
        }
        let status = Status::CONNECT_INVALID_HOST.dnr();
        let value = format!("{}, which has no listener at {local}", quoted(names.subnqn));
        Err(ConnectRefused { status, value, ..names.bad_subnqn() })
    }

    fn check_io(&self, qid: u16, names: &ConnectNames<'_>) -> Result<(), ConnectRefused> {
        let controller = self.controllers.get(&names.cntlid);
        let controller = controller.ok_or_else(|| bad_cntlid(names.cntlid))?;
        if *controller.subnqn != *names.subnqn {
            return Err(names.bad_subnqn());
        }
        if *controller.hostnqn != *names.hostnqn {
            return Err(names.bad_hostnqn());
        }
        if controller.kind == ControllerKind::Discovery || qid > self.config.limits.io_queues_max {
            return Err(ConnectRefused::command(BYTE_QID, "QID", qid));
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
        self.check_host_limits(names.hostnqn, false)
    }

    /// Allocates the next controller identifier in rotation, except those for which `has_leftovers` is true. So an
    /// identifier is not reused for long, and commands for or from its last owner never reach the next one.
    fn allocate_cntlid(
        &mut self,
        subnqn: &str,
        has_leftovers: impl Fn(u16) -> bool,
    ) -> Option<u16> {
        if self.controllers.len() >= usize::from(self.config.limits.cntlids()) {
            return None;
        }
        let own = self.subsystems.get_mut(subnqn).and_then(|subsystem| subsystem.cntlids.as_mut());
        let cntlids = own.unwrap_or(&mut self.cntlids);
        let is_unused =
            |cntlid: &u16| !self.controllers.contains_key(cntlid) && !has_leftovers(*cntlid);
        let is_free = |cntlid: &u16| !self.claims.contains(*cntlid) && is_unused(cntlid);
        let may_go = |cntlid: &u16| cntlids.contains(*cntlid) && is_unused(cntlid);
        // Unauthenticated hosts cannot exhaust the identifiers: the oldest claim gives way.
        let free = cntlids.in_turn().find(is_free).or_else(|| self.claims.oldest(may_go))?;
        cntlids.note_allocated(free);
        Some(free)
    }
}

//! Admin commands: dispatch.

use super::context::{CommandContext, CommandReply, byte};
use super::control::TargetControl;
use super::controller::NOT_ABORTED;
use super::discovery::DiscoveryLogSource;
use super::kind::supported_opcodes;
use super::outcome::AdminOutcome;
use super::target_event::TargetEvent;
use super::{fabrics, features, identify, lba_status, log_page, namespace_management};
use roadtrain_proto::error::CommandError;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cross_reset::ControllerInstance;
use roadtrain_wire::sqe::{FLAG_SGL, Sqe, opcode};
use roadtrain_wire::status::Status;

impl TargetControl {
    /// Executes a command on the admin queue of `cntlid`. `data_in` is its data from the host, in-capsule or
    /// transferred after an R2T. Data for the host replaces the content of `data_out`, with exactly the length that the
    /// command's SGL says.
    pub fn admin_command(
        &mut self,
        now: Instant,
        cntlid: u16,
        sqe: &Sqe,
        data_in: &[u8],
        data_out: &mut Vec<u8>,
    ) -> AdminOutcome {
        data_out.clear();
        self.command(now, (cntlid, 0), sqe, data_in, |context| context.admin(data_out))
    }

    /// Executes a fabrics command on I/O queue `qid` of `cntlid`; none of them transfers data.
    pub fn fabrics_command(
        &mut self,
        now: Instant,
        cntlid: u16,
        qid: u16,
        sqe: &Sqe,
    ) -> AdminOutcome {
        self.command(now, (cntlid, qid), sqe, &[], fabrics::execute)
    }

    fn command(
        &mut self,
        now: Instant,
        (cntlid, qid): (u16, u16),
        sqe: &Sqe,
        data_in: &[u8],
        execute: impl FnOnce(&mut CommandContext<'_>) -> Result<CommandReply, CommandError>,
    ) -> AdminOutcome {
        self.drop_missed(now, cntlid);
        let Some(controller) = self.controllers.get_mut(&cntlid) else {
            // The controller is gone and its connections are being closed.
            return AdminOutcome::Complete { status: Status::ABORTED_SQ_DELETION, result: 0 };
        };
        controller.keep_alive.restart(now);
        if qid == 0 {
            // A host that considers its Asynchronous Event Requests ended uses their identifiers again.
            controller.events.retire(sqe.cid.get());
        }
        let mut context = CommandContext {
            now,
            started: self.started,
            limits: &self.config.limits,
            origin: self.config.origin,
            network: self.config.network,
            subsystem: self.subsystems.get(&controller.subnqn),
            discovery: DiscoveryLogSource {
                // No host is to connect to a target that is about to shut down.
                listeners: if self.departing { &[] } else { &self.config.listeners },
                frame_listeners: if self.departing { &[] } else { &self.frame_listeners },
                referrals: &self.config.referrals,
                tls_at: &self.config.authentication.tls_at,
                subsystems: &self.subsystems,
                genctr: self.genctr,
            },
            controller,
            outbox: &mut self.outbox,
            qid,
            sqe,
            data_in,
        };
        let reply = match sqe.flags {
            FLAG_SGL => execute(&mut context),
            _ => Err(CommandError::field(byte::FLAGS)), // fused, or pointers that are no SGL
        };
        let CommandContext { controller, outbox, .. } = context;
        controller.complete_event_requests(outbox);
        if let Err(CommandError { status, byte, .. }) = reply
            && !is_probe(sqe, status)
        {
            controller.shared.errors().record(qid, sqe, status, byte);
        }
        let deadlines = [controller.keep_alive.deadline(), controller.removed.deadline()];
        self.set_timer(deadlines.into_iter().flatten().min());
        self.outcome(now, cntlid, sqe, reply)
    }

    /// Returns the outcome of a command; some are completed by an event.
    fn outcome(
        &mut self,
        now: Instant,
        cntlid: u16,
        sqe: &Sqe,
        reply: Result<CommandReply, CommandError>,
    ) -> AdminOutcome {
        match reply {
            Ok(CommandReply::Result(result)) => {
                AdminOutcome::Complete { status: Status::SUCCESS, result }
            }
            Ok(CommandReply::Pending) => AdminOutcome::Pending,
            Ok(CommandReply::QueryLbaStatus(wanted)) => AdminOutcome::QueryLbaStatus(wanted),
            Ok(CommandReply::Persist(persists)) => self.set_persistence(cntlid, sqe, persists),
            Ok(CommandReply::CrossReset(named)) => {
                self.reset_named_controller(now, cntlid, sqe.cid.get(), named)
            }
            Ok(CommandReply::ManageNamespaces(request)) => {
                self.request_namespaces(cntlid, sqe.cid.get(), request)
            }
            Ok(CommandReply::Disconnected) => AdminOutcome::Disconnected,
            Err(CommandError { status, result, .. }) => {
                AdminOutcome::Complete { status, result: result.into() }
            }
        }
    }
}

/// True if a failed command probed which I/O Command Sets the controller supports, as hosts do with each controller.
fn is_probe(sqe: &Sqe, status: Status) -> bool {
    sqe.opcode == opcode::IDENTIFY && status.is(Status::INVALID_COMMAND_SET)
}

impl CommandContext<'_> {
    fn admin(&mut self, data_out: &mut Vec<u8>) -> Result<CommandReply, CommandError> {
        if self.sqe.opcode == opcode::FABRICS {
            return fabrics::execute(self);
        }
        if !self.controller.properties.is_ready() {
            return Err(CommandError::at(Status::COMMAND_SEQUENCE_ERROR, byte::OPCODE));
        }
        let opcodes = supported_opcodes(self.controller.kind, self.management().is_some());
        if !opcodes.contains(&self.sqe.opcode) {
            return Err(CommandError::at(Status::INVALID_OPCODE, byte::OPCODE));
        }
        match self.sqe.opcode {
            opcode::IDENTIFY => identify::execute(self, data_out),
            opcode::GET_LOG_PAGE => log_page::execute(self, data_out),
            opcode::GET_FEATURES => features::get(self, data_out),
            opcode::SET_FEATURES => return features::set(self),
            opcode::ASYNC_EVENT_REQUEST => {
                self.controller.events.request(self.sqe.cid.get())?;
                return Ok(CommandReply::Pending);
            }
            opcode::ABORT => return self.abort(),
            opcode::CROSS_CONTROLLER_RESET => return self.cross_reset(),
            opcode::GET_LBA_STATUS => {
                return lba_status::parse(self).map(CommandReply::QueryLbaStatus);
            }
            opcode::NAMESPACE_MANAGEMENT | opcode::NAMESPACE_ATTACHMENT => {
                return namespace_management::parse(self);
            }
            opcode::KEEP_ALIVE => Ok(0), // every command restarts the timer
            _ => Err(CommandError::at(Status::INVALID_OPCODE, byte::OPCODE)),
        }
        .map(CommandReply::Result)
    }

    /// Cross-Controller Reset of another controller than this one.
    fn cross_reset(&mut self) -> Result<CommandReply, CommandError> {
        if !self.is_for_controller() {
            return Err(CommandError::field(byte::NSID));
        }
        let named = ControllerInstance::parse(self.sqe);
        // A controller of another process that serves the subsystem is not known here and may be alive. An earlier
        // process may have used the identifier of this controller.
        let is_itself = named == self.controller.properties.instance();
        if is_itself || !self.limits.has_cntlid(named.cntlid) {
            return Err(CommandError::field(byte::CDW10));
        }
        self.controller.resets.admit(named)?;
        Ok(CommandReply::CrossReset(named))
    }

    /// Abort: ends an Asynchronous Event Request, or requests the abort of an I/O command from its lane. Other admin
    /// commands complete soon enough (DW0 bit 0: not aborted).
    fn abort(&mut self) -> Result<CommandReply, CommandError> {
        let (sqid, aborted) = (self.sqe.cdw10.get() as u16, (self.sqe.cdw10.get() >> 16) as u16);
        let (cntlid, cid) = (self.controller.cntlid, self.sqe.cid.get());
        if sqid == 0 && self.controller.events.abort(aborted) {
            // In this order: the aborted command completes before the Abort does.
            let (status, result) = (Status::ABORT_REQUESTED, 0);
            let event = TargetEvent::EventCompletion { cntlid, cid: aborted, status, result };
            let done = TargetEvent::Completion { cntlid, cid, status: Status::SUCCESS, result };
            self.outbox.extend([event, done]);
            return Ok(CommandReply::Pending);
        }
        if !self.controller.queues.contains(&sqid) {
            return Ok(CommandReply::Result(NOT_ABORTED));
        }
        // A retry may find fewer pending Aborts: no Do Not Retry.
        let status = Status::ABORT_LIMIT_EXCEEDED;
        let too_many = CommandError { status, ..CommandError::new(status) };
        let id = self.controller.aborts.begin(cid, sqid).ok_or(too_many)?;
        self.outbox.push_back(TargetEvent::Abort { cntlid, qid: sqid, cid: aborted, id });
        Ok(CommandReply::Pending)
    }
}

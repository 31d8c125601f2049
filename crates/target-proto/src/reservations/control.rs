//! Reservations in the control plane: commands of hosts, notifications, and work for the owner of the connections.

use super::access::HostAccess;
use super::command::{ReservationCommand, data_out_bytes};
use super::report;
use super::state::{HostId, ReservationState};
use super::turns::{ReservationOrigin, ReservationStep};
use crate::control::TargetControl;
use crate::controller::TargetController;
use crate::events::EventNotice;
use crate::outcome::AdminOutcome;
use crate::subsystem::TargetSubsystem;
use crate::target_event::{TargetEvent, TurnOf};
use roadtrain_wire::identify::NSID_ALL;
use roadtrain_wire::reservation::{Notification, ReservationReportFields};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use std::sync::Arc;

impl TargetControl {
    /// Executes a reservation command of a lane of controller `cntlid`, with its `data`. [`TargetEvent::Reserved`] with
    /// that `token` completes it, maybe at once.
    pub fn reserve(&mut self, cntlid: u16, sqe: &Sqe, data: &[u8], token: u64) {
        let origin = ReservationOrigin::Lane(token);
        let nsid = sqe.nsid.get();
        match self.reserve_now(cntlid, sqe, data) {
            Ok(ReservationRequest::Report(report)) => {
                let status = Status::SUCCESS;
                self.outbox.push_back(TargetEvent::Reserved { token, status, report });
            }
            Ok(ReservationRequest::Command(nqn, host, command)) => {
                self.take_turn(&nqn, nsid, |reservations, steps| {
                    reservations.submit(host, origin, command, steps);
                });
            }
            Err(status) => self.answer_reservation(origin, status),
        }
    }

    fn reserve_now(
        &self,
        cntlid: u16,
        sqe: &Sqe,
        data: &[u8],
    ) -> Result<ReservationRequest, Status> {
        // The controller is gone and its connections are being closed.
        let controller = self.controllers.get(&cntlid).ok_or(Status::ABORTED_SQ_DELETION)?;
        let (nqn, nsid) = (&controller.subnqn, sqe.nsid.get());
        let seen = |one: &&TargetSubsystem| one.seen(controller, nsid).is_some();
        let subsystem = self.subsystems.get(nqn).filter(seen);
        let reservations = subsystem.and_then(|subsystem| subsystem.reservations.get(&nsid));
        let reservations = reservations.ok_or(Status::INVALID_NAMESPACE.dnr())?;
        let namespace = subsystem.and_then(|subsystem| subsystem.seen(controller, nsid));
        if namespace.is_some_and(|namespace| !namespace.config.offers_reservations) {
            return Err(Status::INVALID_OPCODE.dnr());
        }
        // The lane may not know yet that the namespace is inaccessible.
        self.check_reach(nqn, cntlid, nsid)?;
        if sqe.opcode == opcode::RESERVATION_REPORT {
            let ReservationReportFields { bytes, extended } = ReservationReportFields::parse(sqe);
            if !extended {
                return Err(Status::HOST_ID_INCONSISTENT.dnr());
            }
            let of_subsystem = self.controllers.values().filter(|c| c.subnqn == *nqn);
            let controllers: Vec<_> = of_subsystem.map(|c| (c.cntlid, c.hostid)).collect();
            let mut report = report::of(reservations.state(), &controllers);
            report.resize(usize::try_from(bytes).unwrap_or(usize::MAX), 0);
            return Ok(ReservationRequest::Report(report.into()));
        }
        let command = ReservationCommand::parse(sqe, data)?;
        Ok(ReservationRequest::Command(nqn.clone(), controller.hostid, command))
    }

    /// Checks that the namespace is accessible: while another target may own the blocks, its reservations are not known
    /// here.
    fn check_reach(&self, nqn: &str, cntlid: u16, nsid: u32) -> Result<(), Status> {
        let table = self.namespaces_for(nqn, cntlid);
        table.and_then(|table| table.refusal(nsid)).map_or(Ok(()), Err)
    }

    /// Returns the access rights that a lane of `host` checks for each command to a namespace.
    pub fn access(&mut self, nqn: &str, nsid: u32, host: HostId) -> Option<Arc<HostAccess>> {
        let subsystem = self.subsystems.get_mut(nqn)?;
        Some(subsystem.reservations.get_mut(&nsid)?.access(host))
    }

    /// Restores a namespace's reservations from the target's last run, unless a command has changed them since.
    pub fn restore_reservations(&mut self, nqn: &str, nsid: u32, state: ReservationState) {
        let subsystem = self.subsystems.get_mut(nqn);
        let reservations = subsystem.and_then(|subsystem| subsystem.reservations.get_mut(&nsid));
        reservations.into_iter().for_each(|reservations| reservations.restore(state.clone()));
    }

    /// True if a namespace's reservations can be stored from now on where `kept` is: nothing is lost, and no old state
    /// returns.
    #[must_use]
    pub fn reservations_are_kept_as(&self, nqn: &str, nsid: u32, kept: &ReservationState) -> bool {
        let subsystem = self.subsystems.get(nqn);
        let reservations = subsystem.and_then(|subsystem| subsystem.reservations.get(&nsid));
        reservations.is_none_or(|reservations| reservations.is_kept_as(kept))
    }

    /// Takes over a namespace's reservations from another process that has stopped serving it. Ignored if the NGUID is
    /// that of another namespace.
    pub fn adopt_reservations(
        &mut self,
        nqn: &str,
        nsid: u32,
        nguid: &[u8; 16],
        state: ReservationState,
    ) {
        let subsystem = self.subsystems.get_mut(nqn);
        let reservations = subsystem.and_then(|subsystem| subsystem.reservations.get_mut(&nsid));
        let reservations = reservations.filter(|reservations| reservations.is_of(nguid));
        reservations.into_iter().for_each(|reservations| reservations.adopt(state.clone()));
    }

    /// Returns the reservations of all namespaces with registrants: the subsystem's NQN, the NSID and an image for
    /// [`TargetControl::adopt_reservations`].
    pub fn all_reservations(&self) -> impl Iterator<Item = (&str, u32, Vec<u8>)> {
        self.subsystems.iter().flat_map(|(nqn, subsystem)| {
            let held = subsystem
                .reservations
                .iter()
                .filter_map(|(nsid, known)| Some((*nsid, known.whole_image()?)));
            held.map(move |(nsid, image)| (&**nqn, nsid, image))
        })
    }

    /// Returns a namespace's reservations.
    #[must_use]
    pub fn reservations(&self, nqn: &str, nsid: u32) -> Option<&ReservationState> {
        Some(self.subsystems.get(nqn)?.reservations.get(&nsid)?.state())
    }

    /// Reports the result of [`TargetEvent::Save`].
    pub fn saved(&mut self, turn: &TurnOf, is_saved: bool) {
        self.take_turn(&turn.nqn, turn.nsid, |reservations, steps| {
            reservations.saved(turn.number, is_saved, steps);
        });
    }

    /// Reports the end of [`TargetEvent::Fence`].
    pub fn fenced(&mut self, turn: &TurnOf) {
        self.take_turn(&turn.nqn, turn.nsid, |reservations, steps| {
            reservations.fenced(turn.number, steps);
        });
    }

    /// Executes a checked Set Features with Reservation Persistence. It completes once every namespace that it names
    /// has applied it.
    pub(crate) fn set_persistence(
        &mut self,
        cntlid: u16,
        sqe: &Sqe,
        persists: bool,
    ) -> AdminOutcome {
        let (nsid, cid) = (sqe.nsid.get(), sqe.cid.get());
        let Some(controller) = self.controllers.get_mut(&cntlid) else {
            return AdminOutcome::Pending;
        };
        let (nqn, host) = (controller.subnqn.clone(), controller.hostid);
        let nsids: Vec<u32> = match self.subsystems.get(&nqn) {
            Some(subsystem) if nsid == NSID_ALL => {
                subsystem.seen_by(controller).map(|namespace| namespace.config.nsid).collect()
            }
            _ => vec![nsid],
        };
        if nsids.is_empty() {
            return AdminOutcome::Complete { status: Status::SUCCESS, result: 0 };
        }
        controller.persisting.insert(cid, (nsids.len(), Status::SUCCESS));
        for nsid in nsids {
            let origin = ReservationOrigin::Admin { cntlid, cid };
            if let Err(status) = self.check_reach(&nqn, cntlid, nsid) {
                self.answer_reservation(origin, status);
                continue;
            }
            self.take_turn(&nqn, nsid, |reservations, steps| {
                reservations.submit(host, origin, ReservationCommand::Persist(persists), steps);
            });
        }
        AdminOutcome::Pending
    }

    fn take_turn(
        &mut self,
        nqn: &Arc<str>,
        nsid: u32,
        turn: impl FnOnce(&mut super::NamespaceReservations, &mut Vec<ReservationStep>),
    ) {
        let subsystem = self.subsystems.get_mut(nqn);
        let reservations = subsystem.and_then(|subsystem| subsystem.reservations.get_mut(&nsid));
        let Some(reservations) = reservations else { return };
        let mut steps = Vec::new();
        turn(reservations, &mut steps);
        let of = |number| TurnOf { nqn: nqn.clone(), nsid, number };
        for step in steps {
            match step {
                ReservationStep::Save(number, image) => {
                    self.outbox.push_back(TargetEvent::Save { turn: of(number), image });
                }
                ReservationStep::Fence(number, aborts) => {
                    self.outbox.push_back(TargetEvent::Fence { turn: of(number), aborts });
                }
                ReservationStep::Notify(notices) => self.notify(nqn, nsid, &notices),
                ReservationStep::Answer(origin, status) => self.answer_reservation(origin, status),
            }
        }
    }

    /// Notifies the controllers of hosts about a namespace.
    fn notify(&mut self, nqn: &Arc<str>, nsid: u32, notices: &[(HostId, Notification)]) {
        for (host, kind) in notices {
            let Some(subsystem) = self.subsystems.get(nqn) else { return };
            let is_of = |c: &&mut TargetController| c.subnqn == *nqn && c.hostid == *host;
            for controller in self.controllers.values_mut().filter(is_of) {
                let sees = subsystem.seen(controller, nsid).is_some();
                if sees && controller.notices.push(nsid, *kind) {
                    controller.events.raise(EventNotice::Reservation);
                    controller.complete_event_requests(&mut self.outbox);
                }
            }
        }
    }

    fn answer_reservation(&mut self, origin: ReservationOrigin, status: Status) {
        let (cntlid, cid) = match origin {
            ReservationOrigin::Lane(token) => {
                let report = Arc::default();
                return self.outbox.push_back(TargetEvent::Reserved { token, status, report });
            }
            ReservationOrigin::Admin { cntlid, cid } => (cntlid, cid),
        };
        let Some(controller) = self.controllers.get_mut(&cntlid) else { return };
        let Some((left, worst)) = controller.persisting.get_mut(&cid) else { return };
        *left -= 1;
        if worst.is_success() {
            *worst = status;
        }
        if *left == 0 {
            let status = *worst;
            controller.persisting.remove(&cid);
            let result = 0;
            self.outbox.push_back(TargetEvent::Completion { cntlid, cid, status, result });
        }
    }

    /// Completes commands for the reservations of a namespace that is gone or inaccessible, with `status`.
    pub(crate) fn end_reservations(&mut self, origins: Vec<ReservationOrigin>, status: Status) {
        origins.into_iter().for_each(|origin| self.answer_reservation(origin, status));
    }
}

/// Kinds of reservation commands.
enum ReservationRequest {
    Report(Arc<[u8]>),
    /// Command of a host, to a namespace of that subsystem.
    Command(Arc<str>, HostId, ReservationCommand),
}

/// Returns the bytes of data from the host and to the host of a reservation command.
///
/// # Errors
/// The command requests more data than a command may transfer.
pub(crate) fn data_bytes(sqe: &Sqe, bytes_max: u32) -> Result<(u32, u32), Status> {
    let out = data_out_bytes(sqe.opcode).ok_or(Status::INVALID_OPCODE.dnr())?;
    if sqe.opcode != opcode::RESERVATION_REPORT {
        return Ok((out, 0));
    }
    let bytes = ReservationReportFields::parse(sqe).bytes;
    let bytes = u32::try_from(bytes).ok().filter(|&bytes| bytes <= bytes_max);
    Ok((out, bytes.ok_or(Status::INVALID_FIELD.dnr())?))
}

//! Rules of a reactor for all its lanes: effects of messages from the control plane, from stores and from other
//! reactors, and of timers.
//!
//! The functions decide; a [`ServicedReactor`] lends its lanes and moves their bytes. So the order of these steps is the same
//! in the engine and in the simulation.

use super::{Effect, ServicedLane, apply, take_postponed};
use crate::execution::StoreOutcome;
use crate::session::{AfterPause, UnauthenticatedConnections};
use crate::{CloseReason, TargetEvent, TurnOf};
use core::ops::DerefMut;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;

/// Number of checks for overdue buffers within the transfer timeout.
const TRANSFER_CHECKS: u32 = 8;
/// Shortest interval of these checks.
const TRANSFER_CHECK_MIN: Duration = Duration::from_millis(1);

/// Reason for which a reactor closes a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneClosing {
    /// The control plane closes the lane's queue.
    ByControl(CloseReason),
    /// The host has closed the connection, and connects again.
    Stale,
    /// The host has not connected a queue in time.
    Unconnected,
    /// The host has kept a buffer for longer than this, for the reason in the text, and other lanes wait for buffers.
    Overdue(&'static str, Duration),
}

/// A reactor that lends its lanes.
pub trait ServicedReactor: Sized {
    /// Identifies a lane, and never a later one in its place.
    type Id: Copy + Eq;
    /// Buffers of commands.
    type Buffer: DerefMut<Target = [u8]>;
    /// A lane with its resources for a call.
    type Lane<'a>: ServicedLane<Buffer = Self::Buffer>
    where
        Self: 'a;

    /// Returns the time of this turn.
    fn now(&self) -> Instant;
    /// Returns the state of these rules.
    fn rules(&mut self) -> &mut ReactorRules<Self::Id>;
    /// Calls for each lane, also for ended ones with commands in a store.
    fn for_each(&mut self, call: impl FnMut(&mut Self, Self::Id));
    /// Returns the lane, unless nothing is left of it.
    fn lend(&mut self, id: Self::Id) -> Option<Self::Lane<'_>>;
    /// Executes an admin or fabrics command of a lane that has not ended.
    fn run_admin(&mut self, id: Self::Id, slot: u16);
    /// Sends the lane's queued data.
    fn end_turn(&mut self, id: Self::Id);
    /// Lets the lane process the data that it has held back ([`CommandExecution::feed`](crate::execution::CommandExecution::resume)).
    fn feed(&mut self, id: Self::Id);
    /// Ends the lane's connection and calls [`super::close`], unless it has ended.
    fn close(&mut self, id: Self::Id, closing: LaneClosing);
    /// Frees the lane's place and calls [`super::leave`], if nothing is left of it.
    fn vacate(&mut self, id: Self::Id);
    /// Cancels its commands that have not begun in a store.
    fn cancel_all(&mut self, id: Self::Id);
    /// True if the host has closed the connection, though earlier bytes may be unread.
    fn is_hung_up(&mut self, id: Self::Id) -> bool;
    /// True if another lane waits for a buffer.
    fn do_others_wait_for_buffers(&mut self, id: Self::Id) -> bool;
    /// Reports to the control plane that nothing is executed here that this turn forbids.
    fn fenced(&mut self, turn: &TurnOf);
}

/// State of these rules. `I` identifies a lane.
#[derive(Debug)]
pub struct ReactorRules<I> {
    /// Connections that have to connect a queue in time.
    pub unauthenticated: UnauthenticatedConnections<I>,
    /// Turns of reservations that have revoked access, each with the commands in stores for which it waits.
    fences: Vec<(TurnOf, Vec<(I, u16)>)>,
    /// Longest time for which a host may keep a buffer that others wait for.
    transfer_timeout: Duration,
    /// Earliest time of the next check for such buffers.
    transfers_at: Instant,
}

impl<I: Copy + Eq> ReactorRules<I> {
    /// Creates the state without lanes. Connections have `connect_timeout` to connect a queue.
    #[must_use]
    pub fn new(connect_timeout: Duration, transfer_timeout: Duration) -> Self {
        ReactorRules {
            unauthenticated: UnauthenticatedConnections::new(connect_timeout),
            fences: Vec::new(),
            transfer_timeout,
            transfers_at: Instant::default(),
        }
    }

    /// Returns the earliest timeout of a connection; `starves`: a lane waits for a buffer.
    #[must_use]
    pub fn deadline(&self, starves: bool) -> Option<Instant> {
        let transfers = starves.then_some(self.transfers_at);
        self.unauthenticated.deadline().into_iter().chain(transfers).min()
    }
}

/// Applies an event of the control plane to the lanes that it concerns.
pub fn handle_event<R: ServicedReactor>(reactor: &mut R, event: &TargetEvent) {
    reactor.for_each(|reactor, id| handle_event_of(reactor, id, event));
}

/// Applies an event of the control plane to a lane, if it concerns it.
pub fn handle_event_of<R: ServicedReactor>(reactor: &mut R, id: R::Id, event: &TargetEvent) {
    let Some(effect) = live(reactor, id).map(|mut lane| apply(&mut lane, event)) else { return };
    match effect {
        Effect::Nothing => {}
        Effect::EndsTurn => reactor.end_turn(id),
        Effect::Closes(reason) => reactor.close(id, LaneClosing::ByControl(reason)),
    }
}

/// Returns the lane, unless it has ended.
fn live<R: ServicedReactor>(reactor: &mut R, id: R::Id) -> Option<R::Lane<'_>> {
    let mut lane = reactor.lend(id)?;
    if lane.session().is_ended() {
        return None;
    }
    Some(lane)
}

/// Ends commands to a namespace whose access some hosts have lost. Notifies the control plane once none of them is
/// executing.
pub fn fence<R: ServicedReactor>(reactor: &mut R, turn: TurnOf, aborts: bool) {
    let mut left = Vec::new();
    reactor.for_each(|reactor, id| {
        let Some(slots) = fence_lane(reactor, id, aborts) else { return };
        left.extend(slots.into_iter().map(|slot| (id, slot)));
        reactor.end_turn(id);
    });
    match left.is_empty() {
        true => reactor.fenced(&turn),
        false => reactor.rules().fences.push((turn, left)),
    }
}

fn fence_lane<R: ServicedReactor>(reactor: &mut R, id: R::Id, aborts: bool) -> Option<Vec<u16>> {
    let mut lane = reactor.lend(id)?;
    let (execution, mut env) = lane.parts();
    Some(execution.fence(&mut env, aborts))
}

/// Completes a reservation command that the control plane has executed.
pub fn reserved<R: ServicedReactor>(
    reactor: &mut R,
    (id, slot): (R::Id, u16),
    status: Status,
    report: &[u8],
) {
    let Some(mut lane) = reactor.lend(id) else { return };
    {
        let (execution, mut env) = lane.parts();
        execution.reserved(&mut env, slot, status, report);
    }
    match lane.session().is_ended() {
        true => {
            drop(lane);
            reactor.vacate(id);
        }
        false => {
            drop(lane);
            reactor.end_turn(id);
        }
    }
}

/// Completes a command that a store has executed. Returns false if the lane has ended, and sends nothing more.
#[inline]
pub fn finish<R: ServicedReactor>(
    reactor: &mut R,
    (id, slot): (R::Id, u16),
    outcome: StoreOutcome<R::Buffer>,
) -> bool {
    if !reactor.rules().fences.is_empty() {
        leave_fences(reactor, (id, slot));
    }
    let Some(mut lane) = reactor.lend(id) else { return false };
    let admin = {
        let (execution, mut env) = lane.parts();
        execution.finish(&mut env, slot, outcome)
    };
    let is_ended = lane.session().is_ended();
    drop(lane);
    if let Some(slot) = admin {
        reactor.run_admin(id, slot); // a shutdown, as all is flushed now
    }
    if is_ended {
        reactor.vacate(id);
    }
    !is_ended
}

/// Checks a command that has its exclusive access now: access may have been revoked meanwhile.
///
/// # Errors
/// The status of its completion.
pub fn admits<R: ServicedReactor>(reactor: &mut R, id: R::Id, slot: u16) -> Result<(), Status> {
    let mut lane = live(reactor, id).ok_or(Status::ABORTED_SQ_DELETION)?;
    let (execution, mut env) = lane.parts();
    execution.admits(&mut env, slot)
}

/// Updates all lanes after exclusive access to blocks has begun or ended: see
/// [`CommandExecution::hold_places`](crate::execution::CommandExecution::hold_places).
pub fn hold_places<R: ServicedReactor>(reactor: &mut R) {
    reactor.for_each(hold_places_of);
}

fn hold_places_of<R: ServicedReactor>(reactor: &mut R, id: R::Id) {
    let Some(mut lane) = live(reactor, id) else { return };
    let can_go_on = {
        let (execution, env) = lane.parts();
        execution.hold_places(&env)
    };
    drop(lane);
    if can_go_on {
        reactor.feed(id);
    }
}

#[cold]
fn leave_fences<R: ServicedReactor>(reactor: &mut R, command: (R::Id, u16)) {
    let fences = &mut reactor.rules().fences;
    fences.iter_mut().for_each(|(_, left)| left.retain(|other| *other != command));
    let over: Vec<_> = fences.extract_if(.., |(_, left)| left.is_empty()).collect();
    over.iter().for_each(|(turn, _)| reactor.fenced(turn));
}

/// Closes lanes that their host has lost, before more of their received data is executed. Returns their number.
pub fn close_stale<R: ServicedReactor>(reactor: &mut R, hostnqn: &str) -> u64 {
    let mut closed = 0;
    reactor.for_each(|reactor, id| {
        let is_its = live(reactor, id).is_some_and(|mut lane| lane.session().is_of(hostnqn));
        if is_its && reactor.is_hung_up(id) {
            closed += 1;
            reactor.close(id, LaneClosing::Stale);
        }
    });
    closed
}

/// Executes postponed commands again: Connects, shutdowns and steps of authentications.
pub fn try_again<R: ServicedReactor>(reactor: &mut R) {
    reactor.for_each(try_again_lane);
}

fn try_again_lane<R: ServicedReactor>(reactor: &mut R, id: R::Id) {
    let Some(mut lane) = live(reactor, id) else { return };
    if !lane.session().has_postponed() {
        return;
    }
    let slots = take_postponed(&mut lane);
    drop(lane);
    slots.into_iter().for_each(|slot| reactor.run_admin(id, slot));
    reactor.end_turn(id);
}

/// Closes connections that have not connected a queue in time: nothing else would ever end them.
#[inline]
pub fn close_unauthenticated<R: ServicedReactor>(reactor: &mut R) {
    let now = reactor.now();
    if reactor.rules().unauthenticated.deadline().is_some_and(|deadline| deadline <= now) {
        close_overdue_newcomers(reactor, now);
    }
}

#[cold]
fn close_overdue_newcomers<R: ServicedReactor>(reactor: &mut R, now: Instant) {
    let mut newcomers = core::mem::take(&mut reactor.rules().unauthenticated);
    while let Some(id) = newcomers.overdue(now, |id| reactor.lend(id)?.session().take_spared(now)) {
        reactor.close(id, LaneClosing::Unconnected);
    }
    reactor.rules().unauthenticated = newcomers;
}

/// Closes lanes whose hosts keep buffers without progress, while others wait for buffers. Returns their number.
#[cold]
pub fn close_overdue<R: ServicedReactor>(reactor: &mut R) -> u64 {
    let (now, mut closed) = (reactor.now(), 0);
    let rules = reactor.rules();
    if now < rules.transfers_at {
        return 0;
    }
    let timeout = rules.transfer_timeout;
    rules.transfers_at = now + (timeout / TRANSFER_CHECKS).max(TRANSFER_CHECK_MIN);
    reactor.for_each(|reactor, id| {
        if !reactor.do_others_wait_for_buffers(id) {
            return;
        }
        let overdue = live(reactor, id).and_then(|mut lane| lane.parts().0.overdue(now, timeout));
        if let Some(what) = overdue {
            closed += 1;
            reactor.close(id, LaneClosing::Overdue(what, timeout));
        }
    });
    closed
}

/// Closes lanes whose keep-alive timers have expired while the reactor was suspended for `pause`: their received data
/// is not executed. The control plane has checked its timers before.
pub fn check_after_pause<R: ServicedReactor>(reactor: &mut R, pause: Duration) {
    reactor.for_each(|reactor, id| close_expired(reactor, id, pause));
}

/// Closes the lane if its controller's keep-alive timer has expired.
fn close_expired<R: ServicedReactor>(reactor: &mut R, id: R::Id, pause: Duration) {
    let Some(mut lane) = reactor.lend(id) else { return };
    let session = lane.session();
    let AfterPause { cancels, closes } = session.after_pause(pause);
    let queue = session.queue().map(|connected| (connected.cntlid, connected.qid));
    drop(lane);
    if cancels {
        reactor.cancel_all(id);
    }
    if let Some((cntlid, qid)) = queue.filter(|_| closes) {
        let reason = CloseReason::KeepAliveExpired;
        handle_event_of(reactor, id, &TargetEvent::Close { cntlid, qid, reason });
    }
}

/// Takes over a lane from another reactor, and applies the messages sent to all lanes during its move.
pub fn arrived<R: ServicedReactor>(reactor: &mut R, id: R::Id) {
    close_expired(reactor, id, Duration::ZERO);
    hold_places_of(reactor, id);
    // None of its commands is in a store.
    fence_lane(reactor, id, false);
    if let Some(mut lane) = reactor.lend(id) {
        let (execution, mut env) = lane.parts();
        execution.review(&mut env);
    }
    try_again_lane(reactor, id);
    reactor.end_turn(id);
}

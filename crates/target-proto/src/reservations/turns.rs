//! Reservations of a namespace at a running target: commands take turns.

use super::access::HostAccess;
use super::command::ReservationCommand;
use super::state::{HostId, ReservationEffects, ReservationState};
use roadtrain_wire::reservation::Notification;
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Origin of a command, to which its completion goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReservationOrigin {
    /// A lane, with its token for the command.
    Lane(u64),
    /// A Set Features command of a controller.
    Admin { cntlid: u16, cid: u16 },
}

/// Work that results from a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReservationStep {
    /// Save this, then call [`NamespaceReservations::saved`] for that turn.
    Save(u64, Arc<[u8]>),
    /// Notify the hosts' controllers.
    Notify(Vec<(HostId, Notification)>),
    /// End forbidden commands of lanes, by aborting them or by waiting for them. Then call [`NamespaceReservations::fenced`] for
    /// that turn.
    Fence(u64, bool),
    /// Complete the command.
    Answer(ReservationOrigin, Status),
}

#[derive(Debug)]
struct QueuedReservation {
    host: HostId,
    origin: ReservationOrigin,
    command: ReservationCommand,
}

/// A command that was executed, and is not completed.
#[derive(Debug)]
struct ReservationTurn {
    number: u64,
    /// Origin; `None`: the command was completed when the namespace became inaccessible.
    origin: Option<ReservationOrigin>,
    /// New state with its side effects; `None`: it is in force, and lanes are fenced.
    next: Option<(ReservationState, ReservationEffects)>,
}

/// Reservations of a namespace.
#[derive(Debug)]
pub(crate) struct NamespaceReservations {
    nguid: [u8; 16],
    /// Ownership term of the blocks: [`tenure`](crate::NamespaceConfig::ownership_term).
    tenure: u64,
    /// True if the persistent part can be stored.
    can_persist: bool,
    state: ReservationState,
    /// Access rights that lanes check, by host.
    accesses: BTreeMap<HostId, Arc<HostAccess>>,
    waiting: VecDeque<QueuedReservation>,
    turn: Option<ReservationTurn>,
    turn_last: u64,
    /// True before the first command.
    is_new: bool,
}

impl NamespaceReservations {
    /// Creates empty reservations of a namespace, given by its NGUID and ownership term. `first` is the number of its
    /// first turn, after those of earlier namespaces with the NSID.
    pub(crate) fn new((nguid, tenure): ([u8; 16], u64), can_persist: bool, first: u64) -> Self {
        NamespaceReservations {
            nguid,
            tenure,
            can_persist,
            state: ReservationState::default(),
            accesses: BTreeMap::new(),
            waiting: VecDeque::new(),
            turn: None,
            turn_last: first,
            is_new: true,
        }
    }

    /// True if they belong to the namespace with that NGUID.
    pub(crate) fn is_of(&self, nguid: &[u8; 16]) -> bool {
        self.nguid == *nguid
    }

    /// Returns the ownership term of the blocks.
    pub(crate) fn tenure(&self) -> u64 {
        self.tenure
    }

    /// Returns the current state.
    pub(crate) fn state(&self) -> &ReservationState {
        &self.state
    }

    /// Sets the state from before the target's start, unless a command has changed it already.
    pub(crate) fn restore(&mut self, state: ReservationState) {
        if std::mem::take(&mut self.is_new) && self.can_persist {
            self.state = state;
            self.set_accesses();
        }
    }

    /// Sets the state from another process that has served the namespace, unless a command has changed it already.
    pub(crate) fn adopt(&mut self, state: ReservationState) {
        if std::mem::take(&mut self.is_new) {
            self.state = ReservationState { persists: state.persists && self.can_persist, ..state };
            self.set_accesses();
        }
    }

    /// Sets whether the persistent part can be stored; the current state does not change.
    pub(crate) fn set_can_persist(&mut self, can_persist: bool) {
        self.can_persist = can_persist;
    }

    /// True if the state would be the same if it had begun with `kept`: then it may be stored in that place from now
    /// on. False while a change is being saved in the current place.
    pub(crate) fn is_kept_as(&self, kept: &ReservationState) -> bool {
        let is_saving = self.turn.as_ref().is_some_and(|turn| turn.next.is_some());
        self.is_new || !is_saving && self.state.persists_as(kept)
    }

    /// Returns the whole state for another process; `None`: no host has ever registered.
    pub(crate) fn whole_image(&self) -> Option<Vec<u8>> {
        (self.state != ReservationState::default()).then(|| self.state.whole_image(&self.nguid))
    }

    /// Returns the access rights that lanes of `host` check.
    pub(crate) fn access(&mut self, host: HostId) -> Arc<HostAccess> {
        self.accesses.retain(|_, access| Arc::strong_count(access) > 1);
        let access = self.accesses.entry(host).or_default();
        access.set(&self.state, &host);
        access.clone()
    }

    /// Updates all access rights. Returns true if more is refused now.
    fn set_accesses(&mut self) -> bool {
        let set = |(host, access): (&HostId, &Arc<HostAccess>)| access.set(&self.state, host);
        self.accesses.iter().filter(|one| set(*one)).count() > 0
    }

    /// Adds a command to the queue.
    pub(crate) fn submit(
        &mut self,
        host: HostId,
        origin: ReservationOrigin,
        command: ReservationCommand,
        steps: &mut Vec<ReservationStep>,
    ) {
        self.is_new = false;
        self.waiting.push_back(QueuedReservation { host, origin, command });
        self.take_turns(steps);
    }

    fn take_turns(&mut self, steps: &mut Vec<ReservationStep>) {
        while self.turn.is_none()
            && let Some(QueuedReservation { host, origin, command }) = self.waiting.pop_front()
        {
            let mut next = self.state.clone();
            let change = match next.execute(&host, &command, self.can_persist) {
                Ok(change) => change,
                Err(status) => {
                    steps.push(ReservationStep::Answer(origin, status));
                    continue;
                }
            };
            self.turn_last += 1;
            let number = self.turn_last;
            if self.can_persist && !next.persists_as(&self.state) {
                steps.push(ReservationStep::Save(number, next.image(&self.nguid).into()));
                let (origin, next) = (Some(origin), Some((next, change)));
                self.turn = Some(ReservationTurn { number, origin, next });
            } else {
                self.commit(number, Some(origin), (next, change), steps);
            }
        }
    }

    fn commit(
        &mut self,
        number: u64,
        origin: Option<ReservationOrigin>,
        (next, change): (ReservationState, ReservationEffects),
        steps: &mut Vec<ReservationStep>,
    ) {
        self.state = next;
        let has_narrowed = self.set_accesses();
        if !change.notices.is_empty() {
            steps.push(ReservationStep::Notify(change.notices));
        }
        if has_narrowed {
            self.turn = Some(ReservationTurn { number, origin, next: None });
            steps.push(ReservationStep::Fence(number, change.aborts));
        } else {
            steps.extend(origin.map(|origin| ReservationStep::Answer(origin, Status::SUCCESS)));
        }
    }

    /// Continues a turn after its save. If that has failed, nothing changes now, though a later start of the target may
    /// find the change.
    pub(crate) fn saved(&mut self, number: u64, is_saved: bool, steps: &mut Vec<ReservationStep>) {
        let is_it = |turn: &mut ReservationTurn| turn.number == number && turn.next.is_some();
        let Some(ReservationTurn { origin, next: Some(next), .. }) = self.turn.take_if(is_it)
        else {
            return;
        };
        if is_saved {
            self.commit(number, origin, next, steps);
        } else {
            steps.extend(
                origin.map(|origin| ReservationStep::Answer(origin, Status::INTERNAL_ERROR)),
            );
        }
        self.take_turns(steps);
    }

    /// Ends a turn once no forbidden command is executing.
    pub(crate) fn fenced(&mut self, number: u64, steps: &mut Vec<ReservationStep>) {
        let is_it = |turn: &mut ReservationTurn| turn.number == number && turn.next.is_none();
        let Some(ReservationTurn { origin, .. }) = self.turn.take_if(is_it) else { return };
        steps.extend(origin.map(|origin| ReservationStep::Answer(origin, Status::SUCCESS)));
        self.take_turns(steps);
    }

    /// Returns the origins of all commands when the namespace becomes inaccessible: they retry on another path. A turn
    /// that is being saved continues, as others may already see it.
    pub(crate) fn suspend(&mut self) -> Vec<ReservationOrigin> {
        let turn = self.turn.as_mut().and_then(|turn| turn.origin.take());
        turn.into_iter().chain(self.waiting.drain(..).map(|request| request.origin)).collect()
    }

    /// Ends the reservations of a namespace that is gone. Returns the origins of its commands, and the number of the
    /// last turn.
    pub(crate) fn end(mut self) -> (Vec<ReservationOrigin>, u64) {
        (self.suspend(), self.turn_last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reservations::CommandGroup;
    use roadtrain_wire::reservation::{
        AcquireAction, ChangePersistence, RegisterAction, ReservationType,
    };

    const ONE: HostId = [1; 16];
    const TWO: HostId = [2; 16];

    fn register(key: u64, persistence: ChangePersistence) -> ReservationCommand {
        let action = RegisterAction::Register;
        ReservationCommand::Register {
            action,
            ignores_key: false,
            persistence,
            current: 0,
            new: key,
        }
    }

    fn acquire(action: AcquireAction, current: u64, preempted: u64) -> ReservationCommand {
        let kind = ReservationType::WriteExclusive;
        ReservationCommand::Acquire { action, kind, current, preempted }
    }

    #[test]
    fn a_change_that_persists_is_in_force_when_it_was_saved() {
        let mut reservations = NamespaceReservations::new(([7; 16], 0), true, 10);
        let other = reservations.access(TWO);
        let mut steps = Vec::new();
        let command = register(5, ChangePersistence::Set);
        reservations.submit(ONE, ReservationOrigin::Lane(1), command, &mut steps);
        let command = acquire(AcquireAction::Acquire, 5, 0);
        reservations.submit(ONE, ReservationOrigin::Lane(2), command, &mut steps);
        assert!(matches!(steps[..], [ReservationStep::Save(11, _)]), "{steps:?}");
        assert_eq!(reservations.state().registrants.len(), 0);
        steps.clear();
        reservations.saved(10, true, &mut steps);
        reservations.fenced(11, &mut steps);
        assert_eq!(steps, [], "another turn's");
        reservations.saved(11, true, &mut steps);
        assert_eq!(steps[0], ReservationStep::Answer(ReservationOrigin::Lane(1), Status::SUCCESS));
        let ReservationStep::Save(12, image) = &steps[1] else { panic!("{steps:?}") };
        let (nguid, saved) = super::super::parse_image(image).unwrap();
        assert_eq!((nguid, saved.reservation.unwrap().holder), ([7; 16], Some(ONE)));
        assert!(!other.refuses(CommandGroup::Write), "it is not saved yet");
        steps.clear();
        reservations.saved(12, true, &mut steps);
        assert_eq!(steps, [ReservationStep::Fence(12, false)]);
        assert!(other.refuses(CommandGroup::Write) && !other.refuses(CommandGroup::Read));
        steps.clear();
        reservations.fenced(12, &mut steps);
        assert_eq!(steps, [ReservationStep::Answer(ReservationOrigin::Lane(2), Status::SUCCESS)]);
    }

    #[test]
    fn what_cannot_be_saved_has_not_happened() {
        let mut reservations = NamespaceReservations::new(([7; 16], 0), true, 0);
        let mut steps = Vec::new();
        let command = register(5, ChangePersistence::Set);
        reservations.submit(ONE, ReservationOrigin::Lane(1), command, &mut steps);
        reservations.submit(
            ONE,
            ReservationOrigin::Lane(2),
            ReservationCommand::Clear { current: 5 },
            &mut steps,
        );
        steps.clear();
        reservations.saved(1, false, &mut steps);
        let conflict = Status::RESERVATION_CONFLICT.dnr();
        let answers = [(1, Status::INTERNAL_ERROR), (2, conflict)];
        assert_eq!(
            steps,
            answers.map(|(lane, status)| ReservationStep::Answer(
                ReservationOrigin::Lane(lane),
                status
            ))
        );
        assert_eq!(*reservations.state(), ReservationState::default());
    }

    #[test]
    fn where_nothing_persists_nothing_is_saved() {
        let mut reservations = NamespaceReservations::new(([7; 16], 0), false, 0);
        let mut steps = Vec::new();
        let command = register(5, ChangePersistence::Set);
        reservations.submit(ONE, ReservationOrigin::Lane(1), command, &mut steps);
        reservations.submit(
            ONE,
            ReservationOrigin::Lane(2),
            ReservationCommand::Persist(true),
            &mut steps,
        );
        let refused = |lane| {
            ReservationStep::Answer(ReservationOrigin::Lane(lane), Status::INVALID_FIELD.dnr())
        };
        assert_eq!(steps, [refused(1), refused(2)]);
        steps.clear();
        let command = register(5, ChangePersistence::Keep);
        reservations.submit(ONE, ReservationOrigin::Lane(3), command, &mut steps);
        let command = acquire(AcquireAction::Acquire, 5, 0);
        reservations.submit(ONE, ReservationOrigin::Lane(4), command, &mut steps);
        let done = |lane| ReservationStep::Answer(ReservationOrigin::Lane(lane), Status::SUCCESS);
        assert_eq!(steps, [done(3), done(4)], "no host has lost access");
    }

    #[test]
    fn preempt_and_abort_aborts_and_others_wait_for_it() {
        let mut reservations = NamespaceReservations::new(([7; 16], 0), false, 0);
        let (one, mut steps) = (reservations.access(ONE), Vec::new());
        for (host, key) in [(ONE, 1), (TWO, 2)] {
            let command = register(key, ChangePersistence::Keep);
            reservations.submit(host, ReservationOrigin::Lane(key), command, &mut steps);
        }
        reservations.submit(
            ONE,
            ReservationOrigin::Lane(3),
            acquire(AcquireAction::Acquire, 1, 0),
            &mut steps,
        );
        steps.clear();
        let command = acquire(AcquireAction::PreemptAndAbort, 2, 1);
        reservations.submit(TWO, ReservationOrigin::Lane(4), command, &mut steps);
        reservations.submit(
            ONE,
            ReservationOrigin::Lane(5),
            ReservationCommand::Clear { current: 1 },
            &mut steps,
        );
        let notice = ReservationStep::Notify(vec![(ONE, Notification::RegistrationPreempted)]);
        assert_eq!(steps, [notice, ReservationStep::Fence(4, true)]);
        assert!(one.refuses(CommandGroup::Write));
        steps.clear();
        reservations.fenced(4, &mut steps);
        let answers = [(4, Status::SUCCESS), (5, Status::RESERVATION_CONFLICT.dnr())];
        assert_eq!(
            steps,
            answers.map(|(lane, status)| ReservationStep::Answer(
                ReservationOrigin::Lane(lane),
                status
            ))
        );
        let (waiting, last) = reservations.end();
        assert_eq!((waiting, last), (vec![], 4));
    }
}

//! The reservations of a namespace at a running target: commands take turns.

use super::access::Access;
use super::command::Command;
use super::state::{Change, HostId, State};
use roadtrain_wire::reservation::Notification;
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A lane, by what it calls the command.
    Lane(u64),
    /// A Set Features command of a controller.
    Admin { cntlid: u16, cid: u16 },
}

/// What is to be done now.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Save this, then tell [`Reservations::saved`] of that turn.
    Save(u64, Arc<[u8]>),
    /// Tell the hosts' controllers.
    Notify(Vec<(HostId, Notification)>),
    /// End what lanes execute of what is forbidden now, by aborting it or by waiting for it, then tell
    /// [`Reservations::fenced`] of that turn.
    Fence(u64, bool),
    /// Answer the command.
    Answer(Asker, Status),
}

#[derive(Debug)]
struct Request {
    host: HostId,
    asker: Asker,
    command: Command,
}

/// A command that was carried out, and is not answered.
#[derive(Debug)]
struct Turn {
    number: u64,
    /// `None`: was answered when the namespace went out of reach.
    asker: Option<Asker>,
    /// What the namespace is to know, with what comes of that; `None`: it does, and lanes are fenced.
    next: Option<(State, Change)>,
}

/// The reservations of a namespace.
#[derive(Debug)]
pub(crate) struct Reservations {
    nguid: [u8; 16],
    /// [`tenure`](crate::NamespaceConfig::tenure) of the blocks.
    tenure: u64,
    /// There is a place for what persists.
    can_persist: bool,
    state: State,
    /// What lanes look at, by host.
    accesses: BTreeMap<HostId, Arc<Access>>,
    waiting: VecDeque<Request>,
    turn: Option<Turn>,
    turn_last: u64,
    /// Nothing has happened yet.
    is_new: bool,
}

impl Reservations {
    /// None, of a namespace by its NGUID and tenure. `first` is the number of its first turn, after those of namespaces
    /// that were here before.
    pub(crate) fn new((nguid, tenure): ([u8; 16], u64), can_persist: bool, first: u64) -> Self {
        Reservations {
            nguid,
            tenure,
            can_persist,
            state: State::default(),
            accesses: BTreeMap::new(),
            waiting: VecDeque::new(),
            turn: None,
            turn_last: first,
            is_new: true,
        }
    }

    /// Whether they are of the namespace with that NGUID.
    pub(crate) fn is_of(&self, nguid: &[u8; 16]) -> bool {
        self.nguid == *nguid
    }

    /// Since when the blocks have been here.
    pub(crate) fn tenure(&self) -> u64 {
        self.tenure
    }

    /// What the namespace knows by now.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// What it had known before the target started. Not when something has happened already.
    pub(crate) fn restore(&mut self, state: State) {
        if std::mem::take(&mut self.is_new) && self.can_persist {
            self.state = state;
            self.set_accesses();
        }
    }

    /// What another process knew until now that has served the namespace. Not when something has happened already.
    pub(crate) fn adopt(&mut self, state: State) {
        if std::mem::take(&mut self.is_new) {
            self.state = State { persists: state.persists && self.can_persist, ..state };
            self.set_accesses();
        }
    }

    /// There is a place for what persists, or is none any more; what is there already stays as it is.
    pub(crate) fn set_can_persist(&mut self, can_persist: bool) {
        self.can_persist = can_persist;
    }

    /// Whether it would know the same if it had begun with `kept`, so that this may be where it is kept from now on. Not
    /// while a change is being saved where it is kept now.
    pub(crate) fn is_kept_as(&self, kept: &State) -> bool {
        let is_saving = self.turn.as_ref().is_some_and(|turn| turn.next.is_some());
        self.is_new || !is_saving && self.state.persists_as(kept)
    }

    /// All that it knows, for another process; `None`: no host has ever registered.
    pub(crate) fn whole_image(&self) -> Option<Vec<u8>> {
        (self.state != State::default()).then(|| self.state.whole_image(&self.nguid))
    }

    /// What lanes of `host` look at.
    pub(crate) fn access(&mut self, host: HostId) -> Arc<Access> {
        self.accesses.retain(|_, access| Arc::strong_count(access) > 1);
        let access = self.accesses.entry(host).or_default();
        access.set(&self.state, &host);
        access.clone()
    }

    /// Whether something is refused now that was not.
    fn set_accesses(&mut self) -> bool {
        let set = |(host, access): (&HostId, &Arc<Access>)| access.set(&self.state, host);
        self.accesses.iter().filter(|one| set(*one)).count() > 0
    }

    /// A command has come.
    pub(crate) fn submit(
        &mut self,
        host: HostId,
        asker: Asker,
        command: Command,
        steps: &mut Vec<Step>,
    ) {
        self.is_new = false;
        self.waiting.push_back(Request { host, asker, command });
        self.take_turns(steps);
    }

    fn take_turns(&mut self, steps: &mut Vec<Step>) {
        while self.turn.is_none()
            && let Some(Request { host, asker, command }) = self.waiting.pop_front()
        {
            let mut next = self.state.clone();
            let change = match next.execute(&host, &command, self.can_persist) {
                Ok(change) => change,
                Err(status) => {
                    steps.push(Step::Answer(asker, status));
                    continue;
                }
            };
            self.turn_last += 1;
            let number = self.turn_last;
            if self.can_persist && !next.persists_as(&self.state) {
                steps.push(Step::Save(number, next.image(&self.nguid).into()));
                let (asker, next) = (Some(asker), Some((next, change)));
                self.turn = Some(Turn { number, asker, next });
            } else {
                self.commit(number, Some(asker), (next, change), steps);
            }
        }
    }

    fn commit(
        &mut self,
        number: u64,
        asker: Option<Asker>,
        (next, change): (State, Change),
        steps: &mut Vec<Step>,
    ) {
        self.state = next;
        let has_narrowed = self.set_accesses();
        if !change.notices.is_empty() {
            steps.push(Step::Notify(change.notices));
        }
        if has_narrowed {
            self.turn = Some(Turn { number, asker, next: None });
            steps.push(Step::Fence(number, change.aborts));
        } else {
            steps.extend(asker.map(|asker| Step::Answer(asker, Status::SUCCESS)));
        }
    }

    /// What a turn wanted to be saved was, or could not be: then nothing has changed, though a later start of the target
    /// may find that it has.
    pub(crate) fn saved(&mut self, number: u64, is_saved: bool, steps: &mut Vec<Step>) {
        let is_it = |turn: &mut Turn| turn.number == number && turn.next.is_some();
        let Some(Turn { asker, next: Some(next), .. }) = self.turn.take_if(is_it) else { return };
        if is_saved {
            self.commit(number, asker, next, steps);
        } else {
            steps.extend(asker.map(|asker| Step::Answer(asker, Status::INTERNAL_ERROR)));
        }
        self.take_turns(steps);
    }

    /// Nothing is executed any more that a turn has forbidden.
    pub(crate) fn fenced(&mut self, number: u64, steps: &mut Vec<Step>) {
        let is_it = |turn: &mut Turn| turn.number == number && turn.next.is_none();
        let Some(Turn { asker, .. }) = self.turn.take_if(is_it) else { return };
        steps.extend(asker.map(|asker| Step::Answer(asker, Status::SUCCESS)));
        self.take_turns(steps);
    }

    /// The namespace is out of reach: who waits, and is to try again elsewhere. What is being saved may be in force already
    /// as others see it, so that turn goes on.
    pub(crate) fn suspend(&mut self) -> Vec<Asker> {
        let turn = self.turn.as_mut().and_then(|turn| turn.asker.take());
        turn.into_iter().chain(self.waiting.drain(..).map(|request| request.asker)).collect()
    }

    /// The namespace is gone: who waits, and the number of the last turn.
    pub(crate) fn end(mut self) -> (Vec<Asker>, u64) {
        (self.suspend(), self.turn_last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reservations::Group;
    use roadtrain_wire::reservation::{
        AcquireAction, ChangePersistence, RegisterAction, ReservationType,
    };

    const ONE: HostId = [1; 16];
    const TWO: HostId = [2; 16];

    fn register(key: u64, persistence: ChangePersistence) -> Command {
        let action = RegisterAction::Register;
        Command::Register { action, ignores_key: false, persistence, current: 0, new: key }
    }

    fn acquire(action: AcquireAction, current: u64, preempted: u64) -> Command {
        let kind = ReservationType::WriteExclusive;
        Command::Acquire { action, kind, current, preempted }
    }

    #[test]
    fn a_change_that_persists_is_in_force_when_it_was_saved() {
        let mut reservations = Reservations::new(([7; 16], 0), true, 10);
        let other = reservations.access(TWO);
        let mut steps = Vec::new();
        let command = register(5, ChangePersistence::Set);
        reservations.submit(ONE, Asker::Lane(1), command, &mut steps);
        let command = acquire(AcquireAction::Acquire, 5, 0);
        reservations.submit(ONE, Asker::Lane(2), command, &mut steps);
        assert!(matches!(steps[..], [Step::Save(11, _)]), "{steps:?}");
        assert_eq!(reservations.state().registrants.len(), 0);
        steps.clear();
        reservations.saved(10, true, &mut steps);
        reservations.fenced(11, &mut steps);
        assert_eq!(steps, [], "another turn's");
        reservations.saved(11, true, &mut steps);
        assert_eq!(steps[0], Step::Answer(Asker::Lane(1), Status::SUCCESS));
        let Step::Save(12, image) = &steps[1] else { panic!("{steps:?}") };
        let (nguid, saved) = super::super::parse_image(image).unwrap();
        assert_eq!((nguid, saved.reservation.unwrap().holder), ([7; 16], Some(ONE)));
        assert!(!other.refuses(Group::Write), "it is not saved yet");
        steps.clear();
        reservations.saved(12, true, &mut steps);
        assert_eq!(steps, [Step::Fence(12, false)]);
        assert!(other.refuses(Group::Write) && !other.refuses(Group::Read));
        steps.clear();
        reservations.fenced(12, &mut steps);
        assert_eq!(steps, [Step::Answer(Asker::Lane(2), Status::SUCCESS)]);
    }

    #[test]
    fn what_cannot_be_saved_has_not_happened() {
        let mut reservations = Reservations::new(([7; 16], 0), true, 0);
        let mut steps = Vec::new();
        let command = register(5, ChangePersistence::Set);
        reservations.submit(ONE, Asker::Lane(1), command, &mut steps);
        reservations.submit(ONE, Asker::Lane(2), Command::Clear { current: 5 }, &mut steps);
        steps.clear();
        reservations.saved(1, false, &mut steps);
        let conflict = Status::RESERVATION_CONFLICT.dnr();
        let answers = [(1, Status::INTERNAL_ERROR), (2, conflict)];
        assert_eq!(steps, answers.map(|(lane, status)| Step::Answer(Asker::Lane(lane), status)));
        assert_eq!(*reservations.state(), State::default());
    }

    #[test]
    fn where_nothing_persists_nothing_is_saved() {
        let mut reservations = Reservations::new(([7; 16], 0), false, 0);
        let mut steps = Vec::new();
        let command = register(5, ChangePersistence::Set);
        reservations.submit(ONE, Asker::Lane(1), command, &mut steps);
        reservations.submit(ONE, Asker::Lane(2), Command::Persist(true), &mut steps);
        let refused = |lane| Step::Answer(Asker::Lane(lane), Status::INVALID_FIELD.dnr());
        assert_eq!(steps, [refused(1), refused(2)]);
        steps.clear();
        let command = register(5, ChangePersistence::Keep);
        reservations.submit(ONE, Asker::Lane(3), command, &mut steps);
        let command = acquire(AcquireAction::Acquire, 5, 0);
        reservations.submit(ONE, Asker::Lane(4), command, &mut steps);
        let done = |lane| Step::Answer(Asker::Lane(lane), Status::SUCCESS);
        assert_eq!(steps, [done(3), done(4)], "nobody has lost anything");
    }

    #[test]
    fn preempt_and_abort_aborts_and_others_wait_for_it() {
        let mut reservations = Reservations::new(([7; 16], 0), false, 0);
        let (one, mut steps) = (reservations.access(ONE), Vec::new());
        for (host, key) in [(ONE, 1), (TWO, 2)] {
            let command = register(key, ChangePersistence::Keep);
            reservations.submit(host, Asker::Lane(key), command, &mut steps);
        }
        reservations.submit(ONE, Asker::Lane(3), acquire(AcquireAction::Acquire, 1, 0), &mut steps);
        steps.clear();
        let command = acquire(AcquireAction::PreemptAndAbort, 2, 1);
        reservations.submit(TWO, Asker::Lane(4), command, &mut steps);
        reservations.submit(ONE, Asker::Lane(5), Command::Clear { current: 1 }, &mut steps);
        let notice = Step::Notify(vec![(ONE, Notification::RegistrationPreempted)]);
        assert_eq!(steps, [notice, Step::Fence(4, true)]);
        assert!(one.refuses(Group::Write));
        steps.clear();
        reservations.fenced(4, &mut steps);
        let answers = [(4, Status::SUCCESS), (5, Status::RESERVATION_CONFLICT.dnr())];
        assert_eq!(steps, answers.map(|(lane, status)| Step::Answer(Asker::Lane(lane), status)));
        let (waiting, last) = reservations.end();
        assert_eq!((waiting, last), (vec![], 4));
    }
}

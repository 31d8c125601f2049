//! An association with a controller: what a host does to keep its lanes connected, and what it gives up.
//!
//! It has one path: an admin queue and a connection for each lane. A host with several paths has an association for
//! each. Requests are not here: they outlive connections ([`super::requests`]), and are told by [`Action::Attach`],
//! [`Action::Reset`], [`Action::Fail`] and [`Action::SetBarred`].
//!
//! The driver takes [`Association::poll`]'s actions until there are none, carries each out, in whatever time that
//! takes, and answers those that have an answer. It tells what happens by the other calls, and comes back at
//! [`Association::deadline`] at the latest.
//!
//! - All connections of the path are made together and lost together. Before new ones are made the old ones are gone,
//!   so that no old command overtakes its retry.
//! - A lane may get one more connection later, an express ([`super::express`]). An attempt that fails harms nobody; one
//!   that has succeeded is lost like the others.
//! - Lanes get their connections when all of them are there, and when the target has ended the controllers that they had
//!   before (Cross-Controller Reset): a target may not have heard that its connections were lost. Where that is not to
//!   be had, writes wait for those that may still be executed ([`super::old_commands`]).
//! - A path that is lost is connected again at once, and from then on with pauses that double; two attempts begin no
//!   closer to each other than the first pause.
//! - When the path has not worked for the controller-loss timeout requests fail, until it works again.
//! - Whatever else it does, a Keep Alive leaves in time between two commands.

mod action;
mod beside;
mod ending;
mod errands;
mod express;
mod fencing;
mod live;
mod look_ups;
mod loss;
mod transitions;

pub use action::{Action, Config, Reason};
pub use beside::Beside;
pub use look_ups::AskedBy;

use ending::Ending;
use errands::{Attempt, Errands};
use express::Expresses;
use fencing::{Lost, end_lost, identity, is_claim};
use look_ups::LookUps;
use loss::Loss;
use transitions::Transitions;

use super::allocation::Allocation;
use super::bringup::{self, ControllerInfo, Fencing, NamespaceInfo};
use super::old_commands::{ControllerSerial, LaneGuard};
use super::paths::AnaTable;
use super::pins::Pins;
use super::procedure::{Answer, Ask, Command, Failure, Procedure, Step};
use super::retry::RetryRules;
use super::write_verifier::PathWrites;
use core::time::Duration;
use roadtrain_proto::security::TlsPsk;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::cross_reset::ControllerInstance;
use roadtrain_wire::fabrics::fctype;
use roadtrain_wire::feature::AsyncEvent;
use roadtrain_wire::sqe::{Sqe, opcode};
use std::collections::VecDeque;
use std::sync::Arc;

/// Shortest wait for an answer.
const ANSWER_MIN: Duration = Duration::from_millis(500);

/// State of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No connection, until then.
    Down { until: Instant },
    /// On its way.
    Connecting,
    /// Lanes have connections.
    Live,
    /// Old connections are being ended; the next attempt is then.
    Resetting { until: Instant },
}

/// Result of a procedure of a path.
enum Done<E> {
    Information(Box<ControllerInfo>, Option<TlsPsk>, Vec<(ControllerSerial, u16, Fencing)>),
    Lanes,
    /// Of that lane, with that number.
    Express(usize, usize, Result<(), Failure<E>>),
    /// The next event may come.
    Namespaces(Vec<NamespaceInfo>, AnaTable),
    /// As the log has it, without an event.
    Ana(AnaTable),
    /// For another association.
    Errand(Attempt),
    LookedUp(Option<Allocation>),
    Nothing,
    ShutDown,
}

type Task<E> = Procedure<E, Result<Done<E>, Failure<E>>>;

/// The step that the driver carries out.
struct Asked {
    what: &'static str,
    /// Not the procedure's, but in between.
    is_keep_alive: bool,
    /// The admin queue's Connect, or a step of the authentication behind it: the controller takes Keep Alives, and waits
    /// for them, from the end of that on.
    opens_admin_queue: bool,
    /// When there is no answer in time; `None` for what we do ourselves, which takes what it takes.
    until: Option<Instant>,
}

struct Path<E> {
    state: State,
    task: Option<Task<E>>,
    asked: Option<Asked>,
    /// The task goes on then.
    pause_until: Option<Instant>,
    /// When the next Keep Alive is due.
    keep_alive_at: Option<Instant>,
    /// The last command was of those that [`Asked::opens_admin_queue`] means.
    opens_admin_queue: bool,
    /// An event that nobody has looked at.
    event: Option<AsyncEvent>,
    /// Commands to be aborted: lane and command identifier.
    overdue: VecDeque<(usize, u16)>,
    /// The target has not answered the last Abort.
    is_aborting: bool,
    /// Express connections: their numbers follow those of lanes.
    expresses: Expresses,
    /// When the last attempt began.
    began_at: Instant,
    /// The pause after the next attempt that fails.
    delay: Duration,
    /// The controller that the path has, ...
    controller: Option<(ControllerSerial, Option<ControllerInstance>)>,
    /// ... and those that its lanes have lost: they may still have commands of theirs.
    lost: Lost,
    /// Namespaces that are between two ANA states.
    transitions: Transitions,
    /// The PSK that was made, for as long as attempts to connect with it succeed.
    psk: Option<TlsPsk>,
}

/// An association.
pub struct Association<E> {
    config: Config,
    path: Path<E>,
    pins: Pins,
    writes: PathWrites,
    info: Option<Arc<ControllerInfo>>,
    loss: Loss,
    ending: Option<Ending>,
    /// Controllers that others have lost.
    errands: Errands,
    look_ups: LookUps,
    /// [`ended_so_far`](super::old_commands::OldCommands::ended_so_far) at the last [`Action::Release`].
    ended_so_far: u64,
    /// Those who submit requests have come to an end.
    has_ended: bool,
    /// Another association of the host is live while this one ends.
    has_help: bool,
    actions: VecDeque<Action<E>>,
}

impl<E: Send + 'static> Association<E> {
    /// An association whose one path is to be connected.
    #[must_use]
    pub fn new(now: Instant, config: Config) -> Self {
        let path = Path {
            state: State::Down { until: now },
            task: None,
            asked: None,
            pause_until: None,
            keep_alive_at: None,
            opens_admin_queue: false,
            event: None,
            overdue: VecDeque::new(),
            is_aborting: false,
            expresses: Expresses::default(),
            began_at: now,
            delay: config.reconnect_delay,
            controller: None,
            lost: Lost::inherited(&config.old_commands),
            transitions: Transitions::default(),
            psk: None,
        };
        let beside = config.beside.as_ref();
        let mut pins =
            beside.map_or_else(Pins::alone, |beside| Pins::beside(beside.pinned.clone()));
        pins.check(beside.map_or(&[], |beside| &beside.namespaces[..]));
        let ended_so_far = config.old_commands.ended_so_far();
        let writes = beside.map(|beside| beside.writes.clone()).unwrap_or_default();
        let mut loss = Loss::default();
        loss.begin(now);
        Association {
            config,
            path,
            pins,
            writes: PathWrites::new(writes),
            info: None,
            loss,
            ending: None,
            errands: Errands::default(),
            look_ups: LookUps::default(),
            ended_so_far,
            has_ended: false,
            has_help: false,
            actions: VecDeque::new(),
        }
    }

    /// The same, with an admin queue that has brought the controller up, with the PSK that was made for it: the lanes are
    /// next.
    #[must_use]
    pub fn brought_up(
        now: Instant,
        config: Config,
        info: ControllerInfo,
        psk: Option<TlsPsk>,
    ) -> Self {
        let mut association = Association::new(now, config);
        association.path.psk = psk;
        association.path.state = State::Connecting;
        association.path.keep_alive_at = association.keep_alive_after(now);
        match association.path.lost.to_end() {
            lost if lost.is_empty() => {
                association.fenced_by_path(now, Vec::new());
                association.connect_lanes(info);
            }
            lost => association.end_lost_first(info, lost),
        }
        association
    }

    // ---- What is known ----

    /// What the controller has said about itself.
    #[must_use]
    pub fn info(&self) -> Option<&Arc<ControllerInfo>> {
        self.info.as_ref()
    }

    /// Whether lanes have connections.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.path.state == State::Live
    }

    /// Whether nothing is under way on the control plane of a live path.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let path = &self.path;
        path.state == State::Live
            && path.task.is_none()
            && path.asked.is_none()
            && path.event.is_none()
            && path.overdue.is_empty()
            && !path.is_aborting
            && !path.expresses.is_wanted()
            && !self.look_ups.is_waiting()
            && self.errands.due().is_none()
    }

    /// Whether it is coming to an end.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether it is, and the target is there: what is said to it yet has its time.
    #[must_use]
    pub fn ends_in_order(&self) -> bool {
        matches!(self.ending, Some(Ending::Waiting { is_there: true, .. } | Ending::ShuttingDown))
    }

    /// When the path is connected again.
    #[must_use]
    pub fn retries_at(&self) -> Option<Instant> {
        match self.path.state {
            State::Down { until } => Some(until),
            _ => None,
        }
    }

    /// When to call [`Association::poll`] at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let ending = match self.ending {
            Some(Ending::Waiting { until, .. }) => Some(until),
            _ => None,
        };
        let path = &self.path;
        let retry = match path.state {
            State::Down { until } if self.ending.is_none() => Some(until),
            _ => None,
        };
        let own = match &path.asked {
            Some(asked) => [asked.until, None],
            None => [path.pause_until, path.keep_alive_at],
        };
        let is_free = path.state == State::Live && path.task.is_none() && path.asked.is_none();
        let errand = if is_free { self.errands.due() } else { None };
        let late = path.transitions.due().filter(|_| is_free);
        let old = self.config.old_commands.due();
        let others = [retry, errand, late, ending, old, self.fast_failing_at()];
        own.into_iter().chain(others).flatten().min()
    }

    // ---- What happens ----

    /// The driver's answer to the path's last [`Action::Ask`].
    pub fn answer(&mut self, now: Instant, answer: Result<Answer, E>) {
        let Some(asked) = self.path.asked.take() else { return };
        let has_failed = match &answer {
            Ok(Answer::Completed { cqe, .. }) => !cqe.status().is_success(),
            Ok(_) => false,
            Err(_) => true,
        };
        if asked.opens_admin_queue && !has_failed {
            self.path.keep_alive_at = self.keep_alive_after(now);
        }
        if self.ending == Some(Ending::Asking) && answer.is_ok() {
            let until = now + self.patience_at_end();
            self.ending = Some(Ending::Waiting { until, is_there: true });
        }
        if !asked.is_keep_alive {
            if let Some(task) = &mut self.path.task {
                task.answer(answer);
            }
            return;
        }
        let what = asked.what;
        match answer {
            Err(source) => self.lose(now, Reason::Path(Failure::Lost { what, source })),
            Ok(Answer::Completed { cqe, .. }) if !cqe.status().is_success() => {
                let status = cqe.status();
                self.lose(now, Reason::Path(Failure::Command { what, status }));
            }
            Ok(_) => {}
        }
    }

    /// The Asynchronous Event Request was completed.
    pub fn event(&mut self, cqe: &Cqe) {
        if cqe.status().is_success() {
            self.path.event = Some(AsyncEvent::parse(cqe.dw0.get()));
        } // else the controller gives the request back: no more events
    }

    /// The target has answered the path's last [`Action::Abort`], whatever it says: the aborted command's own answer counts.
    pub fn aborted(&mut self) {
        self.path.is_aborting = false;
    }

    /// The path's admin queue has lost its connection while nobody waited for an answer.
    pub fn admin_lost(&mut self, now: Instant, source: E) {
        let what = "admin queue";
        self.lose(now, Reason::Path(Failure::Lost { what, source }));
    }

    /// A lane has lost the connection that the path had for it.
    pub fn lane_lost(&mut self, now: Instant, lane: usize, error: E) {
        if self.path.state != State::Live {
            return; // of connections that are gone
        }
        match self.ending {
            // Nobody connects again any more.
            Some(_) if !self.has_help || self.has_ended => {
                self.actions.push_back(Action::Fail { lane: Some(lane) })
            }
            _ => self.lose(now, Reason::Lane { lane, error }),
        }
    }

    /// Commands of a lane have not been answered in time: by their identifiers.
    pub fn overdue(&mut self, lane: usize, cids: impl IntoIterator<Item = u16>) {
        let path = &mut self.path;
        if path.state == State::Live {
            path.overdue.extend(cids.into_iter().map(|cid| (lane, cid)));
        }
    }

    /// The connections of a path are gone, as [`Action::Reset`] wanted.
    pub fn reset(&mut self, now: Instant) {
        // Not before the time: the last try is at its end.
        let limit = self
            .loss
            .failing_at(self.config.controller_loss_timeout)
            .filter(|&at| at > now)
            .unwrap_or(Instant(u64::MAX));
        let path = &mut self.path;
        if let State::Resetting { until } = path.state {
            path.state = State::Down { until: until.min(limit) };
        }
        path.lost.connections_gone(now, &self.config.old_commands);
        self.ask_others();
    }

    fn lose(&mut self, now: Instant, why: Reason<E>) {
        let (first, longest) = (self.config.reconnect_delay, self.config.reconnect_delay_max);
        let path = &mut self.path;
        let was_live = path.state == State::Live;
        if !was_live && path.state != State::Connecting {
            return;
        }
        let why = match (self.ending, why) {
            // Whether all that was written is stable was not said.
            (Some(Ending::ShuttingDown), Reason::Path(failure)) => {
                return self.end(now, Some(Err(failure)));
            }
            (_, why) => why,
        };
        let until = if was_live {
            path.delay = first;
            if let Some((serial, instance)) = path.controller.take() {
                path.lost.push(now, &self.config.old_commands, serial, instance);
            }
            (path.began_at + first).max(now)
        } else {
            let delay = path.delay;
            path.delay = (delay * 2).min(longest);
            // The target may not know it any more: the next attempt makes another one.
            path.psk = None;
            path.lost.missed(now, &self.config.old_commands, self.config.beside.is_some());
            now + self.config.old_commands.ask_within().map_or(delay, |most| delay.min(most))
        };
        if is_claim(&why) {
            self.config.old_commands.claim_all(now);
        }
        path.abandon();
        path.state = State::Resetting { until };
        self.writes.disconnected();
        self.abandon_look_ups();
        self.actions.push_back(Action::Reset { why, was_live });
        if self.ending.is_some() {
            self.give_up(now);
        } else if !self.is_live() {
            self.loss.begin(now);
        }
    }

    // ---- What is to be done ----

    /// The next thing to do; `None`: nothing until something happens, or [`Association::deadline`].
    pub fn poll(&mut self, now: Instant) -> Option<Action<E>> {
        loop {
            if let Some(action) = self.actions.pop_front() {
                return Some(action);
            }
            self.check_old_commands(now);
            let has_changed = self.advance(now);
            let has_come = !self.actions.is_empty();
            if !has_come && !has_changed && !self.fail_if_lost(now) && !self.advance_ending(now) {
                return None;
            }
        }
    }

    /// The next thing that is decided already: [`Association::poll`] goes on from there.
    pub fn next_action(&mut self) -> Option<Action<E>> {
        self.actions.pop_front()
    }

    /// `true`: a path has done something.
    fn advance(&mut self, now: Instant) -> bool {
        let ending = self.ending;
        let path = &mut self.path;
        match path.state {
            State::Down { until } if until <= now && ending.is_none() => {
                self.connect(now);
                return true;
            }
            State::Down { .. } | State::Resetting { .. } => return false,
            State::Connecting | State::Live => {}
        }
        if let Some(asked) = &path.asked {
            let is_over = asked.until.is_some_and(|until| until <= now);
            let what = asked.what;
            if is_over
                && !asked.is_keep_alive
                && let Some(lane) = path.expresses.on_its_way()
            {
                (path.task, path.asked) = (None, None);
                self.refuse_express(lane, Some(Failure::Silent { what }));
            } else if is_over {
                self.lose(now, Reason::Path(Failure::Silent { what }));
            }
            return is_over;
        }
        if ending == Some(Ending::Asking) || path.keep_alive_at.is_some_and(|at| at <= now) {
            self.keep_alive(now);
            return true;
        }
        if path.pause_until.is_some_and(|until| until > now) {
            return false;
        }
        path.pause_until = None;
        let Some(task) = &mut path.task else { return self.next_task(now) };
        match task.poll(now) {
            Step::Ask(ask) => self.ask(now, ask, false),
            Step::Until(until) => {
                path.pause_until = Some(until);
                return false;
            }
            Step::Asked => return false,
            Step::Ended(done) => {
                path.task = None;
                self.finished(now, done);
            }
        }
        true
    }

    fn connect(&mut self, now: Instant) {
        let (wants, lanes) = (self.config.wants.clone(), self.config.lanes);
        let expresses = self.config.expresses;
        let transfer_bytes = self.config.beside.as_ref().map_or(0, |beside| beside.transfer_bytes);
        let path = &mut self.path;
        (path.state, path.began_at) = (State::Connecting, now);
        let (lost, before) = (path.lost.to_end(), path.psk.clone());
        let old = self.config.old_commands.clone();
        path.task = Some(Procedure::new(|driver| async move {
            let enabled = bringup::connect(&driver, &wants, before).await?;
            let info = bringup::information(&driver, &enabled, lanes, expresses).await?;
            let psk = enabled.psk;
            if info.io_queues < lanes {
                let text = format!("the target grants only {} I/O queues now", info.io_queues);
                return Err(Failure::Controller(text));
            }
            if info.transfer_bytes_max < transfer_bytes {
                let least = info.transfer_bytes_max;
                let text =
                    format!("takes {least} octets at once, and other paths {transfer_bytes}");
                return Err(Failure::Controller(text));
            }
            let fenced = end_lost(&driver, &wants, &info, lost, &old).await?;
            Ok(Done::Information(Box::new(info), psk, fenced))
        }));
    }

    fn connect_lanes(&mut self, info: ControllerInfo) {
        self.pins.check(&info.namespaces); // lanes hear of it when they are attached
        self.check_writes(&info.namespaces);
        let info = Arc::new(info);
        self.info = Some(info.clone());
        self.actions.push_back(Action::Changed);
        let (wants, lanes) = (self.config.wants.clone(), self.config.lanes);
        self.path.task = Some(Procedure::new(|driver| async move {
            for lane in 0..lanes {
                bringup::connect_lane(&driver, &wants, &info, lane as u16 + 1).await?;
            }
            Ok(Done::Lanes)
        }));
    }

    fn finished(&mut self, now: Instant, done: Result<Done<E>, Failure<E>>) {
        match done {
            Err(failure) if self.ending == Some(Ending::ShuttingDown) => {
                self.end(now, Some(Err(failure)))
            }
            Err(failure) => self.lose(now, Reason::Path(failure)),
            Ok(Done::Information(info, psk, fenced)) => {
                self.path.psk = psk;
                self.fenced_by_path(now, fenced);
                self.connect_lanes(*info);
            }
            Ok(Done::Lanes) => self.attach(now),
            Ok(Done::Express(lane, express, Ok(()))) => self.attach_express(lane, express),
            Ok(Done::Express(lane, _, Err(failure))) => self.refuse_express(lane, Some(failure)),
            Ok(Done::Namespaces(namespaces, ana)) => {
                self.check_namespaces(namespaces);
                if self.config.beside.is_some() {
                    self.set_ana(now, ana);
                }
                let sqe = Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0);
                self.actions.push_back(Action::Listen { sqe });
            }
            Ok(Done::Ana(ana)) => self.set_ana(now, ana),
            Ok(Done::Errand(attempt)) => self.errand_done(now, attempt),
            Ok(Done::LookedUp(found)) => self.looked_up(found),
            Ok(Done::Nothing) => {}
            Ok(Done::ShutDown) => self.end(now, Some(Ok(()))),
        }
    }

    /// All connections of the path are there.
    fn attach(&mut self, now: Instant) {
        let Some(info) = self.info.clone() else { return };
        let rules = self.rules(&info);
        let barred = self.pins.barred();
        let instance = bringup::instance(&info);
        let serial = self.config.old_commands.begin(identity(self.config.wants.keep_alive, &info));
        self.path.controller = Some((serial, instance));
        let guard = LaneGuard::new(self.config.old_commands.clone(), serial);
        let writes = self.writes.clone();
        self.begin_writes();
        self.actions.push_back(Action::Attach { rules, barred, writes, guard });
        self.loss = Loss::default();
        self.errands.renew(now);
        let path = &mut self.path;
        path.state = State::Live;
        path.transitions = Transitions::new(info.identify.anatt);
        let has_others = self.config.beside.is_some();
        path.task = Some(Procedure::new(move |driver| async move {
            if !bringup::switch_events_on(&driver, &info.identify, has_others).await? {
                return Ok(Done::Nothing);
            }
            // What changed before events were switched on has none.
            beside::look(&driver, has_others.then_some(&*info.identify)).await
        }));
    }

    /// Has the controllers ended that an earlier process has lost, before there are lanes.
    fn end_lost_first(
        &mut self,
        info: ControllerInfo,
        lost: Vec<(ControllerSerial, ControllerInstance)>,
    ) {
        let (wants, old) = (self.config.wants.clone(), self.config.old_commands.clone());
        let psk = self.path.psk.clone();
        self.path.task = Some(Procedure::new(|driver| async move {
            let fenced = end_lost(&driver, &wants, &info, lost, &old).await?;
            Ok(Done::Information(Box::new(info), psk, fenced))
        }));
    }

    /// Takes note of what the path's new controller has said of those that were lost.
    fn fenced_by_path(&mut self, now: Instant, fenced: Vec<(ControllerSerial, u16, Fencing)>) {
        self.path.lost.fenced(now, &self.config.old_commands, &fenced);
        let fenced = fenced.into_iter();
        self.actions.extend(fenced.map(|(_, cntlid, fencing)| Action::Fenced { cntlid, fencing }));
        self.check_release();
    }

    /// The time may have passed after which controllers have ended.
    fn check_old_commands(&mut self, now: Instant) {
        self.config.old_commands.expire(now);
        self.check_release();
    }

    /// Emits [`Action::Release`] if controllers have ended, by whatever.
    pub(super) fn check_release(&mut self) {
        let ended_so_far = self.config.old_commands.ended_so_far();
        if std::mem::replace(&mut self.ended_so_far, ended_so_far) != ended_so_far {
            self.actions.push_back(Action::Release);
        }
    }

    fn rules(&self, info: &ControllerInfo) -> RetryRules {
        let crdt = info.identify.crdt.map(|units| units.get());
        RetryRules::new(crdt, self.config.controller_loss_timeout)
    }

    // ---- Answers ----

    fn keep_alive_after(&self, now: Instant) -> Option<Instant> {
        let timeout = self.config.wants.keep_alive;
        (!timeout.is_zero()).then(|| now + timeout / 2)
    }

    /// When the answer to the path's last [`Action::Ask`] comes too late; `None`: never.
    #[must_use]
    pub fn answer_by(&self) -> Option<Instant> {
        self.path.asked.as_ref()?.until
    }

    /// Longest wait for an answer. A Keep Alive leaves half a keep-alive timeout after the last sign of life, so another
    /// half is left for its answer. Other commands keep the next Keep Alive waiting. An attempt to connect ends when
    /// requests fail anyway.
    fn patience(&self, now: Instant, is_keep_alive: bool) -> Duration {
        let longest = self.config.wants.timeout;
        let keep_alive = self.config.wants.keep_alive;
        let is_live = self.path.state == State::Live;
        let limit = match (is_live, is_keep_alive) {
            _ if self.ending.is_some() => None,
            (true, _) if keep_alive.is_zero() => None,
            (true, true) => Some(keep_alive / 2),
            (true, false) => Some(keep_alive),
            (false, _) => self.fast_failing_at().map(|at| at.since(now)),
        };
        limit.map_or(longest, |limit| longest.min(limit.max(ANSWER_MIN)))
    }

    fn ask(&mut self, now: Instant, ask: Ask, is_keep_alive: bool) {
        let before = self.path.opens_admin_queue;
        let (what, opens_admin_queue) = match &ask {
            Ask::Open { .. } => ("connection", false),
            Ask::Run { qid, command } => {
                let opens = *qid == 0 && opens_queue(&command.sqe);
                (command.what, opens)
            }
            Ask::Random { .. } | Ask::Compute(_) | Ask::Seal { .. } => ("authentication", before),
        };
        let is_ours = matches!(&ask, Ask::Random { .. } | Ask::Compute(_) | Ask::Seal { .. });
        let until = (!is_ours).then(|| now + self.patience(now, is_keep_alive));
        let path = &mut self.path;
        path.opens_admin_queue = opens_admin_queue;
        path.asked = Some(Asked { what, is_keep_alive, opens_admin_queue, until });
        self.actions.push_back(Action::Ask { ask });
    }

    fn keep_alive(&mut self, now: Instant) {
        self.path.keep_alive_at = self.keep_alive_after(now);
        let command = Command::new("Keep Alive", Sqe::new(opcode::KEEP_ALIVE, 0));
        self.ask(now, Ask::Run { qid: 0, command }, true);
    }
}

/// True for Connect, and for commands of an authentication.
fn opens_queue(sqe: &Sqe) -> bool {
    let kinds = [fctype::CONNECT, fctype::AUTHENTICATION_SEND, fctype::AUTHENTICATION_RECEIVE];
    sqe.opcode == opcode::FABRICS && kinds.contains(&sqe.fctype())
}

impl<E> Path<E> {
    /// Nothing of what was under way counts any more.
    fn abandon(&mut self) {
        (self.task, self.asked, self.event) = (None, None, None);
        (self.pause_until, self.keep_alive_at) = (None, None);
        self.overdue.clear();
        self.is_aborting = false;
        self.expresses = Expresses::default();
        self.transitions.clear();
    }
}

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

mod answers;
mod beside;
mod ending;
mod errands;
mod express;
mod fencing;
mod look_ups;
mod loss;
mod transitions;
mod writes;

pub use beside::Beside;
pub use look_ups::AskedBy;

use ending::Ending;
use errands::{Attempt, Errand};
use fencing::{Lost, end_lost, is_claim};
use look_ups::LookUps;
use loss::Failed;
use transitions::Transitions;

use super::allocation::Allocation;
use super::bringup::{self, ControllerInfo, Fencing, NamespaceInfo, Wants};
use super::old_commands::{ControllerSerial, LaneGuard, OldCommands};
use super::paths::AnaTable;
use super::pins::{Barred, Pins};
use super::procedure::{Answer, Ask, Command, Failure, Procedure, Step};
use super::retry::RetryRules;
use super::write_verifier::PathWrites;
use core::time::Duration;
use roadtrain_proto::security::TlsPsk;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::cross_reset::ControllerInstance;
use roadtrain_wire::feature::AsyncEvent;
use roadtrain_wire::sqe::{Sqe, opcode};
use std::collections::VecDeque;
use std::sync::Arc;

/// How an association is kept.
#[derive(Clone, Debug)]
pub struct Config {
    /// What each path is connected with.
    pub wants: Wants,
    /// I/O queues; a controller that grants fewer is not used.
    pub lanes: u32,
    /// Express connections at most; a controller that grants fewer queues has fewer.
    pub expresses: u32,
    /// First pause before connecting again; doubles up to the longest.
    pub reconnect_delay: Duration,
    /// The longest.
    pub reconnect_delay_max: Duration,
    /// Requests fail when no path has worked for that long; `None`: they wait for ever.
    pub controller_loss_timeout: Option<Duration>,
    /// The same for requests, before that; `None`: they wait for the controller-loss timeout.
    pub fast_io_fail_timeout: Option<Duration>,
    /// What another association of the host has, where both lead to the same namespaces ([`super::paths`]). `None`: there
    /// is no other association.
    pub beside: Option<Beside>,
    /// What all associations and lanes of the host share.
    pub old_commands: OldCommands,
}

/// Why a path is given up.
#[derive(Clone, Debug)]
pub enum Reason<E> {
    /// A lane has lost its connection.
    Lane { lane: usize, error: E },
    /// Its admin queue, or an attempt to connect it.
    Path(Failure<E>),
}

/// What the driver is to do.
#[derive(Debug)]
pub enum Action<E> {
    /// Something on a queue of the path: [`Association::answer`].
    Ask { ask: Ask },
    /// Send an Asynchronous Event Request on the path's admin queue: [`Association::event`], at any time.
    Listen { sqe: Sqe },
    /// Send an Abort on the path's admin queue, and do not wait for its answer: [`Association::aborted`].
    Abort { sqe: Sqe },
    /// Give a lane the express connection that was opened for it, as queue `number + 1`.
    AttachExpress {
        lane: usize,
        number: usize,
        rules: RetryRules,
        /// What is not to be submitted.
        barred: Barred,
        /// What the path's acknowledged writes are noted in.
        writes: PathWrites,
        /// The controller knows Disconnect, by which the connection ends without the others.
        may_close: bool,
        guard: LaneGuard,
    },
    /// The lane gets no express connection, for that reason; what was opened of it is to be ended.
    RefuseExpress { lane: usize, why: Option<Failure<E>> },
    /// Give the lanes the connections that were opened for them.
    Attach {
        rules: RetryRules,
        /// What is not to be submitted.
        barred: Barred,
        /// What the path's acknowledged writes are noted in.
        writes: PathWrites,
        /// What writes have to wait for.
        guard: LaneGuard,
    },
    /// The target's machine has failed, with acknowledged writes to these namespaces that were not flushed: the next Flush
    /// of each fails.
    WritesLost { nsids: Vec<u32> },
    /// Lanes are not to submit requests for these.
    SetBarred(Barred),
    /// What the path's controller can reach, where there are other paths.
    SetAna { ana: AnaTable },
    /// Namespaces have been between two ANA states for longer than the path's controller has said (ANATT): they count as
    /// inaccessible there. Told once.
    LateTransition { nsids: Vec<u32> },
    /// [`Association::info`] has changed.
    Changed,
    /// Have the controller that the path has lost ended by the other associations: [`Association::end_for`].
    EndElsewhere { lost: ControllerInstance },
    /// What has become of a controller that association `owner` has lost. If it has ended, that one is to be told:
    /// [`Association::fenced`].
    EndedFor { owner: usize, lost: ControllerInstance, fencing: Fencing },
    /// What has become of the controller that the path has lost.
    Fenced { cntlid: u16, fencing: Fencing },
    /// What blocks are allocated, as [`Association::look_up`] wanted to know; `None`: nobody says.
    LookedUp { by: AskedBy, found: Option<Allocation> },
    /// End all connections of the path, abruptly, and answer [`Association::reset`] when they are gone.
    Reset { why: Reason<E>, was_live: bool },
    /// A controller that this host has lost executes nothing any more: requests of the path's lanes that waited for it
    /// may go on, or elsewhere ([`super::requests::Requests::release`]).
    Release,
    /// End the lanes' connections and fail their requests, until [`Action::Attach`]: those of one lane, or all.
    Fail { lane: Option<usize> },
    /// As [`Action::Fail`] of all lanes, because of the fast-io-fail timeout; [`Association::fail_later`] if another path
    /// works.
    FailFast,
    /// Tell those who submit requests to come to an end: [`Association::ended`].
    Finish,
    /// It is over. The connections end in order if the controller was shut down, else abruptly.
    End {
        /// What came of the shutdown, where there was one.
        shut_down: Option<Result<(), Failure<E>>>,
    },
}

/// How it stands with a path.
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

/// What a procedure of a path has come to.
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

/// What the driver has been asked for.
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
    /// Lanes that want an express connection.
    wanting: VecDeque<usize>,
    /// Lanes that have one or are getting it; its number follows those of lanes.
    expresses: Vec<Option<usize>>,
    /// Of these, the one that is on its way.
    connecting: Option<usize>,
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
    /// Since when no path works.
    lost_at: Option<Instant>,
    failed: Failed,
    ending: Option<Ending>,
    /// Controllers that others have lost.
    errands: Vec<Errand>,
    look_ups: LookUps,
    /// [`OldCommands::ended_so_far`], when it was told last.
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
            wanting: VecDeque::new(),
            expresses: Vec::new(),
            connecting: None,
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
        Association {
            config,
            path,
            pins,
            writes: PathWrites::new(writes),
            info: None,
            lost_at: Some(now),
            failed: Failed::default(),
            ending: None,
            errands: Vec::new(),
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
            lost if lost.is_empty() => association.connect_lanes(info),
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
            && path.wanting.is_empty()
            && !self.look_ups.is_waiting()
            && self.errand_at().is_none()
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
        let errand = if is_free { self.errand_at() } else { None };
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
        let limit = self.failing_at().filter(|&at| at > now).unwrap_or(Instant(u64::MAX));
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
            path.lost.missed(now, &self.config.old_commands);
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
            self.lost_at.get_or_insert(now);
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
                && let Some(lane) = path.express_on_its_way()
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
        let serial = self.config.old_commands.begin(self.identity_of(&info));
        self.path.controller = Some((serial, instance));
        let guard = LaneGuard::new(self.config.old_commands.clone(), serial);
        let writes = self.writes.clone();
        self.begin_writes();
        self.actions.push_back(Action::Attach { rules, barred, writes, guard });
        (self.lost_at, self.failed) = (None, Failed::default());
        self.renew_errands(now);
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

    /// The next thing to do on a live path.
    fn next_task(&mut self, now: Instant) -> bool {
        if self.path.state != State::Live {
            return false;
        }
        if self.begin_errand(now) {
            return true;
        }
        let path = &mut self.path;
        if !path.is_aborting
            && let Some((lane, cid)) = path.overdue.pop_front()
        {
            path.is_aborting = true;
            let sqe = bringup::abort(lane as u16 + 1, cid);
            self.actions.push_back(Action::Abort { sqe });
            return true;
        }
        if let Some(event) = path.event.take() {
            let others = self.info.clone().filter(|_| self.config.beside.is_some());
            path.task = Some(Procedure::new(|driver| async move {
                bringup::acknowledge(&driver, &event).await?;
                let identify = others.as_ref().map(|info| &*info.identify);
                beside::look(&driver, identify).await
            }));
        } else if let Some(info) = self.info.clone()
            && path.transitions.due().is_some_and(|at| at <= now)
        {
            path.task = Some(Procedure::new(|driver| async move {
                bringup::ana(&driver, &info.identify).await.map(Done::Ana)
            }));
        } else if let Some(lane) = path.wanting.pop_front().filter(|_| self.ending.is_none()) {
            self.connect_express(lane);
            return true;
        } else {
            return self.begin_look_up();
        }
        path.task.is_some()
    }

    fn rules(&self, info: &ControllerInfo) -> RetryRules {
        let crdt = info.identify.crdt.map(|units| units.get());
        RetryRules::new(crdt, self.config.controller_loss_timeout)
    }

    fn check_namespaces(&mut self, namespaces: Vec<NamespaceInfo>) {
        // Before anybody hears of them.
        if self.pins.check(&namespaces) {
            self.actions.push_back(Action::SetBarred(self.pins.barred()));
        }
        self.check_writes(&namespaces);
        if let Some(info) = &self.info
            && info.namespaces != namespaces
        {
            self.info =
                Some(Arc::new(ControllerInfo { namespaces, ..ControllerInfo::clone(info) }));
            self.actions.push_back(Action::Changed);
        }
    }
}

impl<E> Path<E> {
    /// Nothing of what was under way counts any more.
    fn abandon(&mut self) {
        (self.task, self.asked, self.event) = (None, None, None);
        (self.pause_until, self.keep_alive_at) = (None, None);
        self.overdue.clear();
        self.is_aborting = false;
        self.wanting.clear();
        self.expresses.clear();
        self.connecting = None;
        self.transitions.clear();
    }
}

//! A connected controller: reactors with their lanes, and the control thread that keeps it alive.
//!
//! The control thread sleeps on the admin queue. It sends Keep Alive, follows asynchronous events, and when
//! any connection is lost ends all of them, connects again with back-off and gives every lane a new
//! connection. Old connections are reset before new ones are made, so that no old command of a lost
//! connection overtakes its retry.

use super::address::Address;
use super::api::Front;
use super::bringup::{Admin, ControllerInfo, NamespaceInfo};
use super::config::{HostConfig, RECONNECT_DELAY_MAX};
use super::error::HostError;
use super::ether::{Found, Past, Ports, Scout};
use super::hurry::{self, StopSign};
use super::keep_alive::KeepAlive;
use super::meter::{LaneReading, LinkReport, LinkState, Meter, PathReading};
use super::pins::Pins;
use super::reactor::{Order, Parts, Reactor, Report};
use crate::ether::port::{PortConfig, PortKind};
use crate::host::blocking::wait_calmly;
use crate::mailbox::{Inbox, Outbox, mailbox};
use crate::platform::{Seat, Wish, host_seats, numa};
use crate::pulse::Pulse;
use crate::tuning;
use roadtrain_proto::host::retry::RetryRules;
use roadtrain_wire::feature::{AsyncEvent, SetFeatures, fid, notice};
use roadtrain_wire::identify::oaes;
use roadtrain_wire::log::{GetLogPage, lid};
use roadtrain_wire::sqe::{Sqe, opcode};
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tracing::{debug, error, info, warn};

/// Octets of the changed namespace list.
const CHANGED_BYTES: u32 = 4096;

/// The reactor that a front is made for.
#[derive(Clone, Copy, Debug)]
pub struct ReactorInfo {
    /// Its number.
    pub index: usize,
    /// How many there are.
    pub count: usize,
    /// Its lanes: `LaneId(0)` to `LaneId(lanes - 1)`.
    pub lanes: usize,
    /// The core it is pinned to.
    pub core: Option<usize>,
}

/// What everybody may know about the controller; shared with the fronts.
#[derive(Clone)]
pub struct ControllerView {
    info: Arc<Mutex<ControllerInfo>>,
    link: Arc<Mutex<LinkReport>>,
    meters: Arc<[Meter]>,
    seats: Arc<[Seat]>,
    lost: Arc<Mutex<Vec<String>>>,
    failure: Arc<Mutex<Option<String>>>,
}

impl ControllerView {
    fn new(info: ControllerInfo, lanes: usize, seats: Vec<Seat>) -> Self {
        let link = LinkReport::new(LinkState::Connected, None);
        ControllerView {
            info: Arc::new(Mutex::new(info)),
            link: Arc::new(Mutex::new(link)),
            meters: (0..lanes).map(|_| Meter::default()).collect(),
            seats: seats.into(),
            lost: Arc::default(),
            failure: Arc::default(),
        }
    }

    /// Where the reactors' threads run and their memory is.
    #[must_use]
    pub fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// How it stands with the target.
    #[must_use]
    pub fn link(&self) -> LinkReport {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The lanes, by their number over all reactors.
    #[must_use]
    pub fn lanes(&self) -> Vec<LaneReading> {
        self.meters.iter().map(Meter::read).collect()
    }

    /// The lanes' parts of links, where they have no connections of their own.
    #[must_use]
    pub fn paths(&self) -> Vec<PathReading> {
        self.meters.iter().flat_map(Meter::paths).collect()
    }

    /// Requests that the target had not answered when the controller was ended: what they wrote may be lost.
    #[must_use]
    pub fn abandoned(&self) -> u64 {
        self.meters.iter().map(Meter::abandoned).sum()
    }

    /// Something could not be brought to the target before the end.
    pub fn lose(&self, what: String) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// What may be lost, for people to read, once the controller has ended. Nothing after an end in order.
    #[must_use]
    pub fn lost(&self) -> Vec<String> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let requests = match self.abandoned() {
            0 => None,
            count => Some(format!(
                "{count} requests that the target did not answer have failed: what they wrote may be lost"
            )),
        };
        requests.into_iter().chain(lost).collect()
    }

    /// Why a reactor has ended, if that was a failure: the controller has ended then, too.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fail(&self, failure: String) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }

    /// Whoever stays in a state has been there since before.
    fn set_link(&self, state: LinkState, error: Option<String>) {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        let since = if link.state == state { link.since } else { Instant::now() };
        *link = LinkReport { state, since, error };
    }

    /// The controller as it was when it was last looked at.
    #[must_use]
    pub fn info(&self) -> ControllerInfo {
        self.info.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The namespace `nsid`, if it is there.
    #[must_use]
    pub fn namespace(&self, nsid: u32) -> Option<NamespaceInfo> {
        let info = self.info.lock().unwrap_or_else(PoisonError::into_inner);
        info.namespaces.iter().find(|namespace| namespace.nsid == nsid).cloned()
    }

    fn set(&self, info: ControllerInfo) {
        *self.info.lock().unwrap_or_else(PoisonError::into_inner) = info;
    }
}

/// A connected controller. Dropping it stops it.
pub struct Controller {
    view: ControllerView,
    reports: Outbox<Report>,
    sign: Arc<StopSign>,
    orders: Vec<Outbox<Order>>,
    control: Option<JoinHandle<()>>,
}

impl Controller {
    /// Connects: admin queue, then every lane; `make_front` makes what runs on each reactor.
    ///
    /// # Errors
    /// Whatever keeps the first connection from working; later losses are repaired.
    pub fn connect(
        config: HostConfig,
        mut make_front: impl FnMut(ReactorInfo, &ControllerView) -> Box<dyn Front + Send>,
    ) -> Result<Self, HostError> {
        let mut admin = Admin::connect_patiently(&config)?;
        let info = admin.information(config.lanes)?;
        let lanes = (info.io_queues as usize).max(1);
        let count = config.reactor_count(lanes);
        let seats = seats(&config, count, &admin);
        let view = ControllerView::new(info, lanes, seats.clone());
        let system = |what| move |source| HostError::System { what, source };
        let (reports, inbox) = mailbox().map_err(system("mailbox"))?;
        let mut reactors = Vec::new();
        for (index, (lanes, seat)) in deal(lanes, count).into_iter().zip(seats).enumerate() {
            let core = seat.cpus.single();
            let info = ReactorInfo { index, count, lanes: lanes.len(), core };
            let near = numa::take_from(seat.node.into_iter().collect());
            let front = make_front(info, &view);
            drop(near);
            let meters = view.meters.clone();
            reactors.push(spawn(&config, seat, lanes, front, reports.clone(), count, meters)?);
        }
        let orders = reactors.iter().map(|reactor| reactor.orders.clone()).collect();
        let (view_of_keeper, past) = (view.clone(), Past::default());
        let keep_alive = KeepAlive::new(config.keep_alive);
        let pins = Pins::new(&view.info().namespaces);
        let mut keeper = Keeper {
            config,
            view: view_of_keeper,
            inbox,
            reactors,
            past,
            pins,
            reports: reports.clone(),
            scout: None,
            found: Vec::new(),
            overdue: VecDeque::new(),
            keep_alive,
            failing: false,
            ended: 0,
            stopped: false,
        };
        if let Err(error) = keeper.attach(&mut admin) {
            keeper.stop(Duration::ZERO);
            return Err(error);
        }
        let control = thread::Builder::new().name("roadtrain-ctl".into());
        let sign = StopSign::new().map_err(system("eventfd"))?;
        let heeded = sign.clone();
        let body = move || {
            hurry::heed(&heeded);
            keeper.run(admin);
        };
        let control = control.spawn(body).map_err(system("thread"))?;
        Ok(Controller { view, reports, sign, orders, control: Some(control) })
    }

    /// What is known about the controller.
    #[must_use]
    pub fn view(&self) -> &ControllerView {
        &self.view
    }

    /// For asking whether all reactors make turns.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        Pulse::new(self.orders.iter().map(|orders| {
            let orders = orders.clone();
            Box::new(move |reply| orders.send(Order::Beat(reply))) as Box<_>
        }))
    }

    /// Has a reactor do something.
    #[cfg(test)]
    pub(crate) fn call(&self, reactor: usize, call: impl FnOnce() + Send + 'static) {
        self.orders[reactor].send(Order::Call(Box::new(call)));
    }

    /// Whether all fronts have ended, by themselves or because they were told to.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.control.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Asks the fronts to end; [`Controller::join`] waits for it. A target that still answers has
    /// [`HostConfig::timeout`] for what is under way, one that does not 3 s: then that fails
    /// ([`ControllerView::abandoned`]).
    pub fn stop(&self) {
        self.sign.raise();
        self.reports.send(Report::Stop);
    }

    /// Waits until every front has ended and the controller is shut down.
    pub fn join(mut self) {
        self.wait();
    }

    fn wait(&mut self) {
        if let Some(control) = self.control.take()
            && control.join().is_err()
        {
            warn!("the control thread panicked");
        }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        if self.control.is_some() {
            self.stop();
            self.wait();
        }
    }
}

/// Where the reactors go: they send over the interface that the admin queue uses.
fn seats(config: &HostConfig, count: usize, admin: &Admin) -> Vec<Seat> {
    let (placement, cores, allowed) = (config.placement, &config.cores[..], &numa::allowed());
    host_seats(Wish { placement, count, cores, allowed }, &admin.qpair.route())
}

/// Deals `lanes` out to the reactors.
fn deal(lanes: usize, reactors: usize) -> Vec<Vec<usize>> {
    (0..reactors).map(|reactor| (reactor..lanes).step_by(reactors).collect()).collect()
}

struct ReactorHandle {
    orders: Outbox<Order>,
    lanes: Vec<usize>,
    thread: Option<JoinHandle<()>>,
}

/// Also when a controller does not begin: nothing of it keeps running.
impl Drop for ReactorHandle {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.orders.send(Order::Stop);
        for &lane in &self.lanes {
            self.orders.send(Order::Fail { lane });
        }
        let _ = thread.join(); // a panic was reported by its `Goodbye`
    }
}

fn spawn(
    config: &HostConfig,
    seat: Seat,
    lanes: Vec<usize>,
    front: Box<dyn Front + Send>,
    reports: Outbox<Report>,
    reactors: usize,
    meters: Arc<[Meter]>,
) -> Result<ReactorHandle, HostError> {
    let system = |what| move |source| HostError::System { what, source };
    let (orders, inbox) = mailbox().map_err(system("mailbox"))?;
    let core = seat.cpus.single();
    let near = numa::take_from(seat.node.into_iter().collect());
    let ports = ports(config, reactors)?;
    drop(near);
    let parts = Parts {
        lanes: lanes.clone(),
        queue_entries: config.queue_entries,
        class: config.class,
        io_timeout: config.io_timeout,
        waiting: config.waiting,
        ports,
        inbox,
        reports: reports.clone(),
        meters,
    };
    let (begun, beginning) = sync_channel(1);
    let index = parts.lanes.first().copied().unwrap_or(0) % reactors;
    let body = move || {
        tuning::set_exact_timers();
        numa::sit_down(&seat);
        let mut goodbye = Goodbye { reports, index, failure: None };
        match Reactor::new(parts) {
            Ok(reactor) => {
                let _ = begun.send(Ok(()));
                let ended = Running { reactor, front: Some(front) }.run();
                goodbye.failure = ended.err().map(|e| format!("reactor {index} has failed: {e}"));
            }
            Err(error) => {
                let _ = begun.send(Err(error));
            }
        }
    };
    let name = format!("roadtrain-{}", core.map_or("host".into(), |core| core.to_string()));
    let thread = thread::Builder::new().name(name).spawn(body).map_err(system("thread"))?;
    let handle = ReactorHandle { orders, lanes, thread: Some(thread) };
    // No answer at all: its thread has panicked, and has said so.
    let begun = beginning.recv().unwrap_or_else(|_| Err(io::Error::other("it has panicked")));
    begun.map_err(system("reactor"))?;
    Ok(handle)
}

/// The ports of a reactor; none where every lane has a connection of its own.
fn ports(config: &HostConfig, reactors: usize) -> Result<Ports, HostError> {
    let Address::Ether(address) = &config.address else { return Ok(Ports::default()) };
    let kind = match address.port.kind {
        PortKind::Auto if reactors > 1 => PortKind::Packet, // the only kind that shares an interface
        kind => kind,
    };
    let unreachable = |source| HostError::Unreachable { address: config.address.clone(), source };
    Ports::open(address, &PortConfig { kind, ..address.port.clone() }).map_err(unreachable)
}

/// A reactor and its front, which lives as long as drivers may use its memory.
struct Running {
    reactor: Reactor,
    front: Option<Box<dyn Front + Send>>,
}

impl Running {
    fn run(mut self) -> io::Result<()> {
        self.front.as_mut().map_or(Ok(()), |front| self.reactor.run(&mut **front))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.reactor.has_commands() {
            warn!("a driver still has commands: their memory is not given back");
            std::mem::forget(self.front.take());
        }
    }
}

/// Reports the end of a reactor's thread, also when it panics.
struct Goodbye {
    reports: Outbox<Report>,
    index: usize,
    failure: Option<String>,
}

impl Drop for Goodbye {
    fn drop(&mut self) {
        let panicked = || format!("reactor {} has panicked", self.index);
        let failure = self.failure.take().or_else(|| thread::panicking().then(panicked));
        self.reports.send(Report::Ended(failure));
    }
}

/// The control thread.
struct Keeper {
    config: HostConfig,
    view: ControllerView,
    inbox: Inbox<Report>,
    reactors: Vec<ReactorHandle>,
    /// Lanes that reactors have, or had, and that the target may still know.
    past: Past,
    /// Which namespaces requests mean.
    pins: Pins,
    /// To the inbox.
    reports: Outbox<Report>,
    /// Looks for links that lanes have not.
    scout: Option<Scout>,
    /// What it has found, and the admin queue has not been told.
    found: Vec<Found>,
    /// Lanes' commands to be aborted: lane and command identifier.
    overdue: VecDeque<(usize, u16)>,
    keep_alive: KeepAlive,
    failing: bool,
    /// Reactors whose threads are over.
    ended: usize,
    stopped: bool,
}

/// Why a round of the control thread ended.
enum Event {
    Lost(String),
    Stopped,
}

impl Keeper {
    fn run(&mut self, first: Admin) {
        let mut admin = first;
        loop {
            match self.watch(&mut admin) {
                Event::Stopped => return self.part(admin),
                Event::Lost(error) => {
                    self.scout = None;
                    self.overdue.clear();
                    warn!(target = %self.config.address, "{error}; connecting again");
                    self.view.set_link(LinkState::Reconnecting, Some(error));
                    self.detach_lanes();
                    admin.qpair.reset(&mut self.past);
                }
            }
            match self.reconnect() {
                Some(again) => admin = again,
                None => return self.stop(Duration::ZERO),
            }
            self.view.set_link(LinkState::Connected, None);
            info!(target = %self.config.address, "connected again");
        }
    }

    /// Ends it, while there is a connection. Whether the target still answers decides how long it is waited for.
    fn part(&mut self, mut admin: Admin) {
        self.tell_all_to_stop();
        let is_there = match admin.run("Keep Alive", &Sqe::new(opcode::KEEP_ALIVE, 0), &[], &mut [])
        {
            Err(HostError::Lost { source, .. }) => {
                warn!(target = %self.config.address, "the target does not answer at the end: {source}");
                false
            }
            _ => true,
        };
        self.stop(if is_there { self.config.timeout } else { Duration::ZERO });
        if is_there {
            hurry::begin_again();
            admin.shut_down(self.config.timeout);
        }
    }

    /// Keeps a working controller alive until something happens to it.
    fn watch(&mut self, admin: &mut Admin) -> Event {
        if let Err(error) = self.post_event_request(admin) {
            return Event::Lost(error.to_string());
        }
        if self.stopped {
            return Event::Stopped; // while connecting
        }
        loop {
            // One abort, then a look at what else there is: there may be many.
            let wait =
                if self.overdue.is_empty() { self.keep_alive.wait() } else { Duration::ZERO };
            if let Err(error) = admin.qpair.wait(self.inbox.fd(), wait) {
                return Event::Lost(error.to_string());
            }
            if let Some(event) = self.read_reports() {
                return event;
            }
            if let Err(error) = self.abort_overdue(admin) {
                return Event::Lost(error.to_string());
            }
            for Found { endpoint, path, addresses } in self.found.drain(..) {
                admin.qpair.offer(&endpoint, path, &addresses);
            }
            if let (Some(survey), Some(scout)) = (admin.qpair.take_survey(), &self.scout) {
                scout.tell(survey);
            }
            if let Err(error) = self.keep_alive.send_if_due(admin) {
                return Event::Lost(error.to_string());
            }
            if let Err(error) = self.follow_events(admin) {
                return Event::Lost(error.to_string());
            }
        }
    }

    fn read_reports(&mut self) -> Option<Event> {
        self.inbox.acknowledge();
        let mut lost = None;
        while let Some(report) = self.inbox.take() {
            match report {
                Report::Lost { lane, error } => {
                    lost = Some(Event::Lost(format!("lane {lane}: {error}")));
                }
                Report::Overdue { lane, cids } => {
                    let (timeout, count) = (self.config.io_timeout.unwrap_or_default(), cids.len());
                    warn!(target = %self.config.address, lane, count, "no answer for {timeout:.0?}: aborting");
                    self.overdue.extend(cids.into_iter().map(|cid| (lane, cid)));
                }
                Report::Found(found) => {
                    self.each_lane(|lane| Order::Offer { lane, found: found.clone() });
                    self.past.add_route(&found.endpoint, found.path.route);
                    self.found.push(found);
                }
                Report::Stop => self.stopped = true,
                Report::Ended(failure) => {
                    self.ended(failure);
                    self.stopped |= self.all_ended();
                }
            }
        }
        if self.stopped { Some(Event::Stopped) } else { lost }
    }

    /// A reactor has ended. When it has failed the others end, too: its lanes and its front are gone, and whoever
    /// uses the controller has to know.
    fn ended(&mut self, failure: Option<String>) {
        self.ended += 1;
        if let Some(failure) = failure {
            error!("{failure}");
            self.view.fail(failure);
            self.stopped = true;
        }
    }

    /// Each reactor's thread says so once; it may be about to end when it has.
    fn all_ended(&self) -> bool {
        self.ended >= self.reactors.len()
    }

    /// Asks the controller to abort the next command that was not answered in time. It may not know it, or not be
    /// able to: the lane sees whether it ends.
    fn abort_overdue(&mut self, admin: &mut Admin) -> Result<(), HostError> {
        let Some((lane, cid)) = self.overdue.pop_front() else { return Ok(()) };
        match admin.abort(lane as u16 + 1, cid) {
            Err(HostError::Command { status, .. }) => {
                debug!(lane, cid, "Abort: {status}");
                Ok(())
            }
            done => done,
        }
    }

    /// Switches events on and asks for the first.
    fn post_event_request(&mut self, admin: &mut Admin) -> Result<(), HostError> {
        let wanted = self.view.info().identify.oaes.get() & oaes::NAMESPACE_ATTRIBUTE;
        let set = SetFeatures::emit(fid::ASYNC_EVENT_CONFIG, wanted);
        if wanted == 0 || admin.run("Set Features (events)", &set, &[], &mut []).is_err() {
            return Ok(()); // a controller without events works, too
        }
        // What changed before events were switched on has none.
        self.look_at_namespaces(admin)?;
        let request = Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0);
        let posted = admin.qpair.post(&request).map(|_| ());
        posted.map_err(|source| HostError::Lost { what: "Asynchronous Event Request", source })
    }

    fn look_at_namespaces(&mut self, admin: &mut Admin) -> Result<(), HostError> {
        let namespaces = admin.namespaces()?;
        // Before anybody hears of them.
        if let Some(barred) = self.pins.look(&namespaces) {
            self.each_lane(|lane| Order::Bar { lane, barred: barred.clone() });
        }
        let info = self.view.info();
        if info.namespaces != namespaces {
            info!(count = namespaces.len(), "namespaces have changed");
            self.view.set(ControllerInfo { namespaces, ..info });
        }
        Ok(())
    }

    fn follow_events(&mut self, admin: &mut Admin) -> Result<(), HostError> {
        let lost = |source| HostError::Lost { what: "admin queue", source };
        while let Some((_, cqe)) = admin.qpair.next_event().map_err(lost)? {
            if !cqe.status().is_success() {
                continue; // the controller gives the request back: no more events
            }
            let event = AsyncEvent::parse(cqe.dw0.get());
            if event.information == notice::NAMESPACE_ATTRIBUTE {
                let mut changed = vec![0; CHANGED_BYTES as usize];
                let log = GetLogPage::new(lid::CHANGED_NAMESPACES, CHANGED_BYTES).emit(u32::MAX);
                admin.run("Get Log Page (changed)", &log, &[], &mut changed)?;
            }
            self.look_at_namespaces(admin)?;
            let request = Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0);
            admin.qpair.post(&request).map_err(lost)?;
        }
        Ok(())
    }

    /// Connects again, with back-off; `None`: stopped meanwhile.
    fn reconnect(&mut self) -> Option<Admin> {
        let lost_at = Instant::now();
        let mut delay = self.config.reconnect_delay;
        if let Some(Event::Stopped) = self.read_reports() {
            return None;
        }
        loop {
            match self.try_reconnect() {
                Ok(admin) => return Some(admin),
                Err(error) => {
                    info!("not yet: {error}; next try in {delay:?}");
                    self.view.set_link(self.view.link().state, Some(error.to_string()));
                }
            }
            let limit = self.config.controller_loss_timeout.filter(|_| !self.failing);
            let left = limit.map(|limit| limit.saturating_sub(lost_at.elapsed()));
            if left == Some(Duration::ZERO) {
                warn!("controller lost for {:?}: failing its requests", limit.unwrap_or_default());
                self.failing = true;
                self.view.set_link(LinkState::Failing, self.view.link().error);
                self.each_lane(|lane| Order::Fail { lane });
            }
            // Not before the time: the last try is at its end.
            let pause = left.filter(|left| !left.is_zero()).map_or(delay, |left| delay.min(left));
            if self.pause(pause) {
                return None;
            }
            delay = (delay * 2).min(RECONNECT_DELAY_MAX);
        }
    }

    /// Waits; `true` when stopped meanwhile. Reports of the lost connections mean nothing now.
    fn pause(&mut self, delay: Duration) -> bool {
        let until = Instant::now() + delay;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let _ = wait_calmly(self.inbox.fd(), left);
            if let Some(Event::Stopped) = self.read_reports() {
                return true;
            }
        }
    }

    fn try_reconnect(&mut self) -> Result<Admin, HostError> {
        let mut admin = Admin::connect_after(&mut self.past, &self.config)?;
        let info = admin.information(self.lane_count() as u32)?;
        if (info.io_queues as usize) < self.lane_count() {
            let text = format!("the target grants only {} I/O queues now", info.io_queues);
            return Err(HostError::Controller(text));
        }
        self.pins.look(&info.namespaces);
        self.view.set(info);
        // Whatever lanes reported until now was about connections that are gone.
        self.read_reports();
        self.overdue.clear();
        self.attach(&mut admin)?;
        self.failing = false;
        Ok(admin)
    }

    fn attach(&mut self, admin: &mut Admin) -> Result<(), HostError> {
        let info = self.view.info();
        let crdt = info.identify.crdt.map(|units| units.get());
        let rules = RetryRules::new(crdt, self.config.controller_loss_timeout);
        let mut links = Vec::new();
        self.keep_alive = KeepAlive::new(self.config.keep_alive);
        for lane in 0..self.lane_count() {
            links.push(admin.connect_lane(&self.config, &info, lane as u16 + 1)?);
            self.keep_alive.send_if_due(admin)?; // many lanes take long
        }
        for (lane, link) in links.into_iter().enumerate() {
            self.past.add(link.past());
            let reactor = self.reactors.iter().find(|r| r.lanes.contains(&lane));
            if let Some(reactor) = reactor {
                let (link, barred) = (Box::new(link), self.pins.barred());
                reactor.orders.send(Order::Attach { lane, link, rules, barred });
            }
        }
        self.scout(admin);
        Ok(())
    }

    /// Looks for more links to the target while the lanes live.
    fn scout(&mut self, admin: &Admin) {
        self.found.clear();
        self.scout = admin.qpair.whereabouts(&self.config).and_then(|target| {
            let reports = self.reports.clone();
            let found = move |found| {
                reports.send(Report::Found(found));
            };
            Scout::start(target, found).inspect_err(|error| warn!("no scout: {error}")).ok()
        });
    }

    fn lane_count(&self) -> usize {
        self.reactors.iter().map(|reactor| reactor.lanes.len()).sum()
    }

    fn each_lane(&self, order: impl Fn(usize) -> Order) {
        for reactor in &self.reactors {
            for &lane in &reactor.lanes {
                reactor.orders.send(order(lane));
            }
        }
    }

    /// Ends every lane's connection, and waits until it is so: old commands must not meet new ones.
    fn detach_lanes(&self) {
        let (done, gone) = sync_channel(self.lane_count());
        self.each_lane(|lane| Order::Detach { lane, done: done.clone() });
        for _ in 0..self.lane_count() {
            if gone.recv_timeout(self.config.timeout).is_err() {
                return warn!("a reactor does not answer");
            }
        }
    }

    /// Ends the reactors. Their fronts finish what is in flight: it fails when its connection is lost, or
    /// when that takes longer than `patience`.
    fn stop(&mut self, patience: Duration) {
        self.tell_all_to_stop();
        let mut deadline = Instant::now() + patience;
        while !self.all_ended() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.each_lane(|lane| Order::Fail { lane });
                deadline = Instant::now() + self.config.timeout;
            }
            let _ = wait_calmly(self.inbox.fd(), left);
            self.fail_lost_lanes();
        }
        self.join_reactors();
    }

    fn tell_all_to_stop(&self) {
        for reactor in &self.reactors {
            reactor.orders.send(Order::Stop);
        }
    }

    /// Nobody connects again any more.
    fn fail_lost_lanes(&mut self) {
        self.inbox.acknowledge();
        while let Some(report) = self.inbox.take() {
            match report {
                Report::Ended(failure) => self.ended(failure),
                Report::Lost { lane, .. } => {
                    let mut reactors = self.reactors.iter();
                    if let Some(reactor) = reactors.find(|reactor| reactor.lanes.contains(&lane)) {
                        reactor.orders.send(Order::Fail { lane });
                    }
                }
                _ => {}
            }
        }
    }

    fn join_reactors(&mut self) {
        for reactor in &mut self.reactors {
            let _ = reactor.thread.take().map(JoinHandle::join); // a panic was reported by its `Goodbye`
        }
    }
}

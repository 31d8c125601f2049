//! The simulated host: an association (admin queue and lanes), its loss and its return, as the engine's
//! control thread and lanes manage them.

use crate::admin::{Admin, Event};
use crate::link::{Handling, Link};
use crate::load::{Load, Request};
use crate::network::{End, Lost, Network};
use crate::plan::{HOST_NQN, NQN, Plan};
use crate::rng::Rng;
use core::iter::Sum;
use core::ops::AddAssign;
use core::time::Duration;
use roadtrain_proto::host::overdue::{IoTimer, Watch};
use roadtrain_proto::host::qpair::Data;
use roadtrain_proto::host::retry::{RetryRules, Tries};
use roadtrain_proto::policy::{PolicyConfig, Urgency};
use roadtrain_proto::time::Instant;
use roadtrain_wire::fabrics::{Connect, ConnectData, cattr};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;
use std::collections::VecDeque;

/// Command Retry Delay Times of the target.
const CRDT: [u16; 3] = [1, 2, 0];
const RECONNECT_DELAY_MAX: Duration = Duration::from_millis(100);

struct Flight {
    request: Request,
    tries: Tries,
    watch: Watch,
}

impl Flight {
    fn new(request: Request) -> Self {
        Flight { request, tries: Tries::default(), watch: Watch::default() }
    }
}

/// A lane: requests, and the connection they take when there is one.
struct Lane {
    link: Option<Link>,
    flights: Vec<Option<Flight>>,
    /// Requests without a slot, in order.
    pending: VecDeque<Flight>,
    /// Requests that are tried again later.
    resting: Vec<(Instant, Flight)>,
    /// Requests that nobody has answered too often.
    given_up: Vec<Flight>,
    timer: IoTimer,
    /// The next request comes then.
    next_at: Instant,
}

/// What a host has been through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Past {
    /// Associations that were complete.
    pub associations: u64,
    /// Requests submitted again.
    pub retries: u64,
    /// Commands aborted because they were not answered in time.
    pub aborts: u64,
    /// Times its requests were failed.
    pub surrenders: u64,
    /// Asynchronous events.
    pub events: u64,
}

impl AddAssign for Past {
    fn add_assign(&mut self, other: Past) {
        self.associations += other.associations;
        self.retries += other.retries;
        self.aborts += other.aborts;
        self.surrenders += other.surrenders;
        self.events += other.events;
    }
}

impl Sum for Past {
    fn sum<I: Iterator<Item = Past>>(pasts: I) -> Past {
        pasts.fold(Past::default(), |mut sum, past| {
            sum += past;
            sum
        })
    }
}

/// A host.
pub struct Host {
    /// Its identifier.
    hostid: [u8; 16],
    plan: Plan,
    rng: Rng,
    admin: Option<Admin>,
    /// Lanes' connections on their way up: number, connection, connected.
    joining: Vec<(usize, Link, bool)>,
    lanes: Vec<Lane>,
    retry_at: Instant,
    reconnect_delay: Duration,
    lost_at: Option<Instant>,
    failing: bool,
    /// Namespaces as the host knows them.
    pub namespaces: Vec<u32>,
    /// Counts.
    pub past: Past,
}

impl Host {
    /// A host that is about to connect.
    #[must_use]
    pub fn new(plan: &Plan, number: u8, rng: Rng) -> Self {
        let lane = || Lane {
            link: None,
            flights: (0..plan.queue_entries).map(|_| None).collect(),
            pending: VecDeque::new(),
            resting: Vec::new(),
            given_up: Vec::new(),
            timer: IoTimer::new(plan.io_timeout),
            next_at: Instant(0),
        };
        Host {
            hostid: [number + 1; 16],
            lanes: (0..plan.lanes).map(|_| lane()).collect(),
            plan: plan.clone(),
            rng,
            admin: None,
            joining: Vec::new(),
            retry_at: Instant(0),
            reconnect_delay: plan.reconnect_delay,
            lost_at: Some(Instant(0)),
            failing: false,
            namespaces: Vec::new(),
            past: Past::default(),
        }
    }

    /// One turn: everything that has arrived or is due by now.
    pub fn turn(
        &mut self,
        now: Instant,
        network: &mut Network,
        load: &mut Load,
    ) -> Result<(), String> {
        let alive = self.manage(now, network).and(self.receive(now, network, load)?);
        if alive.and_then(|()| self.look_for_overdue(now)).is_err() {
            self.lose(now, network);
        }
        self.surrender(now, load)?;
        for number in 0..self.lanes.len() {
            self.submit(now, number, load)?;
        }
        let links = self.lanes.iter_mut().filter_map(|lane| lane.link.as_mut());
        let joining = self.joining.iter_mut().map(|(_, link, _)| link);
        let admin = self.admin.iter_mut().map(|admin| &mut admin.link);
        links.chain(joining).chain(admin).for_each(|link| link.end_turn(now, network));
        Ok(())
    }

    fn handling(&mut self) -> Handling {
        let placed = self.rng.chance(self.plan.placed_percent);
        Handling { placed, caravan_parts: self.plan.caravan_parts }
    }

    /// The admin queue's part of a turn; `Err`: the association is lost.
    fn manage(&mut self, now: Instant, network: &mut Network) -> Result<(), Lost> {
        let Some(admin) = &mut self.admin else {
            if now >= self.retry_at {
                let handling = self.handling();
                self.admin = Some(Admin::new(now, &self.plan, self.hostid, network, handling));
            }
            return Ok(());
        };
        for event in admin.turn(now, network)? {
            match event {
                Event::Enabled { cntlid } => self.join(now, network, cntlid),
                Event::Namespaces(namespaces) => self.namespaces = namespaces,
                Event::Notice => self.past.events += 1,
            }
        }
        Ok(())
    }

    /// Connects every lane's queue.
    fn join(&mut self, now: Instant, network: &mut Network, cntlid: u16) {
        for number in 0..self.lanes.len() {
            let mut config = self.plan.host;
            config.policy = PolicyConfig::none();
            let handling = self.handling();
            let mut link = Link::new(now, config, network, handling);
            let cattr = if self.plan.sq_flow_control { 0 } else { cattr::DISABLE_SQ_FLOW_CONTROL };
            let (qid, sqsize) = (number as u16 + 1, self.plan.queue_entries - 1);
            let sqe = Connect { recfmt: 0, qid, sqsize, cattr, kato_ms: 0 }.emit();
            let data = ConnectData::new(self.hostid, cntlid, NQN, HOST_NQN).as_bytes().to_vec();
            let length = Data::Out(data.len() as u32);
            let submitted = link.submit(now, &sqe, length, data, Urgency::Urgent);
            assert!(submitted.is_ok(), "a new queue has room");
            self.joining.push((number, link, false));
        }
    }

    /// What has arrived on the lanes; the inner `Err`: the association is lost.
    fn receive(
        &mut self,
        now: Instant,
        network: &mut Network,
        load: &mut Load,
    ) -> Result<Result<(), Lost>, String> {
        for (_, link, connected) in &mut self.joining {
            let mut completed = Vec::new();
            if link.receive(now, network, &mut completed).is_err() {
                return Ok(Err(Lost));
            }
            for command in completed {
                if !command.cqe.status().is_success() {
                    return Ok(Err(Lost));
                }
                *connected = true;
            }
        }
        if !self.joining.is_empty() && self.joining.iter().all(|(_, _, connected)| *connected) {
            self.attach(now);
        }
        let rules = RetryRules::new(CRDT, self.plan.controller_loss_timeout);
        for lane in &mut self.lanes {
            if lane.receive(now, network, load, &rules)?.is_err() {
                return Ok(Err(Lost));
            }
        }
        Ok(Ok(()))
    }

    /// What was not answered in time is aborted; `Err`: nor is it after that.
    fn look_for_overdue(&mut self, now: Instant) -> Result<(), Lost> {
        let Some(admin) = &mut self.admin else { return Ok(()) };
        for (qid, lane) in (1..).zip(&mut self.lanes) {
            let Lane { link: Some(link), flights, timer, .. } = lane else { continue };
            if !timer.is_due(now) {
                continue;
            }
            let flights = (0..).zip(flights);
            let watches = flights.filter_map(|(slot, f)| Some((slot, &mut f.as_mut()?.watch)));
            let is_over = timer.look(now, watches, |slot| {
                self.past.aborts += 1;
                admin.abort(qid, link.qpair.cid(slot));
            });
            if is_over {
                return Err(Lost);
            }
        }
        Ok(())
    }

    fn attach(&mut self, now: Instant) {
        for (number, mut link, _) in std::mem::take(&mut self.joining) {
            link.qpair.set_policy(self.plan.host.policy);
            let lane = &mut self.lanes[number];
            lane.link = Some(link);
            self.past.retries += lane.pending.len() as u64;
            lane.submit_pending(now);
        }
        self.past.associations += 1;
        self.reconnect_delay = self.plan.reconnect_delay;
        self.lost_at = None;
        self.failing = false;
    }

    /// Resets every connection; the requests wait for the next association.
    fn lose(&mut self, now: Instant, network: &mut Network) {
        for lane in &mut self.lanes {
            lane.detach(now, network);
        }
        let joining = std::mem::take(&mut self.joining).into_iter().map(|(_, link, _)| link);
        let admin = self.admin.take().map(|admin| admin.link);
        for link in joining.chain(admin) {
            network.close(now, link.conn, End::Host, false);
        }
        self.lost_at.get_or_insert(now);
        self.retry_at = now + self.reconnect_delay;
        self.reconnect_delay = (self.reconnect_delay * 2).min(RECONNECT_DELAY_MAX);
    }

    fn surrenders_at(&self) -> Option<Instant> {
        let limit = self.plan.controller_loss_timeout.filter(|_| !self.failing)?;
        Some(self.lost_at? + limit)
    }

    /// The controller-loss timeout: requests fail until there is an association.
    fn surrender(&mut self, now: Instant, load: &mut Load) -> Result<(), String> {
        if self.surrenders_at().is_some_and(|at| at <= now) {
            self.failing = true;
            self.past.surrenders += 1;
        }
        for flight in self.lanes.iter_mut().flat_map(|lane| lane.given_up.drain(..)) {
            let Request { token, buffer, .. } = flight.request;
            load.complete(token, Status::HOST_ABORTED, &buffer)?;
        }
        if !self.failing {
            return Ok(());
        }
        let waiting = self.lanes.iter_mut().flat_map(|lane| {
            let resting = lane.resting.drain(..).map(|(_, flight)| flight);
            lane.pending.drain(..).chain(resting)
        });
        for flight in waiting {
            let Request { token, buffer, .. } = flight.request;
            load.complete(token, Status::HOST_PATH_ERROR, &buffer)?;
        }
        Ok(())
    }

    /// New requests of a lane: one, or a burst, then a pause that makes up for it.
    fn submit(&mut self, now: Instant, number: usize, load: &mut Load) -> Result<(), String> {
        let lane = &mut self.lanes[number];
        if now >= Instant(0) + self.plan.chaos || now < lane.next_at {
            return Ok(());
        }
        let most = if self.rng.chance(70) { 1 } else { self.plan.depth as u64 };
        for _ in 0..self.rng.between(1, most) {
            lane.next_at += self.rng.micros(0, 2 * self.plan.pause.as_micros() as u64);
            if lane.room() == 0 || lane.outstanding() >= self.plan.depth {
                continue;
            }
            let request = load.request(self.hostid[0]);
            if self.failing {
                load.complete(request.token, Status::HOST_PATH_ERROR, &request.buffer)?;
            } else {
                lane.pending.push_back(Flight::new(request));
                lane.submit_pending(now);
            }
        }
        lane.next_at = lane.next_at.max(now + Duration::from_nanos(1));
        Ok(())
    }

    /// When something is due.
    pub fn next_at(&mut self, now: Instant) -> Option<Instant> {
        let end = Instant(0) + self.plan.chaos;
        let retry = self.admin.is_none().then_some(self.retry_at);
        let surrender = self.surrenders_at();
        let admin = self.admin.as_ref().and_then(Admin::next_at);
        let links = self.lanes.iter_mut().flat_map(|lane| {
            let next = (now < end).then_some(lane.next_at);
            next.into_iter().chain(lane.deadline())
        });
        links.chain(retry).chain(surrender).chain(admin).min()
    }

    /// Whether the association is complete, nothing is under way on the admin queue, and the host knows
    /// the namespaces.
    #[must_use]
    pub fn is_settled(&self, namespaces: &[u32]) -> bool {
        self.lanes.iter().all(|lane| lane.link.is_some())
            && self.admin.as_ref().is_some_and(Admin::is_idle)
            && self.namespaces == namespaces
    }

    /// For the report of a failure.
    #[must_use]
    pub fn state(&self) -> String {
        let (slots, pending) = self.leftovers();
        let attached = self.lanes.iter().filter(|lane| lane.link.is_some()).count();
        let idle = self.admin.as_ref().map(Admin::is_idle);
        format!(
            "host {}: {slots} slots, {pending} pending, {attached} lanes attached, admin idle {idle:?}, \
             namespaces {:?}",
            self.hostid[0], self.namespaces
        )
    }

    /// Commands that occupy slots, and requests that wait.
    #[must_use]
    pub fn leftovers(&self) -> (u32, usize) {
        let links = self.lanes.iter().filter_map(|lane| lane.link.as_ref());
        let slots = links.map(|link| link.qpair.in_flight()).sum();
        (slots, self.lanes.iter().map(|lane| lane.pending.len() + lane.resting.len()).sum())
    }
}

impl Lane {
    fn outstanding(&self) -> usize {
        self.pending.len() + self.resting.len() + self.flights.iter().flatten().count()
    }

    /// When something is due while it has a connection.
    fn deadline(&mut self) -> Option<Instant> {
        let qpair = &mut self.link.as_mut()?.qpair;
        let rests = self.resting.iter().map(|&(until, _)| until);
        let overdue = self.timer.deadline(qpair.in_flight());
        rests.chain(overdue).chain(qpair.batcher().deadline()).min()
    }

    /// Those whose time has come want a slot.
    fn wake(&mut self, now: Instant) {
        let woken = self.resting.extract_if(.., |(until, _)| *until <= now);
        self.pending.extend(woken.map(|(_, flight)| flight));
    }

    fn room(&self) -> u32 {
        match &self.link {
            Some(link) if self.pending.is_empty() => {
                link.qpair.room().saturating_sub(self.resting.len() as u32)
            }
            _ => (self.flights.len() - 1).saturating_sub(self.outstanding()) as u32,
        }
    }

    fn submit_pending(&mut self, now: Instant) {
        let Some(link) = &mut self.link else { return };
        while let Some(mut flight) = self.pending.pop_front() {
            let request = &mut flight.request;
            let buffer = std::mem::take(&mut request.buffer);
            match link.submit(now, &request.sqe, request.data, buffer, request.urgency) {
                Ok(slot) => {
                    flight.watch = Watch::new(now);
                    let old = self.flights[usize::from(slot)].replace(flight);
                    assert!(old.is_none(), "the slot of a command in flight was used again");
                }
                Err(buffer) => {
                    flight.request.buffer = buffer;
                    return self.pending.push_front(flight);
                }
            }
        }
    }

    fn receive(
        &mut self,
        now: Instant,
        network: &mut Network,
        load: &mut Load,
        rules: &RetryRules,
    ) -> Result<Result<(), Lost>, String> {
        let Some(link) = &mut self.link else { return Ok(Ok(())) };
        let mut completed = Vec::new();
        let alive = link.receive(now, network, &mut completed);
        for command in completed {
            let flight = self.flights[usize::from(command.slot)].take();
            let mut flight = flight.ok_or("a slot without request has completed")?;
            let status = command.cqe.status();
            if status.is_success() && !command.data_intact {
                return Err(format!("request {}: success without data", flight.request.token));
            }
            if let Some(until) = flight.tries.next(now, status, rules) {
                load.tally.repeated += 1;
                flight.request.buffer = command.data;
                self.resting.push((until, flight));
            } else {
                let told = load.complete(flight.request.token, status, &command.data);
                told.map_err(|what| format!("request {}: {what}", flight.request.token))?;
            }
        }
        if alive.is_ok() {
            self.wake(now);
            self.submit_pending(now);
        }
        Ok(alive)
    }

    fn detach(&mut self, now: Instant, network: &mut Network) {
        let Some(mut link) = self.link.take() else { return };
        network.close(now, link.conn, End::Host, false);
        let flights = self.flights.iter_mut().enumerate();
        let mut lost: Vec<Flight> = flights
            .filter_map(|(slot, flight)| {
                let mut flight = flight.take()?;
                flight.request.buffer = link.take_buffer(slot as u16);
                Some(flight)
            })
            .collect();
        let tired = |flight: &mut Flight| flight.watch.is_overdue() && !flight.tries.may_pass();
        self.given_up.extend(lost.extract_if(.., tired));
        lost.sort_by_key(|flight| flight.request.token);
        lost.into_iter().rev().for_each(|flight| self.pending.push_front(flight));
    }
}

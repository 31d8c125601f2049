//! The simulated host: an association (admin queue and lanes), its loss and its return, as the engine's
//! control thread and lanes manage them.

mod lane;

use crate::admin::{Admin, Event};
use crate::link::{Handling, Link};
use crate::load::Load;
use crate::network::{End, Lost, Network};
use crate::plan::{HOST_NQN, NQN, Plan};
use crate::rng::Rng;
use core::iter::Sum;
use core::ops::AddAssign;
use core::time::Duration;
use lane::Lane;
use roadtrain_proto::host::qpair::Data;
use roadtrain_proto::host::requests::Ended;
use roadtrain_proto::host::retry::RetryRules;
use roadtrain_proto::policy::{PolicyConfig, Urgency};
use roadtrain_proto::time::Instant;
use roadtrain_wire::fabrics::{Connect, ConnectData, cattr};
use roadtrain_wire::zerocopy::IntoBytes;

/// Command Retry Delay Times of the target.
const CRDT: [u16; 3] = [1, 2, 0];
const RECONNECT_DELAY_MAX: Duration = Duration::from_millis(100);

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
        Host {
            hostid: [number + 1; 16],
            lanes: (0..plan.lanes).map(|_| Lane::new(plan)).collect(),
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
        self.surrender(now);
        for number in 0..self.lanes.len() {
            self.submit(now, number, load);
        }
        self.complete_failed(load)?;
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
        for lane in &mut self.lanes {
            if lane.receive(now, network, load)?.is_err() {
                return Ok(Err(Lost));
            }
        }
        Ok(Ok(()))
    }

    /// What was not answered in time is aborted; `Err`: nor is it after that.
    fn look_for_overdue(&mut self, now: Instant) -> Result<(), Lost> {
        let Some(admin) = &mut self.admin else { return Ok(()) };
        for (qid, lane) in (1..).zip(&mut self.lanes) {
            let is_over = lane.look_for_overdue(now, |cid| {
                self.past.aborts += 1;
                admin.abort(qid, cid);
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
            let rules = RetryRules::new(CRDT, self.plan.controller_loss_timeout);
            self.past.retries += self.lanes[number].attach(now, link, rules);
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
    fn surrender(&mut self, now: Instant) {
        if self.surrenders_at().is_some_and(|at| at <= now) {
            self.failing = true;
            self.past.surrenders += 1;
            self.lanes.iter_mut().for_each(|lane| lane.requests.fail());
        }
    }

    /// Requests that have failed without an answer.
    fn complete_failed(&mut self, load: &mut Load) -> Result<(), String> {
        for Ended { request, status, .. } in self.lanes.iter_mut().flat_map(Lane::failed) {
            load.complete(request.token, status, &request.buffer)?;
        }
        Ok(())
    }

    /// New requests of a lane: one, or a burst, then a pause that makes up for it.
    fn submit(&mut self, now: Instant, number: usize, load: &mut Load) {
        let lane = &mut self.lanes[number];
        if now >= Instant(0) + self.plan.chaos || now < lane.next_at {
            return;
        }
        let most = if self.rng.chance(70) { 1 } else { self.plan.depth as u64 };
        for _ in 0..self.rng.between(1, most) {
            lane.next_at += self.rng.micros(0, 2 * self.plan.pause.as_micros() as u64);
            if lane.has_room(self.plan.depth) {
                lane.requests.take(now, load.request(self.hostid[0]), lane.link.as_mut());
            }
        }
        lane.next_at = lane.next_at.max(now + Duration::from_nanos(1));
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
        (slots, self.lanes.iter().map(|lane| lane.waiting()).sum())
    }
}

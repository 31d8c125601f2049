//! Control thread: drives the association. `host_proto::association` decides which actions are due; this module carries
//! them out, by blocking calls on the admin queue.
//!
//! The thread blocks on the admin queue and on the reactors' reports. With several paths each has a control thread and
//! an association of its own, so a silent path delays no other.

mod leave;
mod panicked;
mod siblings;

use super::admin::{AdminConnection, Queues, with_timeout_max};
use super::config::HostConfig;
use super::counters::LinkState;
use super::error::HostControlError;
use super::ether::{FoundPath, PathDiscovery};
use super::link::{LinkError, QpairLink};
use super::numbers::ConnectionNumbers;
use super::reactor::{ExpressLink, HostReactorOrder, HostReactorReport};
use super::stopping::{self, wait_unlimited};
use super::threads::ReactorHandle;
use super::view::HostControllerView;
use roadtrain_ether_proto::fence::Fence;
use roadtrain_host_proto::allocation::Allocation;
use roadtrain_host_proto::association::{
    AssociationAction, HostAssociation, QueryOrigin, ResetReason,
};
use roadtrain_host_proto::bringup::Fencing;
use roadtrain_host_proto::namespace_identity::BarredNsids;
use roadtrain_host_proto::old_commands::LaneGuard;
use roadtrain_host_proto::procedure::DriverRequest;
use roadtrain_host_proto::retry::RetryRules;
use roadtrain_host_proto::write_verifier::PathWrites;
use roadtrain_system::clock;
use roadtrain_system::mailbox::{MailboxReceiver, MailboxSender};
use roadtrain_wire::sqe::Sqe;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;
use tracing::{debug, error, info, warn};

/// Most namespaces that a warning names one by one.
const STALE_NAMED_MAX: usize = 8;
/// Timeout while nothing is due.
const SELDOM: Duration = Duration::from_secs(3600);

pub(super) use siblings::{FirstAttempt, sibling_constraints};

/// Path of a control thread.
pub(super) struct PathContext {
    /// Number of the path.
    pub(super) path: usize,
    /// Number of lanes of a path.
    pub(super) lanes: usize,
    /// Number of ports that each reactor has for paths before this one.
    pub(super) ports_before: usize,
    /// Mailboxes of the control threads of all path slots.
    pub(super) peers: Vec<MailboxSender<HostReactorReport>>,
    /// Receiver of the result of the first attempt to connect.
    pub(super) first_attempt: Option<FirstAttempt>,
}

/// State of a control thread.
pub(super) struct PathControl {
    /// Configuration, with the path's address.
    config: HostConfig,
    context: PathContext,
    view: HostControllerView,
    inbox: MailboxReceiver<HostReactorReport>,
    reactors: Vec<ReactorHandle>,
    association: HostAssociation<LinkError>,
    /// Connections of the path.
    queues: Queues,
    /// Lanes that reactors have, or had, and that the target may still know.
    fence: Fence,
    /// Sender to the inbox.
    reports: MailboxSender<HostReactorReport>,
    /// Search for links that lanes do not have.
    discovery: Option<PathDiscovery>,
    /// Found links that the admin queue has not received.
    found: Vec<FoundPath>,
    /// Slot of the Abort in flight.
    aborting: Option<u16>,
    /// Stale NSIDs that were logged.
    warned: BarredNsids,
    /// Lane of each express connection, by its number.
    expresses: BTreeMap<usize, usize>,
    /// Number of reactors whose threads have ended.
    ended: usize,
    /// Number of lanes that still have requests, while the path is removed.
    leaving: Option<usize>,
    /// True if the path leads to other namespaces.
    is_refused: bool,
}

/// State that a control thread leaves to the next one in its slot.
pub(super) struct Leftover {
    pub(super) inbox: MailboxReceiver<HostReactorReport>,
    /// Number of reactors whose threads have ended.
    pub(super) ended: usize,
    /// True if the path led to other namespaces.
    pub(super) is_refused: bool,
}

impl PathControl {
    /// Creates the state with an admin queue whose controller is identified.
    pub(super) fn new(
        config: HostConfig,
        context: PathContext,
        view: HostControllerView,
        admin: AdminConnection,
        reactors: Vec<ReactorHandle>,
        (reports, inbox): (MailboxSender<HostReactorReport>, MailboxReceiver<HostReactorReport>),
    ) -> Self {
        let siblings = config.has_paths().then(|| sibling_constraints(&view));
        let rules = config.association(context.lanes as u32, siblings, view.old_commands());
        let association =
            HostAssociation::brought_up(clock::now(), rules, view.info(), admin.psk());
        let control =
            PathControl::with(config, context, view, association, reactors, (reports, inbox));
        PathControl { queues: admin.queues, ..control }
    }

    fn with(
        config: HostConfig,
        context: PathContext,
        view: HostControllerView,
        association: HostAssociation<LinkError>,
        reactors: Vec<ReactorHandle>,
        (reports, inbox): (MailboxSender<HostReactorReport>, MailboxReceiver<HostReactorReport>),
    ) -> Self {
        PathControl {
            association,
            config,
            context,
            view,
            inbox,
            reactors,
            queues: Queues::default(),
            fence: Fence::default(),
            reports,
            discovery: None,
            found: Vec::new(),
            aborting: None,
            warned: BarredNsids::default(),
            expresses: BTreeMap::new(),
            ended: 0,
            leaving: None,
            is_refused: false,
        }
    }

    /// Connects the lanes for the first time. A busy target is retried for [`HostConfig::connect_timeout`].
    ///
    /// # Errors
    /// Any failure of that.
    pub(super) fn begin(&mut self) -> Result<(), HostControlError> {
        let deadline = clock::now() + self.config.connect_timeout;
        while !self.association.is_live() {
            match self.association.poll(clock::now()) {
                Some(AssociationAction::Reset { why, .. }) => {
                    let error = self.error(why);
                    if !error.is_busy() || clock::now() >= deadline {
                        return Err(error);
                    }
                    info!(target = %self.config.address, "the controller is busy; trying again");
                    self.queues = Queues::default();
                    self.association.reset(clock::now());
                }
                Some(action) => {
                    let _ = self.carry_out(action);
                }
                None => self.wait(),
            }
        }
        // Hand the connections over to the lanes.
        while let Some(action) = self.association.next_action() {
            if let AssociationAction::Reset { why, .. } = action {
                return Err(self.error(why));
            }
            let _ = self.carry_out(action);
        }
        Ok(())
    }

    /// Runs the thread until the end of the association.
    pub(super) fn run(mut self) -> Leftover {
        loop {
            self.read_reports();
            self.check_admin_queue();
            match self.association.poll(clock::now()) {
                Some(action) => {
                    if self.carry_out(action).is_break() {
                        return self.left();
                    }
                }
                None => self.wait(),
            }
        }
    }

    /// Waits for an event or for the next deadline.
    fn wait(&mut self) {
        let due = self.association.deadline().map(|at| at.since(clock::now()));
        let (wait, inbox) = (due.unwrap_or(SELDOM), self.inbox.fd());
        let listens = self.association.is_live() && !self.association.is_ending();
        match self.queues.admin.as_mut().filter(|_| listens) {
            Some(admin) => {
                if let Err(error) = admin.queue.wait(inbox, wait) {
                    self.association.admin_lost(clock::now(), error);
                }
            }
            None => {
                let _ = wait_unlimited(inbox, wait);
            }
        }
    }

    /// Handles events, and changes of the transport.
    fn check_admin_queue(&mut self) {
        if !self.association.is_live() || self.association.is_ending() {
            return;
        }
        let Some(admin) = &mut self.queues.admin else { return };
        self.found.drain(..).for_each(|found| admin.queue.offer(&found));
        if let (Some(survey), Some(discovery)) = (admin.queue.take_survey(), &self.discovery) {
            discovery.update(survey);
        }
        match admin.queue.next_event() {
            Ok(Some((slot, _))) if self.aborting == Some(slot) => {
                self.aborting = None;
                self.association.aborted();
            }
            Ok(Some((_, cqe))) => self.association.event(&cqe),
            Ok(None) => {}
            Err(error) => self.association.admin_lost(clock::now(), error),
        }
    }

    // ---- Reports of reactors ----

    fn link_found(&mut self, found: FoundPath) {
        let theirs = found.after(self.context.ports_before);
        self.each_lane(|lane| HostReactorOrder::Offer { lane, found: theirs.clone() });
        found.add_to(&mut self.fence);
        self.found.push(found);
    }

    fn read_reports(&mut self) {
        self.inbox.acknowledge();
        while let Some(report) = self.inbox.take() {
            let now = clock::now();
            match report {
                HostReactorReport::Lost { lane, error } => {
                    self.association.lane_lost(now, lane, error);
                }
                HostReactorReport::Overdue { lane, cids } => {
                    let (timeout, count) = (self.config.io_timeout.unwrap_or_default(), cids.len());
                    warn!(target = %self.config.address, lane, count, "no answer for {timeout:.0?}: aborting");
                    self.association.overdue(lane, cids);
                }
                HostReactorReport::WantsExpress { lane } => self.association.want_express(lane),
                HostReactorReport::ExpressClosed { lane, number } => {
                    self.express_closed(lane, number)
                }
                HostReactorReport::Found(found) => self.link_found(found),
                HostReactorReport::QueryAllocation { by, query } => {
                    self.association.query_allocation(by, query)
                }
                HostReactorReport::EndFor { path, lost } => {
                    self.association.end_for(now, path, lost)
                }
                HostReactorReport::IsBack { path } => {
                    self.association.withdraw(path);
                    self.association.repeat_sibling_resets();
                }
                HostReactorReport::HasEnded { lost } => self.association.fenced(lost),
                HostReactorReport::Stop => self.association.stop(now, self.has_live_sibling()),
                HostReactorReport::Leave => self.leave(),
                HostReactorReport::Left => self.lane_left(),
                HostReactorReport::Ended(failure) => self.reactor_ended(failure),
                #[cfg(feature = "testing")]
                HostReactorReport::Call(call) => call(),
            }
        }
    }

    /// Handles the end of a reactor. After a failure the others end, too: its lanes and its front are gone, and users
    /// of the controller get an error.
    fn reactor_ended(&mut self, failure: Option<String>) {
        self.ended += 1;
        if let Some(failure) = failure {
            error!("{failure}");
            self.view.fail(failure);
            self.association.stop(clock::now(), false);
        }
        // Each reactor's thread reports this once, perhaps just before it ends.
        if self.ended >= self.reactors.len() {
            self.association.ended(clock::now());
        }
    }

    // ---- Actions ----

    fn carry_out(&mut self, action: AssociationAction<LinkError>) -> ControlFlow<()> {
        use AssociationAction as Action;
        use HostReactorOrder as Order;
        match action {
            Action::Request { ask } => self.run_step(&ask),
            Action::Listen { sqe, .. } => _ = self.post(&sqe),
            Action::Abort { sqe, .. } => self.aborting = self.post(&sqe),
            Action::AttachExpress {
                lane, number, rules, barred, writes, may_close, guard, ..
            } => {
                let express =
                    |link| ExpressLink { link, number, rules, barred, writes, may_close, guard };
                self.attach_express(lane, number, express);
            }
            Action::RefuseExpress { lane, why, .. } => {
                self.queues.lanes.clear();
                match why {
                    Some(why) => info!(lane, "no express connection: {why}"),
                    None => debug!(lane, "no express connection: no queue to spare"),
                }
                self.order(lane, |lane| Order::Express { lane, express: None });
            }
            Action::Attach { rules, barred, writes, guard } => {
                self.attach(rules, &barred, (&writes, &guard));
            }
            Action::WritesLost { nsids, .. } => self.warn_of_lost_writes(&nsids),
            Action::SetBarred(barred) => {
                self.warn_of(&barred);
                self.each_lane(|lane| Order::SetBarred { lane, barred: barred.clone() });
            }
            Action::SetAna { ana, .. } => {
                self.view.set_ana(self.context.path, ana.clone());
                self.each_lane(|lane| Order::SetAna { lane, ana: ana.clone() });
            }
            Action::LateTransition { nsids, .. } => self.warn_of_transition(&nsids),
            Action::Release => self.each_lane(|lane| Order::Release { lane }),
            Action::Changed => self.show_info(),
            Action::AllocationFound { by, found } => self.send_allocation(by, found),
            Action::EndBySiblings { lost, .. } => {
                self.each_peer(|path| HostReactorReport::EndFor { path, lost });
            }
            Action::EndedFor { owner, lost, fencing } => self.ended_for(owner, lost, fencing),
            Action::Fenced { cntlid, fencing, .. } => self.log_fencing(cntlid, fencing),
            Action::Reset { why, was_live } => self.reset(why, was_live),
            Action::Fail { lane: Some(lane) } => {
                self.order(lane, |lane| Order::Fail { lane });
            }
            Action::Fail { lane: None } => self.fail_all(self.config.controller_loss_timeout),
            Action::FailFast if self.has_live_sibling() => {
                self.association.fail_later(clock::now())
            }
            Action::FailFast => self.fail_all(self.config.fast_io_fail_timeout),
            // The other paths continue.
            Action::Finish if self.leaving.is_some() => {}
            Action::Finish => {
                for reactor in &self.reactors {
                    reactor.orders.send(Order::Stop);
                }
            }
            Action::End { shut_down } => {
                if let Some(shut_down) = shut_down {
                    self.has_shut_down(shut_down);
                }
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Runs a step of a procedure, and passes its result to the association.
    fn run_step(&mut self, step: &DriverRequest) {
        if self.association.ends_in_order() {
            stopping::restart_limit();
        }
        let until = self.association.answer_by();
        let within = until.map_or(self.config.timeout, |at| at.since(clock::now()));
        let config = with_timeout_max(&self.config, within);
        let answer = self.queues.carry_out(&config, &mut self.fence, step);
        self.association.answer(clock::now(), answer);
    }

    /// Sends a command on the admin queue without waiting for its completion. Returns its slot.
    fn post(&mut self, sqe: &Sqe) -> Option<u16> {
        let admin = self.queues.admin.as_mut().ok_or(LinkError::Closed);
        let posted = admin.and_then(|admin| admin.queue.post(sqe));
        let lost = |error| self.association.admin_lost(clock::now(), error);
        posted.map_err(lost).ok()
    }

    fn attach(
        &mut self,
        rules: RetryRules,
        barred: &BarredNsids,
        (writes, guard): (&PathWrites, &LaneGuard),
    ) {
        if let Some(problem) = self.sibling_mismatch() {
            return self.refuse(problem);
        }
        if self.is_refused {
            self.queues = Queues::default();
            return;
        }
        let Some(info) = self.association.info().cloned() else { return };
        let mut links = Vec::new();
        for (qid, queue) in std::mem::take(&mut self.queues.lanes) {
            let lane = usize::from(qid) - 1;
            match queue.into_link(info.in_capsule_bytes, self.config.policy) {
                Ok(link) => links.push((lane, link)),
                Err(error) => {
                    return self.association.lane_lost(clock::now(), lane, error);
                }
            }
        }
        self.warn_of(barred);
        for (lane, mut link) in links {
            link.earlier().into_iter().for_each(|lane| self.fence.add(lane));
            link.shift(self.context.ports_before);
            let (link, barred) = (Box::new(link), barred.clone());
            let (writes, guard) = (writes.clone(), guard.clone());
            self.order(lane, |lane| HostReactorOrder::Attach {
                lane,
                link,
                rules,
                barred,
                writes,
                guard,
            });
        }
        self.discover_paths();
        self.each_peer(|path| HostReactorReport::IsBack { path });
        if self.view.link_of(self.context.path).state != LinkState::Connected {
            self.view.set_link(self.context.path, LinkState::Connected, None);
            let again = if self.context.first_attempt.is_some() { "" } else { " again" };
            info!(target = %self.config.address, "connected{again}");
        }
        self.report_first_attempt(Ok(()));
    }

    /// Starts the search for more links to the target while the lanes are connected.
    fn discover_paths(&mut self) {
        self.found.clear();
        let target =
            self.queues.admin.as_ref().and_then(|admin| admin.origin.whereabouts(&self.config));
        self.discovery = target.and_then(|target| {
            let reports = self.reports.clone();
            let found = move |found| {
                reports.send(HostReactorReport::Found(found));
            };
            PathDiscovery::start(target, found)
                .inspect_err(|error| warn!("the search for more links cannot start: {error}"))
                .ok()
        });
    }

    fn warn_of(&mut self, barred: &BarredNsids) {
        let target = &self.config.address;
        let means = match self.config.has_paths() {
            true => "they take other paths",
            false => "they fail until it is back",
        };
        let is_new = |nsid: &&u32| self.warned.stale().binary_search(nsid).is_err();
        let mut new = barred.stale().iter().filter(is_new);
        for nsid in new.by_ref().take(STALE_NAMED_MAX) {
            warn!(
                %target,
                nsid,
                "the namespace is gone, or another one has its NSID; its requests: {means}"
            );
        }
        match new.count() {
            0 => {}
            more => warn!(%target, "the same of {more} more namespaces"),
        }
        self.warned = barred.clone();
    }

    /// Logs the outcome for the lost controller. Its old commands could overtake retries.
    fn log_fencing(&self, cntlid: u16, fencing: Fencing) {
        let target = &self.config.address;
        match fencing {
            Fencing::Ended => {
                info!(%target, cntlid, "the target has ended the controller that was lost")
            }
            Fencing::Replaced => {
                info!(%target, cntlid, "the target was started anew: the controller that was lost has ended");
            }
            Fencing::Unknown => warn!(
                %target,
                cntlid,
                "another process answers than the one that had the controller that was lost: {}",
                self.describe_waiting_writes()
            ),
            // Usual for most targets.
            Fencing::NotOffered if self.view.old_commands().open(clock::now()).is_empty() => {}
            Fencing::NotOffered => info!(
                %target,
                cntlid,
                "the target cannot end the controller that was lost: {}",
                self.describe_waiting_writes()
            ),
            Fencing::Refused(status) => warn!(
                %target,
                cntlid,
                %status,
                "the target does not end the controller that was lost: {}",
                self.describe_waiting_writes()
            ),
        }
    }

    /// Describes which writes wait for lost controllers, and for how long.
    pub(super) fn describe_waiting_writes(&self) -> String {
        let open = self.view.old_commands().open(clock::now());
        let blocks = "writes that were sent to it, and later ones to the same blocks, wait";
        match open.iter().map(|open| open.left).max_by_key(|left| left.map_or(Duration::MAX, |l| l))
        {
            None => "no write was in flight".into(),
            Some(None) => format!("{blocks}; without keep-alive no time ends that"),
            Some(Some(left)) => format!("{blocks} for {left:.0?}"),
        }
    }

    fn show_info(&mut self) {
        let Some(info) = self.association.info() else { return };
        if self.association.is_live() {
            info!(count = info.namespaces.len(), "namespaces have changed");
        }
        if self.reports_namespaces() {
            self.view.set((**info).clone());
        }
    }

    fn reset(&mut self, why: ResetReason<LinkError>, was_live: bool) {
        let error = match why {
            ResetReason::Lane { lane, error } => format!("lane {lane}: {error}"),
            ResetReason::Path(failure) => {
                let error = HostControlError::new(&self.config, failure);
                let text = error.to_string();
                if !error.is_busy() {
                    self.report_first_attempt(Err(error));
                }
                text
            }
        };
        let queues = std::mem::take(&mut self.queues);
        self.aborting = None;
        self.expresses.clear();
        let is_ending = self.association.is_ending();
        if is_ending && self.leaving.is_some() {
            debug!(target = %self.config.address, "{error}");
        } else if is_ending && !(was_live && self.config.has_paths()) {
            warn!(target = %self.config.address, "{error}: the target does not answer at the end");
        } else if was_live {
            self.discovery = None;
            let next =
                if is_ending { "not connecting again at the end" } else { "connecting again" };
            warn!(target = %self.config.address, "{error}; {next}");
            self.view.set_link(self.context.path, LinkState::Reconnecting, Some(error));
            self.detach_lanes();
            if let Some(admin) = queues.admin {
                admin.queue.reset(&mut self.fence);
            }
        } else {
            drop(queues);
            let state = self.view.link_of(self.context.path).state;
            self.view.set_link(self.context.path, state, Some(error.clone()));
        }
        self.association.reset(clock::now());
        if let Some(at) = self.association.retries_at().filter(|_| !was_live) {
            let error = self.view.link_of(self.context.path).error.unwrap_or_default();
            info!("not connected yet: {error}; next try in {:.0?}", at.since(clock::now()));
        }
    }

    /// Closes every lane's connection, and waits for that: old commands must not meet new ones.
    fn detach_lanes(&self) {
        let lanes = self.reactors.iter().map(|reactor| reactor.lanes.len()).sum();
        let (done, gone) = sync_channel(lanes);
        self.each_lane(|lane| HostReactorOrder::Detach { lane, done: done.clone() });
        drop(done); // so that ended reactors are not waited for
        for _ in 0..lanes {
            match gone.recv_timeout(self.config.timeout) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => return warn!("a reactor does not reply"),
            }
        }
    }

    fn fail_all(&self, limit: Option<Duration>) {
        if !self.association.is_ending() {
            let limit = limit.unwrap_or_default();
            warn!("controller lost for {limit:?}: failing its requests");
            let error = self.view.link_of(self.context.path).error;
            self.view.set_link(self.context.path, LinkState::Failing, error);
        }
        self.each_lane(|lane| HostReactorOrder::Fail { lane });
    }

    /// Hands an express connection over to its lane, or reports its failure.
    fn attach_express(
        &mut self,
        lane: usize,
        number: usize,
        express: impl FnOnce(Box<QpairLink>) -> ExpressLink,
    ) {
        let Some(info) = self.association.info() else { return };
        let in_capsule_bytes = info.in_capsule_bytes;
        let Some(queue) = self.queues.lanes.remove(&(number as u16 + 1)) else { return };
        match queue.into_link(in_capsule_bytes, self.config.policy) {
            Ok(link) => {
                info!(lane, "express connection opened");
                self.expresses.insert(number, lane);
                let express = Some(express(Box::new(link)));
                self.order(lane, |lane| HostReactorOrder::Express { lane, express });
            }
            Err(error) => {
                info!(lane, "no express connection: {error}");
                self.express_closed(lane, number);
                self.order(lane, |lane| HostReactorOrder::Express { lane, express: None });
            }
        }
    }

    fn express_closed(&mut self, lane: usize, number: usize) {
        // It may belong to another lane by now.
        if self.expresses.get(&number) == Some(&lane) {
            self.expresses.remove(&number);
        }
        self.association.express_closed(lane, number);
    }

    /// Sends an order to the reactor of a lane, or of an express connection; the order gets its number over all paths.
    fn order(&self, number: usize, order: impl FnOnce(usize) -> HostReactorOrder) {
        let lane = self.expresses.get(&number).copied().unwrap_or(number);
        if let Some(reactor) = self.reactor_of(lane) {
            reactor.orders.send(order(self.numbers().of(self.context.path, number)));
        }
    }

    /// Passes the result of a query to the reactor's front.
    fn send_allocation(&self, (lane, key): QueryOrigin, found: Option<Allocation>) {
        if let Some(reactor) = self.reactor_of(lane) {
            reactor.orders.send(HostReactorOrder::AllocationFound { key, found });
        }
    }

    /// Returns the numbering of lanes and express connections over all paths.
    fn numbers(&self) -> ConnectionNumbers {
        ConnectionNumbers::new(self.context.lanes, self.context.peers.len())
    }

    fn reactor_of(&self, lane: usize) -> Option<&ReactorHandle> {
        self.reactors.iter().find(|reactor| reactor.lanes.contains(&lane))
    }

    fn each_lane(&self, order: impl Fn(usize) -> HostReactorOrder) {
        for reactor in &self.reactors {
            for &lane in &reactor.lanes {
                reactor.orders.send(order(self.numbers().of(self.context.path, lane)));
            }
        }
    }

    /// Returns the error of a reset during the first connection.
    fn error(&self, why: ResetReason<LinkError>) -> HostControlError {
        match why {
            ResetReason::Lane { error, .. } => {
                HostControlError::Lost { what: "Connect", source: error }
            }
            ResetReason::Path(failure) => HostControlError::new(&self.config, failure),
        }
    }
}

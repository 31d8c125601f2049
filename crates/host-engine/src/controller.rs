//! Connected controller: reactors with their lanes, and the control threads that keep them connected.

use super::address::TargetAddress;
use super::admin::AdminConnection;
use super::api::Front;
use super::config::HostConfig;
use super::control::PathControl;
use super::error::HostControlError;
use super::finder;
use super::follower::DiscoveryFollower;
use super::path_set::PathSet;
use super::race::first_of;
use super::reactor::{HostReactorOrder, HostReactorReport};
use super::stopping::StopSignal;
use super::threads::{ReactorHandle, deal, spawn};
use super::view::HostControllerView;
use roadtrain_reactor::probes::ReactorProbes;
use roadtrain_reactor::recorded::{ConnectionInfo, RecordedRequests};
use roadtrain_system::guest::GuestSpawner;
use roadtrain_system::mailbox::{MailboxSender, mailbox};
use roadtrain_system::platform::{Affinity, PlacedThreads, host_affinities, numa};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use tracing::warn;

/// Longest wait for the other paths once one is connected. During this time at the start a path to another subsystem is
/// an error.
const SIBLING_WAIT: Duration = Duration::from_secs(3);
/// Longest wait for a reactor's recorded requests.
const RECORDED_WAIT: Duration = Duration::from_secs(1);

/// Reactor that a front is created for.
#[derive(Clone, Copy, Debug)]
pub struct ReactorInfo {
    /// Index of the reactor.
    pub index: usize,
    /// Number of reactors.
    pub count: usize,
    /// Number of its lanes: `LaneId(0)` to `LaneId(lanes - 1)`.
    pub lanes: usize,
    /// Core that it is pinned to.
    pub core: Option<usize>,
}

/// Connected controller. Dropping it stops it.
pub struct HostController {
    view: HostControllerView,
    orders: Vec<MailboxSender<HostReactorOrder>>,
    paths: Arc<PathSet>,
    /// Follower of the discovery controllers.
    follower: Option<DiscoveryFollower>,
    has_begun: bool,
    reactors: Vec<ReactorHandle>,
}

impl HostController {
    /// Connects the admin queue, then every lane; `make_front` creates the front of each reactor. With several
    /// addresses one that works is enough to start.
    ///
    /// # Errors
    /// Any failure of the first connection, and paths to another subsystem; later losses are repaired.
    pub fn connect(
        config: HostConfig,
        make_front: impl FnMut(ReactorInfo, &HostControllerView) -> Box<dyn Front + Send>,
    ) -> Result<Self, HostControlError> {
        HostController::connect_beside(config, None, make_front)
    }

    /// Connects as [`HostController::connect`] does. The first reactor has a thread of its own; the others run as guests
    /// on `threads`, one on each. If a thread ends before them, their requests in flight have no completion, and the
    /// controller continues with the others. Requires as many lanes as reactors, with one reactor more than threads.
    ///
    /// # Errors
    /// As [`HostController::connect`].
    pub fn connect_beside(
        config: HostConfig,
        threads: Option<&dyn GuestSpawner>,
        mut make_front: impl FnMut(ReactorInfo, &HostControllerView) -> Box<dyn Front + Send>,
    ) -> Result<Self, HostControlError> {
        let (config, sources) = finder::with_found_paths(config)?;
        let (first, mut admin) = connect_any(&config)?;
        let first_config = config.of_path(config.addresses().nth(first).unwrap_or(&config.address));
        let info = admin.information(config.lanes, first_config.expresses(config.lanes))?;
        let lanes = (info.io_queues as usize).max(1);
        let count = config.reactor_count(lanes);
        let affinities = affinities(&config, count, &admin);
        let mut names: Vec<_> = config.addresses().map(|to| Some(to.to_string())).collect();
        names.resize(config.paths_max(), None);
        let view = HostControllerView::new(info, lanes, names, first, affinities.clone());
        view.inherit(&config.inherited);
        let system = |what| move |source| HostControlError::System { what, source };
        let mailboxes = (0..config.paths_max()).map(|_| mailbox()).collect::<Result<Vec<_>, _>>();
        let mailboxes = mailboxes.map_err(system("mailbox"))?;
        let reports: Vec<MailboxSender<HostReactorReport>> =
            mailboxes.iter().map(|(reports, _)| reports.clone()).collect();
        let dealt = deal(lanes, count).into_iter().zip(affinities).enumerate();
        let make = |(index, (lanes, affinity)): (usize, (Vec<usize>, Affinity))| {
            let core = affinity.cpus.single();
            let info = ReactorInfo { index, count, lanes: lanes.len(), core };
            let near = numa::scoped_memory_nodes(affinity.node.into_iter().collect());
            let front = make_front(info, &view);
            drop(near);
            let own = (view.meters[index].clone(), view.reactors[index].clone());
            let counters = (view.counters.clone(), own);
            let host = threads.filter(|_| index > 0).map(|threads| (threads, index - 1));
            spawn(&config, (affinity, host), lanes, front, reports.clone(), count, counters)
        };
        // A front may have to initialise much memory.
        let reactors: Vec<_> =
            admin.while_kept_alive(|| dealt.map(make).collect::<Result<_, HostControlError>>())?;
        let orders = reactors.iter().map(|reactor| reactor.orders.clone()).collect();
        let signal = StopSignal::new().map_err(system("eventfd"))?;
        let shares = reactors.iter().map(ReactorHandle::share).collect();
        let paths = PathSet::new(config.clone(), view.clone(), shares, mailboxes, signal);
        let (paths, follower, has_begun) = (Arc::new(paths), None, false);
        let controller = HostController { view, orders, paths, follower, has_begun, reactors };
        let mut controller = controller.begin(&config, (first, admin))?;
        controller.follower = DiscoveryFollower::start(&config, sources, &controller.paths)?;
        Ok(controller)
    }

    /// Starts the control threads, and waits until each path is connected or retries.
    fn begin(
        mut self,
        config: &HostConfig,
        (first, admin): (usize, AdminConnection),
    ) -> Result<Self, HostControlError> {
        let addresses: Vec<TargetAddress> = config.addresses().cloned().collect();
        // The connected path starts first, so that its Keep Alive is in time.
        let (of_path, view) = (config.of_path(&addresses[first]), self.view.clone());
        self.paths.start_first(first, addresses[first].clone(), |context, reactors, mailbox| {
            let mut driver = PathControl::new(of_path, context, view, admin, reactors, mailbox);
            driver.begin().map(|()| driver)
        })?;
        self.has_begun = true;
        let mut others = Vec::new();
        for (path, address) in addresses.into_iter().enumerate().filter(|(path, _)| *path != first)
        {
            let config = config.of_path(&address);
            others.push((config, self.paths.start_sibling(path, address)?));
        }
        let until = Instant::now() + SIBLING_WAIT;
        for (config, outcome) in others {
            await_path(&config, &outcome, until)?;
        }
        Ok(self)
    }

    /// Returns the view of the controller.
    #[must_use]
    pub fn view(&self) -> &HostControllerView {
        &self.view
    }

    /// Returns a probe for turns of all reactors.
    #[must_use]
    pub fn pulse(&self) -> ReactorProbes {
        ReactorProbes::new(self.orders.iter().map(|orders| {
            let orders = orders.clone();
            Box::new(move |reply| orders.send(HostReactorOrder::Beat(reply))) as Box<_>
        }))
    }

    /// Returns requests that reactors have recorded recently: slow ones, and samples.
    #[must_use]
    pub fn recorded(&self) -> RecordedRequests {
        let query = |orders: &MailboxSender<HostReactorOrder>| {
            let (reply, answer) = sync_channel(1);
            orders.send(HostReactorOrder::Recorded(reply));
            answer.recv_timeout(RECORDED_WAIT).unwrap_or_default()
        };
        RecordedRequests::new(self.orders.iter().map(query), ConnectionInfo::clone)
    }

    /// Runs a closure on a reactor's thread.
    #[cfg(feature = "testing")]
    pub fn call(&self, reactor: usize, call: impl FnOnce() + Send + 'static) {
        self.orders[reactor].send(HostReactorOrder::Call(Box::new(call)));
    }

    /// Runs a closure on the control thread of a path.
    #[cfg(feature = "testing")]
    pub fn call_control(&self, path: usize, call: impl FnOnce() + Send + 'static) {
        self.paths.call(path, call);
    }

    /// True if all fronts have ended, by themselves or because of [`HostController::stop`].
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.paths.has_ended()
    }

    /// Requests the fronts to end; [`HostController::join`] waits for it. A target that still replies has
    /// [`HostConfig::timeout`] for requests in flight, a silent one 3 s: then they fail
    /// ([`HostControllerView::abandoned`]).
    pub fn stop(&self) {
        self.paths.stop();
    }

    /// Waits until every front has ended and the controller is shut down.
    pub fn join(mut self) {
        self.wait();
    }

    fn wait(&mut self) {
        self.paths.join();
        self.has_begun = false;
        if let Some(follower) = self.follower.take() {
            follower.end();
        }
        self.reactors.iter_mut().for_each(ReactorHandle::join);
    }
}

impl Drop for HostController {
    fn drop(&mut self) {
        if self.has_begun {
            self.stop();
            self.wait();
        }
    }
}

/// Returns the number of the first address that can be connected. A refusal by the target ends the search.
fn connect_any(config: &HostConfig) -> Result<(usize, AdminConnection), HostControlError> {
    let paths: Vec<HostConfig> = config.addresses().map(|to| config.of_path(to)).collect();
    let connect = |path: &HostConfig| match AdminConnection::connect_patiently(path) {
        Err(error @ (HostControlError::Unreachable { .. } | HostControlError::Lost { .. })) => {
            Err(error)
        }
        ended => Ok(ended),
    };
    match first_of(&paths, connect) {
        Ok((path, ended)) => ended.map(|admin| (path, admin)),
        Err(errors) => Err(errors.into_iter().next().expect("there is an address")),
    }
}

/// Waits until one more path is connected, or until the deadline. A path that cannot be reached now is retried later.
fn await_path(
    config: &HostConfig,
    outcome: &Receiver<Result<(), HostControlError>>,
    until: Instant,
) -> Result<(), HostControlError> {
    match outcome.recv_timeout(until.saturating_duration_since(Instant::now())) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error @ (HostControlError::Unreachable { .. } | HostControlError::Lost { .. }))) => {
            warn!("{error}; beginning without this path");
            Ok(())
        }
        Ok(Err(error)) => Err(error),
        Err(_) => {
            warn!(target = %config.address, "does not answer; beginning without this path");
            Ok(())
        }
    }
}

/// Returns the affinities of the reactors: they send over the interface of the admin queue.
fn affinities(config: &HostConfig, count: usize, admin: &AdminConnection) -> Vec<Affinity> {
    let (placement, cores, allowed) = (config.placement, &config.cores[..], &numa::allowed());
    host_affinities(PlacedThreads { placement, count, cores, allowed }, &admin.route())
}

//! Follower of discovery logs: keeps a connection to each discovery controller, which reports changes of its log by an
//! event (NVMe Base 2.1, section 3.1.3.3). The paths of a controller follow the logs.
//!
//! Each discovery controller has a thread. Its last log counts while it cannot be reached.

use super::address::TargetAddress;
use super::admin::{AdminConnection, close};
use super::command_queue::CommandQueue;
use super::config::{HostConfig, RECONNECT_DELAY_MAX};
use super::discovery::{read_log, scope};
use super::error::HostControlError;
use super::finder::DiscoverySources;
use super::link::LinkError;
use super::path_set::PathSet;
use super::stopping::{self, StopSignal, wait_readable};
use roadtrain_system::mailbox::WakeEvent;
use roadtrain_wire::discovery::DiscoveryEntry;
use roadtrain_wire::feature::{SetFeatures, fid};
use roadtrain_wire::identify::oaes;
use roadtrain_wire::sqe::{Sqe, opcode};
use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tracing::{debug, info, warn};

/// Keep-alive timeout if the host has none: discovery controllers with persistent connections need one.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Interval of reads of a controller's log without events.
const SELDOM: Duration = Duration::from_secs(30);
/// Interval of checks whether a path that had to stay may be removed.
const SOON: Duration = Duration::from_millis(100);
/// Longest wait at the start until discovery controllers are connected.
const BEGINNING: Duration = Duration::from_millis(500);

/// Threads that follow discovery controllers.
pub(super) struct DiscoveryFollower {
    shared: Arc<FollowerShared>,
}

struct FollowerShared {
    /// Connection parameters of discovery controllers.
    discovery: HostConfig,
    paths: Arc<PathSet>,
    inner: Mutex<FollowerInner>,
    signal: Arc<StopSignal>,
    /// Event that is readable when the follower is to end.
    end: WakeEvent,
    /// Channel that receives one message from each thread after its first attempt.
    begun: Sender<()>,
}

struct FollowerInner {
    sources: DiscoverySources,
    threads: FollowerThreads,
    /// True if some controllers have no thread yet.
    lacks_threads: bool,
    /// True if the paths match the logs.
    is_done: bool,
    is_over: bool,
}

impl DiscoveryFollower {
    /// Starts to follow `sources`; `None` without discovery. From then on no change is missed, except of an unreachable
    /// discovery controller.
    ///
    /// # Errors
    /// The system has no resources left.
    pub(super) fn start(
        config: &HostConfig,
        sources: Option<DiscoverySources>,
        paths: &Arc<PathSet>,
    ) -> Result<Option<DiscoveryFollower>, HostControlError> {
        let (Some(discovery), Some(sources)) = (config.discovery.as_deref(), sources) else {
            return Ok(None);
        };
        let more_addresses = Vec::new();
        let mut discovery = HostConfig { more_addresses, ..discovery.clone() };
        if discovery.keep_alive.is_zero() {
            discovery.keep_alive = KEEP_ALIVE;
        }
        let system = |source| HostControlError::System { what: "eventfd", source };
        let (end, signal) = (WakeEvent::new().map_err(system)?, StopSignal::new().map_err(system)?);
        let threads = FollowerThreads::default();
        let inner = FollowerInner {
            sources,
            threads,
            lacks_threads: false,
            is_done: false,
            is_over: false,
        };
        let (paths, inner) = (paths.clone(), Mutex::new(inner));
        let (begun, beginnings) = channel();
        let shared = Arc::new(FollowerShared { discovery, paths, inner, signal, end, begun });
        let mut inner = shared.inner();
        shared.start_threads(&mut inner);
        let (threads, until) = (inner.threads.list.len(), Instant::now() + BEGINNING);
        drop(inner);
        for _ in 0..threads {
            let left = until.saturating_duration_since(Instant::now());
            let _ = beginnings.recv_timeout(left); // a late one continues to try
        }
        Ok(Some(DiscoveryFollower { shared }))
    }

    /// Ends the threads; no path changes any more.
    pub(super) fn end(self) {
        self.shared.signal.raise_for(Duration::ZERO);
        self.shared.end.wake();
        let mut inner = self.shared.inner();
        inner.is_over = true;
        let threads = std::mem::take(&mut inner.threads.list);
        drop(inner);
        for (_, thread) in threads {
            if thread.join().is_err() {
                warn!("a thread of discovery panicked");
            }
        }
    }
}

/// Threads by the names of the controllers that they follow.
#[derive(Default)]
struct FollowerThreads {
    list: Vec<(String, JoinHandle<()>)>,
}

impl FollowerThreads {
    /// Starts a thread for each discovery controller without one. False if too many threads of former referrals have
    /// not ended yet. A log may have other referrals on each read.
    fn start(
        &mut self,
        sources: &DiscoverySources,
        spawn: impl Fn(String, TargetAddress) -> io::Result<JoinHandle<()>>,
    ) -> bool {
        self.list.retain(|(_, thread)| !thread.is_finished());
        let mut names: BTreeSet<String> = self.list.iter().map(|(name, _)| name.clone()).collect();
        while let Some((name, address)) = sources.first_but(&names) {
            if self.list.len() >= sources.followed_max() {
                return false;
            }
            names.insert(name.clone());
            match spawn(name.clone(), address) {
                Ok(thread) => self.list.push((name, thread)),
                Err(error) => warn!("{name} is not followed: {error}"),
            }
        }
        true
    }
}

impl FollowerShared {
    fn inner(&self) -> MutexGuard<'_, FollowerInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread for each discovery controller without one, as far as possible now.
    fn start_threads(self: &Arc<Self>, inner: &mut FollowerInner) {
        let spawn = |name, address| {
            let shared = self.clone();
            let body = move || FollowedController::new(shared, name, address).run();
            thread::Builder::new().name("roadtrain-disc".into()).spawn(body)
        };
        inner.lacks_threads = !inner.threads.start(&inner.sources, spawn);
    }

    /// True if the controller of this name is to be followed.
    fn follows(&self, name: &str) -> bool {
        let inner = self.inner();
        !inner.is_over && inner.sources.has(name)
    }

    /// Takes the log of a discovery controller, and updates the paths.
    fn update_log(self: &Arc<Self>, name: &str, entries: &[DiscoveryEntry], scope: u32) {
        let mut inner = self.inner();
        if inner.is_over {
            return;
        }
        inner.sources.update_log(name, entries, scope);
        inner.is_done = self.paths.follow(&inner.sources.paths());
        self.start_threads(&mut inner);
    }

    /// Retries pending changes. Returns the time of the next retry if any are left.
    fn retry_pending(self: &Arc<Self>) -> Option<Duration> {
        let mut inner = self.inner();
        if inner.lacks_threads && !inner.is_over {
            self.start_threads(&mut inner);
        }
        if !inner.is_done && !inner.is_over {
            inner.is_done = self.paths.follow(&inner.sources.paths());
        }
        (!inner.is_done || inner.lacks_threads).then_some(SOON)
    }
}

/// Follower of one discovery controller.
struct FollowedController {
    shared: Arc<FollowerShared>,
    name: String,
    config: HostConfig,
    /// True if its loss was reported.
    is_lost: bool,
    /// Pause before the next attempt.
    delay: Duration,
    /// Channel to report the end of its first attempt.
    begun: Option<Sender<()>>,
}

impl FollowedController {
    fn new(shared: Arc<FollowerShared>, name: String, address: TargetAddress) -> Self {
        let config = HostConfig { address, ..shared.discovery.clone() };
        let (delay, begun) = (config.reconnect_delay, Some(shared.begun.clone()));
        FollowedController { shared, name, config, is_lost: false, delay, begun }
    }

    fn run(mut self) {
        stopping::limit_waits_by(&self.shared.signal);
        while self.shared.follows(&self.name) {
            let Err(error) = self.follow() else { return };
            self.has_begun();
            if !self.shared.follows(&self.name) {
                return;
            }
            if std::mem::replace(&mut self.is_lost, true) {
                debug!(discovery = self.name, "{error}");
            } else {
                warn!(discovery = self.name, "{error}; connecting again, and its paths stay");
            }
            self.pause(self.delay);
            self.delay = (self.delay * 2).min(RECONNECT_DELAY_MAX);
        }
    }

    /// Reports the end of its first attempt.
    fn has_begun(&mut self) {
        let _ = self.begun.take().map(|begun| begun.send(())); // the receiver may be gone
    }

    fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while self.shared.follows(&self.name) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let wait = self.shared.retry_pending().map_or(left, |soon| soon.min(left));
            let _ = wait_readable(&[self.shared.end.fd()], wait);
        }
    }

    /// Follows the controller until the connection is lost or it is not needed any more.
    ///
    /// # Errors
    /// The connection fails.
    fn follow(&mut self) -> Result<(), HostControlError> {
        let mut admin = AdminConnection::connect(&self.config)?;
        let set = SetFeatures::emit(fid::ASYNC_EVENT_CONFIG, oaes::DISCOVERY_LOG);
        let has_events = match admin.run("Set Features (events)", &set, &[], &mut []) {
            Err(HostControlError::Command { .. }) => false, // not supported
            set => set.map(|_| true)?,
        };
        if has_events {
            listen(&mut admin)?;
        }
        self.read(&mut admin)?;
        if std::mem::replace(&mut self.is_lost, false) {
            info!(discovery = self.name, "connected again");
        }
        self.delay = self.config.reconnect_delay;
        self.has_begun();
        let (mut spoke, mut read) = (Instant::now(), Instant::now());
        while self.shared.follows(&self.name) {
            let due = self.config.keep_alive / 2;
            let due = due.saturating_sub(spoke.elapsed());
            let wait = self.shared.retry_pending().map_or(due, |soon| soon.min(due));
            match event(&mut admin)? {
                Some(true) => {
                    self.read(&mut admin)?;
                    listen(&mut admin)?;
                    spoke = Instant::now();
                    continue;
                }
                Some(false) => continue, // the controller returned the request
                None => {}
            }
            if !has_events && read.elapsed() >= SELDOM {
                self.read(&mut admin)?;
                (spoke, read) = (Instant::now(), Instant::now());
            }
            if due.is_zero() {
                admin.run("Keep Alive", &Sqe::new(opcode::KEEP_ALIVE, 0), &[], &mut [])?;
                spoke = Instant::now();
                continue;
            }
            let lost = |source| HostControlError::Lost { what: "discovery", source };
            queue(&mut admin)
                .and_then(|queue| queue.wait(self.shared.end.fd(), wait))
                .map_err(lost)?;
        }
        close(admin.queues);
        Ok(())
    }

    fn read(&self, admin: &mut AdminConnection) -> Result<(), HostControlError> {
        let (generation, entries) = read_log(admin)?;
        debug!(discovery = self.name, generation, entries = entries.len(), "discovery log");
        self.shared.update_log(&self.name, &entries, scope(admin));
        Ok(())
    }
}

fn queue(admin: &mut AdminConnection) -> Result<&mut CommandQueue, LinkError> {
    admin.queues.queue(0)
}

/// Sends an Asynchronous Event Request.
fn listen(admin: &mut AdminConnection) -> Result<(), HostControlError> {
    let lost = |source| HostControlError::Lost { what: "Asynchronous Event Request", source };
    let request = Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0);
    queue(admin).and_then(|queue| queue.post(&request)).map(|_| ()).map_err(lost)
}

/// Returns `Some(true)` if there was an event; `Some(false)`: the controller returned its request.
fn event(admin: &mut AdminConnection) -> Result<Option<bool>, HostControlError> {
    let lost = |source| HostControlError::Lost { what: "discovery", source };
    let event = queue(admin).and_then(CommandQueue::next_event).map_err(lost)?;
    Ok(event.map(|(_, cqe)| cqe.status().is_success()))
}

#[cfg(test)]
mod tests {
    use super::super::finder::tests::{at, entry, sources};
    use super::*;
    use roadtrain_wire::discovery::subtype;
    use std::sync::mpsc::Receiver;

    /// Covers a log with other referrals on each read, whose threads take long to connect.
    #[test]
    fn threads_of_controllers_that_are_gone_count() {
        let (mut sources, mut threads) = (sources(), FollowerThreads::default());
        let (resume, wait) = channel::<()>();
        let wait: Arc<Mutex<Receiver<()>>> = Arc::new(Mutex::new(wait));
        let spawn = |_, _| {
            let wait = wait.clone();
            thread::Builder::new().spawn(move || _ = wait.lock().unwrap().recv())
        };
        assert!(threads.start(&sources, spawn));
        for round in 1..20 {
            let others = round * 100..round * 100 + 50;
            let log: Vec<_> = others.map(|number| entry(subtype::REFERRAL, number)).collect();
            sources.update_log(&at(1).to_string(), &log, 0);
            assert_eq!(threads.start(&sources, spawn), round == 1, "the first have room");
            assert_eq!(threads.list.len(), sources.followed_max());
        }
        drop(resume);
        let is_over = |(_, thread): &(String, JoinHandle<()>)| thread.is_finished();
        while !threads.list.iter().all(is_over) {
            thread::yield_now();
        }
        assert!(threads.start(&sources, spawn), "later there is room");
        assert!(
            sources
                .first_but(&threads.list.iter().map(|(name, _)| name.clone()).collect())
                .is_none()
        );
    }
}

//! Threads of the reactors: their start and their end.

use super::api::Front;
use super::config::HostConfig;
use super::counters::{LaneCounters, ReactorCounters};
use super::error::HostControlError;
use super::ether::Ports;
use super::reactor::{
    HostGuest, HostReactor, HostReactorOrder, HostReactorParts, HostReactorReport, RING_ENTRIES,
};
use roadtrain_reactor::tuning;
use roadtrain_reactor::waits::WaitMeter;
use roadtrain_system::guest::{GuestConstructor, GuestSpawner};
use roadtrain_system::mailbox::{MailboxSender, mailbox};
use roadtrain_system::platform::{Affinity, numa};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use tracing::warn;

/// Assigns `lanes` to the reactors in turn.
pub(super) fn deal(lanes: usize, reactors: usize) -> Vec<Vec<usize>> {
    let dealt =
        |reactor| (0..lanes).filter(|lane| reactor_of(*lane, reactors) == reactor).collect();
    (0..reactors).map(dealt).collect()
}

/// Returns the reactor of a lane.
pub(super) fn reactor_of(lane: usize, reactors: usize) -> usize {
    lane % reactors
}

/// Thread that runs a reactor.
enum ReactorOwner {
    /// Its own thread.
    Thread(JoinHandle<()>),
    /// Thread of another reactor, whose guest it is.
    Host,
    /// Another handle's.
    Other,
}

/// Handle of a reactor: its thread, and the mailbox of its orders.
pub(super) struct ReactorHandle {
    pub(super) orders: MailboxSender<HostReactorOrder>,
    /// Numbers of its lanes over all reactors.
    pub(super) lanes: Vec<usize>,
    /// Numbers of its lanes over all paths.
    numbers: Vec<usize>,
    owner: ReactorOwner,
}

impl ReactorHandle {
    /// Returns a handle that only sends orders.
    pub(super) fn share(&self) -> ReactorHandle {
        let (orders, lanes) = (self.orders.clone(), self.lanes.clone());
        ReactorHandle { orders, lanes, numbers: Vec::new(), owner: ReactorOwner::Other }
    }

    /// Waits until its thread has ended, whose `ReactorEndReport` has reported a panic. Does not wait for a guest.
    pub(super) fn join(&mut self) {
        if let ReactorOwner::Thread(thread) =
            std::mem::replace(&mut self.owner, ReactorOwner::Other)
        {
            let _ = thread.join();
        }
    }
}

/// Ends the reactor, also if a controller does not start.
impl Drop for ReactorHandle {
    fn drop(&mut self) {
        if matches!(self.owner, ReactorOwner::Other) {
            return;
        }
        self.orders.send(HostReactorOrder::Stop);
        for &lane in &self.numbers {
            self.orders.send(HostReactorOrder::Fail { lane });
        }
        self.join();
    }
}

/// Meter of a reactor's waits, and its counters.
type ReactorMeters = (Arc<WaitMeter>, Arc<ReactorCounters>);

/// Starts a reactor: on a thread of its own, where it runs when this returns, or as a guest of `host`.
///
/// # Errors
/// The system has no resources left.
pub(super) fn spawn(
    config: &HostConfig,
    (affinity, host): (Affinity, Option<HostThread<'_>>),
    lanes: Vec<usize>,
    front: Box<dyn Front + Send>,
    reports: Vec<MailboxSender<HostReactorReport>>,
    reactors: usize,
    (counters, (meter, own)): (Arc<[LaneCounters]>, ReactorMeters),
) -> Result<ReactorHandle, HostControlError> {
    let system = |what| move |source| HostControlError::System { what, source };
    let (orders, inbox) = mailbox().map_err(system("mailbox"))?;
    let near = numa::scoped_memory_nodes(affinity.node.into_iter().collect());
    let of_ports = config.addresses().find(|address| address.ports() > 0);
    let address = of_ports.unwrap_or(&config.address);
    let unreachable = |source| HostControlError::Unreachable { address: address.clone(), source };
    let ports = Ports::of_reactor(config.addresses(), reactors).map_err(unreachable)?;
    drop(near);
    let parts = HostReactorParts {
        paths: config.addresses().count(),
        lanes: lanes.clone(),
        path_policy: config.path_policy,
        queue_entries: config.queue_entries,
        ring_entries: if host.is_some() { 1 } else { RING_ENTRIES },
        class: config.class,
        io_timeout: config.io_timeout,
        express: config.may_express(),
        waiting: config.waiting,
        slow_over: config.slow_over,
        meter,
        own,
        ports,
        inbox,
        reports: reports.clone(),
        counters,
    };
    let numbers = parts.numbers();
    let index = parts.lanes.first().copied().unwrap_or(0) % reactors;
    let end_report = ReactorEndReport { reports, index, failure: None };
    let owner = match host {
        Some((threads, number)) => {
            threads.give(number, guest(parts, front, end_report));
            ReactorOwner::Host
        }
        None => ReactorOwner::Thread(start_thread(affinity, parts, front, end_report)?),
    };
    Ok(ReactorHandle { orders, lanes, numbers, owner })
}

/// Threads that take guests, and the number of one.
pub(super) type HostThread<'a> = (&'a dyn GuestSpawner, usize);

/// Returns the constructor of a reactor as a guest.
fn guest(
    parts: HostReactorParts,
    front: Box<dyn Front + Send>,
    end_report: ReactorEndReport,
) -> GuestConstructor {
    Box::new(move || {
        let mut end_report = end_report;
        let reactor = HostReactor::new(parts).inspect_err(|error| {
            let index = end_report.index;
            end_report.failure = Some(format!("reactor {index} has failed: {error}"));
        })?;
        Ok(Box::new(HostGuest::with(reactor, front, None, Box::new(end_report))))
    })
}

/// Starts a reactor on a thread of its own; it runs when this returns.
fn start_thread(
    affinity: Affinity,
    parts: HostReactorParts,
    front: Box<dyn Front + Send>,
    end_report: ReactorEndReport,
) -> Result<JoinHandle<()>, HostControlError> {
    let system = |what| move |source| HostControlError::System { what, source };
    let core = affinity.cpus.single();
    let (begun, beginning) = sync_channel(1);
    let body = move || {
        tuning::set_exact_timers();
        numa::bind_thread(&affinity);
        let mut end_report = end_report;
        let index = end_report.index;
        match HostReactor::new(parts) {
            Ok(reactor) => {
                let _ = begun.send(Ok(()));
                let ended = HostReactorThread { reactor, front: Some(front) }.run();
                end_report.failure =
                    ended.err().map(|e| format!("reactor {index} has failed: {e}"));
            }
            Err(error) => {
                let _ = begun.send(Err(error));
            }
        }
    };
    let name = format!("roadtrain-{}", core.map_or("host".into(), |core| core.to_string()));
    let thread = thread::Builder::new().name(name).spawn(body).map_err(system("thread"))?;
    // No reply: its thread has panicked, and has reported that.
    let begun = beginning.recv().unwrap_or_else(|_| Err(io::Error::other("it has panicked")));
    begun.map_err(system("reactor"))?;
    Ok(thread)
}

/// Reactor and its front, which lives as long as drivers may use its memory.
struct HostReactorThread {
    reactor: HostReactor,
    front: Option<Box<dyn Front + Send>>,
}

impl HostReactorThread {
    fn run(mut self) -> io::Result<()> {
        self.front.as_mut().map_or(Ok(()), |front| self.reactor.run(&mut **front))
    }
}

impl Drop for HostReactorThread {
    fn drop(&mut self) {
        if self.reactor.has_commands() {
            warn!("a driver still has commands: their memory is not freed");
            #[expect(clippy::mem_forget, reason = "the driver still has the memory")]
            std::mem::forget(self.front.take());
        }
    }
}

/// Reports the end of a reactor's thread, also after a panic.
struct ReactorEndReport {
    reports: Vec<MailboxSender<HostReactorReport>>,
    index: usize,
    failure: Option<String>,
}

impl Drop for ReactorEndReport {
    fn drop(&mut self) {
        let panicked = || format!("reactor {} has panicked", self.index);
        let failure = self.failure.take().or_else(|| thread::panicking().then(panicked));
        for reports in &self.reports {
            reports.send(HostReactorReport::Ended(failure.clone()));
        }
    }
}

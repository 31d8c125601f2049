//! Control threads of a controller's paths: one per path, added and removed at run time.

use super::address::TargetAddress;
use super::config::HostConfig;
use super::control::{FirstAttempt, Leftover, PathContext, PathControl, sibling_constraints};
use super::counters::LinkState;
use super::error::HostControlError;
use super::reactor::{HostReactorOrder, HostReactorReport};
use super::stopping::{self, StopSignal};
use super::threads::ReactorHandle;
use super::view::HostControllerView;
use roadtrain_host_proto::discovered::{PathChanges, PresentPath};
use roadtrain_system::mailbox::{MailboxReceiver, MailboxSender};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use tracing::{info, warn};

/// All paths of a controller.
pub(super) struct PathSet {
    config: HostConfig,
    view: HostControllerView,
    reactors: Vec<ReactorHandle>,
    /// Mailboxes of the control threads, one per possible path.
    reports: Vec<MailboxSender<HostReactorReport>>,
    signal: Arc<StopSignal>,
    inner: Mutex<PathSetInner>,
}

struct PathSetInner {
    slots: Vec<PathSlot>,
    /// Addresses of other subsystems, kept until no discovery log has them any more.
    refused: BTreeSet<SocketAddr>,
    /// Kept paths that were reported.
    kept: BTreeSet<SocketAddr>,
    left_off: usize,
    stopping: bool,
}

/// Slot for a path.
struct PathSlot {
    address: Option<TargetAddress>,
    is_leaving: bool,
    /// Mailbox and ended reactors for the next control thread, while there is none.
    inbox: Option<(MailboxReceiver<HostReactorReport>, usize)>,
    thread: Option<JoinHandle<Leftover>>,
}

impl PathSet {
    /// Creates the set without paths, with a mailbox for each possible path.
    pub(super) fn new(
        config: HostConfig,
        view: HostControllerView,
        reactors: Vec<ReactorHandle>,
        mailboxes: Vec<(MailboxSender<HostReactorReport>, MailboxReceiver<HostReactorReport>)>,
        signal: Arc<StopSignal>,
    ) -> Self {
        let (reports, inboxes): (Vec<_>, Vec<_>) = mailboxes.into_iter().unzip();
        let slot = |inbox| {
            let inbox = Some((inbox, 0));
            PathSlot { address: None, is_leaving: false, inbox, thread: None }
        };
        let inner = PathSetInner {
            slots: inboxes.into_iter().map(slot).collect(),
            refused: BTreeSet::new(),
            kept: BTreeSet::new(),
            left_off: 0,
            stopping: false,
        };
        PathSet { config, view, reactors, reports, signal, inner: Mutex::new(inner) }
    }

    fn inner(&self) -> MutexGuard<'_, PathSetInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shares(&self) -> Vec<ReactorHandle> {
        self.reactors.iter().map(ReactorHandle::share).collect()
    }

    fn context(&self, path: usize, first_attempt: Option<FirstAttempt>) -> PathContext {
        let lanes = self.reactors.iter().map(|reactor| reactor.lanes.len()).sum();
        let ports_before = self.config.addresses().take(path).map(TargetAddress::ports).sum();
        PathContext { path, lanes, ports_before, peers: self.reports.clone(), first_attempt }
    }

    // ---- Start ----

    /// Starts the thread of a path whose admin queue is connected; `make` creates its control state.
    ///
    /// # Errors
    /// `make` fails, or the system has no resources left.
    pub(super) fn start_first(
        &self,
        path: usize,
        address: TargetAddress,
        make: impl FnOnce(
            PathContext,
            Vec<ReactorHandle>,
            (MailboxSender<HostReactorReport>, MailboxReceiver<HostReactorReport>),
        ) -> Result<PathControl, HostControlError>,
    ) -> Result<(), HostControlError> {
        let mut inner = self.inner();
        let Some((inbox, _)) = inner.slots[path].inbox.take() else { return Ok(()) };
        let mailbox = (self.reports[path].clone(), inbox);
        let control = make(self.context(path, None), self.shares(), mailbox)?;
        self.start(&mut inner.slots[path], address, control)
    }

    /// Starts the thread of a further path. The receiver gets the result of its first attempt.
    ///
    /// # Errors
    /// The system has no resources left.
    pub(super) fn start_sibling(
        &self,
        path: usize,
        address: TargetAddress,
    ) -> Result<Receiver<Result<(), HostControlError>>, HostControlError> {
        let (reply, outcome) = sync_channel(1);
        self.begin(&mut self.inner().slots[path], path, address, reply)?;
        Ok(outcome)
    }

    fn begin(
        &self,
        slot: &mut PathSlot,
        path: usize,
        address: TargetAddress,
        reply: SyncSender<Result<(), HostControlError>>,
    ) -> Result<(), HostControlError> {
        let Some((inbox, ended)) = slot.inbox.take() else { return Ok(()) };
        let first = sibling_constraints(&self.view);
        let reporter = self.view.address_of(self.view.namespace_reporter());
        let context = self.context(path, Some(FirstAttempt { reply, first, address: reporter }));
        let mailbox = (self.reports[path].clone(), inbox);
        let config = self.config.of_path(&address);
        let control =
            PathControl::for_sibling(config, context, self.view.clone(), self.shares(), mailbox);
        self.start(slot, address, control.after(ended))
    }

    fn start(
        &self,
        slot: &mut PathSlot,
        to: TargetAddress,
        control: PathControl,
    ) -> Result<(), HostControlError> {
        let (stop_signal, panic_guard) = (self.signal.clone(), control.panic_guard());
        let body = move || {
            let _panic_guard = panic_guard;
            stopping::limit_waits_by(&stop_signal);
            control.run()
        };
        let thread = thread::Builder::new().name("roadtrain-ctl".into()).spawn(body);
        let thread =
            thread.map_err(|source| HostControlError::System { what: "thread", source })?;
        (slot.address, slot.is_leaving, slot.thread) = (Some(to), false, Some(thread));
        Ok(())
    }

    // ---- Changes ----

    /// Changes the paths to those that are `wanted`, as far as possible now. False if changes are left.
    pub(super) fn follow(&self, wanted: &[SocketAddr]) -> bool {
        let mut inner = self.inner();
        if inner.stopping {
            return true;
        }
        inner.reap();
        inner.refused.retain(|address| wanted.contains(address));
        let of_use: Vec<SocketAddr> =
            wanted.iter().filter(|address| !inner.refused.contains(address)).copied().collect();
        let present: Vec<(usize, PresentPath)> = inner.present(&self.view).collect();
        let list: Vec<PresentPath> = present.iter().map(|(_, path)| *path).collect();
        let changes = PathChanges::new(&list, &of_use, self.config.paths_max());
        for (path, PresentPath { address, .. }) in present {
            if changes.remove.contains(&address) {
                self.remove(&mut inner, path);
            }
        }
        inner.log_changes(&changes);
        let mut is_done = changes.kept.is_empty() && !inner.slots.iter().any(|p| p.is_leaving);
        for address in &changes.add {
            is_done &= self.add(&mut inner, *address);
        }
        is_done
    }

    /// Starts to remove a path.
    fn remove(&self, inner: &mut PathSetInner, path: usize) {
        inner.slots[path].is_leaving = true;
        if self.view.namespace_reporter() == path
            && let Some((other, _)) = inner.present(&self.view).find(|(_, other)| other.is_live)
        {
            self.view.set_namespace_reporter(other);
        }
        self.reports[path].send(HostReactorReport::Leave);
    }

    /// Adds a path. False if that is not possible now.
    fn add(&self, inner: &mut PathSetInner, address: SocketAddr) -> bool {
        let free = |slot: &PathSlot| slot.address.is_none() && slot.inbox.is_some();
        let Some(path) = inner.slots.iter().position(free) else { return false };
        self.view.open_path(path, address.to_string());
        for reactor in &self.reactors {
            reactor.orders.send(HostReactorOrder::Open { path });
        }
        info!(target = %address, "a new path");
        let (reply, _) = sync_channel(1);
        match self.begin(&mut inner.slots[path], path, address.into(), reply) {
            Ok(()) => true,
            Err(error) => {
                warn!("no path to {address}: {error}");
                self.view.close_path(path);
                true
            }
        }
    }

    /// Runs a closure on the control thread of a path.
    #[cfg(feature = "testing")]
    pub(super) fn call(&self, path: usize, call: impl FnOnce() + Send + 'static) {
        self.reports[path].send(HostReactorReport::Call(Box::new(call)));
    }

    // ---- The end ----

    /// Requests all paths to end.
    pub(super) fn stop(&self) {
        self.inner().stopping = true;
        self.signal.raise();
        for reports in &self.reports {
            reports.send(HostReactorReport::Stop);
        }
    }

    /// True if every path has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.inner().slots.iter().all(|p| p.thread.as_ref().is_none_or(JoinHandle::is_finished))
    }

    /// Waits until every path has ended; none is added after that.
    pub(super) fn join(&self) {
        loop {
            let mut inner = self.inner();
            let threads = inner.slots.iter_mut().enumerate();
            let next = threads.filter_map(|(path, p)| Some((path, p.thread.take()?))).next();
            let Some((path, thread)) = next else {
                inner.stopping = true;
                return;
            };
            drop(inner);
            let ended = thread.join();
            self.inner().ended(path, ended);
        }
    }
}

impl PathSetInner {
    /// Returns the paths that are not being removed.
    fn present(&self, view: &HostControllerView) -> impl Iterator<Item = (usize, PresentPath)> {
        self.slots.iter().enumerate().filter_map(|(path, slot)| match slot.address {
            Some(TargetAddress::Tcp(address)) if !slot.is_leaving => {
                let is_live = view.link_of(path).state == LinkState::Connected;
                Some((path, PresentPath { address, is_live }))
            }
            _ => None,
        })
    }

    /// Joins the threads that have ended.
    fn reap(&mut self) {
        for path in 0..self.slots.len() {
            let thread = self.slots[path].thread.take_if(|thread| thread.is_finished());
            if let Some(thread) = thread {
                self.ended(path, thread.join());
            }
        }
    }

    fn ended(&mut self, path: usize, ended: thread::Result<Leftover>) {
        let slot = &mut self.slots[path];
        let address = slot.address.take();
        slot.is_leaving = false;
        match ended {
            Ok(Leftover { inbox, ended, is_refused }) => {
                slot.inbox = Some((inbox, ended));
                if let (true, Some(TargetAddress::Tcp(address))) = (is_refused, address) {
                    self.refused.insert(address);
                }
            }
            Err(_) => warn!("a control thread panicked"), // its slot is not used again
        }
    }

    /// Logs new reasons why paths cannot be changed.
    fn log_changes(&mut self, changes: &PathChanges) {
        for address in &changes.kept {
            if self.kept.insert(*address) {
                info!(target = %address, "no discovery log has this path any more; it stays until another one works");
            }
        }
        self.kept.retain(|address| changes.kept.contains(address));
        if changes.left_off > self.left_off {
            warn!("{} paths that were found are not used: there are too many", changes.left_off);
        }
        self.left_off = changes.left_off;
    }
}

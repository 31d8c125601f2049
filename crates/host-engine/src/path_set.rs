//! Control threads of a controller's paths: one per path, added and removed at run time.

use super::address::Address;
use super::config::HostConfig;
use super::control::{Control, Leftover, Seat, Welcome, of_first};
use super::counters::LinkState;
use super::error::HostError;
use super::reactor::{Order, Report};
use super::stopping::{self, StopSignal};
use super::threads::ReactorHandle;
use super::view::ControllerView;
use roadtrain_host_proto::discovered::{Changes, Present};
use roadtrain_system::mailbox::{Inbox, Outbox};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use tracing::{info, warn};

/// All paths of a controller.
pub(super) struct PathSet {
    config: HostConfig,
    view: ControllerView,
    reactors: Vec<ReactorHandle>,
    /// Mailboxes of the control threads, one per possible path.
    reports: Vec<Outbox<Report>>,
    sign: Arc<StopSignal>,
    inner: Mutex<Inner>,
}

struct Inner {
    places: Vec<Place>,
    /// Addresses of other subsystems, kept until no discovery log has them any more.
    refused: BTreeSet<SocketAddr>,
    /// Kept paths that were reported.
    kept: BTreeSet<SocketAddr>,
    left_off: usize,
    stopping: bool,
}

/// Slot for a path.
struct Place {
    address: Option<Address>,
    is_leaving: bool,
    /// Mailbox and ended reactors for the next control thread, while there is none.
    inbox: Option<(Inbox<Report>, usize)>,
    thread: Option<JoinHandle<Leftover>>,
}

impl PathSet {
    /// Creates the set without paths, with a mailbox for each possible path.
    pub(super) fn new(
        config: HostConfig,
        view: ControllerView,
        reactors: Vec<ReactorHandle>,
        mailboxes: Vec<(Outbox<Report>, Inbox<Report>)>,
        sign: Arc<StopSignal>,
    ) -> Self {
        let (reports, inboxes): (Vec<_>, Vec<_>) = mailboxes.into_iter().unzip();
        let place = |inbox| {
            let inbox = Some((inbox, 0));
            Place { address: None, is_leaving: false, inbox, thread: None }
        };
        let inner = Inner {
            places: inboxes.into_iter().map(place).collect(),
            refused: BTreeSet::new(),
            kept: BTreeSet::new(),
            left_off: 0,
            stopping: false,
        };
        PathSet { config, view, reactors, reports, sign, inner: Mutex::new(inner) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shares(&self) -> Vec<ReactorHandle> {
        self.reactors.iter().map(ReactorHandle::share).collect()
    }

    fn seat(&self, path: usize, welcome: Option<Welcome>) -> Seat {
        let lanes = self.reactors.iter().map(|reactor| reactor.lanes.len()).sum();
        let ports_before = self.config.addresses().take(path).map(Address::ports).sum();
        Seat { path, lanes, ports_before, peers: self.reports.clone(), welcome }
    }

    // ---- Start ----

    /// Starts the thread of a path whose admin queue is connected; `make` creates its control state.
    ///
    /// # Errors
    /// `make` fails, or the system has no resources left.
    pub(super) fn start_first(
        &self,
        path: usize,
        address: Address,
        make: impl FnOnce(
            Seat,
            Vec<ReactorHandle>,
            (Outbox<Report>, Inbox<Report>),
        ) -> Result<Control, HostError>,
    ) -> Result<(), HostError> {
        let mut inner = self.inner();
        let Some((inbox, _)) = inner.places[path].inbox.take() else { return Ok(()) };
        let mailbox = (self.reports[path].clone(), inbox);
        let control = make(self.seat(path, None), self.shares(), mailbox)?;
        self.start(&mut inner.places[path], address, control)
    }

    /// Starts the thread of a further path. The receiver gets the result of its first attempt.
    ///
    /// # Errors
    /// The system has no resources left.
    pub(super) fn start_beside(
        &self,
        path: usize,
        address: Address,
    ) -> Result<Receiver<Result<(), HostError>>, HostError> {
        let (told, outcome) = sync_channel(1);
        self.begin(&mut self.inner().places[path], path, address, told)?;
        Ok(outcome)
    }

    fn begin(
        &self,
        place: &mut Place,
        path: usize,
        address: Address,
        told: SyncSender<Result<(), HostError>>,
    ) -> Result<(), HostError> {
        let Some((inbox, ended)) = place.inbox.take() else { return Ok(()) };
        let first = of_first(&self.view);
        let beside = self.view.address_of(self.view.teller());
        let seat = self.seat(path, Some(Welcome { told, first, address: beside }));
        let mailbox = (self.reports[path].clone(), inbox);
        let config = self.config.of_path(&address);
        let control = Control::beside(config, seat, self.view.clone(), self.shares(), mailbox);
        self.start(place, address, control.after(ended))
    }

    fn start(&self, place: &mut Place, to: Address, control: Control) -> Result<(), HostError> {
        let (heeded, alarm) = (self.sign.clone(), control.alarm());
        let body = move || {
            let _alarm = alarm;
            stopping::heed(&heeded);
            control.run()
        };
        let thread = thread::Builder::new().name("roadtrain-ctl".into()).spawn(body);
        let thread = thread.map_err(|source| HostError::System { what: "thread", source })?;
        (place.address, place.is_leaving, place.thread) = (Some(to), false, Some(thread));
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
        let present: Vec<(usize, Present)> = inner.present(&self.view).collect();
        let list: Vec<Present> = present.iter().map(|(_, path)| *path).collect();
        let changes = Changes::new(&list, &of_use, self.config.paths_max());
        for (path, Present { address, .. }) in present {
            if changes.remove.contains(&address) {
                self.remove(&mut inner, path);
            }
        }
        inner.tell(&changes);
        let mut is_done = changes.kept.is_empty() && !inner.places.iter().any(|p| p.is_leaving);
        for address in &changes.add {
            is_done &= self.add(&mut inner, *address);
        }
        is_done
    }

    /// Starts to remove a path.
    fn remove(&self, inner: &mut Inner, path: usize) {
        inner.places[path].is_leaving = true;
        if self.view.teller() == path
            && let Some((other, _)) = inner.present(&self.view).find(|(_, other)| other.is_live)
        {
            self.view.set_teller(other);
        }
        self.reports[path].send(Report::Leave);
    }

    /// Adds a path. False if that is not possible now.
    fn add(&self, inner: &mut Inner, address: SocketAddr) -> bool {
        let free = |place: &Place| place.address.is_none() && place.inbox.is_some();
        let Some(path) = inner.places.iter().position(free) else { return false };
        self.view.open_path(path, address.to_string());
        for reactor in &self.reactors {
            reactor.orders.send(Order::Open { path });
        }
        info!(target = %address, "a new path");
        let (told, _) = sync_channel(1);
        match self.begin(&mut inner.places[path], path, address.into(), told) {
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
        self.reports[path].send(Report::Call(Box::new(call)));
    }

    // ---- The end ----

    /// Requests all paths to end.
    pub(super) fn stop(&self) {
        self.inner().stopping = true;
        self.sign.raise();
        for reports in &self.reports {
            reports.send(Report::Stop);
        }
    }

    /// True if every path has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.inner().places.iter().all(|p| p.thread.as_ref().is_none_or(JoinHandle::is_finished))
    }

    /// Waits until every path has ended; none is added after that.
    pub(super) fn join(&self) {
        loop {
            let mut inner = self.inner();
            let threads = inner.places.iter_mut().enumerate();
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

impl Inner {
    /// Returns the paths that are not being removed.
    fn present(&self, view: &ControllerView) -> impl Iterator<Item = (usize, Present)> {
        self.places.iter().enumerate().filter_map(|(path, place)| match place.address {
            Some(Address::Tcp(address)) if !place.is_leaving => {
                let is_live = view.link_of(path).state == LinkState::Connected;
                Some((path, Present { address, is_live }))
            }
            _ => None,
        })
    }

    /// Joins the threads that have ended.
    fn reap(&mut self) {
        for path in 0..self.places.len() {
            let thread = self.places[path].thread.take_if(|thread| thread.is_finished());
            if let Some(thread) = thread {
                self.ended(path, thread.join());
            }
        }
    }

    fn ended(&mut self, path: usize, ended: thread::Result<Leftover>) {
        let place = &mut self.places[path];
        let address = place.address.take();
        place.is_leaving = false;
        match ended {
            Ok(Leftover { inbox, ended, is_refused }) => {
                place.inbox = Some((inbox, ended));
                if let (true, Some(Address::Tcp(address))) = (is_refused, address) {
                    self.refused.insert(address);
                }
            }
            Err(_) => warn!("a control thread panicked"), // its slot is not used again
        }
    }

    /// Logs new reasons why paths cannot be changed.
    fn tell(&mut self, changes: &Changes) {
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

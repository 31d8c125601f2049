//! The control plane as the reactors see it: one lock, taken for Connect, admin and fabrics commands only.

mod driver;
mod expiry;
mod lanes;
mod reservations;
mod standby;
#[cfg(test)]
pub(super) use standby::poll_custody;

use super::export::{Export, Subsystem};
use super::flushes::Unflushed;
use super::handshakes::SharedPsks;
use super::listeners::{self, ListenSocket, Opened};
use super::meters::Meters;
use super::namespace::{LocalNamespace, NamespaceTable};
use super::open_store::OpenStore;
use super::order::Order;
use super::powers::Powers;
use super::rates::HostLimits;
use super::reserving::Saver;
use super::stores::{Open, Stores};
use super::tasks::Owner;
use roadtrain_proto::security::dhchap::Work;
use roadtrain_proto::security::{GeneratedPsks, TlsHosts};
use roadtrain_system::mailbox::Outbox;
use roadtrain_system::platform;
use roadtrain_target_proto::presence::Presences;
use roadtrain_target_proto::reservations::Pending;
use roadtrain_target_proto::{
    ConfigError, Connected, ControllerView, Description, Limits, Listener, Operation, Target,
    TargetConfig, TargetEvent,
};
use roadtrain_wire::fabrics::DISCOVERY_NQN;
use roadtrain_wire::status::Status;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;
use tracing::{info, warn};

/// No time at all.
const NEVER: u64 = u64::MAX;

pub(super) struct State {
    pub(super) target: Target,
    pub(super) stores: Stores,
    presences: Presences<RawFd>,
    /// Commands about reservations: the reactor that has each, and its owner there.
    pending: Pending<(usize, Owner)>,
    host_limits: HostLimits,
}

/// Shared by all reactors.
pub(super) struct Control {
    state: Mutex<State>,
    /// What is exported, as it was asked for. Changes take turns.
    exports: Mutex<TargetConfig<Export>>,
    /// Stores that may have another size, for the thread that looks.
    resized: Sender<Weak<OpenStore>>,
    /// Computes what authentications need; not there before the first one.
    powers: Mutex<Option<Powers>>,
    /// Saves reservations; not there before the first one that persists.
    saver: Mutex<Option<Saver>>,
    /// Whether a thread looks after namespaces that stand by.
    standby: Mutex<bool>,
    /// Itself, for threads that it starts.
    weak: Weak<Control>,
    /// What hosts have made by authenticating, to come again with TLS.
    psks: SharedPsks,
    /// What a host has for an authentication that it begins again, what is computed for it not counted.
    authentication_time: Duration,
    reactors: OnceLock<Vec<Outbox<Order>>>,
    /// Who counts what.
    pub(super) meters: Arc<Meters>,
    /// When the first keep-alive timer runs out.
    timer: AtomicU64,
    /// Until when the reactor that looks after them sleeps. It asks before each sleep, so neither has a lock.
    watched: AtomicU64,
}

impl Control {
    /// Starts a thread, too, which looks at stores whose size others may have changed. It ends with this.
    pub(super) fn new(
        mut target: Target,
        stores: Stores,
        exports: TargetConfig<Export>,
        authentication_time: Duration,
        meters: Arc<Meters>,
    ) -> io::Result<Arc<Self>> {
        let (resized, inbox) = channel::<Weak<OpenStore>>();
        reservations::restore(&mut target, &stores);
        let (presences, pending) = (Presences::default(), Pending::default());
        let mut host_limits = HostLimits::default();
        host_limits.follow(target.config());
        let control = Arc::new_cyclic(|weak| Control {
            state: Mutex::new(State { target, stores, presences, pending, host_limits }),
            exports: Mutex::new(exports),
            resized,
            powers: Mutex::new(None),
            saver: Mutex::new(None),
            standby: Mutex::new(false),
            weak: weak.clone(),
            psks: SharedPsks::default(),
            authentication_time,
            reactors: OnceLock::new(),
            meters,
            timer: AtomicU64::new(NEVER),
            watched: AtomicU64::new(NEVER),
        });
        let weak = Arc::downgrade(&control);
        let check = move || {
            while let Ok(store) = inbox.recv() {
                let (Some(control), Some(store)) = (weak.upgrade(), store.upgrade()) else {
                    continue;
                };
                if let Err(error) = control.check_size(&store) {
                    warn!("a store has another size, which hosts are not told: {error}");
                }
            }
        };
        thread::Builder::new().name("roadtrain-resize".into()).spawn(check)?;
        control.watch_sizes();
        control.watch_standby();
        Ok(control)
    }

    /// Watches the sizes of stores that are new.
    fn watch_sizes(&self) {
        let stores = self.lock().stores.clone();
        for (_, _, store) in stores.all() {
            store.watch_size(|| {
                let (resized, store) = (self.resized.clone(), Arc::downgrade(store));
                Arc::new(move || drop(resized.send(store.clone())))
            });
        }
    }

    /// Gives the namespaces of a store the size that it has by now.
    fn check_size(&self, store: &Arc<OpenStore>) -> Result<(), ConfigError> {
        let stores = self.lock().stores.clone();
        let size = |open: &Open| {
            let store = store.store();
            let plan = store.plan(open.export.bytes()).ok()?;
            Some(plan.planned(store.geometry()).blocks)
        };
        let differs =
            |open: &Open| Arc::ptr_eq(&open.store, store) && size(open) != Some(open.config.blocks);
        let is_it = |nqn: &str, nsid| stores.get(nqn, nsid).is_some_and(differs);
        if !stores.all().any(|(nqn, nsid, _)| is_it(nqn, nsid)) {
            return Ok(());
        }
        self.change(is_it, |exports| Ok(exports.clone())).map(drop)
    }

    /// Whom events are sent to; once, before the first connection.
    pub(super) fn set_reactors(&self, reactors: Vec<Outbox<Order>>) {
        let _ = self.reactors.set(reactors);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock as a test holds it, to see who needs it.
    #[cfg(test)]
    pub(super) fn hold(&self) -> impl Drop + '_ {
        struct Held<'a>(#[allow(dead_code, reason = "held")] MutexGuard<'a, State>);
        impl Drop for Held<'_> {
            fn drop(&mut self) {}
        }
        Held(self.lock())
    }

    pub(super) fn broadcast(&self, order: impl Fn() -> Order) {
        for reactor in self.reactors.get().into_iter().flatten() {
            reactor.send(order());
        }
    }

    /// Sends orders that come before or after any event, or host's return, at all reactors alike.
    pub(super) fn in_order(&self, send: impl FnOnce()) {
        let _state = self.lock();
        send();
    }

    /// Sends the reactors what came of a call.
    pub(super) fn publish(&self, mut state: MutexGuard<'_, State>) {
        while let Some(event) = self.next_event(&mut state) {
            self.broadcast(|| Order::Event(event.clone()));
        }
        self.wake_watcher(&state);
    }

    /// Wakes the reactor that looks after keep-alive timers and PSKs when one of them runs out before it would look.
    fn wake_watcher(&self, state: &State) {
        let due = [state.target.poll_timeout(), self.lock_psks().deadline()];
        let next = due.into_iter().flatten().min().map_or(NEVER, |next| next.0);
        self.timer.store(next, SeqCst);
        // Either this sees that it sleeps for longer, or it sees the new time before it sleeps.
        if next < self.watched.load(SeqCst)
            && let Some(watcher) = self.reactors.get().and_then(|reactors| reactors.first())
        {
            watcher.wake();
        }
    }

    fn lock_psks(&self) -> MutexGuard<'_, GeneratedPsks> {
        self.psks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What hosts have made by authenticating, for who looks it up.
    pub(super) fn psks(&self) -> SharedPsks {
        self.psks.clone()
    }

    /// Has powers computed, by a thread that is there from the first authentication on.
    fn compute(&self, peer: &str, work: Work) -> io::Result<()> {
        let mut powers = self.powers.lock().unwrap_or_else(PoisonError::into_inner);
        if powers.is_none() {
            let reactors: Vec<_> = self.reactors.get().into_iter().flatten().cloned().collect();
            // Commands that wait for it are tried again.
            let done = move || {
                for reactor in &reactors {
                    reactor.send(Order::Settled);
                }
            };
            *powers = Some(Powers::start(done)?);
        }
        let Some(powers) = &*powers else { return Ok(()) };
        powers.compute(peer.into(), work).map_err(io::Error::other)
    }

    /// No authentication waits for powers.
    #[cfg(test)]
    pub(super) fn is_power_idle(&self) -> bool {
        let powers = self.powers.lock().unwrap_or_else(PoisonError::into_inner);
        powers.as_ref().is_none_or(Powers::is_idle)
    }

    /// Computations of powers that have begun.
    #[cfg(test)]
    pub(super) fn powers_begun(&self) -> u64 {
        let powers = self.powers.lock().unwrap_or_else(PoisonError::into_inner);
        powers.as_ref().map_or(0, Powers::begun)
    }

    /// What controllers are granted.
    pub(super) fn limits(&self) -> Limits {
        *self.lock().target.limits()
    }

    /// NQNs of the subsystems.
    pub(super) fn nqns(&self) -> Vec<String> {
        let state = self.lock();
        let subsystems = state.target.config().subsystems.iter();
        subsystems.map(|subsystem| subsystem.nqn.clone()).collect()
    }

    /// What is wrong with what is exported.
    pub(super) fn problems(&self) -> Vec<String> {
        let state = self.lock();
        let unfit = |(nqn, nsid, store): (&str, u32, &Arc<OpenStore>)| {
            let failed = store.flushes().is_some_and(|flushes| flushes.last_has_failed());
            failed.then(|| {
                format!(
                    "namespace {nsid} of {nqn}: a flush has failed: what was written may be lost"
                )
            })
        };
        state.stores.all().filter_map(unfit).collect()
    }

    /// The subsystems' serial numbers, by NQN.
    pub(super) fn serials(&self) -> BTreeMap<String, String> {
        let state = self.lock();
        state.target.serials().map(|(nqn, serial)| (nqn.to_owned(), serial.to_owned())).collect()
    }

    /// Whether hosts can connect to that subsystem.
    pub(super) fn serves(&self, nqn: &str) -> bool {
        nqn == DISCOVERY_NQN || self.lock().target.config().subsystems.iter().any(|s| s.nqn == nqn)
    }

    /// The store of a namespace that a controller's command names.
    ///
    /// # Errors
    /// The status to answer with: it is not in reach.
    pub(super) fn store_of(
        &self,
        connected: &Connected,
        nsid: u32,
    ) -> Result<Arc<OpenStore>, Status> {
        let state = self.lock();
        let table = state.target.namespaces_for(&connected.subnqn, connected.cntlid);
        if let Some(status) = table.and_then(|table| table.refusal(nsid)) {
            return Err(status);
        }
        let open = state.stores.get(&connected.subnqn, nsid);
        open.map(|open| open.store.clone()).ok_or(Status::INVALID_NAMESPACE.dnr())
    }

    /// The namespaces of a lane's subsystem.
    pub(super) fn table(&self, association: Option<&Connected>) -> NamespaceTable {
        let Some(connected) = association.filter(|connected| connected.qid > 0) else {
            return NamespaceTable::default();
        };
        let user = Arc::new(connected.user());
        let mut state = self.lock();
        let State { target, stores, host_limits, .. } = &mut *state;
        let host_limit = host_limits.get(&connected.subnqn, &connected.hostnqn);
        let table = target.namespaces_for(&connected.subnqn, connected.cntlid);
        let Some(table) = table else { return NamespaceTable::default() };
        let in_reach = table.iter().filter(|(nsid, _)| table.refusal(*nsid).is_none());
        let local = in_reach.filter_map(|(nsid, geometry)| {
            let open = stores.get(&connected.subnqn, nsid)?;
            let access = target.access(&connected.subnqn, nsid, connected.hostid)?;
            let (geometry, store, class) = (*geometry, open.store.clone(), open.export.class);
            let in_place = store.store().in_place();
            let unflushed = store.flushes().map(|flushes| Unflushed::new(flushes, &user));
            let cells = self.meters.namespace(&connected.subnqn, nsid);
            let own_limit = open.export.rates.is_limited().then(|| open.limit.clone());
            let limits = [own_limit, host_limit.clone()];
            let local = LocalNamespace {
                geometry,
                store,
                in_place,
                is_cold: platform::outgrows_caches(geometry.blocks << geometry.lba_shift),
                unflushed,
                class,
                access,
                cells,
                limits,
            };
            Some((nsid, local))
        });
        NamespaceTable::new(table.clone(), local)
    }

    /// The stores of a controller's subsystem that are served here.
    pub(super) fn stores(&self, connected: &Connected) -> Vec<Arc<OpenStore>> {
        let state = self.lock();
        let table = state.target.namespaces(&connected.subnqn);
        let nsids = table.iter().flat_map(|table| table.iter().map(|(nsid, _)| nsid));
        let open = nsids.filter_map(|nsid| state.stores.get(&connected.subnqn, nsid));
        let here = open.filter(|open| !open.is_out_of_reach());
        here.map(|open| open.store.clone()).collect()
    }

    /// Brings every store to stable storage, when nobody writes any more: what failed, by subsystem and
    /// namespace.
    pub(super) fn close(&self) -> Vec<(String, u32, io::Error)> {
        let saver = self.saver.lock().unwrap_or_else(PoisonError::into_inner).take();
        saver.into_iter().for_each(Saver::finish);
        let stores = self.lock().stores.clone();
        let closed = stores.all().map(|(nqn, nsid, store)| (nqn, nsid, store.close()));
        closed
            .filter_map(|(nqn, nsid, result)| Some((nqn.to_owned(), nsid, result.err()?)))
            .collect()
    }

    /// What is exported, as it was asked for.
    pub(super) fn exports(&self) -> TargetConfig<Export> {
        self.lock_exports().clone()
    }

    /// The same; nothing changes as long as they are locked.
    pub(super) fn lock_exports(&self) -> MutexGuard<'_, TargetConfig<Export>> {
        self.exports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What hosts see of it, and the controllers that there are.
    pub(super) fn view(&self) -> (TargetConfig, Vec<ControllerView>) {
        let state = self.lock();
        (state.target.config().clone(), state.target.controllers().collect())
    }

    /// Makes the exports what `next` makes of them, as a whole or not at all. Files and devices of namespaces that are
    /// `looked` at are looked at again.
    pub(super) fn change(
        &self,
        looked: impl Fn(&str, u32) -> bool,
        next: impl FnOnce(&TargetConfig<Export>) -> Result<TargetConfig<Export>, ConfigError>,
    ) -> Result<Vec<Operation>, ConfigError> {
        let mut exports = self.lock_exports();
        let next = next(&exports)?;
        next.check()?;
        let changes = self.switch(&exports, &next, looked)?;
        *exports = next;
        Ok(changes)
    }

    /// The hosts that have keys for TLS: those that have none any more end.
    pub(super) fn set_tls_hosts(&self, hosts: TlsHosts) {
        let mut state = self.lock();
        state.target.set_tls_hosts(hosts);
        self.publish(state);
    }

    /// Hands sockets to the reactor that listens.
    pub(super) fn listen(&self, sockets: Vec<ListenSocket>) {
        let listens = self.reactors.get().and_then(|reactors| reactors.first());
        for (reactor, socket) in listens.into_iter().cycle().zip(sockets) {
            reactor.send(Order::Listen(socket));
        }
    }

    /// The addresses of its listeners.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.lock().target.config().listeners.iter().map(|listener| listener.address).collect()
    }

    /// Reactors go on meanwhile: everything is opened and checked before the lock is taken.
    fn switch(
        &self,
        old: &TargetConfig<Export>,
        next: &TargetConfig<Export>,
        looked: impl Fn(&str, u32) -> bool,
    ) -> Result<Vec<Operation>, ConfigError> {
        let (open, config) = {
            let state = self.lock();
            (state.stores.clone(), state.target.config().clone())
        };
        let mut prepared = open.prepare(&next.subsystems, looked)?;
        let before = (&old.listeners[..], &config.listeners[..]);
        let Opened { listeners, sockets } = listeners::open(&next.listeners, before, &[])?;
        let wanted = prepared.config(next, listeners);
        let mut changes = config.operations_to(&wanted);
        config.with(&changes)?;
        prepared.stage()?;
        let mut state = self.lock();
        prepared.check_moved(&state.target)?;
        // Checked, so it does not fail, and has not changed anything if it does.
        state.target.apply(&changes)?;
        reservations::restore(&mut state.target, &prepared.stores());
        // Who has another key now makes another PSK with it.
        let authentication = &state.target.config().authentication;
        let is_same = |host: &str| config.authentication.has_same_keys(authentication, host);
        self.lock_psks().retain(is_same);
        let switched = prepared.switch(&mut state.stores);
        let stores = &state.stores;
        self.meters.retain(|nqn, nsid| stores.get(nqn, nsid).is_some());
        let reclassed = state.stores.reclassed(&open).map(|(nqn, open)| {
            let (nqn, namespace) = (nqn.to_owned(), open.config.clone());
            Operation::ReplaceNamespace { nqn, namespace }
        });
        let reclassed: Vec<_> = reclassed.collect();
        state.host_limits.follow(&wanted);
        let relimited = state.stores.relimited(&open).map(|(nqn, open)| {
            let (nsid, rates) = (open.export.nsid, open.export.rates);
            Operation::LimitNamespace { nqn: nqn.to_owned(), nsid, rates }
        });
        let relimited: Vec<_> = relimited.collect();
        self.publish(state);
        changes.extend(reclassed);
        changes.extend(relimited);
        for change in &changes {
            info!("{change}");
            match change {
                Operation::Unlisten(Listener { address, .. }) => {
                    self.broadcast(|| Order::Unlisten(*address));
                }
                Operation::SetTls(Listener { address, tls, .. }) => {
                    self.broadcast(|| Order::SetTls(*address, *tls));
                }
                _ => {}
            }
        }
        self.listen(sockets);
        // Another class may look the same to hosts, which are told nothing then; lanes have to know.
        for Subsystem { nqn, .. } in &next.subsystems {
            let changed = TargetEvent::NamespacesChanged { nqn: nqn.as_str().into() };
            self.broadcast(|| Order::Event(changed.clone()));
        }
        drop(switched);
        self.watch_sizes();
        self.watch_standby();
        Ok(changes)
    }
}

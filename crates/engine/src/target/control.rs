//! The control plane as the reactors see it: one lock, taken for Connect, admin and fabrics commands only.

mod admission;
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
use super::reserving::{Reserving, Saver};
use super::stores::{Open, Stores};
use crate::mailbox::Outbox;
use crate::platform;
use crate::stream::any_hung_up;
use roadtrain_proto::security::dhchap::Work;
use roadtrain_proto::security::{GeneratedPsk, GeneratedPsks, TlsHosts};
use roadtrain_proto::time::Instant;
use roadtrain_system::random;
use roadtrain_target_proto::presence::{Presences, Verdict};
use roadtrain_target_proto::session::{Request, Session, State as Stage};
use roadtrain_target_proto::{
    Asked, ConfigError, ConnectRefused, Connected, ControllerView, Description, Limits, Listener,
    LookUp, Operation, Outcome, Reaction, Target, TargetConfig, TargetEvent, host_name,
};
use roadtrain_wire::fabrics::DISCOVERY_NQN;
use roadtrain_wire::sqe::Sqe;
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

/// Random octets of an authentication: exponent, challenge and sequence number.
const RANDOM_BYTES: usize = 64 + 64 + 4;
/// No time at all.
const NEVER: u64 = u64::MAX;

pub(super) struct State {
    pub(super) target: Target,
    pub(super) stores: Stores,
    presences: Presences<RawFd>,
    reserving: Reserving,
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

/// Where a command came in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port<'a> {
    /// Who is at the other end, for logs.
    pub(super) peer: &'a str,
    /// Our address of the connection.
    pub(super) local: SocketAddr,
    /// The connection's, if it has one of its own.
    pub(super) socket: Option<RawFd>,
    /// When the command came in: a Connect that was postponed is older than others.
    pub(super) since: Instant,
}

/// What a lane is to do after an admin or fabrics command.
#[derive(Default)]
pub(super) struct Answer {
    /// Its completion; `None` for an asynchronous event request.
    pub(super) completion: Option<(Status, u64)>,
    /// A store is to be looked at, which answers the command.
    pub(super) wanted: Option<LookUp>,
    /// A queue was connected.
    pub(super) connected: bool,
    /// Its host was granted it.
    pub(super) granted: bool,
    /// A Connect that is to be tried again at [`Order::Settled`].
    pub(super) postponed: bool,
    /// The connection ends after the answer.
    pub(super) ends: bool,
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
        let (presences, reserving) = (Presences::default(), Reserving::default());
        let mut host_limits = HostLimits::default();
        host_limits.follow(target.config());
        let control = Arc::new_cyclic(|weak| Control {
            state: Mutex::new(State { target, stores, presences, reserving, host_limits }),
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

    /// An admin or fabrics command, if the connection's state admits it. Data for the host goes to `page`.
    pub(super) fn command(
        &self,
        now: Instant,
        session: &mut Session,
        port: Port<'_>,
        sqe: &Sqe,
        data: &[u8],
        page: &mut Vec<u8>,
    ) -> Answer {
        let request = session.request(sqe);
        if let Err(status) = session.admits(request) {
            let (opcode, state) = (format!("{:#04x}", sqe.opcode), session.state());
            info!(peer = port.peer, field = "opcode", value = opcode, %status, "refused while {state:?}");
            return Answer { completion: Some((status, 0)), ..Answer::default() };
        }
        let Some(connected) = session.claim().or(session.queue()) else {
            return self.connect(now, session, port, sqe, data);
        };
        if request == Request::Authentication && connected.asked.is_some() {
            return self.authenticate(now, session, port, sqe, data, page);
        }
        let (cntlid, qid) = (connected.cntlid, connected.qid);
        let mut state = self.lock();
        let outcome = match qid {
            0 => state.target.admin_command(now, cntlid, sqe, data, page),
            _ => state.target.fabrics_command(now, cntlid, qid, sqe),
        };
        self.publish(state);
        match outcome {
            Outcome::Complete { status, result } => {
                Answer { completion: Some((status, result)), ..Answer::default() }
            }
            Outcome::Pending => Answer::default(),
            Outcome::LookUp(wanted) => Answer { wanted: Some(wanted), ..Answer::default() },
            Outcome::Disconnected => {
                session.disconnected();
                Answer { completion: Some((Status::SUCCESS, 0)), ends: true, ..Answer::default() }
            }
        }
    }

    /// A command of the authentication that the host was asked for.
    fn authenticate(
        &self,
        now: Instant,
        session: &mut Session,
        port: Port<'_>,
        sqe: &Sqe,
        data: &[u8],
        page: &mut Vec<u8>,
    ) -> Answer {
        let connected = session.claim().or(session.queue()).cloned();
        let Some(connected) = connected else { return Answer::default() };
        let was_live = session.state() == Stage::Live;
        // A host that begins again is asked for what holds by now.
        let asked = if was_live { self.lock().target.asked(&connected) } else { None };
        let failed = |error: io::Error| {
            warn!(peer = port.peer, "cannot authenticate: {error}");
            let completion = Some((Status::INTERNAL_ERROR, 0));
            Answer { completion, ends: true, ..Answer::default() }
        };
        let secret = match random::secret(RANDOM_BYTES) {
            Ok(secret) => secret,
            Err(error) => return failed(error),
        };
        let mut unused = secret.reveal();
        let mut random = |place: &mut [u8]| {
            let (taken, rest) = unused.split_at(place.len());
            place.copy_from_slice(taken);
            unused = rest;
        };
        let Some(authenticator) = session.authenticator() else { return Answer::default() };
        asked.into_iter().for_each(|asked| authenticator.renew(asked));
        let reaction = authenticator.command(sqe, data, page, &mut random);
        let failure = authenticator.take_failure();
        let (hash, group) = authenticator.agreed();
        let agreed = format!("{hash}, {group}");
        let psk = authenticator.take_psk();
        if let Some((explanation, field)) = failure {
            let (host, why) = (host_name(&connected.hostnqn), explanation.text());
            warn!(peer = port.peer, host, subsystem = %connected.subnqn, qid = connected.qid, field, "not authenticated: {why}");
        }
        let has_failed = session.authenticates(now, self.authentication_time);
        if was_live && session.state() == Stage::Live && session.has_proved() {
            self.meters.authenticated(&connected, (hash, group));
        }
        if !was_live && session.state() == Stage::Live {
            let host = host_name(&connected.hostnqn);
            info!(peer = port.peer, host, qid = connected.qid, by = agreed, "authenticated");
        }
        let granted = self.grant(now, session, port);
        let ends = has_failed || granted.is_err();
        let granted = granted == Ok(true);
        if let Some(psk) = psk {
            let host = host_name(&connected.hostnqn);
            info!(peer = port.peer, host, subsystem = %connected.subnqn, by = agreed, "authenticated, to come again with TLS");
            self.keep(now, &connected, &psk);
        }
        match reaction {
            Reaction::Answer(status) => {
                Answer { completion: Some((status, 0)), granted, ends, ..Answer::default() }
            }
            Reaction::Wait => Answer { postponed: true, ..Answer::default() },
            Reaction::Compute(work) => match self.compute(port.peer, work) {
                Ok(()) => Answer { postponed: true, ..Answer::default() },
                Err(error) => failed(error),
            },
        }
    }

    /// A host may come again with that PSK, unless its key has changed since it was asked for it.
    fn keep(&self, now: Instant, connected: &Connected, psk: &GeneratedPsk) {
        let state = self.lock();
        let keys = |asked: Option<Asked>| asked.map(|asked| (asked.parties, asked.former));
        if keys(state.target.asked(connected)) == keys(connected.asked.clone()) {
            let names = (&*connected.hostnqn, &*connected.subnqn);
            self.lock_psks().keep(now, names, psk);
            self.wake_watcher(&state);
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

    fn connect(
        &self,
        now: Instant,
        session: &mut Session,
        port: Port<'_>,
        sqe: &Sqe,
        data: &[u8],
    ) -> Answer {
        if let Err(error) = session.admits_names(data) {
            return self.refused(port, data, &error);
        }
        let Ok(random) = random::number() else {
            return Answer { completion: Some((Status::INTERNAL_ERROR, 0)), ..Answer::default() };
        };
        let mut state = self.lock();
        let State { target, presences, .. } = &mut *state;
        let has_ended_lost = |cntlid| target.has_ended_lost(cntlid);
        match presences.admit(now, sqe, data, port.since, any_hung_up, has_ended_lost) {
            Verdict::Go => {}
            Verdict::Sweep(hostnqn, lost) => {
                lost.into_iter().for_each(|cntlid| state.target.end_queues(cntlid));
                self.broadcast(|| Order::Sweep(hostnqn.into()));
                self.publish(state);
                return Answer { postponed: true, ..Answer::default() };
            }
            Verdict::Ask(hostnqn) => {
                self.broadcast(|| Order::Ask(hostnqn.into()));
                return Answer { postponed: true, ..Answer::default() };
            }
            Verdict::Wait => return Answer { postponed: true, ..Answer::default() },
            Verdict::Busy(hostnqn) => {
                let status = Status::CONNECT_CONTROLLER_BUSY; // the host tries again: no Do Not Retry
                info!(
                    peer = port.peer,
                    field = "HOSTNQN",
                    value = host_name(hostnqn),
                    %status,
                    "Connect refused: commands of the host's lost connections are in a store"
                );
                self.count_refusal(data, "busy");
                return Answer { completion: Some((status, 0)), ..Answer::default() };
            }
        }
        let State { target, presences, .. } = &mut *state;
        let (from, remains) = ((port.local, random), |cntlid| presences.remains_of_any(cntlid));
        let channel = session.channel();
        let connected = target.connect_over(channel, now, sqe, data, from, remains);
        self.publish(state);
        let connected = match connected {
            Ok(connected) => connected,
            Err(error) => return self.refused(port, data, &error),
        };
        info!(
            peer = port.peer,
            cntlid = connected.cntlid,
            qid = connected.qid,
            host = host_name(&connected.hostnqn),
            subsystem = %connected.subnqn,
            "queue connected"
        );
        if let Some(ConnectRefused { field, value, status, .. }) = connected.refusal() {
            info!(peer = port.peer, field, value, %status, "will be refused, and is not told before its proof");
        }
        let completion = Some((Status::SUCCESS, connected.result.into()));
        session.connected(connected);
        // What was claimed a moment ago, and needs no proof, is granted.
        let granted = self.grant(now, session, port) == Ok(true);
        Answer { completion, connected: true, granted, ..Answer::default() }
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

//! The control plane as the reactors see it: one lock, taken for Connect, admin and fabrics commands only.

use super::backends::Backends;
use super::namespace::{LocalNamespace, NamespaceTable};
use super::reactor::Order;
use super::server::{ServerError, Subsystem};
use crate::backend::Backend;
use crate::mailbox::Outbox;
use roadtrain_proto::target::{Connected, Outcome, Target, TargetConfig};
use roadtrain_proto::time::Instant;
use roadtrain_wire::fabrics::{ConnectData, fctype, parse_nqn};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::FromBytes;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tracing::info;

struct State {
    target: Target,
    backends: Backends,
    /// Hosts, by NQN, whose lost connections still have commands in a backend, and how many connections.
    draining: HashMap<Arc<str>, usize>,
    /// Listeners and limits of the configuration, which reloading does not change.
    config: TargetConfig,
    /// Until when the reactor that looks after keep-alive timers may sleep.
    watched: Option<Instant>,
}

impl State {
    /// Whether old commands of the host that connects with `data` are still in a backend.
    fn is_draining(&self, data: &[u8]) -> bool {
        let data = ConnectData::ref_from_bytes(data).ok();
        let hostnqn = data.and_then(|data| parse_nqn(&data.hostnqn));
        hostnqn.is_some_and(|hostnqn| self.draining.contains_key(hostnqn))
    }
}

/// Shared by all reactors.
pub(super) struct Control {
    state: Mutex<State>,
    reactors: OnceLock<Vec<Outbox<Order>>>,
}

/// What a lane is to do after an admin or fabrics command.
#[derive(Default)]
pub(super) struct Answer {
    /// Its completion; `None` for an asynchronous event request.
    pub(super) completion: Option<(Status, u64)>,
    /// The lane's queue was connected.
    pub(super) connected: bool,
    /// The connection ends after the answer.
    pub(super) ends: bool,
}

impl Control {
    pub(super) fn new(target: Target, backends: Backends, config: TargetConfig) -> Self {
        let state =
            Mutex::new(State { target, backends, draining: HashMap::new(), config, watched: None });
        Control { state, reactors: OnceLock::new() }
    }

    /// Whom events are sent to; once, before the first connection.
    pub(super) fn set_reactors(&self, reactors: Vec<Outbox<Order>>) {
        let _ = self.reactors.set(reactors);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the reactors what came of a call.
    fn publish(&self, mut state: MutexGuard<'_, State>) {
        while let Some(event) = state.target.poll_event() {
            for reactor in self.reactors.get().into_iter().flatten() {
                reactor.send(Order::Event(event.clone()));
            }
        }
        self.wake_watcher(&state);
    }

    /// Wakes the reactor that looks after keep-alive timers when one of them runs out before it would look.
    fn wake_watcher(&self, state: &State) {
        let earlier = |next| state.watched.is_none_or(|watched| next < watched);
        if state.target.poll_timeout().is_some_and(earlier)
            && let Some(watcher) = self.reactors.get().and_then(|reactors| reactors.first())
        {
            watcher.wake();
        }
    }

    /// An admin or fabrics command; `association` is filled in by Connect. Data for the host goes to `page`.
    pub(super) fn command(
        &self,
        now: Instant,
        association: &mut Option<Connected>,
        local: SocketAddr,
        sqe: &Sqe,
        data: &[u8],
        page: &mut Vec<u8>,
    ) -> Answer {
        let Some(connected) = association else {
            return self.connect(now, association, local, sqe, data);
        };
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
            Outcome::Disconnected => {
                *association = None;
                Answer { completion: Some((Status::SUCCESS, 0)), ends: true, ..Answer::default() }
            }
        }
    }

    fn connect(
        &self,
        now: Instant,
        association: &mut Option<Connected>,
        local: SocketAddr,
        sqe: &Sqe,
        data: &[u8],
    ) -> Answer {
        if sqe.opcode != opcode::FABRICS || sqe.fctype() != fctype::CONNECT {
            let status = Status::COMMAND_SEQUENCE_ERROR.dnr();
            return Answer { completion: Some((status, 0)), ..Answer::default() };
        }
        let mut state = self.lock();
        if state.is_draining(data) {
            // Its old commands must not overtake what it sends now. The host tries again: no Do Not Retry.
            let completion = Some((Status::CONNECT_CONTROLLER_BUSY, 0));
            return Answer { completion, ..Answer::default() };
        }
        let connected = state.target.connect(now, sqe, data, local);
        self.publish(state);
        match connected {
            Ok(connected) => {
                info!(
                    cntlid = connected.cntlid,
                    qid = connected.qid,
                    host = %connected.hostnqn,
                    subsystem = %connected.subnqn,
                    "queue connected"
                );
                let completion = Some((Status::SUCCESS, connected.result.into()));
                *association = Some(connected);
                Answer { completion, connected: true, ends: false }
            }
            Err(error) => {
                info!(%error, "Connect refused");
                let completion = Some((error.status, error.result.into()));
                Answer { completion, ..Answer::default() }
            }
        }
    }

    /// The namespaces of a lane's subsystem.
    pub(super) fn table(&self, association: Option<&Connected>) -> NamespaceTable {
        let Some(connected) = association.filter(|connected| connected.qid > 0) else {
            return NamespaceTable::default();
        };
        let state = self.lock();
        let Some(table) = state.target.namespaces(&connected.subnqn) else {
            return NamespaceTable::default();
        };
        let local = table.iter().filter_map(|(nsid, geometry)| {
            let backend = state.backends.get(&connected.subnqn, nsid)?.clone();
            Some((nsid, LocalNamespace { geometry: *geometry, backend }))
        });
        NamespaceTable::new(local)
    }

    /// The backends of a controller's subsystem.
    pub(super) fn backends(&self, connected: &Connected) -> Vec<Arc<Backend>> {
        let state = self.lock();
        let table = state.target.namespaces(&connected.subnqn);
        let nsids = table.iter().flat_map(|table| table.iter().map(|(nsid, _)| nsid));
        nsids.filter_map(|nsid| state.backends.get(&connected.subnqn, nsid).cloned()).collect()
    }

    /// A connection is lost while its commands are in a backend: its host cannot connect until
    /// [`Control::drained`].
    pub(super) fn drains(&self, hostnqn: &Arc<str>) {
        *self.lock().draining.entry(hostnqn.clone()).or_default() += 1;
    }

    /// The last of those commands has ended.
    pub(super) fn drained(&self, hostnqn: &str) {
        let mut state = self.lock();
        if let Some(connections) = state.draining.get_mut(hostnqn) {
            *connections -= 1;
            if *connections == 0 {
                state.draining.remove(hostnqn);
            }
        }
    }

    /// A queue's connection is gone.
    pub(super) fn left(&self, connected: &Connected) {
        let mut state = self.lock();
        state.target.disconnect(connected.cntlid, connected.qid);
        self.publish(state);
    }

    /// Puts a failed I/O command into the error log.
    pub(super) fn record_error(&self, connected: &Connected, sqe: &Sqe, status: Status) {
        self.lock().target.record_error(connected.cntlid, connected.qid, sqe, status);
    }

    /// When [`Control::expire`] is to be called at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let mut state = self.lock();
        state.watched = state.target.poll_timeout();
        state.watched
    }

    /// Ends controllers whose keep-alive timer has run out.
    pub(super) fn expire(&self, now: Instant) {
        let mut state = self.lock();
        state.target.handle_timeout(now);
        self.publish(state);
    }

    /// New exports.
    pub(super) fn reload(&self, subsystems: &[Subsystem]) -> Result<usize, ServerError> {
        let mut state = self.lock();
        let mut backends = state.backends.clone();
        let config =
            TargetConfig { subsystems: backends.open(subsystems)?, ..state.config.clone() };
        config.check()?;
        // Backends first: whoever sees a namespace finds its blocks.
        state.backends = backends;
        let changes = state.target.apply(&config)?;
        state.config = config;
        for change in &changes {
            info!("{change:?}");
        }
        self.publish(state);
        Ok(changes.len())
    }
}

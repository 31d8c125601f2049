//! Admission of connections to a target over all its reactors. A connection is counted as long as its ticket exists.

use roadtrain_proto::time::Instant;
use roadtrain_system::clock;
use roadtrain_target_proto::{
    Admitted, ConnectionAdmission, ConnectionLimitReached, ConnectionLimits,
};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::warn;

/// Shortest interval between two log lines about refused connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Issues tickets. Its lock is taken when connections arrive, connect their queue, or end.
pub(super) struct Tickets(Mutex<AdmissionState>);

struct AdmissionState {
    admission: ConnectionAdmission,
    /// Number of refused connections since the last log line.
    unlogged: u64,
    log_at: Instant,
}

/// Slot of a connection. Dropping it frees the slot.
pub(super) struct ConnectionTicket {
    tickets: Arc<Tickets>,
    pub(super) number: u64,
}

impl Tickets {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        let admission = ConnectionAdmission::new(limits);
        Tickets(Mutex::new(AdmissionState { admission, unlogged: 0, log_at: Instant::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, AdmissionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a slot for a connection. Also returns the number of the connection to close for it, if needed; `None` if
    /// the connection is refused.
    pub(super) fn take(
        self: &Arc<Self>,
        peer: SocketAddr,
    ) -> Option<(ConnectionTicket, Option<u64>)> {
        let mut state = self.lock();
        match state.admission.enter(peer.ip()) {
            Ok(Admitted { number, instead_of }) => {
                drop(state);
                Some((ConnectionTicket { tickets: self.clone(), number }, instead_of))
            }
            Err(full) => {
                state.refused(clock::now(), peer, full);
                None
            }
        }
    }
}

impl AdmissionState {
    fn refused(&mut self, now: Instant, peer: SocketAddr, full: ConnectionLimitReached) {
        self.unlogged += 1;
        if now >= self.log_at {
            let since = std::mem::take(&mut self.unlogged);
            self.log_at = now + LOG_INTERVAL;
            warn!(%peer, refused = since, "connection refused: {full}");
        }
    }
}

impl ConnectionTicket {
    /// Marks the connection as granted: it loses its slot to no other connection any more.
    pub(super) fn granted(&self) {
        self.tickets.lock().admission.granted(self.number);
    }
}

impl Drop for ConnectionTicket {
    fn drop(&mut self) {
        self.tickets.lock().admission.leave(self.number);
    }
}

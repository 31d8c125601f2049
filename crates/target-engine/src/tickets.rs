//! The connections of a target over all its reactors: one is there as long as its ticket.

use roadtrain_proto::time::Instant;
use roadtrain_system::clock;
use roadtrain_target_proto::{Admission, Admitted, ConnectionLimits, Full};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::warn;

/// At most so often the log says that connections are refused.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// Issues tickets. Its lock is taken when connections come, connect their queue, and go.
pub(super) struct Tickets(Mutex<Office>);

struct Office {
    admission: Admission,
    /// Refused since that was said last.
    unsaid: u64,
    say_at: Instant,
}

/// A connection's place. Dropping it gives it back.
pub(super) struct Ticket {
    tickets: Arc<Tickets>,
    pub(super) number: u64,
}

impl Tickets {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        let admission = Admission::new(limits);
        Tickets(Mutex::new(Office { admission, unsaid: 0, say_at: Instant::default() }))
    }

    fn lock(&self) -> MutexGuard<'_, Office> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection, and which other one is to be ended for it; `None`: it is refused.
    pub(super) fn take(self: &Arc<Self>, peer: SocketAddr) -> Option<(Ticket, Option<u64>)> {
        let mut office = self.lock();
        match office.admission.enter(peer.ip()) {
            Ok(Admitted { number, instead_of }) => {
                drop(office);
                Some((Ticket { tickets: self.clone(), number }, instead_of))
            }
            Err(full) => {
                office.refused(clock::now(), peer, full);
                None
            }
        }
    }
}

impl Office {
    fn refused(&mut self, now: Instant, peer: SocketAddr, full: Full) {
        self.unsaid += 1;
        if now >= self.say_at {
            let since = std::mem::take(&mut self.unsaid);
            self.say_at = now + SAY_EVERY;
            warn!(%peer, refused = since, "connection refused: {full}");
        }
    }
}

impl Ticket {
    /// Its host was granted a queue: it makes room for nobody any more.
    pub(super) fn granted(&self) {
        self.tickets.lock().admission.granted(self.number);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.tickets.lock().admission.leave(self.number);
    }
}

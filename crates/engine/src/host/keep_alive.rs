//! When the next Keep Alive is due: whatever else the control thread does, it is in time.

use super::bringup::Admin;
use super::error::HostError;
use roadtrain_wire::sqe::{Sqe, opcode};
use std::time::{Duration, Instant};

/// Where the target has no timeout.
const SELDOM: Duration = Duration::from_secs(3600);

pub(super) struct KeepAlive {
    interval: Duration,
    due_at: Instant,
}

impl KeepAlive {
    /// A controller with that timeout was connected just now; zero is none.
    pub(super) fn new(timeout: Duration) -> Self {
        let interval = if timeout.is_zero() { SELDOM } else { timeout / 2 };
        KeepAlive { interval, due_at: Instant::now() + interval }
    }

    /// Until the next one.
    pub(super) fn wait(&self) -> Duration {
        self.due_at.saturating_duration_since(Instant::now())
    }

    /// Sends one if it is due.
    ///
    /// # Errors
    /// The admin queue's.
    pub(super) fn send_if_due(&mut self, admin: &mut Admin) -> Result<(), HostError> {
        if self.wait().is_zero() {
            admin.run("Keep Alive", &Sqe::new(opcode::KEEP_ALIVE, 0), &[], &mut [])?;
            self.due_at = Instant::now() + self.interval;
        }
        Ok(())
    }
}

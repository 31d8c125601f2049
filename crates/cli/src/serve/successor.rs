//! The process that takes over from this one.

use crate::control::socket::PendingReply;
use crate::failure::{CommandFailure, CommandResult};
use crate::registry::ProcessIdentity;
use std::thread;
use std::time::{Duration, Instant};
use tracing::warn;

/// Time after which a failed process is killed.
const END_WAIT: Duration = Duration::from_secs(5);
/// Pause between checks of a process that ends, and of files in use.
pub(super) const OPEN_POLL: Duration = Duration::from_millis(10);

/// The process that wants to take over.
pub(super) struct Successor {
    pub(super) reply: PendingReply,
    pub(super) process: ProcessIdentity,
}

impl Successor {
    /// Makes sure that the process has ended, and so has closed its files.
    pub(super) fn end(&self) -> CommandResult {
        let begun = Instant::now();
        let mut is_killed = false;
        while self.process.is_alive() {
            if begun.elapsed() >= END_WAIT && !is_killed {
                warn!(pid = self.process.pid, "the new process does not end: it is killed");
                self.process.signal(rustix::process::Signal::KILL);
                is_killed = true;
            }
            if begun.elapsed() >= 2 * END_WAIT {
                let pid = self.process.pid;
                return Err(CommandFailure::failed(format!(
                    "process {pid} has not taken over, and cannot be ended: this one cannot serve again"
                )));
            }
            thread::sleep(OPEN_POLL);
        }
        Ok(())
    }
}

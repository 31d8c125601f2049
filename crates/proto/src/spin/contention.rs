//! Whether other threads want this thread's core.

use super::Reading;

/// They do when this thread waits for it for a quarter of the time for which it has it.
const CONTENDED: u64 = 4;
/// Each window takes away such a part of what was counted before it.
const FADING: u64 = 8;

/// For how long the thread has run and waited to run, of late. Over several windows: a short one may hold an
/// interruption by the system that is long beside it and means nothing.
#[derive(Debug, Default)]
pub(super) struct Contention {
    cpu_ns: u64,
    queued_ns: u64,
}

impl Contention {
    /// A window has used so much: whether there is contention.
    pub(super) fn is_there(&mut self, used: &Reading) -> bool {
        let fade = |sum: u64, new: u64| (sum - sum / FADING).saturating_add(new);
        self.cpu_ns = fade(self.cpu_ns, used.cpu_ns);
        self.queued_ns = fade(self.queued_ns, used.queued_ns);
        self.queued_ns.saturating_mul(CONTENDED) > self.cpu_ns
    }
}

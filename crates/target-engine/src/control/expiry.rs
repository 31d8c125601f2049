//! Keep-alive timers and the lifetimes of PSKs.

use super::{NEVER, TargetControlPlane};
use roadtrain_proto::time::Instant;
use std::sync::atomic::Ordering::SeqCst;

impl TargetControlPlane {
    /// Returns the latest time at which [`TargetControlPlane::expire`] must be called.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.watched.store(NEVER, SeqCst);
        let timer = self.timer.load(SeqCst);
        self.watched.store(timer, SeqCst);
        (timer != NEVER).then_some(Instant(timer))
    }

    /// Ends controllers whose keep-alive timer has expired, and removes expired PSKs.
    pub(crate) fn expire(&self, now: Instant) {
        self.lock_psks().expire(now);
        let mut state = self.lock();
        state.target.handle_timeout(now);
        self.publish(state);
    }

    /// Expires timers if one is due.
    pub(crate) fn expire_due(&self, now: Instant) {
        if self.timer.load(SeqCst) <= now.0 {
            self.expire(now);
        }
    }
}

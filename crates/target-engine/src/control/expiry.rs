//! Keep-alive timers and the lifetimes of PSKs.

use super::{Control, NEVER};
use roadtrain_proto::time::Instant;
use std::sync::atomic::Ordering::SeqCst;

impl Control {
    /// When [`Control::expire`] is to be called at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.watched.store(NEVER, SeqCst);
        let timer = self.timer.load(SeqCst);
        self.watched.store(timer, SeqCst);
        (timer != NEVER).then_some(Instant(timer))
    }

    /// Ends controllers whose keep-alive timer has run out, and PSKs whose time is over.
    pub(crate) fn expire(&self, now: Instant) {
        self.lock_psks().expire(now);
        let mut state = self.lock();
        state.target.handle_timeout(now);
        self.publish(state);
    }

    /// The same, if one may have run out that nobody has checked.
    pub(crate) fn expire_due(&self, now: Instant) {
        if self.timer.load(SeqCst) <= now.0 {
            self.expire(now);
        }
    }
}

//! State that the queues of a device share with the threads that start and end it.

use roadtrain_proto::time::Instant;
use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// State shared by all queues of a device.
#[derive(Debug)]
pub(crate) struct UblkShared {
    refused: AtomicI32,
    end_at_ns: AtomicU64,
}

impl Default for UblkShared {
    fn default() -> Self {
        UblkShared { refused: AtomicI32::new(0), end_at_ns: AtomicU64::new(u64::MAX) }
    }
}

impl UblkShared {
    /// Records that the driver refused a queue's command.
    pub(crate) fn refuse(&self, errno: i32) {
        self.refused.store(errno.abs(), Ordering::Release);
    }

    /// Returns the error with which the driver refused a command, if it has.
    pub(crate) fn refusal(&self) -> Option<io::Error> {
        let errno = self.refused.load(Ordering::Acquire);
        (errno != 0).then(|| io::Error::from_raw_os_error(errno))
    }

    /// Sets the deadline of stopping servers: they end then, even if the driver still has tags.
    pub(crate) fn end_at(&self, at: Instant) {
        self.end_at_ns.store(at.0, Ordering::Release);
    }

    /// True once that deadline has passed.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        now.0 >= self.end_at_ns.load(Ordering::Acquire)
    }
}

//! The clock of the engine.

use roadtrain_proto::time::Instant;

/// Returns monotonic time, which continues while the machine is suspended: a Keep Alive timer that expires meanwhile is
/// noticed.
#[must_use]
#[inline]
pub fn now() -> Instant {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec to write to; CLOCK_BOOTTIME always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut ts) };
    Instant(ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64)
}

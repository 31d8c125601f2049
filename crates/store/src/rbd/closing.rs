//! The end of a process that has used Ceph's libraries.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait at the end of a process for images that are being closed: an unreachable cluster may take for ever.
const WAIT: Duration = Duration::from_secs(10);
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

static IS_LOADED: AtomicBool = AtomicBool::new(false);
static PENDING: AtomicUsize = AtomicUsize::new(0);

/// Records that the libraries are loaded.
pub(super) fn loaded() {
    IS_LOADED.store(true, Ordering::Release);
}

/// Marks an image as being closed, until this is dropped.
pub(super) struct ClosingImage(());

impl ClosingImage {
    pub(super) fn begin() -> ClosingImage {
        PENDING.fetch_add(1, Ordering::AcqRel);
        ClosingImage(())
    }
}

impl Drop for ClosingImage {
    fn drop(&mut self) {
        PENDING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Ends the process with that status if Ceph's libraries are loaded. Waits until images are closed, so that others get
/// their locks. Skips the libraries' own cleanup, which frees data that their threads still use (`free(): invalid
/// size`).
pub fn end_process(status: u8) {
    if !IS_LOADED.load(Ordering::Acquire) {
        return;
    }
    let until = Instant::now() + WAIT;
    while PENDING.load(Ordering::Acquire) > 0 && Instant::now() < until {
        thread::sleep(CHECK_INTERVAL);
    }
    let _ = std::io::stdout().flush();
    // SAFETY: it does not return, and needs no state of the program.
    unsafe { libc::_exit(status.into()) }
}

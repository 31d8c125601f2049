//! The end of a process that has used Ceph's libraries.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long the end of a process waits for images that are being closed: a cluster that is not there may take for ever.
const WAIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(2);

static IS_LOADED: AtomicBool = AtomicBool::new(false);
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// The libraries are loaded.
pub(super) fn loaded() {
    IS_LOADED.store(true, Ordering::Release);
}

/// An image that is being closed, until this is dropped.
pub(super) struct Closing(());

impl Closing {
    pub(super) fn begin() -> Closing {
        UNDER_WAY.fetch_add(1, Ordering::AcqRel);
        Closing(())
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Ends the process with that status if Ceph's libraries are loaded: when images are closed, so that others get their
/// locks, and without the libraries' own end, which takes away what their threads still use (`free(): invalid size`).
pub fn end_process(status: u8) {
    if !IS_LOADED.load(Ordering::Acquire) {
        return;
    }
    let until = Instant::now() + WAIT;
    while UNDER_WAY.load(Ordering::Acquire) > 0 && Instant::now() < until {
        thread::sleep(LOOK);
    }
    let _ = std::io::stdout().flush();
    // SAFETY: it does not return, and asks nothing of the program's state.
    unsafe { libc::_exit(status.into()) }
}

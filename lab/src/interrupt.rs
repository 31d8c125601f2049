//! Ctrl-C and SIGTERM: work in progress is abandoned, and the setup is undone.

use anyhow::ensure;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{mem, ptr};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// From now on these signals end nothing by themselves.
pub(crate) fn watch() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the action is all zeroes but for its handler and flags; the handler only stores to an
        // atomic.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = note as extern "C" fn(libc::c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, ptr::null_mut());
        }
    }
}

/// Fails when one has come.
pub(crate) fn check() -> anyhow::Result<()> {
    ensure!(!INTERRUPTED.load(Ordering::Relaxed), "interrupted");
    Ok(())
}

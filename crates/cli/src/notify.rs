//! Tells the service manager how far we are; nobody is told where there is none.

use roadtrain_reactor::pulse::Pulse;
pub(crate) use sd_notify::NotifyState;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use tracing::{debug, error};

/// Looks within the time after which the service manager gives the process up.
const CHECKS: u32 = 4;

/// Sends `state` to the socket that NOTIFY_SOCKET names.
pub(crate) fn tell(state: NotifyState) {
    if let Err(error) = sd_notify::notify(&[state]) {
        debug!("NOTIFY_SOCKET: {error}");
    }
}

/// The same while no reactor runs, because another process takes over.
///
/// # Errors
/// There is no thread for it.
pub(crate) fn watch_nothing() -> io::Result<Watchdog> {
    watch(Pulse::default())
}

/// Tells the service manager that we live, for as long as every reactor makes turns. Dropping it ends that.
pub(crate) struct Watchdog {
    /// Its thread ends with it.
    _alive: Option<SyncSender<()>>,
}

/// Begins to tell the service manager that we live, if it has asked for that (WatchdogSec=).
///
/// # Errors
/// There is no thread for it.
pub(crate) fn watch(pulse: Pulse) -> io::Result<Watchdog> {
    let limit = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero());
    let Some(limit) = limit else { return Ok(Watchdog { _alive: None }) };
    let (alive, ended) = sync_channel::<()>(0);
    let body = move || {
        let pause = limit / CHECKS;
        loop {
            match pulse.check(pause) {
                Ok(()) => tell(NotifyState::Watchdog),
                Err(silent) => {
                    error!("{silent}; the service manager ends this process if it stays so")
                }
            }
            if ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    };
    thread::Builder::new().name("roadtrain-watch".into()).spawn(body)?;
    Ok(Watchdog { _alive: Some(alive) })
}

//! Notifies the service manager of the process's state, if there is one.

use roadtrain_reactor::probes::ReactorProbes;
pub(crate) use sd_notify::NotifyState;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use tracing::{debug, error};

/// Checks within the watchdog's time limit.
const CHECKS: u32 = 4;

/// Sends `state` to the socket in NOTIFY_SOCKET.
pub(crate) fn send(state: NotifyState) {
    if let Err(error) = sd_notify::notify(&[state]) {
        debug!("NOTIFY_SOCKET: {error}");
    }
}

/// Starts a watchdog while no reactor runs, because another process takes over.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn watch_nothing() -> io::Result<Watchdog> {
    watch(ReactorProbes::default())
}

/// Watchdog thread that notifies the service manager while all reactors make progress. Dropping it ends the thread.
pub(crate) struct Watchdog {
    /// Sender whose drop ends the thread.
    _alive: Option<SyncSender<()>>,
}

/// Starts the watchdog, if the service manager has requested one (WatchdogSec=).
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn watch(pulse: ReactorProbes) -> io::Result<Watchdog> {
    let limit = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero());
    let Some(limit) = limit else { return Ok(Watchdog { _alive: None }) };
    let (alive, ended) = sync_channel::<()>(0);
    let body = move || {
        let pause = limit / CHECKS;
        loop {
            match pulse.check(pause) {
                Ok(()) => send(NotifyState::Watchdog),
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

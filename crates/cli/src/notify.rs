//! Tells the service manager how far we are (the protocol of sd_notify); nobody is told where there is none.

use roadtrain_engine::pulse::Pulse;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;
use tracing::{debug, error};

/// The service can be used.
pub(crate) const READY: &str = "READY=1";
/// The service ends.
pub(crate) const STOPPING: &str = "STOPPING=1";

/// Nothing hangs.
const ALIVE: &str = "WATCHDOG=1";
/// Looks within the time after which the service manager gives the process up.
const LOOKS: u32 = 4;

/// Sends `state` to the socket that NOTIFY_SOCKET names: a path, or `@` and an abstract name.
pub(crate) fn tell(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
        return;
    };
    if let Err(error) = send(name.as_bytes(), state) {
        debug!("NOTIFY_SOCKET: {error}");
    }
}

fn send(name: &[u8], state: &str) -> io::Result<()> {
    let address = match name {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(Path::new(std::ffi::OsStr::from_bytes(path)))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
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
    let value = |name| std::env::var(name).ok();
    let Some(limit) = watchdog_limit(value("WATCHDOG_USEC"), value("WATCHDOG_PID")) else {
        return Ok(Watchdog { _alive: None });
    };
    let (alive, ended) = sync_channel::<()>(0);
    let body = move || {
        let pause = limit / LOOKS;
        loop {
            match pulse.check(pause) {
                Ok(()) => tell(ALIVE),
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

/// How long the service manager may hear nothing of this process.
fn watchdog_limit(microseconds: Option<String>, pid: Option<String>) -> Option<Duration> {
    let is_us = pid.is_none_or(|pid| pid.parse() == Ok(std::process::id()));
    let limit = Duration::from_micros(microseconds?.parse().ok()?);
    (is_us && !limit.is_zero()).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_abstract_names_are_reached() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let name = format!("roadtrain-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, name) in [
            (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned()),
            (UnixDatagram::bind_addr(&address).unwrap(), format!("@{name}")),
        ] {
            send(name.as_bytes(), READY).unwrap();
            let mut text = [0; 32];
            let length = socket.recv(&mut text).unwrap();
            assert_eq!(&text[..length], b"READY=1");
        }
        assert!(send(b"/nonexistent/x", READY).is_err());
    }
}

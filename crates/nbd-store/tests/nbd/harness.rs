//! Servers of NBD as processes, and stores over them.

use crate::skipped::skipped;
use roadtrain_nbd_store::{NbdSource, NbdStoreSettings};
use roadtrain_store::{RemoteContext, RemoteSource, Store};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer than any test should take.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Waits until `done` returns true.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Process of a server, which ends with this value.
pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) socket: PathBuf,
}

impl ServerProcess {
    /// Starts a program that listens at `socket`.
    pub(crate) fn start(program: &str, arguments: &[&str], socket: &Path) -> ServerProcess {
        let _ = std::fs::remove_file(socket);
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"));
        let server = ServerProcess { child, socket: socket.to_owned() };
        eventually("the server listens", || {
            std::os::unix::net::UnixStream::connect(socket).is_ok()
        });
        server
    }

    /// Starts nbdkit with a Unix socket in `directory`.
    pub(crate) fn nbdkit(directory: &Path, arguments: &[&str]) -> ServerProcess {
        let socket = directory.join("nbdkit.sock");
        let path = socket.to_str().unwrap();
        let fixed = ["--foreground", "--exit-with-parent", "--unix", path];
        ServerProcess::start("nbdkit", &[&fixed[..], arguments].concat(), &socket)
    }
}

impl ServerProcess {
    /// Stops the process: it answers no more.
    pub(crate) fn stop(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// True if a program is installed; reports a skipped test otherwise.
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        skipped(format!("{program} is not installed (scripts/setup.sh e2e)"));
    }
    found
}

/// Returns settings that reconnect soon.
pub(crate) fn settings() -> NbdStoreSettings {
    NbdStoreSettings {
        connections: Some(3),
        reconnect_delay: Duration::from_millis(20),
        ..NbdStoreSettings::default()
    }
}

/// Opens a store over a server at a Unix socket.
pub(crate) fn open(socket: &Path, settings: NbdStoreSettings) -> Arc<dyn Store> {
    let address = format!("unix:{}", socket.display()).parse().unwrap();
    let source = NbdSource::new(address, settings, Vec::new()).unwrap();
    source.open(&RemoteContext::default()).unwrap()
}

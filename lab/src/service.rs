//! Programs that run in the background: stopped when dropped, by force if necessary.

use crate::{command, interrupt};
use anyhow::{Context, bail};
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long something may take to be ready.
const READY: Duration = Duration::from_secs(20);
/// How long it may take to stop by itself.
const STOP: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(10);

/// A program in the background.
pub(crate) struct Service {
    name: String,
    child: Child,
    log: PathBuf,
    /// Signal that stops it.
    stop_signal: libc::c_int,
}

impl Service {
    /// Starts it; its output goes to `log`.
    pub(crate) fn start(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        interrupt::check()?;
        let name = command.get_program().display().to_string();
        let file = File::create(log).with_context(|| format!("write {}", log.display()))?;
        let child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("run {name}"))?;
        Ok(Self { name, child, log: log.to_owned(), stop_signal: libc::SIGTERM })
    }

    /// The same, stopped by another signal than SIGTERM.
    pub(crate) fn stopped_by(mut self, stop_signal: libc::c_int) -> Self {
        self.stop_signal = stop_signal;
        self
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `ready` gives something.
    pub(crate) fn until<T>(&mut self, mut ready: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
        let until = Instant::now() + READY;
        loop {
            if let Some(found) = ready() {
                return Ok(found);
            }
            interrupt::check()?;
            if let Some(status) = command::ended(&mut self.child) {
                bail!("{}: {status}: {}", self.name, self.last_line());
            }
            if Instant::now() > until {
                bail!("{} is not ready after {} s", self.name, READY.as_secs());
            }
            thread::sleep(POLL);
        }
    }

    /// Waits until it listens on a port of the loopback.
    pub(crate) fn until_listening(&mut self, port: u16) -> anyhow::Result<()> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        self.until(|| TcpStream::connect_timeout(&address, READY).ok().map(drop))
    }

    /// Waits for a line in its log that begins so.
    pub(crate) fn until_line(&mut self, begin: &str) -> anyhow::Result<String> {
        let log = self.log.clone();
        self.until(|| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            let whole = &text[..text.rfind('\n').unwrap_or(0)];
            whole.lines().find(|line| line.starts_with(begin)).map(str::to_owned)
        })
    }

    fn last_line(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("(silent)").to_owned()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        command::signal(&self.child, self.stop_signal, false);
        if !command::ends(&mut self.child, STOP) {
            eprintln!("  {} does not stop: killed", self.name);
            command::kill(&mut self.child);
        }
    }
}

/// A free TCP port of the loopback.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("roadtrain-service-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_line_is_waited_for_and_the_end_is_noticed() {
        let path = log("line");
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo ready /dev/loop7; exec sleep 3600"]);
        let mut service = Service::start(&mut shell, &path).expect("it starts");
        assert_eq!(service.until_line("ready").expect("said"), "ready /dev/loop7");
        drop(service);
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo broken; exit 4"]);
        let mut service = Service::start(&mut shell, &path).expect("it starts");
        let error = service.until_line("ready").expect_err("it ends").to_string();
        assert!(error.ends_with("broken"), "{error}");
        fs::remove_file(path).expect("made above");
    }
}

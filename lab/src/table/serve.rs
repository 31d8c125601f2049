//! A product process that runs until it is dropped: a target, or an attached host.

use anyhow::{Context, bail};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// NQN of the subsystem that the measured target offers.
pub(crate) const NQN: &str = "nqn.2026-11.io.roadtrain:bench";

/// A running `roadtrain`; ended with SIGTERM.
pub(crate) struct Process(Child);

impl Process {
    /// Starts `roadtrain` and waits for its line that begins with `ready`.
    pub(crate) fn start(program: &Path, arguments: &[String]) -> anyhow::Result<Self> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ready = lines.find(|line| line.as_ref().is_ok_and(|l| l.starts_with("ready")));
        let process = Self(child);
        if ready.is_none() {
            bail!("roadtrain {} ended before it was ready", arguments.join(" "));
        }
        // What else it prints must not fill the pipe.
        thread::spawn(move || lines.for_each(drop));
        Ok(process)
    }

    /// Its process identifier.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SAFETY: signals our own child, which has not been waited for.
        unsafe { libc::kill(self.0.id() as libc::pid_t, libc::SIGTERM) };
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a target on loopback with a small memory namespace, on core 1.
pub(crate) fn target(program: &Path, port: u16) -> anyhow::Result<Process> {
    let line = format!("serve -a 127.0.0.1 -s {port} -n {NQN} --namespace mem:64MiB --cores 1");
    Process::start(program, &line.split(' ').map(str::to_owned).collect::<Vec<_>>())
}

/// A TCP port that was free a moment ago.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

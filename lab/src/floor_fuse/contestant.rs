//! Who serves the file: memory at once, or the product over the network, each in both ways.

use anyhow::{Context, ensure};
use serde::Serialize;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const NQN: &str = "nqn.2026-11.bench:fuse";
/// Of the namespace, and of the floor's memory.
pub(super) const MIB: u64 = 256;

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Contestant {
    product: bool,
    uring: bool,
}

impl Contestant {
    /// All, in the order of a round.
    pub(super) const ALL: [Contestant; 4] = [
        Contestant { product: false, uring: true },
        Contestant { product: true, uring: true },
        Contestant { product: false, uring: false },
        Contestant { product: true, uring: false },
    ];

    pub(super) fn name(self) -> &'static str {
        match (self.product, self.uring) {
            (false, true) => "floor, io_uring",
            (true, true) => "product, io_uring",
            (false, false) => "floor, /dev/fuse",
            (true, false) => "product, /dev/fuse",
        }
    }

    /// What it is compared with.
    pub(super) fn floor(self) -> Self {
        Contestant { product: false, ..self }
    }
}

/// A contestant that serves. Dropping it ends it.
pub(super) struct Running {
    file: PathBuf,
    /// In the order in which they end: first who serves the files.
    processes: Vec<Child>,
}

impl Running {
    /// Starts it on a mountpoint in `directory`.
    pub(super) fn start(
        contestant: Contestant,
        program: &Path,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let mountpoint = directory.join("mnt");
        std::fs::create_dir_all(&mountpoint)?;
        let file = mountpoint.join("nvme0n1");
        let mut running = Running { file, processes: Vec::new() };
        let uring = if contestant.uring { "on" } else { "off" };
        if !contestant.product {
            let mut server = Command::new(std::env::current_exe()?);
            server.args(["floor-fuse", "--uring", uring, "--serve"]).arg(&mountpoint);
            running.add(&mut server)?;
            return Ok(running);
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let place = ["-a", "127.0.0.1", "-s", &port, "-n", NQN];
        let mut target = Command::new(program);
        target.arg("serve").args(place).args(["--namespace", &format!("mem:{MIB}MiB")]);
        running.add(&mut target)?;
        let mut host = Command::new(program);
        host.args(["attach", "-t", "tcp"]).args(place).args(["--fuse-uring", uring, "--as"]);
        host.arg(format!("fuse:{}", mountpoint.display()));
        running.add(&mut host)?;
        Ok(running)
    }

    /// Starts a process and waits until it says that it is ready.
    fn add(&mut self, command: &mut Command) -> anyhow::Result<()> {
        let name = command.get_program().display().to_string();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| format!("run {name}"))?;
        let stdout = child.stdout.take().context("its output")?;
        self.processes.insert(0, child);
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line.starts_with("ready"), "{name} is not ready: `{}`", line.trim());
        Ok(())
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Their numbers.
    pub(super) fn processes(&self) -> impl Iterator<Item = u32> {
        self.processes.iter().map(Child::id)
    }

    /// Who serves the files.
    pub(super) fn front(&self) -> u32 {
        self.processes[0].id()
    }

    /// Ends it in order.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        for mut process in std::mem::take(&mut self.processes) {
            end(&mut process);
            let status = process.wait()?;
            ensure!(status.success(), "a server ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for process in &mut self.processes {
            end(process);
            let _ = process.wait();
        }
    }
}

fn end(process: &mut Child) {
    drop(process.stdin.take());
    // SAFETY: signals our own child, which is not reaped yet.
    unsafe { libc::kill(process.id() as libc::pid_t, libc::SIGTERM) };
}

//! The servers of the file: memory at once, or the product over the network, each in both ways.

use crate::service::{Service, free_port};
use std::path::{Path, PathBuf};
use std::process::Command;

const NQN: &str = "nqn.2026-11.bench:fuse";
/// Size of the namespace, and of the memory of the floor.
pub(super) const MIB: u64 = 256;

/// A server that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FuseContestant {
    product: bool,
    uring: bool,
}

impl FuseContestant {
    /// All, in the order of a round.
    pub(super) const ALL: [FuseContestant; 4] = [
        FuseContestant { product: false, uring: true },
        FuseContestant { product: true, uring: true },
        FuseContestant { product: false, uring: false },
        FuseContestant { product: true, uring: false },
    ];

    pub(super) fn name(self) -> &'static str {
        match (self.product, self.uring) {
            (false, true) => "floor, io_uring",
            (true, true) => "product, io_uring",
            (false, false) => "floor, /dev/fuse",
            (true, false) => "product, /dev/fuse",
        }
    }

    /// The floor that it is compared with.
    pub(super) fn floor(self) -> Self {
        FuseContestant { product: false, ..self }
    }
}

/// A contestant that serves; ends when it is dropped.
pub(super) struct FuseRunning {
    file: PathBuf,
    /// In the order in which they end: first the server of the file.
    services: Vec<Service>,
}

impl FuseRunning {
    /// Starts it on a mountpoint in `directory`.
    pub(super) fn start(
        contestant: FuseContestant,
        program: &Path,
        directory: &Path,
    ) -> anyhow::Result<Self> {
        let mountpoint = directory.join("mnt");
        std::fs::create_dir_all(&mountpoint)?;
        let mut services = Vec::new();
        let mut add = |command: &mut Command, name: &str| -> anyhow::Result<()> {
            let mut service = Service::start(command, &directory.join(name))?;
            service.until_line("ready")?;
            services.insert(0, service);
            Ok(())
        };
        let uring = if contestant.uring { "on" } else { "off" };
        if contestant.product {
            let place = format!("-a 127.0.0.1 -s {} -n {NQN}", free_port()?);
            let line = format!("serve {place} --namespace mem:{MIB}MiB");
            add(Command::new(program).args(line.split(' ')), "target")?;
            let front = format!("--fuse-uring {uring} --as fuse:{}", mountpoint.display());
            let line = format!("attach -t tcp {place} {front}");
            add(Command::new(program).args(line.split(' ')), "host")?;
        } else {
            let mut server = Command::new(std::env::current_exe()?);
            server.args(["floor-fuse", "--uring", uring, "--serve"]).arg(&mountpoint);
            add(&mut server, "floor")?;
        }
        Ok(FuseRunning { file: mountpoint.join("nvme0n1"), services })
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Their numbers.
    pub(super) fn processes(&self) -> impl Iterator<Item = u32> {
        self.services.iter().map(Service::id)
    }

    /// The server of the file.
    pub(super) fn front(&self) -> u32 {
        self.services[0].id()
    }
}

//! A target of the product and loads on it, over TCP on loopback or on links; host on core 0, target on core 1.

use crate::command;
use crate::links::NamespaceLinks;
use crate::measure::Measure;
use crate::product;
use crate::service::{Service, free_port};
use crate::undo::Folder;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The subsystem of the target.
pub(crate) const NQN: &str = "nqn.2026-11.io.roadtrain:bench";
/// Time beyond measuring: connecting, ending.
const SLACK: Duration = Duration::from_secs(30);
/// Seconds of load before those that are measured.
const RAMP_SECONDS: f64 = 0.5;
/// Instances so far: each has a folder of its own.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// The program with a port, and a folder for logs and sockets.
pub(crate) struct Loopback {
    program: PathBuf,
    scratch: Folder,
    /// The ends are in their namespaces, if there are any.
    links: Option<NamespaceLinks>,
    port: u16,
}

impl Loopback {
    pub(crate) fn new(program: &Path) -> anyhow::Result<Self> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("roadtrain-loopback-{}-{number}", std::process::id());
        let scratch = Folder::new(std::env::temp_dir().join(name))?;
        let program = program.canonicalize().context("the program")?;
        Ok(Self { program, scratch, links: None, port: free_port()? })
    }

    /// The same over links.
    pub(crate) fn over(program: &Path, links: NamespaceLinks) -> anyhow::Result<Self> {
        Ok(Self { links: Some(links), ..Self::new(program)? })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The path of a file for this run.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A command of the program at the host.
    pub(crate) fn host(&self, line: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(line.split_whitespace());
        if let Some(links) = &self.links {
            links.host.enter(&mut command);
        }
        command
    }

    /// Starts a target with such options.
    pub(crate) fn serve(&self, options: &str) -> anyhow::Result<Service> {
        let Self { port, .. } = self;
        let address = if self.links.is_some() { "0.0.0.0" } else { "127.0.0.1" };
        let line = format!("serve -a {address} -s {port} -n {NQN} {options}");
        let mut command = Command::new(&self.program);
        command.args(line.split_whitespace());
        if let Some(links) = &self.links {
            links.target.enter(&mut command);
        }
        let mut service = Service::start(&mut command, &self.path("target"))?;
        service.until_line("ready").context("the target")?;
        Ok(service)
    }

    /// A load on the target at its address, or at others; core and ramp may be other ones, too.
    pub(crate) fn load(&self, load: &str, seconds: f64) -> Command {
        let otherwise = |option: &str, value: String| match load.contains(&format!("{option} ")) {
            true => String::new(),
            false => format!("{option} {value}"),
        };
        let address = otherwise("-a", format!("127.0.0.1:{}", self.port));
        let core = otherwise("--cores", "0".into());
        let ramp = otherwise("--ramp", RAMP_SECONDS.to_string());
        self.host(&format!(
            "bench -t tcp {address} -n {NQN} {core} {load} {ramp} --seconds {seconds} --json"
        ))
    }

    /// Measures a load.
    pub(crate) fn bench(&self, load: &str, seconds: f64) -> anyhow::Result<Measure> {
        let limit = Duration::from_secs_f64(seconds) + SLACK;
        product::measure(command::run(&mut self.load(load, seconds), limit)?.as_bytes())
    }
}

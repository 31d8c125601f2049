//! Runs over links: the product's target at one end and its load generator at the other, or
//! nbdkit and fio.

mod nbd;
mod sampler;

use crate::links::{self, LinkSpeed, NamespaceLinks, SegmentWiring};
use crate::measure::Measure;
use crate::product::{self, LoadTiming};
use crate::service::Service;
use crate::undo::Folder;
use crate::workload::{LabLoad, LoadLinks, ProductSetup, ProductTransport};
use crate::{command, fio, impair};
use anyhow::{Context, bail};
use sampler::Sampler;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Beyond loading and measuring: connecting, filling, ending.
const SLACK: Duration = Duration::from_secs(30);
/// Labs of this process so far: each has a folder of its own.
static MADE: AtomicUsize = AtomicUsize::new(0);
/// Where every one of the target's addresses is listened at.
const EVERYWHERE: &str = "0.0.0.0";

/// A program that is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WiredContestant {
    Product(ProductSetup),
    /// nbdkit with fio, which uses libnbd: a connection for each link.
    Nbdkit,
}

/// Links with what runs need.
#[derive(Debug)]
pub(crate) struct Wired {
    pub(crate) links: NamespaceLinks,
    wire: LoadLinks,
    program: PathBuf,
    scratch: Folder,
}

impl Wired {
    /// Makes the links.
    pub(crate) fn new(program: &Path, wire: LoadLinks) -> anyhow::Result<Self> {
        Self::impaired(program, wire, impair::Impairment::NONE, false)
    }

    /// Links that are bad, or go through the middle where they can be made so.
    pub(crate) fn impaired(
        program: &Path,
        wire: LoadLinks,
        impairment: impair::Impairment,
        is_switched: bool,
    ) -> anyhow::Result<Self> {
        if let Some(why) = links::unavailable() {
            bail!("no links: {why}");
        }
        let shape = wire.is_gigabit.then_some(LinkSpeed::GIGABIT);
        let wiring =
            SegmentWiring { shape, impairment, is_switched, ..SegmentWiring::plain(wire.mtu) };
        let links = NamespaceLinks::new(wire.links, &wiring)?;
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("roadtrain-links-{}-{number}", std::process::id());
        let scratch = Folder::new(std::env::temp_dir().join(name))?;
        Ok(Self { links, wire, program: program.to_owned(), scratch })
    }

    /// A target for `setup`, ready.
    pub(crate) fn serve(
        &self,
        load: &LabLoad,
        setup: &ProductSetup,
        timing: &LoadTiming,
    ) -> anyhow::Result<Service> {
        let arguments = product::serve(load, setup, timing, &self.served_at(setup));
        let mut command = match setup.hand_over.mode() {
            None => self.program(setup)?,
            Some(mode) => this(&["hand-over", mode])?,
        };
        self.links.target.enter(command.args(arguments));
        let mut service = Service::start(&mut command, &self.scratch.path().join("target"))?;
        service.until_line("ready")?;
        Ok(service)
    }

    /// The program, or this one in its place where that is needed.
    fn program(&self, setup: &ProductSetup) -> anyhow::Result<Command> {
        if setup.over != ProductTransport::Sockets {
            return Ok(Command::new(&self.program));
        }
        this(&["tsockets"])
    }

    fn served_at(&self, setup: &ProductSetup) -> String {
        match setup.over {
            ProductTransport::Ether => self.links.interfaces(),
            ProductTransport::Sockets => self.target_addresses().join(","),
            ProductTransport::Tcp => EVERYWHERE.into(),
        }
    }

    /// The target's address at each link.
    fn target_addresses(&self) -> Vec<String> {
        (0..self.wire.links).map(|link| links::addresses(link)[1].clone()).collect()
    }

    /// The host's commands: all links at once, or a process for each.
    pub(crate) fn loads(
        &self,
        load: &LabLoad,
        setup: &ProductSetup,
        timing: &LoadTiming,
    ) -> anyhow::Result<Vec<Command>> {
        let (at, load) = match setup.over {
            ProductTransport::Ether | ProductTransport::Sockets => {
                (vec![self.served_at(setup)], *load)
            }
            ProductTransport::Tcp => {
                let depth = (load.depth / self.wire.links).max(1);
                (self.target_addresses(), LabLoad { depth, ..*load })
            }
        };
        let command = |at: &String| {
            let mut command = self.program(setup)?;
            self.links.host.enter(command.args(product::against(&load, setup, timing, at)));
            Ok(command)
        };
        at.iter().map(command).collect()
    }

    /// Measures a load once.
    pub(crate) fn measure(
        &self,
        load: &LabLoad,
        contestant: WiredContestant,
        timing: &LoadTiming,
    ) -> anyhow::Result<Measure> {
        let mut measure = self.once(load, contestant, timing)?;
        let rate =
            LinkSpeed::GIGABIT.payload_bytes_per_second(self.wire.mtu) * self.wire.links as f64;
        let share = measure.bytes_per_second_total() / rate;
        measure.link_use = self.wire.is_gigabit.then_some(share);
        Ok(measure)
    }

    fn once(
        &self,
        load: &LabLoad,
        contestant: WiredContestant,
        timing: &LoadTiming,
    ) -> anyhow::Result<Measure> {
        match contestant {
            WiredContestant::Product(setup) => {
                let target = self.serve(load, &setup, timing)?;
                self.fill(&setup, timing)?;
                let read = |said: &String| product::measure(said.as_bytes());
                self.metered(self.loads(load, &setup, timing)?, target, timing, read)
            }
            WiredContestant::Nbdkit => {
                let target = self.nbdkit(timing)?;
                let load = self.fio(load, timing)?;
                self.metered(vec![load], target, timing, |said| Ok(fio::parse(said)?.0))
            }
        }
    }

    /// Starts a command between the ends of the links.
    pub(crate) fn between(&self, command: &mut Command, name: &str) -> anyhow::Result<Service> {
        Service::start(self.links.middle()?.enter(command), &self.scratch.path().join(name))
    }

    /// Writes all of the target's memory: what has never been written is one page for all and faster to read, and
    /// slower to write, as the kernel has to clear it first.
    fn fill(&self, setup: &ProductSetup, timing: &LoadTiming) -> anyhow::Result<()> {
        let at = match setup.over {
            ProductTransport::Tcp => links::addresses(0)[1].clone(),
            ProductTransport::Ether | ProductTransport::Sockets => self.served_at(setup),
        };
        let mut command = self.program(setup)?;
        self.links.host.enter(command.args(product::fill(setup, timing, &at)));
        command::run(&mut command, SLACK).context("fill the namespace").map(drop)
    }

    /// Runs the commands at the same time, and counts what they and the target use meanwhile.
    fn metered(
        &self,
        commands: Vec<Command>,
        target: Service,
        timing: &LoadTiming,
        read: impl Fn(&String) -> anyhow::Result<Measure>,
    ) -> anyhow::Result<Measure> {
        let sampler = Sampler::new(target.id(), timing);
        let limit = Duration::from_secs_f64(timing.seconds + timing.ramp_seconds) + SLACK;
        let said: Vec<anyhow::Result<String>> = thread::scope(|scope| {
            let run = |mut command: Command| {
                let sampler = &sampler;
                scope.spawn(move || {
                    command::watched(&mut command, limit, sampler::PERIOD, |pid| {
                        sampler.sample(pid)
                    })
                })
            };
            let running: Vec<_> = commands.into_iter().map(run).collect();
            running.into_iter().map(|one| one.join().expect("it does not panic")).collect()
        });
        let measures =
            said.into_iter().map(|said| read(&said?)).collect::<anyhow::Result<Vec<_>>>()?;
        drop(target);
        Ok(sampler.complete(Measure::together(&measures)))
    }
}

/// This program with a command of its own.
fn this(words: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("this program")?);
    command.args(words);
    Ok(command)
}

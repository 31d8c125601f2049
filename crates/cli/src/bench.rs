//! `roadtrain bench`: a load generator that runs on the lanes' own reactors, and reports what limits the result.
//!
//! | file | purpose |
//! |---|---|
//! | `plan` | the options of the main load and of the streams, fitted to the namespace |
//! | `workload`, `rng`, `schedule`, `step` | the next block, its time, and the depth |
//! | `generator`, `lane` | the front, and each load on each lane: keeps requests in flight, times them |
//! | `verify`, `sweep` | data that identifies its block; filling and reading back |
//! | `threads` | queue mode: the load on separate threads |
//! | `run_state` | state shared by the main thread and the lanes |
//! | `run` | ramp, measurement, end |
//! | `own_target`, `usage` | the target in a separate process, and the CPU usage of both ends |
//! | `latency`, `tally`, `report`, `live` | results |

mod generator;
#[cfg(test)]
mod harness;
mod lane;
mod latency;
mod live;
mod own_target;
mod plan;
mod report;
mod rng;
mod run;
mod run_state;
mod schedule;
mod step;
mod sweep;
mod tally;
#[cfg(test)]
mod tests;
mod threads;
mod usage;
mod verify;
mod workload;

use crate::args::{BenchArgs, ConnectArgs, GlobalArgs, word};
use crate::config::assign_nsids;
use crate::failure::{CommandFailure, CommandResult};
use crate::namespace::NamespaceKind;
use crate::query::no_namespace;
use crate::signals::BlockedSignals;
use crate::{connect, logs, output};
use generator::{Generator, ReactorLanes};
use lane::LaneResult;
use own_target::{OwnKey, OwnTarget};
use plan::{LaneTopology, LoadPlan, PlanLimits};
use report::{BenchReport, RunManner};
use roadtrain_host_engine::{
    ControllerInfo, Front, FrontTurn, HostClient, HostConfig, HostController, HostControllerView,
    ReactorInfo,
};
use roadtrain_system::clock;
use run_state::RunState;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use threads::LoadThreads;

/// `roadtrain bench`
pub(crate) fn run(args: &BenchArgs, global: &GlobalArgs) -> CommandResult {
    logs::start("warn", global.verbose);
    if args.transport.has_frames() && args.traddr.is_empty() {
        return Err(CommandFailure::usage("-t ether needs -a: what leads to a target"));
    }
    args.policy.check_options(args.own.target_policy).map_err(CommandFailure::usage)?;
    let signals = BlockedSignals::block()?.of_terminal();
    let own = match args.traddr.is_empty() {
        false => None,
        true => Some(OwnTarget::start(args)?),
    };
    let config = host_config(args, own.as_ref())?;
    let nqn = config.subsystem_nqn.clone();
    let (results, inbox) = channel();
    let mut fronts = LoadFronts {
        args,
        nqn,
        owns_target: own.is_some(),
        results: Some(results),
        next_lane: 0,
        bench: None,
    };
    let host = signals.guard(|| LoadDriver::start(config, &mut fronts))?;
    fronts.results = None; // the inbox closes with the last front
    let bench = fronts.bench.take().unwrap_or_else(|| Err(CommandFailure::failed("no reactor")))?;
    let run = run::BenchRun {
        args: &args.load,
        plans: &bench.plans,
        run_state: &bench.run_state,
        signals: &signals,
        view: host.view(),
    };
    let report = run.measure(&inbox, own.as_ref(), global.json);
    let report =
        report.map(|measured| BenchReport::new(&bench.plans, host.manner(args), &measured));
    bench.run_state.abandoned.store(report.is_err(), Ordering::Relaxed);
    host.end();
    let report = report?;
    drop(own);
    if global.json { output::json(&report) } else { output::line(&report.text()) }?;
    match report.errors {
        0 => Ok(()),
        _ => Err(CommandFailure::failed(verdict(&report))),
    }
}

fn verdict(report: &BenchReport) -> String {
    let first = report.error_texts.first().map_or("", String::as_str);
    format!("{} errors, the first: {first}", report.errors)
}

fn host_config(args: &BenchArgs, own: Option<&OwnTarget>) -> CommandResult<HostConfig> {
    let config = match own {
        None => {
            let nqn = args.nqn.as_deref().unwrap_or_default();
            connect::config_of_paths(&args.portals(), nqn, &args.connect)?
        }
        Some(own) => {
            let without = ConnectArgs { tls: false, concat: false, ..args.connect.clone() };
            let config = connect::config_at(own.address, own_target::NQN, &without)?;
            match own.tls.as_ref().map(OwnKey::host) {
                Some((tls, keys)) => HostConfig { tls: Some(tls), keys, ..config },
                None => config,
            }
        }
    };
    let mut config = connect::with_lanes(config, &args.lanes, &args.policy, args.wait);
    config.slow_over = args.slow_over.into();
    let topology = topology(args);
    if args.load.inline_threads().is_some() && args.lanes.lanes.is_some() {
        let text = "--lanes: in inline mode each of --threads has a lane of its own";
        return Err(CommandFailure::usage(text));
    }
    config.reactors = Some(topology.reactors as usize);
    // Each stream with lanes of its own gets one on every reactor of the main load.
    config.lanes = topology.lanes + args.load.own_lanes() * topology.reactors;
    // One entry of a queue always stays empty.
    let entries = u16::try_from(args.load.lane_depth() + 1).unwrap_or(u16::MAX);
    config.queue_entries = entries.max(config.queue_entries);
    Ok(config)
}

/// Driver of the load.
enum LoadDriver {
    /// Reactors with the load on them.
    Inline(HostController),
    /// Threads of the load, and the reactors that execute its requests.
    Queue(LoadThreads),
}

impl LoadDriver {
    fn start(config: HostConfig, fronts: &mut LoadFronts) -> CommandResult<LoadDriver> {
        let Some(threads) = fronts.args.load.queue_threads() else {
            let make = |reactor, view: &HostControllerView| fronts.make(reactor, view);
            return Ok(LoadDriver::Inline(HostController::connect(config, make)?));
        };
        let cores = config.cores.clone();
        let client = HostClient::connect(config)?;
        let generators = fronts.thread_loads(threads, client.view())?;
        Ok(LoadDriver::Queue(LoadThreads::start(client, generators, &cores)?))
    }

    fn view(&self) -> &HostControllerView {
        match self {
            LoadDriver::Inline(controller) => controller.view(),
            LoadDriver::Queue(threads) => threads.view(),
        }
    }

    fn manner(&self, args: &BenchArgs) -> RunManner {
        RunManner {
            policy: args.policy.policy.as_str().to_owned(),
            mode: word(&args.load.mode),
            threads: args.load.threads,
            placement: args.lanes.placement.to_string(),
            reactor_places: self.view().affinities().iter().map(ToString::to_string).collect(),
        }
    }

    /// Disconnects after the load has ended or was stopped.
    fn end(self) {
        match self {
            LoadDriver::Inline(controller) => {
                controller.stop();
                controller.join();
            }
            LoadDriver::Queue(threads) => threads.join(),
        }
    }
}

/// Returns the lanes of the main load, and the number of their reactors.
fn topology(args: &BenchArgs) -> LaneTopology {
    if let Some(threads) = args.load.inline_threads() {
        return LaneTopology { lanes: threads, reactors: threads };
    }
    let lanes = args.lanes.count();
    let cores = args.lanes.cores.as_ref().map_or(1, |list| list.0.len() as u32);
    LaneTopology { lanes, reactors: cores.clamp(1, lanes) }
}

/// State of the main thread.
struct PlannedLoads {
    /// The main load's plan, then each stream's.
    plans: Vec<Arc<LoadPlan>>,
    run_state: Arc<RunState>,
}

/// Makes a generator for each reactor, once the namespace is known.
struct LoadFronts<'a> {
    args: &'a BenchArgs,
    nqn: String,
    owns_target: bool,
    results: Option<Sender<LaneResult>>,
    next_lane: u32,
    bench: Option<CommandResult<PlannedLoads>>,
}

impl LoadFronts<'_> {
    fn make(&mut self, reactor: ReactorInfo, view: &HostControllerView) -> Box<dyn Front + Send> {
        if self.bench.is_none() {
            self.bench = Some(self.plan(view));
        }
        match self.loads(reactor) {
            Ok(generator) => Box::new(generator),
            Err(failure) => {
                self.bench = Some(Err(failure));
                Box::new(NoLoadFront)
            }
        }
    }

    /// Creates the load of each of `threads`, which use it like a lane.
    fn thread_loads(
        &mut self,
        threads: u32,
        view: &HostControllerView,
    ) -> CommandResult<Vec<Generator>> {
        self.bench = Some(self.plan(view));
        let lanes = |thread| ReactorLanes { reactor: (thread, threads), first: thread, main: 1 };
        (0..threads).map(|thread| self.generator(lanes(thread))).collect()
    }

    fn plan(&self, view: &HostControllerView) -> CommandResult<PlannedLoads> {
        let (args, info) = (self.args, view.info());
        let nsid = args.nsid;
        let namespace = view.namespace(nsid);
        let namespace =
            namespace.ok_or_else(|| CommandFailure::failed(no_namespace(&self.nqn, nsid)))?;
        let topology = self.topology_granted(&info)?;
        let depth = args.load.lane_depth();
        if depth >= u32::from(info.queue_entries_max) {
            let most = info.queue_entries_max - 1;
            return Err(CommandFailure::usage(format!(
                "--depth: {depth} in flight on a lane, at most {most} can be (a stream with lane=own has \
                 a lane of its own)"
            )));
        }
        let run = clock::now().0 ^ u64::from(std::process::id()) << 48;
        let place =
            PlanLimits { namespace: &namespace, transfer_bytes_max: info.transfer_bytes_max };
        let plans = plan::plans(&args.load, topology, place, run).map_err(CommandFailure::usage)?;
        let run_state = Arc::new(RunState::new(plans.iter().map(|plan| plan.lanes)));
        let may_fill = self.owns_target && !namespace.read_only;
        let fitted = plans.into_iter().map(|plan| {
            let fill = may_fill && self.needs_fill(&plan);
            Arc::new(LoadPlan { fill, ..plan })
        });
        Ok(PlannedLoads { plans: fitted.collect(), run_state })
    }

    /// Returns the granted topology. A target may grant fewer lanes than requested; a stream's own lanes are required.
    fn topology_granted(&self, info: &ControllerInfo) -> CommandResult<LaneTopology> {
        let load = &self.args.load;
        if let Some(threads) = load.queue_threads() {
            return Ok(LaneTopology { lanes: threads, reactors: threads });
        }
        let requested = topology(self.args);
        let own = load.own_lanes() * requested.reactors;
        let granted = info.io_queues.max(1);
        if own == 0 && load.threads.is_none() {
            let reactors = requested.reactors.min(granted);
            return Ok(LaneTopology { lanes: granted, reactors });
        }
        let needed = requested.lanes + own;
        if granted < needed {
            let (what, advice) = match load.threads {
                Some(_) => ("--threads", "--mode queue or fewer of them"),
                None => ("--stream lane=own", "lane=shared or fewer --lanes"),
            };
            return Err(CommandFailure::usage(format!(
                "{what}: the target grants {granted} I/O queues, {needed} are needed: use {advice}"
            )));
        }
        Ok(requested)
    }

    /// True if the region is written before the measurement. Memory that was never written is not allocated: a
    /// measurement would include page faults. Verifying reads need data to check. Streams leave it to the main load
    /// unless each has its own part.
    fn needs_fill(&self, plan: &LoadPlan) -> bool {
        if plan.number > 0 && !plan.verify {
            return false;
        }
        let namespaces = assign_nsids(own_target::namespaces(self.args));
        let kind = namespaces.iter().find(|n| n.nsid == Some(plan.nsid)).map(|n| n.kind);
        match kind {
            Some(NamespaceKind::Mem | NamespaceKind::Ssd) => true,
            Some(NamespaceKind::File) => plan.verify && plan.reads(),
            _ => false,
        }
    }

    fn loads(&mut self, reactor: ReactorInfo) -> CommandResult<Generator> {
        let main = reactor.lanes as u32 - self.args.load.own_lanes();
        let of = (reactor.index as u32, reactor.count as u32);
        let lanes = ReactorLanes { reactor: of, first: self.next_lane, main };
        self.next_lane += main;
        self.generator(lanes)
    }

    fn generator(&self, lanes: ReactorLanes) -> CommandResult<Generator> {
        let bench = match &self.bench {
            Some(Ok(bench)) => bench,
            Some(Err(failure)) => return Err(failure.clone()),
            None => return Err(CommandFailure::failed("no plan")),
        };
        let results = self.results.clone().ok_or_else(|| CommandFailure::failed("too late"))?;
        Generator::new(&bench.plans, &bench.run_state, lanes, results)
            .map_err(|e| CommandFailure::failed(format!("buffers: {e}")))
    }
}

/// A front that stops at once.
struct NoLoadFront;

impl Front for NoLoadFront {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        turn.stop();
    }
}

//! `roadtrain bench`: a load generator that runs on the lanes' own reactors, and says why it got what it got.
//!
//! | file | purpose |
//! |---|---|
//! | `plan` | the options, fitted to the namespace |
//! | `workload`, `rng`, `schedule` | which block next, when |
//! | `generator`, `lane` | the front: keeps requests in flight, times them |
//! | `verify`, `sweep` | data that tells where it belongs; filling and reading back |
//! | `board` | what the main thread and the lanes tell each other |
//! | `run` | ramp, measurement, end |
//! | `own_target`, `usage` | the target in a process of its own, and what both ends use |
//! | `latency`, `report`, `live` | results |

mod board;
mod generator;
mod lane;
mod latency;
mod live;
mod own_target;
mod plan;
mod report;
#[cfg(test)]
mod rig;
mod rng;
mod run;
mod schedule;
mod sweep;
#[cfg(test)]
mod tests;
mod usage;
mod verify;
mod workload;

use crate::args::{BenchArgs, GlobalArgs, PolicyName};
use crate::config::number;
use crate::failure::{Failure, Outcome};
use crate::namespace::Kind;
use crate::query::no_namespace;
use crate::signals::Signals;
use crate::{connect, logs, output};
use board::Board;
use generator::Generator;
use lane::{LaneLoad, LaneResult};
use own_target::OwnTarget;
use plan::Plan;
use report::Report;
use roadtrain_engine::clock;
use roadtrain_engine::host::{
    Controller, ControllerView, Front, HostConfig, LaneId, ReactorInfo, Turn,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

/// `roadtrain bench`
pub(crate) fn run(args: &BenchArgs, global: &GlobalArgs) -> Outcome {
    logs::start("warn", global.verbose);
    let signals = Signals::block()?;
    let mut own = match &args.traddr {
        Some(_) => None,
        None => Some(OwnTarget::start(args)?),
    };
    let config = host_config(args, own.as_ref())?;
    let nqn = config.subsystem_nqn.clone();
    let (results, inbox) = channel();
    let mut fronts = Fronts {
        args,
        nqn,
        owns_target: own.is_some(),
        results: Some(results),
        next_lane: 0,
        bench: None,
    };
    let controller = Controller::connect(config, |reactor, view| fronts.make(reactor, view))?;
    fronts.results = None; // the inbox closes with the last front
    let bench = fronts.bench.take().unwrap_or_else(|| Err(Failure::failed("no reactor")))?;
    let report = measure(args, global, &signals, &bench, &inbox, own.as_mut());
    bench.board.abandoned.store(report.is_err(), Ordering::Relaxed);
    controller.stop();
    controller.join();
    let report = report?;
    drop(own);
    if global.json { output::json(&report) } else { output::line(&report.text()) }?;
    match report.errors {
        0 => Ok(()),
        _ => Err(Failure::failed(verdict(&report))),
    }
}

fn measure(
    args: &BenchArgs,
    global: &GlobalArgs,
    signals: &Signals,
    bench: &Bench,
    inbox: &Receiver<LaneResult>,
    own: Option<&mut OwnTarget>,
) -> Outcome<Report> {
    let run = run::Run { args: &args.load, plan: &bench.plan, board: &bench.board, signals };
    let measured = run.measure(inbox, own, global.json)?;
    let policy = match args.policy.policy {
        PolicyName::None => "none",
        PolicyName::I10 => "i10",
    };
    Ok(Report::new(&bench.plan, policy, &measured))
}

fn verdict(report: &Report) -> String {
    let first = report.error_texts.first().map_or("", String::as_str);
    format!("{} errors, the first: {first}", report.errors)
}

fn host_config(args: &BenchArgs, own: Option<&OwnTarget>) -> Outcome<HostConfig> {
    let config = match own {
        Some(own) => connect::config_at(own.address, own_target::NQN, &args.connect)?,
        None => {
            let traddr = args.traddr.as_deref().unwrap_or_default();
            let nqn = args.nqn.as_deref().unwrap_or_default();
            let address = connect::resolve(traddr, args.trsvcid)?;
            connect::config_at(address, nqn, &args.connect)?
        }
    };
    let config = connect::with_lanes(config, &args.lanes, &args.policy, args.wait);
    // One entry of a queue always stays empty.
    let entries = (args.load.depth as u16 + 1).max(config.queue_entries);
    Ok(HostConfig { queue_entries: entries, ..config })
}

/// What the main thread keeps.
struct Bench {
    plan: Arc<Plan>,
    board: Arc<Board>,
}

/// Makes a generator for each reactor, once the namespace is known.
struct Fronts<'a> {
    args: &'a BenchArgs,
    nqn: String,
    owns_target: bool,
    results: Option<Sender<LaneResult>>,
    next_lane: u32,
    bench: Option<Outcome<Bench>>,
}

impl Fronts<'_> {
    fn make(&mut self, reactor: ReactorInfo, view: &ControllerView) -> Box<dyn Front + Send> {
        if self.bench.is_none() {
            self.bench = Some(self.plan(view));
        }
        match self.lanes(reactor) {
            Ok(generator) => Box::new(generator),
            Err(failure) => {
                self.bench = Some(Err(failure));
                Box::new(Nothing)
            }
        }
    }

    fn plan(&self, view: &ControllerView) -> Outcome<Bench> {
        let (args, info) = (self.args, view.info());
        let nsid = args.nsid;
        let namespace = view.namespace(nsid);
        let namespace = namespace.ok_or_else(|| Failure::failed(no_namespace(&self.nqn, nsid)))?;
        let lanes = info.io_queues.max(1);
        if args.load.depth >= u32::from(info.queue_entries_max) {
            let most = info.queue_entries_max - 1;
            return Err(Failure::usage(format!(
                "--depth: the target takes at most {most} on a lane"
            )));
        }
        let run = clock::now().0 ^ u64::from(std::process::id()) << 48;
        let plan = Plan::new(&args.load, lanes, &namespace, info.transfer_bytes_max, run);
        let mut plan = plan.map_err(Failure::usage)?;
        plan.fill = self.owns_target && !namespace.read_only && self.wants_fill(&plan);
        Ok(Bench { plan: Arc::new(plan), board: Arc::new(Board::new(lanes)) })
    }

    /// Memory that was never written is no memory yet: measuring it would measure page faults. And reads
    /// are to find something to check.
    fn wants_fill(&self, plan: &Plan) -> bool {
        let namespaces = number(own_target::namespaces(self.args));
        let kind = namespaces.iter().find(|n| n.nsid == Some(plan.nsid)).map(|n| n.kind);
        match kind {
            Some(Kind::Mem | Kind::Ssd) => true,
            Some(Kind::File) => plan.verify && plan.rw.read_percent(plan.mix) > 0,
            _ => false,
        }
    }

    fn lanes(&mut self, reactor: ReactorInfo) -> Outcome<Generator> {
        let bench = match &self.bench {
            Some(Ok(bench)) => bench,
            Some(Err(failure)) => return Err(failure.clone()),
            None => return Err(Failure::failed("no plan")),
        };
        let mut lanes = Vec::new();
        for id in 0..reactor.lanes {
            let (plan, board) = (bench.plan.clone(), bench.board.clone());
            let lane = LaneLoad::new(plan, board, self.next_lane, LaneId(id));
            lanes.push(lane.map_err(|e| Failure::failed(format!("buffers: {e}")))?);
            self.next_lane += 1;
        }
        let results = self.results.clone().ok_or_else(|| Failure::failed("too late"))?;
        Ok(Generator::new(bench.board.clone(), lanes, results))
    }
}

/// A front that ends at once.
struct Nothing;

impl Front for Nothing {
    fn turn(&mut self, turn: &mut dyn Turn) {
        turn.stop();
    }
}

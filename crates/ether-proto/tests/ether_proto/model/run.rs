//! Runs a load over lanes and returns the results.

use super::QUEUE_ENTRIES;
use super::costs::Costs;
use super::cpu::MeasuredWork;
use super::host::{ModelCompletion, ModelHost};
use super::load::{LoadOperations, ModelLoad};
use super::target::{ModelStore, ModelTarget};
use super::wire::{Cargo, ModelWires};
use roadtrain_proto::policy::{Class, PolicyConfig};
use roadtrain_proto::time::Instant;
use roadtrain_proto::wait::WaitPolicy;
use std::ops::Range;
use std::time::Duration;

/// Most turns of both ends in a millisecond; some hundred are normal.
const TURNS_PER_MS_MAX: u64 = 2000;
/// Time after the load's end in which all requests must complete.
const DRAIN: Duration = Duration::from_millis(100);

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct ModelScenario {
    pub costs: Costs,
    pub waiting: WaitPolicy,
    pub policy: PolicyConfig,
    pub lanes: usize,
    /// Load of each lane.
    pub load: ModelLoad,
    pub operations: LoadOperations,
    pub store: ModelStore,
    /// Time from the load's start to its end, when the last requests are submitted.
    pub measured: Range<Instant>,
}

/// Results of a run.
pub struct ScenarioOutcome {
    pub done: Vec<ModelCompletion>,
    pub measured: Range<Instant>,
    pub host: MeasuredWork,
    pub target: MeasuredWork,
    /// Time in which requests waited while both ends were idle.
    pub stalled: Duration,
}

struct ModelMachine {
    /// Hosts, each with a core of its own and as many lanes as the others.
    hosts: Vec<ModelHost>,
    target: ModelTarget,
    /// Connections, by lane; those of a host follow one another.
    wires: Vec<ModelWires>,
    measured: Range<Instant>,
    stalled: Duration,
}

impl ModelMachine {
    fn connected(scenario: ModelScenario, hosts: usize) -> Self {
        let ModelScenario { costs, waiting, policy, lanes, load, operations, store, measured } =
            scenario;
        let host = |number| {
            let (core, load) = ((costs, waiting), (&load, operations));
            ModelHost::new(number, policy, core, lanes / hosts, load, measured.clone())
        };
        let mut machine = ModelMachine {
            hosts: (0..hosts as u64).map(host).collect(),
            target: ModelTarget::new(policy, (costs, waiting), lanes, store, measured.clone()),
            wires: (0..lanes).map(|_| ModelWires::default()).collect(),
            measured,
            stalled: Duration::ZERO,
        };
        for index in 0..lanes {
            machine.connect(index);
        }
        machine
    }

    fn connect(&mut self, index: usize) {
        let now = Instant::default();
        let (of, lane) = (index / self.lanes_each(), index % self.lanes_each());
        let shares_core = self.hosts[of].core.costs.detects_one_core();
        let (host, target) = (&mut self.hosts[of].lanes[lane].qpair, &mut self.target.lanes[index]);
        host.batcher().drained(now);
        let mut icreq = Cargo::default();
        assert!(host.poll_tx(&mut icreq));
        target.poll_rx(now, &icreq.pdus[0].header, &mut 0, |_, _, _| {}).expect("ICReq is valid");
        target.batcher().drained(now);
        let mut icresp = Cargo::default();
        assert!(target.poll_tx(&mut icresp));
        host.poll_rx(now, &icresp.pdus[0].header, &mut 0, |_, _, _| {}).expect("ICResp is valid");
        for batcher in [host.batcher(), target.batcher()] {
            batcher.set_shares_core(shares_core);
        }
        target.set_connected(1, QUEUE_ENTRIES, false, Class::Normal);
    }

    fn lanes_each(&self) -> usize {
        self.wires.len() / self.hosts.len()
    }

    /// Returns start, event and number of the host whose turn is next.
    fn next_host(&mut self) -> Option<(Instant, Instant, usize)> {
        let each = self.lanes_each();
        let hosts = self.hosts.iter_mut().zip(self.wires.chunks(each)).enumerate();
        let next = hosts.filter_map(|(at, (host, wires))| {
            let event = host.next(wires)?;
            Some((host.core.start(event), event, at))
        });
        next.min()
    }

    /// Runs one turn of the end whose turn is next. Returns false when nothing is left to do.
    fn step(&mut self, until: Instant) -> bool {
        let (host, target) = (self.next_host(), self.target.next(&self.wires));
        let next = [host.map(|(_, event, _)| event), target].into_iter().flatten().min();
        let Some(next) = next.filter(|&next| next < until) else { return false };
        self.note_stall(next);
        // A turn sends nothing that the other end could have received in a turn that began before it.
        let target_start = target.map(|event| self.target.core.start(event));
        match (host, target) {
            (Some((start, event, at)), _) if target_start.is_none_or(|other| start <= other) => {
                let each = self.lanes_each();
                let host = &mut self.hosts[at];
                host.turn(event, &mut self.wires[at * each..(at + 1) * each]);
                if host.core.costs.one_core {
                    self.target.core.taken_until = host.core.clock;
                }
            }
            (_, Some(event)) => {
                self.target.turn(event, &mut self.wires);
                for host in self.hosts.iter_mut().filter(|host| host.core.costs.one_core) {
                    host.core.taken_until = self.target.core.clock;
                }
            }
            _ => return false,
        }
        true
    }

    fn outstanding(&self) -> u32 {
        self.hosts.iter().map(ModelHost::outstanding).sum()
    }

    /// Counts the time until `next` as stalled if both ends are asleep while a policy holds requests.
    fn note_stall(&mut self, next: Instant) {
        let is_empty = |w: &ModelWires| w.to_host.next().is_none() && w.to_target.next().is_none();
        let is_quiet = self.wires.iter().all(is_empty);
        if is_quiet && self.target.is_idle() && self.outstanding() > 0 {
            let hosts = self.hosts.iter().map(|host| host.core.clock);
            let asleep_since = hosts.fold(self.target.core.clock, Instant::max);
            let (from, to) = (asleep_since.max(self.measured.start), next.min(self.measured.end));
            self.stalled += to.since(from);
        }
    }
}

impl ModelScenario {
    /// Runs the scenario with one host. All requests complete.
    pub fn run(self) -> ScenarioOutcome {
        self.run_with_hosts(1)
    }

    /// Runs the scenario with the lanes shared out among hosts, each with a core of its own.
    pub fn run_with_hosts(self, hosts: usize) -> ScenarioOutcome {
        let measured = self.measured.clone();
        let until = measured.end + DRAIN;
        let turns_max = until.0 / 1_000_000 * TURNS_PER_MS_MAX;
        let mut machine = ModelMachine::connected(self, hosts);
        let mut turns = 0;
        while machine.step(until) {
            turns += 1;
            assert!(turns < turns_max, "it does not come to an end");
        }
        assert_eq!(machine.outstanding(), 0, "requests were left behind");
        let work = machine.hosts.iter().map(|host| host.core.work);
        ScenarioOutcome {
            host: work.reduce(MeasuredWork::plus).unwrap_or_default(),
            done: machine.hosts.into_iter().flat_map(|host| host.done).collect(),
            measured,
            target: machine.target.core.work,
            stalled: machine.stalled,
        }
    }
}

impl ScenarioOutcome {
    /// Returns the requests a second that completed in `span`.
    pub fn iops(&self, span: &Range<Instant>) -> f64 {
        let count = self.done.iter().filter(|done| span.contains(&done.at)).count();
        count as f64 / span.end.since(span.start).as_secs_f64()
    }

    /// Returns mean and 99th percentile of the latencies of requests completed in `span`, in microseconds.
    pub fn latency_us(&self, span: &Range<Instant>) -> (f64, f64) {
        let done = self.done.iter().filter(|done| span.contains(&done.at));
        let mut ns: Vec<u64> = done.map(|done| done.at.0 - done.since.0).collect();
        if ns.is_empty() {
            return (0.0, 0.0);
        }
        ns.sort_unstable();
        let mean = ns.iter().sum::<u64>() as f64 / ns.len() as f64;
        (mean / 1000.0, ns[(ns.len() * 99).div_ceil(100) - 1] as f64 / 1000.0)
    }

    /// Returns `time` as a share of the measured time.
    pub fn share(&self, time: Duration) -> f64 {
        time.as_secs_f64() / self.measured.end.since(self.measured.start).as_secs_f64()
    }
}

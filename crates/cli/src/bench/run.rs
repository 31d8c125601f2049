//! Phases of a measurement: prepare, ramp, measure, end. The main thread only sleeps and polls.

use super::lane::LaneResult;
use super::live::LiveLine;
use super::own_target::OwnTarget;
use super::plan::LoadPlan;
use super::report::BenchMeasurement;
use super::run_state::{RunPhase, RunState};
use super::usage::ProcessWork;
use crate::args::LoadArgs;
use crate::failure::{CommandFailure, CommandResult};
use crate::signals::{BlockedSignals, Signal};
use roadtrain_host_engine::{HostControllerView, LaneReading};
use roadtrain_reactor::metrics::Batching;
use roadtrain_system::clock;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Longest sleep between two polls of the run state.
const POLL: Duration = Duration::from_millis(50);
/// Longest sleep while an event is expected soon.
const POLL_SOON: Duration = Duration::from_millis(2);
/// Wait of an interrupted run for requests in flight: its target may be down.
const DRAIN_WAIT: Duration = Duration::from_secs(5);
/// Error count that stops the run.
const ERRORS_MAX: u64 = 10_000;

/// A measurement.
pub(super) struct BenchRun<'a> {
    pub args: &'a LoadArgs,
    pub plans: &'a [Arc<LoadPlan>],
    pub run_state: &'a RunState,
    pub signals: &'a BlockedSignals,
    /// Connections of the load.
    pub view: &'a HostControllerView,
}

/// Totals of both ends at one time.
struct RunTotals {
    host: ProcessWork,
    lanes: Vec<LaneReading>,
    target: Option<ProcessWork>,
    at_ns: u64,
}

impl RunTotals {
    /// Returns the connections lost and made again.
    fn reconnects(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.reconnects).sum()
    }

    /// Returns the counters of each of the host's lanes since `earlier`.
    fn lanes_since(&self, earlier: &RunTotals) -> Vec<Batching> {
        let pairs = self.lanes.iter().zip(&earlier.lanes);
        pairs.map(|(after, before)| after.batching - before.batching).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RunWait {
    /// The event has occurred.
    Done,
    /// A lost controller or too many errors: the run ends.
    Broken,
    /// A signal: the run ends soon.
    Interrupted,
}

impl BenchRun<'_> {
    /// Runs the measurement.
    ///
    /// # Errors
    /// The own target or a lane's reactor has died.
    pub(super) fn measure(
        &self,
        inbox: &Receiver<LaneResult>,
        own: Option<&OwnTarget>,
        quiet: bool,
    ) -> CommandResult<BenchMeasurement> {
        let mut live = LiveLine::new(self.plans, quiet);
        self.run_state.watched.store(live.is_shown(), Ordering::Relaxed);
        live.show_text(if self.plans[0].fill { "filling" } else { "preparing" });
        let mut wait = self.wait(None, POLL_SOON, || self.run_state.all_prepared());
        if wait == RunWait::Done && !self.args.ramp.is_zero() {
            live.show_text("ramp");
            self.run_state.set_phase(RunPhase::Ramp);
            wait = self.wait(Some(self.args.ramp), POLL, || false);
        }
        if wait == RunWait::Interrupted {
            live.end();
            return Err(CommandFailure::failed("interrupted before anything was measured"));
        }
        let before = self.mark(own)?;
        if wait == RunWait::Done {
            self.run_state.measure_from(clock::now());
            let poll = if self.plans[0].ios.is_some() { POLL_SOON } else { POLL };
            wait = self.wait(self.limit(), poll, || {
                live.show(|| self.run_state.progress());
                self.run_state.finished_at().is_some()
            });
        }
        let after = self.mark(own)?;
        self.run_state.set_phase(RunPhase::Stop);
        live.show_text("ending");
        let finished_at = self.run_state.finished_at().unwrap_or(after.at_ns);
        let results = self.collect(inbox, wait);
        live.end();
        let ns = finished_at.min(after.at_ns).saturating_sub(before.at_ns);
        let mut results = results?;
        let owners: Vec<bool> = self.plans.iter().map(|plan| plan.counts_lanes()).collect();
        let owners = self.args.queue_threads().is_none().then_some(&owners[..]);
        add_counters(&mut results, &after.lanes_since(&before), owners);
        Ok(BenchMeasurement {
            seconds: ns as f64 / 1e9,
            results,
            host: after.host.since(before.host),
            target: after.target.zip(before.target).map(|(after, before)| after.since(before)),
            reconnects: after.reconnects() - before.reconnects(),
        })
    }

    fn limit(&self) -> Option<Duration> {
        let ends_by_itself = self.args.seconds.is_none() && self.args.ios.is_some();
        (!ends_by_itself).then(|| self.args.measured())
    }

    /// Reads the totals. Reading takes the same time before and after, so that the intervals are equal.
    fn mark(&self, own: Option<&OwnTarget>) -> CommandResult<RunTotals> {
        let target = own.map(OwnTarget::work).transpose()?;
        let (lanes, reactors) = (self.view.lanes(), self.view.reactors());
        let reactors = reactors.into_iter().map(|(reactor, _)| reactor).collect();
        let host = ProcessWork::of(std::process::id(), reactors)?;
        Ok(RunTotals { host, lanes, target, at_ns: clock::now().0 })
    }

    /// Sleeps until `done` returns true, at most for `limit`.
    fn wait(
        &self,
        limit: Option<Duration>,
        poll: Duration,
        mut done: impl FnMut() -> bool,
    ) -> RunWait {
        let end = limit.map(|limit| Instant::now() + limit);
        loop {
            let left = end.map_or(poll, |end| end.saturating_duration_since(Instant::now()));
            if done() || left.is_zero() {
                return RunWait::Done;
            }
            if self.signals.wait_for(left.min(poll)) == Some(Signal::Stop) {
                return RunWait::Interrupted;
            }
            let lost = self.run_state.lost.load(Ordering::Relaxed);
            if lost || self.run_state.errors() > ERRORS_MAX {
                return RunWait::Broken;
            }
        }
    }

    /// Waits for the lanes' results: for a limited time after a signal, and not at all after a second one.
    fn collect(
        &self,
        inbox: &Receiver<LaneResult>,
        ended: RunWait,
    ) -> CommandResult<Vec<LaneResult>> {
        let mut abandon_at = (ended == RunWait::Interrupted).then(|| Instant::now() + DRAIN_WAIT);
        let mut results = Vec::new();
        let count: usize = self.run_state.loads.iter().map(Vec::len).sum();
        while results.len() < count {
            match inbox.recv_timeout(POLL) {
                Ok(result) => results.push(result),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(CommandFailure::failed("a reactor has died, see above"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    if self.signals.wait_for(Duration::ZERO) == Some(Signal::Stop) {
                        let drain_wait =
                            if abandon_at.is_some() { Duration::ZERO } else { DRAIN_WAIT };
                        abandon_at = Some(Instant::now() + drain_wait);
                    }
                    if abandon_at.is_some_and(|at| at <= Instant::now()) {
                        let text = "interrupted: requests in flight were not waited for";
                        return Err(CommandFailure::failed(text));
                    }
                }
            }
        }
        results.sort_by_key(|result| (result.load, result.part));
        Ok(results)
    }
}

/// Gives each result the counters of its lane, if its load is one of the `owners`. Without owners all results share all
/// lanes: the first one gets the sum.
pub(super) fn add_counters(
    results: &mut [LaneResult],
    lanes: &[Batching],
    owners: Option<&[bool]>,
) {
    let Some(owners) = owners else {
        let first = results.first_mut();
        return first.into_iter().for_each(|first| first.batching = lanes.iter().copied().sum());
    };
    for result in results.iter_mut().filter(|result| owners[result.load]) {
        result.batching = lanes.get(result.host_lane).copied().unwrap_or_default();
    }
}

//! The course of a measurement: prepare, ramp, measure, end. The main thread only sleeps and looks.

use super::board::{Board, Phase};
use super::lane::LaneResult;
use super::live::Live;
use super::own_target::OwnTarget;
use super::plan::Plan;
use super::report::Measured;
use super::usage::Usage;
use crate::args::LoadArgs;
use crate::failure::{Failure, Outcome};
use crate::signals::{Signal, Signals};
use roadtrain_reactor::stats::LaneStats;
use roadtrain_system::clock;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Longest sleep between two looks at the board.
const POLL: Duration = Duration::from_millis(50);
/// The same while waiting for something that comes soon.
const POLL_SOON: Duration = Duration::from_millis(2);
/// How long an interrupted run waits for what is in flight: its target may be away.
const PATIENCE: Duration = Duration::from_secs(5);
/// Failures after which it makes no sense to go on.
const ERRORS_MAX: u64 = 10_000;

/// One measurement.
pub(super) struct Run<'a> {
    pub args: &'a LoadArgs,
    pub plans: &'a [Arc<Plan>],
    pub board: &'a Board,
    pub signals: &'a Signals,
}

/// Both ends' usage at one time.
struct Mark {
    host: Usage,
    target: Option<(Usage, LaneStats)>,
    at_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// What was waited for has come.
    Done,
    /// A lost controller or too many errors: the end.
    Broken,
    /// A signal: the end, soon.
    Interrupted,
}

impl Run<'_> {
    /// Runs it.
    ///
    /// # Errors
    /// The own target's death, or a lane's.
    pub(super) fn measure(
        &self,
        inbox: &Receiver<LaneResult>,
        mut own: Option<&mut OwnTarget>,
        quiet: bool,
    ) -> Outcome<Measured> {
        let mut live = Live::new(self.plans, quiet);
        self.board.watched.store(live.is_shown(), Ordering::Relaxed);
        live.say(if self.plans[0].fill { "filling" } else { "preparing" });
        let mut wait = self.wait(None, POLL_SOON, || self.board.all_prepared());
        if wait == Wait::Done && !self.args.ramp.is_zero() {
            live.say("ramp");
            self.board.set_phase(Phase::Ramp);
            wait = self.wait(Some(self.args.ramp), POLL, || false);
        }
        if wait == Wait::Interrupted {
            live.end();
            return Err(Failure::failed("interrupted before anything was measured"));
        }
        let before = self.mark(own.as_deref_mut())?;
        if wait == Wait::Done {
            self.board.measure_from(clock::now());
            let look = if self.plans[0].ios.is_some() { POLL_SOON } else { POLL };
            wait = self.wait(self.limit(), look, || {
                live.show(|| self.board.progress());
                self.board.finished_at().is_some()
            });
        }
        let after = self.mark(own)?;
        self.board.set_phase(Phase::Stop);
        live.say("ending");
        let finished_at = self.board.finished_at().unwrap_or(after.at_ns);
        let results = self.collect(inbox, wait);
        live.end();
        let ns = finished_at.min(after.at_ns).saturating_sub(before.at_ns);
        Ok(Measured {
            seconds: ns as f64 / 1e9,
            results: results?,
            host: after.host.since(before.host),
            target: after.target.zip(before.target).map(|(a, b)| (a.0.since(b.0), a.1 - b.1)),
        })
    }

    fn limit(&self) -> Option<Duration> {
        let ends_by_itself = self.args.seconds.is_none() && self.args.ios.is_some();
        (!ends_by_itself).then(|| self.args.measured())
    }

    /// What is read takes its time, but the same time at both ends, so that the intervals are equal.
    fn mark(&self, own: Option<&mut OwnTarget>) -> Outcome<Mark> {
        let target = match own {
            Some(own) => {
                let stats = own.stats()?;
                Some((own.usage()?, stats))
            }
            None => None,
        };
        let host = Usage::of(std::process::id())?;
        Ok(Mark { host, target, at_ns: clock::now().0 })
    }

    /// Sleeps until `done`, at most for `limit`.
    fn wait(
        &self,
        limit: Option<Duration>,
        look: Duration,
        mut done: impl FnMut() -> bool,
    ) -> Wait {
        let end = limit.map(|limit| Instant::now() + limit);
        loop {
            let left = end.map_or(look, |end| end.saturating_duration_since(Instant::now()));
            if done() || left.is_zero() {
                return Wait::Done;
            }
            if self.signals.wait_for(left.min(look)) == Some(Signal::Stop) {
                return Wait::Interrupted;
            }
            let lost = self.board.lost.load(Ordering::Relaxed);
            if lost || self.board.errors() > ERRORS_MAX {
                return Wait::Broken;
            }
        }
    }

    /// Waits for the lanes' results: not for long after a signal, and not at all after a second one.
    fn collect(&self, inbox: &Receiver<LaneResult>, ended: Wait) -> Outcome<Vec<LaneResult>> {
        let mut give_up_at = (ended == Wait::Interrupted).then(|| Instant::now() + PATIENCE);
        let mut results = Vec::new();
        let count: usize = self.board.loads.iter().map(Vec::len).sum();
        while results.len() < count {
            match inbox.recv_timeout(POLL) {
                Ok(result) => results.push(result),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::failed("a reactor has died, see above"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    if self.signals.wait_for(Duration::ZERO) == Some(Signal::Stop) {
                        let patience = if give_up_at.is_some() { Duration::ZERO } else { PATIENCE };
                        give_up_at = Some(Instant::now() + patience);
                    }
                    if give_up_at.is_some_and(|at| at <= Instant::now()) {
                        let text = "interrupted: requests in flight were not waited for";
                        return Err(Failure::failed(text));
                    }
                }
            }
        }
        results.sort_by_key(|result| (result.load, result.part));
        Ok(results)
    }
}

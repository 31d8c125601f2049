//! The policies side by side under one load, as a table. Ends wait in the default mode.

use super::costs::{Costs, REFERENCE};
use super::cpu::MeasuredWork;
use super::load::{LoadOperations, ModelLoad};
use super::run::{ModelScenario, ScenarioOutcome};
use super::target::ModelStore;
use roadtrain_proto::caravan::CaravanLimits;
use roadtrain_proto::policy::{PinofSettings, PolicyConfig, PolicyKind, TycheSettings};
use roadtrain_proto::time::Instant;
use roadtrain_proto::wait::WaitPolicy;
use std::ops::Range;
use std::time::Duration;

pub const AUTO: &str = "auto";
pub const NONE: &str = "none";

/// Heading of the columns of [`Comparison::rows`].
pub const HEAD: &str = "\
4 KiB reads: kIOPS, mean and 99th percentile of the latency (us) | host and target: percent of the time busy |
host and target: requests a caravan | percent of the time in which requests wait though both ends are idle
";

/// Returns all policies. Tyche's level is fixed, because it changes once a second and these loads are shorter.
pub fn policies() -> Vec<(&'static str, PolicyConfig)> {
    let one = CaravanLimits { count_max: 1, bytes_max: u32::MAX };
    let of = PolicyConfig::of;
    vec![
        ("unbatched", PolicyConfig { limits: one, ..of(PolicyKind::None) }),
        (NONE, of(PolicyKind::None)),
        ("i10", of(PolicyKind::I10)),
        ("pinof", of(PolicyKind::Pinof)),
        ("pinof flat", PolicyConfig { pinof: PinofSettings::flat(), ..of(PolicyKind::Pinof) }),
        ("tyche 4", PolicyConfig { tyche: TycheSettings::fixed(4), ..of(PolicyKind::Tyche) }),
        (AUTO, of(PolicyKind::Auto)),
    ]
}

/// Outcome of each policy under one load.
pub struct Comparison {
    pub outcomes: Vec<(&'static str, ScenarioOutcome)>,
}

impl Comparison {
    /// Runs all policies. `auto` never lets a request wait while both ends are idle.
    pub fn run(load: &ModelLoad, store: ModelStore, measured: &Range<Instant>) -> Self {
        Self::run_lanes(1, load, store, measured)
    }

    /// Runs with ends that block whenever they are idle.
    pub fn run_blocking(load: &ModelLoad, measured: &Range<Instant>) -> Self {
        Self::run_with((REFERENCE, WaitPolicy::Sleep), 1, load, ModelStore::Memory, measured)
    }

    /// Runs with both ends on one core.
    pub fn run_on_one_core(load: &ModelLoad, store: ModelStore, measured: &Range<Instant>) -> Self {
        let costs = Costs { one_core: true, ..REFERENCE };
        Self::run_with((costs, WaitPolicy::Adaptive), 1, load, store, measured)
    }

    /// Runs with several lanes, each with that load.
    pub fn run_lanes(
        lanes: usize,
        load: &ModelLoad,
        store: ModelStore,
        measured: &Range<Instant>,
    ) -> Self {
        Self::run_with((REFERENCE, WaitPolicy::Adaptive), lanes, load, store, measured)
    }

    fn run_with(
        (costs, waiting): (Costs, WaitPolicy),
        lanes: usize,
        load: &ModelLoad,
        store: ModelStore,
        measured: &Range<Instant>,
    ) -> Self {
        let outcomes = policies().into_iter().map(|(name, policy)| {
            let (load, measured) = (load.clone(), measured.clone());
            let operations = LoadOperations::Reads;
            (
                name,
                ModelScenario { costs, waiting, policy, lanes, load, operations, store, measured }
                    .run(),
            )
        });
        let comparison = Comparison { outcomes: outcomes.collect() };
        assert_eq!(comparison.of(AUTO).stalled, Duration::ZERO, "a request waits for nothing");
        comparison
    }

    pub fn of(&self, policy: &str) -> &ScenarioOutcome {
        let found = self.outcomes.iter().find(|(name, _)| *name == policy);
        &found.expect("one of the policies").1
    }

    /// Returns the IOPS of `auto` in `span` relative to the best other policy, and that policy's name.
    pub fn of_best(&self, span: &Range<Instant>) -> (f64, &'static str) {
        let others = self.outcomes.iter().filter(|(name, _)| *name != AUTO);
        let iops = others.map(|(name, outcome)| (outcome.iops(span), *name));
        let (best, name) = iops.max_by(|a, b| a.0.total_cmp(&b.0)).expect("there are others");
        (self.of(AUTO).iops(span) / best, name)
    }

    /// Returns a line for each policy.
    pub fn rows(&self, load: &str) -> String {
        let line = |(name, outcome): &(&str, ScenarioOutcome)| {
            format!("{load:12} {name:10} | {}\n", row(outcome))
        };
        self.outcomes.iter().map(line).collect()
    }
}

fn row(outcome: &ScenarioOutcome) -> String {
    let span = &outcome.measured;
    let (mean, p99) = outcome.latency_us(span);
    let percent = |time: Duration| outcome.share(time) * 100.0;
    let per_caravan = |work: &MeasuredWork| f64::from(work.pdus) / f64::from(work.caravans.max(1));
    format!(
        "{:5.1} {mean:7.1} {p99:7.1} | {:3.0} {:3.0} | {:5.1} {:5.1} | {:3.0}",
        outcome.iops(span) / 1000.0,
        percent(outcome.host.busy),
        percent(outcome.target.busy),
        per_caravan(&outcome.host),
        per_caravan(&outcome.target),
        percent(outcome.stalled),
    )
}

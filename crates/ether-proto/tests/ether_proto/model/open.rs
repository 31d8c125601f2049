//! Open loops: the trade-off between CPU for each request and the tail of latencies, over all policies.

use super::costs::{Costs, REFERENCE};
use super::load::{LoadOperations, ModelLoad, ms};
use super::run::{ModelScenario, ScenarioOutcome};
use super::table::{AUTO, NONE, policies};
use super::target::ModelStore;
use roadtrain_proto::caravan::CaravanLimits;
use roadtrain_proto::policy::{I10_BYTES_MAX, PolicyConfig};
use roadtrain_proto::time::Instant;
use roadtrain_proto::wait::WaitPolicy;
use std::fmt::Write;
use std::ops::Range;
use std::time::Duration;

/// Percent of the throughput of `none` with 256 in flight.
const PERCENTS: [u32; 7] = [5, 10, 30, 50, 70, 80, 95];
/// Delays of i10's doorbell other than the published one, in us, and its caravan sizes.
const DELAYS_US: [u64; 4] = [5, 10, 20, 35];
const COUNTS: [u32; 2] = [4, 64];
/// Requests of a run, and its longest duration.
const REQUESTS: f64 = 20_000.0;
const LENGTH_MAX: Duration = Duration::from_millis(150);
/// Limits: CPU relative to i10's, and us of p99 over `none`.
const CPU: f64 = 1.1;
const P99_US: f64 = 20.0;
/// A policy is better only if it has less than this part.
const EQUAL: f64 = 1.0 / 1.05;

/// Returns all policies, and i10 with other delays and caravans.
fn candidates() -> Vec<(String, PolicyConfig)> {
    let i10 = |doorbell_delay, count_max| {
        let limits = CaravanLimits { count_max, bytes_max: I10_BYTES_MAX * count_max.max(16) / 16 };
        PolicyConfig { doorbell_delay, limits, ..PolicyConfig::i10() }
    };
    let mut all: Vec<_> =
        policies().into_iter().map(|(name, policy)| (name.to_string(), policy)).collect();
    for us in DELAYS_US {
        all.push((format!("i10, {us} us"), i10(Duration::from_micros(us), 16)));
    }
    for count in COUNTS {
        all.push((format!("i10 of {count}"), i10(Duration::from_micros(50), count)));
    }
    all
}

/// Runs reads from memory over one lane.
fn reads(
    costs: Costs,
    policy: PolicyConfig,
    load: ModelLoad,
    measured: &Range<Instant>,
) -> ScenarioOutcome {
    let (operations, store, waiting) =
        (LoadOperations::Reads, ModelStore::Memory, WaitPolicy::Adaptive);
    let measured = measured.clone();
    ModelScenario { costs, waiting, policy, lanes: 1, load, operations, store, measured }.run()
}

/// Returns CPU-us of both ends for each request, and the 99th percentile of latencies in us.
fn run(policy: PolicyConfig, per_second: f64) -> [f64; 2] {
    let length = Duration::from_secs_f64(REQUESTS / per_second).min(LENGTH_MAX);
    let measured = ms(10)..ms(10) + length;
    let load = ModelLoad::random_rate(per_second, measured.end);
    // Nothing disturbs the machine, so the tails come from the policies.
    let costs = Costs { away_every: Duration::ZERO, ..REFERENCE };
    let outcome = reads(costs, policy, load, &measured);
    let done = outcome.iops(&measured) * length.as_secs_f64();
    let busy = outcome.host.busy + outcome.target.busy;
    [busy.as_secs_f64() * 1e6 / done, outcome.latency_us(&measured).1]
}

fn peak() -> f64 {
    let measured = ms(5)..ms(25);
    let outcome = reads(REFERENCE, PolicyConfig::none(), ModelLoad::depth(256), &measured);
    outcome.iops(&measured)
}

/// Tabulates the Pareto front of each rate, the position of `auto`, and the policies within both limits.
#[test]
fn fronts() {
    let mut table = String::from(
        "4 KiB reads at random times, memory: CPU-us of both ends for each request, p99 (us).\n\
         * on the Pareto front; = no other is better in both by 5 %; + keeps both bars: CPU at most 1.1 of i10's, p99 at most\n\
         20 us over none's\n",
    );
    let peak = peak();
    for percent in PERCENTS {
        let all: Vec<_> = candidates()
            .into_iter()
            .map(|(name, policy)| (name, run(policy, peak * f64::from(percent) / 100.0)))
            .collect();
        let of = |name: &str| all.iter().find(|(other, _)| other == name).expect("one of them").1;
        let (i10_cpu, p99_max) = (of("i10")[0], of(NONE)[1] + P99_US);
        let is_below = |of: [f64; 2], by: f64| {
            all.iter().any(|(_, other)| other[0] < of[0] * by && other[1] < of[1] * by)
        };
        writeln!(table, "\n{percent} %").expect("a string");
        for (name, figures) in &all {
            let mark = match () {
                () if !is_below(*figures, 1.0) => "*",
                () if !is_below(*figures, EQUAL) => "=",
                () => " ",
            };
            let keeps = if figures[0] <= CPU * i10_cpu && figures[1] <= p99_max { "+" } else { "" };
            writeln!(table, "{mark} {name:10} {:6.2} {:7.1} {keeps}", figures[0], figures[1])
                .expect("a string");
        }
        let in_time = all.iter().filter(|(_, figures)| figures[1] <= p99_max);
        let least = in_time.min_by(|a, b| a.1[0].total_cmp(&b.1[0])).expect("none is");
        writeln!(
            table,
            "least CPU within the bar of p99: {} of i10's ({}); auto {:.2}",
            format_args!("{:.2}", least.1[0] / i10_cpu),
            least.0,
            of(AUTO)[0] / i10_cpu
        )
        .expect("a string");
        assert!(!is_below(of(AUTO), EQUAL), "{percent} %: another policy is better in both");
    }
    insta::with_settings!({omit_expression => true}, { insta::assert_snapshot!(table) });
}

//! The model compared with measured runs: costs fitted to some of them, and predictions for the others.

use super::costs::{Costs, REFERENCE, ns};
use super::load::{LoadOperations, ModelLoad, ms};
use super::run::{ModelScenario, ScenarioOutcome};
use super::table::{NONE, policies};
use super::target::ModelStore;
use roadtrain_proto::wait::WaitPolicy;
use std::fmt::Write;
use std::time::Duration;

/// One measured point: the mean of two runs of a second.
struct MeasuredRun {
    operations: LoadOperations,
    policy: &'static str,
    depth: u32,
    store: ModelStore,
    kiops: f64,
    /// CPU time of both ends for each request.
    cpu_us: f64,
}

const SSD: ModelStore = ModelStore::Ssd { service: Duration::from_micros(100), parallel: 64 };

const MEMORY: ModelStore = ModelStore::Memory;
const READS: LoadOperations = LoadOperations::Reads;
const WRITES: LoadOperations = LoadOperations::Writes;

const fn run(
    operations: LoadOperations,
    policy: &'static str,
    depth: u32,
    store: ModelStore,
    kiops: f64,
    cpu_us: f64,
) -> MeasuredRun {
    MeasuredRun { operations, policy, depth, store, kiops, cpu_us }
}

/// Measurements of `roadtrain bench --bs 4k --lanes 1 --cores 0 --target-cores 1 --no-spin` with each policy and
/// depth.
const MEASURED: &[MeasuredRun] = &[
    run(READS, NONE, 1, MEMORY, 15.2, 54.93),
    run(READS, NONE, 2, MEMORY, 29.2, 28.58),
    run(READS, NONE, 8, MEMORY, 103.0, 8.21),
    run(READS, NONE, 32, MEMORY, 325.3, 3.25),
    run(READS, NONE, 128, MEMORY, 1025.9, 1.63),
    run(READS, "unbatched", 1, MEMORY, 16.7, 50.52),
    run(READS, "unbatched", 2, MEMORY, 30.9, 32.51),
    run(READS, "unbatched", 8, MEMORY, 159.8, 11.84),
    run(READS, "unbatched", 32, MEMORY, 166.4, 11.64),
    run(READS, "unbatched", 128, MEMORY, 144.9, 13.53),
    run(READS, "i10", 1, MEMORY, 6.2, 92.97),
    run(READS, "i10", 2, MEMORY, 13.2, 41.43),
    run(READS, "i10", 8, MEMORY, 50.4, 11.80),
    run(READS, "i10", 32, MEMORY, 370.8, 3.59),
    run(READS, "i10", 128, MEMORY, 724.9, 2.45),
    run(WRITES, NONE, 1, MEMORY, 16.0, 52.24),
    run(WRITES, NONE, 2, MEMORY, 32.6, 26.33),
    run(WRITES, NONE, 8, MEMORY, 110.9, 7.68),
    run(WRITES, NONE, 32, MEMORY, 332.8, 3.01),
    run(WRITES, NONE, 128, MEMORY, 1412.6, 1.31),
    run(WRITES, "unbatched", 1, MEMORY, 15.9, 51.51),
    run(WRITES, "unbatched", 2, MEMORY, 30.3, 33.09),
    run(WRITES, "unbatched", 8, MEMORY, 164.3, 11.55),
    run(WRITES, "unbatched", 32, MEMORY, 175.9, 10.91),
    run(WRITES, "unbatched", 128, MEMORY, 178.7, 10.69),
    run(WRITES, "i10", 1, MEMORY, 7.1, 74.69),
    run(WRITES, "i10", 2, MEMORY, 14.7, 36.71),
    run(WRITES, "i10", 8, MEMORY, 54.7, 10.29),
    run(WRITES, "i10", 32, MEMORY, 556.8, 2.53),
    run(WRITES, "i10", 128, MEMORY, 1144.7, 1.69),
    run(READS, NONE, 32, SSD, 134.6, 4.27),
    run(READS, NONE, 128, SSD, 540.9, 2.53),
    run(READS, "i10", 32, SSD, 153.8, 4.18),
    run(READS, "i10", 128, SSD, 447.2, 2.70),
    run(WRITES, NONE, 32, SSD, 136.0, 4.24),
    run(WRITES, NONE, 128, SSD, 419.4, 2.72),
    run(WRITES, "i10", 32, SSD, 139.7, 4.46),
    run(WRITES, "i10", 128, SSD, 573.5, 2.87),
];

/// Costs that [`fit`] found.
pub const FITTED: Costs = Costs {
    wake_up_min: ns(13_500),
    wake_up_max: ns(30_000),
    deep_sleep: ns(10_385),
    turn: ns(1125),
    receive: ns(1111),
    send: ns(4815),
    trip: ns(2408),
    submit: ns(55),
    complete: ns(55),
    execute: ns(250),
    answer: ns(250),
    data_out: ns(450),
    data_in: ns(49),
    ..REFERENCE
};

impl MeasuredRun {
    /// True if costs are fitted to this run: runs with memory are, those with an SSD are predicted.
    fn is_fitted(&self) -> bool {
        self.store == MEMORY
    }

    fn model(&self, costs: Costs) -> ScenarioOutcome {
        let (_, policy) =
            policies().into_iter().find(|(name, _)| *name == self.policy).expect("one of them");
        let (operations, store, measured) = (self.operations, self.store, ms(4)..ms(24));
        ModelScenario {
            costs,
            waiting: WaitPolicy::Sleep,
            policy,
            lanes: 1,
            load: ModelLoad::depth(self.depth),
            operations,
            store,
            measured,
        }
        .run()
    }

    /// Returns kIOPS and CPU-us for each request, relative to the measured ones.
    fn ratios(&self, costs: Costs) -> [f64; 2] {
        let outcome = self.model(costs);
        let kiops = outcome.iops(&outcome.measured) / 1000.0;
        let span_us = outcome.measured.end.since(outcome.measured.start).as_secs_f64() * 1e6;
        let shares = outcome.share(outcome.host.busy) + outcome.share(outcome.target.busy);
        let cpu_us = shares * span_us / (kiops * span_us / 1000.0);
        [kiops / self.kiops, cpu_us / self.cpu_us]
    }
}

/// Returns the squared deviations of the fitted runs. Throughput counts four times as much as CPU: at low load a
/// sleep costs the kernel more than the model covers.
fn deviation(costs: Costs) -> f64 {
    let of = |run: &MeasuredRun| {
        let [kiops, cpu] = run.ratios(costs).map(|ratio| ratio.ln().powi(2));
        kiops + cpu / 4.0
    };
    MEASURED.iter().filter(|run| run.is_fitted()).map(of).sum()
}

fn fields(costs: &mut Costs) -> [&mut Duration; 12] {
    let Costs { wake_up_min, wake_up_max, deep_sleep, turn, receive, send, trip, .. } = costs;
    let Costs { complete, execute, answer, data_out, data_in, .. } = costs;
    [
        wake_up_min,
        wake_up_max,
        deep_sleep,
        turn,
        receive,
        send,
        trip,
        complete,
        execute,
        answer,
        data_out,
        data_in,
    ]
}

/// Finds costs: changes each in turn by a factor as long as that helps.
#[test]
#[ignore = "takes minutes"]
fn fit() {
    let mut costs = REFERENCE;
    let mut least = deviation(costs);
    for factor in [1.5, 1.2, 1.07] {
        let mut is_better = true;
        while is_better {
            is_better = false;
            for field in 0..12 {
                for factor in [factor, 1.0 / factor] {
                    let mut other = costs;
                    let changed = &mut fields(&mut other)[field];
                    **changed = changed.mul_f64(factor);
                    other.submit = other.complete;
                    if other.wake_up_max <= other.wake_up_min {
                        continue;
                    }
                    let deviation = deviation(other);
                    if deviation < least * 0.999 {
                        (costs, least, is_better) = (other, deviation, true);
                    }
                }
            }
            println!("{factor} {least:.4} {costs:?}");
        }
    }
}

/// Compares predictions with measurements.
#[test]
fn prediction() {
    let mut table = String::from(
        "4 KiB, one lane: measured kIOPS, CPU-us of both ends for each request | model: part of that\n\n",
    );
    let mut parts = [Vec::new(), Vec::new()];
    for run in MEASURED {
        let [kiops, cpu] = run.ratios(FITTED);
        let MeasuredRun { operations, policy, depth, store, .. } = run;
        let load = format!("{operations:?} {depth}").to_lowercase();
        let store = if *store == ModelStore::Memory { "memory" } else { "ssd" };
        let how = if run.is_fitted() { "fitted" } else { "predicted" };
        writeln!(
            table,
            "{store:6} {load:10} {policy:10} {:7.1} {:6.2} | {kiops:5.2} {cpu:5.2} {how}",
            run.kiops, run.cpu_us
        )
        .expect("a string");
        parts[usize::from(!run.is_fitted())].push(kiops);
    }
    for (name, parts) in ["fitted", "predicted"].iter().zip(&mut parts) {
        parts.sort_by(|a, b| a.ln().abs().total_cmp(&b.ln().abs()));
        let at =
            |percent: usize| parts[(parts.len() - 1) * percent / 100].ln().abs().exp_m1() * 100.0;
        writeln!(table, "\n{name}: kIOPS within {:.0} % at half of the points, {:.0} % at nine tenths, {:.0} % at all",
            at(50), at(90), at(100)).expect("a string");
    }
    insta::with_settings!({omit_expression => true}, { insta::assert_snapshot!(table) });
}

//! The product's default waiting mode, compared with blocking.

use super::fit::FITTED;
use super::load::{LoadOperations, ModelLoad, ms};
use super::run::ModelScenario;
use super::table::{AUTO, NONE, policies};
use super::target::ModelStore;
use super::{SSD, check_parts};
use crate::cases::is_thorough;
use roadtrain_proto::wait::WaitPolicy;

const DEPTHS: [u32; 9] = [1, 2, 4, 8, 16, 24, 32, 64, 128];
const MEASURED: std::ops::Range<roadtrain_proto::time::Instant> = ms(10)..ms(60);
/// Least throughput of ends in the default mode, relative to blocking ones, ...
const IOPS_MIN: f64 = 0.97;
/// ... and most CPU time; ...
const CPU_MAX: f64 = 1.05;
/// ... but with much in flight, waits are short, and polling through them costs more than it saves. On the real
/// machine the ratio is 1.0 to 1.1 there.
const MUCH: u32 = 64;
const CPU_MAX_OF_MUCH: f64 = 1.20;
/// An SSD completes one command after the other. Blocking ends process several at once, polling ends one or two each
/// turn.
const CPU_MAX_OF_MUCH_SSD: f64 = 1.40;

/// Returns kIOPS, and CPU-us of both ends for each request.
fn run(
    policy: &str,
    operations: LoadOperations,
    depth: u32,
    store: ModelStore,
    waiting: WaitPolicy,
) -> [f64; 2] {
    let (_, policy) =
        policies().into_iter().find(|(name, _)| *name == policy).expect("one of them");
    let (costs, load) = (FITTED, ModelLoad::depth(depth));
    let outcome = ModelScenario {
        costs,
        waiting,
        policy,
        lanes: 1,
        load,
        operations,
        store,
        measured: MEASURED,
    }
    .run();
    let kiops = outcome.iops(&MEASURED) / 1000.0;
    let cores = outcome.share(outcome.host.busy) + outcome.share(outcome.target.busy);
    [kiops, cores * 1000.0 / kiops]
}

/// Returns a line of the table after a check of its bounds.
fn line(policy: &str, operations: LoadOperations, depth: u32, store: ModelStore) -> String {
    let [asleep, default] = [WaitPolicy::Sleep, WaitPolicy::Adaptive]
        .map(|waiting| run(policy, operations, depth, store, waiting));
    let of = if store == ModelStore::Memory { "" } else { "SSD " };
    let load = format!("{of}{} {depth}, {policy}", format!("{operations:?}").to_lowercase());
    assert!(default[0] >= asleep[0] * IOPS_MIN, "{load}: it does less");
    let cpu_max = match store {
        _ if depth < MUCH => CPU_MAX,
        ModelStore::Memory => CPU_MAX_OF_MUCH,
        ModelStore::Ssd { .. } => CPU_MAX_OF_MUCH_SSD,
    };
    assert!(default[1] <= asleep[1] * cpu_max, "{load}: it costs more");
    format!(
        "{load:19} {:7.1} {:6.2} | {:7.1} {:6.2}\n",
        asleep[0], asleep[1], default[0], default[1]
    )
}

#[test]
fn by_default() {
    let stores = [
        (LoadOperations::Reads, ModelStore::Memory),
        (LoadOperations::Writes, ModelStore::Memory),
        (LoadOperations::Reads, SSD),
    ];
    let loads = stores.into_iter().flat_map(|(operations, store)| {
        let of = move |policy| DEPTHS.map(move |depth| (policy, operations, depth, store));
        [NONE, AUTO].into_iter().flat_map(of)
    });
    let loads: Vec<_> = loads.collect();
    let snapshot = include_str!("snapshots/ether_proto__model__awake__by_default.snap");
    let part = |&(policy, operations, depth, store): &_| line(policy, operations, depth, store);
    if !is_thorough() {
        return check_parts(snapshot, &loads, 5, part);
    }
    let parts: String = loads.iter().map(part).collect();
    let table =
        format!("kIOPS, CPU-us of both ends for each request: asleep | by default\n{parts}");
    insta::with_settings!({omit_expression => true}, { insta::assert_snapshot!(table) });
}

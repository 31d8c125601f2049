//! Waiting as the product does by default, beside sleeping: what the machines that decide it make of each other.

use super::fit::FITTED;
use super::load::{Load, Operations, ms};
use super::run::Scenario;
use super::table::{AUTO, NONE, policies};
use super::target::Store;
use super::waits::Waiting;
use super::{SSD, check_parts};
use crate::cases::is_thorough;

const DEPTHS: [u32; 9] = [1, 2, 4, 8, 16, 24, 32, 64, 128];
/// Both ends have had time to learn before it.
const MEASURED: std::ops::Range<roadtrain_proto::time::Instant> = ms(300)..ms(350);
/// Ends that learn cost no more CPU time than sleeping ones, and do no less, but for what trials take.
const CPU_MAX: f64 = 1.03;
const IOPS_MIN: f64 = 0.97;

/// kIOPS, and CPU-us of both ends for each request.
fn run(
    policy: &str,
    operations: Operations,
    depth: u32,
    store: Store,
    waiting: Waiting,
) -> [f64; 2] {
    let (_, policy) =
        policies().into_iter().find(|(name, _)| *name == policy).expect("one of them");
    let (costs, load) = (FITTED, Load::depth(depth));
    let outcome =
        Scenario { costs, waiting, policy, lanes: 1, load, operations, store, measured: MEASURED }
            .run();
    let kiops = outcome.iops(&MEASURED) / 1000.0;
    let cores = outcome.share(outcome.host.busy) + outcome.share(outcome.target.busy);
    [kiops, cores * 1000.0 / kiops]
}

/// A line of the table; ends that learn do no less, for no more CPU time.
fn line(policy: &str, operations: Operations, depth: u32, store: Store) -> String {
    let [asleep, learns] = [Waiting::Sleep, Waiting::Learns]
        .map(|waiting| run(policy, operations, depth, store, waiting));
    let of = if store == Store::Memory { "" } else { "SSD " };
    let load = format!("{of}{} {depth}, {policy}", format!("{operations:?}").to_lowercase());
    assert!(learns[0] >= asleep[0] * IOPS_MIN, "{load}: it does less");
    assert!(learns[1] <= asleep[1] * CPU_MAX, "{load}: it costs more");
    format!("{load:19} {:7.1} {:6.2} | {:7.1} {:6.2}\n", asleep[0], asleep[1], learns[0], learns[1])
}

#[test]
fn by_default() {
    let stores = [
        (Operations::Reads, Store::Memory),
        (Operations::Writes, Store::Memory),
        (Operations::Reads, SSD),
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

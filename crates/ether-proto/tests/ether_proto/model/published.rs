//! Published claims on a modelled machine like that of the publications; its costs are fitted to their figures for
//! one core. The tables show which gains the model reproduces, and the loads and costs at which they vanish.

use super::check_parts;
use super::costs::{Costs, ns};
use super::fit::FITTED;
use super::load::{LoadOperations, ModelLoad, ms};
use super::run::{ModelScenario, ScenarioOutcome};
use super::table::{NONE, policies};
use super::target::ModelStore;
use crate::cases::is_thorough;
use roadtrain_proto::caravan::CaravanLimits;
use roadtrain_proto::policy::{PolicyConfig, PolicyKind};
use roadtrain_proto::wait::WaitPolicy;
use std::fmt::Write;
use std::time::Duration;

/// kIOPS of reads from memory at depth 128 over one core: with one request a send, and with i10 (i10, fig. 1 and its
/// I/O scheduler).
const UNBATCHED_KIOPS: f64 = 96.0;
const I10_KIOPS: f64 = 250.0;

/// Costs of a send call and of a PDU on a machine with these figures. A context switch takes 1 to 4 us there, and
/// transit through its network about 5 us.
const SEND: Duration = ns(6837);
const PDU: Duration = ns(1348);
const SWITCH: Duration = ns(2500);
const TRIP: Duration = ns(5000);

/// The publications' SSD, which reaches 700 kIOPS.
const SSD: ModelStore = ModelStore::Ssd { service: Duration::from_micros(90), parallel: 64 };
const MEMORY: ModelStore = ModelStore::Memory;

const READS: u64 = 100;
const DEPTHS: [u32; 11] = [1, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128];
/// Percent of reads.
const SHARES: [u64; 3] = [READS, 50, 0];
/// Divisors of the cost of a send on the publications' machine.
const CHEAPER: [u32; 4] = [1, 2, 4, 8];

fn machine(switch: Duration, send: Duration) -> Costs {
    Costs::of(switch, send, PDU, TRIP)
}

fn policy(name: &str) -> PolicyConfig {
    // Caravans without a delay.
    let caravans = PolicyConfig {
        limits: CaravanLimits { count_max: 16, bytes_max: 64 << 10 },
        ..PolicyConfig::of(PolicyKind::None)
    };
    let all = policies().into_iter().chain([("caravans", caravans)]);
    all.into_iter().find(|of| of.0 == name).expect("one of them").1
}

/// A load on one core at each end, which blocks whenever it is idle.
#[derive(Clone, Copy)]
struct PublishedLoad {
    costs: Costs,
    depth: u32,
    /// Percent of reads.
    share: u64,
    store: ModelStore,
}

impl PublishedLoad {
    fn run(self, name: &str) -> ScenarioOutcome {
        let PublishedLoad { costs, depth, share, store } = self;
        let (load, operations) = (ModelLoad::depth(depth), LoadOperations::Share(share));
        let (policy, waiting, measured) = (policy(name), WaitPolicy::Sleep, ms(5)..ms(45));
        ModelScenario { costs, waiting, policy, lanes: 1, load, operations, store, measured }.run()
    }

    fn kiops(self, name: &str) -> f64 {
        let outcome = self.run(name);
        outcome.iops(&outcome.measured) / 1000.0
    }

    /// Returns mean and 99th percentile of latencies.
    fn latency_us(self, name: &str) -> (f64, f64) {
        let outcome = self.run(name);
        outcome.latency_us(&outcome.measured)
    }

    /// Returns the throughput of a policy relative to another's.
    fn gain(self, name: &str, over: &str) -> f64 {
        self.kiops(name) / self.kiops(over)
    }
}

/// A claim, and the model's figure for a machine.
struct PublishedClaim {
    text: &'static str,
    published: &'static str,
    figure: fn(Costs) -> f64,
}

fn claims() -> Vec<PublishedClaim> {
    let claim = |text, published, figure| PublishedClaim { text, published, figure };
    const fn on(costs: Costs, share: u64, store: ModelStore) -> PublishedLoad {
        PublishedLoad { costs, depth: 128, share, store }
    }
    fn mixed(costs: Costs) -> impl Iterator<Item = PublishedLoad> {
        [70, 50, 30].into_iter().map(move |share| on(costs, share, MEMORY))
    }
    vec![
        claim(
            "i10, fig. 6: mean latency of one request at a time over that without a delay, SSD",
            "1.80",
            |costs| {
                let alone = PublishedLoad { depth: 1, ..on(costs, READS, SSD) };
                alone.latency_us("i10").0 / alone.latency_us(NONE).0
            },
        ),
        claim("i10, fig. 7: cores for 700 kIOPS of an SSD, one request a send", "10", |costs| {
            (700.0 / on(costs, READS, SSD).kiops("unbatched")).ceil()
        }),
        claim("i10, fig. 7: cores for 700 kIOPS of an SSD", "4", |costs| {
            (700.0 / on(costs, READS, SSD).kiops("i10")).ceil()
        }),
        claim(
            "i10, fig. 7: cores for 2.8 MIOPS from memory, which fill 100 Gbit/s",
            "20",
            |costs| (2800.0 / on(costs, READS, MEMORY).kiops("i10")).ceil(),
        ),
        claim("i10, fig. 10: IOPS with caravans over one request a send", "1.99", |costs| {
            on(costs, READS, MEMORY).gain("caravans", "unbatched")
        }),
        claim("i10, fig. 10: IOPS with delayed doorbells over caravans alone", "1.30", |costs| {
            on(costs, READS, MEMORY).gain("i10", "caravans")
        }),
        claim("PINoF, fig. 5: mean latency of reads over i10's", "0.68", |costs| {
            let reads = on(costs, READS, MEMORY);
            reads.latency_us("pinof").0 / reads.latency_us("i10").0
        }),
        claim("PINoF, fig. 5: p99 of reads over i10's", "0.80", |costs| {
            let reads = on(costs, READS, MEMORY);
            reads.latency_us("pinof").1 / reads.latency_us("i10").1
        }),
        claim("PINoF, fig. 5 and 7: IOPS of reads over i10's, on each core", "1.34", |costs| {
            on(costs, READS, MEMORY).gain("pinof", "i10")
        }),
        claim(
            "PINoF, fig. 5: mean latency of 30 to 70 % reads over i10's, the best",
            "0.79",
            |costs| {
                let ratio = |on: PublishedLoad| on.latency_us("pinof").0 / on.latency_us("i10").0;
                mixed(costs).map(ratio).fold(f64::INFINITY, f64::min)
            },
        ),
        claim("PINoF, fig. 5: IOPS of 30 to 70 % reads over i10's, the best", "1.19", |costs| {
            mixed(costs).map(|on| on.gain("pinof", "i10")).fold(0.0, f64::max)
        }),
        claim(
            "PINoF, fig. 5: IOPS over i10's with an SSD, the worst of 0 to 100 % reads",
            "1.13",
            |costs| {
                let on = [100, 70, 50, 30, 0].map(|share| on(costs, share, SSD));
                on.into_iter().map(|on| on.gain("pinof", "i10")).fold(f64::INFINITY, f64::min)
            },
        ),
        claim(
            "PINoF, fig. 6: IOPS of 4 KiB writes over the same design without priorities",
            "1.09",
            |costs| on(costs, 0, MEMORY).gain("pinof", "pinof flat"),
        ),
    ]
}

/// Tabulates the claims on the publications' machine, with cheap and with expensive context switches, and on the
/// measured machine.
fn table_of_claims() -> String {
    let costs = [ns(1000), ns(4000)].map(|switch| machine(switch, SEND));
    let mut table = String::from(
        "published | in the model: context switches of 1 us, of 4 us, the machine of `fit`\n\n",
    );
    for PublishedClaim { text, published, figure } in claims() {
        let [cheap, dear, ours] = [costs[0], costs[1], FITTED].map(figure);
        writeln!(table, "{published:>5} | {cheap:6.2} {dear:6.2} {ours:6.2} | {text}")
            .expect("a string");
    }
    table
}

/// Returns the IOPS of PINoF relative to i10's by depth, for a share of reads and a cost of sends.
fn row_of_gains((share, cheaper): &(u64, u32)) -> String {
    let send = SEND / *cheaper;
    let costs = machine(SWITCH, send);
    let mut row = format!("{share:3} % reads, send {:3.1} us |", send.as_secs_f64() * 1e6);
    for depth in DEPTHS {
        let on = PublishedLoad { costs, depth, share: *share, store: MEMORY };
        write!(row, " {:5.2}", on.gain("pinof", "i10")).expect("a string");
    }
    row + "\n"
}

fn near(figure: f64, published: f64) -> bool {
    (0.97..1.03).contains(&(figure / published))
}

#[test]
fn costs_are_fitted_to_what_one_core_does() {
    let on =
        PublishedLoad { costs: machine(SWITCH, SEND), depth: 128, share: READS, store: MEMORY };
    let (unbatched, i10) = (on.kiops("unbatched"), on.kiops("i10"));
    assert!(near(unbatched, UNBATCHED_KIOPS) && near(i10, I10_KIOPS), "{unbatched} {i10}");
}

#[test]
fn published() {
    let rows: Vec<_> = SHARES.iter().flat_map(|&of| CHEAPER.map(|cheaper| (of, cheaper))).collect();
    if !is_thorough() {
        let snapshot = include_str!("snapshots/ether_proto__model__published__published.snap");
        return check_parts(snapshot, &rows, 5, row_of_gains);
    }
    let mut table = table_of_claims();
    table += "\nIOPS of PINoF over i10's, memory, by what is in flight:\n";
    write!(table, "{:23} |", "").expect("a string");
    DEPTHS.iter().for_each(|depth| write!(table, " {depth:5}").expect("a string"));
    table += "\n";
    table.extend(rows.iter().map(row_of_gains));
    insta::with_settings!({omit_expression => true}, { insta::assert_snapshot!(table) });
}

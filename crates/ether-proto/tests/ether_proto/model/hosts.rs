//! Several hosts at one target, each with a core of its own, which cannot see that the target serves others.

use super::fit::FITTED;
use super::load::{LoadOperations, ModelLoad, ms};
use super::run::{ModelScenario, ScenarioOutcome};
use super::table::{AUTO, NONE, policies};
use super::target::ModelStore;
use roadtrain_proto::wait::WaitPolicy;
use std::fmt::Write;

const MEASURED: std::ops::Range<roadtrain_proto::time::Instant> = ms(10)..ms(60);
/// Least throughput of `auto`, relative to `none`, which never splits.
const IOPS_MIN: f64 = 0.97;
/// Hosts and depths at which it has less: two hosts are two parts already, and each send costs the target a receive.
const BEHIND: [(usize, u32, f64); 2] = [(2, 8, 0.88), (2, 16, 0.95)];
/// Largest p99 of `auto`, relative to that of `none`.
const P99_MAX: f64 = 1.25;

fn run(policy: &str, hosts: usize, depth: u32) -> ScenarioOutcome {
    let known = policies().into_iter().find(|(name, _)| *name == policy);
    let (_, policy) = known.expect("one of them");
    let scenario = ModelScenario {
        costs: FITTED,
        waiting: WaitPolicy::Adaptive,
        policy,
        lanes: hosts,
        load: ModelLoad::depth(depth),
        operations: LoadOperations::Reads,
        store: ModelStore::Memory,
        measured: MEASURED,
    };
    scenario.run_with_hosts(hosts)
}

/// With four hosts and more, parts arrive together at a busy target, and cost nothing of what all hosts reach.
#[test]
fn hosts_with_cores_of_their_own() {
    let mut table = String::from(
        "hosts x depth: kIOPS of all, p99 (us), requests a caravan of hosts: none | auto | IOPS and p99 of none\n",
    );
    for hosts in [2, 4, 8] {
        for depth in [1, 8, 16, 24, 32] {
            let [none, auto] = [NONE, AUTO].map(|policy| run(policy, hosts, depth));
            let iops = |outcome: &ScenarioOutcome| outcome.iops(&MEASURED) / 1000.0;
            let p99 = |outcome: &ScenarioOutcome| outcome.latency_us(&MEASURED).1;
            let show = |outcome: &ScenarioOutcome| {
                let each = f64::from(outcome.host.pdus) / f64::from(outcome.host.caravans.max(1));
                format!("{:6.1} {:6.1} {each:5.1}", iops(outcome), p99(outcome))
            };
            let (more, later) = (iops(&auto) / iops(&none), p99(&auto) / p99(&none));
            let (none, auto) = (show(&none), show(&auto));
            writeln!(table, "{hosts} x {depth:2} | {none} | {auto} | {more:.2} {later:.2}")
                .expect("a string");
            let known = BEHIND.iter().find(|behind| (behind.0, behind.1) == (hosts, depth));
            let least = known.map_or(IOPS_MIN, |behind| behind.2);
            assert!(more >= least, "{hosts} x {depth}: {more:.3} of none's IOPS");
            assert!(later <= P99_MAX, "{hosts} x {depth}: {later:.3} of none's p99");
        }
    }
    insta::with_settings!({omit_expression => true}, { insta::assert_snapshot!(table) });
}

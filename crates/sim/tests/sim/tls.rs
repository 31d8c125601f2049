//! Connections with TLS: the real record layer at both ends.

use crate::common::{assert_repeatable, sum_of};
use roadtrain_sim::plan::SimPlan;
use roadtrain_sim::run_changed;
use roadtrain_sim::runs::RunNetwork;
use roadtrain_sim::scenario::{forging, tls};

/// Hosts authenticate over connections with TLS, whose peers change keys, send empty and padded records, and close in
/// order, under all other faults.
#[test]
fn runs_with_tls_end_well() {
    let Some(sum) = sum_of("tls", RunNetwork::Tcp, 50) else { return };
    sum.at_least([
        (sum.tally.succeeded, 5_000),
        (sum.past.retries, 1_000),
        (sum.tls.refused, 30),
        (sum.tls.closed, 50),
    ]);
}

/// Forged data ends its connection, and nothing else does; the checker compares with the data that the peer has sent.
#[test]
fn what_was_forged_is_refused() {
    let Some(sum) = sum_of("forging", RunNetwork::Tcp, 30) else { return };
    sum.at_least([(sum.tally.succeeded, 3_000), (sum.tls.refused, 100), (sum.tls.alerted, 50)]);
}

/// Keys are used up under load: new connections replace those with used-up keys.
#[test]
fn keys_are_renewed_under_load() {
    let Some(sum) = sum_of("renewing", RunNetwork::Tcp, 30) else { return };
    sum.at_least([(sum.tls.used_up, 30), (sum.past.retries, 300)]);
    assert!(sum.past.surrenders == 0, "{sum:?}");
    sum.at_least([(sum.tally.succeeded, 5_000)]);
}

/// The attacks are strong enough: without TLS they change data.
#[test]
fn forging_is_found_without_tls() {
    let plain = |plan: &mut SimPlan| {
        forging(plan);
        plan.tls = false;
    };
    let found = (0..20).filter_map(|seed| run_changed(seed, plain).err());
    let torn = found.filter(|failure| failure.what.contains("torn")).count();
    assert!(torn > 3, "{torn} runs");
}

#[test]
fn a_seed_is_a_run() {
    assert_repeatable(3, |seed| run_changed(seed, tls));
}

//! Block allocation queries: each gets one result.

use super::*;
use roadtrain_host_proto::allocation::AllocationQuery;

const QUERY: AllocationQuery = AllocationQuery { nsid: 1, slba: 10, blocks: 20, ranges: 4 };
const NOTHING: &str = "allocation (1, 7): None";

#[test]
fn a_live_path_gets_one_query_at_a_time() {
    let mut harness = AssociationHarness::live(|_| ());
    harness.association.query_allocation((1, 7), QUERY);
    harness.association.query_allocation((0, 9), AllocationQuery { blocks: 1000, ..QUERY });
    assert!(!harness.association.is_idle());
    let log = harness.act();
    let expected = [
        "Get LBA Status 0",
        "allocation (1, 7): Some((10..30, [10..30]))",
        "Get LBA Status 0",
        // A range beyond the namespace's end.
        "allocation (0, 9): None",
    ];
    assert_eq!(log, expected);
    assert!(harness.association.is_idle() && harness.association.is_live());
}

#[test]
fn a_refused_command_costs_no_path() {
    let mut harness = AssociationHarness::live(|_| ());
    harness.association.query_allocation((1, 7), AllocationQuery { slba: 100, ..QUERY });
    assert_eq!(harness.act(), ["Get LBA Status 0", NOTHING]);
    assert!(harness.association.is_live());
}

#[test]
fn without_a_target_nothing_is_known() {
    let mut harness = AssociationHarness::new(|_| ());
    harness.association.query_allocation((1, 7), QUERY);
    assert_eq!(
        harness
            .association
            .poll(Instant(0))
            .map(|action| matches!(action, AssociationAction::AllocationFound { found: None, .. })),
        Some(true)
    );
    let mut harness = AssociationHarness::live(|_| ());
    harness.association.lane_lost(harness.now, 0, "cut");
    harness.association.query_allocation((1, 7), QUERY);
    assert_eq!(count(&harness.act(), NOTHING), 1);
}

#[test]
fn a_loss_ends_queries_in_flight_and_waiting_ones() {
    let mut harness = AssociationHarness::live(|_| ());
    harness.association.query_allocation((1, 7), QUERY);
    harness.association.query_allocation((2, 8), QUERY);
    harness.target = None;
    let log = harness.act();
    assert_eq!((count(&log, NOTHING), count(&log, "allocation (2, 8): None")), (1, 1), "{log:?}");
    assert_eq!(count(&log, "Get LBA Status"), 1);
    assert_eq!(count(&log, "reset (Get LBA Status: gone)"), 1);
}

#[test]
fn at_the_end_no_query_is_sent() {
    let mut harness = AssociationHarness::live(|_| ());
    harness.association.query_allocation((1, 7), QUERY);
    harness.association.stop(harness.now, false);
    harness.association.query_allocation((2, 8), QUERY);
    let log = harness.act();
    assert_eq!((count(&log, NOTHING), count(&log, "allocation (2, 8): None")), (1, 1), "{log:?}");
    assert_eq!(count(&log, "Get LBA Status"), 0);
}

#[test]
fn what_is_said_of_another_namespace_does_not_count() {
    let mut harness = AssociationHarness::live(|_| ());
    harness.association.lane_lost(harness.now, 0, "cut");
    harness.target = Some(target(2)); // other blocks
    harness.now += LONGEST;
    harness.act();
    assert!(harness.association.is_live());
    harness.association.query_allocation((1, 7), QUERY);
    assert_eq!(harness.act(), [NOTHING]);
}

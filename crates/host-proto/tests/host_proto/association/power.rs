//! Power failure of the target's machine: the next Flush of a namespace with unflushed writes fails once.

use super::{AssociationHarness, LONGEST, booted, count, position};
use roadtrain_host_proto::requests::{
    RequestOutcome, RequestProperties, RequestQueue, RequestTable,
};
use roadtrain_host_proto::retry::RetryRules;
use roadtrain_host_proto::write_verifier::Durability;
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;

#[derive(Debug)]
struct DurabilityRequest(Durability);

impl RequestProperties for DurabilityRequest {
    fn nsid(&self) -> u32 {
        1
    }

    fn durability(&self) -> Durability {
        self.0
    }
}

/// Queue with one entry.
#[derive(Default)]
struct SingleEntryQueue(u32);

impl RequestQueue<DurabilityRequest> for SingleEntryQueue {
    fn room(&self) -> u32 {
        1 - self.0
    }

    fn in_flight(&self) -> u32 {
        self.0
    }

    fn submit(&mut self, _: Instant, _: &mut DurabilityRequest) -> Option<u16> {
        self.0 = 1;
        Some(0)
    }
}

/// Runs a request that succeeds, over a lane that has just been connected.
fn run(harness: &AssociationHarness, durability: Durability) -> Status {
    let mut requests = RequestTable::new(4, None);
    requests.set_writes(harness.writes.clone());
    requests.attach(RetryRules::default(), Default::default());
    requests.take(
        harness.now,
        DurabilityRequest(durability),
        Some(&mut SingleEntryQueue::default()),
    );
    match requests.end(harness.now, 0, Status::SUCCESS, true) {
        Some(RequestOutcome::Ended(ended)) => ended.status,
        other => panic!("{other:?}"),
    }
}

/// Reconnects to a target with this store and verifier. Returns the log.
fn reconnect(
    harness: &mut AssociationHarness,
    store: u128,
    write_verifier: Option<u64>,
) -> Vec<String> {
    harness.now += LONGEST;
    harness.target = Some(booted(store, write_verifier));
    harness.cntlid = 0;
    harness.association.lane_lost(harness.now, 0, "gone");
    harness.act()
}

#[test]
fn a_flush_fails_once_when_the_write_verifier_has_changed() {
    let mut harness = AssociationHarness::new(|_| ());
    harness.target = Some(booted(1, Some(5)));
    harness.act();
    assert_eq!(run(&harness, Durability::NeedsFlush), Status::SUCCESS);
    let log = reconnect(&mut harness, 1, Some(5));
    assert_eq!(count(&log, "writes lost"), 0, "only the process was lost: {log:?}");
    let log = reconnect(&mut harness, 1, Some(6));
    assert!(position(&log, "writes lost [1]") < position(&log, "attach"), "{log:?}");
    assert_eq!(run(&harness, Durability::Flush), Status::WRITE_FAULT.dnr());
    assert_eq!(run(&harness, Durability::Flush), Status::SUCCESS);
    let log = reconnect(&mut harness, 1, Some(7));
    assert_eq!(count(&log, "writes lost"), 0, "nothing was written since: {log:?}");
    // Writes that are stable at their completion.
    assert_eq!(run(&harness, Durability::Unchanged), Status::SUCCESS);
    assert_eq!(count(&reconnect(&mut harness, 1, Some(8)), "writes lost"), 0);
    assert_eq!(run(&harness, Durability::Flush), Status::SUCCESS);
}

#[test]
fn another_namespace_says_nothing_of_lost_writes() {
    let mut harness = AssociationHarness::new(|_| ());
    harness.target = Some(booted(1, Some(5)));
    harness.act();
    run(&harness, Durability::NeedsFlush);
    assert_eq!(count(&reconnect(&mut harness, 2, Some(9)), "writes lost"), 0, "it is stale");
    assert_eq!(count(&reconnect(&mut harness, 1, None), "writes lost"), 0, "not reported");
    assert_eq!(count(&reconnect(&mut harness, 1, Some(5)), "writes lost"), 0, "it is back");
    assert_eq!(count(&reconnect(&mut harness, 1, Some(9)), "writes lost"), 1);
}

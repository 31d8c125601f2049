//! Reply timeouts of an association.

use super::{AssociationHarness, DriverRequest, Duration, KEEP_ALIVE, completed};
use roadtrain_host_proto::association::AssociationAction;
use roadtrain_wire::status::Status;

#[test]
fn a_silent_controller_is_given_up() {
    let mut harness = AssociationHarness::live(|_| ());
    harness.now = harness.association.deadline().unwrap();
    let action = harness.association.poll(harness.now);
    assert!(matches!(action, Some(AssociationAction::Request { .. })), "Keep Alive: {action:?}");
    assert_eq!(harness.association.deadline(), Some(harness.now + KEEP_ALIVE / 2));
    assert_eq!(harness.association.answer_by(), harness.association.deadline());
    let log = harness.act_when_due();
    assert_eq!(log[0], "reset (Keep Alive: no answer in time), was live: true");
    harness.association.answer(harness.now, Ok(completed(Status::SUCCESS, 0, Vec::new())));
    harness.act();
    assert!(harness.association.is_live(), "an answer that is too late means nothing");
}

/// A target whose store does not complete sends no reply to an Abort. It is alive, and the host continues to send Keep
/// Alives.
#[test]
fn an_abort_without_an_answer_holds_up_no_keep_alive() {
    let mut harness = AssociationHarness::live(|_| ());
    harness.answers_aborts = false;
    harness.association.overdue(2, [5, 6]);
    assert_eq!(harness.act(), ["Abort of 5"], "one at a time");
    for _ in 0..10 {
        assert_eq!(harness.act_when_due(), ["Keep Alive 0"]);
    }
    harness.association.aborted();
    assert_eq!(harness.act(), ["Abort of 6"]);
    // The next connection is not affected.
    harness.association.lane_lost(harness.now, 2, "not answered");
    harness.act();
    harness.association.overdue(0, [9]);
    assert_eq!(harness.act(), ["Abort of 9"]);
}

/// Each wait for a silent target ends at the keep-alive timeout at the latest, and no later than requests fail.
#[test]
fn silence_is_noticed_after_the_keep_alive_timeout() {
    let (keep_alive, fast) = (Duration::from_secs(1), Duration::from_secs(3));
    let mut harness = AssociationHarness::live(|config| {
        config.wants.keep_alive = keep_alive;
        config.fast_io_fail_timeout = Some(fast);
    });
    let begun = harness.now;
    let (mut lost_at, mut failed_at) = (None, None);
    for _ in 0..50 {
        while let Some(action) = harness.association.poll(harness.now) {
            match action {
                AssociationAction::Request { ask: DriverRequest::Run { .. }, .. } => {} // no reply
                AssociationAction::FailFast => failed_at = failed_at.or(Some(harness.now)),
                AssociationAction::Reset { was_live: true, .. } => {
                    lost_at = Some(harness.now);
                    harness.association.reset(harness.now);
                }
                action => harness.carry_out(action),
            }
        }
        if failed_at.is_some() {
            break;
        }
        harness.now = harness.association.deadline().unwrap().max(harness.now);
    }
    assert_eq!(lost_at, Some(begun + keep_alive));
    assert_eq!(failed_at, Some(begun + keep_alive + fast));
    assert!(harness.association.answer_by().is_none(), "the attempt ends with that");
}

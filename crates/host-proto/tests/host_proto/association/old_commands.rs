//! Old commands: a write that may still be executed closes its blocks until its controller has ended, or has not been
//! claimed for the quiet time.

use super::*;
use roadtrain_host_proto::association::SiblingConstraints;
use roadtrain_host_proto::bringup::Fencing;

/// Quiet time of a target with traffic-based keep alive.
const QUIET: Duration = Duration::from_secs(15);

/// Returns a path that was lost with a write in flight, and the time of the loss.
fn lost(
    change: impl FnOnce(&mut AssociationConfig),
    prepare: impl FnOnce(&mut AssociationHarness),
) -> (AssociationHarness, Instant) {
    let mut harness = AssociationHarness::live(change);
    harness.now += LONGEST;
    prepare(&mut harness);
    let lost_at = harness.now;
    harness.association.lane_lost(lost_at, 0, "cut");
    (harness, lost_at)
}

/// True if a new write to the same blocks has to wait.
fn is_closed(harness: &AssociationHarness) -> bool {
    harness.guard.blocks(&BLOCKS)
}

/// Runs until the blocks are open. Returns the time.
fn until_open(harness: &mut AssociationHarness) -> Instant {
    for _ in 0..10_000 {
        if !is_closed(harness) {
            return harness.now;
        }
        harness.act_when_due();
    }
    panic!("it stays closed: {:?}", harness.now);
}

fn another_process(harness: &mut AssociationHarness, network: u128) {
    harness.random = RANDOM.rotate_left(13);
    let config = TargetConfig { network, ..config(1) };
    harness.target =
        Some(TargetControl::new(Instant(0), &config).expect("the configuration is valid"));
}

/// The target reports again and again that the write is in its store: no time opens the blocks.
#[test]
fn no_time_opens_blocks_while_the_target_says_that_it_is_in_progress() {
    for has_others in [false, true] {
        let change = |config: &mut AssociationConfig| {
            config.siblings = has_others.then(SiblingConstraints::default);
            config.controller_loss_timeout = None;
        };
        let (mut harness, lost_at) = lost(change, |harness| {
            (harness.has_leftovers, harness.takes) = (true, Duration::from_millis(1));
        });
        harness.act();
        while harness.now.since(lost_at) < QUIET * 10 {
            harness.act_when_due();
            assert!(is_closed(&harness), "after {:?}", harness.now.since(lost_at));
            assert!(!harness.association.is_live());
        }
        harness.has_leftovers = false;
        until_open(&mut harness);
    }
}

/// Connect reports that the controller is busy with old commands of this host: no time opens the blocks.
#[test]
fn no_time_opens_blocks_while_the_controller_is_busy() {
    let (mut harness, lost_at) = lost(|_| (), |harness| harness.is_busy = true);
    harness.act();
    while harness.now.since(lost_at) < QUIET * 3 {
        harness.act_when_due();
        assert!(is_closed(&harness), "after {:?}", harness.now.since(lost_at));
    }
    // The target stops replying: the quiet time counts from its last claim.
    let (claimed_at, target) = (harness.now, harness.target.take());
    let opened_at = until_open(&mut harness);
    assert!(opened_at.since(claimed_at) <= QUIET && opened_at.since(claimed_at) + LONGEST > QUIET);
    harness.target = target;
}

/// A reset in progress that another path has found counts for the path that has lost the controller.
#[test]
fn a_claim_that_another_path_received_counts() {
    let old = OldCommands::default();
    let shared = old.clone();
    let (mut harness, lost_at) = lost(
        |config| {
            config.siblings = Some(SiblingConstraints::default());
            config.old_commands = shared;
        },
        |harness| harness.target = None,
    );
    let instance = bringup::instance(harness.association.info().expect("it was live"));
    harness.act();
    for _ in 0..20 {
        harness.now += QUIET / 3;
        old.claim(harness.now, instance.expect("it reports its instance"));
        harness.act();
        assert!(is_closed(&harness), "after {:?}", harness.now.since(lost_at));
    }
    let claimed_at = harness.now;
    assert_eq!(until_open(&mut harness).since(claimed_at), QUIET);
}

/// The path leads to another process: if that does not know the controller, or does not reset it, this proves nothing.
/// Reads continue.
#[test]
fn another_process_proves_nothing() {
    let status = Status::INVALID_OPCODE.dnr();
    type Prepare = fn(&mut AssociationHarness);
    let cases: [(Prepare, Fencing); 4] = [
        (|harness| another_process(harness, NETWORK + 1), Fencing::Unknown),
        (|harness| another_process(harness, 0), Fencing::Unknown),
        (|harness| harness.resets = ResetReplies::NotOffered, Fencing::NotOffered),
        (
            |harness| harness.resets = ResetReplies::Answered(Status::INVALID_OPCODE.dnr()),
            Fencing::Refused(status),
        ),
    ];
    for (prepare, expected) in cases {
        let (mut harness, lost_at) = lost(|_| (), prepare);
        let log = harness.act();
        assert_eq!(count(&log, &format!("fenced: {expected:?}")), 1, "{log:?}");
        assert_eq!((count(&log, "attach"), count(&log, "release")), (1, 0), "{log:?}");
        assert!(is_closed(&harness) && harness.association.is_live());
        assert_eq!(until_open(&mut harness).since(lost_at), QUIET, "{expected:?}");
    }
    // A process with the endpoint of the controller proves its end.
    let (mut harness, _) = lost(|_| (), |harness| another_process(harness, NETWORK));
    let log = harness.act();
    assert_eq!((count(&log, "fenced: Replaced"), is_closed(&harness)), (1, false), "{log:?}");
}

/// Another path leads to a process with the endpoint of the lost controller, or to any other process.
#[test]
fn another_path_may_lead_to_the_place_of_the_controller() {
    for (network, expected) in [(NETWORK, Fencing::Replaced), (NETWORK + 1, Fencing::Unknown)] {
        let old = OldCommands::default();
        let share = |config: &mut AssociationConfig| {
            (config.siblings, config.old_commands) =
                (Some(SiblingConstraints::default()), old.clone());
        };
        let (mut harness, lost_at) = lost(share, |harness| harness.target = None);
        let info = harness.association.info().expect("it was live");
        let instance = bringup::instance(info).expect("it reports its instance");
        harness.act();
        let mut other = AssociationHarness::new(share);
        other.now = lost_at;
        another_process(&mut other, network);
        other.act();
        other.association.end_for(lost_at, 0, instance);
        let log = other.act();
        let expected_line = format!("for 0, {}: {expected:?}", instance.cntlid);
        assert_eq!(count(&log, &expected_line), 1, "{log:?}");
        // The driver notifies the owner of a controller that has ended.
        if expected.has_ended() {
            harness.association.fenced(instance);
            harness.act();
        }
        assert_eq!(is_closed(&harness), !expected.has_ended());
    }
}

/// A path that leads to another process for a while may return to the process that has the controller.
#[test]
fn the_process_that_has_the_controller_may_be_reached_again() {
    let (mut harness, _) = lost(
        |_| (),
        |harness| {
            let (first, random) = (harness.target.take(), harness.random);
            another_process(harness, NETWORK + 1);
            (harness.first, harness.random) = (first, random.rotate_left(13));
        },
    );
    harness.act();
    assert!(is_closed(&harness));
    (harness.target, harness.random) = (harness.first.take(), RANDOM);
    harness.association.lane_lost(harness.now, 0, "cut");
    let mut log = harness.act();
    log.extend(harness.act_when_due());
    assert_eq!(count(&log, "fenced: Ended"), 1, "{log:?}");
    let is_open = |harness: &AssociationHarness| !is_closed(harness);
    assert!(!is_open(&harness), "that of the other process may still have its own");
}

/// Without keep-alive no time ends a controller.
#[test]
fn without_keep_alive_no_time_opens_blocks() {
    let change = |config: &mut AssociationConfig| config.wants.keep_alive = Duration::ZERO;
    let (mut harness, _) = lost(change, |harness| harness.resets = ResetReplies::NotOffered);
    harness.act();
    assert!(harness.association.is_live());
    harness.now += QUIET * 1000;
    harness.act();
    assert!(is_closed(&harness));
    harness.resets = ResetReplies::Done;
    harness.association.lane_lost(harness.now, 0, "cut");
    harness.act();
    assert!(!is_closed(&harness), "the target has ended both");
}

/// Requests have failed while they may still be executed. The reconnected path does not write the same blocks before
/// the controller has ended.
#[test]
fn what_has_failed_closes_its_blocks() {
    let fast = Duration::from_secs(2);
    let (mut harness, _) = lost(
        |config| config.fast_io_fail_timeout = Some(fast),
        |harness| harness.resets = ResetReplies::NotOffered,
    );
    let target = harness.target.take();
    let mut log = harness.act();
    while count(&log, "fail fast") == 0 {
        log = harness.act_when_due();
    }
    assert!(is_closed(&harness));
    harness.target = target;
    while !harness.association.is_live() {
        harness.act_when_due();
    }
    assert!(is_closed(&harness), "nothing has ended it");
    until_open(&mut harness);
}

/// A path that is removed leaves its blocks closed for the others, until its controller must have ended.
#[test]
fn a_path_that_is_given_up_has_not_ended() {
    let (mut harness, lost_at) = lost(|_| (), |harness| harness.target = None);
    harness.act();
    harness.association.ended(harness.now);
    assert_eq!(harness.act().last().map(String::as_str), Some("end None"));
    assert!(is_closed(&harness));
    let old = OldCommands::default();
    assert!(old.open(lost_at).is_empty());
}

/// Most targets report no controller instance, so no path can end the controllers that an earlier process has left.
#[test]
fn an_inherited_controller_without_a_name_ends_by_time() {
    for is_brought_up in [false, true] {
        let mut first = AssociationHarness::live(|_| ());
        let _ = first.guard.record(vec![BLOCKS]);
        let mut open = first.old.open(first.now).remove(0);
        open.controller.instance = None;
        let (old, mut config) = (OldCommands::default(), None);
        let serial = old.inherit(first.now, open.clone());
        let shared = old.clone();
        let mut next = AssociationHarness::new(|of| {
            of.old_commands = shared;
            config = Some(of.clone());
        });
        if is_brought_up {
            let info = first.association.info().expect("it is live");
            let info = bringup::ControllerInfo::clone(info);
            let config = config.expect("there is one");
            old.end(serial); // the association of the harness has taken it
            old.inherit(next.now, open);
            next.association = HostAssociation::brought_up(next.now, config, info, None);
        }
        next.target = first.target.take();
        next.act();
        let due = old.due().expect("time ends it");
        assert!(due > next.now);
        old.expire(due);
        assert!(old.open(due).is_empty());
    }
}

/// A later process ends the controllers of an earlier one first, also if its admin queue is already connected.
#[test]
fn a_later_process_has_the_controller_ended_first() {
    for is_brought_up in [false, true] {
        let mut first = AssociationHarness::live(|_| ());
        let _ = first.guard.record(vec![BLOCKS]);
        let open = first.old.open(first.now);
        assert_eq!((open.len(), &open[0].ranges[..]), (1, &[BLOCKS][..]));
        let (old, mut config) = (OldCommands::default(), None);
        old.inherit(first.now, open[0].clone());
        let shared = old.clone();
        let mut next = AssociationHarness::new(|of| {
            of.old_commands = shared;
            config = Some(of.clone());
        });
        if is_brought_up {
            let info = first.association.info().expect("it is live");
            let info = bringup::ControllerInfo::clone(info);
            let config = config.expect("there is one");
            old.inherit(first.now, open[0].clone());
            next.association = HostAssociation::brought_up(next.now, config, info, None);
            next.cntlid = super::siblings::another(&mut first).cntlid;
        }
        next.target = first.target.take();
        let log = next.act();
        let reset = position(&log, "Cross-Controller Reset 0");
        let ended = position(&log, "fenced: Ended");
        assert!(reset < ended && ended < position(&log, "open 1"), "{log:?}");
    }
}

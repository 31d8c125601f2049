//! An association with other associations of the same host: when its requests may move, and its resets for others.

use super::*;
use roadtrain_host_proto::association::SiblingConstraints;
use roadtrain_host_proto::bringup::NamespaceInfo;
use roadtrain_target_proto::{AnaListener, AnaState, TargetListener, TlsUse};
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, Connect, ConnectData, Property, property};
use roadtrain_wire::identify::IdentifyController;
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};

/// Configures another path to the same namespaces.
fn with_others(config: &mut AssociationConfig) {
    config.siblings = Some(SiblingConstraints::default());
}

#[test]
fn requests_are_free_when_the_target_has_ended_the_controller() {
    let mut harness = AssociationHarness::live(with_others);
    harness.now += LONGEST;
    harness.association.lane_lost(harness.now, 0, "cut");
    let log = harness.act();
    assert_eq!(count(&log, "release"), 1);
    assert!(position(&log, "fenced: Ended") < position(&log, "release"));
    assert!(position(&log, "release") < position(&log, "open 1"), "others need not wait for lanes");
}

#[test]
fn requests_are_free_when_the_controller_must_have_noticed() {
    let mut harness = AssociationHarness::live(with_others);
    harness.now += LONGEST;
    let lost_at = harness.now;
    harness.target = None;
    harness.association.lane_lost(lost_at, 0, "silent");
    let mut log = harness.act();
    while count(&log, "release") == 0 {
        log = harness.act_when_due();
    }
    // The target uses traffic-based keep alive, and reports no Command Quiesce Time.
    assert_eq!(harness.now.since(lost_at), KEEP_ALIVE * 3);
    for _ in 0..10 {
        assert_eq!(count(&harness.act_when_due(), "release"), 0, "once");
    }
    let mut alone = AssociationHarness::live(|config| {
        with_others(config);
        config.wants.keep_alive = Duration::ZERO;
    });
    alone.target = None;
    alone.association.lane_lost(alone.now, 0, "silent");
    alone.act();
    for _ in 0..20 {
        assert_eq!(count(&alone.act_when_due(), "release"), 0, "nothing ends it");
    }
}

#[test]
fn requests_are_free_when_another_path_has_ended_the_controller() {
    let mut harness = AssociationHarness::live(with_others);
    let lost = instance_of(&harness);
    harness.association.fenced(lost);
    assert_eq!(count(&harness.act(), "release"), 0, "it lives");
    harness.target = None;
    harness.association.lane_lost(harness.now, 0, "silent");
    let log = harness.act();
    assert!(position(&log, "reset") < position(&log, &format!("end elsewhere {lost:?}")));
    assert_eq!(count(&harness.act_when_due(), "end elsewhere"), 0, "once");
    harness.association.fenced(ControllerInstance { cirn: lost.cirn ^ 1, ..lost });
    assert_eq!(count(&harness.act(), "release"), 0, "another one");
    harness.association.repeat_sibling_resets();
    assert_eq!(count(&harness.act(), "end elsewhere"), 1, "a new path may do it");
    harness.association.fenced(lost);
    assert_eq!(count(&harness.act(), "release"), 1);
    harness.association.fenced(lost);
    assert_eq!(count(&harness.act(), "release"), 0, "once");
    harness.association.repeat_sibling_resets();
    assert_eq!(count(&harness.act(), "end elsewhere"), 0, "it has ended");
}

fn instance_of(harness: &AssociationHarness) -> ControllerInstance {
    bringup::instance(harness.association.info().expect("it was live"))
        .expect("it reports its instance")
}

/// Connects another controller of the same host, which no path uses.
pub(super) fn another(harness: &mut AssociationHarness) -> ControllerInstance {
    let (target, now) = (harness.target.as_mut().expect("it is there"), harness.now);
    let data = ConnectData::new([7; 16], CNTLID_DYNAMIC, NQN, "nqn.2026-11.test:host");
    let sqe = Connect { recfmt: 0, qid: 0, sqsize: 31, cattr: 0, kato_ms: 0 }.emit();
    let connected = target.connect(now, &sqe, data.as_bytes(), LOCAL, RANDOM ^ 77);
    let cntlid = connected.expect("connected").cntlid;
    let own = std::mem::replace(&mut harness.cntlid, cntlid);
    let mut identify = Sqe::new(opcode::IDENTIFY, 0);
    identify.cdw10 = u32::from(cns::CONTROLLER).into();
    let enable = Property::set(property::CC, 1 | 6 << 16 | 4 << 20);
    harness.run(0, &ControllerCommand::new("enable", enable));
    let command =
        ControllerCommand { bytes_in: 4096, ..ControllerCommand::new("Identify", identify) };
    let Some(DriverReply::Completed { data, .. }) = harness.run(0, &command) else {
        panic!("no page")
    };
    harness.cntlid = own;
    let page = IdentifyController::ref_from_bytes(&data).expect("a page");
    ControllerInstance { cntlid, ciu: page.ciu, cirn: page.cirn.get() }
}

#[test]
fn a_controller_that_another_path_has_lost_is_ended_over_a_live_path() {
    let mut harness = AssociationHarness::live(with_others);
    let lost = another(&mut harness);
    harness.association.end_for(harness.now, 7, lost);
    let log = harness.act();
    assert_eq!(log, ["Cross-Controller Reset 0", &format!("for 7, {}: Ended", lost.cntlid)]);
    assert!(harness.association.is_idle());
    // A reset of a controller that has ended before succeeds.
    harness.association.end_for(harness.now, 7, lost);
    assert_eq!(count(&harness.act(), "for 7"), 1);
    // A withdrawn reset is not carried out.
    harness.association.end_for(harness.now, 7, lost);
    harness.association.withdraw(7);
    assert_eq!(harness.act(), Vec::<String>::new());
}

/// Commands in a store may still be executed: requests move only after their end.
#[test]
fn a_controller_with_commands_in_a_store_has_not_ended_for_other_paths() {
    let mut harness = AssociationHarness::live(with_others);
    let lost = another(&mut harness);
    (harness.has_leftovers, harness.takes) = (true, Duration::from_millis(1));
    harness.association.end_for(harness.now, 7, lost);
    let mut log = harness.act();
    for _ in 0..200 {
        log.extend(harness.act_when_due());
    }
    assert_eq!((count(&log, "for 7"), count(&log, "reset")), (0, 0), "{log:?}");
    let queries = count(&log, "Cross-Controller Reset 0");
    assert!(
        count(&log, "Keep Alive 0") > 0 && queries > 2 * count(&log, "Keep Alive 0"),
        "{log:?}"
    );
    harness.has_leftovers = false;
    let mut log = Vec::new();
    for _ in 0..20 {
        log.extend(harness.act_when_due());
    }
    assert_eq!(count(&log, &format!("for 7, {}: Ended", lost.cntlid)), 1);
}

/// Another process may have the controller: it does not count as ended, and only another process is queried again.
#[test]
fn a_controller_that_the_target_has_never_had_has_not_ended() {
    let mut harness = AssociationHarness::live(with_others);
    let lost = ControllerInstance { cntlid: 99, ciu: 5, cirn: 1 };
    harness.association.end_for(harness.now, 7, lost);
    let log = harness.act();
    assert_eq!(count(&log, "for 7, 99: Unknown"), 1, "{log:?}");
    for _ in 0..10 {
        assert_eq!(count(&harness.act_when_due(), "Cross-Controller Reset"), 0, "it was queried");
    }
    harness.association.lane_lost(harness.now, 0, "cut");
    let mut log = harness.act();
    for _ in 0..20 {
        log.extend(harness.act_when_due());
    }
    assert_eq!(count(&log, "for 7, 99: Unknown"), 1, "{log:?}");
}

/// A restarted target does not know the controller that its predecessor had at the same address.
#[test]
fn a_controller_ends_with_the_process_that_had_it() {
    let mut harness = AssociationHarness::live(with_others);
    harness.random = RANDOM.rotate_left(13);
    harness.target = Some(target(1));
    harness.now += LONGEST;
    harness.association.lane_lost(harness.now, 0, "cut");
    let log = harness.act();
    assert_eq!((count(&log, "fenced: Replaced"), count(&log, "release")), (1, 1), "{log:?}");
    assert!(!harness.guard.is_closed());
}

#[test]
fn a_namespace_that_another_path_does_not_see_is_stale() {
    let other = NamespaceInfo { nsid: 1, nguid: [9; 16], block_bytes: 512, ..Default::default() };
    let mut harness = AssociationHarness::new(|config| {
        config.siblings = Some(SiblingConstraints {
            namespaces: vec![other],
            transfer_bytes: 1,
            ..SiblingConstraints::default()
        })
    });
    let log = harness.act();
    assert_eq!(count(&log, "attach, stale [1]"), 1, "{log:?}");
}

/// ANA Change ends within ANATT, 10 s of this target. The event for its end may be lost.
#[test]
fn a_transition_that_lasts_too_long_is_inaccessible() {
    let listeners =
        vec![TargetListener { portid: 1, address: LOCAL, tls: TlsUse::Off, named_only: false }];
    let listener = AnaListener::Tcp(LOCAL);
    let mut harness = AssociationHarness::new(with_others);
    let config = TargetConfig {
        listeners,
        ana: [(listener, AnaState::Change)].into_iter().collect(),
        ..config(1)
    };
    harness.target =
        Some(TargetControl::new(Instant(0), &config).expect("the configuration is valid"));
    let log = harness.act();
    assert_eq!(count(&log, "ana [(1, Change)]"), 1, "{log:?}");
    let begun = harness.now;
    let mut log = Vec::new();
    while count(&log, "ana") == 0 {
        log = harness.act_when_due();
    }
    assert_eq!(harness.now.since(begun), Duration::from_secs(10));
    assert_eq!(count(&log, "ana [(1, Inaccessible)]"), 1, "{log:?}");
    assert_eq!((count(&log, "late [1]"), count(&log, "listen")), (1, 0), "{log:?}");
    // The harness does not receive the event.
    let state = Some(AnaState::Optimized);
    let target = harness.target.as_mut().expect("it is there");
    target.apply(&[ConfigOperation::SetAna { listener, state }]).expect("it listens there");
    let mut log = Vec::new();
    while count(&log, "ana") == 0 {
        log = harness.act_when_due();
    }
    assert_eq!((count(&log, "ana [(1, Optimized)]"), count(&log, "late")), (1, 0), "{log:?}");
}

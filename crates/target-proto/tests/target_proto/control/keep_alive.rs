//! Keep Alive Timer: its restarts, and the effect of its expiry.

use super::script::{HOST, HOSTID, NQN, Script, connect_sqe};
use roadtrain_target_proto::{CloseReason, TargetEvent};
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, Connect, ConnectData, DISCOVERY_NQN};
use roadtrain_wire::feature::{SetFeatures, fid};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn expired(cntlid: u16, qid: u16) -> TargetEvent {
    TargetEvent::Close { cntlid, qid, reason: CloseReason::KeepAliveExpired }
}

/// Wakes the target at each timeout, until it has events or no timer runs.
fn wait_for_timeout(script: &mut Script) -> Vec<TargetEvent> {
    while let Some(at) = script.target.poll_timeout() {
        assert!(at >= script.now, "a timer that runs is not in the past");
        script.now = at;
        script.target.handle_timeout(at);
        let events = script.events();
        if !events.is_empty() {
            return events;
        }
    }
    Vec::new()
}

#[test]
fn a_silent_host_loses_its_controller() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    script.connect_io(cntlid, 1).unwrap();
    script.connect_io(cntlid, 7).unwrap();
    assert_eq!(script.target.poll_timeout(), Some(script.now + 5 * SECOND));
    script.wait(5 * SECOND - Duration::from_nanos(1));
    script.target.handle_timeout(script.now);
    assert_eq!(script.events(), []);
    let events = wait_for_timeout(&mut script);
    assert_eq!(events, [expired(cntlid, 1), expired(cntlid, 7), expired(cntlid, 0)]);
    assert_eq!(script.target.poll_timeout(), None);
    let answer = script.submit(cntlid, Sqe::new(opcode::KEEP_ALIVE, 0)).unwrap();
    assert_eq!(answer.status, Status::ABORTED_SQ_DELETION);
    assert!(script.connect_io(cntlid, 2).is_err());
}

#[test]
fn commands_keep_the_controller_alive() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    for _ in 0..3 {
        script.wait(4 * SECOND);
        script.succeed(cntlid, Sqe::new(opcode::KEEP_ALIVE, 0));
        script.target.handle_timeout(script.now);
    }
    script.wait(4 * SECOND);
    script.fail(cntlid, Sqe::new(0x6c, 0), Status::INVALID_OPCODE);
    let last = script.now;
    assert_eq!(wait_for_timeout(&mut script), [expired(cntlid, 0)]);
    assert_eq!(script.now, last + 5 * SECOND, "failed ones too");
}

#[test]
fn io_traffic_keeps_the_controller_alive() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let shared = script.connect_io(cntlid, 1).unwrap().shared;
    for _ in 0..3 {
        shared.mark_traffic();
        shared.mark_traffic();
        script.now = script.target.poll_timeout().expect("a timer runs");
        script.target.handle_timeout(script.now);
        assert_eq!(script.events(), []);
    }
    assert_eq!(wait_for_timeout(&mut script), [expired(cntlid, 1), expired(cntlid, 0)]);
}

/// A suspended target has not checked the timer: earlier traffic does not count.
#[test]
fn a_timer_that_was_not_checked_for_two_periods_has_expired() {
    for (periods, lives) in [(5 * SECOND, true), (10 * SECOND, false)] {
        let mut script = Script::new();
        let cntlid = script.controller(NQN);
        let shared = script.connect_io(cntlid, 1).unwrap().shared;
        shared.mark_traffic();
        script.wait(periods);
        script.target.handle_timeout(script.now);
        let ended = [expired(cntlid, 1), expired(cntlid, 0)];
        assert_eq!(script.events(), if lives { &[][..] } else { &ended });
        assert_eq!(shared.has_expired(), !lives);
    }
}

/// A command does not count either if its lane has not checked the timers.
#[test]
fn a_command_after_two_periods_does_not_restart_the_timer() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    script.connect_io(cntlid, 1).unwrap();
    script.wait(10 * SECOND);
    assert!(script.connect_io(cntlid, 2).is_err());
    assert_eq!(script.events(), [expired(cntlid, 1), expired(cntlid, 0)]);
    let cntlid = script.controller(NQN);
    script.wait(10 * SECOND);
    let answer = script.submit(cntlid, Sqe::new(opcode::KEEP_ALIVE, 0)).unwrap();
    assert_eq!(answer.status, Status::ABORTED_SQ_DELETION);
    assert_eq!(script.events(), [expired(cntlid, 0)]);
}

#[test]
fn the_timer_can_be_changed_and_left_out() {
    let mut script = Script::new();
    let data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, NQN, HOST);
    let without = Connect { kato_ms: 0, ..connect_sqe(0, 31) };
    let cntlid = script.connect(without, &data).unwrap().cntlid;
    script.enable(cntlid);
    assert_eq!(script.target.poll_timeout(), None);
    script.succeed(cntlid, SetFeatures::emit(fid::KEEP_ALIVE_TIMER, 250));
    assert_eq!(script.target.poll_timeout(), Some(script.now + Duration::from_millis(300)));
}

#[test]
fn an_idle_discovery_controller_ends_in_two_minutes() {
    let mut script = Script::new();
    let data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, DISCOVERY_NQN, HOST);
    let without = Connect { kato_ms: 0, ..connect_sqe(0, 31) };
    let cntlid = script.connect(without, &data).unwrap().cntlid;
    assert_eq!(script.target.poll_timeout(), Some(script.now + 120 * SECOND));
    assert_eq!(wait_for_timeout(&mut script), [expired(cntlid, 0)]);
}

#[test]
fn only_the_silent_ones_end() {
    let mut script = Script::new();
    let silent = script.controller(NQN);
    script.wait(SECOND);
    let alive = script.controller(NQN);
    assert_eq!(wait_for_timeout(&mut script), [expired(silent, 0)]);
    script.succeed(alive, Sqe::new(opcode::KEEP_ALIVE, 0));
}

//! Abort of Asynchronous Event Requests, and of I/O commands on a lane.

use super::script::{CC_ENABLE, NQN, Script};
use roadtrain_target_proto::{CloseReason, TargetEvent};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;

/// Returns the Abort of command `cid` of queue `sqid`.
fn abort(sqid: u16, cid: u16) -> Sqe {
    let mut sqe = Sqe::new(opcode::ABORT, 0);
    sqe.cdw10 = (u32::from(sqid) | u32::from(cid) << 16).into();
    sqe
}

fn completion(cntlid: u16, cid: u16, status: Status, result: u64) -> TargetEvent {
    TargetEvent::Completion { cntlid, cid, status, result }
}

/// Connects a controller with queues 1 and 2.
fn with_queues(script: &mut Script) -> u16 {
    let cntlid = script.controller(NQN);
    for qid in [1, 2] {
        script.connect_io(cntlid, qid).unwrap();
    }
    cntlid
}

/// Starts the Abort of a command of queue `qid`. Returns its identifier, and its number for the lane.
fn begin(script: &mut Script, cntlid: u16, qid: u16) -> (u16, u32) {
    assert_eq!(script.submit(cntlid, abort(qid, 0x55)), None);
    let events = script.events();
    let [TargetEvent::Abort { id, .. }] = events[..] else { panic!("{events:?}") };
    assert_eq!(events, [TargetEvent::Abort { cntlid, qid, cid: 0x55, id }]);
    (script.cid(), id)
}

#[test]
fn an_aborted_event_request_ends_before_its_abort() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    assert_eq!(script.submit(cntlid, Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0)), None);
    let request = script.cid();
    assert_eq!(script.succeed(cntlid, abort(0, 0x7777)).result, 1, "no such command");
    assert_eq!(script.events(), []);
    assert_eq!(script.submit(cntlid, abort(0, request)), None);
    let status = Status::ABORT_REQUESTED;
    let expected = [
        TargetEvent::EventCompletion { cntlid, cid: request, status, result: 0 },
        completion(cntlid, script.cid(), Status::SUCCESS, 0),
    ];
    assert_eq!(script.events(), expected);
    assert_eq!(script.succeed(cntlid, abort(0, request)).result, 1, "aborted already");
}

#[test]
fn the_lane_says_whether_a_command_was_aborted() {
    let mut script = Script::new();
    let cntlid = with_queues(&mut script);
    assert_eq!(script.succeed(cntlid, abort(3, 1)).result, 1, "no such queue");
    for (aborted, result) in [(true, 0), (false, 1)] {
        let (cid, id) = begin(&mut script, cntlid, 1);
        script.target.aborted(cntlid, id, aborted);
        assert_eq!(script.events(), [completion(cntlid, cid, Status::SUCCESS, result)]);
        script.target.aborted(cntlid, id, true);
        assert_eq!(script.events(), [], "answered once");
    }
}

#[test]
fn aborts_under_way_are_limited() {
    let mut script = Script::new();
    let cntlid = with_queues(&mut script);
    let first: Vec<_> = (0..4).map(|_| begin(&mut script, cntlid, 1)).collect();
    let answer = script.submit(cntlid, abort(1, 0x55)).unwrap();
    assert_eq!(answer.status, Status::ABORT_LIMIT_EXCEEDED, "may be tried again");
    script.target.aborted(cntlid, first[2].1, true);
    assert_eq!(script.events(), [completion(cntlid, first[2].0, Status::SUCCESS, 0)]);
    begin(&mut script, cntlid, 2);
}

/// Nothing is left to abort, and no lane to report the result.
#[test]
fn aborts_end_with_the_queue_that_they_wait_for() {
    let mut script = Script::new();
    let cntlid = with_queues(&mut script);
    let (lost, _) = begin(&mut script, cntlid, 1);
    let (stays, id) = begin(&mut script, cntlid, 2);
    script.target.disconnect(cntlid, 1);
    assert_eq!(script.events(), [completion(cntlid, lost, Status::SUCCESS, 1)]);
    script.set_cc(cntlid, CC_ENABLE & !1);
    let reason = CloseReason::ControllerReset;
    let expected = [
        completion(cntlid, stays, Status::ABORT_REQUESTED, 0),
        TargetEvent::Close { cntlid, qid: 2, reason },
    ];
    assert_eq!(script.events(), expected);
    script.target.aborted(cntlid, id, true);
    assert_eq!(script.events(), [], "too late");
}

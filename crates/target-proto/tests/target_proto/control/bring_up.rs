//! Steps of the Linux host from Connect to disconnect.

use super::script::{CC_ENABLE, NQN, Script};
use roadtrain_target_proto::{AdminOutcome, CloseReason, TargetEvent};
use roadtrain_wire::ana::ana_groups;
use roadtrain_wire::fabrics::{Property, PropertySize, fabrics_sqe, fctype, property};
use roadtrain_wire::feature::{SetFeatures, fid};
use roadtrain_wire::identify::{IdentifyController, NSID_ALL, NamespaceList, cns};
use roadtrain_wire::log::{CommandEffectsLog, GetLogPage, lid};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;

fn identify(cns: u8, nsid: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode::IDENTIFY, nsid);
    sqe.cdw10 = u32::from(cns).into();
    sqe.set_transport(4096);
    sqe
}

#[test]
fn linux_connects_uses_and_leaves() {
    let mut script = Script::new();
    let cntlid = script.connect_as(super::script::HOST, NQN).unwrap().cntlid;
    let cap = script.succeed(cntlid, Property::get(property::CAP, PropertySize::Eight)).result;
    assert_eq!((cap & 0xffff, cap >> 37 & 0xff), (1023, 0b0100_0001));
    script.set_cc(cntlid, CC_ENABLE & !1);
    assert_eq!(script.csts(cntlid), 0);
    script.enable(cntlid);
    let vs = script.succeed(cntlid, Property::get(property::VS, PropertySize::Four)).result;
    assert_eq!(vs, 0x0002_0100);

    let answer = script.succeed(cntlid, identify(cns::CONTROLLER, 0));
    let controller: &IdentifyController = answer.page();
    assert!(controller.mnan.get() > 0 && controller.mnan.get() <= controller.nn.get());
    let answer = script.succeed(cntlid, GetLogPage::new(lid::COMMAND_EFFECTS, 4096).emit(0));
    assert_eq!(answer.page::<CommandEffectsLog>().io[2].get() & 1, 1, "Read is supported");
    // Linux sizes the ANA log for MNAN namespaces and NANAGRPID groups.
    let ana_bytes = 16 + 32 * controller_groups(controller) + 4 * controller.mnan.get();
    let answer = script.succeed(cntlid, GetLogPage::new(lid::ANA, ana_bytes).emit(NSID_ALL));
    let groups = ana_groups(&answer.data);
    assert!(groups.map(|(group, nsids)| (group.grpid.get(), nsids.len())).eq([(1, 2)]));

    let queues = script.succeed(cntlid, SetFeatures::emit(fid::NUMBER_OF_QUEUES, 0x0001_0001));
    assert_eq!(queues.result, 0x007f_007f);
    for qid in [1, 2] {
        let queue = script.connect_io(cntlid, qid).unwrap();
        assert_eq!((queue.entries, queue.sq_flow_control), (128, true));
    }
    script.succeed(cntlid, SetFeatures::emit(fid::ASYNC_EVENT_CONFIG, 0x900));
    assert_eq!(script.submit(cntlid, Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0)), None);
    script.succeed(cntlid, identify(cns::CONTROLLER_COMMAND_SET, 0));
    let answer = script.succeed(cntlid, identify(cns::ACTIVE_NAMESPACES, 0));
    assert!(answer.page::<NamespaceList>().iter().eq([1, 3]));
    for cns in [cns::NAMESPACE_DESCRIPTORS, cns::NAMESPACE_INDEPENDENT, cns::NAMESPACE] {
        script.succeed(cntlid, identify(cns, 1));
    }
    script.succeed(cntlid, Sqe::new(opcode::KEEP_ALIVE, 0));

    script.set_cc(cntlid, CC_ENABLE | 1 << 14);
    assert_eq!(script.csts(cntlid) >> 2 & 3, 2, "shutdown complete");
    assert_eq!(script.events(), []);
    script.target.disconnect(cntlid, 0);
    let reason = CloseReason::AdminQueueLost;
    let close = |qid| TargetEvent::Close { cntlid, qid, reason };
    assert_eq!(script.events(), [close(1), close(2)]);
    script.target.handle_timeout(script.now);
    assert_eq!(script.target.poll_timeout(), None, "nothing is left of it");
}

fn controller_groups(controller: &IdentifyController) -> u32 {
    controller.nanagrpid.get()
}

#[test]
fn before_it_is_enabled_a_controller_takes_fabrics_commands_only() {
    let mut script = Script::new();
    let cntlid = script.connect_as(super::script::HOST, NQN).unwrap().cntlid;
    let sequence = Status::COMMAND_SEQUENCE_ERROR;
    script.fail(cntlid, identify(cns::CONTROLLER, 0), sequence);
    script.fail(cntlid, Sqe::new(opcode::KEEP_ALIVE, 0), sequence);
    script.enable(cntlid);
    script.succeed(cntlid, identify(cns::CONTROLLER, 0));
    script.set_cc(cntlid, CC_ENABLE | 1 << 14);
    script.fail(cntlid, identify(cns::CONTROLLER, 0), sequence);
}

#[test]
fn a_reset_ends_queues_and_requests_but_not_the_controller() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let shared = script.connect_io(cntlid, 1).unwrap().shared;
    script.succeed(cntlid, SetFeatures::emit(fid::ASYNC_EVENT_CONFIG, 0x900));
    script.succeed(cntlid, SetFeatures::emit(fid::VOLATILE_WRITE_CACHE, 0));
    assert!(shared.is_write_through());
    script.submit(cntlid, Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0));
    let cid = script.cid();
    script.set_cc(cntlid, CC_ENABLE & !1);
    let status = Status::ABORT_REQUESTED;
    let reason = CloseReason::ControllerReset;
    let expected = [
        TargetEvent::EventCompletion { cntlid, cid, status, result: 0 },
        TargetEvent::Close { cntlid, qid: 1, reason },
    ];
    assert_eq!(script.events(), expected);
    assert!(!shared.is_write_through());
    script.target.drained(cntlid);
    script.enable(cntlid);
    script.connect_io(cntlid, 1).unwrap();
}

/// RDY stays until no lane has a command in a store, however the lanes end.
#[test]
fn a_reset_is_over_when_no_command_is_in_a_store() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    for qid in 1..=3 {
        script.connect_io(cntlid, qid).unwrap();
    }
    // One lane ends by Disconnect with commands in a store.
    let disconnect = fabrics_sqe(fctype::DISCONNECT);
    let ended = script.target.fabrics_command(script.now, cntlid, 3, &disconnect);
    assert_eq!(ended, AdminOutcome::Disconnected);
    script.set_cc(cntlid, CC_ENABLE & !1);
    assert_eq!(script.csts(cntlid), 1, "commands may be in a store");
    script.fail(cntlid, Sqe::new(opcode::KEEP_ALIVE, 0), Status::COMMAND_SEQUENCE_ERROR);
    script.target.drained(cntlid);
    script.target.disconnect(cntlid, 2); // lost before it learnt of the reset
    assert_eq!(script.csts(cntlid), 1);
    assert!(script.connect_io(cntlid, 4).is_err(), "it is being reset");
    script.target.drained(cntlid);
    assert_eq!(script.csts(cntlid), 0);
    script.enable(cntlid);
    script.connect_io(cntlid, 1).unwrap();
}

#[test]
fn a_controller_enabled_in_the_middle_of_its_reset_is_ready_after_it() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    script.connect_io(cntlid, 1).unwrap();
    script.set_cc(cntlid, CC_ENABLE & !1);
    script.set_cc(cntlid, CC_ENABLE);
    assert!(script.connect_io(cntlid, 1).is_err());
    script.target.drained(cntlid);
    assert_eq!(script.csts(cntlid), 1);
    script.connect_io(cntlid, 1).unwrap();
}

/// The target flushes, and reports the shutdown as complete only then.
#[test]
fn a_shutdown_waits_for_the_commands_in_a_store() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    for qid in 1..=3 {
        script.connect_io(cntlid, qid).unwrap();
    }
    let disconnect = fabrics_sqe(fctype::DISCONNECT);
    script.target.fabrics_command(script.now, cntlid, 3, &disconnect);
    assert!(!script.target.quiesce(cntlid));
    let quiesce = |qid| TargetEvent::Quiesce { cntlid, qid };
    assert_eq!(script.events(), [quiesce(1), quiesce(2)]);
    assert_eq!(script.csts(cntlid) >> 2 & 3, 1, "shutdown occurring");
    assert!(script.connect_io(cntlid, 4).is_err());
    script.target.quiesced(cntlid, 1);
    assert!(!script.target.quiesce(cntlid));
    script.target.disconnect(cntlid, 2);
    assert!(!script.target.quiesce(cntlid), "the disconnected lane has not reported yet");
    script.target.drained(cntlid);
    assert!(script.target.quiesce(cntlid));
    assert_eq!(script.events(), [], "reported once");
    assert_eq!(script.csts(cntlid) >> 2 & 3, 1);
    script.set_cc(cntlid, CC_ENABLE | 1 << 14);
    assert_eq!(script.csts(cntlid) >> 2 & 3, 2, "shutdown complete");
    assert!(script.target.quiesce(77), "no command waits for a controller that is gone");
}

#[test]
fn fabrics_commands_on_connected_queues() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    script.fail(cntlid, fabrics_sqe(fctype::CONNECT), Status::COMMAND_SEQUENCE_ERROR);
    script.fail(cntlid, fabrics_sqe(fctype::DISCONNECT), Status::INVALID_QUEUE_TYPE);
    for unknown in [fctype::AUTHENTICATION_SEND, fctype::AUTHENTICATION_RECEIVE, 0x77] {
        script.fail(cntlid, fabrics_sqe(unknown), Status::INVALID_OPCODE);
    }
    let nssr = Property::set(property::NSSR, 0x4e56_4d65);
    script.fail(cntlid, nssr, Status::INVALID_FIELD);

    script.connect_io(cntlid, 1).unwrap();
    let now = script.now;
    let mut on_io = |sqe: Sqe| script.target.fabrics_command(now, cntlid, 1, &sqe);
    let failed = |status: Status| AdminOutcome::Complete { status: status.dnr(), result: 0 };
    let get = Property::get(property::CSTS, PropertySize::Four);
    assert_eq!(on_io(get), failed(Status::INVALID_OPCODE));
    assert_eq!(on_io(fabrics_sqe(fctype::CONNECT)), failed(Status::COMMAND_SEQUENCE_ERROR));
    let mut wrong_format = fabrics_sqe(fctype::DISCONNECT);
    wrong_format.cdw10 = 1.into();
    assert_eq!(on_io(wrong_format), failed(Status::CONNECT_INCOMPATIBLE_FORMAT));
    assert_eq!(on_io(fabrics_sqe(fctype::DISCONNECT)), AdminOutcome::Disconnected);
    script.connect_io(cntlid, 1).unwrap();
}

#[test]
fn unknown_and_malformed_commands() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    for unknown in [0x00, 0x01, 0x04, 0x05, 0x0d, 0x10, 0x11, 0x15, 0x1a, 0x6c, 0x80, 0x84, 0xff] {
        script.fail(cntlid, Sqe::new(unknown, 1), Status::INVALID_OPCODE);
    }
    for flags in [0x00, 0x41, 0x42, 0x80, 0xc0] {
        let sqe = Sqe { flags, ..identify(cns::CONTROLLER, 0) };
        script.fail(cntlid, sqe, Status::INVALID_FIELD);
    }
}

#[test]
fn commands_for_a_controller_that_is_gone_end() {
    let mut script = Script::new();
    let answer = script.submit(77, Sqe::new(opcode::KEEP_ALIVE, 0)).unwrap();
    assert_eq!(answer.status, Status::ABORTED_SQ_DELETION);
    script.target.disconnect(77, 0);
    script.target.disconnect(77, 5);
    assert_eq!(script.events(), []);
}

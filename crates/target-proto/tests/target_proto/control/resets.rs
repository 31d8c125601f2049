//! Cross-Controller Reset: which host may end which controller, and when the result is reported.

use super::script::{HOST, HOSTID, NQN, PRIVATE_NQN, RANDOM, STRANGER, Script, connect_sqe, local};
use core::time::Duration;
use proptest::prelude::*;
use roadtrain_target_proto::{CloseReason, TargetEvent};
use roadtrain_wire::cross_reset::{
    ControllerInstance, CrossResetEntry, IMMEDIATE, LOG_BYTES, REMOVE_COMPLETED, entries,
    reset_status,
};
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, ConnectData};
use roadtrain_wire::feature::{AsyncEvent, SetFeatures, fid, notice};
use roadtrain_wire::identify::{IDENTIFY_BYTES, IdentifyController, cns, oaes};
use roadtrain_wire::log::{GetLogPage, lid};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;

const DONE: (Status, u64) = (Status::SUCCESS, IMMEDIATE as u64);
const NOT_YET: (Status, u64) = (Status::SUCCESS, 0);
const WAIT_MAX: Duration = Duration::from_millis(50);

impl Script {
    /// Connects a controller of any host, and enables it.
    fn controller_of(&mut self, host: &str, hostid: [u8; 16], nqn: &str, random: u64) -> u16 {
        let data = ConnectData::new(hostid, CNTLID_DYNAMIC, nqn, host);
        let sqe = connect_sqe(0, 31).emit();
        let connected = self.target.connect(self.now, &sqe, data.as_bytes(), local(), random);
        let cntlid = connected.expect("connected").cntlid;
        self.enable(cntlid);
        cntlid
    }

    fn instance(&mut self, cntlid: u16) -> ControllerInstance {
        let mut sqe = Sqe::new(opcode::IDENTIFY, 0);
        sqe.cdw10 = u32::from(cns::CONTROLLER).into();
        sqe.set_transport(IDENTIFY_BYTES as u32);
        let answer = self.succeed(cntlid, sqe);
        let page: &IdentifyController = answer.page();
        assert!(page.ciu != 0 && page.ccrl == 4);
        ControllerInstance { cntlid, ciu: page.ciu, cirn: page.cirn.get() }
    }

    /// Returns the completion of a reset, at once or as soon as nothing is left of the controller.
    fn reset(&mut self, cntlid: u16, named: ControllerInstance) -> Option<(Status, u64)> {
        match self.submit(cntlid, named.emit()) {
            Some(answer) => Some((answer.status, answer.result)),
            None => {
                let cid = self.cid();
                self.completion(cntlid, cid)
            }
        }
    }

    fn completion(&mut self, of: u16, command: u16) -> Option<(Status, u64)> {
        self.events().into_iter().find_map(|event| match event {
            TargetEvent::Completion { cntlid, cid, status, result }
            | TargetEvent::EventCompletion { cntlid, cid, status, result }
                if (cntlid, cid) == (of, command) =>
            {
                Some((status, result))
            }
            _ => None,
        })
    }

    fn log_of_resets(&mut self, cntlid: u16, lsp: u8) -> Vec<CrossResetEntry> {
        let get =
            GetLogPage { lsp, ..GetLogPage::new(lid::CROSS_CONTROLLER_RESET, LOG_BYTES as u32) };
        entries(&self.succeed(cntlid, get.emit(u32::MAX)).data).to_vec()
    }

    fn settle(&mut self, has_leftovers: bool) {
        self.target.settle_resets(|_, _| has_leftovers);
    }

    fn is_there(&self, cntlid: u16) -> bool {
        self.target.controllers().any(|controller| controller.cntlid == cntlid)
    }
}

/// Connects two controllers of one host: the first one has two I/O queues.
fn two() -> (Script, u16, ControllerInstance) {
    let mut script = Script::new();
    let lost = script.controller(NQN);
    for qid in [1, 2] {
        script.connect_io(lost, qid).expect("connected");
    }
    let named = script.instance(lost);
    let next = script.controller_of(HOST, HOSTID, NQN, 99);
    script.events();
    (script, next, named)
}

#[test]
fn the_named_controller_is_closed_and_the_command_waits_until_nothing_is_left() {
    let (mut script, next, named) = two();
    assert_eq!(script.submit(next, named.emit()), None, "it waits");
    let cid = script.cid();
    assert!(!script.is_there(named.cntlid));
    let reason = CloseReason::CrossControllerReset;
    let close = |qid| TargetEvent::Close { cntlid: named.cntlid, qid, reason };
    assert_eq!(script.events(), [close(1), close(2), close(0)]);
    script.settle(true);
    assert_eq!(script.events(), []);
    script.settle(false);
    assert_eq!(script.completion(next, cid), Some(DONE));
    assert_eq!(script.log_of_resets(next, 0), [], "the command has reported it");
    script.settle(false);
    assert_eq!(script.events(), [], "once");
}

#[test]
fn slow_resets_are_reported_by_the_log_and_an_event() {
    let (mut script, next, named) = two();
    script.succeed(next, SetFeatures::emit(fid::ASYNC_EVENT_CONFIG, oaes::CROSS_CONTROLLER_RESET));
    assert_eq!(script.submit(next, Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0)), None);
    let listening = script.cid();
    assert_eq!(script.submit(next, named.emit()), None);
    let cid = script.cid();
    assert_eq!(script.target.poll_timeout(), Some(script.now + WAIT_MAX));
    script.wait(WAIT_MAX);
    script.settle(true);
    script.target.handle_timeout(script.now);
    assert_eq!(script.completion(next, cid), Some(NOT_YET));
    let log = script.log_of_resets(next, REMOVE_COMPLETED);
    assert_eq!((log.len(), log[0].status), (1, reset_status::IN_PROGRESS));
    assert_eq!((log[0].icid.get(), log[0].ciu), (named.cntlid, named.ciu));
    assert_eq!(script.reset(next, named), Some((Status::CROSS_RESET_IN_PROGRESS, 0)));
    script.settle(false);
    let event = script.completion(next, listening).expect("an event").1 as u32;
    let event = AsyncEvent::parse(event);
    assert_eq!((event.information, event.lid), (notice::CROSS_CONTROLLER_RESET, 0x1e));
    assert_eq!(script.log_of_resets(next, 0)[0].status, reset_status::SUCCEEDED);
    assert_eq!(script.log_of_resets(next, REMOVE_COMPLETED).len(), 1, "reported, then forgotten");
    assert_eq!(script.log_of_resets(next, 0), []);
}

#[test]
fn a_host_without_much_time_is_answered_before_its_keep_alive_timer_runs_out() {
    let mut script = Script::new();
    let lost = script.controller(NQN);
    let named = script.instance(lost);
    let data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, NQN, HOST);
    let hasty = roadtrain_wire::fabrics::Connect { kato_ms: 100, ..connect_sqe(0, 31) };
    let next = script.connect(hasty, &data).unwrap().cntlid;
    script.enable(next);
    assert_eq!(script.submit(next, named.emit()), None);
    let at = script.target.poll_timeout().expect("a timer");
    assert!(at.since(script.now) < Duration::from_millis(50), "{:?}", at.since(script.now));
}

#[test]
fn a_controller_does_not_reset_itself() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let own = script.instance(cntlid);
    script.fail(cntlid, own.emit(), Status::INVALID_FIELD);
    assert!(script.is_there(cntlid));
}

#[test]
fn resets_in_progress_and_entries_of_the_log_are_few() {
    let mut script = Script::new();
    let next = script.controller(NQN);
    // The instance belongs to this target: all its numbers have one prefix.
    let cirn = RANDOM >> 32 << 32 | 5;
    let named = |n: u16| ControllerInstance { cntlid: 1000 + n, ciu: 1, cirn };
    for n in 0..4 {
        assert_eq!(script.reset(next, named(n)), None);
    }
    assert_eq!(script.reset(next, named(4)), Some((Status::CROSS_RESET_LIMIT_EXCEEDED, 0)));
    let mut full = None;
    for n in 4..100 {
        // Earlier resets end too late for their commands to report it.
        script.wait(WAIT_MAX);
        script.target.handle_timeout(script.now);
        script.settle(false);
        script.events();
        full = full.or(script.reset(next, named(n)).map(|answer| (n, answer)));
    }
    assert_eq!(full, Some((16, (Status::CROSS_RESET_LOG_FULL, 0))), "no host has read it");
    assert_eq!(script.log_of_resets(next, REMOVE_COMPLETED).len(), 16);
    assert_eq!(script.reset(next, named(100)), None, "there is room again");
}

#[test]
fn a_reset_controller_has_other_numbers() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let first = script.instance(cntlid);
    assert_ne!(first.cirn, RANDOM, "not a number that another controller could have");
    script.set_cc(cntlid, 0);
    script.enable(cntlid);
    let second = script.instance(cntlid);
    assert!(second.ciu != first.ciu && second.cirn != first.cirn);
    // The first instance has ended, and the second one is left alone.
    let next = script.controller_of(HOST, HOSTID, NQN, 99);
    assert_eq!(script.reset(next, first), Some(DONE));
    assert!(script.is_there(cntlid));
    assert_eq!(script.reset(next, second), None);
    assert!(!script.is_there(cntlid));
}

/// A controller that never existed here may be alive in another process, or have ended with an earlier one: its end is
/// not reported as observed.
#[test]
fn a_controller_that_was_never_here_is_not_said_to_have_been() {
    let mut script = Script::new();
    let next = script.controller(NQN);
    script.succeed(next, SetFeatures::emit(fid::ASYNC_EVENT_CONFIG, oaes::CROSS_CONTROLLER_RESET));
    assert_eq!(script.submit(next, Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0)), None);
    let listening = script.cid();
    // An earlier process may have used the same identifiers.
    for cntlid in [next, 77] {
        let named = ControllerInstance { cntlid, ciu: 9, cirn: !RANDOM };
        assert_eq!(script.submit(next, named.emit()).map(|a| (a.status, a.result)), Some(NOT_YET));
        let log = script.log_of_resets(next, REMOVE_COMPLETED);
        assert_eq!((log.len(), log[0].icid.get(), log[0].ciu), (1, cntlid, 9));
        assert_eq!((log[0].status, log[0].flags), (reset_status::SUCCEEDED, 0));
        assert_eq!(script.log_of_resets(next, 0), []);
    }
    assert!(script.completion(next, listening).is_some() && script.is_there(next));
    // An instance that existed here, and has ended in order, has ended.
    let (lost, other) = (script.controller(NQN), script.controller(NQN));
    let named = script.instance(lost);
    script.target.disconnect(lost, 0);
    assert!(!script.is_there(lost));
    assert_eq!(script.submit(other, named.emit()), None);
    let cid = script.cid();
    script.settle(false);
    assert_eq!(script.completion(other, cid), Some(DONE));
}

/// The log has no random numbers: an older entry must not be taken for the reset of another instance.
#[test]
fn the_log_has_one_entry_for_instances_that_are_alike() {
    let mut script = Script::new();
    let next = script.controller(NQN);
    let elsewhere = ControllerInstance { cntlid: 500, ciu: 9, cirn: !RANDOM };
    assert_eq!(script.submit(next, elsewhere.emit()).map(|a| a.result), Some(0));
    let here = ControllerInstance { cirn: RANDOM >> 32 << 32 | 5, ..elsewhere };
    assert_eq!(script.submit(next, here.emit()), None);
    script.wait(WAIT_MAX);
    script.settle(true);
    script.target.handle_timeout(script.now);
    let log = script.log_of_resets(next, 0);
    assert_eq!((log.len(), log[0].status), (1, reset_status::IN_PROGRESS));
}

#[test]
fn a_controller_reset_drops_requested_resets() {
    let (mut script, next, named) = two();
    assert_eq!(script.submit(next, named.emit()), None);
    let cid = script.cid();
    script.set_cc(next, 0);
    assert_eq!(script.completion(next, cid), Some((Status::ABORT_REQUESTED, 0)));
    script.enable(next);
    assert_eq!(script.log_of_resets(next, 0), []);
}

/// A host that has closed one connection of a controller and connects again has closed them all.
#[test]
fn the_queues_of_a_host_that_connects_again_are_closed_and_waited_for() {
    let (mut script, _, named) = two();
    let lost = named.cntlid;
    script.target.end_queues(lost);
    let reason = CloseReason::ConnectionLost;
    let close = |qid| TargetEvent::Close { cntlid: lost, qid, reason };
    assert_eq!(script.events(), [close(1), close(2)]);
    assert!(reason.awaits_queue_end() && script.is_there(lost), "it may still be shut down");
    for _ in 0..2 {
        assert!(!script.target.quiesce(lost), "commands may be in a store");
        script.target.drained(lost);
    }
    assert!(script.target.quiesce(lost));
    script.target.end_queues(77);
    assert_eq!(script.events(), []);
}

proptest! {
    /// Only a host that knows a controller's numbers ends it, and only its own. Another host that knows them all is
    /// refused, as that controller is alive; otherwise the completion reveals nothing.
    #[test]
    fn no_host_ends_the_controller_of_another_host(
        same_host in any::<bool>(),
        same_hostid in any::<bool>(),
        same_subsystem in any::<bool>(),
        cntlid_off in 0u16..2,
        ciu_off in prop::sample::select(vec![0u8, 1, 255]),
        cirn_off in prop::sample::select(vec![0u64, 1, 0x9e37_79b9_7f4a_7c15, u64::MAX]),
        random: u64,
    ) {
        let mut script = Script::new();
        let victim = script.controller_of(HOST, HOSTID, NQN, random);
        let named = script.instance(victim);
        let host = if same_host { HOST } else { STRANGER };
        let hostid = if same_hostid { HOSTID } else { [9; 16] };
        // The other subsystem is open to one host only.
        let nqn = if same_subsystem || !same_host { NQN } else { PRIVATE_NQN };
        let next = script.controller_of(host, hostid, nqn, random ^ 1);
        let guess = ControllerInstance {
            cntlid: named.cntlid + 7 * cntlid_off,
            ciu: named.ciu.wrapping_add(ciu_off),
            cirn: named.cirn.wrapping_add(cirn_off),
        };
        let answer = script.reset(next, guess);
        let is_known = guess == named && same_host && same_hostid && nqn == NQN;
        prop_assert_eq!(script.is_there(victim), !is_known);
        let refused = Some((Status::INVALID_FIELD.dnr(), 0));
        prop_assert_eq!(answer == refused, guess == named && !is_known);
        let is_done = matches!(answer, Some(DONE | NOT_YET)) || answer == refused;
        prop_assert!(is_done || is_known || guess.cntlid != named.cntlid);
        script.settle(false);
        script.events();
        prop_assert!(script.is_there(next));
    }
}

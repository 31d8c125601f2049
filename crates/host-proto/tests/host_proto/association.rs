//! Tests of an association against the target's control plane, without a network: each action is carried out at once.

mod allocation_queries;
mod bring_up;
mod old_commands;
mod power;
mod reply_timeouts;
mod scan;
mod siblings;

use core::time::Duration;
use roadtrain_host_proto::association::{
    AssociationAction, AssociationConfig, HostAssociation, ResetReason,
};
use roadtrain_host_proto::bringup::{self, Wants};
use roadtrain_host_proto::old_commands::{BlockRange, LaneGuard, OldCommands};
use roadtrain_host_proto::procedure::{
    ControllerCommand, DriverReply, DriverRequest, ProcedureFailure,
};
use roadtrain_host_proto::write_verifier::PathWrites;
use roadtrain_proto::policy::Class;
use roadtrain_proto::security::dhchap::DhchapKeys;
use roadtrain_proto::security::{SealUse, Secret};
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::{
    AdminOutcome, ConfigOperation, NamespaceConfig, NamespaceId, SubsystemConfig, TargetConfig,
    TargetControl, TargetEvent,
};
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::cross_reset::ControllerInstance;
use roadtrain_wire::fabrics::fctype;
use roadtrain_wire::identify::cns;
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use std::net::{Ipv4Addr, SocketAddr};

const NQN: &str = "nqn.2026-11.test:association";
const LANES: u32 = 3;
const KEEP_ALIVE: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(10);
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(10);
const LOSS: Duration = Duration::from_secs(60);
/// Random seed of the target.
const RANDOM: u64 = 0x0123_4567_89ab_cdef;
/// Network identity of targets.
const NETWORK: u128 = 5;
/// Blocks of the write that is in flight when the path is lost.
const BLOCKS: BlockRange = BlockRange { nsid: 1, first: 8, count: 8 };
const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4420);

fn config(store: u128) -> TargetConfig {
    let mut namespace = NamespaceConfig::new(1, 100, 9);
    namespace.id = Some(NamespaceId::of_store(store));
    let mut subsystem = SubsystemConfig::new(NQN);
    subsystem.namespaces.push(namespace);
    TargetConfig { subsystems: vec![subsystem], network: NETWORK, ..TargetConfig::default() }
}

fn target(store: u128) -> TargetControl {
    booted(store, None)
}

/// Returns a target whose namespace has this write verifier.
fn booted(store: u128, write_verifier: Option<u64>) -> TargetControl {
    let mut config = config(store);
    config.subsystems[0].namespaces[0].write_verifier = write_verifier;
    TargetControl::new(Instant(0), &config).expect("the configuration is valid")
}

/// Reply of a target to Cross-Controller Resets.
#[derive(Clone, Copy, PartialEq)]
enum ResetReplies {
    Done,
    NotOffered,
    Answered(Status),
}

/// Association, its driver, and the log of actions.
struct AssociationHarness {
    association: HostAssociation<&'static str>,
    target: Option<TargetControl>,
    /// Target that the path does not lead to now.
    first: Option<TargetControl>,
    /// True if the target refuses Connect, as the controller is busy.
    is_busy: bool,
    /// True while earlier controllers have commands in a store.
    has_leftovers: bool,
    /// Reply of the target to Cross-Controller Resets.
    resets: ResetReplies,
    /// Latency of each command.
    takes: Duration,
    /// Random seed of the target.
    random: u64,
    now: Instant,
    cntlid: u16,
    /// Old commands, shared by the host.
    old: OldCommands,
    /// Guard of the lanes, which lose a write whenever the path is lost.
    guard: LaneGuard,
    listening: bool,
    answers_aborts: bool,
    /// Record of acknowledged writes.
    writes: PathWrites,
    log: Vec<String>,
}

impl AssociationHarness {
    fn new(change: impl FnOnce(&mut AssociationConfig)) -> Self {
        let mut config = AssociationConfig {
            wants: Wants {
                concatenates: false,
                subsystem_nqn: NQN.into(),
                host_nqn: "nqn.2026-11.test:host".into(),
                host_id: [7; 16],
                keep_alive: KEEP_ALIVE,
                timeout: TIMEOUT,
                queue_entries: 32,
                class: Class::Normal,
                sq_flow_control: false,
                keys: DhchapKeys::default(),
                seals: SealUse::Off,
            },
            lanes: LANES,
            expresses: 2,
            reconnect_delay: FIRST,
            reconnect_delay_max: LONGEST,
            controller_loss_timeout: Some(LOSS),
            fast_io_fail_timeout: None,
            siblings: None,
            old_commands: OldCommands::default(),
        };
        change(&mut config);
        let old = config.old_commands.clone();
        AssociationHarness {
            old,
            association: HostAssociation::new(Instant(0), config),
            target: Some(target(1)),
            first: None,
            is_busy: false,
            has_leftovers: false,
            resets: ResetReplies::Done,
            takes: Duration::ZERO,
            random: RANDOM,
            now: Instant(0),
            cntlid: 0,
            guard: LaneGuard::default(),
            listening: false,
            answers_aborts: true,
            writes: PathWrites::default(),
            log: Vec::new(),
        }
    }

    /// Carries out all actions that are due now. Returns the log.
    fn act(&mut self) -> Vec<String> {
        for _ in 0..10_000 {
            let Some(action) = self.association.poll(self.now) else {
                return std::mem::take(&mut self.log);
            };
            self.carry_out(action);
        }
        panic!("it does not come to rest: {:?}", &self.log[..20]);
    }

    /// Advances to the next deadline and calls [`Self::act`].
    fn act_when_due(&mut self) -> Vec<String> {
        self.now = self.association.deadline().expect("something is due").max(self.now);
        self.act()
    }

    fn carry_out(&mut self, action: AssociationAction<&'static str>) {
        match action {
            AssociationAction::Request { ask: DriverRequest::Open { qid, .. }, .. } => {
                self.log.push(format!("open {qid}"));
                let there =
                    self.target.as_ref().map(|_| DriverReply::Opened { data_bytes_max: 1 << 30 });
                self.association.answer(self.now, there.ok_or("refused"));
            }
            AssociationAction::Request { ask: DriverRequest::Random { bytes }, .. } => {
                let random = DriverReply::Random(Secret::new(&vec![7; bytes]));
                self.association.answer(self.now, Ok(random));
            }
            AssociationAction::Request { ask: DriverRequest::Seal { .. }, .. } => {
                unreachable!("no frames are sealed")
            }
            AssociationAction::Request { ask: DriverRequest::Compute(work), .. } => {
                work.compute();
                self.association.answer(self.now, Ok(DriverReply::Computed));
            }
            AssociationAction::Request { ask: DriverRequest::Run { qid, command }, .. } => {
                self.log.push(format!("{} {qid}", command.what));
                self.now += self.takes;
                let answer = self.run(qid, &command);
                self.association.answer(self.now, answer.ok_or("gone"));
            }
            AssociationAction::Listen { .. } => {
                self.listening = true;
                self.log.push("listen".into());
            }
            AssociationAction::Abort { sqe } => {
                let cid = sqe.cdw10.get() >> 16;
                self.log.push(format!("Abort of {cid}"));
                if self.answers_aborts {
                    self.association.aborted();
                }
            }
            AssociationAction::Attach { barred, writes, guard, .. } => {
                (self.writes, self.guard) = (writes, guard);
                self.log.push(format!("attach, stale {:?}", barred.stale()));
            }
            AssociationAction::SetBarred(barred) => {
                self.log.push(format!("stale {:?}", barred.stale()))
            }
            AssociationAction::Changed => self.log.push("changed".into()),
            AssociationAction::EndBySiblings { lost, .. } => {
                self.log.push(format!("end elsewhere {lost:?}"))
            }
            AssociationAction::EndedFor { owner, lost, fencing } => {
                self.log.push(format!("for {owner}, {}: {fencing:?}", lost.cntlid));
            }
            AssociationAction::Fenced { fencing, .. } => {
                self.log.push(format!("fenced: {fencing:?}"))
            }
            AssociationAction::Reset { why, was_live, .. } => {
                let why = match why {
                    ResetReason::Lane { lane, error } => format!("lane {lane}: {error}"),
                    ResetReason::Path(failure) => failure.to_string(),
                };
                self.log.push(format!("reset ({why}), was live: {was_live}"));
                let _ = was_live.then(|| self.guard.record(vec![BLOCKS]));
                self.association.reset(self.now);
            }
            AssociationAction::AttachExpress { lane, number, may_close, .. } => {
                self.log.push(format!("express {number} of lane {lane}, closes {may_close}"));
            }
            AssociationAction::RefuseExpress { lane, why, .. } => {
                let why = why.map(|failure| failure.to_string());
                self.log.push(format!("no express of lane {lane}: {why:?}"));
            }
            AssociationAction::AllocationFound { by, found } => {
                let known = found.map(|found| (found.known, found.allocated));
                self.log.push(format!("allocation {by:?}: {known:?}"));
            }
            AssociationAction::SetAna { ana, .. } => self.log.push(format!("ana {ana:?}")),
            AssociationAction::LateTransition { nsids, .. } => {
                self.log.push(format!("late {nsids:?}"))
            }
            AssociationAction::Release => self.log.push("release".into()),
            AssociationAction::Fail { lane } => self.log.push(format!("fail {lane:?}")),
            AssociationAction::FailFast => self.log.push("fail fast".into()),
            AssociationAction::Finish => self.log.push("finish".into()),
            AssociationAction::WritesLost { nsids, .. } => {
                self.log.push(format!("writes lost {nsids:?}"))
            }
            AssociationAction::End { shut_down } => self.log.push(format!("end {shut_down:?}")),
        }
    }

    fn run(&mut self, qid: u16, command: &ControllerCommand) -> Option<DriverReply> {
        let (now, target, has_leftovers) = (self.now, self.target.as_mut()?, self.has_leftovers);
        if !has_leftovers {
            target.settle_resets(|_, _| false);
        }
        let mut sqe = command.sqe;
        match (command.out.len() as u32, command.bytes_in) {
            (0, 0) => {}
            (0, bytes) => sqe.set_transport(bytes),
            (bytes, _) => sqe.set_in_capsule(bytes),
        }
        let sqe = &sqe;
        if sqe.opcode == opcode::FABRICS && sqe.fctype() == fctype::CONNECT && self.is_busy {
            return Some(completed(Status::CONNECT_CONTROLLER_BUSY, 0, Vec::new()));
        }
        if sqe.opcode == opcode::FABRICS && sqe.fctype() == fctype::CONNECT {
            let (status, result) = match target.connect(now, sqe, &command.out, LOCAL, self.random)
            {
                Ok(connected) => {
                    self.cntlid = connected.cntlid;
                    (Status::SUCCESS, u32::from(connected.cntlid))
                }
                Err(error) => (error.status, error.result),
            };
            return Some(completed(status, result.into(), Vec::new()));
        }
        match self.resets {
            ResetReplies::Answered(status) if sqe.opcode == opcode::CROSS_CONTROLLER_RESET => {
                return Some(completed(status, 0, Vec::new()));
            }
            _ => {}
        }
        let mut page = Vec::new();
        let outcome = match qid {
            0 => target.admin_command(now, self.cntlid, sqe, &command.out, &mut page),
            _ => target.fabrics_command(now, self.cntlid, qid, sqe),
        };
        match outcome {
            AdminOutcome::Complete { status, result } => {
                if self.resets == ResetReplies::NotOffered && is_identify_controller(sqe) {
                    page[CCRL] = 0;
                }
                Some(completed(status, result, page))
            }
            AdminOutcome::Disconnected => Some(completed(Status::SUCCESS, 0, page)),
            AdminOutcome::QueryLbaStatus(wanted) => {
                page.resize(wanted.bytes as usize, 0);
                wanted.report_allocated(&mut page);
                Some(completed(Status::SUCCESS, 0, page))
            }
            AdminOutcome::Pending => loop {
                let event = target.poll_event().or_else(|| {
                    target.settle_resets(|_, _| has_leftovers);
                    target.poll_event()
                });
                let event = event.or_else(|| {
                    target.handle_timeout(now + Duration::from_millis(50));
                    target.poll_event()
                });
                match event? {
                    TargetEvent::Completion { status, result, .. }
                    | TargetEvent::EventCompletion { status, result, .. } => {
                        return Some(completed(status, result, page));
                    }
                    TargetEvent::Abort { cntlid, id, .. } => target.aborted(cntlid, id, false),
                    TargetEvent::Quiesce { cntlid, qid } => target.quiesced(cntlid, qid),
                    _ => {}
                }
            },
        }
    }

    /// Returns a live association.
    fn live(change: impl FnOnce(&mut AssociationConfig)) -> Self {
        let mut harness = AssociationHarness::new(change);
        harness.act();
        assert!(harness.association.is_idle() && harness.listening);
        harness
    }
}

/// Byte of Cross-Controller Reset Limit in Identify Controller.
const CCRL: usize = 1807;

fn is_identify_controller(sqe: &Sqe) -> bool {
    sqe.opcode == opcode::IDENTIFY && sqe.cdw10.get() as u8 == cns::CONTROLLER
}

fn completed(status: Status, result: u64, data: Vec<u8>) -> DriverReply {
    let mut cqe = Cqe::new(0, status);
    cqe.dw0 = (result as u32).into();
    cqe.dw1 = ((result >> 32) as u32).into();
    DriverReply::Completed { cqe, data }
}

fn count(log: &[String], what: &str) -> usize {
    log.iter().filter(|line| line.starts_with(what)).count()
}

fn position(log: &[String], what: &str) -> usize {
    log.iter().position(|line| line.starts_with(what)).unwrap_or_else(|| panic!("{what}: {log:?}"))
}

#[test]
fn lanes_are_attached_when_all_are_connected() {
    let mut harness = AssociationHarness::new(|_| ());
    let log = harness.act();
    let expected = [
        "open 0",
        "Connect 0",
        "Property Get 0",
        "Property Set CC 0",
        "Property Get 0",
        "Identify 0",
        "Set Features (queues) 0",
        "Identify 0", // list of namespaces, and their properties
        "Identify 0",
        "Identify 0",
        "changed",
        "open 1",
        "Connect 1",
        "open 2",
        "Connect 2",
        "open 3",
        "Connect 3",
        "attach, stale []",
        "Set Features (events) 0",
        "Identify 0",
        "Identify 0",
        "Identify 0",
        "listen",
    ];
    assert_eq!(log, expected);
    assert_eq!(harness.association.deadline(), Some(Instant(0) + KEEP_ALIVE / 2));
}

#[test]
fn a_lost_lane_takes_its_path_along_and_old_connections_go_first() {
    let mut harness = AssociationHarness::live(|_| ());
    harness.now += LONGEST;
    harness.association.lane_lost(harness.now, 1, "cut");
    harness.association.lane_lost(harness.now, 2, "cut, too");
    let log = harness.act();
    assert_eq!(log[0], "reset (lane 1: cut), was live: true");
    assert_eq!(
        (log[1].as_str(), count(&log, "reset")),
        ("open 0", 1),
        "at once, and once: {log:?}"
    );
    assert_eq!(count(&log, "attach"), 1);
}

#[test]
fn the_controller_that_was_lost_is_ended_before_others_have_lanes() {
    let mut harness = AssociationHarness::live(|_| ());
    assert_eq!(harness.cntlid, 1);
    harness.now += LONGEST;
    harness.association.lane_lost(harness.now, 1, "cut");
    let log = harness.act();
    let reset = position(&log, "Cross-Controller Reset 0");
    assert!(position(&log, "Property Set CC 0") < reset && reset < position(&log, "open 1"));
    assert_eq!(count(&log, "fenced: Ended"), 1);
    let left: Vec<u16> = harness
        .target
        .as_ref()
        .unwrap()
        .controllers()
        .map(|controller| controller.cntlid)
        .collect();
    assert_eq!(left, [2]);
    // A controller without lanes has no commands of them.
    harness.now += LONGEST;
    harness.association.admin_lost(harness.now, "cut");
    let target = harness.target.take();
    harness.act();
    harness.target = target;
    assert_eq!(count(&harness.act_when_due(), "Cross-Controller Reset 0"), 1, "once for two tries");
}

#[test]
fn lanes_wait_until_nothing_is_left_of_the_controller_that_was_lost() {
    let mut harness = AssociationHarness::live(|config| config.controller_loss_timeout = None);
    harness.now += LONGEST;
    (harness.has_leftovers, harness.takes) = (true, Duration::from_millis(1));
    harness.association.lane_lost(harness.now, 1, "cut");
    let mut log = harness.act();
    for _ in 0..100 {
        log.extend(harness.act_when_due());
    }
    let checks = count(&log, "Get Log Page (resets) 0");
    assert!((20..100).contains(&checks) && count(&log, "Keep Alive 0") > 4, "{checks}: {log:?}");
    assert_eq!((count(&log, "attach"), count(&log, "fenced")), (0, 0));
    let given_up = "reset (controller 1, which was lost, has not ended yet), was live: false";
    assert!(count(&log, given_up) > 0, "others may be let in after a while: {log:?}");
    harness.has_leftovers = false;
    let mut log = Vec::new();
    while count(&log, "attach") == 0 {
        log.extend(harness.act_when_due());
    }
    assert!(position(&log, "fenced: Ended") < position(&log, "open 1"), "{log:?}");
}

#[test]
fn a_target_that_does_not_end_other_controllers_is_used_all_the_same() {
    let status = Status::INVALID_OPCODE.dnr();
    for (resets, expected_line) in [
        (ResetReplies::NotOffered, "fenced: NotOffered".to_owned()),
        (ResetReplies::Answered(status), format!("fenced: Refused({status:?})")),
    ] {
        let mut harness = AssociationHarness::live(|_| ());
        harness.now += LONGEST;
        harness.resets = resets;
        harness.association.lane_lost(harness.now, 1, "cut");
        let log = harness.act();
        assert_eq!((count(&log, &expected_line), count(&log, "attach")), (1, 1), "{log:?}");
    }
}

#[test]
fn a_reset_is_retried_while_the_target_has_no_room_for_it() {
    let mut harness = AssociationHarness::live(|_| ());
    harness.now += LONGEST;
    harness.resets = ResetReplies::Answered(Status::CROSS_RESET_LIMIT_EXCEEDED);
    harness.association.lane_lost(harness.now, 1, "cut");
    let mut log = harness.act();
    for _ in 0..8 {
        log.extend(harness.act_when_due());
    }
    assert!(count(&log, "Cross-Controller Reset 0") > 3, "{log:?}");
    harness.resets = ResetReplies::Done;
    while count(&log, "attach") == 0 {
        log.extend(harness.act_when_due());
    }
    assert_eq!(count(&log, "fenced: Ended"), 1);
}

#[test]
fn nothing_is_opened_before_the_old_connections_are_gone() {
    let mut harness = AssociationHarness::live(|_| ());
    harness.now += LONGEST;
    harness.association.admin_lost(harness.now, "cut");
    let action = harness.association.poll(harness.now);
    assert!(matches!(action, Some(AssociationAction::Reset { was_live: true, .. })), "{action:?}");
    // A reactor is slow to close its connections.
    for _ in 0..3 {
        harness.now += LONGEST;
        assert!(harness.association.poll(harness.now).is_none());
    }
    harness.association.lane_lost(harness.now, 0, "of the past");
    harness.association.overdue(0, [1, 2, 3]);
    harness.association.reset(harness.now);
    let log = harness.act();
    assert_eq!((log[0].as_str(), count(&log, "Abort")), ("open 0", 0));
}

/// Requests fail before the controller-loss timeout; nothing else changes.
#[test]
fn requests_fail_at_the_fast_io_fail_timeout_while_attempts_go_on() {
    let fast = Duration::from_secs(3);
    let mut harness = AssociationHarness::live(|config| config.fast_io_fail_timeout = Some(fast));
    for _ in 0..2 {
        harness.now += LONGEST;
        let (lost_at, target) = (harness.now, harness.target.take());
        harness.association.lane_lost(harness.now, 0, "cut");
        let mut log = harness.act();
        let (mut fast_at, mut lost) = (Vec::new(), Vec::new());
        while lost.is_empty() {
            fast_at.extend((count(&log, "fail fast") > 0).then(|| harness.now.since(lost_at)));
            lost.extend((count(&log, "fail None") > 0).then(|| harness.now.since(lost_at)));
            log = harness.act_when_due();
            assert!(harness.now.since(lost_at) <= LOSS * 2);
        }
        assert_eq!((fast_at, lost), (vec![fast], vec![LOSS]));
        harness.target = target;
        while !harness.association.is_live() {
            harness.act_when_due();
        }
    }
    // If another path works they wait, and are checked again.
    harness.now += LONGEST;
    harness.target = None;
    let lost_at = harness.now;
    harness.association.lane_lost(harness.now, 0, "cut");
    let mut log = harness.act();
    let mut times = 0;
    while harness.now.since(lost_at) < fast * 2 {
        times += count(&log, "fail fast");
        if count(&log, "fail fast") > 0 {
            harness.association.fail_later(harness.now);
        }
        log = harness.act_when_due();
    }
    assert!((8..20).contains(&times), "{times}");
}

#[test]
fn attempts_are_paused_between_and_requests_fail_when_the_time_is_up() {
    let mut harness = AssociationHarness::live(|_| ());
    harness.now += LONGEST;
    let (mut lost_at, target) = (harness.now, harness.target.take());
    harness.association.lane_lost(harness.now, 0, "cut");
    let mut log = harness.act();
    let (mut tries, mut failed_at) = (Vec::new(), Vec::new());
    while tries.len() < 16 {
        if count(&log, "open") > 0 {
            tries.push(harness.now.since(lost_at));
        }
        if count(&log, "fail None") > 0 {
            failed_at.push(harness.now.since(lost_at));
        }
        log = harness.act_when_due();
    }
    assert_eq!(failed_at, [LOSS], "once, at its time");
    assert!(tries.contains(&LOSS), "the last try is at its end: {tries:?}");
    let pauses: Vec<Duration> = tries.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(pauses[..6], [1, 2, 4, 8, 16, 32].map(|times| FIRST * times));
    assert!(pauses.iter().all(|pause| *pause <= LONGEST), "{pauses:?}");
    harness.target = target;
    assert_eq!(count(&harness.act_when_due(), "attach"), 1, "it may come back");
    // All pauses start again.
    (lost_at, harness.target) = (harness.now + LONGEST, None);
    harness.now = lost_at;
    harness.association.lane_lost(harness.now, 0, "cut");
    harness.act();
    assert_eq!(harness.association.deadline(), Some(lost_at + FIRST));
}

#[test]
fn an_association_that_is_lost_again_and_again_does_not_hurry() {
    let mut harness = AssociationHarness::live(|_| ());
    let mut attached = Vec::new();
    for _ in 0..10 {
        harness.association.lane_lost(harness.now, 0, "a poisonous request");
        let mut log = harness.act();
        if count(&log, "attach") == 0 {
            log = harness.act_when_due();
        }
        assert_eq!(count(&log, "attach"), 1);
        attached.push(harness.now);
    }
    assert!(attached.windows(2).all(|two| two[1].since(two[0]) >= FIRST), "{attached:?}");
}

#[test]
fn a_keep_alive_is_in_time_between_the_commands_of_a_bring_up() {
    let mut harness = AssociationHarness::new(|config| config.lanes = 40);
    harness.takes = Duration::from_millis(400);
    let log = harness.act();
    let (from, to) = (position(&log, "open 1"), position(&log, "attach"));
    let between = count(&log[from..to], "Keep Alive");
    assert!((6..=8).contains(&between), "{between} in 16 s, one each 2.5 s: {log:?}");
}

#[test]
fn overdue_commands_are_aborted_one_by_one() {
    let mut harness = AssociationHarness::live(|_| ());
    harness.association.overdue(2, [5, 6]);
    assert!(!harness.association.is_idle());
    assert_eq!(harness.act(), ["Abort of 5", "Abort of 6"]);
    assert!(harness.association.is_idle());
}

#[test]
fn a_replaced_namespace_is_barred_before_lanes_are_attached() {
    let mut harness = AssociationHarness::live(|_| ());
    harness.now += LONGEST;
    harness.target = Some(target(2));
    harness.association.lane_lost(harness.now, 0, "the target was restarted");
    let log = harness.act();
    assert_eq!(count(&log, "attach, stale [1]"), 1, "{log:?}");
    // The first target is back, and an event reports it.
    harness.now += LONGEST;
    harness.target = Some(target(1));
    harness.cntlid = 0;
    harness.association.lane_lost(harness.now, 0, "again");
    assert_eq!(count(&harness.act(), "attach, stale []"), 1);
}

#[test]
fn a_namespace_change_while_lanes_are_live_is_read() {
    let mut harness = AssociationHarness::live(|_| ());
    let target = harness.target.as_mut().unwrap();
    let namespace = NamespaceConfig::new(2, 50, 9);
    target.apply(&[ConfigOperation::AddNamespace { nqn: NQN.into(), namespace }]).unwrap();
    // Event of type notice, namespace attribute changed.
    let mut cqe = Cqe::new(0, Status::SUCCESS);
    cqe.dw0 = 0x0004_0002.into();
    harness.association.event(&cqe);
    let log = harness.act();
    assert_eq!(log[0], "Get Log Page (changed) 0");
    assert!(position(&log, "changed") < position(&log, "listen"), "{log:?}");
    let nsids: Vec<u32> = harness
        .association
        .info()
        .unwrap()
        .namespaces
        .iter()
        .map(|namespace| namespace.nsid)
        .collect();
    assert_eq!(nsids, [1, 2]);
}

#[test]
fn it_ends_in_order_when_its_users_have() {
    let mut harness = AssociationHarness::live(|_| ());
    harness.association.stop(harness.now, false);
    assert_eq!(harness.act(), ["finish", "Keep Alive 0"]);
    assert!(harness.association.ends_in_order());
    harness.now += KEEP_ALIVE / 2;
    assert_eq!(harness.act(), ["Keep Alive 0"], "its users take their time");
    harness.association.lane_lost(harness.now, 1, "cut");
    assert_eq!(harness.act(), ["fail Some(1)"], "no further attempt follows");
    harness.association.ended(harness.now);
    let log = harness.act();
    assert_eq!(log[0], "Property Set CC 0");
    assert_eq!(log.last().unwrap(), "end Some(Ok(()))");
    harness.now += LOSS;
    assert!(harness.act().is_empty());
}

#[test]
fn users_that_do_not_end_are_failed() {
    let mut harness = AssociationHarness::live(|_| ());
    harness.association.stop(harness.now, false);
    harness.act();
    let begin = harness.now;
    while count(&harness.act_when_due(), "fail None") == 0 {}
    assert_eq!(harness.now.since(begin), TIMEOUT);
}

#[test]
fn a_target_that_is_gone_at_the_end_is_not_waited_for() {
    for is_lost_before in [false, true] {
        let mut harness = AssociationHarness::live(|_| ());
        harness.now += LONGEST;
        harness.target = None;
        if is_lost_before {
            harness.association.lane_lost(harness.now, 0, "cut");
            harness.act();
        }
        harness.association.stop(harness.now, false);
        let log = harness.act();
        assert_eq!(log.last().unwrap(), "fail None", "{log:?}");
        harness.association.ended(harness.now);
        assert_eq!(harness.act(), ["end None"]);
    }
}

#[test]
fn a_controller_that_grants_fewer_queues_is_not_used() {
    let mut harness = AssociationHarness::new(|config| config.lanes = 60_000);
    let log = harness.act();
    let why = &log[position(&log, "reset")];
    assert!(why.contains("grants only"), "{why}");
    assert!(!harness.association.is_live());
}

#[test]
fn failures_say_what_has_failed() {
    let status = Status::CONNECT_CONTROLLER_BUSY;
    let refused: ProcedureFailure<&str> = ProcedureFailure::Refused { qid: 0, status };
    assert_eq!(refused.to_string(), format!("Connect of queue 0 refused: {status}"));
}

// ---- Express connections ----

fn lines(log: &[String]) -> Vec<&str> {
    log.iter().map(String::as_str).collect()
}

#[test]
fn a_lane_gets_an_express_connection_while_the_others_work() {
    let mut harness = AssociationHarness::live(|_| {});
    harness.association.want_express(1);
    assert!(!harness.association.is_idle());
    let log = harness.act();
    assert_eq!(lines(&log), ["open 4", "Connect 4", "express 3 of lane 1, closes true"]);
    harness.association.want_express(1);
    assert_eq!(lines(&harness.act()), ["no express of lane 1: None"], "it has one");
    harness.association.want_express(2);
    let log = harness.act();
    assert_eq!(lines(&log), ["open 5", "Connect 5", "express 4 of lane 2, closes true"]);
    harness.association.want_express(0);
    assert_eq!(lines(&harness.act()), ["no express of lane 0: None"], "there are two at most");
    let target = harness.target.as_mut().expect("it is there");
    target.disconnect(harness.cntlid, 4);
    harness.association.express_closed(0, 3); // of an earlier connection
    harness.association.want_express(0);
    assert_eq!(lines(&harness.act()), ["no express of lane 0: None"], "lane 1 has it");
    harness.association.express_closed(1, 3);
    harness.association.want_express(0);
    assert_eq!(harness.act().last().map(String::as_str), Some("express 3 of lane 0, closes true"));
}

#[test]
fn a_controller_without_queues_to_spare_gets_no_express_connection() {
    let mut harness = AssociationHarness::live(|config| config.expresses = 0);
    harness.association.want_express(0);
    assert_eq!(lines(&harness.act()), ["no express of lane 0: None"]);
    assert!(harness.association.is_live() && harness.association.is_idle());
}

#[test]
fn a_failed_express_connection_leaves_the_others_alone() {
    let mut harness = AssociationHarness::live(|_| {});
    let target = harness.target.take();
    harness.association.want_express(0);
    let log = harness.act();
    let refusal = "no express of lane 0: Some(\"no connection: refused\")";
    assert_eq!(lines(&log), ["open 4", refusal]);
    assert!(harness.association.is_live());
    harness.target = target;
    // The target still has a queue of that number, and refuses.
    harness.association.want_express(0);
    harness.act();
    harness.association.express_closed(0, 3);
    harness.association.want_express(0);
    let log = harness.act();
    assert!(log.last().is_some_and(|line| line.contains("Connect of queue 4 refused")), "{log:?}");
    assert!(harness.association.is_live());
}

#[test]
fn a_silent_express_connection_leaves_the_others_alone() {
    let mut harness = AssociationHarness::live(|config| config.wants.keep_alive = Duration::ZERO);
    harness.association.want_express(0);
    let action = harness.association.poll(harness.now);
    assert!(matches!(
        action,
        Some(AssociationAction::Request { ask: DriverRequest::Open { qid: 4, lane: 0, .. }, .. })
    ));
    let log = harness.act_when_due();
    let refusal = "no express of lane 0: Some(\"connection: no answer in time\")";
    assert_eq!(lines(&log), [refusal]);
    assert!(harness.association.is_live());
    harness.association.answer(harness.now, Err("late"));
    harness.association.want_express(0);
    assert_eq!(lines(&harness.act())[..2], ["open 4", "Connect 4"]);
}

#[test]
fn express_connections_are_lost_with_the_others() {
    let mut harness = AssociationHarness::live(|_| {});
    harness.association.want_express(0);
    harness.act();
    harness.association.want_express(1);
    harness.association.lane_lost(harness.now, 3, "reset");
    assert_eq!(harness.act()[0], "reset (lane 3: reset), was live: true");
    let log = harness.act_when_due();
    assert!(!log.iter().any(|line| line.contains("express")), "what was wanted is forgotten");
    assert!(harness.association.is_live());
    harness.association.want_express(0);
    assert_eq!(harness.act()[0], "open 4", "its number is free again");
}

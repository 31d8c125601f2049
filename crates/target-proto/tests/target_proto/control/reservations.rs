//! Reservations in the control plane: features, reports, notifications, and events for the owner of the connections.

use super::script::{HOST, HOSTID, NQN, Script, config, connect_sqe, remove};
use roadtrain_target_proto::reservations::{CommandGroup, HostId, ReservationState};
use roadtrain_target_proto::{
    AnaState, ConfigOperation, NamespaceConfig, TargetControl, TargetEvent,
};
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, ConnectData};
use roadtrain_wire::feature::{GetFeatures, SetFeatures, fid};
use roadtrain_wire::identify::{IdentifyNamespace, IdentifyNamespaceIndependent, NSID_ALL, cns};
use roadtrain_wire::log::{EffectsTable, GetLogPage, lid};
use roadtrain_wire::reservation::{
    AcquireAction, CNTLID_NONE, ChangePersistence, NotificationLog, RCSTS_HOLDER, RegisterAction,
    ReleaseAction, ReservationAcquire, ReservationRegister, ReservationRelease,
    ReservationReportFields, ReservationType, TwoKeys, parse_extended,
};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;

const OTHER: HostId = *b"another host id.";

/// Returns a target that stores reservations of namespace 1.
fn script() -> Script {
    let mut config = config();
    let first = config.subsystems[0].namespaces[0].clone();
    config.subsystems[0].namespaces[0] = NamespaceConfig { keeps_reservations: true, ..first };
    Script::with(&config)
}

/// Connects a controller of another host.
fn controller_of(script: &mut Script, host: HostId) -> u16 {
    let data = ConnectData::new(host, CNTLID_DYNAMIC, NQN, HOST);
    let cntlid = script.connect(connect_sqe(0, 31), &data).unwrap().cntlid;
    script.enable(cntlid);
    cntlid
}

fn keys(current: u64, other: u64) -> Vec<u8> {
    TwoKeys { current: current.into(), other: other.into() }.as_bytes().to_vec()
}

fn register(key: u64, persistence: ChangePersistence) -> (Sqe, Vec<u8>) {
    let register = ReservationRegister {
        action: Some(RegisterAction::Register),
        ignores_key: false,
        persistence: Some(persistence),
    };
    (register.emit(1), keys(0, key))
}

fn acquire(action: AcquireAction, key: u64, preempted: u64) -> (Sqe, Vec<u8>) {
    let kind = Some(ReservationType::WriteExclusiveRegistrantsOnly);
    let acquire = ReservationAcquire { action: Some(action), ignores_key: false, kind };
    (acquire.emit(1), keys(key, preempted))
}

/// Runs a command to its completion, with the events in between.
fn run(script: &mut Script, cntlid: u16, (sqe, data): (Sqe, Vec<u8>)) -> (Status, Vec<u8>) {
    script.target.reserve(cntlid, &sqe, &data, 77);
    while let Some(event) = script.target.poll_event() {
        match event {
            TargetEvent::Save { turn, .. } => script.target.saved(&turn, true),
            TargetEvent::Fence { turn, .. } => script.target.fenced(&turn),
            TargetEvent::Reserved { token: 77, status, report } => {
                return (status, report.to_vec());
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("not answered");
}

fn succeeds(script: &mut Script, cntlid: u16, command: (Sqe, Vec<u8>)) {
    assert_eq!(run(script, cntlid, command).0, Status::SUCCESS);
}

fn report(script: &mut Script, cntlid: u16) -> Vec<u8> {
    let sqe = ReservationReportFields { bytes: 4096, extended: true }.emit(1);
    let (status, report) = run(script, cntlid, (sqe, Vec::new()));
    assert_eq!((status, report.len()), (Status::SUCCESS, 4096));
    report
}

#[test]
fn capabilities_say_whether_something_persists() {
    let mut script = script();
    let cntlid = script.controller(NQN);
    for (nsid, rescap) in [(1, 0xff), (3, 0xfe)] {
        let mut sqe = Sqe::new(opcode::IDENTIFY, nsid);
        sqe.set_transport(4096);
        sqe.cdw10 = u32::from(cns::NAMESPACE).into();
        let page = script.succeed(cntlid, sqe);
        assert_eq!(page.page::<IdentifyNamespace>().rescap, rescap);
        sqe.cdw10 = u32::from(cns::NAMESPACE_INDEPENDENT).into();
        let page = script.succeed(cntlid, sqe);
        assert_eq!(page.page::<IdentifyNamespaceIndependent>().rescap, rescap);
    }
    let answer = script.succeed(cntlid, GetLogPage::new(lid::FEATURE_EFFECTS, 1024).emit(0));
    let table: &EffectsTable = answer.page();
    for (fid, scope) in [(0x81, 1 << 21), (0x82, 1 << 20), (0x83, 1 << 20)] {
        assert_eq!(table.entries[fid].get(), 1 | scope, "{fid:#x}");
    }
}

#[test]
fn the_report_lists_controllers_of_registrants() {
    let mut script = script();
    let (one, other) = (script.controller(NQN), controller_of(&mut script, OTHER));
    let second = script.controller(NQN);
    succeeds(&mut script, one, register(5, ChangePersistence::Set));
    succeeds(&mut script, other, register(6, ChangePersistence::Keep));
    let page = report(&mut script, other);
    assert_eq!(parse_extended(&page).unwrap().0.rtype, 0, "no reservation");
    succeeds(&mut script, one, acquire(AcquireAction::Acquire, 5, 0));
    let page = report(&mut script, other);
    let (head, entries) = parse_extended(&page).unwrap();
    assert_eq!((head.generation.get(), head.rtype, head.ptpls), (2, 3, 1));
    let entry = |at: usize| {
        let entry = &entries[at];
        (entry.cntlid.get(), entry.rcsts, entry.hostid, entry.key.get())
    };
    assert_eq!(entries.len(), 3);
    assert_eq!(entry(0), (one, RCSTS_HOLDER, HOSTID, 5));
    assert_eq!(entry(1), (second, RCSTS_HOLDER, HOSTID, 5));
    assert_eq!(entry(2), (other, 0, OTHER, 6));
    script.target.disconnect(other, 0);
    let _ = script.events();
    let page = report(&mut script, one);
    assert_eq!(parse_extended(&page).unwrap().1[2].cntlid.get(), CNTLID_NONE);
    let short = ReservationReportFields { bytes: 28, extended: true }.emit(1);
    assert_eq!(run(&mut script, one, (short, Vec::new())).1, page[..28]);
    // 64 bits are too few for the identifiers here.
    let (status, _) = run(
        &mut script,
        one,
        (ReservationReportFields { bytes: 4096, extended: false }.emit(1), Vec::new()),
    );
    assert_eq!(status, Status::HOST_ID_INCONSISTENT.dnr());
}

#[test]
fn what_cannot_be_is_refused() {
    let mut script = script();
    let cntlid = script.controller(NQN);
    let good = register(5, ChangePersistence::Keep);
    let mut check = |cntlid, command, status: Status| {
        assert_eq!(run(&mut script, cntlid, command).0, status.dnr());
    };
    check(cntlid, (good.0, vec![0; 8]), Status::DATA_SGL_LENGTH_INVALID);
    let ignoring = |mut sqe: Sqe| {
        sqe.cdw10 = (sqe.cdw10.get() | 8).into();
        sqe
    };
    let (sqe, data) = acquire(AcquireAction::Acquire, 5, 0);
    check(cntlid, (ignoring(sqe), data), Status::INVALID_FIELD);
    let release =
        ReservationRelease { action: Some(ReleaseAction::Clear), ignores_key: true, kind: None };
    check(cntlid, (release.emit(1), vec![0; 8]), Status::INVALID_FIELD);
    for nsid in [0, 2, NSID_ALL] {
        let sqe = Sqe { nsid: nsid.into(), ..good.0 };
        check(cntlid, (sqe, good.1.clone()), Status::INVALID_NAMESPACE);
    }
    // Namespace 3 cannot store reservations.
    let (sqe, data) = register(5, ChangePersistence::Set);
    check(cntlid, (Sqe { nsid: 3.into(), ..sqe }, data), Status::INVALID_FIELD);
    let gone = run(&mut script, 4711, good).0;
    assert_eq!(gone, Status::ABORTED_SQ_DELETION);
}

fn get(fid: u8, nsid: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode::GET_FEATURES, nsid);
    sqe.cdw10 = u32::from(fid).into();
    assert_eq!(GetFeatures::parse(&sqe).fid, fid);
    sqe
}

fn set(fid: u8, nsid: u32, value: u32) -> Sqe {
    Sqe { nsid: nsid.into(), ..SetFeatures::emit(fid, value) }
}

fn next_log(script: &mut Script, cntlid: u16, rae: bool) -> (u64, u8, u8, u32) {
    let get = GetLogPage { rae, ..GetLogPage::new(lid::RESERVATION_NOTIFICATION, 64) };
    let answer = script.succeed(cntlid, get.emit(NSID_ALL));
    let log: &NotificationLog = answer.page();
    (log.count.get(), log.kind, log.available, log.nsid.get())
}

#[test]
fn hosts_are_notified_of_other_hosts_commands() {
    let mut script = script();
    let (one, other) = (script.controller(NQN), controller_of(&mut script, OTHER));
    succeeds(&mut script, one, register(5, ChangePersistence::Keep));
    succeeds(&mut script, other, register(6, ChangePersistence::Keep));
    succeeds(&mut script, one, acquire(AcquireAction::Acquire, 5, 0));
    assert_eq!(script.submit(other, Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0)), None);
    let cid = script.cid();
    let kind = Some(ReservationType::WriteExclusiveRegistrantsOnly);
    let action = Some(ReleaseAction::Release);
    let release = ReservationRelease { action, ignores_key: false, kind }.emit(1);
    script.target.reserve(one, &release, &5u64.to_le_bytes(), 1);
    let (status, result) = (Status::SUCCESS, 0x0080_0006);
    let notified = TargetEvent::EventCompletion { cntlid: other, cid, status, result };
    let report = [].into();
    assert_eq!(script.events(), [notified, TargetEvent::Reserved { token: 1, status, report }]);
    succeeds(&mut script, one, acquire(AcquireAction::Preempt, 5, 6));
    assert_eq!(next_log(&mut script, other, true), (1, 2, 1, 1), "it stays");
    assert_eq!(next_log(&mut script, other, false), (1, 2, 1, 1));
    assert_eq!(next_log(&mut script, other, false), (2, 1, 0, 1));
    assert_eq!(next_log(&mut script, other, false), (0, 0, 0, 0));
    assert_eq!(next_log(&mut script, one, false), (0, 0, 0, 0), "it did it itself");
}

#[test]
fn masks_are_kept_for_each_namespace() {
    let mut script = script();
    let cntlid = script.controller(NQN);
    let mask = fid::RESERVATION_NOTIFICATION_MASK;
    assert_eq!(script.succeed(cntlid, get(mask, 1)).result, 0);
    script.succeed(cntlid, set(mask, 1, 0b0100));
    assert_eq!(script.succeed(cntlid, get(mask, 1)).result, 0b0100);
    assert_eq!(script.succeed(cntlid, get(mask, 3)).result, 0);
    script.succeed(cntlid, set(mask, NSID_ALL, 0b1110));
    assert_eq!(script.succeed(cntlid, get(mask, 3)).result, 0b1110);
    script.fail(cntlid, set(mask, 1, 1), Status::INVALID_FIELD);
    script.fail(cntlid, set(mask, 2, 0), Status::INVALID_NAMESPACE);
    script.fail(cntlid, get(mask, NSID_ALL), Status::INVALID_NAMESPACE);
    let other = controller_of(&mut script, OTHER);
    assert_eq!(script.succeed(other, get(mask, 1)).result, 0, "each controller has its own");
    script.set_cc(cntlid, 0);
    script.enable(cntlid);
    assert_eq!(script.succeed(cntlid, get(mask, 1)).result, 0, "until it is reset");
}

#[test]
fn persistence_is_saved_before_it_is_reported() {
    let mut script = script();
    let cntlid = script.controller(NQN);
    let feature = fid::RESERVATION_PERSISTENCE;
    assert_eq!(script.submit(cntlid, set(feature, 1, 1)), None);
    let cid = script.cid();
    let events = script.events();
    let [TargetEvent::Save { turn, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(script.succeed(cntlid, get(feature, 1)).result, 0);
    script.target.saved(turn, true);
    let (status, result) = (Status::SUCCESS, 0);
    assert_eq!(script.events(), [TargetEvent::Completion { cntlid, cid, status, result }]);
    assert_eq!(script.succeed(cntlid, get(feature, 1)).result, 1);
    script.fail(cntlid, set(feature, 1, 2), Status::INVALID_FIELD);
    script.fail(cntlid, set(feature, 2, 1), Status::INVALID_NAMESPACE);
    // One of all namespaces cannot store them.
    assert_eq!(script.submit(cntlid, set(feature, NSID_ALL, 1)), None);
    let (cid, status) = (script.cid(), Status::INVALID_FIELD.dnr());
    assert_eq!(script.events(), [TargetEvent::Completion { cntlid, cid, status, result }]);
}

#[test]
fn lanes_see_what_a_reservation_forbids_until_it_ends() {
    let mut script = script();
    let (one, other) = (script.controller(NQN), controller_of(&mut script, OTHER));
    let access = script.target.access(NQN, 1, OTHER).unwrap();
    succeeds(&mut script, one, register(5, ChangePersistence::Keep));
    assert!(!access.refuses(CommandGroup::Write));
    succeeds(&mut script, one, acquire(AcquireAction::Acquire, 5, 0));
    assert!(access.refuses(CommandGroup::Write) && !access.refuses(CommandGroup::Read));
    succeeds(&mut script, other, register(6, ChangePersistence::Keep));
    assert!(!access.refuses(CommandGroup::Write), "a registrant may");
    assert!(script.target.access(NQN, 2, OTHER).is_none());
}

/// Returns a restarted target with the reservations of `target`.
fn restarted(target: &TargetControl) -> Script {
    let state = target.reservations(NQN, 1).unwrap().clone();
    let mut script = script();
    script.target.restore_reservations(NQN, 1, state);
    script
}

#[test]
fn what_was_kept_comes_back_and_not_over_what_has_happened() {
    let mut first = script();
    let cntlid = first.controller(NQN);
    succeeds(&mut first, cntlid, register(5, ChangePersistence::Set));
    succeeds(&mut first, cntlid, acquire(AcquireAction::Acquire, 5, 0));
    let mut script = restarted(&first.target);
    let other = controller_of(&mut script, OTHER);
    assert!(script.target.access(NQN, 1, OTHER).unwrap().refuses(CommandGroup::Write));
    let (status, _) = run(&mut script, other, acquire(AcquireAction::Acquire, 5, 0));
    assert_eq!(status, Status::RESERVATION_CONFLICT.dnr());
    let kept = script.target.reservations(NQN, 1).unwrap().clone();
    script.target.restore_reservations(NQN, 1, Default::default());
    assert_eq!(*script.target.reservations(NQN, 1).unwrap(), kept);
}

#[test]
fn reservations_end_with_their_namespace() {
    let mut script = script();
    let cntlid = script.controller(NQN);
    let (sqe, data) = register(5, ChangePersistence::Set);
    script.target.reserve(cntlid, &sqe, &data, 1);
    let events = script.events();
    let [TargetEvent::Save { turn, .. }] = &events[..] else { panic!("{events:?}") };
    script.target.apply(&[remove(1)]).unwrap();
    let status = Status::INVALID_NAMESPACE.dnr();
    let answered = TargetEvent::Reserved { token: 1, status, report: [].into() };
    assert!(script.events().contains(&answered));
    script.target.saved(turn, true);
    assert_eq!(script.events(), [], "no command waits for it any more");
    let again = NamespaceConfig::new(1, 64, 9);
    script.target.apply(&[super::script::add(NQN, again)]).unwrap();
    assert_eq!(script.target.reservations(NQN, 1).unwrap().registrants.len(), 0);
}

/// Sets the state and the ownership term of namespace 1's blocks.
fn hand(script: &mut Script, ana: AnaState, tenure: u64) {
    let mut namespaces = script.target.config().subsystems[0].namespaces.iter();
    let whole = namespaces.find(|namespace| namespace.nsid == 1).unwrap().clone();
    let (nqn, namespace) =
        (NQN.to_owned(), NamespaceConfig { ana, ownership_term: tenure, ..whole });
    script.target.apply(&[ConfigOperation::ReplaceNamespace { nqn, namespace }]).unwrap();
}

/// Returns reservations as another target has left them: the other host has preempted the first one.
fn left_by_another() -> ReservationState {
    let mut script = script();
    let (one, other) = (script.controller(NQN), controller_of(&mut script, OTHER));
    succeeds(&mut script, one, register(5, ChangePersistence::Set));
    succeeds(&mut script, one, acquire(AcquireAction::Acquire, 5, 0));
    succeeds(&mut script, other, register(6, ChangePersistence::Keep));
    succeeds(&mut script, other, acquire(AcquireAction::Preempt, 6, 5));
    script.target.reservations(NQN, 1).unwrap().clone()
}

#[test]
fn what_another_target_has_done_holds_when_the_blocks_come_back() {
    let left = left_by_another();
    for kept in [Some(&left), None] {
        let mut script = script();
        let (one, other) = (script.controller(NQN), controller_of(&mut script, OTHER));
        let feature = fid::RESERVATION_NOTIFICATION_MASK;
        script.succeed(one, set(feature, 1, 2));
        succeeds(&mut script, one, register(5, ChangePersistence::Set));
        succeeds(&mut script, one, acquire(AcquireAction::Acquire, 5, 0));
        assert!(script.target.access(NQN, 1, OTHER).unwrap().refuses(CommandGroup::Write));
        script.events();
        // Fenced, standing by, and served again.
        hand(&mut script, AnaState::Inaccessible, 0);
        hand(&mut script, AnaState::Inaccessible, 1);
        hand(&mut script, AnaState::Optimized, 2);
        kept.into_iter().for_each(|kept| script.target.restore_reservations(NQN, 1, kept.clone()));
        assert!(script.events().iter().all(|event| !matches!(event, TargetEvent::Save { .. })));
        let known = script.target.reservations(NQN, 1).unwrap();
        assert_eq!(*known, kept.cloned().unwrap_or_default());
        let refused = [HOSTID, OTHER]
            .map(|host| script.target.access(NQN, 1, host).unwrap().refuses(CommandGroup::Write));
        assert_eq!(refused, [kept.is_some(), false]);
        assert_eq!(script.succeed(one, get(feature, 1)).result, 2, "the host's own setting stays");
        let (status, _) = run(&mut script, other, acquire(AcquireAction::Acquire, 6, 0));
        assert_eq!(status.is_success(), kept.is_some());
    }
}

/// The cluster was not reachable for a while, and no other target has owned the blocks.
#[test]
fn reservations_stay_while_the_blocks_are_inaccessible_without_another_owner() {
    let mut script = script();
    let one = script.controller(NQN);
    succeeds(&mut script, one, register(5, ChangePersistence::Keep));
    succeeds(&mut script, one, acquire(AcquireAction::Acquire, 5, 0));
    hand(&mut script, AnaState::Inaccessible, 0);
    hand(&mut script, AnaState::Optimized, 0);
    script.target.restore_reservations(NQN, 1, ReservationState::default());
    assert!(script.target.access(NQN, 1, OTHER).unwrap().refuses(CommandGroup::Write));
}

#[test]
fn a_target_that_stands_by_leaves_reservations_alone() {
    let mut script = script();
    let one = script.controller(NQN);
    let inaccessible = Status::ANA_INACCESSIBLE;
    // Commands that wait when the blocks are lost are retried on another path; a change being saved may be in force
    // there.
    for (token, key) in [(1, 5), (2, 6)] {
        let (sqe, data) = register(key, ChangePersistence::Set);
        script.target.reserve(one, &sqe, &data, token);
    }
    let events = script.events();
    let [TargetEvent::Save { turn, .. }] = &events[..] else { panic!("{events:?}") };
    hand(&mut script, AnaState::Inaccessible, 0);
    let refused = |token| TargetEvent::Reserved { token, status: inaccessible, report: [].into() };
    let events = script.events();
    assert!(events.contains(&refused(1)) && events.contains(&refused(2)), "{events:?}");
    script.target.saved(turn, true);
    assert_eq!(script.events(), [], "no command waits for it");
    // No command of a host changes anything that the file would change back.
    hand(&mut script, AnaState::Inaccessible, 1);
    script.events();
    let (status, _) = run(&mut script, one, register(7, ChangePersistence::Keep));
    assert_eq!(status, inaccessible);
    let feature = fid::RESERVATION_PERSISTENCE;
    for nsid in [1, NSID_ALL] {
        assert_eq!(script.submit(one, set(feature, nsid, 0)), None);
        let (cntlid, cid, result) = (one, script.cid(), 0);
        let answer = TargetEvent::Completion { cntlid, cid, status: inaccessible, result };
        assert_eq!(script.events(), [answer]);
    }
    let answer = script.submit(one, get(feature, 1)).expect("completed at once");
    assert_eq!(answer.status, inaccessible);
    let left = left_by_another();
    hand(&mut script, AnaState::Optimized, 2);
    script.target.restore_reservations(NQN, 1, left.clone());
    assert_eq!(*script.target.reservations(NQN, 1).unwrap(), left);
}

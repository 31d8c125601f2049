//! Asynchronous events, from the change to the log page.

use super::script::{NQN, Script, add, remove, resize};
use roadtrain_target_proto::{AdminOutcome, NamespaceConfig, TargetEvent};
use roadtrain_wire::fabrics::{Property, PropertySize, property};
use roadtrain_wire::feature::{SetFeatures, fid};
use roadtrain_wire::identify::{NSID_ALL, NamespaceList};
use roadtrain_wire::log::{GetLogPage, lid};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;

/// Connects a controller with notices enabled and `requests` outstanding. Returns their identifiers.
fn listening(script: &mut Script, requests: u16) -> (u16, Vec<u16>) {
    let cntlid = script.controller(NQN);
    script.succeed(cntlid, SetFeatures::emit(fid::ASYNC_EVENT_CONFIG, 0x900));
    let cids = (0..requests)
        .map(|_| {
            let sqe = Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0);
            assert_eq!(script.submit(cntlid, sqe), None);
            script.cid()
        })
        .collect();
    (cntlid, cids)
}

fn namespace_changed(cntlid: u16, cid: u16) -> TargetEvent {
    TargetEvent::EventCompletion { cntlid, cid, status: Status::SUCCESS, result: 0x0004_0002 }
}

/// Submits a command with the caller's identifier.
fn submit_as(script: &mut Script, cntlid: u16, cid: u16, mut sqe: Sqe) -> AdminOutcome {
    sqe.cid = cid.into();
    script.target.admin_command(script.now, cntlid, &sqe, &[], &mut Vec::new())
}

fn tables_changed() -> TargetEvent {
    TargetEvent::NamespacesChanged { nqn: NQN.into() }
}

fn changed_list(script: &mut Script, cntlid: u16, rae: bool) -> Vec<u32> {
    let get = GetLogPage { rae, ..GetLogPage::new(lid::CHANGED_NAMESPACES, 4096) };
    script.succeed(cntlid, get.emit(0xffff_ffff)).page::<NamespaceList>().iter().collect()
}

#[test]
fn every_change_of_a_namespace_is_reported_and_listed() {
    let mut script = Script::new();
    let (cntlid, cids) = listening(&mut script, 3);
    script.target.apply(&[add(NQN, NamespaceConfig::new(2, 64, 9))]).unwrap();
    assert_eq!(script.events(), [namespace_changed(cntlid, cids[0]), tables_changed()]);
    assert_eq!(changed_list(&mut script, cntlid, false), [2]);
    script.target.apply(&[resize(1, 77)]).unwrap();
    assert_eq!(script.events(), [namespace_changed(cntlid, cids[1]), tables_changed()]);
    assert_eq!(changed_list(&mut script, cntlid, false), [1]);
    script.target.apply(&[remove(2)]).unwrap();
    assert_eq!(script.events(), [namespace_changed(cntlid, cids[2]), tables_changed()]);
    assert_eq!(changed_list(&mut script, cntlid, false), [2]);
    assert_eq!(changed_list(&mut script, cntlid, false), [] as [u32; 0]);
}

/// More changes than a page holds: the list says that any namespace may have changed.
#[test]
fn a_list_of_changes_overflows() {
    let mut script = Script::new();
    let (cntlid, cids) = listening(&mut script, 2);
    let added = |nsids: std::ops::RangeInclusive<u32>| -> Vec<_> {
        nsids.map(|nsid| add(NQN, NamespaceConfig::new(nsid, 64, 9))).collect()
    };
    script.target.apply(&added(101..=1124)).unwrap();
    let reported = |script: &mut Script, cid| {
        let events = script.events();
        events.iter().filter(|event| **event == namespace_changed(cntlid, cid)).count()
    };
    assert_eq!(reported(&mut script, cids[0]), 1);
    assert!(changed_list(&mut script, cntlid, true).into_iter().eq(101..=1124));
    script.target.apply(&added(1125..=1125)).unwrap();
    assert_eq!(changed_list(&mut script, cntlid, false), [NSID_ALL]);
    assert_eq!(changed_list(&mut script, cntlid, false), [] as [u32; 0]);
    script.target.apply(&[remove(1125)]).unwrap();
    assert_eq!(reported(&mut script, cids[1]), 1, "the next change is an event again");
    assert_eq!(changed_list(&mut script, cntlid, false), [1125]);
}

#[test]
fn changes_coalesce_until_the_list_is_read() {
    let mut script = Script::new();
    let (cntlid, cids) = listening(&mut script, 2);
    for blocks in [10, 20, 30] {
        script.target.apply(&[resize(1, blocks)]).unwrap();
    }
    script.target.apply(&[resize(3, 10)]).unwrap();
    let events = script.events();
    assert_eq!(events.iter().filter(|e| **e != tables_changed()).count(), 1);
    assert_eq!(changed_list(&mut script, cntlid, true), [1, 3], "retained");
    script.target.apply(&[resize(1, 40)]).unwrap();
    assert_eq!(script.events(), [tables_changed()], "still masked");
    assert_eq!(changed_list(&mut script, cntlid, false), [1, 3]);
    assert_eq!(script.events(), [], "the list has reported it");
    script.target.apply(&[resize(1, 50)]).unwrap();
    assert_eq!(script.events()[0], namespace_changed(cntlid, cids[1]));
}

#[test]
fn an_event_waits_for_its_request() {
    let mut script = Script::new();
    let (cntlid, _) = listening(&mut script, 0);
    script.target.apply(&[resize(1, 10)]).unwrap();
    assert_eq!(script.events(), [tables_changed()]);
    assert_eq!(script.submit(cntlid, Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0)), None);
    let cid = script.cid();
    assert_eq!(script.events(), [namespace_changed(cntlid, cid)]);
}

#[test]
fn every_controller_of_the_subsystem_is_notified_and_no_other() {
    let mut script = Script::new();
    let (first, first_cids) = listening(&mut script, 1);
    let (second, second_cids) = listening(&mut script, 1);
    let quiet = script.controller(NQN);
    let other = script.controller(super::script::PRIVATE_NQN);
    for cntlid in [quiet, other] {
        script.submit(cntlid, Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0));
    }
    script.target.apply(&[remove(1)]).unwrap();
    let expected = [
        namespace_changed(first, first_cids[0]),
        namespace_changed(second, second_cids[0]),
        tables_changed(),
    ];
    assert_eq!(script.events(), expected);
    assert_eq!(changed_list(&mut script, quiet, false), [1], "listed without an event");
    assert_eq!(changed_list(&mut script, other, false), [] as [u32; 0]);
}

/// Hosts consider their requests ended before they shut a controller down, and reuse the identifiers.
#[test]
fn a_command_with_the_identifier_of_a_request_retires_it() {
    let mut script = Script::new();
    let (cntlid, cids) = listening(&mut script, 2);
    let get = Property::get(property::CSTS, PropertySize::Four);
    let done = AdminOutcome::Complete { status: Status::SUCCESS, result: 1 };
    assert_eq!(submit_as(&mut script, cntlid, cids[0], get), done);
    script.target.apply(&[resize(1, 77)]).unwrap();
    assert_eq!(script.events(), [namespace_changed(cntlid, cids[1]), tables_changed()]);
    // A request may take the identifier of another one, and replaces it.
    let (other, cids) = listening(&mut script, 1);
    let request = Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0);
    assert_eq!(submit_as(&mut script, other, cids[0], request), AdminOutcome::Pending);
    for (blocks, reported) in [(78, vec![namespace_changed(other, cids[0])]), (79, vec![])] {
        script.target.apply(&[resize(1, blocks)]).unwrap();
        let mut events = script.events();
        assert_eq!(events.pop(), Some(tables_changed()));
        assert_eq!(events, reported);
        changed_list(&mut script, other, false);
    }
}

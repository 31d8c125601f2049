//! Management of namespaces by hosts that are named as administrators.

use super::script::{HOST, NQN, STRANGER, Script, add, managed, remove};
use crate::cases::cases;
use proptest::collection::vec;
use proptest::prelude::*;
use roadtrain_target_proto::{
    ConfigOperation, NamespaceConfig, NamespaceRequest, NamespaceView, TargetEvent,
};
use roadtrain_wire::fabrics::DISCOVERY_NQN;
use roadtrain_wire::identify::{
    CSI_NVM, IdentifyController, IdentifyNamespace, NMIC_SHARED, NSID_ALL, NamespaceList, cns, oacs,
};
use roadtrain_wire::log::{CommandEffectsLog, GetLogPage, effects, lid};
use roadtrain_wire::namespace_management::{
    self, ControllerList, NewNamespaceData, attachment, create, delete,
};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{FromZeros, IntoBytes};
use std::collections::BTreeSet;

const THIRD: &str = "nqn.2014-08.org.nvmexpress:uuid:c";

fn controller_of(script: &mut Script, host: &str) -> u16 {
    let cntlid = script.connect_as(host, NQN).unwrap().cntlid;
    script.enable(cntlid);
    cntlid
}

fn identify(cns: u8, nsid: u32, cntid: u16) -> Sqe {
    let mut sqe = Sqe::new(opcode::IDENTIFY, nsid);
    sqe.cdw10 = (u32::from(cns) | u32::from(cntid) << 16).into();
    sqe.set_transport(4096);
    sqe
}

fn new_data(change: impl FnOnce(&mut NewNamespaceData)) -> Vec<u8> {
    let mut data = NewNamespaceData::new_zeroed();
    (data.nsze, data.ncap, data.nmic) = (100.into(), 100.into(), NMIC_SHARED);
    change(&mut data);
    data.as_bytes().to_vec()
}

fn list(cntlids: &[u16]) -> Vec<u8> {
    ControllerList::from_cntlids(cntlids.iter().copied()).as_bytes().to_vec()
}

fn hosts(hosts: &[&str]) -> BTreeSet<String> {
    hosts.iter().map(|host| (*host).to_owned()).collect()
}

fn set_hosts(nsid: u32, hosts: Option<BTreeSet<String>>) -> ConfigOperation {
    let view = NamespaceView { hosts, ana_group: 1 };
    ConfigOperation::ViewNamespace { nqn: NQN.to_owned(), nsid, view }
}

/// Submits a command that waits for the owner of the configuration. Returns its number and the request.
fn request(script: &mut Script, cntlid: u16, sqe: Sqe, data: &[u8]) -> (u64, NamespaceRequest) {
    assert_eq!(script.submit_with(cntlid, sqe, data), None, "{sqe:?}");
    match &script.events()[..] {
        [TargetEvent::NamespaceRequest { id, nqn, request }] if **nqn == *NQN => {
            (*id, request.clone())
        }
        events => panic!("{events:?}"),
    }
}

fn refuse(script: &mut Script, cntlid: u16, (sqe, data): (Sqe, &[u8]), status: Status) {
    let completion = script.submit_with(cntlid, sqe, data).expect("completed at once");
    assert_eq!((completion.status, completion.data.len()), (status.dnr(), 0), "{sqe:?}");
    assert_eq!(script.events(), []);
}

fn entries(script: &mut Script, cntlid: u16, sqe: Sqe) -> Vec<u16> {
    let list = script.succeed(cntlid, sqe);
    let list: &ControllerList = list.page();
    list.cntlids().unwrap().iter().map(|cntlid| cntlid.get()).collect()
}

/// Only an administrator sees that namespaces can be managed, and may do so.
#[test]
fn only_administrators_manage_namespaces() {
    let mut script = Script::with(&managed());
    let own = controller_of(&mut script, HOST);
    let other = controller_of(&mut script, STRANGER);
    let discovery = script.connect_as(HOST, DISCOVERY_NQN).unwrap().cntlid;
    script.enable(discovery);
    for (cntlid, manages) in [(own, true), (other, false)] {
        let page = script.succeed(cntlid, identify(cns::CONTROLLER, 0, 0));
        let page: &IdentifyController = page.page();
        assert_eq!(page.oacs.get() & oacs::NAMESPACE_MANAGEMENT != 0, manages);
        let log = script.succeed(cntlid, GetLogPage::new(lid::COMMAND_EFFECTS, 4096).emit(0));
        let log: &CommandEffectsLog = log.page();
        for code in [opcode::NAMESPACE_MANAGEMENT, opcode::NAMESPACE_ATTACHMENT] {
            let effect = log.admin[usize::from(code)].get();
            assert_eq!(effect & effects::INVENTORY_CHANGE != 0, manages);
            assert_eq!(effect & effects::SUPPORTED != 0, manages);
        }
    }
    let data = new_data(|_| ());
    for cntlid in [other, discovery] {
        refuse(&mut script, cntlid, (create(CSI_NVM), &data), Status::INVALID_OPCODE);
        refuse(&mut script, cntlid, (delete(1), &[]), Status::INVALID_OPCODE);
        let attach = namespace_management::attachment(1, attachment::ATTACH);
        refuse(&mut script, cntlid, (attach, &list(&[own])), Status::INVALID_OPCODE);
        for cns in cns::ALLOCATED_NAMESPACES..=cns::CONTROLLERS {
            script.fail(cntlid, identify(cns, 1, 0), Status::INVALID_FIELD);
        }
    }
    script.fail(other, identify(cns::NAMESPACE, NSID_ALL, 0), Status::INVALID_NAMESPACE);
    // The right ends while the host is connected.
    let nqn = NQN.to_owned();
    let end = ConfigOperation::SetNamespaceManagement { nqn, management: None };
    script.target.apply(&[end]).unwrap();
    refuse(&mut script, own, (create(CSI_NVM), &data), Status::INVALID_OPCODE);
}

#[test]
fn a_create_is_completed_with_the_nsid() {
    let mut script = Script::with(&managed());
    let cntlid = controller_of(&mut script, HOST);
    let common = script.succeed(cntlid, identify(cns::NAMESPACE, NSID_ALL, 0));
    let common: &IdentifyNamespace = common.page();
    assert_eq!((common.block_bytes(), common.nlbaf, common.nsze.get()), (Some(4096), 0, 0));
    let wanted = new_data(|new| new.anagrpid = 7.into());
    let (id, create_request) = request(&mut script, cntlid, create(CSI_NVM), &wanted);
    assert_eq!(
        create_request,
        NamespaceRequest::Create { blocks: 100, lba_shift: 12, ana_group: 7 }
    );
    let cid = script.cid();
    script.target.namespace_request_done(id + 1, Ok(9));
    assert_eq!(script.events(), [], "the number of no request");
    script.target.namespace_request_done(id, Ok(2));
    let status = Status::SUCCESS;
    assert_eq!(script.events(), [TargetEvent::Completion { cntlid, cid, status, result: 2 }]);
    script.target.namespace_request_done(id, Ok(2));
    assert_eq!(script.events(), [], "it completes once");

    let (id, request) = request(&mut script, cntlid, create(CSI_NVM), &new_data(|_| ()));
    assert_eq!(request, NamespaceRequest::Create { blocks: 100, lba_shift: 12, ana_group: 1 });
    let status = Status::NAMESPACE_INSUFFICIENT_CAPACITY.dnr();
    script.target.namespace_request_done(id, Err(status));
    let cid = script.cid();
    assert_eq!(script.events(), [TargetEvent::Completion { cntlid, cid, status, result: 0 }]);
}

#[test]
fn a_create_with_an_invalid_field_is_refused() {
    let mut script = Script::with(&managed());
    let cntlid = controller_of(&mut script, HOST);
    let good = new_data(|_| ());
    let too_long = [&good[..], &[0; 4]].concat();
    for data in [&[][..], &good[..4095], &too_long] {
        refuse(&mut script, cntlid, (create(CSI_NVM), data), Status::DATA_SGL_LENGTH_INVALID);
    }
    let other_set = (create(1), &good[..]);
    refuse(&mut script, cntlid, other_set, Status::COMMAND_SET_NOT_SUPPORTED);
    let mut named = create(CSI_NVM);
    named.nsid = 5.into();
    refuse(&mut script, cntlid, (named, &good), Status::INVALID_FIELD);
    for sel in 2..=15 {
        let mut sqe = create(CSI_NVM);
        sqe.cdw10 = sel.into();
        refuse(&mut script, cntlid, (sqe, &good), Status::INVALID_FIELD);
        let sqe = namespace_management::attachment(1, sel as u8);
        refuse(&mut script, cntlid, (sqe, &list(&[cntlid])), Status::INVALID_FIELD);
    }
    type Edit = fn(&mut NewNamespaceData);
    let edits: [(Edit, Status); 12] = [
        (|new| new.nsze = 0.into(), Status::INVALID_FIELD),
        (|new| (new.nsze, new.ncap) = (0.into(), 0.into()), Status::INVALID_FIELD),
        (|new| new.ncap = 101.into(), Status::INVALID_FIELD),
        (|new| new.ncap = 99.into(), Status::THIN_PROVISIONING_NOT_SUPPORTED),
        (|new| new.flbas = 1, Status::INVALID_FORMAT),
        (|new| new.flbas = 0x20, Status::INVALID_FORMAT),
        (|new| new.dps = 1, Status::INVALID_FIELD),
        (|new| new.nmic = 0, Status::INVALID_FIELD),
        (|new| new.anagrpid = 513.into(), Status::ANA_GROUP_INVALID),
        (|new| new.nvmsetid = 1.into(), Status::INVALID_FIELD),
        (|new| new.endgid = 1.into(), Status::INVALID_FIELD),
        (
            |new| (new.nsze, new.ncap) = (u64::MAX.into(), u64::MAX.into()),
            Status::NAMESPACE_INSUFFICIENT_CAPACITY,
        ),
    ];
    for (edit, status) in edits {
        refuse(&mut script, cntlid, (create(CSI_NVM), &new_data(edit)), status);
    }
    request(&mut script, cntlid, create(CSI_NVM), &good);
}

#[test]
fn a_delete_names_an_allocated_namespace_or_all() {
    let mut script = Script::with(&managed());
    let cntlid = controller_of(&mut script, HOST);
    script.target.apply(&[set_hosts(3, Some(BTreeSet::new()))]).unwrap();
    script.events();
    for (nsid, wanted) in [(1, Some(1)), (3, Some(3)), (NSID_ALL, None)] {
        let (id, request) = request(&mut script, cntlid, delete(nsid), &[]);
        assert_eq!(request, NamespaceRequest::Delete { nsid: wanted });
        script.target.namespace_request_done(id, Ok(0));
        script.events();
    }
    for (nsid, status) in [
        (0, Status::INVALID_NAMESPACE),
        (2, Status::INVALID_FIELD),
        (16_385, Status::INVALID_NAMESPACE),
        (0xffff_fffe, Status::INVALID_NAMESPACE),
    ] {
        refuse(&mut script, cntlid, (delete(nsid), &[]), status);
    }
}

/// A controller has one request at a time, which ends with a reset of the controller.
#[test]
fn a_request_at_a_time() {
    let mut script = Script::with(&managed());
    let cntlid = controller_of(&mut script, HOST);
    let other = controller_of(&mut script, HOST);
    let (first, _) = request(&mut script, cntlid, delete(1), &[]);
    let cid = script.cid();
    let again = script.submit(cntlid, delete(1)).expect("completed at once");
    assert_eq!(again.status, Status::COMMAND_INTERRUPTED, "a retry may succeed");
    let (second, _) = request(&mut script, other, delete(1), &[]);
    assert_ne!(first, second);
    script.set_cc(cntlid, 0);
    let status = Status::ABORT_REQUESTED;
    let ended = TargetEvent::Completion { cntlid, cid, status, result: 0 };
    assert!(script.events().contains(&ended));
    script.target.disconnect(other, 0);
    script.events();
    script.target.namespace_request_done(first, Ok(0));
    script.target.namespace_request_done(second, Ok(0));
    assert_eq!(script.events(), []);
}

#[test]
fn attach_and_detach_name_the_hosts_of_controllers() {
    let mut script = Script::with(&managed());
    let own = [controller_of(&mut script, HOST), controller_of(&mut script, HOST)];
    let other = controller_of(&mut script, STRANGER);
    let all = [own[0], own[1], other];
    script.target.apply(&[set_hosts(1, Some(BTreeSet::new()))]).unwrap();
    script.events();
    let attach = namespace_management::attachment(1, attachment::ATTACH);
    let detach = namespace_management::attachment(1, attachment::DETACH);
    let (id, attached) = request(&mut script, own[0], attach, &list(&all));
    assert_eq!(attached, NamespaceRequest::Attach { nsid: 1, hosts: hosts(&[HOST, STRANGER]) });
    script.target.namespace_request_done(id, Ok(0));
    script.events();
    let none = (detach, &list(&[other])[..]);
    refuse(&mut script, own[0], none, Status::NAMESPACE_NOT_ATTACHED);

    script.target.apply(&[set_hosts(1, Some(hosts(&[HOST])))]).unwrap();
    script.events();
    assert_eq!(entries(&mut script, own[0], identify(cns::ATTACHED_CONTROLLERS, 1, 0)), own);
    for cntlids in [&own[..1], &own[1..], &all] {
        let twice = (attach, &list(cntlids)[..]);
        refuse(&mut script, own[0], twice, Status::NAMESPACE_ALREADY_ATTACHED);
    }
    let more = (detach, &list(&all)[..]);
    refuse(&mut script, own[0], more, Status::NAMESPACE_NOT_ATTACHED);
    let (id, detached) = request(&mut script, own[0], detach, &list(&own[1..]));
    assert_eq!(detached, NamespaceRequest::Detach { nsid: 1, hosts: hosts(&[HOST]) });
    script.target.namespace_request_done(id, Ok(0));
    script.events();
}

#[test]
fn a_controller_list_is_checked() {
    let mut script = Script::with(&managed());
    let cntlid = controller_of(&mut script, HOST);
    let discovery = script.connect_as(HOST, DISCOVERY_NQN).unwrap().cntlid;
    script.target.apply(&[set_hosts(1, Some(BTreeSet::new()))]).unwrap();
    script.events();
    let attach = namespace_management::attachment(1, attachment::ATTACH);
    let mut too_long = ControllerList::from_cntlids([cntlid]);
    too_long.count = 2048.into();
    let unordered = list(&[cntlid, cntlid]);
    let lists =
        [list(&[]), list(&[999]), list(&[cntlid, 999]), list(&[discovery]), unordered, list(&[0])];
    for data in lists.iter().map(Vec::as_slice).chain([too_long.as_bytes()]) {
        refuse(&mut script, cntlid, (attach, data), Status::CONTROLLER_LIST_INVALID);
    }
    let short = (attach, &list(&[cntlid])[..4094]);
    refuse(&mut script, cntlid, short, Status::DATA_SGL_LENGTH_INVALID);
    for (nsid, status) in [
        (0, Status::INVALID_NAMESPACE),
        (2, Status::INVALID_FIELD),
        (NSID_ALL, Status::INVALID_NAMESPACE),
    ] {
        let sqe = namespace_management::attachment(nsid, attachment::ATTACH);
        refuse(&mut script, cntlid, (sqe, &list(&[cntlid])), status);
    }
    // Any host sees namespace 3 and may connect: there is no list of the others.
    let detach = namespace_management::attachment(3, attachment::DETACH);
    let data = list(&[cntlid]);
    refuse(&mut script, cntlid, (detach, &data), Status::CONTROLLER_LIST_INVALID);
    let nqn = || NQN.to_owned();
    let named =
        [HOST, THIRD].map(|host| ConfigOperation::AllowHost { nqn: nqn(), host: host.into() });
    let only = ConfigOperation::AllowAnyHost { nqn: nqn(), allow: false };
    script.target.apply(&[&[only][..], &named].concat()).unwrap();
    script.events();
    let (_, detached) = request(&mut script, cntlid, detach, &data);
    assert_eq!(detached, NamespaceRequest::Detach { nsid: 3, hosts: hosts(&[HOST]) });
}

#[derive(Clone, Debug)]
enum ManagementStep {
    Show(u32, Option<BTreeSet<usize>>),
    Add(u32),
    Remove(u32),
    Connect(usize),
    Disconnect(usize),
}

const HOSTS: [&str; 3] = [HOST, STRANGER, THIRD];

fn a_step() -> impl Strategy<Value = ManagementStep> {
    let some = proptest::option::of(proptest::collection::btree_set(0..3usize, 0..3));
    prop_oneof![
        3 => (1..5u32, some).prop_map(|(nsid, hosts)| ManagementStep::Show(nsid, hosts)),
        2 => (1..5u32).prop_map(ManagementStep::Add),
        1 => (1..5u32).prop_map(ManagementStep::Remove),
        3 => (0..3usize).prop_map(ManagementStep::Connect),
        1 => (0..6usize).prop_map(ManagementStep::Disconnect),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    /// The lists for administrators show all namespaces and controllers, and which belong together.
    #[test]
    fn the_lists_of_administrators_are_those_of_the_configuration(steps in vec(a_step(), 1..20)) {
        let mut script = Script::with(&managed());
        let admin = controller_of(&mut script, HOST);
        let mut others: Vec<(u16, usize)> = Vec::new();
        for step in steps {
            // Changes that are impossible leave the configuration as it is.
            match step {
                ManagementStep::Show(nsid, seen) => {
                    let seen = seen.map(|seen| seen.into_iter().map(|at| HOSTS[at].to_owned()).collect());
                    drop(script.target.apply(&[set_hosts(nsid, seen)]));
                }
                ManagementStep::Add(nsid) => {
                    drop(script.target.apply(&[add(NQN, NamespaceConfig::new(nsid, 8, 9))]));
                }
                ManagementStep::Remove(nsid) => drop(script.target.apply(&[remove(nsid)])),
                ManagementStep::Connect(host) => {
                    others.push((controller_of(&mut script, HOSTS[host]), host));
                }
                ManagementStep::Disconnect(at) if at < others.len() => {
                    script.target.disconnect(others.remove(at).0, 0);
                }
                ManagementStep::Disconnect(_) => {}
            }
            script.events();
        }
        let config = script.target.config().subsystems[0].clone();
        let mut all: Vec<(u16, usize)> = [(admin, 0)].into_iter().chain(others).collect();
        all.sort_unstable();
        let cntlids: Vec<u16> = all.iter().map(|(cntlid, _)| *cntlid).collect();
        prop_assert_eq!(&entries(&mut script, admin, identify(cns::CONTROLLERS, 0, 0)), &cntlids);
        let from = cntlids[cntlids.len() / 2];
        let above = entries(&mut script, admin, identify(cns::CONTROLLERS, 0, from));
        prop_assert_eq!(&above[..], &cntlids[cntlids.len() / 2..]);
        let mut nsids: Vec<u32> = config.namespaces.iter().map(|one| one.nsid).collect();
        nsids.sort_unstable();
        let list = script.succeed(admin, identify(cns::ALLOCATED_NAMESPACES, 0, 0));
        prop_assert!(list.page::<NamespaceList>().iter().eq(nsids.iter().copied()));
        for nsid in 1..6 {
            let page = script.succeed(admin, identify(cns::ALLOCATED_NAMESPACE, nsid, 0));
            let one = config.namespaces.iter().find(|one| one.nsid == nsid);
            prop_assert_eq!(page.page::<IdentifyNamespace>().nsze.get(), one.map_or(0, |one| one.blocks));
            let attached = identify(cns::ATTACHED_CONTROLLERS, nsid, 0);
            let Some(one) = one else {
                script.fail(admin, attached, Status::INVALID_FIELD);
                continue;
            };
            let seen = all.iter().filter(|(_, host)| one.view.shows_to(HOSTS[*host]));
            let seen: Vec<u16> = seen.map(|(cntlid, _)| *cntlid).collect();
            prop_assert_eq!(entries(&mut script, admin, attached), seen);
        }
    }
}

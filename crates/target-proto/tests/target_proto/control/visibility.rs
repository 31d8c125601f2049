//! Hosts that see a namespace, and ANA groups: each list, log, event and command of a host shows what it may see.

use super::script::{HOST, NQN, STRANGER, Script, add, config, local, remove};
use crate::cases::cases;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use roadtrain_target_proto::{
    AnaListener, AnaState, ConfigError, ConfigOperation, NamespaceConfig, NamespaceId,
    NamespaceView, TargetConfig, TargetEvent,
};
use roadtrain_wire::ana::{ana_groups, ana_log_bytes};
use roadtrain_wire::feature::{SetFeatures, fid};
use roadtrain_wire::identify::{
    IdentifyController, IdentifyNamespace, IdentifyNamespaceIndependent, NSID_ALL, NamespaceList,
    cns,
};
use roadtrain_wire::lba_status::{GetLbaStatus, action};
use roadtrain_wire::log::{GetLogPage, lid};
use roadtrain_wire::reservation::ReservationReportFields;
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const THIRD: &str = "nqn.2014-08.org.nvmexpress:uuid:c";
const HOSTS: [&str; 3] = [HOST, STRANGER, THIRD];
/// NSIDs that the test uses.
const NSIDS: u32 = 5;

fn view(hosts: Option<&[&str]>, ana_group: u32) -> NamespaceView {
    let hosts = hosts.map(|hosts| hosts.iter().map(|host| (*host).to_owned()).collect());
    NamespaceView { hosts, ana_group }
}

fn set_view(nsid: u32, view: NamespaceView) -> ConfigOperation {
    ConfigOperation::ViewNamespace { nqn: NQN.to_owned(), nsid, view }
}

fn set_group(group: u32, state: Option<AnaState>) -> ConfigOperation {
    let listener = AnaListener::Tcp(local());
    ConfigOperation::SetGroupAna { nqn: NQN.to_owned(), group, listener, state }
}

fn namespace(nsid: u32, blocks: u64, view: NamespaceView) -> NamespaceConfig {
    let id = NamespaceId::choose(Some([nsid as u8 + 1; 16]), None, 0);
    NamespaceConfig { id: Some(id), view, ..NamespaceConfig::new(nsid, blocks, 9) }
}

/// Returns the test's configuration, without namespaces.
fn empty() -> TargetConfig {
    let mut config = config();
    config.subsystems[0].namespaces.clear();
    config
}

/// Connects a controller of a host, with events of namespaces and ANA states enabled and three event requests.
fn controller_of(script: &mut Script, host: &str) -> u16 {
    let cntlid = script.connect_as(host, NQN).unwrap().cntlid;
    script.enable(cntlid);
    script.succeed(cntlid, SetFeatures::emit(fid::ASYNC_EVENT_CONFIG, 0x900));
    for _ in 0..3 {
        assert_eq!(script.submit(cntlid, Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0)), None);
    }
    cntlid
}

fn identify(cns: u8, nsid: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode::IDENTIFY, nsid);
    sqe.cdw10 = u32::from(cns).into();
    sqe.set_transport(4096);
    sqe
}

/// Returns the active namespaces of a controller.
fn active(script: &mut Script, cntlid: u16) -> BTreeSet<u32> {
    let answer = script.succeed(cntlid, identify(cns::ACTIVE_NAMESPACES, 0));
    answer.page::<NamespaceList>().iter().collect()
}

/// Reads the list of changed namespaces.
fn changed(script: &mut Script, cntlid: u16) -> BTreeSet<u32> {
    let get = GetLogPage::new(lid::CHANGED_NAMESPACES, 4096);
    script.succeed(cntlid, get.emit(NSID_ALL)).page::<NamespaceList>().iter().collect()
}

/// Reads the ANA log: group and state of each namespace.
fn ana(script: &mut Script, cntlid: u16) -> BTreeMap<u32, (u32, AnaState)> {
    let page = script.succeed(cntlid, identify(cns::CONTROLLER, 0));
    let page = page.page::<IdentifyController>();
    let bytes = ana_log_bytes(page.nanagrpid.get(), page.mnan.get());
    let get = GetLogPage::new(lid::ANA, u32::try_from(bytes).unwrap());
    let log = script.succeed(cntlid, get.emit(NSID_ALL)).data;
    let groups = ana_groups(&log).flat_map(|(group, nsids)| {
        let (id, state) = (group.grpid.get(), group.state().unwrap());
        nsids.iter().map(move |nsid| (nsid.get(), (id, state))).collect::<Vec<_>>()
    });
    groups.collect()
}

/// Checks that the controller sees exactly the namespaces of its active list, by every command.
fn check_seen(script: &mut Script, cntlid: u16, sizes: &BTreeMap<u32, u64>) {
    let seen = active(script, cntlid);
    let table = script.target.namespaces_for(NQN, cntlid).unwrap();
    assert!(table.iter().map(|(nsid, _)| nsid).eq(seen.iter().copied()), "the I/O path");
    let log = ana(script, cntlid);
    assert!(log.keys().eq(&seen), "the ANA log has {log:?}, the list {seen:?}");
    for nsid in 1..=NSIDS {
        let is_seen = seen.contains(&nsid);
        let page = script.succeed(cntlid, identify(cns::NAMESPACE, nsid));
        let page: &IdentifyNamespace = page.page();
        let size = if is_seen { sizes[&nsid] } else { 0 };
        assert_eq!((page.nsze.get(), page.nguid != [0; 16]), (size, is_seen));
        let group = page.anagrpid.get();
        assert_eq!(group, log.get(&nsid).map_or(0, |(group, _)| *group));
        let page = script.succeed(cntlid, identify(cns::NAMESPACE_INDEPENDENT, nsid));
        assert_eq!(page.page::<IdentifyNamespaceIndependent>().anagrpid.get(), group);
        let is_invalid = |status: Status| status.is(Status::INVALID_NAMESPACE);
        let answer = script.submit(cntlid, identify(cns::NAMESPACE_DESCRIPTORS, nsid)).unwrap();
        assert_eq!(is_invalid(answer.status), !is_seen);
        let get = GetLbaStatus { slba: 0, blocks: None, bytes: 4096, action: action::ALLOCATED };
        let answer = script.submit(cntlid, get.emit(nsid)).unwrap();
        assert_eq!(is_invalid(answer.status), !is_seen);
        script.events();
        let report = ReservationReportFields { bytes: 64, extended: true }.emit(nsid);
        script.target.reserve(cntlid, &report, &[], 1);
        let Some(TargetEvent::Reserved { status, .. }) = script.events().pop() else {
            panic!("no report");
        };
        assert_eq!(is_invalid(status), !is_seen);
    }
}

#[derive(Clone, Debug)]
enum ViewStep {
    Add(u32, u64, NamespaceView),
    Remove(u32),
    View(u32, NamespaceView),
    Group(u32, Option<AnaState>),
    Wait(u64),
    Read(usize),
}

fn a_view() -> impl Strategy<Value = NamespaceView> {
    let hosts = btree_set(prop::sample::select(HOSTS.map(str::to_owned).to_vec()), 0..3);
    (prop::option::weighted(0.8, hosts), 1..4u32)
        .prop_map(|(hosts, ana_group)| NamespaceView { hosts, ana_group })
}

fn a_step() -> impl Strategy<Value = ViewStep> {
    let state = prop::sample::select(vec![
        None,
        Some(AnaState::NonOptimized),
        Some(AnaState::Inaccessible),
        Some(AnaState::Optimized),
    ]);
    prop_oneof![
        1 => (1..=NSIDS, 1..99u64, a_view()).prop_map(|(nsid, size, view)| ViewStep::Add(nsid, size, view)),
        1 => (1..=NSIDS).prop_map(ViewStep::Remove),
        3 => (1..=NSIDS, a_view()).prop_map(|(nsid, view)| ViewStep::View(nsid, view)),
        1 => (1..4u32, state).prop_map(|(group, state)| ViewStep::Group(group, state)),
        1 => (1..6000u64).prop_map(ViewStep::Wait),
        2 => (0..4usize).prop_map(ViewStep::Read),
    ]
}

fn advance(script: &mut Script, cntlids: &[u16], time: Duration) {
    for _ in 0..time.as_secs().max(1) {
        script.wait(Duration::from_secs(1).min(time));
        // Each host is alive.
        for &cntlid in cntlids {
            script.succeed(cntlid, Sqe::new(opcode::KEEP_ALIVE, 0));
        }
        script.target.handle_timeout(script.now);
        script.events();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(400)))]

    /// Whatever is changed in whatever order, no host sees, by any command, a namespace that is hidden from it; and it
    /// sees all others once it has noticed what is gone.
    #[test]
    fn hosts_see_their_namespaces_and_no_others(steps in vec(a_step(), 1..24)) {
        let mut script = Script::with(&empty());
        // The first host has two paths.
        let hosts = [HOST, HOST, STRANGER, THIRD];
        let cntlids = hosts.map(|host| controller_of(&mut script, host));
        let mut model: BTreeMap<u32, (u64, NamespaceView)> = BTreeMap::new();
        // Namespaces that each host could see at some time since it last read the list of changes.
        let mut ever: [BTreeSet<u32>; 4] = Default::default();
        let may_see = |model: &BTreeMap<u32, (u64, NamespaceView)>, host: &str| {
            let seen = model.iter().filter(|(_, (_, view))| view.shows_to(host));
            seen.map(|(nsid, _)| *nsid).collect::<BTreeSet<u32>>()
        };
        for step in steps {
            match step {
                ViewStep::Add(nsid, size, view) if !model.contains_key(&nsid) => {
                    script.target.apply(&[add(NQN, namespace(nsid, size, view.clone()))]).unwrap();
                    model.insert(nsid, (size, view));
                }
                ViewStep::Remove(nsid) if model.remove(&nsid).is_some() => {
                    script.target.apply(&[remove(nsid)]).unwrap();
                }
                ViewStep::View(nsid, view) if model.contains_key(&nsid) => {
                    script.target.apply(&[set_view(nsid, view.clone())]).unwrap();
                    model.get_mut(&nsid).unwrap().1 = view;
                }
                ViewStep::Group(group, state) => {
                    script.target.apply(&[set_group(group, state)]).unwrap();
                }
                ViewStep::Wait(ms) => advance(&mut script, &cntlids, Duration::from_millis(ms)),
                ViewStep::Read(at) => {
                    let news = changed(&mut script, cntlids[at]);
                    prop_assert!(news.is_subset(&ever[at]), "{news:?} of {:?}", ever[at]);
                    ever[at].clear();
                    script.succeed(cntlids[at], identify(cns::ACTIVE_NAMESPACES, 0));
                }
                _ => {}
            }
            let sizes = model.iter().map(|(nsid, (size, _))| (*nsid, *size)).collect();
            for ((host, cntlid), ever) in hosts.iter().zip(cntlids).zip(&mut ever) {
                let may = may_see(&model, host);
                ever.extend(&may);
                let seen = active(&mut script, cntlid);
                prop_assert!(seen.is_subset(&may), "{host} sees {seen:?} of {may:?}");
                check_seen(&mut script, cntlid, &sizes);
            }
        }
        advance(&mut script, &cntlids, Duration::from_secs(12));
        for (host, cntlid) in hosts.iter().zip(cntlids) {
            prop_assert_eq!(active(&mut script, cntlid), may_see(&model, host));
        }
    }
}

/// Returns the types of the events that were completed for a controller: (information, log page).
fn notices(script: &mut Script, of: u16) -> Vec<(u8, u8)> {
    let notice = |event| match event {
        TargetEvent::EventCompletion { cntlid, result, .. } if cntlid == of => {
            Some(((result >> 8) as u8, (result >> 16) as u8))
        }
        _ => None,
    };
    script.events().into_iter().filter_map(notice).collect()
}

#[test]
fn only_hosts_concerned_are_notified() {
    const ATTRIBUTE: (u8, u8) = (0, 4);
    let mut config = empty();
    config.subsystems[0].namespaces = vec![namespace(1, 8, view(Some(&[]), 1))];
    let mut script = Script::with(&config);
    let (one, other) = (controller_of(&mut script, HOST), controller_of(&mut script, STRANGER));
    script.target.apply(&[set_view(1, view(Some(&[HOST]), 1))]).unwrap();
    let events = script.events();
    let of = |cntlid| {
        let is_of = move |event: &&TargetEvent| matches!(event, TargetEvent::EventCompletion { cntlid: one, .. } if *one == cntlid);
        events.iter().filter(is_of).count()
    };
    assert_eq!((of(one), of(other)), (1, 0));
    assert_eq!(changed(&mut script, one), BTreeSet::from([1]));
    assert_eq!(changed(&mut script, other), BTreeSet::new());
    assert_eq!(active(&mut script, one), BTreeSet::from([1]));
    // A change of a hidden namespace is no news.
    script.target.apply(&[remove(1)]).unwrap();
    assert_eq!(notices(&mut script, other), []);
    script.target.apply(&[add(NQN, namespace(2, 8, view(Some(&[STRANGER]), 1)))]).unwrap();
    assert_eq!(notices(&mut script, other), [ATTRIBUTE]);
    // One more host that sees it is no news for those that do.
    changed(&mut script, other);
    script.target.apply(&[set_view(2, view(None, 1))]).unwrap();
    assert_eq!(notices(&mut script, other), []);
}

#[test]
fn a_group_has_a_state_of_its_own_and_what_is_out_of_reach_is_in_a_reserved_one() {
    const ANA: (u8, u8) = (3, 12);
    let mut config = empty();
    let at = |nsid, group| namespace(nsid, 8, view(None, group));
    config.subsystems[0].namespaces = vec![at(1, 1), at(2, 7), at(3, 7)];
    config.ana = [(AnaListener::Tcp(local()), AnaState::NonOptimized)].into_iter().collect();
    let mut script = Script::with(&config);
    let cntlid = controller_of(&mut script, HOST);
    let all = |one, other| BTreeMap::from([(1, (1, one)), (2, (7, other)), (3, (7, other))]);
    assert_eq!(ana(&mut script, cntlid), all(AnaState::NonOptimized, AnaState::NonOptimized));
    script.target.apply(&[set_group(7, Some(AnaState::Inaccessible))]).unwrap();
    assert_eq!(notices(&mut script, cntlid), [ANA]);
    assert_eq!(ana(&mut script, cntlid), all(AnaState::NonOptimized, AnaState::Inaccessible));
    let table = script.target.namespaces_for(NQN, cntlid).unwrap();
    assert_eq!((table.refusal(1), table.refusal(2)), (None, Some(Status::ANA_INACCESSIBLE)));
    // Another target has the blocks of namespace 1.
    let out_of_reach = NamespaceConfig { ana: AnaState::Inaccessible, ..at(1, 1) };
    let namespace = out_of_reach.clone();
    let replace = ConfigOperation::ReplaceNamespace { nqn: NQN.to_owned(), namespace };
    script.target.apply(&[replace]).unwrap();
    assert_eq!(notices(&mut script, cntlid), [ANA]);
    let (group, state) = ana(&mut script, cntlid)[&1];
    assert_eq!((group > 512, state), (true, AnaState::Inaccessible));
    let back = ConfigOperation::ReplaceNamespace { nqn: NQN.to_owned(), namespace: at(1, 2) };
    script.target.apply(&[back, set_group(7, None), set_group(2, Some(AnaState::Change))]).unwrap();
    let expected = BTreeMap::from([
        (1, (2, AnaState::Change)),
        (2, (7, AnaState::NonOptimized)),
        (3, (7, AnaState::NonOptimized)),
    ]);
    assert_eq!(ana(&mut script, cntlid), expected);
}

#[test]
fn groups_and_hosts_are_checked() {
    let mut script = Script::with(&empty());
    for wrong in [view(None, 0), view(None, 513), view(Some(&["host"]), 1)] {
        let result = script.target.apply(&[add(NQN, namespace(1, 8, wrong))]);
        assert!(matches!(result, Err(ConfigError::Invalid { .. })), "{result:?}");
    }
    assert!(script.target.apply(&[set_group(513, None), set_group(0, None)]).is_ok());
    assert!(script.target.apply(&[set_group(513, Some(AnaState::Optimized))]).is_err());
    let elsewhere = ConfigOperation::SetGroupAna {
        nqn: NQN.to_owned(),
        group: 1,
        listener: AnaListener::Tcp("192.0.2.9:1".parse().unwrap()),
        state: Some(AnaState::Optimized),
    };
    assert!(matches!(script.target.apply(&[elsewhere]), Err(ConfigError::Unknown(_))));
    let gone = set_view(1, NamespaceView::ALL);
    assert!(matches!(script.target.apply(&[gone]), Err(ConfigError::Unknown(_))));
}

#[test]
fn a_queue_whose_controller_is_gone_keeps_what_its_host_sees() {
    let mut config = empty();
    config.subsystems[0].namespaces =
        vec![namespace(1, 8, view(None, 1)), namespace(2, 8, view(Some(&[STRANGER]), 1))];
    let mut script = Script::with(&config);
    let queue = script.connect_as(HOST, NQN).unwrap();
    let seen = |script: &Script| {
        let table = script.target.namespaces_of(&queue).unwrap();
        table.iter().map(|(nsid, _)| nsid).collect::<Vec<_>>()
    };
    assert_eq!(seen(&script), [1]);
    script.target.disconnect(queue.cntlid, 0);
    assert_eq!(script.target.namespaces_for(NQN, queue.cntlid), None);
    assert_eq!(seen(&script), [1], "commands that have begun are not refused");
}

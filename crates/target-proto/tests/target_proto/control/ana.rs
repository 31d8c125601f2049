//! Asymmetric namespace access: the state of each controller's path, notifications of its changes, and the status of
//! its commands.

use super::script::{
    HOST, HOSTID, NQN, PRIVATE_NQN, RANDOM, Script, add, config, connect_sqe, local,
};
use roadtrain_target_proto::{
    AnaListener, AnaState, AnaStates, ConfigError, ConfigObject, ConfigOperation, NamespaceConfig,
    TargetConfig, TargetEvent, TargetListener, TlsUse,
};
use roadtrain_wire::ana::{ana_groups, ana_log_bytes};
use roadtrain_wire::cross_reset::ControllerInstance;
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, ConnectData, DISCOVERY_NQN};
use roadtrain_wire::feature::{SetFeatures, fid};
use roadtrain_wire::identify::{
    IdentifyController, IdentifyNamespace, IdentifyNamespaceIndependent, NSID_ALL, anacap, cmic,
    cns,
};
use roadtrain_wire::log::{GetLogPage, lid};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;
use std::net::SocketAddr;

/// A second address of the target.
const OTHER: &str = "192.0.2.8:4421";

fn other() -> SocketAddr {
    OTHER.parse().unwrap()
}

/// Returns a configuration with two listeners; the other one is not optimized.
fn two_listeners() -> TargetConfig {
    let mut config = config();
    config.listeners.push(TargetListener {
        portid: 2,
        address: other(),
        tls: TlsUse::Off,
        named_only: false,
    });
    config.ana = [(AnaListener::Tcp(other()), AnaState::NonOptimized)].into_iter().collect();
    config
}

fn set(address: SocketAddr, state: AnaState) -> ConfigOperation {
    ConfigOperation::SetAna { listener: AnaListener::Tcp(address), state: Some(state) }
}

/// Connects a controller at `local`, with two event requests. Returns their identifiers.
fn controller_at(script: &mut Script, local: SocketAddr) -> (u16, [u16; 2]) {
    let data = ConnectData::new(HOSTID, CNTLID_DYNAMIC, NQN, HOST);
    let sqe = connect_sqe(0, 31).emit();
    let connected = script.target.connect(script.now, &sqe, data.as_bytes(), local, RANDOM);
    let cntlid = connected.expect("connected").cntlid;
    script.enable(cntlid);
    script.succeed(cntlid, SetFeatures::emit(fid::ASYNC_EVENT_CONFIG, 1 << 11));
    let cids = [(); 2].map(|()| {
        assert_eq!(script.submit(cntlid, Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0)), None);
        script.cid()
    });
    (cntlid, cids)
}

/// Returns the ANA log, as long as hosts read it, up to its last NSID.
fn log(script: &mut Script, cntlid: u16, rae: bool) -> Vec<u8> {
    let get = GetLogPage { rae, ..GetLogPage::new(lid::ANA, ana_log_bytes(516, 16_384) as u32) };
    let mut page = script.succeed(cntlid, get.emit(NSID_ALL)).data;
    let groups = usize::from(page[8]);
    let nsids: usize = ana_groups(&page).map(|(_, nsids)| nsids.len()).sum();
    assert!(page.split_off(16 + 32 * groups + 4 * nsids).iter().all(|byte| *byte == 0));
    page
}

/// Returns a page of namespaces 1 and 3, in groups with these states.
fn page_of(changes: u8, groups: &[(u16, u8, &[u8])]) -> Vec<u8> {
    let count = groups.len() as u8;
    let mut page = vec![changes, 0, 0, 0, 0, 0, 0, 0, count, 0, 0, 0, 0, 0, 0, 0];
    for (group, state, nsids) in groups {
        page.extend(u32::from(*group).to_le_bytes());
        page.extend((nsids.len() as u32).to_le_bytes());
        page.extend([changes, 0, 0, 0, 0, 0, 0, 0, *state]);
        page.extend([0; 15]);
        page.extend(nsids.iter().flat_map(|nsid| [*nsid, 0, 0, 0]));
    }
    page
}

fn page(changes: u8, state: u8) -> Vec<u8> {
    page_of(changes, &[(1, state, &[1, 3])])
}

fn ana_changed(cntlid: u16, cid: u16) -> TargetEvent {
    TargetEvent::EventCompletion { cntlid, cid, status: Status::SUCCESS, result: 0x000c_0302 }
}

fn tables_changed() -> TargetEvent {
    TargetEvent::NamespacesChanged { nqn: NQN.into() }
}

fn identify(cns: u8, nsid: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode::IDENTIFY, nsid);
    sqe.cdw10 = u32::from(cns).into();
    sqe.set_transport(4096);
    sqe
}

/// Compares the logs byte for byte, at each listener.
#[test]
fn each_listener_has_a_log_of_its_own() {
    let mut script = Script::with(&two_listeners());
    let (here, _) = controller_at(&mut script, local());
    let (there, _) = controller_at(&mut script, other());
    assert_eq!(log(&mut script, here, false), page(1, 1));
    assert_eq!(log(&mut script, there, false), page(1, 2));
    script.target.apply(&[set(other(), AnaState::Inaccessible)]).unwrap();
    assert_eq!(log(&mut script, here, false), page(1, 1), "nothing has changed here");
    assert_eq!(log(&mut script, there, false), page(2, 3));
    script.target.apply(&[set(other(), AnaState::Change)]).unwrap();
    assert_eq!(log(&mut script, there, false), page(3, 0xf));
    script.target.apply(&[add(NQN, NamespaceConfig::new(2, 64, 9))]).unwrap();
    assert_eq!(log(&mut script, here, false)[..8], [2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(log(&mut script, there, false)[..8], [4, 0, 0, 0, 0, 0, 0, 0]);
    let groups = GetLogPage { lsp: 1, ..GetLogPage::new(lid::ANA, 48) };
    let groups = script.succeed(there, groups.emit(NSID_ALL)).data;
    assert_eq!(groups[16..24], [1, 0, 0, 0, 0, 0, 0, 0], "no NSIDs are requested");
}

#[test]
fn controllers_of_the_listener_are_notified_and_no_others() {
    let mut script = Script::with(&two_listeners());
    let (here, here_cids) = controller_at(&mut script, local());
    let (there, cids) = controller_at(&mut script, other());
    let discovery = script.controller(DISCOVERY_NQN);
    script.submit(discovery, Sqe::new(opcode::ASYNC_EVENT_REQUEST, 0));
    script.events();

    script.target.apply(&[set(other(), AnaState::Inaccessible)]).unwrap();
    assert_eq!(script.events(), [ana_changed(there, cids[0]), tables_changed()]);
    assert!(!script.target.is_departure_known());
    script.target.apply(&[set(other(), AnaState::Optimized)]).unwrap();
    assert_eq!(script.events(), [tables_changed()], "masked until the log is read");
    log(&mut script, there, true);
    assert!(!script.target.is_departure_known(), "the event is retained");
    log(&mut script, there, false);
    assert!(script.target.is_departure_known());
    assert_eq!(script.events(), [], "the log has reported it");
    script.target.apply(&[set(other(), AnaState::Optimized)]).unwrap();
    assert_eq!(script.events(), [], "nothing new");
    script.target.apply(&[set(other(), AnaState::NonOptimized)]).unwrap();
    assert_eq!(script.events(), [ana_changed(there, cids[1]), tables_changed()]);

    script.target.apply(&[set(local(), AnaState::Change)]).unwrap();
    assert_eq!(script.events(), [ana_changed(here, here_cids[0]), tables_changed()]);
}

#[test]
fn the_path_state_decides_the_status_of_commands() {
    let mut script = Script::with(&two_listeners());
    let (here, _) = controller_at(&mut script, local());
    let (there, _) = controller_at(&mut script, other());
    for (state, refusal) in [
        (AnaState::NonOptimized, None),
        (AnaState::Inaccessible, Some(Status::ANA_INACCESSIBLE)),
        (AnaState::Change, Some(Status::ANA_TRANSITION)),
        (AnaState::Optimized, None),
        (AnaState::PersistentLoss, Some(Status::ANA_PERSISTENT_LOSS)),
    ] {
        script.target.apply(&[set(other(), state)]).unwrap();
        let table = script.target.namespaces_for(NQN, there).unwrap();
        assert_eq!(table.ana, state);
        for (nsid, refusal) in [(1, refusal), (3, refusal), (NSID_ALL, refusal), (2, None)] {
            assert_eq!(table.refusal(nsid), refusal, "{state}, namespace {nsid}");
        }
        assert_eq!(script.target.namespaces_for(NQN, here).unwrap().refusal(1), None);

        // Admin commands are executed; the use of a namespace is unknown on a lost path.
        let nuse = if state.is_usable() || state == AnaState::Change { 0x10_0000 } else { 0 };
        let answer = script.succeed(there, identify(cns::NAMESPACE, 1));
        let namespace: &IdentifyNamespace = answer.page();
        assert_eq!((namespace.nuse.get(), namespace.nsze.get()), (nuse, 0x10_0000), "{state}");
        assert_eq!(namespace.anagrpid.get(), 1);
        let answer = script.succeed(there, identify(cns::NAMESPACE_INDEPENDENT, 1));
        assert_eq!(answer.page::<IdentifyNamespaceIndependent>().anagrpid.get(), 1);
        assert_eq!(script.connect_io(there, state as u16).unwrap().cntlid, there);
    }
}

/// A namespace whose blocks another target owns is inaccessible on every path, and the others are not.
#[test]
fn a_namespace_has_a_state_of_its_own() {
    let mut script = Script::with(&two_listeners());
    let (here, cids) = controller_at(&mut script, local());
    let (there, other_cids) = controller_at(&mut script, other());
    let of = |script: &Script| {
        let mut namespaces = script.target.config().subsystems[0].namespaces.iter();
        namespaces.find(|namespace| namespace.nsid == 3).unwrap().clone()
    };
    let whole = of(&script);
    let set = |ana, blocks| ConfigOperation::ReplaceNamespace {
        nqn: NQN.to_owned(),
        namespace: NamespaceConfig { ana, blocks, ..whole.clone() },
    };
    log(&mut script, here, false);
    script.target.apply(&[set(AnaState::Inaccessible, whole.blocks)]).unwrap();
    let events = [ana_changed(here, cids[0]), ana_changed(there, other_cids[0]), tables_changed()];
    assert_eq!(script.events(), events, "it is the way alone that has changed");
    assert_eq!(log(&mut script, here, false), page_of(2, &[(1, 1, &[1]), (514, 3, &[3])]));
    assert_eq!(log(&mut script, there, false), page_of(2, &[(1, 2, &[1]), (514, 3, &[3])]));
    for cntlid in [here, there] {
        let table = script.target.namespaces_for(NQN, cntlid).unwrap();
        let refusals = [1, 3, NSID_ALL].map(|nsid| table.refusal(nsid));
        assert_eq!(refusals, [None, Some(Status::ANA_INACCESSIBLE), None]);
        assert!(!table.is_usable());
        let answer = script.succeed(cntlid, identify(cns::NAMESPACE, 3));
        let namespace: &IdentifyNamespace = answer.page();
        assert_eq!((namespace.nuse.get(), namespace.anagrpid.get()), (0, 514));
    }

    script.target.apply(&[set(AnaState::Optimized, whole.blocks * 2)]).unwrap();
    let events = [ana_changed(here, cids[1]), ana_changed(there, other_cids[1]), tables_changed()];
    assert_eq!(script.events(), events);
    let answer = script.succeed(here, GetLogPage::new(lid::CHANGED_NAMESPACES, 4096).emit(0));
    assert_eq!(answer.data[..8], [3, 0, 0, 0, 0, 0, 0, 0], "its size has changed besides");
    assert_eq!(log(&mut script, there, false), page(3, 2));
    assert!(script.target.namespaces_for(NQN, here).unwrap().is_usable());
}

#[test]
fn what_was_lost_persistently_is_lost_for_that_controller() {
    let mut script = Script::with(&two_listeners());
    let (old, _) = controller_at(&mut script, other());
    script.target.apply(&[set(other(), AnaState::PersistentLoss)]).unwrap();
    script.target.apply(&[set(other(), AnaState::Optimized)]).unwrap();
    let (new, _) = controller_at(&mut script, other());
    assert_eq!(script.target.namespaces_for(NQN, old).unwrap().ana, AnaState::PersistentLoss);
    assert_eq!(script.target.namespaces_for(NQN, new).unwrap().ana, AnaState::Optimized);
    let states = script.target.controllers().map(|c| (c.cntlid, c.local, c.ana));
    let lost = (old, other(), AnaState::PersistentLoss);
    assert_eq!(states.collect::<Vec<_>>(), [lost, (new, other(), AnaState::Optimized)]);
}

#[test]
fn the_controller_says_what_may_come() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let answer = script.succeed(cntlid, identify(cns::CONTROLLER, 0));
    let page: &IdentifyController = answer.page();
    assert_eq!(page.cmic & cmic::ANA, cmic::ANA);
    let states = anacap::OPTIMIZED | anacap::NON_OPTIMIZED | anacap::INACCESSIBLE;
    let others = anacap::PERSISTENT_LOSS | anacap::CHANGE;
    assert_eq!((page.anacap, page.anatt), (states | others, 10));
    assert_eq!((page.anagrpmax.get(), page.nanagrpid.get()), (516, 516));
}

#[test]
fn a_target_that_departs_is_out_of_reach_everywhere() {
    let mut script = Script::with(&two_listeners());
    let (here, cids) = controller_at(&mut script, local());
    let (there, there_cids) = controller_at(&mut script, other());
    assert!(script.target.is_departure_known());
    script.target.depart();
    let events = [ana_changed(here, cids[0]), ana_changed(there, there_cids[0]), tables_changed()];
    assert_eq!(script.events(), events);
    for cntlid in [here, there] {
        assert_eq!(script.target.namespaces_for(NQN, cntlid).unwrap().ana, AnaState::Inaccessible);
    }
    let (late, _) = controller_at(&mut script, local());
    assert_eq!(log(&mut script, late, false)[32], 3);
    script.target.apply(&[set(local(), AnaState::Optimized)]).unwrap();
    assert_eq!(log(&mut script, here, false)[32], 3);
    log(&mut script, there, false);
    assert!(script.target.is_departure_known());
}

#[test]
fn a_target_that_is_taken_over_is_out_of_reach_everywhere() {
    let mut script = Script::with(&two_listeners());
    let (here, cids) = controller_at(&mut script, local());
    script.target.hand_over();
    assert!(script.events().contains(&ana_changed(here, cids[0])));
    assert!(!script.target.is_departure_known());
    assert_eq!(script.target.namespaces_for(NQN, here).unwrap().ana, AnaState::Inaccessible);
    assert_eq!(log(&mut script, here, false)[32], 3);
    assert!(script.target.is_departure_known());
}

#[test]
fn states_belong_to_listeners_that_are_there() {
    let orphan = |address: &str| {
        let listener = AnaListener::Tcp(address.parse().unwrap());
        let ana: AnaStates = [(listener, AnaState::Inaccessible)].into_iter().collect();
        (
            TargetConfig { ana, ..two_listeners() }.check(),
            ConfigError::Unknown(ConfigObject::Ana(listener)),
        )
    };
    for address in ["192.0.2.7:4421", "192.0.2.9:4421", "0.0.0.0:4420"] {
        let (checked, error) = orphan(address);
        assert_eq!(checked, Err(error), "{address}");
    }
    assert_eq!(orphan(OTHER).0, Ok(()));
    let mut any = two_listeners();
    any.listeners[1].address = "0.0.0.0:4421".parse().unwrap();
    assert_eq!(any.check(), Ok(()), "one address of a listener that has all");

    let mut script = Script::with(&two_listeners());
    let gone = ConfigOperation::Unlisten(two_listeners().listeners[1]);
    script.target.apply(&[gone]).unwrap();
    assert_eq!(script.target.config().ana, AnaStates::default());
    let refused = script.target.apply(&[set(other(), AnaState::Optimized)]).unwrap_err();
    assert_eq!(refused, ConfigError::Unknown(ConfigObject::Ana(AnaListener::Tcp(other()))));
    let ether =
        ConfigOperation::SetAna { listener: AnaListener::Ether, state: Some(AnaState::Change) };
    script.target.apply(std::slice::from_ref(&ether)).unwrap();
    let (cntlid, _) = controller_at(&mut script, "0.0.0.0:0".parse().unwrap());
    assert_eq!(log(&mut script, cntlid, false)[32], 0xf, "a lane over Ethernet has no address");
}

/// Identifiers come from the range, in rotation, and never from outside.
#[test]
fn controllers_are_numbered_within_the_range() {
    let mut config = config();
    (config.limits.cntlid_min, config.limits.cntlid_max) = (100, 102);
    let mut script = Script::with(&config);
    let all: Vec<u16> = (0..3).map(|_| script.controller(NQN)).collect();
    assert_eq!(all, [100, 101, 102]);
    let busy = script.connect_as(HOST, NQN).unwrap_err();
    assert!(busy.status.is(Status::CONNECT_CONTROLLER_BUSY) && !busy.status.is_dnr());
    assert!(busy.value.contains("--cntlid-range"), "{busy}");
    script.target.disconnect(101, 0);
    assert_eq!(script.controller(NQN), 101);

    for (min, max) in [(0, 9), (9, 8), (1, 0xfff0)] {
        let mut config = config.clone();
        (config.limits.cntlid_min, config.limits.cntlid_max) = (min, max);
        assert!(config.check().is_err(), "{min}-{max}");
    }
}

/// A subsystem with a range of its own uses no identifier of another range, and does not disturb the target's rotation.
#[test]
fn a_subsystem_has_its_own_range_of_controllers() {
    let mut config = config();
    (config.limits.cntlid_min, config.limits.cntlid_max) = (100, 199);
    config.subsystems[1].cntlids = 150..=u16::MAX - 16;
    config.subsystems[0].cntlids = 1..=101;
    let mut script = Script::with(&config);
    let mut next = |nqn| script.connect_as(HOST, nqn).map(|queue| queue.cntlid);
    let all = [NQN, PRIVATE_NQN, NQN, PRIVATE_NQN].map(|nqn| next(nqn).ok());
    assert_eq!(all, [Some(100), Some(150), Some(101), Some(151)]);
    let busy = next(NQN).unwrap_err();
    assert!(busy.status.is(Status::CONNECT_CONTROLLER_BUSY), "{busy}");
    script.target.disconnect(100, 0);
    assert_eq!(script.connect_as(HOST, NQN).map(|queue| queue.cntlid).ok(), Some(100));

    for range in [0..=150, 1..=99, 200..=300, 1..=0xfff0] {
        let mut config = config.clone();
        config.subsystems[1].cntlids = range.clone();
        assert!(config.check().is_err(), "{range:?}");
    }
}

/// A controller of another process that serves the subsystem may be alive: no host may be notified of its end.
#[test]
fn controllers_of_other_ranges_are_not_reset() {
    let mut config = config();
    (config.limits.cntlid_min, config.limits.cntlid_max) = (100, 199);
    let mut script = Script::with(&config);
    let cntlid = script.controller(NQN);
    let cirn = RANDOM >> 32 << 32 | 7;
    let named = |cntlid| ControllerInstance { cntlid, ciu: 1, cirn };
    for elsewhere in [99, 200, 1] {
        script.fail(cntlid, named(elsewhere).emit(), Status::INVALID_FIELD);
    }
    assert_eq!(script.submit(cntlid, named(150).emit()), None, "taken");
    let cid = script.cid();
    script.target.settle_resets(|_, _| false);
    let status = Status::SUCCESS;
    assert_eq!(script.events(), [TargetEvent::Completion { cntlid, cid, status, result: 1 }]);
}

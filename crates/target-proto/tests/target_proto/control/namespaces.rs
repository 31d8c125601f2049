//! Changes of subsystems, namespaces and allow-lists while hosts are connected.

use super::script::{
    HOST, NQN, PRIVATE_NQN, STRANGER, Script, add, config, remove, remove_subsystem, resize,
};
use roadtrain_proto::block_limits::BlockLimits;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::{
    CloseReason, ConfigError, ConfigObject, ConfigOperation, NamespaceConfig, NamespaceId,
    SubsystemConfig, TargetConfig, TargetControl, TargetEvent,
};
use roadtrain_wire::identify::{IdentifyNamespace, NamespaceList, cns};
use roadtrain_wire::sqe::{Sqe, opcode};
use std::collections::BTreeSet;
use std::time::Duration;

fn nsids(script: &Script) -> Vec<u32> {
    script.target.namespaces(NQN).unwrap().iter().map(|(nsid, _)| nsid).collect()
}

fn size(script: &mut Script, cntlid: u16, nsid: u32) -> u64 {
    let mut sqe = Sqe::new(opcode::IDENTIFY, nsid);
    sqe.cdw10 = u32::from(cns::NAMESPACE).into();
    sqe.set_transport(4096);
    script.succeed(cntlid, sqe).page::<IdentifyNamespace>().nsze.get()
}

#[test]
fn namespaces_come_go_and_grow() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let before = script.target.namespaces(NQN).unwrap();
    script.target.apply(&[add(NQN, NamespaceConfig::new(2, 64, 12))]).unwrap();
    script.target.apply(&[resize(1, 99)]).unwrap();
    script.target.apply(&[remove(3)]).unwrap();
    assert_eq!(nsids(&script), [1, 2]);
    assert_eq!((size(&mut script, cntlid, 1), size(&mut script, cntlid, 3)), (99, 0));
    let table = script.target.namespaces(NQN).unwrap();
    assert!(table.generation > before.generation);
    let geometry = table.get(2).unwrap();
    assert_eq!((geometry.blocks, geometry.lba_shift, geometry.read_only), (64, 12, false));
    assert_eq!(geometry.transfer_bytes_max, 1 << 20);
    assert_eq!((table.get(3), before.get(3).map(|g| g.read_only)), (None, Some(true)));
}

#[test]
fn impossible_changes_change_nothing() {
    let mut script = Script::new();
    let nqn = NQN.to_owned();
    let other = "nqn.2024-01.test:none";
    let target = &mut script.target;
    let new = NamespaceConfig::new;
    let unknown = Err(ConfigError::Unknown(ConfigObject::Subsystem(other.to_owned())));
    assert_eq!(target.apply(&[add(other, new(1, 1, 9))]), unknown);
    assert_eq!(target.apply(&[remove_subsystem(other)]), unknown);
    let duplicate = Err(ConfigError::Exists(ConfigObject::Namespace(nqn.clone(), 1)));
    assert_eq!(target.apply(&[add(NQN, new(1, 1, 9))]), duplicate);
    let missing = Err(ConfigError::Unknown(ConfigObject::Namespace(nqn.clone(), 2)));
    assert_eq!(target.apply(&[remove(2)]), missing);
    assert_eq!(target.apply(&[resize(2, 5)]), missing);
    for nsid in [0, 16_385, u32::MAX] {
        let error = target.apply(&[add(NQN, new(nsid, 1, 9))]).unwrap_err();
        assert_eq!(*error.place(), ConfigObject::Namespace(nqn.clone(), nsid));
        assert!(matches!(error, ConfigError::Invalid { field: "nsid", .. }), "{error}");
    }
    for (blocks, lba_shift, granule_bytes) in
        [(0, 9, 4096), (u64::MAX, 9, 4096), (1, 10, 4096), (1, 9, 3000), (1, 12, 512)]
    {
        let limits = BlockLimits::pages_of(granule_bytes);
        let config = NamespaceConfig { limits, ..new(2, blocks, lba_shift) };
        let result = target.apply(&[add(NQN, config)]);
        assert!(matches!(result, Err(ConfigError::Invalid { .. })), "{result:?}");
    }
    assert!(target.apply(&[resize(1, 0)]).is_err());
    assert_eq!((script.events(), nsids(&script)), (vec![], vec![1, 3]));
}

#[test]
fn configurations_are_checked() {
    let with = |change: &dyn Fn(&mut TargetConfig)| {
        let mut config = config();
        change(&mut config);
        TargetControl::new(Instant(0), &config).map(|_| ())
    };
    assert_eq!(with(&|_| ()), Ok(()));
    let twice = with(&|c| c.subsystems.push(SubsystemConfig::new(NQN)));
    assert_eq!(twice, Err(ConfigError::Exists(ConfigObject::Subsystem(NQN.to_owned()))));
    let long = format!("nqn.{}", "x".repeat(220));
    let [none, after] = ["nqn.2025-00.test:a", "nqn.2025-13.test:a"];
    for nqn in ["", "foo", "nqn.\0", "nqn.a b", none, after, &long] {
        let result = with(&|c| c.subsystems[0].nqn = nqn.to_owned());
        assert!(matches!(result, Err(ConfigError::Invalid { field: "nqn", .. })), "{result:?}");
    }
    for nqn in ["nqn.2025-12.test:a", "nqn.x:y", "nqn.2025-1"] {
        assert_eq!(with(&|c| c.subsystems[0].nqn = nqn.to_owned()), Ok(()), "{nqn}");
    }
    let discovery = roadtrain_wire::fabrics::DISCOVERY_NQN;
    assert!(with(&|c| c.subsystems[0].nqn = discovery.to_owned()).is_err());
    assert!(with(&|c| c.subsystems[0].serial = Some("x".repeat(21))).is_err());
    assert!(with(&|c| c.subsystems[0].model = "\u{e9}".to_owned()).is_err());
    assert!(with(&|c| c.limits.mdts = 0).is_err());
    assert!(with(&|c| c.limits.mdts = 9).is_err(), "no buffer is longer than 1 MiB");
    assert!(with(&|c| c.limits.mdts = 8).is_ok());
    assert!(with(&|c| c.limits.queue_entries_max = 31).is_err());
    assert!(with(&|c| c.limits.in_capsule_bytes_max = 100).is_err());
    let hosts = BTreeSet::from(["host".to_owned()]);
    assert!(with(&|c| c.subsystems[0].allowed_hosts = Some(hosts.clone())).is_err());
    let same = NamespaceConfig::new(1, 1, 9);
    assert!(with(&|c| c.subsystems[0].namespaces.push(same.clone())).is_err());
}

#[test]
fn a_subsystem_takes_its_controllers_along() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let other = script.connect_as(HOST, PRIVATE_NQN).unwrap().cntlid;
    script.connect_io(cntlid, 4).unwrap();
    script.target.apply(&[remove_subsystem(NQN)]).unwrap();
    let reason = CloseReason::SubsystemRemoved;
    let close = |qid| TargetEvent::Close { cntlid, qid, reason };
    assert_eq!(script.events(), [close(4), close(0)]);
    assert!(script.connect_as(HOST, NQN).is_err());
    assert_eq!(script.target.namespaces(NQN), None);
    script.target.disconnect(cntlid, 4);
    script.target.disconnect(cntlid, 0);
    assert_eq!(script.events(), []);
    script.enable(other);
}

#[test]
fn hosts_that_may_no_longer_are_sent_away() {
    let mut script = Script::new();
    let kept = script.connect_as(HOST, NQN).unwrap().cntlid;
    let refused = script.connect_as(STRANGER, NQN).unwrap().cntlid;
    let nqn = || NQN.to_owned();
    let named = ConfigOperation::AllowHost { nqn: nqn(), host: HOST.to_owned() };
    let hint = script.target.apply(std::slice::from_ref(&named)).unwrap_err().to_string();
    assert!(hint.contains("any host may use"), "{hint}");
    let any = |allow| ConfigOperation::AllowAnyHost { nqn: nqn(), allow };
    script.target.apply(&[any(false), named.clone()]).unwrap();
    let reason = CloseReason::HostNotAllowed;
    assert_eq!(script.events(), [TargetEvent::Close { cntlid: refused, qid: 0, reason }]);
    script.enable(kept);
    assert!(script.connect_as(STRANGER, NQN).is_err());
    assert!(matches!(script.target.apply(&[named]), Err(ConfigError::Exists(_))));
    script.target.apply(&[any(true)]).unwrap();
    assert!(script.connect_as(STRANGER, NQN).is_ok());
}

#[test]
fn a_new_configuration_is_applied_as_a_difference() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    assert_eq!(apply(&mut script, &config()), Ok(vec![]));
    assert_eq!(script.events(), []);

    let mut next = config();
    next.subsystems.remove(1);
    let new = SubsystemConfig::new("nqn.2024-01.test:new");
    next.subsystems.push(new.clone());
    next.subsystems[0].namespaces[0].blocks = 7;
    next.subsystems[0].namespaces[1] = NamespaceConfig::new(9, 5, 12);
    let expected = vec![
        remove_subsystem(PRIVATE_NQN),
        remove(3),
        resize(1, 7),
        add(NQN, NamespaceConfig::new(9, 5, 12)),
        ConfigOperation::AddSubsystem(new),
    ];
    assert_eq!(apply(&mut script, &next), Ok(expected));
    assert_eq!(nsids(&script), [1, 9]);
    assert_eq!(size(&mut script, cntlid, 1), 7, "the controller lives on");
    assert_eq!(apply(&mut script, &next), Ok(vec![]));

    let mut wrong = config();
    wrong.subsystems[0].namespaces[0].blocks = 0;
    assert!(apply(&mut script, &wrong).is_err());
    assert_eq!(nsids(&script), [1, 9], "nothing has changed");
}

/// Applies the differences to `wanted`. Returns the operations.
fn apply(script: &mut Script, wanted: &TargetConfig) -> Result<Vec<ConfigOperation>, ConfigError> {
    let operations = script.target.config().operations_to(wanted);
    script.target.apply(&operations)?;
    Ok(operations)
}

fn active(script: &mut Script, cntlid: u16) -> Vec<u32> {
    let mut sqe = Sqe::new(opcode::IDENTIFY, 0);
    sqe.cdw10 = u32::from(cns::ACTIVE_NAMESPACES).into();
    sqe.set_transport(4096);
    script.succeed(cntlid, sqe).page::<NamespaceList>().iter().collect()
}

fn served(script: &Script, cntlid: u16) -> Vec<u32> {
    let table = script.target.namespaces_for(NQN, cntlid).unwrap();
    table.iter().map(|(nsid, _)| nsid).collect()
}

/// Waits long enough for namespaces to appear; the controllers are kept alive.
fn appear(script: &mut Script, kept: &[u16]) {
    for _ in 0..2 {
        script.wait(Duration::from_secs(3));
        for &cntlid in kept {
            script.succeed(cntlid, Sqe::new(opcode::KEEP_ALIVE, 0));
        }
    }
    assert!(script.target.poll_timeout().expect("a timer") <= script.now);
    script.target.handle_timeout(script.now);
}

/// Returns the configuration with another store behind namespace 1.
fn other_store() -> TargetConfig {
    let mut config = config();
    config.subsystems[0].namespaces[0].id = Some(NamespaceId::of_store(7));
    config
}

fn has_changed(script: &mut Script) -> bool {
    let is_change = |event: &TargetEvent| matches!(event, TargetEvent::NamespacesChanged { .. });
    script.events().iter().any(is_change)
}

#[test]
fn another_store_under_an_nsid_is_a_namespace_that_goes_and_another_that_comes() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let namespace = other_store().subsystems[0].namespaces[0].clone();
    let replaced = ConfigOperation::ReplaceNamespace { nqn: NQN.to_owned(), namespace };
    assert_eq!(apply(&mut script, &other_store()), Ok(vec![replaced]));
    assert!(has_changed(&mut script));
    for _ in 0..2 {
        assert_eq!(
            served(&script, cntlid),
            [3],
            "a host that has not read the list yet would write there"
        );
        script.wait(Duration::from_secs(4));
        script.succeed(cntlid, Sqe::new(opcode::KEEP_ALIVE, 0));
        script.target.handle_timeout(script.now);
    }
    assert_eq!(size(&mut script, cntlid, 1), 0, "inactive");
    assert_eq!(active(&mut script, cntlid), [3]);
    assert_eq!(served(&script, cntlid), [3], "the host has seen it, and needs time to act on it");
    assert!(!has_changed(&mut script));
    appear(&mut script, &[cntlid]);
    assert!(has_changed(&mut script), "lanes are notified");
    assert_eq!((served(&script, cntlid), active(&mut script, cntlid)), (vec![1, 3], vec![1, 3]));
    let later = script.controller(NQN);
    apply(&mut script, &config()).unwrap();
    let newest = script.controller(NQN);
    assert_eq!(served(&script, later), [3]);
    assert_eq!(served(&script, newest), [1, 3], "it has never known another");
}

#[test]
fn what_comes_under_the_nsid_of_one_that_went_is_not_mistaken_for_it() {
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    script.target.apply(&[remove(1)]).unwrap();
    script.target.apply(&[add(NQN, NamespaceConfig::new(1, 64, 12))]).unwrap();
    assert_eq!(served(&script, cntlid), [3]);
    assert_eq!(active(&mut script, cntlid), [3]);
    appear(&mut script, &[cntlid]);
    assert_eq!(served(&script, cntlid), [1, 3]);
}

/// A host with two paths would add the new namespace on one while it has the old one on the other. Later writes of a
/// host to removed blocks that return are meant for them.
#[test]
fn the_same_blocks_are_back_when_the_host_has_seen_that_they_went() {
    let id = |number| Some(NamespaceId::of_store(number));
    let of = |number| NamespaceConfig { id: id(number), ..NamespaceConfig::new(1, 1000, 9) };
    for (lba_shift, between, is_back) in [(9, None, true), (9, Some(2), true), (12, None, false)] {
        let mut script = Script::new();
        script.target.apply(&[remove(1), add(NQN, of(1))]).unwrap();
        let cntlid = script.controller(NQN);
        script.target.apply(&[remove(1)]).unwrap();
        if let Some(other) = between {
            script.target.apply(&[add(NQN, of(other))]).unwrap();
            script.target.apply(&[remove(1)]).unwrap();
        }
        script.target.apply(&[add(NQN, NamespaceConfig { lba_shift, ..of(1) })]).unwrap();
        script.target.handle_timeout(script.now);
        assert_eq!(served(&script, cntlid), [3], "the host does not know yet");
        assert_eq!(active(&mut script, cntlid), [3]);
        script.target.handle_timeout(script.now);
        let expected: &[u32] = if is_back { &[1, 3] } else { &[3] };
        assert_eq!(served(&script, cntlid), expected, "{lba_shift} {between:?}");
    }
}

#[test]
fn a_namespace_appears_on_all_paths_of_a_host_together() {
    let mut script = Script::new();
    let paths = [script.controller(NQN), script.controller(NQN)];
    let stranger = script.connect_as(STRANGER, NQN).unwrap().cntlid;
    script.enable(stranger);
    apply(&mut script, &other_store()).unwrap();
    active(&mut script, paths[0]);
    active(&mut script, stranger);
    let all = [paths[0], paths[1], stranger];
    appear(&mut script, &all);
    let now = |script: &Script| paths.map(|path| served(script, path));
    assert_eq!(now(&script), [[3], [3]], "the second path has not read the list");
    assert_eq!(served(&script, stranger), [1, 3], "others do not wait for it");
    script.target.disconnect(paths[1], 0);
    appear(&mut script, &[paths[0], stranger]);
    assert_eq!(served(&script, paths[0]), [1, 3], "a path that is gone delays no other path");
}

#[test]
fn no_identity_is_there_twice() {
    let mut twice = other_store();
    twice.subsystems[1].namespaces.push(NamespaceConfig {
        id: Some(NamespaceId { nguid: [9; 16], ..NamespaceId::of_store(7) }),
        ..NamespaceConfig::new(4, 1, 9)
    });
    let place = ConfigObject::Namespace(PRIVATE_NQN.to_owned(), 4);
    let other = ConfigObject::Namespace(NQN.to_owned(), 1);
    assert_eq!(twice.check(), Err(ConfigError::SameIdentity { place, other }));
}

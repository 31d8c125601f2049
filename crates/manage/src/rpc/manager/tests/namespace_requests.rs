//! Changes of namespaces that hosts request.

use super::*;
use roadtrain_target_proto::NamespaceRequest;
use roadtrain_wire::status::Status;

const OTHER_HOST: &str = "nqn.2025-01.io.example:i";

/// Returns a manager of a subsystem whose namespaces [`HOST`] may manage in the store `s`.
fn managed(folder: &Path, volumes: &Path) -> Manager {
    let (manager, _) = with_volume(folder, volumes);
    let hosts = json!({"nqn": NQN, "administrators": [HOST], "namespace_store": "s"});
    for (method, params) in [
        ("bdev_null_create", json!({"name": "n", "num_blocks": 2048, "block_size": 512})),
        ("nvmf_create_subsystem", json!({"nqn": NQN, "max_namespaces": 3})),
        ("nvmf_subsystem_add_host", json!({"nqn": NQN, "host": HOST})),
        ("nvmf_subsystem_add_host", json!({"nqn": NQN, "host": OTHER_HOST})),
        ("nvmf_subsystem_add_ns", json!({"nqn": NQN, "namespace": {"bdev_name": "n"}})),
        ("roadtrain_set_namespace_management", hosts),
    ] {
        let done = call_method(&manager, method, params);
        assert!(done.get("error").is_none(), "{method}: {done}");
    }
    manager
}

fn create(blocks: u64) -> NamespaceRequest {
    NamespaceRequest::Create { blocks, lba_shift: 9, ana_group: 7 }
}

fn hosts(hosts: &[&str]) -> BTreeSet<String> {
    hosts.iter().map(|host| (*host).to_owned()).collect()
}

fn attach(nsid: u32, of: &[&str]) -> NamespaceRequest {
    NamespaceRequest::Attach { nsid, hosts: hosts(of) }
}

fn detach(nsid: u32, of: &[&str]) -> NamespaceRequest {
    NamespaceRequest::Detach { nsid, hosts: hosts(of) }
}

fn delete(nsid: Option<u32>) -> NamespaceRequest {
    NamespaceRequest::Delete { nsid }
}

/// Returns the hosts that see a namespace, as the target has it; `None`: there is no such namespace.
fn seen_by(manager: &Manager, nsid: u32) -> Option<Option<BTreeSet<String>>> {
    let (view, _) = manager.server().view();
    let subsystem = view.subsystems.iter().find(|one| one.nqn == NQN).unwrap();
    let namespace = subsystem.namespaces.iter().find(|one| one.nsid == nsid)?;
    Some(namespace.view.hosts.clone())
}

fn volumes_of(manager: &Manager) -> usize {
    manager.model().lvstore("s").unwrap().store.list().len()
}

#[test]
fn namespaces_of_hosts_are_in_the_state() {
    let [folder, volumes] = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let manager = managed(folder.path(), volumes.path());
    let path = folder.path().join("state.toml");
    let done = |request: NamespaceRequest| {
        let result = manager.execute_namespace_request(NQN, &request);
        assert_eq!(model::read(&path).unwrap(), manager.model().state(), "{request:?}");
        result
    };
    assert_eq!(done(create(8192)), Ok(2));
    assert_eq!(seen_by(&manager, 2), Some(Some(BTreeSet::new())));
    let (view, _) = manager.server().view();
    let made = view.subsystems[0].namespaces.iter().find(|one| one.nsid == 2).unwrap();
    assert_eq!((made.blocks, made.lba_shift, made.view.ana_group), (8192, 9, 7));
    assert_eq!(done(attach(2, &[HOST, OTHER_HOST])), Ok(0));
    assert_eq!(done(detach(2, &[OTHER_HOST])), Ok(0));
    assert_eq!(seen_by(&manager, 2), Some(Some(hosts(&[HOST]))));
    // All hosts see the first namespace: those that remain are named.
    assert_eq!(done(detach(1, &[HOST])), Ok(0));
    assert_eq!(seen_by(&manager, 1), Some(Some(hosts(&[OTHER_HOST]))));
    assert_eq!((done(delete(Some(2))), volumes_of(&manager)), (Ok(0), 1));
    assert_eq!(seen_by(&manager, 2), None);

    assert_eq!((done(create(1)), done(create(1))), (Ok(2), Ok(3)));
    let why = Err(Status::NAMESPACE_ID_UNAVAILABLE.dnr());
    assert_eq!((done(create(1)), volumes_of(&manager)), (why, 3), "the volume is deleted again");
    drop(manager.release());
    drop(manager);
    let found =
        model::load(&path, &[volumes.path().to_owned()], &model::RemoteDevices::default()).unwrap();
    let exported = &found.exports()[0];
    assert_eq!(exported.namespaces.len(), 3);
    let management = exported.management.as_ref().unwrap();
    assert_eq!((management.administrators.clone(), management.lba_shift), (hosts(&[HOST]), 9));
}

#[test]
fn a_request_is_refused_as_a_whole() {
    let [folder, volumes] = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let manager = managed(folder.path(), volumes.path());
    assert_eq!(manager.execute_namespace_request(NQN, &create(1)), Ok(2));
    let (before, count) = (manager.model().state(), volumes_of(&manager));
    let other_blocks = NamespaceRequest::Create { blocks: 1, lba_shift: 12, ana_group: 1 };
    for (request, status) in [
        (other_blocks, Status::INVALID_FORMAT),
        (create(u64::MAX), Status::NAMESPACE_INSUFFICIENT_CAPACITY),
        (create(1 << 50), Status::NAMESPACE_INSUFFICIENT_CAPACITY),
        (delete(Some(1)), Status::ACCESS_DENIED),
        (delete(None), Status::ACCESS_DENIED),
        (delete(Some(3)), Status::INVALID_FIELD),
        (attach(3, &[HOST]), Status::INVALID_FIELD),
        (detach(3, &[HOST]), Status::INVALID_FIELD),
    ] {
        let result = manager.execute_namespace_request(NQN, &request);
        assert_eq!(result, Err(status.dnr()), "{request:?}");
        assert_eq!((manager.model().state(), volumes_of(&manager)), (before.clone(), count));
    }
    // A folder blocks the next state file.
    let in_the_way = folder.path().join("state.toml.new");
    std::fs::create_dir(&in_the_way).unwrap();
    for request in [create(1), attach(2, &[HOST]), detach(1, &[HOST]), delete(Some(2))] {
        let result = manager.execute_namespace_request(NQN, &request);
        assert_eq!(result, Err(Status::INTERNAL_ERROR), "{request:?}");
        assert_eq!((manager.model().state(), volumes_of(&manager)), (before.clone(), count));
    }
    std::fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(seen_by(&manager, 1), Some(None));
    assert_eq!(seen_by(&manager, 2), Some(Some(BTreeSet::new())));
    let removed = json!({"nqn": NQN, "nsid": 1});
    call_method(&manager, "nvmf_subsystem_remove_ns", removed);
    assert_eq!(manager.execute_namespace_request(NQN, &delete(None)), Ok(0));
    assert_eq!((seen_by(&manager, 2), volumes_of(&manager)), (None, count - 1));
}

#[test]
fn administrators_and_their_store_belong_together() {
    let [folder, volumes] = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let manager = managed(folder.path(), volumes.path());
    let set = |more: Value| {
        let mut params = json!({"nqn": NQN});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call_method(&manager, "roadtrain_set_namespace_management", params)
    };
    let shown = || {
        let all = call_method(&manager, "nvmf_get_subsystems", json!({"nqn": NQN}));
        let of = |name: &str| all["result"][0][name].clone();
        (of("administrators"), of("namespace_store"))
    };
    for (params, why) in [
        (json!({"administrators": [HOST]}), "lacks namespace_store"),
        (json!({"namespace_store": "s"}), "lacks administrators"),
        (json!({"administrators": [HOST], "namespace_store": "t"}), "no store of volumes t"),
        (json!({"administrators": ["me"], "namespace_store": "s"}), "nqn.2025-01"),
    ] {
        let refused = set(params).to_string();
        assert!(refused.contains(why), "{refused}");
        assert_eq!(shown(), (json!([HOST]), json!("s")));
    }
    let gone = call_method(&manager, "bdev_lvol_delete_lvstore", json!({"lvs_name": "s"}));
    assert!(gone.to_string().contains("--no-administrators"), "{gone}");
    let renamed = json!({"old_name": "s", "new_name": "t"});
    assert_eq!(call_method(&manager, "bdev_lvol_rename_lvstore", renamed)["result"], true);
    assert_eq!(shown(), (json!([HOST]), json!("t")));
    assert_eq!(manager.execute_namespace_request(NQN, &create(1)), Ok(2));
    let kept = json!({
        "method": "roadtrain_set_namespace_management",
        "params": {"nqn": NQN, "administrators": [HOST], "namespace_store": "t"},
    });
    assert!(saved(&manager).contains(&kept), "{:?}", saved(&manager));
    assert_eq!(set(json!({}))["result"], true);
    assert_eq!(shown(), (Value::Null, Value::Null));
    let ended = Err(Status::INVALID_OPCODE.dnr());
    assert_eq!(manager.execute_namespace_request(NQN, &create(1)), ended);
    assert_eq!(manager.server().view().0.subsystems[0].management, None);
}

use super::*;
use crate::model::{self, DeviceKind, RemoteDevices};
use crate::rpc::message;
use crate::rpc::{Caller, CallerAccess};
use roadtrain_proto::security::DhchapKey;
use roadtrain_target_engine::ServerConfig;
use roadtrain_target_proto::SubsystemConfig;
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

mod namespace_requests;

struct TestControlPlane(Arc<Server>);

impl ControlPlane for TestControlPlane {
    fn apply(
        &self,
        operations: &[ConfigOperation<Export>],
        psks: Option<Psks>,
    ) -> Result<Vec<ConfigOperation>, Option<ConfigError>> {
        let changes = self.0.apply(operations).map_err(Some)?;
        psks.into_iter().for_each(|psks| self.0.set_tls_keys_at(psks));
        Ok(changes)
    }

    fn server(&self) -> Arc<Server> {
        self.0.clone()
    }

    fn stop(&self) {}

    fn set_log_level(&self, level: &str) -> Result<(), String> {
        if level == "debug" { Err("not here".into()) } else { Ok(()) }
    }
}

/// Returns a manager of a new target, with its state file in `folder`.
fn manager(folder: &Path) -> Manager {
    let config = ServerConfig::new(vec![([127, 0, 0, 1], 0).into()], Vec::new());
    let server = Arc::new(Server::start(config).unwrap());
    let files = Files { state: Some(folder.join("state.toml")), roots: Vec::new() };
    Manager::new(Box::new(TestControlPlane(server)), ManagedModel::default(), files)
}

fn call_method(manager: &Manager, method: &str, params: Value) -> Value {
    let request = serde_json::json!({"method": method, "params": params, "id": 1});
    let caller = Caller { table: manager, access: CallerAccess::Client, peer: "a test" };
    let answered = message::answer(request.to_string().as_bytes(), &caller);
    serde_json::from_str(&answered.text.unwrap()).unwrap()
}

const NQN: &str = "nqn.2025-01.io.example:a";
const HOST: &str = "nqn.2025-01.io.example:h";

/// Creates an object of every kind, at the two ports; a folder for a store of volumes is `volumes`.
fn create_objects(manager: &Manager, key: &str, [port, other]: [u16; 2]) {
    let made = |method: &str, params: Value| {
        let answer = call_method(manager, method, params);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
    };
    made("bdev_malloc_create", json!({"name": "m", "num_blocks": 2048, "block_size": 512}));
    made("bdev_malloc_create", json!({"name": "d", "num_blocks": 2048, "block_size": 512}));
    made("bdev_malloc_create", json!({"name": "m2", "num_blocks": 8192, "block_size": 512}));
    made("bdev_malloc_create", json!({"name": "m3", "num_blocks": 8192, "block_size": 512}));
    made("bdev_malloc_create", json!({"name": "m4", "num_blocks": 8192, "block_size": 512}));
    made("bdev_lvol_create_lvstore", json!({"bdev_name": "m3", "lvs_name": "old"}));
    made("bdev_lvol_create_lvstore", json!({"bdev_name": "m4", "lvs_name": "named"}));
    made("bdev_null_create", json!({"name": "n", "num_blocks": 2048, "block_size": 512}));
    made("bdev_set_qos_limit", json!({"name": "n", "rw_ios_per_sec": 1000}));
    made("keyring_file_add_key", json!({"name": "k", "path": key}));
    made("keyring_file_add_key", json!({"name": "spare", "path": key}));
    made("nvmf_create_subsystem", json!({"nqn": NQN, "ana_reporting": true}));
    made("nvmf_subsystem_add_ns", json!({"nqn": NQN, "namespace": {"bdev_name": "n"}}));
    made("nvmf_subsystem_add_host", json!({"nqn": NQN, "host": HOST, "dhchap_key": "k"}));
    made("roadtrain_set_host_limits", json!({"nqn": NQN, "host": HOST, "limits": {"iops": 5}}));
    for port in [port, other] {
        made("nvmf_subsystem_add_listener", json!({"nqn": NQN, "listen_address": at(port)}));
    }
    made("nvmf_discovery_add_referral", json!({"address": at(8009)}));
    made("bdev_rbd_register_cluster", json!({"name": "c"}));
}

fn at(port: u16) -> Value {
    json!({"trtype": "tcp", "traddr": "127.0.0.1", "trsvcid": port.to_string()})
}

/// Returns ports without a listener.
fn free_ports<const N: usize>() -> [u16; N] {
    let all = [(); N].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    all.map(|one| one.local_addr().unwrap().port())
}

/// Returns the state that clients and hosts see.
fn seen(manager: &Manager) -> Value {
    let queries = ["bdev_get_bdevs", "nvmf_discovery_get_referrals", "keyring_get_keys"];
    let queries =
        queries.into_iter().chain(["bdev_rbd_get_clusters_info", "bdev_lvol_get_lvstores"]);
    let queries = queries.map(|method| (method, Value::Null));
    let queries = queries.chain([("nvmf_get_subsystems", json!({"nqn": NQN}))]);
    let answers: Vec<Value> = queries
        .map(|(method, params)| call_method(manager, method, params)["result"].clone())
        .collect();
    let (server, model) = (manager.server(), manager.model());
    let (view, exports) = (server.view().0, server.exports());
    let addresses: BTreeSet<String> =
        exports.listeners.iter().map(|one| one.address.to_string()).collect();
    json!({
        "answers": answers, "addresses": addresses, "keys": format!("{:?}", exports.authentication),
        "hosts see": format!("{:?}", view.subsystems), "state": model.state(),
    })
}

/// Returns a change of each kind, of the objects that [`create_objects`] has created.
fn changes(key: &str, volumes: &Path, [port, other, free]: [u16; 3]) -> Vec<(&'static str, Value)> {
    let own = |more: Value| {
        let mut params = json!({"nqn": NQN});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    vec![
        ("bdev_malloc_create", json!({"num_blocks": 8, "block_size": 512})),
        ("bdev_null_create", json!({"name": "n2", "num_blocks": 8, "block_size": 512})),
        ("bdev_malloc_delete", json!({"name": "d"})),
        ("bdev_null_delete", json!({"name": "n"})),
        ("bdev_null_resize", json!({"name": "n", "new_size": 2})),
        ("bdev_set_qos_limit", json!({"name": "n", "rw_ios_per_sec": 0})),
        ("roadtrain_set_device_limits", json!({"name": "n", "limits": {"write_iops": 9}})),
        ("roadtrain_set_host_limits", own(json!({"host": HOST, "limits": {}}))),
        ("bdev_lvol_create_lvstore", json!({"bdev_name": "m2", "lvs_name": "s"})),
        ("bdev_lvol_create_lvstore", json!({"bdev_name": volumes, "lvs_name": "t"})),
        ("bdev_lvol_delete_lvstore", json!({"lvs_name": "old"})),
        ("bdev_lvol_rename_lvstore", json!({"old_name": "named", "new_name": "renamed"})),
        ("bdev_rbd_register_cluster", json!({"name": "c2"})),
        ("bdev_rbd_unregister_cluster", json!({"name": "c"})),
        ("keyring_file_add_key", json!({"name": "k2", "path": key})),
        ("keyring_file_remove_key", json!({"name": "spare"})),
        ("nvmf_create_transport", json!({"trtype": "TCP"})),
        ("nvmf_create_subsystem", json!({"nqn": "nqn.2025-01.io.example:b"})),
        ("nvmf_delete_subsystem", own(json!({}))),
        ("nvmf_subsystem_add_ns", own(json!({"namespace": {"bdev_name": "m"}}))),
        ("nvmf_subsystem_remove_ns", own(json!({"nsid": 1}))),
        ("nvmf_subsystem_add_listener", own(json!({"listen_address": at(free)}))),
        ("nvmf_subsystem_remove_listener", own(json!({"listen_address": at(port)}))),
        (
            "nvmf_subsystem_listener_set_ana_state",
            own(json!({"listen_address": at(other), "ana_state": "inaccessible"})),
        ),
        ("nvmf_subsystem_add_host", own(json!({"host": "nqn.2025-01.io.example:i"}))),
        ("nvmf_subsystem_set_keys", own(json!({"host": HOST}))),
        ("nvmf_subsystem_remove_host", own(json!({"host": HOST}))),
        ("nvmf_subsystem_allow_any_host", own(json!({"allow_any_host": true}))),
        ("nvmf_discovery_add_referral", json!({"address": at(8010)})),
        ("nvmf_discovery_remove_referral", json!({"address": at(8009)})),
    ]
}

#[test]
fn a_change_that_cannot_be_written_down_is_undone() {
    let [folder, volumes] = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let (manager, key) = with_key(folder.path());
    let files = Files { roots: vec![folder.path().into(), volumes.path().into()], ..manager.files };
    let manager = Manager { files, ..manager };
    let ports = free_ports();
    create_objects(&manager, &key, [ports[0], ports[1]]);
    let path = folder.path().join("state.toml");
    let before = seen(&manager);
    // A folder that blocks the next state file.
    let in_the_way = folder.path().join("state.toml.new");
    for (method, params) in changes(&key, volumes.path(), ports) {
        std::fs::create_dir(&in_the_way).unwrap();
        let refused = call_method(&manager, method, params.clone());
        assert_eq!(refused["error"]["code"], -5, "{method}: {refused}");
        assert_eq!(seen(&manager), before, "{method}");
        std::fs::remove_dir(&in_the_way).unwrap();
        assert_eq!(model::read(&path).unwrap(), manager.model().state(), "{method}");
    }
    for (method, params) in changes(&key, volumes.path(), ports) {
        if !matches!(method, "bdev_null_delete" | "nvmf_delete_subsystem") {
            let done = call_method(&manager, method, params);
            assert!(done.get("error").is_none(), "with nothing in the way: {method}: {done}");
        }
    }
}

#[test]
fn operations_on_the_file_are_undone_with_the_change() {
    let folder = tempfile::tempdir().unwrap();
    let (manager, key) = with_key(folder.path());
    create_objects(&manager, &key, free_ports());
    let nqn = "nqn.2025-01.io.example:file";
    let server = manager.server();
    server.apply(&[ConfigOperation::AddSubsystem(SubsystemConfig::new(nqn))]).unwrap();
    let all = || format!("{:?}", server.view().0);
    let close_and_forget = || {
        manager.change_with(
            |error| RpcError::params(error.to_string()),
            |model, operations| {
                operations.push(ConfigOperation::AllowAnyHost { nqn: nqn.into(), allow: false });
                model.referrals.clear();
                Ok(())
            },
        )
    };
    let (before, in_the_way) = (all(), folder.path().join("state.toml.new"));
    std::fs::create_dir(&in_the_way).unwrap();
    assert_eq!(close_and_forget().unwrap_err().code, -5);
    assert_eq!(all(), before);
    std::fs::remove_dir(&in_the_way).unwrap();
    close_and_forget().unwrap();
    assert_ne!(all(), before);
}

#[test]
fn limits_of_hosts_and_devices_are_the_targets() {
    let folder = tempfile::tempdir().unwrap();
    let (manager, key) = with_key(folder.path());
    create_objects(&manager, &key, free_ports());
    let set = |method: &str, who: Value, limits: Value| {
        let mut params = json!({"limits": limits});
        params.as_object_mut().unwrap().extend(who.as_object().unwrap().clone());
        call_method(&manager, method, params)
    };
    let (host, device) = ("roadtrain_set_host_limits", "roadtrain_set_device_limits");
    let (of_host, of_device) = (json!({"nqn": NQN, "host": HOST}), json!({"name": "n"}));
    let limits = json!({"read_iops": 7, "write_bandwidth": 1000, "burst_us": 0});
    assert_eq!(set(host, of_host.clone(), limits.clone())["result"], true);
    assert_eq!(set(device, of_device.clone(), limits.clone())["result"], true);
    let subsystem = || manager.server().exports().subsystems[0].clone();
    let rates = subsystem().host_rates[HOST];
    assert_eq!((rates.iops, rates.read_iops.unwrap().get()), (None, 7));
    assert_eq!((subsystem().namespaces[0].rates, rates.burst), (rates, Some(Duration::ZERO)));
    // The saved calls restore the limits.
    let saved = |name: &str| {
        call_method(&manager, "framework_get_config", json!({"name": name}))["result"].clone()
    };
    for (name, method, mut params) in [("nvmf", host, of_host.clone()), ("bdev", device, of_device)]
    {
        params["limits"] = limits.clone();
        let calls = saved(name);
        assert!(
            calls.as_array().unwrap().contains(&json!({"method": method, "params": params})),
            "{calls}"
        );
    }
    // SPDK's call changes the limits that it knows, and leaves the rest.
    let spdk = json!({"name": "n", "w_mbytes_per_sec": 0});
    assert_eq!(call_method(&manager, "bdev_set_qos_limit", spdk)["result"], true);
    let rates = subsystem().namespaces[0].rates;
    assert_eq!((rates.read_iops.unwrap().get(), rates.write_bandwidth), (7, None));
    for (odd, code) in [
        (json!({"iops": u64::MAX}), -22),
        (json!({"iops": 1, "burst_us": 60_000_001}), -22),
        (json!({"iops": -1}), -32602),
        (json!({"color": 1}), -32602),
    ] {
        assert_eq!(set(host, of_host.clone(), odd.clone())["error"]["code"], code, "{odd}");
    }
    let odd = json!({"nqn": NQN, "host": "no-nqn"});
    assert_eq!(set(host, odd, json!({}))["error"]["code"], -32602);
    assert_eq!(set(device, json!({"name": "none"}), json!({}))["error"]["code"], -19);
    assert_eq!(set(host, of_host, json!({}))["result"], true);
    assert!(
        subsystem().host_rates.is_empty() && manager.model().subsystems[0].host_limits.is_empty()
    );
}

/// A resize may be in flight when another process takes over: it must not write the state file then.
#[test]
fn nothing_is_written_down_after_another_process_has_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let manager = manager(folder.path());
    let nqn = json!({"nqn": "nqn.2025-01.io.example:a"});
    assert_eq!(call_method(&manager, "nvmf_create_subsystem", nqn)["result"], true);
    let written = || std::fs::read(folder.path().join("state.toml")).unwrap();
    let before = written();
    manager.release();
    let shape = (DeviceKind::Null, (512, 1 << 20, false));
    let device = ManagedDevice::open(("m".into(), [1; 16]), shape.0, shape.1).unwrap();
    let refused = manager.resize(&device, &Resize::to(1 << 20, 2 << 20));
    assert_eq!(refused.unwrap_err().code, -16);
    assert_eq!(device.store.geometry().bytes(), 1 << 20);
    assert_eq!(written(), before);
}

#[test]
fn a_device_is_in_one_namespace() {
    let folder = tempfile::tempdir().unwrap();
    let manager = manager(folder.path());
    let device = serde_json::json!({"name": "m", "num_blocks": 8, "block_size": 512});
    assert_eq!(call_method(&manager, "bdev_malloc_create", device)["result"], "m");
    for name in ["a", "b"] {
        let nqn = format!("nqn.2025-01.io.example:{name}");
        call_method(&manager, "nvmf_create_subsystem", serde_json::json!({"nqn": nqn}));
        let namespace = serde_json::json!({"nqn": nqn, "namespace": {"bdev_name": "m"}});
        let answer = call_method(&manager, "nvmf_subsystem_add_ns", namespace);
        let expected = if name == "a" { Value::from(1) } else { Value::Null };
        assert_eq!(answer["result"], expected, "{answer}");
    }
    call_method(&manager, "bdev_malloc_delete", serde_json::json!({"name": "m"}));
    assert_eq!(manager.server().view().0.subsystems[0].namespaces, []);
}

/// Returns a manager and the file of a key that it may read.
fn with_key(folder: &Path) -> (Manager, String) {
    let path = folder.join("host.key");
    let line = DhchapKey::new(None, &[7; 32]).unwrap().print();
    std::fs::write(&path, &*line).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let plain = manager(folder);
    let files = Files { roots: vec![folder.into()], ..plain.files };
    (Manager { files, ..plain }, path.display().to_string())
}

#[test]
fn what_cannot_be_deleted_stays_what_it_is() {
    let [folder, volumes] = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let plain = manager(folder.path());
    let files = Files { roots: vec![volumes.path().into()], ..plain.files };
    let manager = Manager { files, ..plain };
    let path = volumes.path().display().to_string();
    call_method(&manager, "bdev_lvol_create_lvstore", json!({"bdev_name": path, "lvs_name": "s"}));
    let made = json!({"lvs_name": "s", "lvol_name": "v", "size_in_mib": 4, "thin_provision": true});
    let name = call_method(&manager, "bdev_lvol_create", made)["result"].clone();
    let nqn = "nqn.2025-01.io.example:a";
    call_method(&manager, "nvmf_create_subsystem", json!({"nqn": nqn}));
    let namespace = json!({"bdev_name": name, "nsid": 7});
    call_method(&manager, "nvmf_subsystem_add_ns", json!({"nqn": nqn, "namespace": namespace}));
    let limit = json!({"name": name, "rw_ios_per_sec": 1000});
    assert_eq!(call_method(&manager, "bdev_set_qos_limit", limit)["result"], true);
    let before = manager.model().state();
    // A folder that blocks the next index.
    std::fs::create_dir(volumes.path().join("store.json.new")).unwrap();
    for (method, params) in [
        ("bdev_lvol_delete", json!({"name": name})),
        ("bdev_lvol_delete_lvstore", json!({"lvs_name": "s"})),
    ] {
        let refused = call_method(&manager, method, params);
        assert!(refused["error"]["code"].is_i64(), "{refused}");
        assert_eq!(manager.model().state(), before, "{method}");
        let subsystems = &manager.server().view().0.subsystems;
        assert_eq!(subsystems[0].namespaces[0].nsid, 7, "{method}");
    }
    std::fs::remove_dir(volumes.path().join("store.json.new")).unwrap();
    let deleted = call_method(&manager, "bdev_lvol_delete_lvstore", json!({"lvs_name": "s"}));
    assert_eq!(deleted["result"], true, "{deleted}");
    assert!(manager.model().devices.is_empty() && manager.model().limits.is_empty());
}

/// Returns the calls of `framework_get_config`, as save_config writes them.
fn saved(manager: &Manager) -> Vec<Value> {
    let of = |name: &str| call_method(manager, "framework_get_config", json!({"name": name}));
    let calls = ["keyring", "bdev", "nvmf"].map(|name| of(name)["result"].take());
    calls.into_iter().flat_map(|calls| calls.as_array().unwrap().clone()).collect()
}

/// Volumes in memory, in a folder, and of the start; exported, and limited.
#[test]
fn saved_volumes_are_found_by_another_target() {
    let [folder, volumes] = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let with_roots = || {
        let plain = manager(folder.path());
        let files = Files { roots: vec![volumes.path().into()], ..plain.files };
        Manager { files, ..plain }
    };
    let manager = with_roots();
    let done = |method: &str, params: Value| {
        let answer = call_method(&manager, method, params);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    };
    let (path, nqn) = (volumes.path().display().to_string(), "nqn.2025-01.io.example:a");
    done("bdev_malloc_create", json!({"name": "m", "num_blocks": 65536, "block_size": 512}));
    done("bdev_lvol_create_lvstore", json!({"bdev_name": "m", "lvs_name": "mem"}));
    done("bdev_lvol_create_lvstore", json!({"bdev_name": path, "lvs_name": "disk"}));
    done("nvmf_create_subsystem", json!({"nqn": nqn}));
    let mut uuids = Vec::new();
    for store in ["mem", "disk"] {
        let new = json!({"lvs_name": store, "lvol_name": "v", "size": 4 << 20});
        let uuid = done("bdev_lvol_create", new);
        let namespace = json!({"bdev_name": uuid});
        done("nvmf_subsystem_add_ns", json!({"nqn": nqn, "namespace": namespace}));
        done("bdev_set_qos_limit", json!({"name": uuid, "rw_ios_per_sec": 20000}));
        uuids.push(uuid);
    }
    done("bdev_lvol_snapshot", json!({"lvol_name": "mem/v", "snapshot_name": "s"}));
    let ids = |manager: &Manager| -> Vec<_> {
        let subsystem = &manager.server().exports().subsystems[0];
        subsystem.namespaces.iter().map(|one| (one.nsid, one.uuid)).collect()
    };
    let (calls, seen) = (saved(&manager), ids(&manager));
    drop(manager);
    let other = with_roots();
    for call in &calls {
        let answer = call_method(&other, call["method"].as_str().unwrap(), call["params"].clone());
        assert!(answer["error"].is_null(), "{call}: {answer}");
    }
    assert_eq!(saved(&other), calls);
    assert_eq!(ids(&other), seen, "hosts know them by the same names");
    let model = other.model();
    assert!(model.device(uuids[1].as_str().unwrap()).is_some(), "it is the same volume");
    assert_eq!(model.limits.len(), 2);
}

#[test]
fn keys_come_and_go_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let (manager, path) = with_key(folder.path());
    let [nqn, host] = ["a", "h"].map(|name| format!("nqn.2025-01.io.example:{name}"));
    let add = json!({"name": "k", "path": path});
    assert_eq!(call_method(&manager, "keyring_file_add_key", add.clone())["result"], true);
    assert_eq!(call_method(&manager, "keyring_file_add_key", add.clone())["error"]["code"], -17);
    call_method(&manager, "nvmf_create_subsystem", json!({"nqn": nqn}));
    let with = |key: &str, name: &str| json!({"nqn": nqn, "host": host, key: name});
    for (key, name, code) in [
        ("dhchap_key", "none", -32602),
        ("psk", "k", -32602), // it is for authentication
        ("dhchap_ctrlr_key", "k", -32603),
    ] {
        let refused = call_method(&manager, "nvmf_subsystem_add_host", with(key, name));
        assert_eq!(refused["error"]["code"], code, "{refused}");
    }
    let added = call_method(&manager, "nvmf_subsystem_add_host", with("dhchap_key", "k"));
    assert_eq!(added["result"], true, "{added}");
    let keys_at = || manager.server().exports().authentication.keys_at.clone();
    assert!(keys_at()[&nqn][&host].host.is_some());
    let shown = call_method(&manager, "nvmf_get_subsystems", json!({"nqn": nqn}));
    assert_eq!(shown["result"][0]["hosts"], json!([{"nqn": host, "dhchap_key": "k"}]));
    let shown = call_method(&manager, "keyring_get_keys", Value::Null);
    assert_eq!(shown["result"][0]["refcnt"], 2, "{shown}");
    let used = call_method(&manager, "keyring_file_remove_key", json!({"name": "k"}));
    assert_eq!(used["error"]["code"], -16, "{used}");
    let calls = call_method(&manager, "framework_get_config", json!({"name": "keyring"}));
    assert_eq!(calls["result"], json!([{"method": "keyring_file_add_key", "params": add}]));
    let kept = model::load(
        &folder.path().join("state.toml"),
        &[folder.path().to_owned()],
        &RemoteDevices::default(),
    )
    .unwrap();
    assert_eq!((kept.state(), kept.keys_at()), (manager.model().state(), keys_at()));
    call_method(&manager, "nvmf_subsystem_set_keys", json!({"nqn": nqn, "host": host}));
    assert!(keys_at().is_empty());
    let removed = call_method(&manager, "keyring_file_remove_key", json!({"name": "k"}));
    assert_eq!(removed["result"], true, "{removed}");
    let none = call_method(&manager, "keyring_file_remove_key", json!({"name": "k"}));
    assert_eq!(none["error"]["code"], -126, "{none}");
}

#[test]
fn keys_that_others_can_read_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (manager, path) = with_key(folder.path());
    std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    for (path, code) in
        [(path.as_str(), -1), ("host.key", -1), ("/etc/passwd", -1), ("/nowhere/at/all", -2)]
    {
        let refused =
            call_method(&manager, "keyring_file_add_key", json!({"name": "k", "path": path}));
        assert_eq!(refused["error"]["code"], code, "{refused}");
    }
    assert_eq!(call_method(&manager, "keyring_get_keys", Value::Null)["result"], json!([]));
}

#[test]
fn referrals_are_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let manager = manager(folder.path());
    let other = json!({"address": {"trtype": "tcp", "traddr": "192.0.2.1"}});
    let add = || call_method(&manager, "nvmf_discovery_add_referral", other.clone());
    assert_eq!(add()["result"], true);
    assert_eq!(add()["error"]["code"], -32603, "twice");
    let expected: Vec<SocketAddr> = vec!["192.0.2.1:8009".parse().unwrap()];
    assert_eq!(manager.server().view().0.referrals, expected);
    let shown = call_method(&manager, "nvmf_discovery_get_referrals", Value::Null);
    assert_eq!(shown["result"][0]["address"]["trsvcid"], "8009", "{shown}");
    let kept = model::load(
        &folder.path().join("state.toml"),
        &[folder.path().to_owned()],
        &RemoteDevices::default(),
    )
    .unwrap();
    assert_eq!(kept.state(), manager.model().state());
    let remove = || call_method(&manager, "nvmf_discovery_remove_referral", other.clone());
    assert_eq!(remove()["result"], true);
    let message = remove()["error"]["message"].clone();
    assert!(message.as_str().unwrap().starts_with("Unable to remove a referral."));
    assert_eq!(manager.server().view().0.referrals, []);
}

#[test]
fn log_levels_are_those_of_spdk() {
    let folder = tempfile::tempdir().unwrap();
    let manager = manager(folder.path());
    let set = |level: &str| call_method(&manager, "log_set_print_level", json!({"level": level}));
    assert_eq!(set("WARNING")["result"], true);
    for method in ["log_get_level", "log_get_print_level"] {
        assert_eq!(call_method(&manager, method, Value::Null)["result"], "WARNING");
    }
    assert_eq!(set("loud")["error"]["code"], -32602);
    assert_eq!(set("DEBUG")["error"]["code"], -32603, "the process says no");
    assert_eq!(call_method(&manager, "log_get_level", Value::Null)["result"], "WARNING");
    // Parts of the program with a level of their own.
    let flags = || call_method(&manager, "log_get_flags", Value::Null)["result"].clone();
    let flag = |method: &str, flag: &str| call_method(&manager, method, json!({"flag": flag}));
    assert_eq!(flags(), json!({"nvmf": false, "nvmf_tcp": false, "rpc": false}));
    assert_eq!(flag("log_set_flag", "nvmf")["result"], true);
    assert_eq!((flags()["nvmf"].clone(), flags()["rpc"].clone()), (json!(true), json!(false)));
    assert_eq!(call_method(&manager, "log_get_level", Value::Null)["result"], "WARNING");
    let unknown = flag("log_set_flag", "nvme")["error"].clone();
    assert_eq!(unknown["code"], -32602);
    assert!(unknown["message"].as_str().unwrap().starts_with("invalid log flag"), "{unknown}");
    assert_eq!(flag("log_set_flag", "all")["result"], true);
    assert_eq!(flag("log_clear_flag", "nvmf")["result"], true);
    assert_eq!(flags(), json!({"nvmf": false, "nvmf_tcp": true, "rpc": true}));
    let kill = |name: &str| call_method(&manager, "spdk_kill_instance", json!({"sig_name": name}));
    assert_eq!(kill("SIGKILL")["error"]["code"], -32602);
    assert_eq!(kill("SIGTERM")["result"], true);
}

/// Returns a manager and the name of a thin volume in a store of a folder.
fn with_volume(folder: &Path, volumes: &Path) -> (Manager, Value) {
    let plain = manager(folder);
    let files = Files { roots: vec![volumes.into()], ..plain.files };
    let manager = Manager { files, ..plain };
    call_method(
        &manager,
        "bdev_lvol_create_lvstore",
        json!({"bdev_name": volumes, "lvs_name": "s"}),
    );
    let made = json!({"lvs_name": "s", "lvol_name": "v", "size_in_mib": 8, "thin_provision": true});
    let name = call_method(&manager, "bdev_lvol_create", made)["result"].clone();
    assert!(name.is_string());
    (manager, name)
}

#[test]
fn a_volume_is_made_read_only_while_hosts_may_use_it() {
    let [folder, volumes] = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let (manager, name) = with_volume(folder.path(), volumes.path());
    call_method(&manager, "nvmf_create_subsystem", json!({"nqn": NQN}));
    let shown = json!({"nqn": NQN, "namespace": {"bdev_name": "s/v"}});
    assert_eq!(call_method(&manager, "nvmf_subsystem_add_ns", shown)["result"], 1);
    let is_read_only = || manager.server().view().0.subsystems[0].namespaces[0].read_only;
    let id = manager.server().view().0.subsystems[0].namespaces[0].id;
    assert!(!is_read_only());
    let set = || call_method(&manager, "bdev_lvol_set_read_only", json!({"name": "s/v"}));
    // A folder blocks the next index: the volume stays as it was.
    std::fs::create_dir(volumes.path().join("store.json.new")).unwrap();
    assert!(set()["error"]["code"].is_i64());
    assert!(!is_read_only());
    std::fs::remove_dir(volumes.path().join("store.json.new")).unwrap();
    [(); 2].iter().for_each(|()| assert_eq!(set()["result"], true));
    assert!(is_read_only());
    assert_eq!(manager.server().view().0.subsystems[0].namespaces[0].id, id);
    let seen = call_method(&manager, "bdev_get_bdevs", json!({"name": name}))["result"][0].take();
    assert_eq!(seen["supported_io_types"]["write"], false);
    let resized = json!({"name": "s/v", "size_in_mib": 16});
    assert_eq!(call_method(&manager, "bdev_lvol_resize", resized)["error"]["code"], -32602);
    let clone = json!({"snapshot_name": "s/v", "clone_name": "c"});
    assert!(call_method(&manager, "bdev_lvol_clone", clone)["result"].is_string());
    // The next start opens the file read-only as well.
    let state = folder.path().join("state.toml");
    drop(manager.release());
    drop(manager);
    let found =
        model::load(&state, &[volumes.path().to_owned()], &RemoteDevices::default()).unwrap();
    assert!(found.device("s/v").unwrap().store.geometry().read_only);
}

#[test]
fn stores_are_renamed_and_grown() {
    let [folder, volumes] = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let (manager, name) = with_volume(folder.path(), volumes.path());
    let rename = |old: &str, new: &str| {
        call_method(&manager, "bdev_lvol_rename_lvstore", json!({"old_name": old, "new_name": new}))
    };
    let missing = rename("none", "t")["error"].clone();
    assert_eq!(missing, json!({"code": -2, "message": "Lvol store none not found"}));
    assert_eq!(rename("s", "a/b")["error"]["code"], -32602);
    assert_eq!(rename("s", "t")["result"], true);
    let aliases =
        call_method(&manager, "bdev_get_bdevs", json!({"name": "t/v"}))["result"][0].take();
    assert_eq!((&aliases["name"], &aliases["aliases"]), (&name, &json!(["t/v"])));
    // A process that ended between the two steps: the folder identifies the store.
    manager.model().lvstore("t").unwrap().store.rename_store("u").unwrap();
    let state = folder.path().join("state.toml");
    drop(manager.release());
    drop(manager);
    let found =
        model::load(&state, &[volumes.path().to_owned()], &RemoteDevices::default()).unwrap();
    assert_eq!(found.device("u/v").unwrap().name, name.as_str().unwrap());
    let (model, files) = (RwLock::new(Arc::new(found)), Files::default());
    let manager = Manager { model, files, ..self::manager(folder.path()) };
    let shown = || {
        call_method(&manager, "bdev_lvol_get_lvstores", json!({"lvs_name": "u"}))["result"][0]
            .take()
    };
    let growable = shown()["max_growable_size"].as_u64().unwrap();
    assert_eq!(
        call_method(&manager, "bdev_lvol_grow_lvstore", json!({"lvs_name": "u"}))["result"],
        true
    );
    assert!(shown()["total_data_clusters"].as_u64().unwrap() << 22 >= growable / 2);
    let both = json!({"lvs_name": "u", "uuid": "x"});
    assert_eq!(call_method(&manager, "bdev_lvol_grow_lvstore", both)["error"]["code"], -22);
}

#[test]
fn volumes_begin_as_devices_of_files_and_end_their_ties() {
    let [folder, volumes] = [(), ()].map(|()| tempfile::tempdir().unwrap());
    let (manager, _) = with_volume(folder.path(), volumes.path());
    let image = volumes.path().join("image");
    std::fs::write(&image, vec![7; 1 << 20]).unwrap();
    let made = json!({"name": "image", "filename": image});
    assert_eq!(call_method(&manager, "bdev_aio_create", made)["result"], "image");
    let clone = |bdev: &str, name: &str| {
        call_method(
            &manager,
            "bdev_lvol_clone_bdev",
            json!({"bdev": bdev, "lvs_name": "s", "clone_name": name}),
        )
    };
    let name = clone("image", "c")["result"].clone();
    let seen = call_method(&manager, "bdev_get_bdevs", json!({"name": name}))["result"][0].take();
    assert_eq!((&seen["aliases"], &seen["num_blocks"]), (&json!(["s/c"]), &json!(8192)));
    let content = std::fs::read(volumes.path().join(name.as_str().unwrap())).unwrap();
    assert!(content[..1 << 20].iter().all(|byte| *byte == 7) && content[1 << 20..] == [0; 3 << 20]);
    let memory = json!({"name": "m", "num_blocks": 8192, "block_size": 512});
    assert_eq!(call_method(&manager, "bdev_malloc_create", memory)["result"], "m");
    for (bdev, code) in [("m", -22), ("s/v", -22), ("none", -19)] {
        assert_eq!(clone(bdev, "d")["error"]["code"], code, "{bdev}");
    }
    assert_eq!(clone("image", "c")["error"]["code"], -32602);
    // A clone of a snapshot.
    let decouple =
        |name: &str| call_method(&manager, "bdev_lvol_decouple_parent", json!({"name": name}));
    assert_eq!(decouple("s/v")["error"]["code"], -32602, "it has none");
    let snapshot = json!({"lvol_name": "s/v", "snapshot_name": "now"});
    assert!(call_method(&manager, "bdev_lvol_snapshot", snapshot)["result"].is_string());
    assert_eq!(decouple("s/now")["error"]["code"], -32602);
    assert_eq!(decouple("s/v")["result"], true);
    let seen = call_method(&manager, "bdev_get_bdevs", json!({"name": "s/v"}))["result"][0].take();
    let lvol = &seen["driver_specific"]["lvol"];
    assert_eq!((&lvol["clone"], &lvol["thin_provision"]), (&json!(false), &json!(true)));
}

/// A reset holds for all clients, and a histogram counts from its begin.
#[test]
fn counters_are_reset_and_latencies_have_a_histogram() {
    let folder = tempfile::tempdir().unwrap();
    let manager = manager(folder.path());
    let device = json!({"name": "m", "num_blocks": 8192, "block_size": 512});
    assert_eq!(call_method(&manager, "bdev_malloc_create", device)["result"], "m");
    for (params, code) in [
        (json!({"name": "none"}), -19),
        (json!({"mode": "some"}), -32603),
        (json!({"name": "m", "mode": "maxmin"}), 0),
        (json!({}), 0),
    ] {
        let answer = call_method(&manager, "bdev_reset_iostat", params.clone());
        assert_eq!(answer["error"]["code"].as_i64().unwrap_or(0), code, "{params}: {answer}");
    }
    let shown = json!({"names": ["m"], "reset_mode": "all"});
    assert_eq!(
        call_method(&manager, "bdev_get_iostat", shown)["result"]["bdevs"][0]["num_read_ops"],
        0
    );
    let get = || call_method(&manager, "bdev_get_histogram", json!({"name": "m"}));
    assert_eq!(get()["error"]["code"], -32603, "none was begun");
    let enable = |more: Value| {
        let mut params = json!({"name": "m", "enable": true});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call_method(&manager, "bdev_enable_histogram", params)
    };
    assert_eq!(enable(json!({"opc": "unmap"}))["error"]["code"], -32603);
    assert_eq!(enable(json!({"granularity": 12}))["error"]["code"], -22);
    assert_eq!(enable(json!({"opc": "read", "granularity": 5}))["result"], true);
    let shown = get()["result"].clone();
    assert_eq!((&shown["granularity"], &shown["tsc_rate"]), (&json!(5), &json!(1_000_000_000)));
    assert_eq!(enable(json!({"enable": false}))["result"], true);
    assert_eq!(get()["error"]["code"], -32603);
}

#[test]
fn a_subsystem_has_its_controllers_and_limits() {
    let folder = tempfile::tempdir().unwrap();
    let manager = manager(folder.path());
    let create = |more: Value| {
        let mut params = json!({"nqn": NQN});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call_method(&manager, "nvmf_create_subsystem", params)
    };
    for odd in [
        json!({"min_cntlid": 0}),
        json!({"min_cntlid": 9, "max_cntlid": 8}),
        json!({"max_cntlid": 65520}),
        json!({"dmrsl": 8, "max_discard_size_kib": 4}),
        json!({"wzsl": 1, "max_write_zeroes_size_kib": 8}),
        json!({"max_discard_size_kib": u64::MAX}),
        json!({"passthrough": true}),
    ] {
        assert_eq!(create(odd.clone())["error"]["code"], -32602, "{odd}");
    }
    let older = json!({
        "min_cntlid": 100, "max_cntlid": 199, "max_discard_size_kib": 1024,
        "max_write_zeroes_size_kib": 300,
    });
    assert_eq!(create(older)["result"], true);
    let seen =
        call_method(&manager, "nvmf_get_subsystems", json!({"nqn": NQN}))["result"][0].take();
    let of = |name: &str| seen[name].as_u64().unwrap();
    let all = ["min_cntlid", "max_cntlid", "dmrsl", "wzsl"].map(of);
    assert_eq!(all, [100, 199, 2048, 6]);
    // The saved configuration and the state file both restore the subsystem.
    let call = saved(&manager).into_iter().find(|one| one["method"] == "nvmf_create_subsystem");
    let params = call.unwrap()["params"].clone();
    assert_eq!((&params["dmrsl"], &params["max_cntlid"]), (&json!(2048), &json!(199)));
    let kept =
        model::load(&folder.path().join("state.toml"), &[], &RemoteDevices::default()).unwrap();
    assert_eq!(kept.subsystems, manager.model().subsystems);
    let exported = &manager.server().exports().subsystems[0];
    assert_eq!((exported.cntlids.clone(), exported.wzsl), (100..=199, 6));
}

//! Settings of namespaces and devices that SPDK does not have: kept, saved and loaded.

use super::*;
use roadtrain_target_engine::KeptPlace;
use roadtrain_target_proto::AnaState;

/// A manager that may use the files in `folder`, with the model of its state file there.
fn started(folder: &Path) -> Manager {
    let path = folder.join("state.toml");
    let model = model::load(&path, &[folder.to_owned()], &RemoteDevices::default()).unwrap();
    let mut config = ServerConfig::new(vec![([127, 0, 0, 1], 0).into()], Vec::new());
    config.subsystems = model.exports();
    let server = Arc::new(Server::start(config).unwrap());
    let files = Files { state: Some(path), roots: vec![folder.to_owned()] };
    Manager::new(Box::new(TestControlPlane(server)), model, files)
}

/// Makes a namespace with each setting.
fn create(manager: &Manager, folder: &Path) {
    let done = |method: &str, params: Value| {
        let answer = call_method(manager, method, params);
        assert!(answer["error"].is_null(), "{method}: {answer}");
    };
    let memory = json!({"num_blocks": 2048, "block_size": 512});
    let named = |name: &str, more: Value| {
        let mut params = json!({"name": name});
        for from in [&memory, &more] {
            params.as_object_mut().unwrap().extend(from.as_object().unwrap().clone());
        }
        params
    };
    done("roadtrain_ssd_create", named("ssd", json!({"service_us": 20, "parallel": 2})));
    done("bdev_malloc_create", named("mem", json!({})));
    let file = folder.join("disk.img");
    done(
        "bdev_aio_create",
        json!({"name": "a", "filename": file, "size": 1 << 20, "standby": true}),
    );
    done("nvmf_create_subsystem", json!({"nqn": NQN}));
    for (device, more) in [
        ("ssd", json!({"class": "latency"})),
        ("mem", json!({"uncorrectable": "none"})),
        ("a", json!({"class": "bulk", "uncorrectable": folder.join("marks")})),
    ] {
        let mut namespace = json!({"bdev_name": device});
        namespace.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        done("nvmf_subsystem_add_ns", json!({"nqn": NQN, "namespace": namespace}));
    }
}

fn exports(manager: &Manager) -> Vec<Export> {
    manager.server().exports().subsystems[0].namespaces.clone()
}

#[test]
fn settings_are_kept_and_saved() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let manager = started(&folder);
    create(&manager, &folder);
    let check = |manager: &Manager| {
        let seen = exports(manager);
        let classes: Vec<_> = seen.iter().map(|one| one.class).collect();
        let (latency, bulk) = (model::ClassWord::Latency, model::ClassWord::Bulk);
        assert_eq!(classes, [Some(latency.into()), None, Some(bulk.into())]);
        let marks: Vec<_> = seen.iter().map(|one| one.uncorrectable.clone()).collect();
        let file = KeptPlace::File(folder.join("marks"));
        assert_eq!(marks, [KeptPlace::InMemory, KeptPlace::Nowhere, file]);
        assert_eq!(seen.iter().map(|one| one.standby).collect::<Vec<_>>(), [false, false, true]);
        let shown = call_method(manager, "bdev_get_bdevs", json!({"name": "ssd"}));
        let (pace, device) = (json!({"service_us": 20, "parallel": 2}), &shown["result"][0]);
        assert_eq!(device["driver_specific"]["ssd"], pace, "{shown}");
        assert_eq!(device["product_name"], "Emulated SSD");
        let ana = manager.server().view().0.subsystems[0].namespaces[2].ana;
        assert_eq!(ana, AnaState::Optimized, "no other process has the file");
    };
    check(&manager);
    let (state, calls) = (manager.model().state(), saved(&manager));
    drop(manager);
    // A restart reads the state file.
    let again = started(&folder);
    check(&again);
    assert_eq!((again.model().state(), saved(&again)), (state, calls.clone()));
    drop(again);
    // Another target makes the saved calls.
    std::fs::remove_file(folder.join("state.toml")).unwrap();
    let other = started(&folder);
    for call in &calls {
        let answer = call_method(&other, call["method"].as_str().unwrap(), call["params"].clone());
        assert!(answer["error"].is_null(), "{call}: {answer}");
    }
    check(&other);
    assert_eq!(saved(&other), calls);
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let manager = started(&folder);
    create(&manager, &folder);
    std::fs::write(folder.join("other.img"), [0; 4096]).unwrap();
    let spare = json!({"name": "spare", "num_blocks": 8, "block_size": 512});
    call_method(&manager, "bdev_malloc_create", spare);
    let shown = |more: Value| {
        let mut namespace = json!({"bdev_name": "spare"});
        namespace.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ("nvmf_subsystem_add_ns", json!({"nqn": NQN, "namespace": namespace}))
    };
    let ssd = |more: Value| {
        let mut params = json!({"name": "s", "num_blocks": 8, "block_size": 512});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ("roadtrain_ssd_create", params)
    };
    let file = folder.join("other.img");
    let read_only = json!({"name": "r", "filename": file, "readonly": true, "standby": true});
    for ((method, params), why) in [
        (shown(json!({"uncorrectable": folder.join("x")})), "leave the file out"),
        (shown(json!({"uncorrectable": "/nonexistent/x"})), "/nonexistent"),
        (shown(json!({"class": "first"})), "`latency`, `normal`, `bulk`"),
        (ssd(json!({"service_us": 1_000_001})), "0 to 1000000"),
        (ssd(json!({"parallel": 0})), "1 to 65535"),
        (ssd(json!({"block_size": 1000})), "512"),
        (ssd(json!({"num_blocks": 0})), "num_blocks 0"),
        (("bdev_aio_create", read_only), "standby is for writers"),
    ] {
        let refused = call_method(&manager, method, params.clone());
        let said = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(said.contains(why), "{method} {params}: {refused}");
    }
    assert_eq!(exports(&manager).len(), 3);
    let removed = call_method(&manager, "roadtrain_ssd_delete", json!({"name": "ssd"}));
    assert_eq!(removed["result"], true);
    assert_eq!(exports(&manager).len(), 2);
}

/// The target has opened the blocks, so it changes their size, and the device shows it.
#[test]
fn a_device_that_stands_by_is_resized() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let manager = started(&folder);
    create(&manager, &folder);
    let sizes = || {
        let shown = call_method(&manager, "bdev_get_bdevs", json!({"name": "a"}));
        let blocks = manager.server().view().0.subsystems[0].namespaces[2].blocks;
        (shown["result"][0]["num_blocks"].as_u64().unwrap(), blocks)
    };
    assert_eq!(sizes(), (2048, 2048));
    manager.resize_namespace((NQN, 3), Some(2 << 20)).unwrap();
    assert_eq!(sizes(), (4096, 4096));
    assert_eq!(
        exports(&manager),
        manager.model().exports()[0].namespaces,
        "a reload changes nothing"
    );
    let file = std::fs::OpenOptions::new().write(true).open(folder.join("disk.img")).unwrap();
    file.set_len(3 << 20).unwrap();
    assert_eq!(call_method(&manager, "bdev_aio_rescan", json!({"name": "a"}))["result"], true);
    assert_eq!(sizes(), (6144, 6144));
}

/// A state file of an earlier release has none of the settings.
#[test]
fn an_earlier_state_file_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "[[device]]\nname = \"n\"\nkind = \"null\"\nsize = 1048576\nlba = 512\nuuid = \"{}\"\n\
         [[subsystem]]\nnqn = \"{NQN}\"\nmax_namespaces = 32\nallow_any_host = true\n\
         [[subsystem.namespace]]\nnsid = 1\ndevice = \"n\"\n",
        "1".repeat(32)
    );
    std::fs::write(folder.path().join("state.toml"), text).unwrap();
    let manager = started(folder.path());
    let [export] = &exports(&manager)[..] else { panic!("one namespace") };
    assert_eq!((export.class, export.standby), (None, false));
    assert_eq!(export.uncorrectable, KeptPlace::InMemory);
}

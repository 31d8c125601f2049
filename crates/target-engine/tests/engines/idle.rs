//! Idle hosts and targets sleep. The test runs in its own process, because it counts wake-ups of all reactor threads.

use crate::harness::reconnects;
use roadtrain_host_engine::{HostClient, HostConfig};
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Export, Server, ServerConfig, Subsystem};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

const NQN: &str = "nqn.2024-01.test:disk";
const THIS_TEST: &str = "idle::idle_ends_wake_up_only_to_keep_alive";
/// Environment variable of the process in which this test runs alone.
const ALONE: &str = "ROADTRAIN_TEST_ALONE";

/// Returns the number of sleeps of each of our threads, and its CPU time in ns.
fn sleeps() -> BTreeMap<String, (u64, u64)> {
    let mut found = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let read = |file| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let (name, status) = (read("comm"), read("status"));
        if !name.starts_with("roadtrain") {
            continue;
        }
        let number = |text: Option<&str>| text.and_then(|t| t.trim().parse().ok()).unwrap_or(0);
        let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
        let key = format!("{} {}", name.trim(), task.file_name().display());
        found.insert(key, (number(line), number(read("schedstat").split(' ').next())));
    }
    found
}

/// Runs this test alone in a child process and prints its output.
fn run_alone() {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", THIS_TEST, "--nocapture"]).env(ALONE, "1");
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    println!("{text}");
    assert!(output.status.success() && text.contains("1 passed"), "the child process failed");
}

#[test]
fn idle_ends_wake_up_only_to_keep_alive() {
    if env::var_os(ALONE).is_none() {
        return run_alone();
    }
    let kind = StoreKind::Memory { size: 1 << 20 };
    let store = StoreSpec { kind, lba_bytes: 512, read_only: false };
    let exports = vec![Export::new(1, store)];
    let subsystem = Subsystem { namespaces: exports, ..Subsystem::new(NQN) };
    let mut config = ServerConfig::new(vec!["127.0.0.1:0".parse().unwrap()], vec![subsystem]);
    (config.cores, config.policy) = (vec![0; 2], PolicyConfig::i10());
    let server = Server::start(config).unwrap();
    let mut config = HostConfig::new(server.addresses()[0], NQN, "nqn.2024-01.test:host", [7; 16]);
    (config.lanes, config.cores, config.policy) = (4, vec![0; 2], PolicyConfig::i10());
    config.keep_alive = Duration::from_secs(2);
    let client = HostClient::connect(config).unwrap();
    for slba in 0..100 {
        client.write(1, slba, Buffer::alloc(4096), false).unwrap();
    }
    let connections = server.usage().connections;
    std::thread::sleep(Duration::from_millis(500));
    let before = sleeps();
    std::thread::sleep(Duration::from_secs(4));
    let after = sleeps();
    assert_eq!(server.usage().connections, connections, "Keep Alive keeps the controller");
    assert_eq!(reconnects(&client), 0);
    let expected = "two reactors at each end, a controller's thread, one that watches sizes";
    assert_eq!(before.len(), 6, "{expected}: {before:?}");
    let mut total = 0;
    for (name, (count, ns)) in &after {
        let (count_before, ns_before) = before[name];
        println!("{name}: {} sleeps, {} us of CPU", count - count_before, (ns - ns_before) / 1000);
        total += count - count_before;
    }
    // Four keep-alives: for each the control thread sleeps twice, and a reactor of the target once or twice.
    assert!(total <= 24, "{total} sleeps in four seconds of idleness");
}

//! Queries and changes a running target at its control socket.

use crate::harness::{NQN, PROGRAM, TargetProcess, eventually, json, request_line, stderr};
use serde_json::{Value, json as value};
use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const MIB: u64 = 1 << 20;

/// A target with a configuration file, and a separate directory for runtime files.
struct ConfiguredTarget {
    directory: tempfile::TempDir,
    target: TargetProcess,
}

impl ConfiguredTarget {
    fn new() -> ConfiguredTarget {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("serve.toml");
        fs::write(&file, config("")).unwrap();
        let arguments = ["--config", file.to_str().unwrap()];
        let target = TargetProcess::start_in(&directory.path().join("run"), &arguments);
        ConfiguredTarget { directory, target }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, line: &str) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(line.split_whitespace()).stdin(Stdio::null());
        command.env("ROADTRAIN_RUNTIME_DIR", self.path("run"));
        command.output().unwrap()
    }

    fn change(&self, line: &str) -> Value {
        let output = self.run(&format!("ctl {line} --json"));
        assert!(output.status.success(), "{line}: {}", stderr(&output));
        json(&output)
    }

    fn refusal(&self, line: &str) -> (Option<i32>, String) {
        let output = self.run(&format!("ctl {line}"));
        (output.status.code(), stderr(&output))
    }

    /// Sends one line to the socket, and returns the reply.
    fn request_line(&self, line: &str) -> Value {
        request_line(&self.path("run/targets/target0/control.sock"), line)
    }

    fn status(&self) -> Value {
        json(&self.run("status --json"))[0].clone()
    }
}

fn config(rest: &str) -> String {
    format!(
        "address = \"127.0.0.1\"\nport = 0\n[[subsystem]]\nnqn = \"{NQN}\"\n{rest}\
         [[subsystem.namespace]]\nnsid = 1\nkind = \"mem\"\nsize = \"8MiB\"\n"
    )
}

#[test]
fn namespaces_are_changed_one_by_one() {
    let served = ConfiguredTarget::new();
    let image = served.path("b.img");
    let added = served.change(&format!("namespace add file:{},size=1MiB", image.display()));
    let what = format!("namespace 2 of {NQN}: added");
    assert_eq!(added["changes"], value!([{"what": what, "nqn": NQN, "nsid": 2}]));
    let hint = added["hint"].as_str().unwrap();
    assert!(hint.contains("until the next reload") && hint.contains("serve.toml"), "{hint}");
    served.target.await_sizes(&[8 * MIB, MIB]);
    served.change("namespace resize --nsid 1 4MiB");
    served.change("namespace resize --nsid 2 2MiB");
    served.target.await_sizes(&[4 * MIB, 2 * MIB]);
    fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(3 * MIB).unwrap();
    served.change("namespace resize --nsid 2");
    served.target.await_sizes(&[4 * MIB, 3 * MIB]);
    served.change("namespace replace null:1MiB --nsid 2");
    served.target.await_sizes(&[4 * MIB, MIB]);
    served.change("namespace remove --nsid 2");
    served.target.await_sizes(&[4 * MIB]);
    assert!(image.exists(), "the file stays");

    for (line, code, why) in [
        (
            "namespace add mem:1MiB,nsid=1",
            2,
            "namespace 1 of nqn.2025-01.io.example:test exists already",
        ),
        ("namespace add file:/nonexistent/x", 1, "/nonexistent/x"),
        ("namespace remove --nsid 7", 2, "there is no namespace 7"),
        ("namespace resize --nsid 1 1GiB", 1, "restart with the new size"),
        ("namespace resize --nsid 1 1000", 1, "whole number"),
        ("namespace add mem:1MiB -n nqn.x:none", 2, "there is no subsystem nqn.x:none"),
        ("config reload --id other", 3, "no target other runs here"),
    ] {
        let (status, text) = served.refusal(line);
        assert_eq!(status, Some(code), "{line}: {text}");
        assert!(text.contains(why), "{line}: {text}");
    }
    assert_eq!(served.target.sizes(), [4 * MIB], "nothing has changed");
    assert_eq!(served.change("config reload")["changes"].as_array().unwrap().len(), 1);
    served.target.await_sizes(&[8 * MIB]);
}

#[test]
fn hosts_are_allowed_and_refused() {
    let served = ConfiguredTarget::new();
    let list = || served.target.run("list", &format!("-n {NQN} --host-nqn nqn.x:me --json"));
    assert!(list().status.success());
    let (code, text) = served.refusal("host allow -q nqn.x:me");
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("any host may use the subsystem"), "{text}");
    served.change("host deny --any");
    assert_eq!(list().status.code(), Some(3));
    served.change("host allow -q nqn.x:me");
    assert!(list().status.success());
    assert_eq!(served.status()["subsystems"][0]["allow_hosts"], value!(["nqn.x:me"]));
    served.change("host deny -q nqn.x:me");
    assert_eq!(list().status.code(), Some(3));
    served.change("host allow --any");
    assert!(list().status.success());
}

#[test]
fn a_reload_says_what_has_changed_and_what_it_cannot_change() {
    let served = ConfiguredTarget::new();
    let file = served.path("serve.toml");
    assert_eq!(served.change("config reload")["changes"], value!([]));
    let text = config("allow_hosts = [\"nqn.x:h\"]\n");
    fs::write(&file, format!("log_level = \"debug\"\n{text}")).unwrap();
    let done = served.change("config reload");
    assert_eq!(done["changes"].as_array().unwrap().len(), 2, "{done}");
    assert!(done["hint"].as_str().unwrap().contains("need a restart"), "{done}");
    fs::write(&file, "address = 3\n").unwrap();
    let (code, text) = served.refusal("config reload");
    assert_eq!(code, Some(2));
    assert!(text.contains("serve.toml") && text.contains("address"), "{text}");
}

/// A reload, by a request and by SIGHUP, opens new listeners of the file and closes removed ones; `list` and the
/// discovery log follow.
#[test]
fn listeners_follow_the_file() {
    let served = ConfiguredTarget::new();
    let first = format!("127.0.0.1:{}", served.target.port);
    let listeners = || json(&served.run("list --json"))[0]["listeners"].clone();
    let with = |address: &str| {
        let text = config("").replace("address = \"127.0.0.1\"", &format!("address = {address}"));
        fs::write(served.path("serve.toml"), text).unwrap();
    };
    with("[\"127.0.0.1\", \"127.0.0.2\"]");
    let opened = served.change("config reload")["changes"][0]["address"].clone();
    assert_eq!(listeners(), value!([first, opened]));
    let opened: SocketAddr = opened.as_str().unwrap().parse().unwrap();
    let log = format!("discover -a 127.0.0.2 -s {} --json", opened.port());
    let log = || -> BTreeSet<String> {
        let records = json(&served.run(&log))["records"].clone();
        let address = |record: &Value| {
            let part = |name: &str| record[name].as_str().unwrap().to_owned();
            format!("{}:{}", part("traddr"), part("trsvcid"))
        };
        records.as_array().unwrap().iter().map(address).collect()
    };
    assert_eq!(log(), BTreeSet::from([first.clone(), opened.to_string()]));
    with("\"127.0.0.2\"");
    served.target.signal(libc::SIGHUP);
    eventually("the first listener is closed", || listeners() == value!([opened.to_string()]));
    assert_eq!(log(), BTreeSet::from([opened.to_string()]));
    // Its reactor closes it a little later.
    eventually("nothing listens", || TcpStream::connect(&first).is_err());
}

/// Each operation has a command, and its effect is visible; each refusal has a reason and a place.
#[test]
fn every_operation_has_a_command() {
    const OTHER: &str = "nqn.2025-01.io.example:other";
    let served = ConfiguredTarget::new();
    let free = TcpListener::bind("127.0.0.4:0").unwrap();
    let port = free.local_addr().unwrap().port();
    let listen = format!("listener add -a 127.0.0.4 -s {port}");
    let (code, text) = served.refusal(&listen);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("cannot open listener 127.0.0.4:{port}")), "{text}");
    drop(free);
    let listens = format!("listener 127.0.0.4:{port}: added");
    assert_eq!(served.change(&listen)["changes"][0]["what"], value!(listens));
    let other = |command: &str| {
        let host = "--host-nqn nqn.x:h --json";
        served.run(&format!("{command} -a 127.0.0.4 -s {port} -n {OTHER} {host}"))
    };
    let numbers = || {
        let controller = json(&other("identify"))["controller"].clone();
        (controller["serial"].clone(), controller["model"].clone())
    };
    let image = served.path("c.img");
    let spec = format!("file:{},size=1MiB", image.display());
    served.change(&format!(
        "subsystem add -n {OTHER} --serial S1 --allow-host nqn.x:h --namespace {spec} --namespace mem:4k"
    ));
    assert_eq!(json(&other("list")).as_array().unwrap().len(), 2);
    assert_eq!(numbers(), (value!("S1"), value!("Roadtrain")));
    served.change(&format!("subsystem set -n {OTHER} --model M2"));
    assert_eq!(numbers(), (value!("S1"), value!("M2")));
    served.change(&format!("namespace add mem:8k -n {OTHER}"));
    served.change(&format!("namespace resize --nsid 2 8k -n {OTHER}"));
    served.change(&format!("namespace replace null:1MiB --nsid 3 -n {OTHER}"));
    served.change(&format!("namespace remove --nsid 1 -n {OTHER}"));
    let namespaces = served.status()["subsystems"][1]["namespaces"].clone();
    let stores = namespaces.as_array().unwrap().iter().map(|one| one["store"].as_str().unwrap());
    assert_eq!(stores.collect::<Vec<_>>(), ["mem", "null"]);
    served.change(&format!("host allow -q nqn.x:i -n {OTHER}"));
    served.change(&format!("host deny -q nqn.x:h -n {OTHER}"));
    assert_eq!(other("list").status.code(), Some(3));
    served.change(&format!("host allow --any -n {OTHER}"));
    served.change(&format!("host deny --any -n {OTHER}"));
    // Named hosts are kept while any host may connect.
    assert_eq!(served.status()["subsystems"][1]["allow_hosts"], value!(["nqn.x:i"]));
    assert_eq!(served.status()["subsystems"][1]["owner"], "state");
    served.change(&format!("host deny -q nqn.x:i -n {OTHER}"));

    for (line, why) in [
        ("namespace resize --nsid 1 4k", "which subsystem?"),
        ("subsystem remove", "--nqn"),
        (&format!("subsystem add -n {OTHER}"), "exists already"),
        ("subsystem add -n nqn.x:z --serial 123456789012345678901", "serial"),
        ("subsystem set -n nqn.x:none --serial S", "there is no subsystem nqn.x:none"),
        (&listen, "exists already"),
        ("listener remove -a 127.0.0.4 -s 1", "there is no listener 127.0.0.4:1"),
        ("listener add -a ether:eth0", "interfaces need a restart"),
    ] {
        let (code, text) = served.refusal(line);
        assert_eq!(code, Some(2), "{line}: {text}");
        assert!(text.contains(why), "{line}: {text}");
    }
    served.change(&format!("subsystem remove -n {OTHER}"));
    assert_eq!(other("list").status.code(), Some(3));
    assert!(image.exists(), "files stay");
    served.change(&format!("listener remove -a 127.0.0.4 -s {port}"));
    served.change(&format!("listener remove -a 127.0.0.1 -s {}", served.target.port));
    assert_eq!(served.status()["listeners"], value!([]));
    assert_eq!(
        served.change("config reload")["changes"].as_array().unwrap().len(),
        1,
        "a new port"
    );
}

/// The status counts a target's requests and their data.
#[test]
fn status_counts_requests_and_their_data() {
    let served = ConfiguredTarget::new();
    let port = served.target.port;
    let before = served.status();
    assert_eq!((&before["requests"], &before["data_bytes"]), (&value!(0), &value!(0)));
    let load =
        format!("bench -a 127.0.0.1 -s {port} -n {NQN} --rw randread --bs 4k --ios 1000 --json");
    let ran = served.run(&load);
    assert!(ran.status.success(), "{}", stderr(&ran));
    let after = served.status();
    let (requests, data_bytes) =
        (after["requests"].as_u64().unwrap(), after["data_bytes"].as_u64().unwrap());
    assert!(requests >= 1000, "{after}");
    assert!(data_bytes >= 1000 * 4096, "{after}");
}

#[test]
fn status_and_list_show_what_is_served() {
    let served = ConfiguredTarget::new();
    let listed = json(&served.run("list --json"));
    let listener = format!("127.0.0.1:{}", served.target.port);
    assert_eq!(listed[0]["listeners"], value!([listener]));
    assert_eq!((&listed[0]["kind"], &listed[0]["id"]), (&value!("target"), &value!("target0")));
    let table = String::from_utf8(served.run("list").stdout).unwrap();
    assert!(table.starts_with("target"), "{table}");
    let status = served.status();
    assert_eq!(
        (&status["state"], &status["pid"]),
        (&value!("serving"), &value!(served.target.child.id()))
    );
    let namespace = &status["subsystems"][0]["namespaces"][0];
    assert_eq!(
        (&namespace["capacity_bytes"], &namespace["store"]),
        (&value!(8 * MIB), &value!("mem"))
    );
    let text = served.run("status target0");
    assert!(text.status.success());
    let text = String::from_utf8(text.stdout).unwrap();
    for part in ["target0  serve  serving", &listener, NQN, "for any host", "8 MiB"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(served.run("status nothing").status.code(), Some(1));
}

#[test]
fn the_socket_is_private_and_takes_nothing_for_granted() {
    let served = ConfiguredTarget::new();
    let mode = |path: &str| fs::metadata(served.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("run"), mode("run/targets/target0")), (0o700, 0o700));
    assert_eq!(mode("run/targets/target0/control.sock"), 0o600);
    let request = |method: &str, params: &str| {
        served.request_line(&format!("{{\"id\":7,\"method\":\"{method}\",\"params\":{params}}}"))
    };
    for line in ["stats", "{}", "{\"id\":1,\"method\":\"roadtrain_eat\"}"] {
        let reply = served.request_line(line);
        assert!(reply["error"]["code"].as_i64() < Some(-32599), "{line}: {reply}");
    }
    let format = "{\"operations\":[{\"operation\":\"format\"}]}";
    for (method, params) in [("roadtrain_stop", "{}"), ("roadtrain_apply", format)] {
        let reply = request(method, params);
        assert!(reply["error"]["code"].as_i64() < Some(-32599), "{method}: {reply}");
        assert_eq!((&reply["jsonrpc"], &reply["id"]), (&value!("2.0"), &value!(7)), "{method}");
    }
    // The first operation could be done: none is.
    let operations = "{\"operation\":\"resize_namespace\",\"nsid\":1,\"size\":\"4MiB\"},\
        {\"operation\":\"remove_namespace\",\"nsid\":5}";
    let reply = request("roadtrain_apply", &format!("{{\"operations\":[{operations}]}}"));
    let error = &reply["error"]["data"];
    assert_eq!(
        (&error["why"], &error["place"]),
        (&value!("unknown"), &value!(format!("namespace 5 of {NQN}")))
    );
    assert_eq!(served.target.sizes(), [8 * MIB]);
    let reply = request("roadtrain_snapshot", "{}");
    assert!(reply["result"]["reactors"][0]["batching"]["requests"].is_u64(), "{reply}");
    // SPDK's methods are at the same socket.
    assert!(request("nvmf_get_subsystems", "{}")["result"].is_array());
}

#[test]
fn a_target_removes_its_entry_when_it_ends() {
    let served = ConfiguredTarget::new();
    let folder = served.path("run/targets/target0");
    assert!(folder.exists());
    served.target.signal(libc::SIGTERM);
    let (ConfiguredTarget { directory, target }, folder) = (served, folder);
    assert_eq!(target.end().0, Some(0));
    assert!(!folder.exists());
    drop(directory);
}

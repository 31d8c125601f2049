//! Checks the output of each command with --json, and what the control socket and the metrics address return, against
//! docs/reference/json-output.schema.json.

use crate::harness::{NQN, PROGRAM, TargetProcess, eventually, request_line, stderr};
use crate::json_schema::Schema;
use clap::{Command as ClapCommand, CommandFactory};
use roadtrain_cli::args::CommandLine;
use roadtrain_reactor::metrics::{
    FrameCount, GatewaySample, LinkSample, MetricsSnapshot, ReasonCount, TransportSample,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Subsystem of the state.
const OTHER: &str = "nqn.2025-01.io.example:other";

/// Commands without an output of their own in the schema, with the reason.
const WITHOUT: [(&str, &str); 9] = [
    ("serve", "prints one line, ready, in either case"),
    ("resv register", "prints nothing"),
    ("resv acquire", "prints nothing"),
    ("resv release", "prints nothing"),
    ("completions", "prints a script"),
    ("man", "writes pages"),
    ("ctl trace", "prints a trace in its own format"),
    ("ctl rpc", "prints the result of the method: docs/reference/rpc.md"),
    ("ctl gateway remove", "an output of ctl --group"),
];

/// Keys that this test does not see, with their prerequisite.
const UNSEEN: [(&str, &[&str]); 9] = [
    (
        "Ethernet",
        &["interface", "up", "sealed", "rtt_us", "sent_frames", "received_frames", "lost_frames"],
    ),
    (
        "a group of gateways",
        &[
            "group",
            "pool",
            "config_version",
            "gateways",
            "slot",
            "refused",
            "serves",
            "spec",
            "image",
            "served_by",
            "preferred",
            "has_dhchap_key",
            "has_dhchap_ctrl_key",
            "has_tls_key",
            "applied",
            "refusals",
        ],
    ),
    ("Multipath TCP", &["received_bytes", "sent_bytes"]),
    ("a Ceph cluster", &["snapshots", "created_unix_seconds", "protected"]),
    ("snapshots with differences", &["offset"]),
    ("a copy that takes long", &["copied_bytes", "total_bytes"]),
    ("multicast DNS", &["addresses"]),
    ("saved calls", &["calls"]),
    // Present only sometimes.
    ("a request that both ends have recorded", &["other_end"]),
];

/// Subsystem of the file that requires proofs.
const SECURE: &str = "nqn.2025-01.io.example:secure";
/// Methods of the control socket that return documents without changing anything.
const METHODS: [&str; 5] = ["status", "snapshot", "recorded", "config", "config_diff"];

/// A target with all objects that can be shown, and a directory for all files.
struct SchemaTestMachine {
    directory: tempfile::TempDir,
    target: TargetProcess,
    schema: Schema,
    /// Port of a listener that only the subsystem of the state has.
    other_port: u16,
    /// Ports of the metrics addresses of the target and of an attachment.
    metrics_ports: [u16; 2],
}

/// Returns a port at which no process listens.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.4:0").unwrap().local_addr().unwrap().port()
}

impl SchemaTestMachine {
    fn new() -> SchemaTestMachine {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        for (name, key) in [("host.key", "dhchap"), ("ctrl.key", "dhchap"), ("host.tls", "tls")] {
            let made = Command::new(PROGRAM).args(["keys", key]).output().unwrap();
            fs::write(path(name), made.stdout).unwrap();
            fs::set_permissions(path(name), fs::Permissions::from_mode(0o600)).unwrap();
        }
        let config = format!(
            "address = \"127.0.0.1\"\nport = 0\nslow_over = \"1ms\"\n[[subsystem]]\nnqn = \"{NQN}\"\n\
             [[subsystem.namespace]]\nnsid = 1\nkind = \"ssd\"\nsize = \"8MiB\"\nservice_us = 3000\n\
             [subsystem.namespace.rates]\niops = 100000\nbandwidth = \"1GiB\"\nread_bandwidth = \"1GiB\"\n\
             write_bandwidth = \"1GiB\"\nburst = 0.01\n\
             [[subsystem]]\nnqn = \"{SECURE}\"\nrequire_auth = true\nrequire_tls = true\n\
             [tls]\nmode = \"allowed\"\nkeys = {{ \"nqn.x:t\" = \"{}\" }}\n\
             [[host]]\nnqn = \"nqn.x:t\"\ndhchap_key = \"{}\"\n",
            path("host.tls"),
            path("host.key"),
        );
        fs::write(path("serve.toml"), config).unwrap();
        let metrics_ports = [free_port(), free_port()];
        let (vols, state, run) =
            (format!("vols={},size=64MiB", path("vols")), path("state"), path("run"));
        let arguments = [
            "--config",
            &path("serve.toml"),
            "--lvstore",
            &vols,
            "--state",
            &state,
            "--rpc",
            &path("rpc"),
            "--metrics",
            &format!("127.0.0.4:{}", metrics_ports[0]),
        ];
        let target = TargetProcess::start_in(run.as_ref(), &arguments);
        let other_port = free_port();
        SchemaTestMachine { directory, target, schema: Schema::read(), other_port, metrics_ports }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, line: &str) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(line.split_whitespace()).arg("--json").stdin(Stdio::null());
        command.env("ROADTRAIN_RUNTIME_DIR", self.path("run")).current_dir(self.directory.path());
        command.output().unwrap()
    }

    /// Runs a command with any exit status, and checks its output against the schema.
    fn check(&mut self, output: &str, line: &str) -> Value {
        let printed = self.run(line);
        let value = serde_json::from_slice(&printed.stdout);
        let value = value.unwrap_or_else(|e| panic!("{line}: {e}: {}", stderr(&printed)));
        let fits = self.schema.check(output, &value);
        assert_eq!(fits, Ok(()), "{line}: {}", serde_json::to_string_pretty(&value).unwrap());
        value
    }

    /// Calls a method of a control socket, and checks its result.
    fn check_call(&mut self, socket: &str, method: &str) -> Value {
        let name = format!("roadtrain_{method}");
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": name});
        let reply = request_line(&self.path(socket), &request.to_string());
        let value = reply["result"].clone();
        assert_eq!(self.schema.check(&name, &value), Ok(()), "{socket}: {reply}");
        value
    }

    /// Gets the snapshot of a metrics address, and checks it.
    fn check_page(&mut self, port: u16) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.4", port)).unwrap();
        let head = "GET /snapshot.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
        let value = serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(self.schema.check("roadtrain_snapshot", &value), Ok(()), "{reply}");
        value
    }

    /// Checks several commands with one output.
    fn check_all(&mut self, output: &str, lines: &[&str]) {
        for line in lines {
            self.check(output, line);
        }
    }

    /// Returns the options of a host that connects.
    fn at(&self) -> String {
        format!("-a 127.0.0.1 -s {} -n {NQN}", self.target.port)
    }
}

#[test]
fn outputs_are_as_the_schema_says() {
    let mut machine = SchemaTestMachine::new();
    hosts(&mut machine);
    changes(&mut machine);
    lists(&mut machine);
    loads(&mut machine);
    served(&mut machine);
    ends(machine);
}

/// Runs commands of a host.
fn hosts(machine: &mut SchemaTestMachine) {
    let at = machine.at();
    let socket = machine.path("a.sock").display().to_string();
    machine.check(
        "attach",
        &format!(
            "attach {at} --as nbd:unix:{socket} --id disk --slow-over 1ms --background \
             --dirty-bitmap b --metrics 127.0.0.4:{}",
            machine.metrics_ports[1]
        ),
    );
    machine.check("ctl bitmap list", "ctl --id disk bitmap list");
    machine.check("ctl bitmap", "ctl --id disk bitmap start b");
    machine.check("list", "list");
    machine.check("list -a", &format!("list {at}"));
    machine.check("discover", &format!("discover -a 127.0.0.1 -s {}", machine.target.port));
    machine.check("identify", &format!("identify {at}"));
    assert!(machine.run(&format!("resv register {at} --nsid 1 --nrkey 5")).status.success());
    machine.check("resv report", &format!("resv report {at} --nsid 1"));
    machine.check("hostnqn", "hostnqn");
    machine.check("doctor", "doctor");
    machine.check_all(
        "doctor --for",
        &["doctor --for esxi", "doctor --for windows --config serve.toml", "doctor --for spdk"],
    );
    machine.check("keys tls", "keys tls");
    machine.check("keys dhchap", "keys dhchap");
    let names = format!("--hostnqn nqn.x:h --nqn {NQN} --reveal");
    machine.check("keys show", &format!("keys show host.tls {names}"));
    machine.check("keys show", &format!("keys show host.key {names}"));
}

/// Changes a target.
fn changes(machine: &mut SchemaTestMachine) {
    let namespace = format!("-n {OTHER} --nsid 2");
    machine.check_all(
        "ctl subsystem",
        &[
            &format!("ctl subsystem add -n {OTHER} --serial S --namespace mem:4MiB"),
            &format!("ctl subsystem set -n {OTHER} --model M"),
        ],
    );
    machine.check_all(
        "ctl namespace",
        &[
            &format!("ctl namespace add {namespace} null:1MiB"),
            &format!("ctl namespace limit {namespace} --iops 1000 --burst 1ms"),
            &format!("ctl namespace remove {namespace}"),
        ],
    );
    machine.check_all("ctl key", &["ctl key add host ./host.key", "ctl key add ctrl ./ctrl.key"]);
    machine.check_all(
        "ctl host",
        &[
            &format!(
                "ctl host allow -n {OTHER} -q nqn.x:h --dhchap-key host --dhchap-ctrl-key ctrl"
            ),
            &format!("ctl host allow -n {OTHER} -q nqn.x:i"),
            &format!("ctl host limit -n {OTHER} -q nqn.x:i --iops 10"),
        ],
    );
    machine.check_all(
        "ctl volume",
        &["ctl volume create vols/d 8MiB --thin", "ctl volume snapshot vols/d s"],
    );
    let volume = format!("ctl namespace add {namespace} device:vols/d");
    machine.check("ctl namespace", &volume);
    machine.check("ctl snapshot diff", &format!("ctl snapshot diff {namespace} s"));
    machine.check("ctl namespace", &format!("ctl namespace remove {namespace}"));
    machine.check_all("ctl device", &["ctl device add m mem:1MiB", "ctl device add n mem:64MiB"]);
    machine.check_all("ctl store", &["ctl store create other n", "ctl store delete other"]);
    machine.check_all("ctl referral", &["ctl referral add -a 192.0.2.9"]);
    machine.check("ctl cluster", "ctl cluster add ceph --ceph-id tenant");
    let added = machine.check("ctl listener", "ctl listener add -a 127.0.0.3 -s 0");
    assert!(added["changes"][0]["address"].is_string(), "{added}");
    let own = format!("ctl listener add -a 127.0.0.4 -s {} -n {OTHER}", machine.other_port);
    machine.check("ctl listener", &own);
    machine.check("ctl config save", "ctl config save -o saved.toml");
    machine.check("ctl config reload", "ctl config reload");
    fs::write(
        machine.path("more.toml"),
        "address = \"::1\"\n[[subsystem]]\nnqn = \"nqn.x:more\"\nallow_hosts = [\"nqn.x:h\"]\n",
    )
    .unwrap();
    machine.check("ctl config load", "ctl config load more.toml");
}

/// Lists a target's objects.
fn lists(machine: &mut SchemaTestMachine) {
    for noun in [
        "subsystem",
        "namespace",
        "listener",
        "host",
        "connection",
        "volume",
        "store",
        "device",
        "key",
        "cluster",
        "referral",
    ] {
        let line = format!("ctl {noun} list");
        let rows = machine.check(&line, &line);
        assert!(!rows.as_array().unwrap().is_empty(), "{line} shows nothing");
    }
    machine.check("ctl config show", "ctl config show");
    machine.check("ctl config diff", "ctl config diff");
}

/// Measures requests.
fn loads(machine: &mut SchemaTestMachine) {
    let at = machine.at();
    machine.check("bench", &format!("bench {at} --rw randrw --ios 500 --depth 4"));
    let stream = "--stream rw=randread,bs=8k,depth=2 --step depth=1:8,period-ms=200";
    machine.check("bench", &format!("bench --namespace mem:8MiB {stream} --seconds 0.4"));
    machine.check("top --once", "top --once --interval 0.1");
    eventually("a slow request is shown", || {
        let slow = serde_json::from_slice::<Value>(&machine.run("slow").stdout).unwrap();
        slow["recorded_requests"].as_array().is_some_and(|requests| !requests.is_empty())
    });
    machine.check("slow", "slow --sampled --count 1000");
    let socket = machine.path("b.sock").display().to_string();
    let keys = "-q nqn.x:h --dhchap-secret ./host.key --dhchap-ctrl-secret ./ctrl.key";
    let line = format!(
        "attach -a 127.0.0.4 -s {} -n {OTHER} {keys} --as nbd:unix:{socket} --id secret --background",
        machine.other_port
    );
    machine.check("attach", &line);
    let status = machine.check("status", "status");
    let kinds = [0, 1, 2].map(|row| status[row]["kind"].as_str().unwrap());
    assert_eq!(kinds, ["attachment", "attachment", "target"]);
}

/// Gets documents over the control sockets and the metrics addresses.
fn served(machine: &mut SchemaTestMachine) {
    fail_some_commands(machine);
    let target = "run/targets/target0/control.sock";
    for method in METHODS {
        machine.check_call(target, method);
    }
    for method in &METHODS[..3] {
        machine.check_call("run/disk/control.sock", method);
    }
    let [target_port, attachment_port] = machine.metrics_ports;
    machine.check_page(attachment_port);
    let snapshot = machine.check_page(target_port);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&snapshot), keys(&machine.check_call(target, "snapshot")));
    for list in [
        "/unused_devices",
        "/namespaces/0/statuses",
        "/transports/protocol_errors",
        "/transports/connection_counts",
        "/reactors/0/latencies",
    ] {
        let items = snapshot.pointer(list).and_then(Value::as_array);
        assert!(items.is_some_and(|items| !items.is_empty()), "{list}: {snapshot}");
    }
    let has = |objects: &str, member: &str| {
        let is_there = |one: &Value| match &one[member] {
            Value::Array(items) => !items.is_empty(),
            other => !other.is_null(),
        };
        assert!(snapshot[objects].as_array().unwrap().iter().any(is_there), "{member}: {snapshot}");
    };
    has("hosts", "losses");
    has("hosts", "refused_connects");
    has("lanes", "auth");
    has("subsystems", "allow_hosts");
}

/// Makes hosts fail: one is not allowed, one breaks the protocol, one writes despite a reservation.
fn fail_some_commands(machine: &mut SchemaTestMachine) {
    let at = machine.at();
    let to = format!("-a 127.0.0.1 -s {} -n nqn.x:more", machine.target.port);
    let stranger = format!("identify {to} -q nqn.x:stranger");
    assert!(!machine.run(&stranger).status.success());
    let mut stream = TcpStream::connect(("127.0.0.1", machine.target.port)).unwrap();
    stream.write_all(&[0xff; 128]).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
    let reserve = format!("resv acquire {at} --nsid 1 --crkey 5 --rtype 1");
    let reserved = machine.run(&reserve);
    assert!(reserved.status.success(), "{}", stderr(&reserved));
    let bench = format!("bench {at} -q nqn.x:other --rw write --ios 1");
    assert!(!machine.run(&bench).status.success());
}

/// Parts of a snapshot that need Ethernet, or a group of gateways.
#[test]
fn parts_that_are_seldom_there_fit_the_schema() {
    let frames = FrameCount { interface: "eth1".into(), ..FrameCount::default() };
    let dropped = ReasonCount { reason: "token".into(), count: 1 };
    let snapshot = MetricsSnapshot {
        gateway: Some(GatewaySample::default()),
        links: vec![LinkSample { node: Some(1), ..LinkSample::default() }],
        transports: TransportSample {
            frames: vec![frames],
            frames_dropped: vec![dropped],
            ..TransportSample::default()
        },
        ..MetricsSnapshot::default()
    };
    let mut schema = Schema::read();
    assert_eq!(schema.check("roadtrain_snapshot", &json!(snapshot)), Ok(()));
    assert!(schema.seen.contains("received_frames"));
}

/// Ends an attachment, and kills its target.
fn ends(mut machine: SchemaTestMachine) {
    let detached = machine.check("detach", "detach disk secret");
    assert_eq!(detached[0]["how"], "clean", "{detached}");
    machine.target.signal(libc::SIGKILL);
    eventually("the target is gone", || {
        let status = serde_json::from_slice::<Value>(&machine.run("status").stdout).unwrap();
        status[0]["state"] == "gone"
    });
    machine.check("status", "status");
    machine.check("list", "list");
    machine.check("detach", "detach --all");
    let unseen: BTreeSet<&str> = UNSEEN.iter().flat_map(|(_, keys)| keys.iter().copied()).collect();
    let seen = &machine.schema.seen;
    let missing = machine.schema.keys().into_keys().filter(|key| !seen.contains(*key));
    let missing: Vec<&str> = missing.filter(|key| !unseen.contains(key)).collect();
    assert!(missing.is_empty(), "no command has printed {missing:?}");
    let mut stale = unseen.iter().filter(|key| **key != "other_end" && seen.contains(**key));
    assert_eq!(stale.next(), None, "it was printed");
}

/// Returns the commands at the ends of the tree, as words.
fn commands() -> Vec<String> {
    fn collect(command: &ClapCommand, words: &str, all: &mut Vec<String>) {
        let mut subcommands =
            command.get_subcommands().filter(|sub| sub.get_name() != "help").peekable();
        if subcommands.peek().is_none() {
            all.push(words.to_owned());
        }
        for sub in subcommands {
            collect(sub, format!("{words} {}", sub.get_name()).trim(), all);
        }
    }
    let mut all = Vec::new();
    collect(&CommandLine::command(), "", &mut all);
    assert!(all.len() > 60, "only {} commands were found", all.len());
    all
}

#[test]
fn every_command_has_an_output_in_the_schema() {
    let schema = Schema::read();
    let is_method = |output: &&str| output.starts_with("roadtrain_");
    let (methods, outputs): (BTreeSet<&str>, BTreeSet<&str>) =
        schema.outputs().partition(is_method);
    let known = METHODS.map(|method| format!("roadtrain_{method}"));
    assert_eq!(methods, known.iter().map(String::as_str).collect());
    let without = |words: &str| WITHOUT.iter().any(|(command, _)| *command == words);
    let all = commands();
    for words in &all {
        // Changes of an object share one output.
        let noun = words.rsplit_once(' ').map_or("", |(noun, _)| noun);
        let is_list = words.ends_with(" list") && !words.contains("snapshot");
        let has = |output: &str| {
            let own = outputs.contains(output);
            own || outputs
                .iter()
                .any(|one| one.strip_prefix(output).is_some_and(|rest| rest.starts_with(" -")))
        };
        let group = words.replace("ctl ", "ctl --group ");
        let is_known = has(words) || (!is_list && noun.contains(' ') && has(noun)) || has(&group);
        assert!(
            is_known != without(words),
            "{words}: no output in the schema, or one and a reason for none"
        );
    }
    for (words, _) in WITHOUT {
        assert!(all.iter().any(|one| one == words), "{words} is no command");
    }
    for output in outputs {
        let words = output.split(" -").next().unwrap();
        assert!(
            all.iter().any(|one| one == words || one.starts_with(words)),
            "{output} is of no command"
        );
    }
}

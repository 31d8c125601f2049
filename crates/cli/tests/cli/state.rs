//! Subsystems of the state have the stores and options of `serve --namespace`; they last, and are saved.

use crate::harness::{NQN, PROGRAM, TargetProcess, eventually, json, stderr};
use roadtrain_host_engine::{HostClient, HostConfig};
use roadtrain_system::buffer::Buffer;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A target with a state file, in a directory of its own.
struct StateTarget {
    run: PathBuf,
    target: TargetProcess,
}

impl StateTarget {
    /// Starts the target `name` in `folder`, perhaps again.
    fn start(folder: &Path, name: &str, options: &[&str]) -> StateTarget {
        let (run, state) = (folder.join(name), folder.join(format!("{name}.toml")));
        let arguments = ["-a", "127.0.0.1", "-s", "0", "--state", state.to_str().unwrap()];
        let target = TargetProcess::start_in(&run, &[&arguments, options].concat());
        StateTarget { run, target }
    }

    fn run(&self, line: &str) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(line.split_whitespace()).stdin(Stdio::null());
        command.env("ROADTRAIN_RUNTIME_DIR", &self.run).output().unwrap()
    }

    fn ctl(&self, line: &str) -> Value {
        let output = self.run(&format!("ctl {line} --json"));
        assert!(output.status.success(), "{line}: {}", stderr(&output));
        json(&output)
    }

    fn refusal(&self, line: &str) -> String {
        let output = self.run(&format!("ctl {line}"));
        assert!(!output.status.success(), "{line}");
        stderr(&output)
    }

    /// Returns the subsystem in the configuration that `config save` writes.
    fn saved(&self) -> toml::Table {
        let text = self.ctl("config save")["toml"].as_str().unwrap().parse::<toml::Table>();
        text.unwrap()["subsystem"][0].as_table().unwrap().clone()
    }

    /// Returns the values of a key of all saved namespaces.
    fn saved_values(&self, key: &str) -> Vec<Option<String>> {
        let all = self.saved()["namespace"].as_array().unwrap().clone();
        let value =
            |one: &toml::Value| one.get(key).map(|value| value.to_string().replace('"', ""));
        all.iter().map(value).collect()
    }

    /// Returns NSID, UUID, NGUID and size of its namespaces, as hosts see them.
    fn seen(&self) -> Value {
        json(&self.target.run("identify", &format!("-n {NQN} --json")))["namespaces"].clone()
    }

    fn ana(&self) -> String {
        let status = json(&self.run("status --json"));
        status[0]["subsystems"][0]["namespaces"][0]["ana"].as_str().unwrap_or_default().to_owned()
    }

    fn client(&self) -> HostClient {
        let address: std::net::SocketAddr = ([127, 0, 0, 1], self.target.port).into();
        let mut config = HostConfig::new(address, NQN, "nqn.2025-01.io.example:host", [7; 16]);
        config.controller_loss_timeout = Some(Duration::ZERO);
        HostClient::connect(config).unwrap()
    }
}

#[test]
fn every_store_and_option_of_serve_lasts_and_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    let mut served = StateTarget::start(&folder, "one", &[]);
    let file =
        format!("file:{},size=1MiB,class=bulk,standby,uncorrectable={}", at("a"), at("marks"));
    served.ctl(&format!(
        "subsystem add -n {NQN} --namespace ssd:1MiB,service-us=7,parallel=3 --namespace {file}"
    ));
    served.ctl("namespace add mem:1MiB,class=latency,uncorrectable=none");
    served.ctl("device add fast ssd:2MiB");
    served.ctl("namespace add device:fast,class=normal");
    served.ctl(&format!("namespace add file:{},size=1MiB", at("b")));
    let none = None::<&str>;
    let check = |served: &StateTarget| {
        let is = |key: &str, values: [Option<&str>; 5]| {
            let found = served.saved_values(key);
            assert_eq!(found.iter().map(Option::as_deref).collect::<Vec<_>>(), values, "{key}");
        };
        is("kind", [Some("ssd"), Some("file"), Some("mem"), Some("ssd"), Some("file")]);
        is("service_us", [Some("7"), none, none, Some("100"), none]);
        is("parallel", [Some("3"), none, none, Some("64"), none]);
        is("class", [none, Some("bulk"), Some("latency"), Some("normal"), none]);
        is("standby", [none, Some("true"), none, none, none]);
        is("uncorrectable", [none, Some(&at("marks")), Some("none"), none, none]);
    };
    check(&served);
    let client = served.client();
    let mark = |nsid| client.write_uncorrectable(nsid, 1, 1).is_ok();
    assert_eq!([1, 2, 3, 4, 5].map(mark), [true, true, false, true, true], "where marks are kept");
    let unreadable = |client: &HostClient, nsid| client.read(nsid, 1, Buffer::alloc(512)).is_err();
    assert!(unreadable(&client, 1) && unreadable(&client, 2));
    let (seen, marks) = (served.seen(), fs::read(folder.join("marks")).unwrap());
    assert!(!marks.is_empty());
    drop(client);
    served.target.child.kill().unwrap();
    served.target.child.wait().unwrap();
    // After a restart it is the same, but that memory is empty.
    let again = StateTarget::start(&folder, "one", &[]);
    check(&again);
    assert_eq!(again.seen(), seen);
    let client = again.client();
    let found = [1, 2, 3, 4, 5].map(|nsid| unreadable(&client, nsid));
    assert_eq!(found, [false, true, false, false, true]);
    drop(client);
    // The saved file is served with the same namespaces.
    let file = at("saved.toml");
    again.ctl(&format!("config save -o {file}"));
    drop(again);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(&at("one.toml"), &at("two.toml"))).unwrap();
    let run = folder.join("two");
    let target = TargetProcess::start_in(&run, &["--config", &file]);
    let copy = StateTarget { run, target };
    check(&copy);
    let ids = |seen: &Value| -> Vec<Value> {
        let stored = seen
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| [2, 5].contains(&one["nsid"].as_u64().unwrap()));
        stored.map(|one| one["uuid"].clone()).collect()
    };
    assert_eq!(ids(&copy.seen()), ids(&seen));
    assert!(unreadable(&copy.client(), 2) && unreadable(&copy.client(), 5));
}

/// Two targets have one file by `ctl`: hosts see one namespace, and the second serves when the first has ended.
#[test]
fn namespaces_of_two_states_stand_by() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let spec = format!("file:{},size=1MiB,standby", folder.join("disk.img").display());
    let start = |name, cntlids| StateTarget::start(&folder, name, &["--cntlid-range", cntlids]);
    let (mut one, two) = (start("one", "1-1000"), start("two", "1001-2000"));
    for target in [&one, &two] {
        target.ctl(&format!("subsystem add -n {NQN} --serial S1 --namespace {spec}"));
    }
    assert_eq!([one.ana(), two.ana()], ["optimized", "inaccessible"]);
    let id = |of: &StateTarget| ["uuid", "nguid"].map(|key| of.seen()[0][key].clone());
    assert_eq!(id(&one), id(&two));
    assert!(id(&one).iter().all(Value::is_string), "{:?}", id(&one));
    // The one that has the file gives it another size.
    one.ctl("namespace resize --nsid 1 2MiB");
    two.target.await_sizes(&[2 << 20]);
    one.target.child.kill().unwrap();
    one.target.child.wait().unwrap();
    eventually("the second serves", || two.ana() == "optimized");
    // The first stands by when it is started again.
    let again = start("one", "1-1000");
    assert_eq!([again.ana(), two.ana()], ["inaccessible", "optimized"]);
    assert_eq!(id(&again), id(&two));
}

/// `replace` with the same file changes options; hosts keep the namespace and its blocks.
#[test]
fn options_are_replaced_without_other_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let served = StateTarget::start(&folder, "one", &[]);
    let file = format!("file:{}", folder.join("disk.img").display());
    served.ctl(&format!("subsystem add -n {NQN} --namespace {file},size=1MiB"));
    let (seen, client) = (served.seen(), served.client());
    let mut block = Buffer::alloc(512);
    block.fill(7);
    client.write(1, 0, block, false).unwrap();
    served.ctl(&format!("namespace replace --nsid 1 {file},class=bulk"));
    assert_eq!(served.saved_values("class"), [Some("bulk".to_owned())]);
    assert_eq!(served.seen(), seen);
    let block = client.read(1, 0, Buffer::alloc(512)).unwrap();
    assert!(block.iter().all(|byte| *byte == 7));
    served.ctl(&format!("namespace replace --nsid 1 {file},size=1MiB"));
    assert_eq!(served.saved_values("class"), [None]);
    let refused = served.refusal(&format!("namespace replace --nsid 1 {file},size=2MiB"));
    assert!(refused.contains("ctl namespace resize"), "{refused}");
}

#[test]
fn options_that_make_no_sense_say_which_command_takes_them() {
    let folder = tempfile::tempdir().unwrap();
    let served = StateTarget::start(folder.path(), "one", &[]);
    served.ctl(&format!("subsystem add -n {NQN}"));
    served.ctl("device add d ssd:1MiB");
    for (line, why) in [
        ("device add x mem:1MiB,class=bulk", "`roadtrain ctl namespace add device:x,...`"),
        (
            "device add x block:/dev/x,uncorrectable=none",
            "`roadtrain ctl namespace add device:x,...`",
        ),
        ("device add x block:/dev/x,standby", "`roadtrain ctl namespace add SPEC`"),
        ("device add x ssd:1MiB,parallel=0", "1 to 65535"),
        ("namespace add ssd:1MiB,standby", "standby is for file, block and rbd"),
        ("namespace add device:d,uncorrectable=/tmp/marks", "leave the file out"),
        ("namespace add device:d,standby", "standby is for file, block and rbd"),
    ] {
        let refused = served.refusal(line);
        assert!(refused.contains(why), "{line}: {refused}");
    }
    assert_eq!(served.ctl("device list").as_array().unwrap().len(), 1);
    served.ctl("namespace add device:d");
    served.ctl("device remove d");
    assert!(served.ctl("namespace list").as_array().unwrap().is_empty());
}

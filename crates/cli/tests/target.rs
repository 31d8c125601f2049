//! A running target is asked, and changed, at its control socket.

mod harness;

use harness::{NQN, PROGRAM, Target, json, stderr};
use serde_json::{Value, json as value};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const MIB: u64 = 1 << 20;

/// A target with a configuration file, and a folder of its own for what runs.
struct Served {
    directory: tempfile::TempDir,
    target: Target,
}

impl Served {
    fn new() -> Served {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("serve.toml");
        fs::write(&file, config("")).unwrap();
        let arguments = ["--config", file.to_str().unwrap()];
        let target = Target::start_in(&directory.path().join("run"), &arguments);
        Served { directory, target }
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
        let output = self.run(&format!("target {line} --json"));
        assert!(output.status.success(), "{line}: {}", stderr(&output));
        json(&output)
    }

    fn refusal(&self, line: &str) -> (Option<i32>, String) {
        let output = self.run(&format!("target {line}"));
        (output.status.code(), stderr(&output))
    }

    /// One line to the socket, one line back.
    fn ask(&self, line: &str) -> Value {
        let mut stream =
            UnixStream::connect(self.path("run/targets/target0/control.sock")).unwrap();
        writeln!(stream, "{line}").unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
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
    let served = Served::new();
    let image = served.path("b.img");
    let added = served.change(&format!("add-namespace file:{},size=1MiB", image.display()));
    let what = format!("namespace 2 of {NQN}: added");
    assert_eq!(added["changes"], value!([{"what": what, "nqn": NQN, "nsid": 2}]));
    let hint = added["hint"].as_str().unwrap();
    assert!(hint.contains("not written to") && hint.contains("serve.toml"), "{hint}");
    served.target.await_sizes(&[8 * MIB, MIB]);
    served.change("resize-namespace 1 4MiB");
    served.change("resize-namespace 2 2MiB");
    served.target.await_sizes(&[4 * MIB, 2 * MIB]);
    fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(3 * MIB).unwrap();
    served.change("resize-namespace 2");
    served.target.await_sizes(&[4 * MIB, 3 * MIB]);
    served.change("replace-namespace null:1MiB,nsid=2");
    served.target.await_sizes(&[4 * MIB, MIB]);
    served.change("remove-namespace 2");
    served.target.await_sizes(&[4 * MIB]);
    assert!(image.exists(), "the file stays");

    for (line, code, why) in [
        (
            "add-namespace mem:1MiB,nsid=1",
            2,
            "namespace 1 of nqn.2025-01.io.example:test is there already",
        ),
        ("add-namespace file:/nonexistent/x", 1, "/nonexistent/x"),
        ("remove-namespace 7", 2, "there is no namespace 7"),
        ("resize-namespace 1 1GiB", 1, "restart with the new size"),
        ("resize-namespace 1 1000", 1, "whole number"),
        ("add-namespace mem:1MiB -n nqn.x:none", 2, "there is no subsystem nqn.x:none"),
        ("reload --id other", 3, "no target other runs here"),
    ] {
        let (status, text) = served.refusal(line);
        assert_eq!(status, Some(code), "{line}: {text}");
        assert!(text.contains(why), "{line}: {text}");
    }
    assert_eq!(served.target.sizes(), [4 * MIB], "nothing has changed");
    assert_eq!(served.change("reload")["changes"].as_array().unwrap().len(), 1);
    served.target.await_sizes(&[8 * MIB]);
}

#[test]
fn hosts_are_allowed_and_refused() {
    let served = Served::new();
    let list = || served.target.ask("list", &format!("-n {NQN} --host-nqn nqn.x:me --json"));
    assert!(list().status.success());
    let (code, text) = served.refusal("allow-host nqn.x:me");
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("any host may use the subsystem"), "{text}");
    served.change("disallow-any-host");
    assert_eq!(list().status.code(), Some(3));
    served.change("allow-host nqn.x:me");
    assert!(list().status.success());
    assert_eq!(served.status()["subsystems"][0]["allow_hosts"], value!(["nqn.x:me"]));
    served.change("disallow-host nqn.x:me");
    assert_eq!(list().status.code(), Some(3));
    served.change("allow-any-host");
    assert!(list().status.success());
}

#[test]
fn a_reload_says_what_has_changed_and_what_it_cannot_change() {
    let served = Served::new();
    let file = served.path("serve.toml");
    assert_eq!(served.change("reload")["changes"], value!([]));
    let text = config("allow_hosts = [\"nqn.x:h\"]\n").replace("port = 0", "port = 4499");
    fs::write(&file, text).unwrap();
    let done = served.change("reload");
    assert_eq!(done["changes"].as_array().unwrap().len(), 2, "{done}");
    assert!(done["hint"].as_str().unwrap().contains("need a restart"), "{done}");
    fs::write(&file, "address = 3\n").unwrap();
    let (code, text) = served.refusal("reload");
    assert_eq!(code, Some(2));
    assert!(text.contains("serve.toml") && text.contains("address"), "{text}");
}

#[test]
fn status_and_list_show_what_is_served() {
    let served = Served::new();
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
    assert_eq!((&namespace["bytes"], &namespace["store"]), (&value!(8 * MIB), &value!("mem")));
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
    let served = Served::new();
    let mode = |path: &str| fs::metadata(served.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("run"), mode("run/targets/target0")), (0o700, 0o700));
    assert_eq!(mode("run/targets/target0/control.sock"), 0o600);
    for line in [
        "",
        "stats",
        "{\"version\":2,\"method\":\"status\"}",
        "{\"version\":1,\"method\":\"stop\"}",
        "{\"version\":1,\"method\":\"apply\",\"params\":{\"operations\":[{\"operation\":\"format\"}]}}",
    ] {
        let answer = served.ask(line);
        assert_eq!(
            (&answer["version"], &answer["error"]["why"]),
            (&value!(1), &value!("request")),
            "{line}"
        );
    }
    // The first could be done: nothing is.
    let operations = "{\"operation\":\"resize_namespace\",\"nsid\":1,\"size\":\"4MiB\"},\
        {\"operation\":\"remove_namespace\",\"nsid\":5}";
    let answer = served.ask(&format!(
        "{{\"version\":1,\"method\":\"apply\",\"params\":{{\"operations\":[{operations}]}}}}"
    ));
    let error = &answer["error"];
    assert_eq!(
        (&error["why"], &error["place"]),
        (&value!("unknown"), &value!(format!("namespace 5 of {NQN}")))
    );
    assert_eq!(served.target.sizes(), [8 * MIB]);
    let answer = served.ask("{\"version\":1,\"method\":\"counters\"}");
    assert!(answer["result"]["requests"].is_u64(), "{answer}");
}

#[test]
fn a_place_is_left_when_a_target_ends() {
    let served = Served::new();
    let folder = served.path("run/targets/target0");
    assert!(folder.exists());
    served.target.signal(libc::SIGTERM);
    let (Served { directory, target }, folder) = (served, folder);
    assert_eq!(target.end().0, Some(0));
    assert!(!folder.exists());
    drop(directory);
}

//! Attachments of the program: notifications, lists, and their end.

use crate::harness::{NQN, PROGRAM, TargetProcess, json, stderr};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A user with a separate directory.
struct AttachUser {
    directory: tempfile::TempDir,
    target: TargetProcess,
}

impl AttachUser {
    fn new() -> AttachUser {
        AttachUser { directory: tempfile::tempdir().unwrap(), target: TargetProcess::memory() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(line.split_whitespace()).stdin(Stdio::null());
        command.env("ROADTRAIN_RUNTIME_DIR", self.path("run"));
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    fn listed(&self) -> Value {
        json(&self.run("list --json"))
    }

    fn attach(&self, socket: &Path, options: &str) -> Command {
        let (port, socket) = (self.target.port, socket.display());
        self.command(&format!(
            "attach -a 127.0.0.1 -s {port} -n {NQN} --as nbd:unix:{socket} {options}"
        ))
    }
}

/// A running `attach`, and the line that reported readiness.
struct AttachProcess {
    child: Child,
    line: String,
}

impl AttachProcess {
    fn start(mut command: Command) -> AttachProcess {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        AttachProcess { child, line }
    }

    fn is_ended(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

impl Drop for AttachProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_service_manager_is_notified() {
    let user = AttachUser::new();
    let manager = UnixDatagram::bind(user.path("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let notification = || {
        let mut text = [0; 64];
        let length = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).trim_end().to_owned()
    };
    let mut command = user.attach(&user.path("s"), "");
    command.env("NOTIFY_SOCKET", user.path("notify"));
    let mut attached = AttachProcess::start(command);
    assert_eq!(notification(), "READY=1");
    assert!(user.run("detach --all").status.success());
    assert_eq!(notification(), "STOPPING=1");
    assert!(attached.is_ended());
}

#[test]
fn ready_is_reported_as_text_and_as_json() {
    let user = AttachUser::new();
    let socket = user.path("s");
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let text = AttachProcess::start(user.attach(&socket, "--id disk"));
    assert_eq!(text.line, format!("ready {uri} {NQN} nsid 1 id disk\n"));
    let json = AttachProcess::start(user.attach(&user.path("t"), "--json"));
    let line: Value = serde_json::from_str(&json.line).unwrap();
    assert_eq!((&line["ready"], &line["id"]), (&Value::Bool(true), &"nbd0".into()));
    assert_eq!(line["devices"][0]["nsid"], 1);
    let listed = user.listed();
    assert_eq!(listed[0]["devices"][0]["names"][0], uri);
    assert_eq!((&listed[1]["id"], &listed[1]["state"]), (&"nbd0".into(), &"ready".into()));
    assert_eq!(listed[1]["pid"], json.child.id());
}

/// A second attachment of the same user does not take the place of the first one.
#[test]
fn a_running_attachment_keeps_its_name() {
    let user = AttachUser::new();
    let socket = user.path("s");
    let first = AttachProcess::start(user.attach(&socket, ""));
    let second = user.attach(&socket, "").output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(stderr(&second).contains("roadtrain detach nbd0"), "{}", stderr(&second));
    assert!(first.line.starts_with("ready"));
    assert_eq!(user.listed().as_array().unwrap().len(), 1);
}

/// A closed pipe for the ready line ends the attachment, without leftovers.
#[test]
fn an_attachment_that_cannot_report_ready_ends() {
    let user = AttachUser::new();
    let socket = user.path("s");
    let mut child =
        user.attach(&socket, "").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(!socket.exists());
    assert_eq!(user.listed().as_array().unwrap().len(), 0);
}

/// A closed pipe, as in `roadtrain list | head -n 1`, is no failure, and ends `--watch`.
#[test]
fn a_closed_pipe_is_no_failure() {
    let user = AttachUser::new();
    for line in ["list", "list --json", "status", "status --watch", "status --watch --json"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = user.command(line).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{line}");
    }
}

#[test]
fn nothing_attached_is_no_failure() {
    let user = AttachUser::new();
    for line in ["list", "list --json", "status", "status --json", "detach --all"] {
        let output = user.run(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
    }
    for (line, code) in [("detach nbd0", 1), ("status /dev/loop0", 1), ("detach", 2)] {
        assert_eq!(user.run(line).status.code(), Some(code), "{line}");
    }
}

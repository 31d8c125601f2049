//! The program and its target, for tests.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_roadtrain");
pub const NQN: &str = "nqn.2025-01.io.example:test";

/// Separate from this user's attachments and targets.
const RUNTIME_DIR: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/run");

/// Longer than any step should take.
pub const LONG: Duration = Duration::from_secs(120);

/// Waits until `done` is true.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn roadtrain(line: &str) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command.env("ROADTRAIN_RUNTIME_DIR", RUNTIME_DIR);
    command.output().unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(output)))
}

/// Sends one line to a control socket, and returns the reply.
pub fn request_line(socket: &Path, line: &str) -> Value {
    let mut stream = UnixStream::connect(socket).unwrap();
    writeln!(stream, "{line}").unwrap();
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply).unwrap();
    serde_json::from_str(&reply).unwrap()
}

/// A running `serve`.
pub struct TargetProcess {
    pub child: Child,
    pub port: u16,
    /// Line that reported readiness.
    pub ready: String,
}

impl TargetProcess {
    pub fn start(arguments: &[&str]) -> TargetProcess {
        TargetProcess::start_in(RUNTIME_DIR.as_ref(), arguments)
    }

    /// Starts a target with a separate directory for runtime files.
    pub fn start_in(runtime: &Path, arguments: &[&str]) -> TargetProcess {
        let mut child = Command::new(PROGRAM)
            .arg("serve")
            .args(arguments)
            .env("ROADTRAIN_RUNTIME_DIR", runtime)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words.first(), Some(&"ready"), "{line}");
        let port = words[1].rsplit(':').next().unwrap().parse().unwrap();
        TargetProcess { child, port, ready: line.trim().to_owned() }
    }

    pub fn memory() -> TargetProcess {
        TargetProcess::start(&["-a", "127.0.0.1", "-s", "0", "-n", NQN, "--namespace", "mem:8MiB"])
    }

    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: our own child, which was not waited for.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Runs a command against the target.
    pub fn run(&self, command: &str, rest: &str) -> Output {
        roadtrain(&format!("{command} -t tcp -a 127.0.0.1 -s {} {rest}", self.port))
    }

    /// Returns the sizes of its namespaces.
    pub fn sizes(&self) -> Vec<u64> {
        let found = json(&self.run("list", "--json"));
        found
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["capacity_bytes"].as_u64().unwrap())
            .collect()
    }

    /// Waits until its namespaces have these sizes.
    pub fn await_sizes(&self, sizes: &[u64]) {
        eventually(&format!("namespaces of port {} have {sizes:?}", self.port), || {
            self.sizes() == sizes
        });
    }

    /// Waits for its end; returns its exit status and its log.
    pub fn end(mut self) -> (Option<i32>, String) {
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().code(), log)
    }
}

/// Ends the target. If the test has failed its port and its log are shown.
impl Drop for TargetProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking()
            && let Some(mut stderr) = self.child.stderr.take()
        {
            let mut log = String::new();
            let _ = stderr.read_to_string(&mut log);
            eprintln!("log of the target at port {}:\n{log}", self.port);
        }
    }
}

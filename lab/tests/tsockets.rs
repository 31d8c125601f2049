//! The program over TSockets, end to end: found, verified, killed and back, under a front.

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

const NQN: &str = "nqn.2025-01.io.example:tsockets";

/// `roadtrain COMMAND`, with a driver of TSockets in it.
fn program(command: &str) -> Command {
    // At run time: a compiler behind a shell script does not get variables with a hyphen in their name.
    let lab = std::env::var_os("CARGO_BIN_EXE_roadtrain-lab").expect("cargo runs this");
    let mut program = Command::new(lab);
    program.args(["tsockets", command]);
    program
}

/// The same, over TSockets to the target at that TCP port.
fn over(port: u16, command: &str, arguments: &str) -> Command {
    let mut program = program(command);
    let at = format!("127.0.0.1:{port}");
    program.args(["-t", "ether", "-a", &at]).args(arguments.split_whitespace());
    program
}

/// Is killed at the end of its test.
struct TSocketsProgram(Child);

impl Drop for TSocketsProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts it, and waits for its `ready`.
fn start(command: &mut Command) -> (TSocketsProgram, String) {
    let mut running = TSocketsProgram(command.stdout(Stdio::piped()).spawn().expect("it starts"));
    let said = running.0.stdout.take().expect("piped");
    let mut lines = BufReader::new(said).lines().map(|line| line.expect("text"));
    let ready = lines.find(|line| line.starts_with("ready")).expect("it gets ready");
    thread::spawn(move || lines.for_each(drop));
    (running, ready)
}

fn serve(port: u16, namespaces: &str) -> TSocketsProgram {
    let (target, ready) = start(&mut over(port, "serve", &format!("-n {NQN} {namespaces}")));
    assert_eq!(ready, format!("ready ether:127.0.0.1:{port} {NQN}"));
    target
}

/// Runs it to its end, which has to be a success, and reads its JSON.
fn json(command: &mut Command) -> Value {
    let output = command.arg("--json").stderr(Stdio::inherit()).output().expect("it runs");
    assert!(output.status.success(), "{command:?}: {}", output.status);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn is_verified(bench: &Value) -> bool {
    let number = |name: &str| bench[name].as_f64().expect("a number");
    number("errors") == 0.0 && number("iops") > 0.0 && number("blocks_checked") > 0.0
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// A folder for a test, empty.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

#[test]
fn finds_its_target() {
    let port = free_port();
    let _target = serve(port, "--namespace mem:64MiB");
    let found = json(&mut over(port, "discover", ""));
    let records = found["records"].as_array().expect("records");
    assert!(records.iter().any(|record| record["nqn"] == NQN), "{found}");
    let identified = json(&mut over(port, "identify", &format!("-n {NQN}")));
    assert_eq!(identified["namespaces"][0]["capacity_bytes"], 64 << 20);
}

#[test]
fn data_is_verified() {
    let (port, folder) = (free_port(), folder("tsockets-verified"));
    let file = folder.join("a.img");
    let namespaces = format!(
        "--namespace mem:256MiB --namespace file:{},size=128MiB --cores 0,1",
        file.display()
    );
    let _target = serve(port, &namespaces);
    for bs in ["512", "4k", "128k", "1M"] {
        for nsid in [1, 2] {
            let arguments = format!(
                "-n {NQN} --nsid {nsid} --rw randrw --bs {bs} --depth 16 --lanes 3 --cores 0,1 --ddgst \
                 --seconds 1 --verify"
            );
            let bench = json(&mut over(port, "bench", &arguments));
            assert!(is_verified(&bench), "{bs}, namespace {nsid}: {bench}");
        }
    }
    fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn a_target_is_killed_and_back() {
    let (port, folder) = (free_port(), folder("tsockets-killed"));
    let namespace = format!("--namespace file:{},size=128MiB", folder.join("a.img").display());
    let target = serve(port, &namespace);
    let arguments = format!("-n {NQN} --rw randrw --bs 4k --depth 8 --seconds 6 --verify");
    let bench = thread::spawn(move || json(&mut over(port, "bench", &arguments)));
    thread::sleep(Duration::from_secs(2));
    drop(target);
    thread::sleep(Duration::from_secs(1));
    let _target = serve(port, &namespace);
    let bench = bench.join().expect("a report");
    assert!(is_verified(&bench), "{bench}");
    fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn fio_is_content_with_nbd_over_it() {
    if Command::new("fio").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED fio_is_content_with_nbd_over_it: no fio");
        return;
    }
    let (port, folder) = (free_port(), folder("tsockets-nbd"));
    let _target = serve(port, "--namespace mem:64MiB");
    let socket = folder.join("s");
    let attach = format!("-n {NQN} --as nbd:unix:{}", socket.display());
    let (_attached, _) =
        start(over(port, "attach", &attach).env("ROADTRAIN_RUNTIME_DIR", folder.join("run")));
    let uri = format!("--uri=nbd+unix:///?socket={}", socket.display());
    let output = Command::new("fio")
        .args(["--name=nbd", "--ioengine=nbd", &uri, "--rw=randrw", "--size=64M", "--iodepth=16"])
        .args(["--bssplit=512/20:4k/40:7k/20:256k/20", "--verify=crc32c", "--verify_fatal=1"])
        .args(["--verify_state_save=0", "--time_based", "--runtime=2", "--fsync=64", "--eta=never"])
        .current_dir(&folder)
        .output()
        .expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    fs::remove_dir_all(folder).expect("it is ours");
}

//! In-band authentication by the program: keys in files, exit status 3, and which end refuses the other.

use crate::harness::{NQN, TargetProcess, roadtrain, stderr};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const HOST: &str = "nqn.2025-01.io.example:host";

/// Generates a key in a separate file.
fn key(dir: &Path, name: &str) -> PathBuf {
    let made = roadtrain("keys dhchap");
    assert!(made.status.success(), "{}", stderr(&made));
    let path = dir.join(name);
    fs::write(&path, &made.stdout).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    path
}

#[test]
fn keys_let_hosts_in_and_their_absence_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let [host, target, other] = ["host", "target", "other"].map(|name| key(dir.path(), name));
    let named = |path: &Path| format!("{HOST}={}", path.display());
    let (host_key, target_key) = (named(&host), named(&target));
    let serve = ["-a", "127.0.0.1", "-s", "0", "-n", NQN, "--namespace", "mem:8MiB"];
    let keys = ["--require-auth", "--dhchap-key", &host_key, "--dhchap-ctrl-key", &target_key];
    let running = TargetProcess::start(&[&serve[..], &keys].concat());
    let (host, target, other) = (host.display(), target.display(), other.display());
    let run = |command: &str, keys: String| running.run(command, &format!("-q {HOST} {keys}"));
    let right = || format!("--dhchap-secret {host} --dhchap-ctrl-secret {target}");
    for command in ["discover".to_owned(), format!("list -n {NQN}")] {
        let (command, more) = command.split_once(' ').unwrap_or((&command, ""));
        let done = run(command, format!("{more} {}", right()));
        assert!(done.status.success(), "{command}: {}", stderr(&done));
        assert_eq!(stderr(&done), "");
    }
    let done = run("identify", format!("-n {NQN} -S {host}"));
    assert!(done.status.success(), "{}", stderr(&done));
    for (keys, said) in [
        (String::new(), "the target refuses this host: it wants authentication"),
        (format!("-S {other}"), "the target refuses this host: authentication failed"),
        (format!("-S {host} -C {other}"), "this host refuses the target: authentication failed"),
    ] {
        let refused = run("identify", format!("-n {NQN} {keys}"));
        let message = stderr(&refused);
        assert_eq!(refused.status.code(), Some(3), "{message}");
        assert!(message.contains(said), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    let line = fs::read_to_string(dir.path().join("host")).unwrap();
    let warned = run("identify", format!("-n {NQN} -S {}", line.trim()));
    assert!(warned.status.success() && stderr(&warned).contains("others can see"));
    let open = TargetProcess::memory();
    let refused = open.run("identify", &format!("-n {NQN} -q {HOST} {}", right()));
    assert_eq!(refused.status.code(), Some(3));
    assert!(stderr(&refused).contains("the target does not authenticate"), "{}", stderr(&refused));
}

#[test]
fn what_makes_no_sense_is_refused_and_no_key_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let host = key(dir.path(), "host").display().to_string();
    let serve = format!("serve -a 127.0.0.1 -s 0 -n {NQN} --namespace mem:8MiB");
    let bad = dir.path().join("bad");
    fs::write(&bad, "DHHC-1:00:AAEC:\n").unwrap();
    fs::set_permissions(&bad, PermissionsExt::from_mode(0o600)).unwrap();
    for (options, said) in [
        ("--require-auth".to_owned(), "admits no host"),
        (format!("--dhchap-key {host}"), "HOSTNQN=FILE"),
        (format!("--dhchap-key x={host}"), "is not an NQN"),
        (format!("--dhchap-ctrl-key {HOST}={host}"), "add its --dhchap-key"),
        (format!("--dhchap-key {HOST}={host} --dhchap-key {HOST}={host}"), "two keys"),
        (format!("--dhchap-key {HOST}={}", bad.display()), "CRC"),
    ] {
        let refused = roadtrain(&format!("{serve} {options} --check-config"));
        assert_eq!(refused.status.code(), Some(2), "{options}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(said), "{options}: {}", stderr(&refused));
    }
    let keys = format!("--dhchap-key {HOST}={host} --require-auth --dhchap-dhgroup ffdhe2048,null");
    let printed = roadtrain(&format!("{serve} {keys} --print-config"));
    let text = String::from_utf8(printed.stdout).unwrap();
    for expected in ["required = true", "dhchap_key = ", "ffdhe2048", HOST] {
        assert!(text.contains(expected), "{text}");
    }
    assert!(!text.contains("DHHC-1"), "{text}");
    let file = dir.path().join("serve.toml");
    fs::write(&file, &text).unwrap();
    let checked = roadtrain(&format!("serve --config {} --check-config", file.display()));
    assert!(checked.status.success(), "{}", stderr(&checked));
}

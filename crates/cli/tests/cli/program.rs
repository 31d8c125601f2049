//! The program itself, on loopback: its output and exit status.

use crate::harness::{NQN, PROGRAM, TargetProcess, json, roadtrain, stderr};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Takes the target out of its guard and ends it.
fn ends_well(target: TargetProcess, signal: libc::c_int) -> String {
    target.signal(signal);
    let (code, log) = target.end();
    assert_eq!(code, Some(0), "{log}");
    log
}

#[test]
fn serve_stops_cleanly() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        ends_well(TargetProcess::memory(), signal);
    }
}

#[test]
fn commands_see_what_is_exported() {
    let target = TargetProcess::memory();
    let discovered = json(&target.run("discover", "--json"));
    let names = discovered["records"].as_array().unwrap().iter().map(|r| r["nqn"].as_str());
    assert!(names.flatten().any(|name| name == NQN), "{discovered}");
    let identified = json(&target.run("identify", &format!("-n {NQN} --json")));
    assert_eq!(identified["controller"]["nqn"], NQN);
    assert_eq!(identified["namespaces"][0]["capacity_bytes"], 8 << 20);
    assert_eq!(target.sizes(), [8 << 20]);
    let text =
        String::from_utf8(target.run("identify", &format!("-n {NQN} --nsid 1")).stdout).unwrap();
    assert!(text.contains("8 MiB"), "{text}");
    let absent = target.run("identify", &format!("-n {NQN} --nsid 2"));
    assert_eq!(absent.status.code(), Some(1), "{}", stderr(&absent));
}

#[test]
fn several_addresses_are_served_and_discovered() {
    let mut options = vec!["-a", "127.0.0.1", "-a", "127.0.0.2"];
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        options.extend(["-a", "::1"]);
    }
    let count = options.len() / 2;
    options.extend(["-s", "0", "-n", NQN, "--namespace", "mem:8MiB"]);
    let target = TargetProcess::start(&options);
    assert!(target.ready.starts_with(&format!("ready 127.0.0.1:{} 127.0.0.2:", target.port)));
    assert!(target.ready.ends_with(NQN));
    let discovered = json(&target.run("discover", "--json"));
    let records = discovered["records"].as_array().unwrap().iter();
    let places: Vec<_> = records
        .filter(|record| record["nqn"] == NQN)
        .map(|record| (record["traddr"].as_str().unwrap(), record["trsvcid"].as_str().unwrap()))
        .collect();
    assert_eq!(places.len(), count, "{discovered}");
    for (address, port) in places {
        let found = roadtrain(&format!("list -t tcp -a {address} -s {port} -n {NQN} --json"));
        assert!(found.status.success(), "{address}: {}", stderr(&found));
    }
}

#[test]
fn exit_status_says_what_kind_of_failure() {
    let target = TargetProcess::memory();
    for (output, code) in [
        (roadtrain("identify -a 127.0.0.1 -s 1 -n nqn.x:y"), 3),
        (target.run("identify", "-n nqn.x:other"), 3),
        (target.run("bench", &format!("-n {NQN} --nsid 9 --seconds 1")), 1),
        (target.run("bench", &format!("-n {NQN} --bs 1000 --seconds 1")), 2),
        (target.run("attach", &format!("-n {NQN} --as nbd:unix:/nonexistent/dir/x")), 1),
        (target.run("attach", &format!("-n {NQN} --as ftp:x")), 2),
        (target.run("attach", &format!("-n {NQN} --as nbd:unix:/tmp/x --buffers 35MiB")), 2),
        (roadtrain("serve -a 127.0.0.1 -n not-an-nqn --namespace mem:1MiB"), 2),
        (roadtrain("serve -a 127.0.0.1 -s 0 -n nqn.x:y --namespace file:/nonexistent/x"), 1),
        (roadtrain("nonsense"), 2),
        // Options of other policies, at either end.
        (target.run("bench", &format!("-n {NQN} --policy tyche --doorbell-delay-us 9")), 2),
        (roadtrain("bench --target-policy i10 --batch-level 9"), 2),
        (target.run("attach", &format!("-n {NQN} --as nbd:unix:/tmp/x --caravan-requests 9")), 2),
        (roadtrain("serve -a ::1 -n nqn.x:y --namespace mem:1MiB --policy none --cmd-degree 9"), 2),
    ] {
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn serve_alone_explains_itself() {
    let output = roadtrain("serve");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.matches("    roadtrain serve -").count(), 3, "{said}");
    assert!(said.lines().count() <= 12 && output.stdout.is_empty(), "{said}");
    let part = stderr(&roadtrain("serve -a 127.0.0.1"));
    assert!(part.contains("--nqn <NQN>"), "what is missing is named: {part}");
}

#[test]
fn doctor_says_how_this_machine_is() {
    let output = roadtrain("doctor --json");
    let findings = json(&output);
    let findings = findings.as_array().unwrap();
    assert!(findings.iter().any(|one| one["check"] == "kernel"), "{findings:?}");
    let has_problem = findings.iter().any(|one| one["state"] == "problem");
    assert_eq!(output.status.code(), Some(i32::from(has_problem)), "{}", stderr(&output));
    let text = roadtrain("doctor");
    assert_eq!(String::from_utf8_lossy(&text.stdout).matches("kernel  ").count(), 1);
}

#[test]
fn doctor_checks_a_configuration_for_a_host() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("serve.toml");
    let of = |lba: u32, host: &str| {
        let text = format!(
            "address = \"127.0.0.1\"\n[[subsystem]]\nnqn = \"nqn.2025-01.io.example:disk\"\n\
             [[subsystem.namespace]]\nnsid = 1\nkind = \"file\"\npath = \"/disk\"\nlba = {lba}\n"
        );
        std::fs::write(&file, text).unwrap();
        let output = roadtrain(&format!("doctor --for {host} --config {}", file.display()));
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (status, text) = of(4096, "esxi");
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("PROBLEM  block size") && text.contains("lba=512"), "{text}");
    for (lba, host) in [(512, "esxi"), (4096, "kernel"), (4096, "spdk"), (4096, "windows")] {
        let (status, text) = of(lba, host);
        assert_eq!(status, Some(0), "{host}: {text}");
    }
    let without_host = roadtrain("doctor --config serve.toml");
    assert_eq!(without_host.status.code(), Some(2), "{}", stderr(&without_host));
}

#[test]
fn a_machine_without_ublk_says_what_to_do() {
    if Path::new("/dev/ublk-control").exists() {
        return crate::skipped::skipped("this machine has ublk; tests/vm uses it");
    }
    let target = TargetProcess::memory();
    for options in ["", "--recover"] {
        let output = target.run("attach", &format!("-n {NQN} --as ublk:0 {options}"));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("modprobe ublk_drv"), "{said}");
        assert!(said.contains("CONFIG_BLK_DEV_UBLK"), "{said}");
    }
}

#[test]
fn hosts_that_are_not_allowed_are_refused() {
    let target = TargetProcess::start(&[
        "-a",
        "127.0.0.1",
        "-s",
        "0",
        "-n",
        NQN,
        "--namespace",
        "mem:8MiB",
        "--allow-host",
        "nqn.x:friend",
    ]);
    let friend = target.run("identify", &format!("-n {NQN} --hostnqn nqn.x:friend"));
    assert!(friend.status.success(), "{}", stderr(&friend));
    let stranger = target.run("identify", &format!("-n {NQN} --hostnqn nqn.x:stranger"));
    assert_eq!(stranger.status.code(), Some(3));
}

#[test]
fn reload_changes_namespaces_and_survives_nonsense() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("serve.toml");
    let write = |sizes: &[&str]| {
        let namespace = |(n, size): (usize, &&str)| {
            format!(
                "[[subsystem.namespace]]\nnsid = {}\nkind = \"mem\"\nsize = \"{size}\"\n",
                n + 1
            )
        };
        let namespaces: String = sizes.iter().enumerate().map(namespace).collect();
        let text = format!(
            "address = \"127.0.0.1\"\nport = 0\n[[subsystem]]\nnqn = \"{NQN}\"\n{namespaces}"
        );
        std::fs::write(&file, text).unwrap();
    };
    write(&["8MiB"]);
    let target = TargetProcess::start(&["--config", path(&file)]);
    assert_eq!(target.sizes(), [8 << 20]);
    write(&["8MiB", "4MiB"]);
    target.signal(libc::SIGHUP);
    target.await_sizes(&[8 << 20, 4 << 20]);
    std::fs::write(&file, "nonsense").unwrap();
    target.signal(libc::SIGHUP);
    write(&["8MiB"]);
    // Both signals may be seen as one; the good file wins in the end.
    std::thread::sleep(std::time::Duration::from_millis(100));
    target.signal(libc::SIGHUP);
    target.await_sizes(&[8 << 20]);
    ends_well(target, libc::SIGTERM);
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn configuration_is_printed_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("serve.toml");
    let printed = roadtrain(&format!(
        "serve -a 127.0.0.1 -n {NQN} --namespace mem:8MiB --policy i10 --print-config"
    ));
    std::fs::write(&file, &printed.stdout).unwrap();
    let checked = roadtrain(&format!("serve --config {} --check-config", path(&file)));
    assert!(checked.status.success(), "{}", stderr(&checked));
    std::fs::write(&file, "port = 1\n").unwrap();
    let checked = roadtrain(&format!("serve --config {} --check-config", path(&file)));
    assert_eq!(checked.status.code(), Some(2));
    assert!(stderr(&checked).contains("serve.toml"), "{}", stderr(&checked));
}

#[test]
fn bench_measures_both_ends() {
    let output = roadtrain(
        "bench --namespace mem:8MiB --rw randread --bs 4k --depth 16 --ios 20000 --policy i10 \
         --doorbell-delay-us 1000000 --json",
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let report = json(&output);
    assert_eq!(report["requests"], 20_000);
    assert_eq!(report["errors"], 0);
    for name in [
        "iops",
        "bytes_per_second",
        "requests_per_caravan",
        "sends_per_io",
        "cpu_ns_per_io",
        "host_cpu_seconds",
        "target_cpu_seconds",
        "target_requests_per_caravan",
        "syscalls_per_io",
    ] {
        assert!(report[name].as_f64().is_some_and(|x| x > 0.0), "{name}: {}", report[name]);
    }
    // Sixteen in flight, sixteen a caravan: all the doorbells are by size. The delay is so long that the timer does not
    // ring even on a busy machine.
    assert_eq!(report["requests_per_caravan"], 16.0);
    assert_eq!(report["doorbells_timer"], 0);
}

#[test]
fn bench_verifies() {
    for options in [
        "--rw randrw --bs 4k --depth 32 --lanes 2",
        "--rw write --bs 64k --depth 4 --policy i10",
        "--rw randwrite --bs 512 --depth 8 --hdgst --ddgst",
        "--rw randread --bs 4k --depth 8",
    ] {
        let line = format!("bench --namespace mem:8MiB {options} --ios 4000 --verify --json");
        let output = roadtrain(&line);
        assert!(output.status.success(), "{line}: {}", stderr(&output));
        let report = json(&output);
        assert_eq!(report["requests"], 4000, "{line}");
        assert!(report["blocks_checked"].as_u64().unwrap() > 4000, "{line}");
    }
}

#[test]
fn bench_finds_data_that_was_changed() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    let namespace = format!("file:{},size=1MiB", path(&image));
    let target =
        TargetProcess::start(&["-a", "127.0.0.1", "-s", "0", "-n", NQN, "--namespace", &namespace]);
    let bench = |rw: &str| {
        target.run("bench", &format!("-n {NQN} --rw {rw} --ios 256 --depth 4 --verify --json"))
    };
    let written = bench("write");
    assert!(written.status.success(), "{}", stderr(&written));
    assert!(bench("read").status.success(), "another run's data is checked by itself");
    let mut data = std::fs::read(&image).unwrap();
    data[5 * 4096 + 700] ^= 1;
    std::fs::write(&image, data).unwrap();
    let output = bench("read");
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output);
    assert_eq!(report["errors"], 1);
    assert!(stderr(&output).contains("block 41 is corrupt: byte 188"), "{}", stderr(&output));
}

#[test]
fn bench_keeps_a_schedule() {
    let output = roadtrain("bench --namespace mem:8MiB --rate 2000 --lanes 2 --ios 400 --json");
    assert!(output.status.success(), "{}", stderr(&output));
    let report = json(&output);
    assert_eq!(report["requests"], 400);
    assert!(report["iops"].as_f64().unwrap() < 2100.0, "not faster than the schedule: {report}");
}

#[test]
fn read_only_namespaces_are_not_written() {
    let target = TargetProcess::start(&[
        "-a",
        "127.0.0.1",
        "-s",
        "0",
        "-n",
        NQN,
        "--namespace",
        "mem:8MiB,ro",
    ]);
    let output = target.run("bench", &format!("-n {NQN} --rw randwrite --seconds 1"));
    assert_eq!(output.status.code(), Some(2), "read-only: {}", stderr(&output));
}

#[test]
fn the_service_manager_is_notified_of_live_reactors() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut child = Command::new(PROGRAM)
        .args(["serve", "-a", "127.0.0.1", "-s", "0", "-n", NQN, "--namespace", "mem:8MiB"])
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "200000")
        .env_remove("WATCHDOG_PID")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let received: Vec<_> = (0..3)
        .map(|_| {
            let mut text = [0; 64];
            let length = socket.recv(&mut text).unwrap_or(0);
            String::from_utf8_lossy(&text[..length]).trim_end().to_owned()
        })
        .collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(received, ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]);
}

/// Grants one more descriptor at a time, until there are enough.
#[test]
fn serve_is_ready_with_all_its_reactors_or_not_at_all() {
    let mut whys = Vec::new();
    for limit in 4..64 {
        let script = format!(
            "ulimit -n {limit}; exec {PROGRAM} serve -a 127.0.0.1 -s 0 -n {NQN} --namespace mem:8MiB --cores 0,1"
        );
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        // SAFETY: our own child, which was not waited for.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let code = child.wait().unwrap().code();
        if line.starts_with("ready") {
            assert_eq!(code, Some(0), "{said}");
            assert!(!said.contains("reactor"), "{said}");
            assert!(
                whys.iter().any(|why: &String| why.contains("reactor: Too many open files")),
                "{whys:?}"
            );
            return;
        }
        assert_ne!(code, Some(0), "{said}");
        whys.push(said);
    }
    panic!("never ready: {whys:?}");
}

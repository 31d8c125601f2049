//! Unmodified clients: nbdinfo, nbdcopy, qemu-img, qemu-io, fio, nbd-client. A missing one is reported as skipped.

use super::harness::{MockOptions, NbdHarness, patterned};
use crate::disk::test_info;
use crate::nbd::NbdAddress;
use std::path::Path;
use std::process::Command;

/// Starts a harness on a disk of 16 MiB with blocks of `lba_bytes`.
fn harness(lba_bytes: u32) -> (NbdHarness, String) {
    let mut info = test_info();
    (info.lba_bytes, info.blocks) = (lba_bytes, (16 << 20) / u64::from(lba_bytes));
    let harness = NbdHarness::start(MockOptions { info, room: 64, ..MockOptions::default() });
    let uri = harness.address.uri();
    (harness, uri)
}

/// Runs a program; returns its output, or `None` if it is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = match Command::new(program).args(arguments).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            crate::skipped::skipped(format!("{program} is not installed"));
            return None;
        }
        output => output.unwrap(),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {text}{error}");
    Some(text)
}

fn file_of(path: &Path, seed: usize) -> Vec<u8> {
    let bytes = patterned(seed..seed + (16 << 20));
    std::fs::write(path, &bytes).unwrap();
    bytes
}

#[test]
fn nbdinfo_sees_the_export() {
    for lba_bytes in [512, 4096] {
        let (harness, uri) = harness(lba_bytes);
        if let Some(text) = run("nbdinfo", &["--json", &uri]) {
            for wanted in [
                r#""structured": true"#,
                r#""protocol": "newstyle-fixed""#,
                r#""description": "a test disk""#,
                r#""can_multi_conn": true"#,
                r#""can_trim": true"#,
                r#""can_zero": true"#,
                r#""can_fast_zero": false"#,
                r#""can_fua": true"#,
                r#""can_df": true"#,
                r#""export-size": 16777216"#,
                r#""base:allocation""#,
                &format!(r#""block_size_minimum": {lba_bytes}"#),
                r#""block_size_maximum": 33554432"#,
            ] {
                assert!(text.contains(wanted), "{wanted} in {text}");
            }
            let list = run("nbdinfo", &["--list", &uri]).unwrap();
            assert!(list.contains("export=\"disk\""), "{list}");
            let map = run("nbdinfo", &["--map", &uri]).unwrap();
            let words: Vec<_> = map.split_whitespace().collect();
            assert_eq!(words, ["0", "16777216", "0", "data"]);
        }
        harness.stop();
    }
}

#[test]
fn nbdcopy_copies_both_ways_over_several_connections() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    for (seed, lba_bytes) in [(1, 512), (2, 4096)] {
        let (harness, uri) = harness(lba_bytes);
        let bytes = file_of(&from, seed);
        let arguments = ["--connections=4", "--flush", from.to_str().unwrap(), &uri];
        if run("nbdcopy", &arguments).is_some() {
            assert!(*harness.disk.lock().unwrap() == bytes);
            run("nbdcopy", &["--connections=4", &uri, to.to_str().unwrap()]);
            assert!(std::fs::read(&to).unwrap() == bytes);
        }
        harness.stop();
    }
}

#[test]
fn qemu_img_converts_and_compares() {
    let directory = tempfile::tempdir().unwrap();
    let (raw, qcow2) = (directory.path().join("raw"), directory.path().join("qcow2"));
    let (raw, qcow2) = (raw.to_str().unwrap(), qcow2.to_str().unwrap());
    for (seed, lba_bytes) in [(3, 512), (4, 4096)] {
        let (harness, uri) = harness(lba_bytes);
        let bytes = file_of(Path::new(raw), seed);
        let convert = ["convert", "-n", "-f", "raw", "-O", "raw", "-W", "-t", "none", raw, &uri];
        if run("qemu-img", &convert).is_some() {
            assert!(*harness.disk.lock().unwrap() == bytes);
            run("qemu-img", &["compare", "-f", "raw", "-F", "raw", raw, &uri]);
            run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, qcow2]);
            run("qemu-img", &["compare", "-f", "qcow2", "-F", "raw", qcow2, &uri]);
            let info = run("qemu-img", &["info", "-f", "raw", &uri]).unwrap();
            assert!(info.contains("16 MiB"), "{info}");
        }
        harness.stop();
    }
}

#[test]
fn qemu_io_uses_every_command() {
    for lba_bytes in [512, 4096] {
        let (harness, uri) = harness(lba_bytes);
        let mut arguments = vec!["-f", "raw"];
        for command in [
            "write -f -P 0x11 0 1M",
            "write -P 0x22 1000 3000",
            "read -P 0x22 1000 3000",
            "read -P 0x11 0 1000",
            "write -z 64k 64k",
            "read -P 0 64k 64k",
            "write -z -u 128k 100",
            "read -P 0 128k 100",
            "read -P 0x11 131172 1000",
            "discard 256k 64k",
            "flush",
            "aio_write -P 0x33 512k 256k",
            "aio_flush",
            "read -P 0x33 512k 256k",
        ] {
            arguments.extend(["-c", command]);
        }
        arguments.push(&uri);
        if let Some(text) = run("qemu-io", &arguments) {
            assert!(!text.contains("failed"), "{text}");
        }
        harness.stop();
    }
}

#[test]
fn fio_verifies_what_it_wrote() {
    let directory = tempfile::tempdir().unwrap();
    for (lba_bytes, block) in [(512, "4k"), (512, "512"), (4096, "96k")] {
        let (harness, uri) = harness(lba_bytes);
        let (block, uri) = (format!("--bs={block}"), format!("--uri={uri}"));
        let verify_state = format!("--aux-path={}", directory.path().display());
        let arguments = [
            "--name=verify",
            "--ioengine=nbd",
            "--rw=randrw",
            "--iodepth=32",
            "--size=4M",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--fsync=64",
            "--trim_percentage=0",
            &block,
            &uri,
            &verify_state,
        ];
        run("fio", &arguments);
        harness.stop();
    }
}

#[test]
fn nbd_client_lists_the_export() {
    let (harness, _) = harness(512);
    let NbdAddress::Unix(path) = &harness.address else { panic!("not a Unix socket") };
    let text = run("nbd-client", &["-unix", path.to_str().unwrap(), "-l"]);
    assert!(text.is_none_or(|text| text.contains("disk")));
    harness.stop();
}

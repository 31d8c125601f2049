//! `roadtrain keys`: its output, and its errors.

use crate::harness::{json, roadtrain, stderr};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000015";
const SUBSYSTEM: &str = "nqn.2024-01.test:kernel";
const TLS: &str = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const IDENTITY: &str = "NVMe1R01 nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000015 \
                        nqn.2024-01.test:kernel r3uMt6BpUSLZmCefmufxvHKVZpflWL0wYt7ev8loyDg=";
const PSK: &str = "79d3d42c9053aa50c4372369e0ded12e03c114eec6c7d2e6ba82cf6e85145bbf";
const COUNTING: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn keys_of_known_secrets_are_those_that_others_print() {
    let tls = roadtrain(&format!("keys tls --hmac sha256 --secret {COUNTING}"));
    assert_eq!(text(&tls), format!("{TLS}\n"));
    let plain = format!("keys dhchap --hmac none --secret {COUNTING}");
    let line = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    assert_eq!(text(&roadtrain(&plain)), format!("{line}\n"));
    assert_eq!(json(&roadtrain(&format!("{plain} --json")))["key"], line);
    // The transformed key, with its hash.
    let bound = roadtrain(&format!("keys dhchap -m 1 -n {HOST} -s {COUNTING}"));
    let transformed = "DHHC-1:01:i+GYDzMlMo2yzTHGwuAdFAhUzq9d3aZ1KnjP0yG+XyKKmUBZ:\n";
    assert_eq!(text(&bound), transformed);
}

#[test]
fn new_keys_differ_and_are_valid() {
    let dir = tempfile::tempdir().unwrap();
    for (what, kind) in [
        ("tls", "TLS"),
        ("tls --hmac sha384", "TLS"),
        ("dhchap", "authentication"),
        ("dhchap --hmac none", "authentication"),
        ("dhchap --hmac sha512", "authentication"),
    ] {
        let keys = [0, 1].map(|_| text(&roadtrain(&format!("keys {what}"))));
        assert_ne!(keys[0], keys[1]);
        let path = dir.path().join("key");
        fs::write(&path, format!("# ours\n\n{}", keys[0])).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let shown = roadtrain(&format!("keys show {}", path.display()));
        assert!(text(&shown).starts_with(&format!("a valid key for {kind}, ")), "{shown:?}");
        assert_eq!(stderr(&shown), "");
    }
}

#[test]
fn derived_values_are_shown_and_secrets_only_on_request() {
    let show = format!("keys show {TLS} --hostnqn {HOST} --nqn {SUBSYSTEM}");
    let shown = roadtrain(&show);
    assert_eq!(text(&shown), format!("{IDENTITY}\n"));
    assert!(stderr(&shown).contains("others can see a key"), "{}", stderr(&shown));
    assert_eq!(text(&roadtrain(&format!("{show} --reveal"))), format!("{IDENTITY}\n{PSK}\n"));
    let hidden = json(&roadtrain(&format!("{show} --json")));
    assert_eq!((&hidden["identity"], hidden.get("psk")), (&IDENTITY.into(), None));
    let revealed = json(&roadtrain(&format!("{show} --json --reveal")));
    assert_eq!(revealed["psk"], PSK);
    assert_eq!(revealed["suite"], "TLS_AES_128_GCM_SHA256");
    let key = TLS.replace("NVMeTLSkey-1", "DHHC-1");
    let secret = roadtrain(&format!("keys show {key} --hostnqn {HOST} --reveal"));
    let transformed = "8be1980f3325328db2cd31c6c2e01d140854ceaf5ddda6752a78cfd321be5f22\n";
    assert_eq!(text(&secret), transformed);
}

#[test]
fn what_is_no_key_is_refused_and_not_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let file = |content: &str| {
        let path = dir.path().join(format!("key{}", content.len()));
        fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let damaged = TLS.replace("AAEC", "AAED");
    for (line, code, said) in [
        (format!("keys show {damaged}"), 2, "its CRC is wrong"),
        (format!("keys show {}", file(&damaged)), 2, "its CRC is wrong"),
        (format!("keys show {}", file("")), 2, "one key, in one line"),
        (format!("keys show {}", file(&format!("{TLS}\n{TLS}\n"))), 2, "one key, in one line"),
        (format!("keys show {}", file("hunter2")), 2, "does not have the form"),
        ("keys show /nonexistent/key".into(), 2, "/nonexistent/key"),
        (format!("keys show {TLS} --hostnqn {HOST}"), 2, "--nqn"),
        (format!("keys show {TLS} --hostnqn x --nqn {SUBSYSTEM}"), 2, "is not an NQN"),
        ("keys tls --secret 00".into(), 2, "bytes"),
        ("keys tls --secret 0g".into(), 2, "hexadecimal"),
        (format!("keys dhchap --secret {COUNTING}00"), 2, "32, 48 or 64"),
        ("keys tls --hmac sha512".into(), 2, "sha384"),
        ("keys".into(), 2, "keys"),
    ] {
        let output = roadtrain(&line);
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{line}: {message}");
        assert!(message.contains(said), "{line}: {message}");
        assert!(!message.contains("hunter2") && !message.contains("AAED"), "{message}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_key_that_others_can_read_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    fs::write(&path, TLS).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    let shown = roadtrain(&format!("keys show {}", path.display()));
    assert!(stderr(&shown).contains("chmod 600"), "{}", stderr(&shown));
}

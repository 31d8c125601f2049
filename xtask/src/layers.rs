//! The layers: permitted dependencies between crates, and restrictions of the core.

use crate::source;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Crates of the workspace, and the crates of the workspace that each may use (also for its tests).
const ARROWS: &[(&str, &[&str])] = &[
    ("roadtrain-wire", &[]),
    ("roadtrain-proto", &["wire"]),
    ("roadtrain-host-proto", &["wire", "proto"]),
    ("roadtrain-target-proto", &["wire", "proto"]),
    ("roadtrain-ether-proto", &["wire", "proto", "host-proto", "target-proto"]),
    ("roadtrain-sim", &["wire", "proto", "host-proto", "target-proto", "ether-proto", "tls"]),
    ("roadtrain-system", &["proto"]),
    ("roadtrain-store", &["wire", "proto", "system"]),
    ("roadtrain-tls", &["proto"]),
    ("roadtrain-reactor", &["wire", "proto", "system", "tls"]),
    ("roadtrain-ether-port", &["wire", "proto", "ether-proto", "system", "tls"]),
    (
        "roadtrain-host-engine",
        &["wire", "proto", "host-proto", "ether-proto", "ether-port", "reactor", "system", "tls"],
    ),
    (
        "roadtrain-target-engine",
        &[
            "wire",
            "proto",
            "target-proto",
            "ether-proto",
            "ether-port",
            "reactor",
            "store",
            "system",
            "tls",
        ],
    ),
    ("roadtrain-chain", &["wire", "proto", "host-engine", "store", "system"]),
    ("roadtrain-nbd-store", &["wire", "proto", "store", "system", "tls"]),
    ("roadtrain-front", &["wire", "proto", "host-proto", "host-engine", "reactor", "system"]),
    (
        "roadtrain-manage",
        &["wire", "proto", "target-proto", "target-engine", "reactor", "store", "system"],
    ),
    ("roadtrain-capi", &["wire", "host-engine", "system"]),
    (
        "roadtrain",
        &[
            "wire",
            "proto",
            "target-proto",
            "ether-proto",
            "ether-port",
            "host-engine",
            "target-engine",
            "reactor",
            "store",
            "system",
            "chain",
            "nbd-store",
            "front",
            "manage",
        ],
    ),
    ("roadtrain-exercise", &["wire"]),
    (
        "roadtrain-lab",
        &[
            "wire",
            "proto",
            "host-proto",
            "target-proto",
            "ether-proto",
            "ether-port",
            "host-engine",
            "target-engine",
            "reactor",
            "store",
            "system",
            "front",
        ],
    ),
    ("xtask", &[]),
];

/// External crates that wire and the state machines may use.
const CORE_CRATES: &[(&str, &[&str])] = &[
    ("roadtrain-wire", &["crc-fast", "zerocopy"]),
    (
        "roadtrain-proto",
        &[
            "base64ct",
            "crc-fast",
            "crypto-bigint",
            "hmac",
            "sha2",
            "subtle",
            "thiserror",
            "zeroize",
        ],
    ),
    ("roadtrain-host-proto", &["thiserror"]),
    ("roadtrain-target-proto", &["crc-fast", "thiserror"]),
    ("roadtrain-ether-proto", &["crc-fast", "thiserror"]),
];

/// Words that must not occur in core crates: they handle bytes and states, without system, clock and threads.
const CORE_WITHOUT: &[&str] = &[
    "std::net",
    "std::fs",
    "std::io",
    "std::os",
    "std::thread",
    "std::time::Instant",
    "std::env",
    "std::process",
    "Instant::now",
    "SystemTime",
    "io_uring",
    "libc::",
    "unsafe {",
    "unsafe fn",
    "unsafe impl",
];

/// The core: crates whose root must forbid unsafe code.
const WITHOUT_UNSAFE: &[&str] = &["wire", "proto", "host-proto", "target-proto", "ether-proto"];

/// Fails, naming every breach.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut breaches = wrong_dependencies(root, "Cargo.toml")?;
    breaches.extend(wrong_dependencies(root, "lab/Cargo.toml")?);
    for name in WITHOUT_UNSAFE {
        breaches.extend(forbidden_words(root, &format!("crates/{name}/src"))?);
        let path = format!("crates/{name}/src/lib.rs");
        if !std::fs::read_to_string(root.join(&path))?.contains("#![forbid(unsafe_code)]") {
            breaches.push(format!("{path}: must say #![forbid(unsafe_code)]"));
        }
    }
    if !breaches.is_empty() {
        bail!("layers:\n{}", breaches.join("\n"));
    }
    println!("layers: every crate uses only what it may");
    Ok(())
}

fn wrong_dependencies(root: &Path, workspace: &str) -> Result<Vec<String>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let out = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--format-version=1",
            "--offline",
            "--manifest-path",
            workspace,
        ])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&out.stdout).context("cargo metadata's output")?;
    let mut breaches = Vec::new();
    for package in metadata["packages"].as_array().context("packages")? {
        let name = package["name"].as_str().context("name")?;
        let Some((_, allowed)) = ARROWS.iter().find(|(n, _)| *n == name) else {
            breaches.push(format!("{name}: has no place in the layers (xtask/src/layers.rs)"));
            continue;
        };
        for dependency in package["dependencies"].as_array().context("dependencies")? {
            let used = dependency["name"].as_str().context("name")?;
            let is_normal = dependency["kind"].is_null();
            if is_normal && !may_use(name, allowed, used) {
                breaches.push(format!("{name} must not use {used}"));
            }
        }
    }
    Ok(breaches)
}

fn may_use(name: &str, allowed: &[&str], used: &str) -> bool {
    if let Some(layer) = used.strip_prefix("roadtrain-") {
        return allowed.contains(&layer);
    }
    CORE_CRATES.iter().find(|(n, _)| *n == name).is_none_or(|(_, list)| list.contains(&used))
}

fn forbidden_words(root: &Path, folder: &str) -> Result<Vec<String>> {
    let mut breaches = Vec::new();
    for source in source::files(root, folder)? {
        for (number, line) in source.without_tests().lines().enumerate() {
            for word in CORE_WITHOUT.iter().filter(|word| line.contains(**word)) {
                breaches.push(format!("{}:{}: {word}", source.path, number + 1));
            }
        }
    }
    Ok(breaches)
}

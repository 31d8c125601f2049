//! Findings about described configurations.

use super::*;
use crate::config::ServeConfig;

fn config(text: &str) -> CheckedExport {
    CheckedExport::of_config(&ServeConfig::parse(text).unwrap())
}

fn subsystem(namespace: &str) -> String {
    format!(
        "address = \"127.0.0.1\"\n[[subsystem]]\nnqn = \"nqn.2025-01.io.example:disk\"\n\
         [[subsystem.namespace]]\nnsid = 1\n{namespace}\n"
    )
}

const FILE_512: &str = "kind = \"file\"\npath = \"/disk\"\nsize = \"1GiB\"";
const FILE_4K: &str = "kind = \"file\"\npath = \"/disk\"\nsize = \"1GiB\"\nlba = 4096";
const MEMORY: &str = "kind = \"mem\"\nsize = \"1GiB\"";

/// Checks the state of a check for a host.
fn shows(text: &str, host: ForeignHost, check: &str, state: HostFindingState) {
    let findings = facts::check(host, &config(text));
    let found = findings.iter().find(|finding| finding.check == check);
    let found = found.unwrap_or_else(|| panic!("{check}: {findings:?}"));
    assert_eq!(found.state, state, "{found:?}");
    let has_action = matches!(state, HostFindingState::Problem | HostFindingState::Advice);
    assert_eq!(found.advice.is_some(), has_action, "{found:?}");
}

#[test]
fn esxi_needs_blocks_of_512_bytes() {
    shows(&subsystem(FILE_512), ForeignHost::Esxi, "block size", HostFindingState::Ok);
    shows(&subsystem(FILE_4K), ForeignHost::Esxi, "block size", HostFindingState::Problem);
    shows(&subsystem(FILE_4K), ForeignHost::Kernel, "block size", HostFindingState::Ok);
    shows(&subsystem(FILE_4K), ForeignHost::Spdk, "block size", HostFindingState::Ok);
    shows(&subsystem(FILE_4K), ForeignHost::Windows, "block size", HostFindingState::Unknown);
}

#[test]
fn memory_has_another_identity_each_time() {
    for host in [ForeignHost::Esxi, ForeignHost::Kernel, ForeignHost::Spdk] {
        shows(&subsystem(FILE_512), host, "identity", HostFindingState::Ok);
        shows(&subsystem(MEMORY), host, "identity", HostFindingState::Advice);
        let named = format!("{MEMORY}\nuuid = \"6b1a5e1c-4c52-4a0e-9d0e-3a4f5b6c7d8e\"");
        shows(&subsystem(&named), host, "identity", HostFindingState::Ok);
    }
}

#[test]
fn a_host_needs_an_active_path() {
    let ana = |state| format!("{}[ana]\n\"127.0.0.1:4420\" = \"{state}\"\n", subsystem(FILE_512));
    for (state, expected) in [
        ("inaccessible", HostFindingState::Problem),
        ("non-optimized", HostFindingState::Ok),
        ("optimized", HostFindingState::Ok),
    ] {
        shows(&ana(state), ForeignHost::Esxi, "paths", expected);
    }
}

#[test]
fn short_queues_are_named_to_linux() {
    let limits = format!("{}[limits]\nqueue_size = 64\n", subsystem(FILE_512));
    shows(&limits, ForeignHost::Kernel, "queues", HostFindingState::Advice);
    shows(&subsystem(FILE_512), ForeignHost::Kernel, "queues", HostFindingState::Ok);
}

#[test]
fn a_fact_without_a_source_is_unknown() {
    let export = config(&subsystem(FILE_512));
    for host in [ForeignHost::Esxi, ForeignHost::Windows, ForeignHost::Kernel, ForeignHost::Spdk] {
        for finding in facts::check(host, &CheckedExport { requires_tls: true, ..export.clone() }) {
            let is_unknown = finding.state == HostFindingState::Unknown;
            assert!(finding.source.is_some() || is_unknown, "{host:?}: {finding:?}");
            let has_test =
                finding.tried.starts_with("tried:") || finding.tried.starts_with("not tried");
            assert!(has_test && !finding.requirement.is_empty(), "{host:?}: {finding:?}");
        }
    }
}

#[test]
fn text_has_requirement_test_and_source() {
    let text = text(&facts::check(ForeignHost::Esxi, &config(&subsystem(FILE_4K))));
    for part in ["PROBLEM  block size", "-> serve it with lba=512", "needs: logical blocks of 512"]
    {
        assert!(text.contains(part), "{text}");
    }
    assert!(text.contains("not tried: no ESXi here; source: ceph/ceph-nvmeof issue 158"), "{text}");
    assert!(text.contains("1 problem, "), "{text}");
}

//! Findings about described machines: `machines/` has a good one and a poor one.

use super::machine::{ExaminedMachine, FirewallRules, Listing, MachineProbes};
use super::{Finding, FindingState, examine, text};
use roadtrain_system::platform::{NicChannels, Offloads};
use std::collections::BTreeMap;

#[allow(dead_code, unreachable_pub, reason = "each test uses some of it")]
#[path = "../../../../tests/lib/described.rs"]
mod described;

const GOOD: &str = include_str!("machines/good.txt");
const POOR: &str = include_str!("machines/poor.txt");

const ON: Offloads = Offloads { gro: true, gso: true, tso: true };

fn probes(rules: FirewallRules) -> MachineProbes {
    MachineProbes {
        no_ring: None,
        rules,
        offloads: BTreeMap::from([("eth0".to_owned(), ON)]),
        channels: BTreeMap::from([(
            "eth0".to_owned(),
            NicChannels { combined: 4, combined_max: 8 },
        )]),
    }
}

/// Returns the findings on the good machine with these files changed, and these results.
fn found_with(files: &str, probes: MachineProbes) -> Vec<Finding> {
    let root = described::describe(GOOD);
    described::add(root.path(), files);
    examine(&ExaminedMachine::described(root.path(), probes))
}

fn found(files: &str) -> Vec<Finding> {
    found_with(files, probes(FirewallRules::default()))
}

fn of<'a>(findings: &'a [Finding], check: &str) -> &'a Finding {
    let all = || findings.iter().map(|finding| finding.check.as_str()).collect::<Vec<_>>();
    findings.iter().find(|one| one.check == check).unwrap_or_else(|| panic!("{check}: {:?}", all()))
}

/// Checks that these files lead to this state, and that its line contains the text.
fn shows(files: &str, check: &str, state: FindingState, words: &str) {
    let findings = found(files);
    let finding = of(&findings, check);
    let advice = finding.advice.as_deref().unwrap_or_default();
    assert_eq!(finding.state, state, "{finding:?}");
    assert!(format!("{} {advice}", finding.finding).contains(words), "{finding:?}: {words}");
}

#[test]
fn a_good_machine_needs_nothing() {
    let findings = found("");
    assert!(findings.len() > 20, "{}", text(&findings));
    for finding in &findings {
        assert_eq!(finding.state, FindingState::Ok, "{finding:?}");
        assert_eq!(finding.advice, None, "{finding:?}");
    }
}

#[test]
fn a_poor_machine_gets_all_advice() {
    let root = described::describe(POOR);
    let findings = examine(&ExaminedMachine::described(root.path(), MachineProbes::default()));
    assert_stored_text(&text(&findings), include_str!("machines/poor.out"));
    for finding in &findings {
        assert_eq!(finding.advice.is_none(), finding.state == FindingState::Ok, "{finding:?}");
    }
}

/// Compares the text with the stored one, which shows a reader the whole output.
fn assert_stored_text(text: &str, kept: &str) {
    assert_eq!(text.trim_end(), kept.trim_end(), "if that is right now: machines/poor.out\n{text}");
}

#[test]
fn an_empty_machine_is_no_panic() {
    let root = tempfile::tempdir().unwrap();
    let findings = examine(&ExaminedMachine::described(root.path(), MachineProbes::default()));
    assert!(
        findings.iter().all(|finding| finding.state != FindingState::Problem),
        "{}",
        text(&findings)
    );
}

#[test]
fn this_machine_is_examined() {
    let findings = examine(&ExaminedMachine::this());
    assert_eq!(of(&findings, "io_uring").state, FindingState::Ok, "tests run on rings");
    let json = serde_json::to_value(&findings).unwrap();
    for one in json.as_array().unwrap() {
        let keys: Vec<&String> = one.as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), 4, "{one}");
        assert!(["ok", "advice", "problem"].contains(&one["state"].as_str().unwrap()), "{one}");
    }
}

#[test]
fn kernels_are_compared_by_numbers() {
    for (release, state) in [
        ("5.15.0-91-generic", FindingState::Problem),
        ("6.0.19", FindingState::Problem),
        ("6.1.0-9-amd64", FindingState::Ok),
        ("6.18.4", FindingState::Ok),
        ("10.0", FindingState::Ok),
        ("strange", FindingState::Problem),
    ] {
        shows(&format!("proc/sys/kernel/osrelease = {release}"), "kernel", state, release);
    }
}

#[test]
fn io_uring_may_be_forbidden() {
    shows("proc/sys/kernel/io_uring_disabled = 2", "io_uring", FindingState::Problem, "sysctl -w");
    shows(
        "proc/sys/kernel/io_uring_disabled = 1",
        "io_uring",
        FindingState::Advice,
        "outside a group",
    );
    let refused = MachineProbes {
        no_ring: Some("Cannot allocate memory: raise a limit".into()),
        ..MachineProbes::default()
    };
    let findings = found_with("", refused);
    let finding = of(&findings, "io_uring");
    assert_eq!(finding.state, FindingState::Problem);
    assert_eq!(finding.finding, "no ring can be made: Cannot allocate memory");
    assert_eq!(finding.advice.as_deref(), Some("raise a limit"));
}

#[test]
fn modules_are_loaded_built_in_installed_or_absent() {
    let release = "proc/sys/kernel/osrelease = 6.12.1\n";
    let dep = format!(
        "{release}proc/modules =\nlib/modules/6.12.1/modules.dep = kernel/net/tls/tls.ko.xz: kernel/x.ko"
    );
    shows(&dep, "module tls", FindingState::Advice, "modprobe tls");
    shows(&dep, "module nvme_tcp", FindingState::Ok, "not in this kernel");
    let builtin = format!(
        "{release}lib/modules/6.12.1/modules.builtin = kernel/drivers/nvme/host/nvme-tcp.ko"
    );
    shows(&builtin, "module nvme_tcp", FindingState::Ok, "loaded");
}

#[test]
fn limits_are_the_hard_ones() {
    let files = |soft: &str, hard: &str| {
        format!(
            "proc/self/limits = Limit  Soft  Hard\\nMax open files  {soft}  {hard}  files\\nMax locked memory  1  unlimited  bytes"
        )
    };
    shows(&files("1024", "1048576"), "open files", FindingState::Ok, "1048576");
    shows(&files("1024", "4096"), "open files", FindingState::Advice, "LimitNOFILE");
    shows(&files("64", "128"), "open files", FindingState::Problem, "128");
    shows(&files("64", "unlimited"), "open files", FindingState::Ok, "any number");
}

#[test]
fn rules_of_nft_are_read() {
    let chain = |policy: &str, rules: &str| {
        format!(
            "table inet filter {{\n\tchain input {{\n\t\ttype filter hook input priority 0; policy {policy};\n{rules}\t}}\n}}\n"
        )
    };
    let finding = |text: String| {
        let rules = FirewallRules { nft: Listing::Listed(text), ..FirewallRules::default() };
        of(&found_with("", probes(rules)), "firewall").clone()
    };
    assert_eq!(finding(chain("accept", "")).state, FindingState::Ok);
    let closed = finding(chain("drop", "\t\ttcp dport 22 accept\n"));
    assert_eq!(closed.state, FindingState::Advice);
    assert!(closed.advice.unwrap().contains("nft insert rule inet filter input tcp dport"));
    let half =
        finding(chain("drop", "\t\ttcp dport { 22, 4420 } counter packets 0 bytes 0 accept\n"));
    assert!(half.finding.ends_with("port 8009"), "{half:?}");
    assert_eq!(
        finding(chain("drop", "\t\ttcp dport { 22, 4000-9000 } accept\n")).state,
        FindingState::Ok
    );
    let refused = finding(chain("accept", "\t\ttcp dport 4420 reject with tcp reset\n"));
    assert_eq!(refused.state, FindingState::Problem);
    assert_eq!(finding(chain("accept", "\t\ttcp sport 4420 drop\n")).state, FindingState::Ok);
}

#[test]
fn rules_of_iptables_are_read() {
    let finding = |text: &str| {
        let rules = FirewallRules {
            iptables: Listing::Listed(text.to_owned()),
            ..FirewallRules::default()
        };
        of(&found_with("", probes(rules)), "firewall").clone()
    };
    assert_eq!(finding("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n").state, FindingState::Ok);
    assert_eq!(
        finding("*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\n").state,
        FindingState::Advice
    );
    let open = "*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp -m multiport --dports 22,4420,8000:8010 -j ACCEPT\n";
    assert_eq!(finding(open).state, FindingState::Ok);
    assert_eq!(
        finding("*filter\n-A INPUT -p tcp -m tcp --dport 8009 -j DROP\n").state,
        FindingState::Problem
    );
    let rules = FirewallRules {
        nft: Listing::Refused("Operation not permitted".into()),
        ..FirewallRules::default()
    };
    let findings = found_with("", probes(rules));
    assert!(of(&findings, "firewall").advice.as_deref().unwrap().contains("sudo"));
}

#[test]
fn cards_are_checked_for_queues_interrupts_and_frames() {
    let few = "sys/devices/system/cpu/online = 0-7";
    shows(few, "eth0 queues", FindingState::Advice, "ethtool -L eth0 combined 8");
    let one_core =
        "proc/irq/40/effective_affinity_list = 2\nproc/irq/41/effective_affinity_list = 2";
    shows(one_core, "eth0 interrupts", FindingState::Advice, "irqbalance");
    shows("sys/class/net/eth0/mtu = 1500", "eth0 MTU", FindingState::Advice, "mtu 9000");
    shows(
        "sys/class/net/eth0/queues/rx-0/rps_cpus = f",
        "eth0 RPS, RFS",
        FindingState::Advice,
        "rps_flow_cnt",
    );
    shows("sys/class/net/eth0/operstate = down", "eth0", FindingState::Ok, "down");
    let mut off = probes(FirewallRules::default());
    off.offloads.insert("eth0".to_owned(), Offloads { gro: false, gso: true, tso: false });
    let findings = found_with("", off);
    let advice = of(&findings, "eth0 offloads").advice.as_deref();
    assert_eq!(advice, Some("sudo ethtool -K eth0 gro on tso on"));
}

#[test]
fn ports_in_use_are_seen() {
    let line = "proc/net/tcp6 = sl local_address\\n 0: 00000000000000000000000000000000:1144 00000000000000000000000000000000:0000 0A 0:0";
    shows(line, "ports", FindingState::Ok, "a process listens at 4420");
    shows(
        "sys/kernel/config/nvmet/ports/1/addr_trsvcid = 4420",
        "ports",
        FindingState::Advice,
        "nvmet",
    );
}

//! Firewall rules that may keep hosts from a target here. The check reads what rules say about ports. It does not
//! evaluate which rule decides for a packet, so its result is advice.

use super::Finding;
use super::machine::{ExaminedMachine, Listing};
use super::network::PORTS;

const CHECK: &str = "firewall";

/// Action of a rule for a port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RuleAction {
    Accepts,
    Refuses,
}

/// Checks for rules that block 4420 or 8009.
pub(super) fn rules(machine: &ExaminedMachine) -> Vec<Finding> {
    let rules = &machine.probes.rules;
    let mut findings = Vec::new();
    for (program, listing) in [("nft", &rules.nft), ("iptables", &rules.iptables)] {
        match listing {
            Listing::Absent => {}
            Listing::Refused(why) => findings.push(Finding::advice(
                CHECK,
                format!("{program} does not list its rules: {why}"),
                "sudo roadtrain doctor",
            )),
            Listing::Listed(text) => findings.extend(of(program, text)),
        }
    }
    if findings.is_empty() {
        let seen =
            matches!(rules.nft, Listing::Listed(_)) || matches!(rules.iptables, Listing::Listed(_));
        findings.push(Finding::ok(
            CHECK,
            if seen {
                "no rule blocks 4420 and 8009"
            } else {
                "neither nft nor iptables is installed"
            },
        ));
    }
    findings
}

/// Returns the findings in a listing.
fn of(program: &str, text: &str) -> Vec<Finding> {
    let names = PORTS.map(|port| (port, verdict(text, port)));
    let refused = names.iter().find(|(_, verdict)| *verdict == Some(RuleAction::Refuses));
    if let Some((port, _)) = refused {
        let show = if program == "nft" { "nft -a list ruleset" } else { "iptables -S" };
        return vec![Finding::problem(
            CHECK,
            format!("a rule of {program} refuses port {port}"),
            format!("check it and remove it: sudo {show} | grep {port}"),
        )];
    }
    let Some(chain) = closed_chain(text) else { return Vec::new() };
    let closed: Vec<String> = names
        .iter()
        .filter(|(_, verdict)| verdict.is_none())
        .map(|(port, _)| port.to_string())
        .collect();
    if closed.is_empty() {
        return Vec::new();
    }
    let open = match program {
        "nft" => format!("sudo nft insert rule {chain} tcp dport '{{ 4420, 8009 }}' accept"),
        _ => "sudo iptables -I INPUT -p tcp -m multiport --dports 4420,8009 -j ACCEPT".to_owned(),
    };
    vec![Finding::advice(
        CHECK,
        format!(
            "{program} drops what no rule accepts, and no rule names port {}",
            closed.join(" and ")
        ),
        format!("to serve from here: {open}"),
    )]
}

/// Returns the action of the first rule that names the port.
fn verdict(text: &str, port: u16) -> Option<RuleAction> {
    text.lines().filter(|line| names_port(line, port)).find_map(|line| {
        let mut words = line.split_whitespace();
        words.find_map(|word| match word {
            "accept" | "ACCEPT" => Some(RuleAction::Accepts),
            "drop" | "reject" | "DROP" | "REJECT" => Some(RuleAction::Refuses),
            _ => None,
        })
    })
}

/// True if a rule matches the port as destination: `dport 4420`, `dport { 22, 4420-4430 }`, `--dport 4420:4430`,
/// `--dports 22,4420`.
fn names_port(line: &str, port: u16) -> bool {
    let after = ["dport ", "--dports "].iter().find_map(|key| Some(line.split_once(key)?.1));
    let Some(after) = after else { return false };
    let after = after.trim_start();
    let list = match after.strip_prefix('{') {
        Some(set) => set.split('}').next().unwrap_or_default(),
        None => after.split_whitespace().next().unwrap_or_default(),
    };
    list.split(',').any(|part| {
        let part = part.trim();
        let (first, last) = part.split_once(['-', ':']).unwrap_or((part, part));
        match (first.parse::<u16>(), last.parse::<u16>()) {
            (Ok(first), Ok(last)) => (first..=last).contains(&port),
            _ => false,
        }
    })
}

/// Returns a chain for incoming packets that drops packets which no rule accepts.
fn closed_chain(text: &str) -> Option<String> {
    let (mut table, mut chain) = ("", "");
    for line in text.lines().map(str::trim) {
        if line.starts_with(":INPUT DROP") {
            return Some("INPUT".to_owned());
        }
        if let Some(name) = line.strip_prefix("table ") {
            table = name.trim_end_matches('{').trim();
        } else if let Some(name) = line.strip_prefix("chain ") {
            chain = name.trim_end_matches('{').trim();
        } else if line.contains("hook input") && line.contains("policy drop") {
            return Some(format!("{table} {chain}"));
        }
    }
    None
}

//! `roadtrain doctor`: checks the machine and gives advice. Nothing is changed.
//!
//! | file | checks |
//! |---|---|
//! | `machine` | nothing: it is the input of the checks, this machine or a described one |
//! | `kernel` | version, io_uring, modules |
//! | `memory` | free memory, huge pages, NUMA nodes |
//! | `limits` | descriptors, locked memory, capabilities |
//! | `processor` | clock, frequency |
//! | `interfaces` | each network interface: queues, interrupts, MTU, offloads |
//! | `network` | TCP's settings, ports in use |
//! | `firewall` | rules that may block |
//! | `hosts` | a configuration, for hosts of other makers (`--for`) |
//! | `fronts` | ublk, FUSE, loop devices, librbd |
//!
//! A check is a function from a [`ExaminedMachine`] to its findings.

mod firewall;
mod fronts;
mod hosts;
mod interfaces;
mod kernel;
mod limits;
mod machine;
mod memory;
mod network;
mod processor;
#[cfg(test)]
mod tests;

use crate::args::{DoctorArgs, GlobalArgs};
use crate::failure::{CommandFailure, CommandResult};
use crate::output;
use machine::ExaminedMachine;
use serde::Serialize;

/// State of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum FindingState {
    /// No change is needed.
    Ok,
    /// Works, and could be better.
    Advice,
    /// A function does not work before this is done.
    Problem,
}

/// Finding of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    /// Name of the check.
    check: String,
    state: FindingState,
    /// The observed state.
    finding: String,
    /// Action with its command; `None` if none is needed.
    advice: Option<String>,
}

impl Finding {
    fn ok(check: &str, finding: impl Into<String>) -> Finding {
        let (check, finding) = (check.to_owned(), finding.into());
        Finding { check, state: FindingState::Ok, finding, advice: None }
    }

    fn advice(check: &str, finding: impl Into<String>, advice: impl Into<String>) -> Finding {
        let advice = Some(advice.into());
        Finding { state: FindingState::Advice, advice, ..Finding::ok(check, finding) }
    }

    fn problem(check: &str, finding: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { state: FindingState::Problem, ..Finding::advice(check, finding, advice) }
    }
}

type DoctorCheck = fn(&ExaminedMachine) -> Vec<Finding>;

/// The checks, in the order of display.
const CHECKS: &[DoctorCheck] = &[
    kernel::version,
    kernel::io_uring,
    kernel::modules,
    memory::free,
    memory::transparent,
    memory::reserved,
    memory::nodes,
    limits::open_files,
    limits::locked_memory,
    limits::capabilities,
    processor::clock,
    processor::frequency,
    interfaces::all,
    network::congestion_control,
    network::buffers,
    network::ports,
    firewall::rules,
    fronts::ublk,
    fronts::fuse,
    fronts::loop_devices,
    fronts::librbd,
];

/// `roadtrain doctor`
pub(crate) fn run(args: &DoctorArgs, global: &GlobalArgs) -> CommandResult {
    if let Some(host) = args.host {
        return hosts::run(args, host, global.json);
    }
    let findings = examine(&ExaminedMachine::this());
    match global.json {
        true => output::json(&findings)?,
        false => output::line(&text(&findings))?,
    }
    match findings.iter().any(|finding| finding.state == FindingState::Problem) {
        true => Err(CommandFailure::failed("")),
        false => Ok(()),
    }
}

fn examine(machine: &ExaminedMachine) -> Vec<Finding> {
    CHECKS.iter().flat_map(|check| check(machine)).collect()
}

fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { check, state, finding, advice } in findings {
        let state = match state {
            FindingState::Ok => "ok",
            FindingState::Advice => "advice",
            FindingState::Problem => "PROBLEM",
        };
        text.push_str(&format!("{state:<7}  {check:<width$}  {finding}\n"));
        if let Some(advice) = advice {
            text.push_str(&format!("{:<width$}           -> {advice}\n", ""));
        }
    }
    let count = |wanted| findings.iter().filter(|finding| finding.state == wanted).count();
    let (ok, advice, problems) =
        (count(FindingState::Ok), count(FindingState::Advice), count(FindingState::Problem));
    text + &format!(
        "\n{ok} ok, {advice} advice, {problems} problem{}",
        if problems == 1 { "" } else { "s" }
    )
}

//! `roadtrain doctor --for HOST`: checks a configuration, or a running target, against the public facts about hosts of
//! other makers. Each finding has its source, and says whether it was tried with that host.
//!
//! | file | contents |
//! |---|---|
//! | `export` | the checked properties, of a configuration file or of a running target |
//! | `facts` | the requirements of each host, with their sources |

mod export;
mod facts;
#[cfg(test)]
mod tests;

use crate::args::{DoctorArgs, ForeignHost};
use crate::config::ServeConfig;
use crate::failure::{CommandFailure, CommandResult};
use crate::output;
use crate::running;
use crate::status::target::TargetReport;
use export::CheckedExport;
use serde::Serialize;

/// State of a finding about a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum HostFindingState {
    /// It fits.
    Ok,
    /// It fits, and could be better.
    Advice,
    /// It does not fit: the host cannot use the namespace or the target.
    Problem,
    /// No public source says what the host needs.
    Unknown,
}

/// Finding about a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct HostFinding {
    /// Name of the check.
    check: &'static str,
    state: HostFindingState,
    /// Requirement of the host.
    requirement: &'static str,
    /// The value found.
    finding: String,
    /// Action; `None` if none is needed.
    advice: Option<String>,
    /// Test with this host, or the reason why there was none.
    tried: &'static str,
    /// Title of the public source; `None` if there is none.
    source: Option<&'static str>,
}

/// Checks for a host, and prints the findings.
///
/// # Errors
/// The configuration cannot be read, no such target runs, or something does not fit.
pub(super) fn run(args: &DoctorArgs, host: ForeignHost, json: bool) -> CommandResult {
    let export = match &args.config {
        Some(path) => CheckedExport::of_config(&ServeConfig::read(path)?),
        None => CheckedExport::of_target(&running_target(args.id.as_deref())?)?,
    };
    let findings = facts::check(host, &export);
    match json {
        true => output::json(&findings)?,
        false => output::line(&text(&findings))?,
    }
    match findings.iter().any(|finding| finding.state == HostFindingState::Problem) {
        true => Err(CommandFailure::failed("")),
        false => Ok(()),
    }
}

/// Returns the report of the target with this name; without one of the only target here.
fn running_target(id: Option<&str>) -> CommandResult<TargetReport> {
    let names: Vec<String> = id.map(str::to_owned).into_iter().collect();
    let mut targets = running::find(&names)?.served;
    match (targets.pop(), targets.is_empty()) {
        (Some((entry, socket)), true) => Ok(crate::status::target(&entry, &socket)),
        (None, _) => Err(CommandFailure::usage(
            "no target runs here: use --config FILE to check one that does not run",
        )),
        (Some(_), false) => Err(CommandFailure::usage(
            "several targets run here: name one with --id, or a file with --config",
        )),
    }
}

fn text(findings: &[HostFinding]) -> String {
    let width = findings.iter().map(|finding| finding.check.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for one in findings {
        let state = match one.state {
            HostFindingState::Ok => "ok",
            HostFindingState::Advice => "advice",
            HostFindingState::Problem => "PROBLEM",
            HostFindingState::Unknown => "unknown",
        };
        let HostFinding { check, requirement, finding, tried, .. } = one;
        text.push_str(&format!("{state:<7}  {check:<width$}  {finding}\n"));
        let mut line = |part: &str| text.push_str(&format!("{:<width$}           {part}\n", ""));
        if let Some(advice) = &one.advice {
            line(&format!("-> {advice}"));
        }
        line(&format!("needs: {requirement}"));
        line(&match one.source {
            Some(source) => format!("{tried}; source: {source}"),
            None => format!("{tried}; no public source"),
        });
    }
    let count = |wanted| findings.iter().filter(|finding| finding.state == wanted).count();
    let (ok, advice) = (count(HostFindingState::Ok), count(HostFindingState::Advice));
    let (problems, unknown) = (count(HostFindingState::Problem), count(HostFindingState::Unknown));
    let plural = if problems == 1 { "" } else { "s" };
    text + &format!("\n{ok} ok, {advice} advice, {problems} problem{plural}, {unknown} unknown")
}

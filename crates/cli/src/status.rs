//! `roadtrain status`: the state of attachments and targets here, with their problems.

mod prometheus;
mod proof;
pub(crate) mod report;
pub(crate) mod subflows;
pub(crate) mod target;
pub(crate) mod waiting;

use crate::args::{GlobalArgs, StatusArgs};
use crate::control::Call;
use crate::failure::{CommandFailure, CommandResult};
use crate::registry::{self, AttachmentEntry, AttachmentPhase, TargetEntry};
use crate::running::{self, RunningEntries};
use crate::{logs, output};
use report::{AttachmentReport, AttachmentState};
use serde::Serialize;
use std::io::IsTerminal;
use std::path::Path;
use std::thread;
use target::{TargetReport, TargetState};

/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[J";

/// An attachment or a target.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ShownProcess {
    Attachment(AttachmentReport),
    Target(TargetReport),
}

impl ShownProcess {
    fn text(&self) -> String {
        match self {
            ShownProcess::Attachment(report) => report.text(),
            ShownProcess::Target(report) => report.text(),
        }
    }
}

/// `roadtrain status`
pub(crate) fn run(args: &StatusArgs, global: &GlobalArgs) -> CommandResult {
    logs::start("warn", global.verbose);
    let query = || query(&args.names, &args.traddr);
    if args.prometheus {
        return prometheus::run(&args.names);
    }
    let Some(period) = args.watch else {
        let shown = query()?;
        if global.json { output::json(&shown) } else { output::line(&text(&shown)) }?;
        return judge(&shown);
    };
    let mut before: Vec<ShownProcess> = Vec::new();
    loop {
        let mut shown = query()?;
        for one in &mut shown {
            since(one, &before);
        }
        let text = if global.json {
            serde_json::to_string(&shown).map_err(std::io::Error::from)?
        } else {
            let clear = if std::io::stdout().is_terminal() { CLEAR } else { "" };
            format!("{clear}{}", text(&shown))
        };
        if !output::line_is_read(&text)? {
            return Ok(());
        }
        before = shown;
        thread::sleep(period);
    }
}

/// Sets the rates of an attachment to those since the sample `before`.
fn since(shown: &mut ShownProcess, before: &[ShownProcess]) {
    let ShownProcess::Attachment(report) = shown else { return };
    for before in before {
        if let ShownProcess::Attachment(before) = before
            && before.pid == report.pid
        {
            report.since(before);
        }
    }
}

/// Queries attachments, then targets, with these names and addresses.
fn query(names: &[String], addresses: &[String]) -> CommandResult<Vec<ShownProcess>> {
    let RunningEntries { attached, served } = running::find(names)?.at(addresses)?;
    let attached =
        attached.iter().map(|(entry, at)| ShownProcess::Attachment(attachment(entry, at)));
    let served = served.iter().map(|(entry, at)| ShownProcess::Target(target(entry, at)));
    Ok(attached.chain(served).collect())
}

fn attachment(entry: &AttachmentEntry, socket: &Path) -> AttachmentReport {
    if !entry.process.is_alive() {
        return AttachmentReport::without_process(entry, AttachmentState::Gone, None);
    }
    if entry.phase == AttachmentPhase::Starting {
        return AttachmentReport::without_process(entry, AttachmentState::Starting, None);
    }
    let report = running::query((socket, entry.process.owner), &Call::Status);
    report.unwrap_or_else(|error| {
        AttachmentReport::without_process(entry, AttachmentState::Silent, Some(error))
    })
}

/// Returns the report of a target.
pub(crate) fn target(entry: &TargetEntry, socket: &Path) -> TargetReport {
    if !entry.process.is_alive() {
        let error = "its process has ended, and nothing serves its disks".into();
        return TargetReport::without_process(entry, TargetState::Gone, error);
    }
    let report = running::query((socket, entry.process.owner), &Call::Status);
    report.unwrap_or_else(|error| TargetReport::without_process(entry, TargetState::Silent, error))
}

/// Formats a process ID, with its user if that is another one.
pub(crate) fn process(pid: u32, uid: u32) -> String {
    match uid == registry::ProcessIdentity::this().owner {
        true => pid.to_string(),
        false => format!("{pid} of user {uid}"),
    }
}

fn text(shown: &[ShownProcess]) -> String {
    if shown.is_empty() {
        return "nothing is attached or served here".into();
    }
    shown.iter().map(ShownProcess::text).collect::<Vec<_>>().join("\n")
}

/// Returns the exit status for the worst state. A dead or unresponsive process counts more than an attachment without
/// its target, and that more than a problem of a usable one.
fn judge(shown: &[ShownProcess]) -> CommandResult {
    let (mut ended, mut away, mut impaired) = (Vec::new(), Vec::new(), Vec::new());
    for one in shown {
        match one {
            ShownProcess::Target(TargetReport { id, state, .. })
                if *state != TargetState::Serving =>
            {
                ended.push(format!("{id} is {state}"));
            }
            ShownProcess::Target(TargetReport { id, problems, .. }) => {
                impaired.extend(problems.iter().map(|problem| format!("{id}: {problem}")));
            }
            ShownProcess::Attachment(report) => match (report.state, &report.id) {
                (state @ (AttachmentState::Gone | AttachmentState::Silent), id) => {
                    ended.push(format!("{id} is {state}"))
                }
                (AttachmentState::Reconnecting | AttachmentState::Failing, _) => away.push(report),
                (_, id) => {
                    impaired
                        .extend(report.problems.iter().map(|problem| format!("{id}: {problem}")));
                }
            },
        }
    }
    if !ended.is_empty() {
        let advice = "`roadtrain detach` removes what is left";
        return Err(CommandFailure::failed(format!("{}: {advice}", ended.join(", "))));
    }
    if !away.is_empty() {
        return Err(CommandFailure::connect(without_target(&away)));
    }
    if impaired.is_empty() { Ok(()) } else { Err(CommandFailure::failed(impaired.join(", "))) }
}

/// Names attachments that have no connection, with the reason.
fn without_target(away: &[&AttachmentReport]) -> String {
    let names: Vec<String> = away.iter().map(|of| format!("{} is {}", of.id, of.state)).collect();
    let reasons: Vec<&str> = away.iter().filter_map(|report| report.error.as_deref()).collect();
    let reasons = reasons.join(", ");
    let why = if reasons.is_empty() { "is the target running?" } else { &reasons };
    format!("{}: {why}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FailureKind;
    use crate::registry::Registry;

    #[test]
    fn the_worst_decides() {
        let spec = "ublk".parse().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let registry = Registry::at(directory.path());
        let claim = crate::registry::AttachmentClaim {
            id: None,
            spec: &spec,
            address: String::new(),
            nqn: String::new(),
        };
        let _place = registry.claim(&claim).unwrap();
        let entry = registry.entries().unwrap().remove(0);
        let with_problems = |states: &[AttachmentState]| {
            let reports: Vec<_> = states
                .iter()
                .map(|s| {
                    ShownProcess::Attachment(AttachmentReport::without_process(&entry, *s, None))
                })
                .collect();
            judge(&reports).map_err(|failure| failure.kind)
        };
        assert_eq!(with_problems(&[]), Ok(()));
        assert_eq!(with_problems(&[AttachmentState::Connected, AttachmentState::Starting]), Ok(()));
        assert_eq!(
            with_problems(&[AttachmentState::Connected, AttachmentState::Failing]),
            Err(FailureKind::Connect)
        );
        assert_eq!(
            with_problems(&[AttachmentState::Reconnecting, AttachmentState::Gone]),
            Err(FailureKind::Failed)
        );
        assert_eq!(attachment(&entry, Path::new("/nowhere")).state, AttachmentState::Starting);
        let mut report =
            AttachmentReport::without_process(&entry, AttachmentState::Connected, None);
        report.problems = vec!["path 192.0.2.7:4420 is lost".into()];
        assert_eq!(
            judge(&[ShownProcess::Attachment(report)]).unwrap_err().kind,
            FailureKind::Failed
        );
    }
}

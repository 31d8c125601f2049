//! `roadtrain status`: how it stands with what is attached and served here.

mod prometheus;
pub(crate) mod report;
pub(crate) mod target;
pub(crate) mod waiting;

use crate::args::{GlobalArgs, StatusArgs};
use crate::connect::split_port;
use crate::control::Call;
use crate::failure::{Failure, Outcome};
use crate::registry::{Entry, Phase, Registry, TargetEntry, Targets};
use crate::{logs, output, running};
use report::{Report, State};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::IsTerminal;
use std::path::Path;
use std::thread;
use target::{TargetReport, TargetState};

/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Whatever runs here.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Shown {
    Attachment(Report),
    Target(TargetReport),
}

impl Shown {
    fn text(&self) -> String {
        match self {
            Shown::Attachment(report) => report.text(),
            Shown::Target(report) => report.text(),
        }
    }
}

/// `roadtrain status`
pub(crate) fn run(args: &StatusArgs, global: &GlobalArgs) -> Outcome {
    logs::start("warn", global.verbose);
    let query = || Ok::<_, Failure>(at_addresses(query(&args.names)?, &args.traddr));
    for address in args.traddr.iter().filter(|address| !address.starts_with("ether:")) {
        split_port(running::without_tcp(address), 0)?;
    }
    if args.prometheus {
        return prometheus::run(&args.names);
    }
    let Some(period) = args.watch else {
        let shown = query()?;
        if global.json { output::json(&shown) } else { output::line(&text(&shown)) }?;
        return judge(&shown);
    };
    let mut before: Vec<Shown> = Vec::new();
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

/// Attachments with a path to one of the addresses; all if there is none.
fn at_addresses(mut shown: Vec<Shown>, addresses: &[String]) -> Vec<Shown> {
    let is_at = |place: &str| running::is_at(place, addresses);
    shown.retain(|shown| match shown {
        _ if addresses.is_empty() => true,
        Shown::Attachment(report) => {
            let paths = report.inside.iter().flat_map(|inside| &inside.paths);
            is_at(&report.address) || paths.into_iter().any(|path| is_at(&path.address))
        }
        Shown::Target(_) => false,
    });
    shown
}

/// Shows the rates of an attachment since the look `before`.
fn since(shown: &mut Shown, before: &[Shown]) {
    let Shown::Attachment(report) = shown else { return };
    for before in before {
        if let Shown::Attachment(before) = before
            && before.pid == report.pid
        {
            report.since(before);
        }
    }
}

/// Attachments, then targets.
fn query(names: &[String]) -> Outcome<Vec<Shown>> {
    let (registry, targets) = (Registry::of_user(), Targets::of_user());
    let (entries, served) = running::find(names)?;
    let attachments = entries.iter().map(|entry| Shown::Attachment(ask(&registry, entry)));
    let served = served.iter().map(|target| Shown::Target(ask_target(&targets, target)));
    Ok(attachments.chain(served).collect())
}

fn ask(registry: &Registry, entry: &Entry) -> Report {
    if !entry.process.is_alive() {
        return Report::outside(entry, State::Gone);
    }
    if entry.phase == Phase::Starting {
        return Report::outside(entry, State::Starting);
    }
    let silent = |error| Report { error: Some(error), ..Report::outside(entry, State::Silent) };
    status_at(&registry.control_socket(&entry.id)).unwrap_or_else(silent)
}

fn ask_target(targets: &Targets, entry: &TargetEntry) -> TargetReport {
    let silent = |error| TargetReport::silent(entry, error);
    status_at(&targets.control_socket(&entry.id)).unwrap_or_else(silent)
}

/// What a process says of itself, or why it does not.
fn status_at<T: DeserializeOwned>(socket: &Path) -> Result<T, String> {
    running::ask(socket, &Call::Status)
}

fn text(shown: &[Shown]) -> String {
    if shown.is_empty() {
        return "nothing is attached or served here".into();
    }
    shown.iter().map(Shown::text).collect::<Vec<_>>().join("\n")
}

/// The exit status: the worst of what was seen.
fn judge(shown: &[Shown]) -> Outcome {
    let bad = shown.iter().filter_map(|one| match one {
        Shown::Target(target) if target.state != TargetState::Serving => Some(target),
        _ => None,
    });
    let bad: Vec<String> = bad.map(|target| format!("{} is {}", target.id, target.state)).collect();
    let reports = shown.iter().filter_map(|one| match one {
        Shown::Attachment(report) => Some(report),
        Shown::Target(_) => None,
    });
    let reports: Vec<&Report> = reports.collect();
    let all = |states: &[State]| {
        let bad = reports.iter().filter(|report| states.contains(&report.state));
        let bad: Vec<String> = bad.map(|r| format!("{} is {}", r.id, r.state)).collect();
        (!bad.is_empty()).then(|| bad.join(", "))
    };
    if let Some(bad) = all(&[State::Gone, State::Silent]) {
        return Err(Failure::failed(format!("{bad}: `roadtrain detach` removes what is left")));
    }
    if !bad.is_empty() {
        return Err(Failure::failed(bad.join(", ")));
    }
    let Some(bad) = all(&[State::Reconnecting, State::Failing]) else { return Ok(()) };
    let reasons: Vec<&str> = reports.iter().filter_map(|report| report.error.as_deref()).collect();
    let reasons = reasons.join(", ");
    let why = if reasons.is_empty() { "is the target running?" } else { &reasons };
    Err(Failure::connect(format!("{bad}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn the_worst_decides() {
        let spec = "ublk".parse().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let registry = Registry::at(directory.path());
        let claim = crate::registry::Claim {
            id: None,
            spec: &spec,
            address: String::new(),
            nqn: String::new(),
        };
        let _place = registry.claim(&claim).unwrap();
        let entry = registry.entries().unwrap().remove(0);
        let judged = |states: &[State]| {
            let reports: Vec<_> =
                states.iter().map(|s| Shown::Attachment(Report::outside(&entry, *s))).collect();
            judge(&reports).map_err(|failure| failure.kind)
        };
        assert_eq!(judged(&[]), Ok(()));
        assert_eq!(judged(&[State::Connected, State::Starting]), Ok(()));
        assert_eq!(judged(&[State::Connected, State::Failing]), Err(Kind::Connect));
        assert_eq!(judged(&[State::Reconnecting, State::Gone]), Err(Kind::Failed));
        assert_eq!(ask(&registry, &entry).state, State::Starting);
    }
}

//! `roadtrain status`: how it stands with what is attached here.

pub(crate) mod report;

use crate::args::{GlobalArgs, StatusArgs};
use crate::failure::{Failure, Outcome};
use crate::registry::{Entry, Phase, Registry, control};
use crate::{logs, output};
use report::{Report, State};
use std::io::{ErrorKind, IsTerminal};
use std::thread;

/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[J";

/// `roadtrain status`
pub(crate) fn run(args: &StatusArgs, global: &GlobalArgs) -> Outcome {
    logs::start("warn", global.verbose);
    let registry = Registry::of_user();
    let Some(period) = args.watch else {
        let reports = look(&registry, &args.names)?;
        if global.json { output::json(&reports) } else { output::line(&text(&reports)) }?;
        return judge(&reports);
    };
    let mut before: Vec<Report> = Vec::new();
    loop {
        let mut reports = look(&registry, &args.names)?;
        for report in &mut reports {
            if let Some(before) = before.iter().find(|before| before.pid == report.pid) {
                report.since(before);
            }
        }
        let text = if global.json {
            serde_json::to_string(&reports).map_err(std::io::Error::from)?
        } else {
            let clear = if std::io::stdout().is_terminal() { CLEAR } else { "" };
            format!("{clear}{}", text(&reports))
        };
        if !output::line_is_read(&text)? {
            return Ok(());
        }
        before = reports;
        thread::sleep(period);
    }
}

fn look(registry: &Registry, names: &[String]) -> Outcome<Vec<Report>> {
    let mut entries = Vec::new();
    for name in names {
        entries.extend(registry.find_some(name)?);
    }
    if names.is_empty() {
        entries = registry.entries()?;
    }
    entries.sort_by(|a, b| a.id.cmp(&b.id));
    entries.dedup_by(|a, b| a.id == b.id);
    Ok(entries.iter().map(|entry| ask(registry, entry)).collect())
}

fn ask(registry: &Registry, entry: &Entry) -> Report {
    if !entry.process.is_alive() {
        return Report::outside(entry, State::Gone);
    }
    if entry.phase == Phase::Starting {
        return Report::outside(entry, State::Starting);
    }
    let answer = control::ask(&registry.control_socket(&entry.id), control::STATUS);
    match answer.map(|text| serde_json::from_str(&text)) {
        Ok(Ok(report)) => report,
        Ok(Err(error)) => {
            let error = Some(format!("an answer that makes no sense: {error}"));
            Report { error, ..Report::outside(entry, State::Silent) }
        }
        Err(error) => {
            let error = match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => "its process does not answer".into(),
                _ => error.to_string(),
            };
            let error = Some(error);
            Report { error, ..Report::outside(entry, State::Silent) }
        }
    }
}

fn text(reports: &[Report]) -> String {
    if reports.is_empty() {
        return "nothing is attached here".into();
    }
    reports.iter().map(Report::text).collect::<Vec<_>>().join("\n")
}

/// The exit status: the worst of what was seen.
fn judge(reports: &[Report]) -> Outcome {
    let all = |states: &[State]| {
        let bad = reports.iter().filter(|report| states.contains(&report.state));
        let bad: Vec<String> = bad.map(|r| format!("{} is {}", r.id, r.state)).collect();
        (!bad.is_empty()).then(|| bad.join(", "))
    };
    if let Some(bad) = all(&[State::Gone, State::Silent]) {
        return Err(Failure::failed(format!("{bad}: `roadtrain detach` removes what is left")));
    }
    match all(&[State::Reconnecting, State::Failing]) {
        Some(bad) => Err(Failure::connect(format!("{bad}: is the target running?"))),
        None => Ok(()),
    }
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
            let reports: Vec<_> = states.iter().map(|s| Report::outside(&entry, *s)).collect();
            judge(&reports).map_err(|failure| failure.kind)
        };
        assert_eq!(judged(&[]), Ok(()));
        assert_eq!(judged(&[State::Connected, State::Starting]), Ok(()));
        assert_eq!(judged(&[State::Connected, State::Failing]), Err(Kind::Connect));
        assert_eq!(judged(&[State::Reconnecting, State::Gone]), Err(Kind::Failed));
        assert_eq!(ask(&registry, &entry).state, State::Starting);
    }
}

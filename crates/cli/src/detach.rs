//! `roadtrain detach`: ends attachments, and removes leftovers of dead ones.

use crate::args::{DetachArgs, GlobalArgs};
use crate::control::socket;
use crate::failure::{CommandFailure, CommandResult};
use crate::registry::{AttachmentEntry, Cleared, Registry, TargetEntry, Targets};
use crate::signals::{BlockedSignals, Signal};
use crate::units::show_seconds;
use crate::{logs, output, terminal};
use roadtrain_front::system_resource::SystemResource;
use rustix::process::Signal as KillSignal;
use serde::Serialize;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Interval between checks whether a process has ended.
const POLL: Duration = Duration::from_millis(20);
/// Time limit for a killed process to disappear, with its memory and sockets.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// How an attachment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum DetachOutcome {
    /// It ended by itself, in order.
    Clean,
    /// It was killed.
    Killed,
    /// Its process had ended before.
    Gone,
    /// Its process cannot be killed.
    Stuck,
    /// It has not ended yet, and is not waited for: the terminal is gone.
    Left,
}

impl DetachOutcome {
    fn is_bad(self) -> bool {
        matches!(self, DetachOutcome::Killed | DetachOutcome::Stuck | DetachOutcome::Left)
    }
}

/// Result for an attachment.
#[derive(Clone, Debug, Serialize)]
struct DetachReport {
    id: String,
    /// Name of its first device.
    name: String,
    /// Names of all its devices.
    names: Vec<String>,
    how: DetachOutcome,
    /// Losses that its process reported.
    lost: Vec<String>,
    /// Resources that were removed.
    removed: Vec<String>,
    /// Resources that could not be removed, with the reason.
    stuck: Vec<String>,
}

/// `roadtrain detach`
pub(crate) fn run(args: &DetachArgs, global: &GlobalArgs) -> CommandResult {
    logs::start("warn", global.verbose);
    let registry = Registry::of_user();
    let (entries, served) = find_named(&registry, args)?;
    let signals = BlockedSignals::block()?;
    let ends = end_all(&registry, &entries, args.timeout, &signals);
    let mut detached = clear_targets(&served)?;
    for (entry, (how, lost)) in entries.iter().zip(ends) {
        let is_there = matches!(how, DetachOutcome::Stuck | DetachOutcome::Left);
        let cleared = if is_there { Cleared::default() } else { registry.clear(entry)? };
        let (id, name, names) = (entry.id.clone(), entry.name().to_owned(), entry.device_names());
        let Cleared { removed, mut stuck } = cleared;
        stuck.extend(entry.resources().iter().filter(|one| one.is_in_use()).map(in_use));
        detached.push(DetachReport { id, name, names, how, lost, removed, stuck });
    }
    if global.json {
        output::json(&detached)?;
    } else if !detached.is_empty() {
        output::line(&detached.iter().map(DetachReport::text).collect::<Vec<_>>().join("\n"))?;
    }
    check_results(&detached)
}

/// Finds the attachments to end, and targets whose process has ended.
///
/// # Errors
/// A name that is unknown here, or belongs to a running target.
fn find_named(
    registry: &Registry,
    args: &DetachArgs,
) -> CommandResult<(Vec<AttachmentEntry>, Vec<TargetEntry>)> {
    let targets = Targets::of_user().written()?;
    let mut entries = if args.all { registry.entries()? } else { Vec::new() };
    let mut served = if args.all { targets.clone() } else { Vec::new() };
    served.retain(|target| !target.process.is_alive());
    for name in &args.names {
        let Some(target) = targets.iter().find(|target| target.id == *name) else {
            entries.extend(registry.find_some(name)?);
            continue;
        };
        if target.process.is_alive() {
            let message = format!("{name} is a target that runs: end its process with SIGTERM");
            return Err(CommandFailure::failed(format!("{message} (kill {})", target.process.pid)));
        }
        served.push(target.clone());
        entries.extend(registry.find(name)?);
    }
    entries.sort_by(|a, b| a.id.cmp(&b.id));
    entries.dedup_by(|a, b| a.id == b.id);
    Ok((entries, served))
}

/// Removes the leftovers of targets whose process has ended.
fn clear_targets(served: &[TargetEntry]) -> CommandResult<Vec<DetachReport>> {
    let mut cleared = Vec::new();
    for TargetEntry { id, listeners, .. } in served {
        if Targets::of_user().clear(id)? {
            cleared.push(DetachReport {
                id: id.clone(),
                name: id.clone(),
                names: listeners.clone(),
                how: DetachOutcome::Gone,
                lost: Vec::new(),
                removed: Vec::new(),
                stuck: Vec::new(),
            });
        }
    }
    Ok(cleared)
}

/// Requests all processes to end, waits, and kills those that do not end: after `timeout`, or at a signal.
fn end_all(
    registry: &Registry,
    entries: &[AttachmentEntry],
    timeout: Duration,
    signals: &BlockedSignals,
) -> Vec<(DetachOutcome, Vec<String>)> {
    let alive = |entry: &&AttachmentEntry| entry.process.is_alive();
    let mut ends: Vec<DetachOutcome> = entries
        .iter()
        .map(|entry| if alive(&entry) { DetachOutcome::Clean } else { DetachOutcome::Gone })
        .collect();
    let stop_requests: Vec<_> = entries
        .iter()
        .map(|entry| if alive(&entry) { request_stop(registry, entry) } else { None })
        .collect();
    let mut interrupted = false;
    wait(entries, timeout, || {
        interrupted = signals.wait_for(POLL) == Some(Signal::Stop);
        interrupted
    });
    // Killing needs a user's decision, and may lose the last writes of programs.
    let is_left = interrupted && terminal::is_gone();
    for (entry, how) in entries.iter().zip(&mut ends).filter(|(entry, _)| alive(entry)) {
        if is_left {
            *how = DetachOutcome::Left;
            continue;
        }
        let limit = show_seconds(timeout.as_secs_f64());
        let why = if interrupted { "interrupted".into() } else { format!("not within {limit}") };
        let (name, pid) = (describe(&entry.id, &entry.device_names()), entry.process.pid);
        terminal::say(format_args!("roadtrain: {name}: {why}: killing process {pid}"));
        *how = DetachOutcome::Killed;
        entry.process.signal(KillSignal::KILL);
    }
    if !is_left {
        wait(entries, KILL_TIMEOUT, || {
            std::thread::sleep(POLL);
            false
        });
        for (_, how) in entries.iter().zip(&mut ends).filter(|(entry, _)| alive(entry)) {
            *how = DetachOutcome::Stuck;
        }
    }
    let with_losses =
        |(how, stop_request): (DetachOutcome, Option<UnixStream>)| match (how, stop_request) {
            (DetachOutcome::Clean, Some(stop_request)) => (how, socket::losses(&stop_request)),
            _ => (how, Vec::new()),
        };
    ends.into_iter().zip(stop_requests).map(with_losses).collect()
}

/// Formats an attachment with all its devices.
fn describe(id: &str, devices: &[String]) -> String {
    format!("{id} ({})", devices.join(", "))
}

/// Requests the end by the socket, as the process may be in another PID namespace; by a signal if it does not listen
/// yet.
fn request_stop(registry: &Registry, entry: &AttachmentEntry) -> Option<UnixStream> {
    let requested = socket::request_stop(&registry.control_socket(&entry.id));
    if requested.is_err() {
        entry.process.signal(KillSignal::TERM);
    }
    requested.ok()
}

/// Waits until all have ended, `limit` has passed, or `pause` returns true.
fn wait(entries: &[AttachmentEntry], limit: Duration, mut pause: impl FnMut() -> bool) {
    let last = Instant::now() + limit;
    while entries.iter().any(|entry| entry.process.is_alive()) {
        if Instant::now() >= last || pause() {
            return;
        }
    }
}

/// Formats a resource that other processes use.
fn in_use(resource: &SystemResource) -> String {
    let users = match &resource.users()[..] {
        [] => String::new(),
        users => format!(" ({})", users.join(", ")),
    };
    format!("{resource}: in use{users}, goes when that ends: unmount what is mounted from it")
}

fn check_results(detached: &[DetachReport]) -> CommandResult {
    let bad =
        |one: &&DetachReport| one.how.is_bad() || !one.stuck.is_empty() || !one.lost.is_empty();
    let bad = detached.iter().filter(bad).map(|one| describe(&one.id, &one.names));
    let bad: Vec<String> = bad.collect();
    if bad.is_empty() {
        return Ok(());
    }
    Err(CommandFailure::failed(format!("{}: did not end in order", bad.join(", "))))
}

impl DetachReport {
    fn text(&self) -> String {
        let devices = self.names.join(", ");
        let mut text = match self.how {
            DetachOutcome::Clean => format!("{}: detached {devices}", self.id),
            DetachOutcome::Killed => format!("{}: killed, detached {devices}", self.id),
            DetachOutcome::Gone => format!("{}: was gone, detached {devices}", self.id),
            DetachOutcome::Stuck => {
                format!("{}: its process cannot be killed, {devices} may stay", self.id)
            }
            DetachOutcome::Left => format!("{}: not waited for, {devices} may stay", self.id),
        };
        for lost in &self.lost {
            text.push_str(&format!("\n  lost: {lost}"));
        }
        for removed in &self.removed {
            text.push_str(&format!("\n  removed {removed}"));
        }
        for stuck in &self.stuck {
            text.push_str(&format!("\n  still there: {stuck}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detached(how: DetachOutcome, lost: &[&str]) -> DetachReport {
        let names = ["/dev/loop0", "/dev/loop1"].map(String::from).to_vec();
        DetachReport {
            id: "fuse0".into(),
            name: names[0].clone(),
            names,
            how,
            lost: lost.iter().map(ToString::to_string).collect(),
            removed: Vec::new(),
            stuck: Vec::new(),
        }
    }

    #[test]
    fn all_devices_are_named() {
        for how in [
            DetachOutcome::Clean,
            DetachOutcome::Killed,
            DetachOutcome::Gone,
            DetachOutcome::Stuck,
            DetachOutcome::Left,
        ] {
            let text = detached(how, &[]).text();
            assert!(text.contains("/dev/loop0, /dev/loop1"), "{text}");
        }
        let failure = check_results(&[detached(DetachOutcome::Killed, &[])]).unwrap_err();
        assert_eq!(failure.message, "fuse0 (/dev/loop0, /dev/loop1): did not end in order");
    }

    #[test]
    fn what_is_lost_is_a_failure() {
        assert_eq!(check_results(&[detached(DetachOutcome::Clean, &[])]), Ok(()));
        let one = detached(DetachOutcome::Clean, &["much"]);
        assert!(one.text().ends_with("\n  lost: much"));
        assert!(check_results(&[one]).is_err());
    }
}

//! `roadtrain top`: live rates of targets and attachments.
//!
//! | module | |
//! |---|---|
//! | `source` | sources of snapshots |
//! | `rates` | rates between two snapshots |
//! | `dashboard` | recent rates and their history, as rows |
//! | `app` | state of the display, and key presses |
//! | `view` | drawing |
//! | `text` | the same data for `--once` |
//! | `picture` | a screen as an SVG |

mod app;
mod dashboard;
mod format;
mod picture;
mod rates;
mod source;
mod terminal;
#[cfg(test)]
mod tests;
mod text;
mod view;

use crate::args::{GlobalArgs, TopArgs};
use crate::failure::{CommandFailure, CommandResult};
use crate::{logs, output};
use app::TopState;
use dashboard::Dashboard;
use roadtrain_reactor::metrics::MetricsSnapshot;
use serde::Serialize;
use source::SnapshotSource;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Sources, each with its last snapshot.
struct WatchedSources {
    all: Vec<(SnapshotSource, Option<MetricsSnapshot>)>,
    /// Most namespaces of a process.
    namespaces_max: usize,
}

/// Output of `--once`.
#[derive(Serialize)]
struct OnceReport<'a> {
    unix_seconds: f64,
    /// Targets and attachments.
    processes: &'a [rates::ProcessRates],
    /// Processes that did not reply, with the reason.
    silent: &'a [String],
}

/// `roadtrain top`
pub(crate) fn run(args: &TopArgs, global: &GlobalArgs) -> CommandResult {
    logs::start("error", global.verbose);
    let sources = SnapshotSource::all(&args.names, &args.traddr)?;
    let all = sources.into_iter().map(|source| (source, None)).collect();
    let mut watched = WatchedSources { all, namespaces_max: args.limit };
    let mut dashboard = Dashboard::default();
    watched.sample(&mut dashboard);
    if watched.all.iter().all(|(_, snapshot)| snapshot.is_none()) {
        return Err(match dashboard.silent.first() {
            Some(silent) => CommandFailure::connect(silent),
            None => CommandFailure::failed(
                "nothing is attached or served here: --metrics ADDRESS:PORT shows another process",
            ),
        });
    }
    if args.once || global.json {
        thread::sleep(args.interval);
        watched.sample(&mut dashboard);
        return once(&dashboard, global.json);
    }
    let app =
        TopState::new(args.interval, std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty()));
    match &args.picture {
        Some(file) => picture::draw(
            app,
            dashboard,
            args.interval,
            &mut |dashboard| watched.sample(dashboard),
            file,
        ),
        None => terminal::run(app, dashboard, &mut |dashboard| watched.sample(dashboard)),
    }
}

impl WatchedSources {
    /// Takes a snapshot of all sources, and puts the rates since the last ones on the dashboard.
    fn sample(&mut self, dashboard: &mut Dashboard) {
        let mut processes = Vec::new();
        dashboard.silent.clear();
        for (source, last) in &mut self.all {
            match source.snapshot() {
                Ok(now) => {
                    let before = last.as_ref().unwrap_or(&now);
                    let mut rates = rates::between(source.name(), before, &now);
                    rates.keep_busiest(self.namespaces_max);
                    processes.push(rates);
                    *last = Some(now);
                }
                Err(error) => dashboard.silent.push(format!("{}: {error}", source.name())),
            }
        }
        dashboard.put(processes);
    }
}

fn once(dashboard: &Dashboard, json: bool) -> CommandResult {
    if json {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let unix_seconds = now.as_secs_f64();
        output::json(&OnceReport {
            unix_seconds,
            processes: &dashboard.processes,
            silent: &dashboard.silent,
        })?;
    } else {
        output::line(&text::all(dashboard))?;
    }
    match dashboard.silent.first() {
        Some(silent) => Err(CommandFailure::connect(silent)),
        None => Ok(()),
    }
}

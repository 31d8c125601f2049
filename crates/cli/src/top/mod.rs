//! `roadtrain top`: live rates of targets and attachments.
//!
//! | module | |
//! |---|---|
//! | `source` | sources of snapshots |
//! | `rates` | rates between two snapshots |
//! | `board` | recent rates and their history, as rows |
//! | `app` | state of the display, and key presses |
//! | `view` | drawing |
//! | `text` | the same data for `--once` |
//! | `picture` | a screen as an SVG |

mod app;
mod board;
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
use crate::failure::{Failure, Outcome};
use crate::{logs, output};
use app::App;
use board::Board;
use roadtrain_reactor::metrics::Snapshot;
use serde::Serialize;
use source::Source;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Sources, each with its last snapshot.
struct Watched(Vec<(Source, Option<Snapshot>)>);

/// Output of `--once`.
#[derive(Serialize)]
struct Once<'a> {
    unix_seconds: f64,
    /// Targets and attachments.
    processes: &'a [rates::Process],
    /// Processes that did not reply, with the reason.
    silent: &'a [String],
}

/// `roadtrain top`
pub(crate) fn run(args: &TopArgs, global: &GlobalArgs) -> Outcome {
    logs::start("error", global.verbose);
    let sources = Source::all(&args.names, &args.traddr)?;
    let mut watched = Watched(sources.into_iter().map(|source| (source, None)).collect());
    let mut board = Board::default();
    watched.look(&mut board);
    if watched.0.iter().all(|(_, snapshot)| snapshot.is_none()) {
        return Err(match board.silent.first() {
            Some(silent) => Failure::connect(silent),
            None => Failure::failed(
                "nothing is attached or served here: --metrics ADDRESS:PORT shows another process",
            ),
        });
    }
    if args.once || global.json {
        thread::sleep(args.interval);
        watched.look(&mut board);
        return once(&board, global.json);
    }
    let app = App::new(args.interval, std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty()));
    match &args.picture {
        Some(file) => {
            picture::draw(app, board, args.interval, &mut |board| watched.look(board), file)
        }
        None => terminal::run(app, board, &mut |board| watched.look(board)),
    }
}

impl Watched {
    /// Takes a snapshot of all sources, and puts the rates since the last ones on the board.
    fn look(&mut self, board: &mut Board) {
        let mut processes = Vec::new();
        board.silent.clear();
        for (source, last) in &mut self.0 {
            match source.snapshot() {
                Ok(now) => {
                    let before = last.as_ref().unwrap_or(&now);
                    processes.push(rates::between(source.name(), before, &now));
                    *last = Some(now);
                }
                Err(error) => board.silent.push(format!("{}: {error}", source.name())),
            }
        }
        board.put(processes);
    }
}

fn once(board: &Board, json: bool) -> Outcome {
    if json {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let unix_seconds = now.as_secs_f64();
        output::json(&Once { unix_seconds, processes: &board.processes, silent: &board.silent })?;
    } else {
        output::line(&text::all(board))?;
    }
    match board.silent.first() {
        Some(silent) => Err(Failure::connect(silent)),
        None => Ok(()),
    }
}

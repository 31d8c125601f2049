//! The terminal: drawn when something has changed, and left as it was found.

use super::app::App;
use super::board::Board;
use super::view;
use crate::failure::{Failure, Outcome};
use crate::signals::{Signal, Signals};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// How often signals are looked for.
const POLL: Duration = Duration::from_millis(100);

/// The terminal as it was, again, whatever happens.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the board until somebody ends it.
///
/// # Errors
/// There is no terminal, or it is gone.
pub(super) fn run(mut app: App, mut board: Board, look: &mut dyn FnMut(&mut Board)) -> Outcome {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "this is no terminal: --once prints it once, --once --json for programs",
        ));
    }
    let signals = Signals::block()?.of_terminal();
    let mut terminal = ratatui::try_init()?;
    let _restored = Restored;
    let mut next = Instant::now() + app.interval;
    let mut is_new = true;
    while !app.has_ended && signals.wait_for(Duration::ZERO) != Some(Signal::Stop) {
        if std::mem::take(&mut is_new) {
            terminal.draw(|frame| view::draw(frame, &app, &board))?;
        }
        let left = next.saturating_duration_since(Instant::now());
        if event::poll(left.min(POLL))? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => app.press(key, &board),
                _ => {} // the size, too: the next screen has it
            }
            is_new = true;
        }
        next = next.min(Instant::now() + app.interval); // it may have become shorter
        if Instant::now() >= next {
            next = Instant::now() + app.interval;
            if !app.is_paused {
                look(&mut board);
                is_new = true;
            }
        }
    }
    Ok(())
}

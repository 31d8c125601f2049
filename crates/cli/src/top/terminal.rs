//! Event loop of the terminal: draws after changes, and restores the terminal at the end.

use super::app::TopState;
use super::dashboard::Dashboard;
use super::view;
use crate::failure::{CommandFailure, CommandResult};
use crate::signals::{BlockedSignals, Signal};
use crate::terminal::{self, end_when_gone};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

/// How often signals and the terminal's size are checked.
const POLL: Duration = Duration::from_millis(100);

/// The terminal, which is restored on drop. The library's own `drop` would panic if the terminal is gone.
struct TopScreen(ManuallyDrop<DefaultTerminal>);

impl Drop for TopScreen {
    fn drop(&mut self) {
        let _ = self.0.show_cursor();
        let _ = ratatui::try_restore();
    }
}

/// Shows the dashboard until a key press or a signal ends it.
///
/// # Errors
/// There is no terminal, or it has hung up.
pub(super) fn run(
    mut app: TopState,
    mut dashboard: Dashboard,
    sample: &mut dyn FnMut(&mut Dashboard),
) -> CommandResult {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(CommandFailure::usage(
            "this is no terminal: --once prints it once, --once --json for programs",
        ));
    }
    let signals = BlockedSignals::block()?.of_terminal();
    // The library would read a terminal that hangs up during an event for ever.
    end_when_gone()?;
    let mut screen = TopScreen(ManuallyDrop::new(ratatui::try_init()?));
    let mut next = Instant::now() + app.interval;
    let mut is_new = true;
    while !app.has_ended && signals.wait_for(Duration::ZERO) != Some(Signal::Stop) {
        if std::mem::take(&mut is_new) {
            screen.0.draw(|frame| view::draw(frame, &app, &dashboard))?;
        }
        if terminal::is_gone() {
            return Err(CommandFailure::failed("the terminal is gone"));
        }
        if event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => app.press(key, &dashboard),
                _ => {} // a resize, too: the next screen has the new size
            }
            is_new = true;
            continue;
        }
        next = next.min(Instant::now() + app.interval); // the interval may have become shorter
        let left = next.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            terminal::wait_for_input(left.min(POLL));
            continue;
        }
        next = Instant::now() + app.interval;
        if !app.is_paused {
            sample(&mut dashboard);
            is_new = true;
        }
    }
    Ok(())
}

//! Rate limit of log lines that peers can cause: too frequent lines of one kind are left out.
//!
//! Each line of warnings and information comes from one place in the code, its kind. A peer that connects and resets
//! ten thousand times a second would fill the disk with lines of one kind, and hide all others. Levels that only `-v`
//! shows have no limit.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::{Event, Level, Subscriber, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Lines of one kind in a [`PERIOD`]. As many connections may end at once, with a line each.
const LINES: u32 = 200;
/// Time for which further lines are left out.
const PERIOD: Duration = Duration::from_secs(10);

/// Filter that leaves out lines beyond the budget of their kind, and reports that.
#[derive(Default)]
pub(super) struct LogLineBudget(Mutex<HashMap<Identifier, Period>>);

impl<S: Subscriber> Layer<S> for LogLineBudget {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        // Lines of this file are limited by the periods themselves.
        if *metadata.level() > Level::INFO || metadata.target() == module_path!() {
            return true;
        }
        let answer = {
            let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            kinds.entry(metadata.callsite()).or_insert_with(|| Period::new(now)).line(now)
        };
        match answer {
            LineDecision::Written => {}
            LineDecision::WrittenAfter(count) => {
                warn!("{count} lines like the next one were left out")
            }
            LineDecision::WrittenLast => {
                warn!("lines like the next one are left out for up to {} s", PERIOD.as_secs())
            }
            LineDecision::LeftOut => {}
        }
        answer != LineDecision::LeftOut
    }
}

/// Decision about a line.
#[derive(Debug, PartialEq)]
enum LineDecision {
    Written,
    /// Written after this number of lines were left out.
    WrittenAfter(u32),
    /// Written; further ones are left out.
    WrittenLast,
    LeftOut,
}

/// Line count of one kind in the current period.
struct Period {
    began: Instant,
    lines: u32,
}

impl Period {
    fn new(began: Instant) -> Self {
        Period { began, lines: 0 }
    }

    fn line(&mut self, now: Instant) -> LineDecision {
        let before = if now.duration_since(self.began) >= PERIOD {
            let lines = std::mem::take(&mut self.lines);
            self.began = now;
            lines.saturating_sub(LINES)
        } else {
            0
        };
        self.lines = self.lines.saturating_add(1);
        match self.lines {
            LINES => LineDecision::WrittenLast,
            lines if lines > LINES => LineDecision::LeftOut,
            _ if before > 0 => LineDecision::WrittenAfter(before),
            _ => LineDecision::Written,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::Arc;
    use tracing::{debug, info};
    use tracing_subscriber::layer::SubscriberExt;

    #[test]
    fn lines_beyond_the_budget_are_counted_and_reported_later() {
        let start = Instant::now();
        let mut period = Period::new(start);
        for _ in 1..LINES {
            assert_eq!(period.line(start), LineDecision::Written);
        }
        assert_eq!(period.line(start), LineDecision::WrittenLast);
        for _ in 0..10 {
            assert_eq!(
                period.line(start + PERIOD - Duration::from_millis(1)),
                LineDecision::LeftOut
            );
        }
        assert_eq!(period.line(start + PERIOD), LineDecision::WrittenAfter(10));
        assert_eq!(period.line(start + PERIOD), LineDecision::Written);
    }

    #[test]
    fn few_lines_are_all_written() {
        let start = Instant::now();
        let mut period = Period::new(start);
        for second in 0..3_600 {
            assert_eq!(period.line(start + Duration::from_secs(second)), LineDecision::Written);
        }
    }

    /// Returns the lines that a program with `log` writes.
    fn written(log: impl FnOnce()) -> String {
        let text = Arc::new(Mutex::new(Vec::new()));
        let writer = text.clone();
        let logger = tracing_subscriber::fmt()
            .with_max_level(Level::DEBUG)
            .with_ansi(false)
            .with_writer(move || BudgetTestLog(writer.clone()))
            .finish()
            .with(LogLineBudget::default());
        tracing::subscriber::with_default(logger, log);
        String::from_utf8(text.lock().unwrap().clone()).unwrap()
    }

    struct BudgetTestLog(Arc<Mutex<Vec<u8>>>);

    impl io::Write for BudgetTestLog {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_kind_that_is_too_frequent_does_not_hide_others() {
        let text = written(|| {
            for number in 0..10 * LINES {
                info!(number, "reset");
                debug!(number, "detail");
            }
            warn!("something else");
        });
        let count = |what: &str| text.lines().filter(|line| line.contains(what)).count();
        assert_eq!(count("reset"), LINES as usize);
        assert_eq!(count("detail"), 10 * LINES as usize);
        assert_eq!(count("something else"), 1);
    }
}

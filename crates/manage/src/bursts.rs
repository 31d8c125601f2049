//! Rate-limited log lines for events that peers can cause at any rate. The first event of a kind is logged at once.
//! Further ones are counted and reported every ten seconds, until none arrives for that long.

use roadtrain_wire::text::is_printable;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Interval between two lines of one kind.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between two checks for lines that are due.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Most characters of a peer's text in a line.
const DETAIL_MAX: usize = 300;
/// Most kinds at a time; events of further kinds share one.
const KINDS_MAX: usize = 1024;

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Affects only the caller that caused it.
    Info,
    /// May affect others.
    Warning,
}

/// Rate-limited log. Clones share their counts.
#[derive(Clone, Default)]
pub struct Bursts(Arc<Mutex<BurstCounts>>);

impl Bursts {
    /// Reports one more event: `what` of `peer`, with its text `detail`.
    pub fn report(&self, weight: Weight, what: &str, peer: &str, detail: &str) {
        let detail = clean(detail);
        let (is_first, needs_thread) = {
            let mut counts = self.lock();
            let is_first = counts.add((weight, what), (peer, &detail), Instant::now());
            (is_first, is_first && !std::mem::replace(&mut counts.has_thread, true))
        };
        if is_first {
            log(weight, &format!("{what} from {peer}: {detail}; more of that are counted"));
        }
        if needs_thread {
            let bursts = self.clone();
            let watch = move || bursts.watch();
            // Without the thread the count is reported with the next event.
            if Builder::new().name("roadtrain-bursts".into()).spawn(watch).is_err() {
                self.lock().has_thread = false;
            }
        }
    }

    /// Logs what is due until all bursts are over.
    fn watch(&self) {
        loop {
            std::thread::sleep(CHECK_INTERVAL);
            let mut counts = self.lock();
            let due = counts.due(Instant::now());
            counts.has_thread = !counts.of.is_empty();
            let goes_on = counts.has_thread;
            drop(counts);
            due.iter().for_each(|(weight, line)| log(*weight, line));
            if !goes_on {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BurstCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log(weight: Weight, line: &str) {
    match weight {
        Weight::Info => info!("{line}"),
        Weight::Warning => warn!("{line}"),
    }
}

#[derive(Default)]
struct BurstCounts {
    of: BTreeMap<String, BurstCount>,
    has_thread: bool,
}

/// Events of one kind since its last line.
struct BurstCount {
    weight: Weight,
    reported_at: Instant,
    unreported: u64,
    /// The last event: peer and text.
    last: (String, String),
}

impl BurstCounts {
    /// Counts one more event. True if it is the first of a burst.
    fn add(
        &mut self,
        (weight, what): (Weight, &str),
        (peer, detail): (&str, &str),
        now: Instant,
    ) -> bool {
        let is_known = self.of.contains_key(what);
        let what = if is_known || self.of.len() < KINDS_MAX { what } else { "JSON-RPC" };
        let last = (peer.to_owned(), detail.to_owned());
        match self.of.get_mut(what) {
            Some(count) => {
                count.unreported += 1;
                count.last = last;
                false
            }
            None => {
                self.of.insert(
                    what.to_owned(),
                    BurstCount { weight, reported_at: now, unreported: 0, last },
                );
                true
            }
        }
    }

    /// Returns the lines that are due. A kind without events since its last line is removed: its next event starts a
    /// burst.
    fn due(&mut self, now: Instant) -> Vec<(Weight, String)> {
        let mut lines = Vec::new();
        self.of.retain(|what, count| {
            let since = now.saturating_duration_since(count.reported_at);
            if since < REPORT_INTERVAL {
                return true;
            }
            let (unreported, (peer, detail)) = (std::mem::take(&mut count.unreported), &count.last);
            count.reported_at = now;
            if unreported > 0 {
                let seconds = since.as_secs();
                let line = format!(
                    "{what}: {unreported} more in {seconds} s, the last from {peer}: {detail}"
                );
                lines.push((count.weight, line));
            }
            unreported > 0
        });
        lines
    }
}

/// Returns the text as one line of limited length.
fn clean(detail: &str) -> String {
    let mut text = String::new();
    for (at, c) in detail.chars().enumerate() {
        if at == DETAIL_MAX {
            text.push_str("..");
            break;
        }
        match is_printable(c) {
            true => text.push(c),
            false => write!(text, "{}", c.escape_default()).unwrap_or_default(),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_reported_at_once_and_then_counted() {
        let (mut counts, now) = (BurstCounts::default(), Instant::now());
        let (slow, odd) = ((Weight::Info, "slow"), (Weight::Warning, "odd"));
        assert!(counts.add(slow, ("a", "1"), now));
        for peer in ["a", "b", "c"] {
            assert!(!counts.add(slow, (peer, "2"), now));
        }
        assert!(counts.add(odd, ("a", "x"), now), "each kind by itself");
        assert_eq!(counts.due(now + REPORT_INTERVAL / 2), []);
        let line = "slow: 3 more in 10 s, the last from c: 2".to_owned();
        assert_eq!(counts.due(now + REPORT_INTERVAL), [(Weight::Info, line)]);
        assert!(counts.add(odd, ("a", "x"), now + REPORT_INTERVAL), "its burst was over");
        assert!(!counts.add(slow, ("a", "3"), now + REPORT_INTERVAL), "this one goes on");
        assert_eq!(counts.due(now + REPORT_INTERVAL * 2).len(), 1);
        assert_eq!(counts.due(now + REPORT_INTERVAL * 3), []);
        assert!(counts.of.is_empty() && counts.add(slow, ("a", "4"), now + REPORT_INTERVAL * 3));
    }

    #[test]
    fn text_of_a_peer_becomes_one_short_line() {
        assert_eq!(clean("a\nb\u{1b}[2J \u{e4}"), "a\\nb\\u{1b}[2J \u{e4}");
        let long = clean(&"x".repeat(1 << 20));
        assert_eq!(long.len(), DETAIL_MAX + 2);
    }

    #[test]
    fn kinds_are_bounded() {
        let (mut counts, now) = (BurstCounts::default(), Instant::now());
        for kind in 0..KINDS_MAX * 2 {
            counts.add((Weight::Info, &kind.to_string()), ("a", ""), now);
        }
        assert!(counts.of.len() <= KINDS_MAX + 1);
    }
}

//! Time, source and manner of a measurement: checks of one report may be of several runs.

use serde::{Deserialize, Serialize};
use std::process::Command;

/// The run of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CheckStamp {
    /// UTC.
    pub(super) date: String,
    /// Commit of the source tree that it was started in.
    pub(super) commit: String,
    pub(super) rounds: usize,
    pub(super) seconds: f64,
    /// Cores that others used before it.
    pub(super) foreign_cores: f64,
}

impl CheckStamp {
    /// A run that ends now.
    pub(super) fn now(rounds: usize, seconds: f64, foreign_cores: f64) -> Self {
        let said = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            (output.status.success() && !text.is_empty()).then_some(text)
        };
        let unknown = || "unknown".to_owned();
        let commit = ["describe", "--always", "--dirty=+", "--exclude=*", "--abbrev=7"];
        Self {
            date: said("date", &["--utc", "+%Y-%m-%d %H:%M"]).unwrap_or_else(unknown),
            commit: said("git", &commit).unwrap_or_else(unknown),
            rounds,
            seconds,
            foreign_cores,
        }
    }

    fn day(&self) -> &str {
        self.date.split(' ').next().unwrap_or_default()
    }

    /// True for runs that one line describes.
    fn is_like(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.day().to_owned(), one.commit.clone(), one.rounds);
        of(self) == of(other) && self.seconds == other.seconds
    }
}

/// A line for each group of checks that were measured alike.
pub(super) fn lines<'a>(stamps: impl Iterator<Item = (&'a str, &'a CheckStamp)>) -> Vec<String> {
    let mut groups: Vec<(Vec<&str>, CheckStamp)> = Vec::new();
    for (check, stamp) in stamps {
        match groups.iter_mut().find(|(_, first)| first.is_like(stamp)) {
            Some((checks, first)) => {
                checks.push(check);
                first.foreign_cores = first.foreign_cores.max(stamp.foreign_cores);
            }
            None => groups.push((vec![check], stamp.clone())),
        }
    }
    let line = |(checks, stamp): &(Vec<&str>, CheckStamp)| {
        let several = if stamp.rounds == 1 { "one round" } else { "medians of rounds" };
        format!(
            "{}: {}, commit {}, {several} ({}) of {} s; others used up to {:.2} cores before.",
            checks.join(", "),
            stamp.day(),
            stamp.commit,
            stamp.rounds,
            stamp.seconds,
            stamp.foreign_cores
        )
    };
    groups.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(date: &str, commit: &str, foreign_cores: f64) -> CheckStamp {
        let (date, commit) = (date.to_owned(), commit.to_owned());
        CheckStamp { date, commit, rounds: 3, seconds: 1.0, foreign_cores }
    }

    #[test]
    fn checks_that_were_measured_alike_share_a_line() {
        let stamps = [
            ("use", stamp("2026-11-21 10:00", "aaaaaaa", 0.01)),
            ("links", stamp("2026-11-21 10:05", "bbbbbbb", 0.0)),
            ("floor", stamp("2026-11-21 11:00", "aaaaaaa", 0.04)),
        ];
        let lines = lines(stamps.iter().map(|(check, stamp)| (*check, stamp)));
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("use, floor: 2026-11-21, commit aaaaaaa, "), "{lines:?}");
        assert!(lines[0].contains("up to 0.04 cores"), "{lines:?}");
        assert!(lines[1].starts_with("links: 2026-11-21, commit bbbbbbb, "), "{lines:?}");
    }

    #[test]
    fn the_clock_is_read() {
        let stamp = CheckStamp::now(2, 0.5, 0.0);
        assert_eq!(stamp.date.len(), "2026-11-21 10:00".len(), "{stamp:?}");
        assert!(!stamp.commit.is_empty());
    }
}

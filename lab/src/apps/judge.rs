//! Holds what was measured against the goals.

use super::plan::{Bar, Extent};
use super::result::Applications;
use std::fmt;

/// What a goal has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Kept,
    Missed,
    /// The alternative is not there.
    Unmeasured,
}

/// A goal judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Judged {
    pub(super) bar: Bar,
    pub(super) ratio: Option<f64>,
    pub(super) verdict: Verdict,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kept => "kept",
            Self::Missed => "missed",
            Self::Unmeasured => "not there",
        })
    }
}

/// Judges all goals of a measurement's extent whose rows it has.
pub(super) fn all(applications: &Applications) -> Vec<Judged> {
    let extent = if applications.quick { Extent::Quick } else { Extent::Full };
    let measured = |bar: &Bar| applications.runs.iter().any(|run| run.row == bar.row.to_string());
    extent.bars().into_iter().filter(measured).map(|bar| judge(bar, applications)).collect()
}

fn judge(bar: Bar, applications: &Applications) -> Judged {
    let ratio = applications.ratio(bar.row, bar.figure, bar.of, bar.to);
    let is_there = |side| {
        let run = applications.run(bar.row, side);
        run.is_some_and(|run| run.median.is_some())
    };
    let verdict = match ratio {
        Some(ratio) if bar.holds(ratio) => Verdict::Kept,
        Some(_) => Verdict::Missed,
        // Who fails where others do not has missed it.
        None if is_there(bar.to) => Verdict::Missed,
        None => Verdict::Unmeasured,
    };
    Judged { bar, ratio, verdict }
}

/// How many were kept, missed and not measured, in words.
pub(super) fn tally(judged: &[Judged]) -> String {
    let count = |verdict| judged.iter().filter(|j| j.verdict == verdict).count();
    let (kept, missed) = (count(Verdict::Kept), count(Verdict::Missed));
    let mut text = format!("{kept} of {} goals kept", kept + missed);
    match count(Verdict::Unmeasured) {
        0 => {}
        unmeasured => text += &format!(", {unmeasured} not measured"),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::plan::Figure;
    use crate::apps::result::tests::applications;
    use crate::apps::side::{OURS, Side};

    #[test]
    fn goals_are_kept_missed_or_not_measured() {
        let row = Extent::Quick.rows()[0];
        let all_ = applications(&[
            (row, OURS, &[160.0, 160.0]),
            (row, Side::Nbdfuse, &[100.0, 100.0]),
            (row, Side::Qemu, &[120.0, 120.0]),
        ]);
        let judged = all(&all_);
        let verdict = |to| {
            let found = judged.iter().find(|j| j.bar.to == to && j.bar.row == row);
            found.expect("a goal of this row").verdict
        };
        assert!(judged.iter().all(|j| j.bar.figure == Figure::PerCpuSecond));
        assert_eq!(verdict(Side::Nbdfuse), Verdict::Kept);
        assert_eq!(verdict(Side::Qemu), Verdict::Missed);
        assert_eq!(verdict(Side::Tgt), Verdict::Unmeasured);
        assert_eq!(tally(&judged), "1 of 2 goals kept, 1 not measured");
    }

    #[test]
    fn failing_is_missing() {
        let row = Extent::Quick.rows()[1];
        let all_ = applications(&[(row, OURS, &[0.0]), (row, Side::Nbdfuse, &[100.0])]);
        let judged = all(&all_);
        assert_eq!(judged[0].verdict, Verdict::Missed);
        assert_eq!(judged[1].verdict, Verdict::Unmeasured);
        assert_eq!(tally(&judged), "0 of 1 goals kept, 2 not measured");
    }
}

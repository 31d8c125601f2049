//! Compares measurements with published claims, by criteria that are stated next to the verdict.

use super::plan::{EvalClaim, EvalFigure, EvalPoint, PairPick, PointPair, Test};
use super::result::EvalData;
use crate::judge::Bound;
use crate::measure::median;
use crate::metric::Metric;
use crate::runs::Compare;

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimVerdict {
    Reproduced,
    Partly,
    Not,
    /// There are no figures for it.
    Unmeasured,
}

/// A claim judged.
#[derive(Clone, Debug)]
pub(crate) struct Judgement {
    pub(crate) verdict: ClaimVerdict,
    /// The measured figure, in the publication's terms.
    pub(crate) measured: String,
    pub(crate) criterion: String,
}

/// An effect within this of nothing is chance.
const NOISE: f64 = 0.03;
/// The share of a published effect that reproduces it.
const ENOUGH: f64 = 0.5;

impl ClaimVerdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Partly => "partly",
            Self::Not => "not reproduced",
            Self::Unmeasured => "not measured",
        }
    }
}

/// Judges a claim.
pub(crate) fn claim(claim: &EvalClaim, data: &EvalData) -> Judgement {
    let judged = match &claim.test {
        Test::Effect { metric, pairs, pick, published } => {
            effect(data, *metric, pairs, *pick, *published)
        }
        Test::Everywhere { metric, compare, pairs, bound } => {
            everywhere(data, (*metric, *compare), pairs, *bound)
        }
        Test::Share { metric, from, to, whole, published } => {
            share(data, *metric, [from, to, whole], *published)
        }
        Test::Value { metric, at, published } => value(data, *metric, at, *published),
        Test::Profile { per_io, part, of, to, published } => {
            let figure = |point| match per_io {
                true => data.part(*part, point),
                false => data.part_share(*part, point),
            };
            let ratio = figure(of).zip(figure(to)).map(|(of, to)| of / to);
            ratio.map(|ratio| of_effect(ratio, *published, String::new()))
        }
        Test::Elsewhere => None,
    };
    judged.unwrap_or_else(|| Judgement {
        verdict: ClaimVerdict::Unmeasured,
        measured: "-".into(),
        criterion: String::new(),
    })
}

fn effect(
    data: &EvalData,
    metric: Metric,
    pairs: &[PointPair],
    pick: PairPick,
    published: f64,
) -> Option<Judgement> {
    let ratio = |pair: &PointPair| data.comparison(metric, Compare::Ratio, &pair.of, &pair.to);
    let ratios: Vec<f64> = pairs.iter().filter_map(ratio).collect();
    let up = published > 1.0;
    let picked = match pick {
        PairPick::Median => median(ratios.iter().copied()),
        PairPick::Most if up => ratios.iter().copied().reduce(f64::max),
        PairPick::Most => ratios.iter().copied().reduce(f64::min),
        PairPick::Least if up => ratios.iter().copied().reduce(f64::min),
        PairPick::Least => ratios.iter().copied().reduce(f64::max),
    }?;
    let of = match (ratios.len(), pick) {
        (1, _) => String::new(),
        (n, PairPick::Median) => format!(" (median of {n} points)"),
        (n, PairPick::Most) => format!(" (best of {n} points)"),
        (n, PairPick::Least) => format!(" (worst of {n} points)"),
    };
    Some(of_effect(picked, published, of))
}

/// On a logarithmic scale, so that x2 and x0.5 are equally much.
fn of_effect(ratio: f64, published: f64, of: String) -> Judgement {
    let reached = ratio.ln() / published.ln();
    let noticeable = ratio.ln() * published.ln().signum() > NOISE;
    let verdict = match (noticeable, reached >= ENOUGH) {
        (true, true) => ClaimVerdict::Reproduced,
        (true, false) => ClaimVerdict::Partly,
        _ => ClaimVerdict::Not,
    };
    let bound = (published.ln() * ENOUGH).exp();
    Judgement {
        verdict,
        measured: format!("x{ratio:.2}{of}"),
        criterion: format!(
            "published x{published:.2}; reproduced from half of the effect on (x{bound:.2}), \
             partly from 3 % on in its direction"
        ),
    }
}

fn everywhere(
    data: &EvalData,
    (metric, compare): (Metric, Compare),
    pairs: &[PointPair],
    bound: Bound,
) -> Option<Judgement> {
    let value = |pair: &PointPair| data.comparison(metric, compare, &pair.of, &pair.to);
    let values: Vec<f64> = pairs.iter().filter_map(value).collect();
    let worst = match bound {
        Bound::AtLeast(_) => values.iter().copied().reduce(f64::min),
        Bound::AtMost(_) => values.iter().copied().reduce(f64::max),
    }?;
    let holding = values.iter().filter(|&&value| bound.holds(value)).count();
    let verdict = match holding {
        n if n == pairs.len() => ClaimVerdict::Reproduced,
        n if n * 2 >= pairs.len() => ClaimVerdict::Partly,
        _ => ClaimVerdict::Not,
    };
    let (what, worst, plus, places) = match compare {
        Compare::Difference => ("difference", format!("{worst:+.1}"), "+", 0),
        _ => ("ratio", format!("x{worst:.2}"), "", 2),
    };
    let measured = match values.len() {
        1 => worst,
        n => format!("{worst} at worst, holds at {holding} of {n} points"),
    };
    let partly = if pairs.len() > 1 { " everywhere, partly at half of the points" } else { "" };
    let (title, sign, limit) = (metric.title(), bound.sign(), bound.limit());
    let criterion = format!("{what} of {title} {sign} {plus}{limit:.places$}{partly}");
    Some(Judgement { verdict, measured, criterion })
}

fn share(
    data: &EvalData,
    metric: Metric,
    points: [&EvalPoint; 3],
    published: f64,
) -> Option<Judgement> {
    let [from, to, whole] = points.map(|point| data.value(metric, point));
    let share = (to? - from?) / whole?;
    let verdict = match share {
        s if s >= published * ENOUGH => ClaimVerdict::Reproduced,
        s if s > NOISE => ClaimVerdict::Partly,
        _ => ClaimVerdict::Not,
    };
    Some(Judgement {
        verdict,
        measured: format!("{:.1} %", share * 100.0),
        criterion: format!(
            "reproduced from half of the published share on ({:.1} %), partly from 3 % on",
            published * ENOUGH * 100.0
        ),
    })
}

fn value(data: &EvalData, metric: Metric, at: &EvalPoint, published: f64) -> Option<Judgement> {
    let value = data.value(metric, at)?;
    let ratio = value / published;
    let verdict = match ratio.ln().abs() {
        d if d <= 1.2_f64.ln() => ClaimVerdict::Reproduced,
        d if d <= 2.0_f64.ln() => ClaimVerdict::Partly,
        _ => ClaimVerdict::Not,
    };
    Some(Judgement {
        verdict,
        measured: format!("{} {}", metric.show(value), metric.title()),
        criterion: "reproduced within a fifth, partly within a factor of two".into(),
    })
}

/// Claims by verdict, in words.
pub(crate) fn tally(figures: &[EvalFigure], data: &EvalData) -> String {
    count(&verdicts(figures, data))
}

/// The verdicts of all claims.
pub(crate) fn verdicts(figures: &[EvalFigure], data: &EvalData) -> Vec<ClaimVerdict> {
    let claims = figures.iter().flat_map(|figure| &figure.claims);
    claims.map(|c| claim(c, data).verdict).collect()
}

/// How many of each there are, in words.
pub(crate) fn count(verdicts: &[ClaimVerdict]) -> String {
    let count = |verdict| verdicts.iter().filter(|&&v| v == verdict).count();
    let all = [
        ClaimVerdict::Reproduced,
        ClaimVerdict::Partly,
        ClaimVerdict::Not,
        ClaimVerdict::Unmeasured,
    ];
    let counts = all.map(|verdict| format!("{} {}", count(verdict), verdict.name()));
    format!("{} claims: {}.", verdicts.len(), counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::plan::CpuPart;
    use crate::eval::plan::{I10, NONE, PINOF};
    use crate::eval::result::ProfileResult;
    use crate::eval::result::tests::evaluation;
    use crate::workload::{LabLoad, ProductSetup};

    const LOAD: LabLoad = LabLoad::small(100, 8);
    const OTHER: LabLoad = LabLoad::small(0, 8);

    fn verdict(test: Test, points: &[(LabLoad, ProductSetup, &[f64])]) -> ClaimVerdict {
        let evaluation = evaluation(points);
        let claim_ = EvalClaim { text: "", published: "", test, why: "" };
        claim(&claim_, &EvalData::new(&evaluation)).verdict
    }

    fn effect_of(metric: Metric, published: f64, iops: [f64; 2]) -> ClaimVerdict {
        let pairs = vec![PointPair::at(LOAD, PINOF, I10)];
        let test = Test::Effect { metric, pairs, pick: PairPick::Median, published };
        verdict(test, &[(LOAD, PINOF, &[iops[0]]), (LOAD, I10, &[iops[1]])])
    }

    #[test]
    fn effects_need_half_of_what_was_published() {
        assert_eq!(effect_of(Metric::Iops, 1.44, [130.0, 100.0]), ClaimVerdict::Reproduced);
        assert_eq!(effect_of(Metric::Iops, 1.44, [110.0, 100.0]), ClaimVerdict::Partly);
        assert_eq!(effect_of(Metric::Iops, 1.44, [101.0, 100.0]), ClaimVerdict::Not);
        assert_eq!(effect_of(Metric::Iops, 1.44, [50.0, 100.0]), ClaimVerdict::Not);
    }

    #[test]
    fn less_latency_is_an_effect_downwards() {
        assert_eq!(effect_of(Metric::LatencyP99, 0.8, [130.0, 100.0]), ClaimVerdict::Reproduced);
        assert_eq!(effect_of(Metric::LatencyP99, 0.5, [110.0, 100.0]), ClaimVerdict::Partly);
        assert_eq!(effect_of(Metric::LatencyP99, 0.8, [90.0, 100.0]), ClaimVerdict::Not);
    }

    #[test]
    fn up_to_and_at_least_pick_their_point() {
        let pairs = vec![PointPair::at(LOAD, PINOF, I10), PointPair::at(OTHER, PINOF, I10)];
        let points: &[(LabLoad, ProductSetup, &[f64])] = &[
            (LOAD, PINOF, &[150.0]),
            (LOAD, I10, &[100.0]),
            (OTHER, PINOF, &[100.0]),
            (OTHER, I10, &[100.0]),
        ];
        let test = |pick| Test::Effect {
            metric: Metric::Iops,
            pairs: pairs.clone(),
            pick,
            published: 1.5,
        };
        assert_eq!(verdict(test(PairPick::Most), points), ClaimVerdict::Reproduced);
        assert_eq!(verdict(test(PairPick::Least), points), ClaimVerdict::Not);
        let everywhere = |bound| Test::Everywhere {
            metric: Metric::Iops,
            compare: Compare::Ratio,
            pairs: pairs.clone(),
            bound: Bound::AtLeast(bound),
        };
        assert_eq!(verdict(everywhere(0.97), points), ClaimVerdict::Reproduced);
        assert_eq!(verdict(everywhere(1.2), points), ClaimVerdict::Partly);
        assert_eq!(verdict(everywhere(2.0), points), ClaimVerdict::Not);
    }

    #[test]
    fn a_missing_point_is_no_success() {
        let pairs = vec![PointPair::at(LOAD, PINOF, I10), PointPair::at(OTHER, PINOF, I10)];
        let (compare, bound) = (Compare::Ratio, Bound::AtLeast(0.97));
        let points: &[(LabLoad, ProductSetup, &[f64])] =
            &[(LOAD, PINOF, &[1.0]), (LOAD, I10, &[1.0]), (OTHER, I10, &[1.0])];
        let test = Test::Everywhere { metric: Metric::Iops, compare, pairs, bound };
        assert_eq!(verdict(test.clone(), points), ClaimVerdict::Partly);
        assert_eq!(verdict(test, &[]), ClaimVerdict::Unmeasured);
        assert_eq!(verdict(Test::Elsewhere, points), ClaimVerdict::Unmeasured);
    }

    #[test]
    fn shares_and_values() {
        let [from, to] = [NONE, I10].map(|setup| EvalPoint::new(LOAD, setup));
        let share =
            |published| Test::Share { metric: Metric::Iops, from, to, whole: to, published };
        let points: &[(LabLoad, ProductSetup, &[f64])] =
            &[(LOAD, NONE, &[60.0]), (LOAD, I10, &[100.0])];
        assert_eq!(verdict(share(0.38), points), ClaimVerdict::Reproduced);
        assert_eq!(verdict(share(0.9), points), ClaimVerdict::Partly);
        let value =
            |published| Test::Value { metric: Metric::TargetBytesPerSend, at: to, published };
        assert_eq!(verdict(value(61.0 * 1024.0), points), ClaimVerdict::Reproduced);
        assert_eq!(verdict(value(40_000.0), points), ClaimVerdict::Partly);
        assert_eq!(verdict(value(72.0), points), ClaimVerdict::Not);
    }

    #[test]
    fn profiles_compare_by_request_and_by_share() {
        let mut evaluation = evaluation(&[]);
        for (setup, ns) in [(I10, [50.0, 50.0]), (NONE, [100.0, 900.0])] {
            let parts = [CpuPart::Application, CpuPart::Network].map(|part| part.name().to_owned());
            evaluation.profiles.push(ProfileResult {
                load: LOAD.to_string(),
                side: setup.to_string(),
                error: None,
                ns_per_io: parts.into_iter().zip(ns).collect(),
                samples: 1000,
                other_symbols: vec![],
            });
        }
        let [of, to] = [I10, NONE].map(|setup| EvalPoint::new(LOAD, setup));
        let measured = |per_io| {
            let test = Test::Profile { per_io, part: CpuPart::Application, of, to, published: 1.8 };
            claim(
                &EvalClaim { text: "", published: "", test, why: "" },
                &EvalData::new(&evaluation),
            )
        };
        assert_eq!(measured(true).measured, "x0.50");
        assert_eq!(measured(false).measured, "x5.00");
        assert_eq!(measured(false).verdict, ClaimVerdict::Reproduced);
    }
}

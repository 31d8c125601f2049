//! Holds measurements against claims and bars, by criteria that are stated beside the verdict.

use super::metric::Metric;
use super::plan::{Bar, Claim, Figure, Limit, Pair, Pick, Point, Test};
use super::result::Data;
use crate::measure::{interval, median};

/// What a claim has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Reproduced,
    Partly,
    Not,
    /// There are no figures for it.
    Unmeasured,
}

/// A claim judged.
#[derive(Clone, Debug)]
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    /// What was measured, in the publication's terms.
    pub(crate) measured: String,
    pub(crate) criterion: String,
}

/// A bar judged.
#[derive(Clone, Debug)]
pub(crate) struct BarResult {
    /// Who was best of those it is compared with.
    pub(crate) best: Option<Point>,
    pub(crate) of: Option<f64>,
    pub(crate) to: Option<f64>,
    /// The ratio, or the difference.
    pub(crate) value: Option<f64>,
    /// Its figure is within, or at least the rounds leave open whether it is.
    pub(crate) pass: bool,
    /// Between which the median of the rounds' ratios, or differences, lies nine times in ten.
    pub(crate) interval: Option<(f64, f64)>,
    /// It is left open: the figure is beyond the bar, and its interval is not.
    pub(crate) open: bool,
}

/// An effect within this of nothing is chance.
const NOISE: f64 = 0.03;
/// The share of a published effect that reproduces it.
const ENOUGH: f64 = 0.5;

impl Verdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Partly => "partly",
            Self::Not => "not reproduced",
            Self::Unmeasured => "not measured",
        }
    }
}

impl Limit {
    /// Whether a ratio, or a difference, is within.
    pub(crate) fn holds(self, value: f64) -> bool {
        match self {
            Self::Min(bound) => value >= bound,
            Self::Max(bound) | Self::Above(bound) | Self::AtMost(bound) => value <= bound,
        }
    }

    /// How far beyond itself a missed bar's figure is.
    fn distance(self, value: f64) -> f64 {
        match self {
            Self::Min(bound) => bound / value,
            Self::Max(bound) | Self::Above(bound) | Self::AtMost(bound) => value / bound,
        }
    }

    /// What is compared: a ratio, a difference, or nothing.
    fn value(self, data: &Data, metric: Metric, pair: &Pair) -> Option<f64> {
        match self {
            Self::Above(_) => data.compare(metric, pair, |of, to| of - to),
            Self::AtMost(_) => data.value(metric, &pair.of),
            _ => data.ratio(metric, pair),
        }
    }

    /// Between which the median of the rounds' values lies, as far as these say.
    fn interval(self, data: &Data, metric: Metric, pair: &Pair) -> Option<(f64, f64)> {
        interval(&match self {
            Self::Above(_) => data.compared(metric, pair, |of, to| of - to),
            Self::AtMost(_) => return None,
            _ => data.compared(metric, pair, |of, to| of / to),
        })
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Above(_) => format!("{value:+.1}"),
            _ => format!("x{value:.2}"),
        }
    }
}

/// Judges a claim.
pub(crate) fn claim(claim: &Claim, data: &Data) -> Judgement {
    let judged = match &claim.test {
        Test::Effect { metric, pairs, pick, published } => {
            effect(data, *metric, pairs, *pick, *published)
        }
        Test::Everywhere { metric, pairs, limit } => everywhere(data, *metric, pairs, *limit),
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
        verdict: Verdict::Unmeasured,
        measured: "-".into(),
        criterion: String::new(),
    })
}

fn effect(
    data: &Data,
    metric: Metric,
    pairs: &[Pair],
    pick: Pick,
    published: f64,
) -> Option<Judgement> {
    let ratios: Vec<f64> = pairs.iter().filter_map(|pair| data.ratio(metric, pair)).collect();
    let up = published > 1.0;
    let picked = match pick {
        Pick::Median => median(ratios.iter().copied()),
        Pick::Most if up => ratios.iter().copied().reduce(f64::max),
        Pick::Most => ratios.iter().copied().reduce(f64::min),
        Pick::Least if up => ratios.iter().copied().reduce(f64::min),
        Pick::Least => ratios.iter().copied().reduce(f64::max),
    }?;
    let of = match (ratios.len(), pick) {
        (1, _) => String::new(),
        (n, Pick::Median) => format!(" (median of {n} points)"),
        (n, Pick::Most) => format!(" (best of {n} points)"),
        (n, Pick::Least) => format!(" (worst of {n} points)"),
    };
    Some(of_effect(picked, published, of))
}

/// On a logarithmic scale, so that x2 and x0.5 are equally much.
fn of_effect(ratio: f64, published: f64, of: String) -> Judgement {
    let reached = ratio.ln() / published.ln();
    let noticeable = ratio.ln() * published.ln().signum() > NOISE;
    let verdict = match (noticeable, reached >= ENOUGH) {
        (true, true) => Verdict::Reproduced,
        (true, false) => Verdict::Partly,
        _ => Verdict::Not,
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

fn everywhere(data: &Data, metric: Metric, pairs: &[Pair], limit: Limit) -> Option<Judgement> {
    let values: Vec<f64> =
        pairs.iter().filter_map(|pair| limit.value(data, metric, pair)).collect();
    let worst = match limit {
        Limit::Min(_) => values.iter().copied().reduce(f64::min),
        _ => values.iter().copied().reduce(f64::max),
    }?;
    let holding = values.iter().filter(|&&value| limit.holds(value)).count();
    let verdict = match holding {
        n if n == pairs.len() => Verdict::Reproduced,
        n if n * 2 >= pairs.len() => Verdict::Partly,
        _ => Verdict::Not,
    };
    let measured = match values.len() {
        1 => limit.show(worst),
        n => format!("{} at worst, holds at {holding} of {n} points", limit.show(worst)),
    };
    let partly = if pairs.len() > 1 { " everywhere, partly at half of the points" } else { "" };
    let what = if matches!(limit, Limit::Above(_)) { "difference" } else { "ratio" };
    let criterion = format!("{what} of {} {limit}{partly}", metric.title());
    Some(Judgement { verdict, measured, criterion })
}

fn share(data: &Data, metric: Metric, points: [&Point; 3], published: f64) -> Option<Judgement> {
    let [from, to, whole] = points.map(|point| data.value(metric, point));
    let share = (to? - from?) / whole?;
    let verdict = match share {
        s if s >= published * ENOUGH => Verdict::Reproduced,
        s if s > NOISE => Verdict::Partly,
        _ => Verdict::Not,
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

fn value(data: &Data, metric: Metric, at: &Point, published: f64) -> Option<Judgement> {
    let value = data.value(metric, at)?;
    let ratio = value / published;
    let verdict = match ratio.ln().abs() {
        d if d <= 1.2_f64.ln() => Verdict::Reproduced,
        d if d <= 2.0_f64.ln() => Verdict::Partly,
        _ => Verdict::Not,
    };
    Some(Judgement {
        verdict,
        measured: format!("{} {}", metric.show(value), metric.title()),
        criterion: "reproduced within a fifth, partly within a factor of two".into(),
    })
}

/// Judges a bar: without figures it is missed.
pub(crate) fn bar(bar: &Bar, data: &Data) -> BarResult {
    let value = |point: &Point| data.value(bar.metric, point);
    if let Limit::AtMost(_) = bar.limit {
        let of = value(&bar.of);
        let pass = of.is_some_and(|value| bar.limit.holds(value));
        return BarResult {
            best: None,
            of,
            to: None,
            value: of,
            pass,
            interval: None,
            open: false,
        };
    }
    let known = bar.among.iter().filter_map(|point| Some((*point, value(point)?)));
    let best = match bar.limit {
        Limit::Min(_) => known.max_by(|a, b| a.1.total_cmp(&b.1)),
        _ => known.min_by(|a, b| a.1.total_cmp(&b.1)),
    };
    let pair = best.map(|(to, _)| Pair { of: bar.of, to });
    let reached = pair.and_then(|pair| bar.limit.value(data, bar.metric, &pair));
    let is_within = reached.is_some_and(|value| bar.limit.holds(value));
    let interval = pair.and_then(|pair| bar.limit.interval(data, bar.metric, &pair));
    let may_hold = |(least, most)| bar.limit.holds(least) || bar.limit.holds(most);
    let open = !is_within && interval.is_some_and(may_hold);
    BarResult {
        best: best.map(|(point, _)| point),
        of: value(&bar.of),
        to: best.map(|(_, value)| value),
        value: reached,
        pass: is_within || open,
        interval,
        open,
    }
}

/// How many claims came to what, in words.
pub(crate) fn tally(figures: &[Figure], data: &Data) -> String {
    count(&verdicts(figures, data))
}

/// What all claims came to.
pub(crate) fn verdicts(figures: &[Figure], data: &Data) -> Vec<Verdict> {
    let claims = figures.iter().flat_map(|figure| &figure.claims);
    claims.map(|c| claim(c, data).verdict).collect()
}

/// How many of each there are, in words.
pub(crate) fn count(verdicts: &[Verdict]) -> String {
    let count = |verdict| verdicts.iter().filter(|&&v| v == verdict).count();
    let all = [Verdict::Reproduced, Verdict::Partly, Verdict::Not, Verdict::Unmeasured];
    let counts = all.map(|verdict| format!("{} {}", count(verdict), verdict.name()));
    format!("{} claims: {}.", verdicts.len(), counts.join(", "))
}

/// Bars kept and bars in all.
pub(crate) fn score(bars: &[Bar], data: &Data) -> (usize, usize) {
    (bars.iter().filter(|b| bar(b, data).pass).count(), bars.len())
}

/// The same in words. A bar is missed when the rounds exclude that it is kept.
pub(crate) fn told(bars: &[Bar], data: &Data) -> String {
    let (kept, all) = score(bars, data);
    match bars.iter().filter(|b| bar(b, data).open).count() {
        0 => format!("{kept} of {all}"),
        open => format!("{kept} of {all} (~{open})"),
    }
}

/// The missed bar whose figure is farthest from it, as a share of the bar.
pub(crate) fn farthest<'a>(bars: &'a [Bar], data: &Data) -> Option<&'a Bar> {
    let distance = |one: &Bar| {
        let judged = bar(one, data);
        let far = judged.value.map_or(f64::INFINITY, |value| one.limit.distance(value));
        (!judged.pass).then_some(far)
    };
    let missed = bars.iter().filter_map(|one| Some((one, distance(one)?)));
    missed.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(one, _)| one)
}

/// Whether a bar is missed.
pub(crate) fn missed(bars: &[Bar], data: &Data) -> bool {
    let (kept, all) = score(bars, data);
    kept < all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::plan::Part;
    use crate::eval::plan::{AUTO, I10, NONE, PINOF};
    use crate::eval::result::ProfileResult;
    use crate::eval::result::tests::evaluation;
    use crate::workload::{Load, Setup};

    const LOAD: Load = Load::small(100, 8);
    const OTHER: Load = Load::small(0, 8);

    fn verdict(test: Test, points: &[(Load, Setup, &[f64])]) -> Verdict {
        let evaluation = evaluation(points);
        let claim_ = Claim { text: "", published: "", test, why: "" };
        claim(&claim_, &Data::new(&evaluation)).verdict
    }

    fn effect_of(metric: Metric, published: f64, iops: [f64; 2]) -> Verdict {
        let pairs = vec![Pair::at(LOAD, PINOF, I10)];
        let test = Test::Effect { metric, pairs, pick: Pick::Median, published };
        verdict(test, &[(LOAD, PINOF, &[iops[0]]), (LOAD, I10, &[iops[1]])])
    }

    #[test]
    fn effects_need_half_of_what_was_published() {
        assert_eq!(effect_of(Metric::Iops, 1.44, [130.0, 100.0]), Verdict::Reproduced);
        assert_eq!(effect_of(Metric::Iops, 1.44, [110.0, 100.0]), Verdict::Partly);
        assert_eq!(effect_of(Metric::Iops, 1.44, [101.0, 100.0]), Verdict::Not);
        assert_eq!(effect_of(Metric::Iops, 1.44, [50.0, 100.0]), Verdict::Not);
    }

    #[test]
    fn less_latency_is_an_effect_downwards() {
        assert_eq!(effect_of(Metric::LatencyP99, 0.8, [130.0, 100.0]), Verdict::Reproduced);
        assert_eq!(effect_of(Metric::LatencyP99, 0.5, [110.0, 100.0]), Verdict::Partly);
        assert_eq!(effect_of(Metric::LatencyP99, 0.8, [90.0, 100.0]), Verdict::Not);
    }

    #[test]
    fn up_to_and_at_least_pick_their_point() {
        let pairs = vec![Pair::at(LOAD, PINOF, I10), Pair::at(OTHER, PINOF, I10)];
        let points: &[(Load, Setup, &[f64])] = &[
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
        assert_eq!(verdict(test(Pick::Most), points), Verdict::Reproduced);
        assert_eq!(verdict(test(Pick::Least), points), Verdict::Not);
        let everywhere = |bound| Test::Everywhere {
            metric: Metric::Iops,
            pairs: pairs.clone(),
            limit: Limit::Min(bound),
        };
        assert_eq!(verdict(everywhere(0.97), points), Verdict::Reproduced);
        assert_eq!(verdict(everywhere(1.2), points), Verdict::Partly);
        assert_eq!(verdict(everywhere(2.0), points), Verdict::Not);
    }

    #[test]
    fn a_missing_point_is_no_success() {
        let pairs = vec![Pair::at(LOAD, PINOF, I10), Pair::at(OTHER, PINOF, I10)];
        let limit = Limit::Min(0.97);
        let points: &[(Load, Setup, &[f64])] =
            &[(LOAD, PINOF, &[1.0]), (LOAD, I10, &[1.0]), (OTHER, I10, &[1.0])];
        let test = Test::Everywhere { metric: Metric::Iops, pairs, limit };
        assert_eq!(verdict(test.clone(), points), Verdict::Partly);
        assert_eq!(verdict(test, &[]), Verdict::Unmeasured);
        assert_eq!(verdict(Test::Elsewhere, points), Verdict::Unmeasured);
    }

    #[test]
    fn shares_and_values() {
        let [from, to] = [NONE, I10].map(|setup| Point::new(LOAD, setup));
        let share =
            |published| Test::Share { metric: Metric::Iops, from, to, whole: to, published };
        let points: &[(Load, Setup, &[f64])] = &[(LOAD, NONE, &[60.0]), (LOAD, I10, &[100.0])];
        assert_eq!(verdict(share(0.38), points), Verdict::Reproduced);
        assert_eq!(verdict(share(0.9), points), Verdict::Partly);
        let value =
            |published| Test::Value { metric: Metric::TargetBytesPerSend, at: to, published };
        assert_eq!(verdict(value(61.0 * 1024.0), points), Verdict::Reproduced);
        assert_eq!(verdict(value(40_000.0), points), Verdict::Partly);
        assert_eq!(verdict(value(72.0), points), Verdict::Not);
    }

    #[test]
    fn profiles_compare_by_request_and_by_share() {
        let mut evaluation = evaluation(&[]);
        for (setup, ns) in [(I10, [50.0, 50.0]), (NONE, [100.0, 900.0])] {
            let parts = [Part::Application, Part::Network].map(|part| part.name().to_owned());
            evaluation.profiles.push(ProfileResult {
                load: LOAD.to_string(),
                side: setup.to_string(),
                error: None,
                ns_per_io: parts.into_iter().zip(ns).collect(),
                samples: 1000,
                other_symbols: vec![],
            });
        }
        let [of, to] = [I10, NONE].map(|setup| Point::new(LOAD, setup));
        let measured = |per_io| {
            let test = Test::Profile { per_io, part: Part::Application, of, to, published: 1.8 };
            claim(&Claim { text: "", published: "", test, why: "" }, &Data::new(&evaluation))
        };
        assert_eq!(measured(true).measured, "x0.50");
        assert_eq!(measured(false).measured, "x5.00");
        assert_eq!(measured(false).verdict, Verdict::Reproduced);
    }

    #[test]
    fn a_bar_is_missed_when_the_rounds_exclude_it() {
        let result = |auto: &[f64]| {
            let none = vec![100.0; auto.len()];
            let evaluation = evaluation(&[(LOAD, AUTO, auto), (LOAD, NONE, &none)]);
            let bars = [Bar {
                row: String::new(),
                column: String::new(),
                metric: Metric::Iops,
                of: Point::new(LOAD, AUTO),
                among: vec![Point::new(LOAD, NONE)],
                limit: Limit::Min(0.97),
            }];
            let data = Data::new(&evaluation);
            let result = bar(&bars[0], &data);
            (result.pass, result.open, told(&bars, &data))
        };
        assert_eq!(result(&[99.0; 5]), (true, false, "1 of 1".into()));
        assert_eq!(result(&[90.0, 91.0, 92.0, 93.0, 94.0]), (false, false, "0 of 1".into()));
        assert_eq!(result(&[90.0, 91.0, 92.0, 93.0, 98.0]), (true, true, "1 of 1 (~1)".into()));
        assert!(!result(&[90.0, 91.0, 98.0, 90.0]).0, "too few rounds to excuse it");
        let eight = [90.0, 91.0, 92.0, 93.0, 93.0, 93.0, 93.0, 98.0];
        assert!(!result(&eight).0, "one in eight is chance");
    }

    #[test]
    fn bars_compare_with_the_best() {
        let among: Vec<Point> = [NONE, I10, PINOF].map(|setup| Point::new(LOAD, setup)).to_vec();
        let evaluation = evaluation(&[
            (LOAD, AUTO, &[96.0, 96.0]),
            (LOAD, NONE, &[90.0, 90.0]),
            (LOAD, I10, &[100.0, 100.0]),
        ]);
        let data = Data::new(&evaluation);
        let result = |metric, limit| {
            let of = Point::new(LOAD, AUTO);
            bar(
                &Bar {
                    row: String::new(),
                    column: String::new(),
                    metric,
                    of,
                    among: among.clone(),
                    limit,
                },
                &data,
            )
        };
        let iops = result(Metric::Iops, Limit::Min(0.97));
        assert_eq!(iops.best, Some(Point::new(LOAD, I10)));
        assert!(!iops.pass);
        assert!(result(Metric::LatencyP99, Limit::Max(1.05)).pass);
        assert!(!result(Metric::LatencyP99, Limit::Max(1.01)).pass);
        assert!(!result(Metric::Syscalls, Limit::Max(9.0)).pass, "no figures, no pass");
        // p99 is 1e9/IOPS.
        assert!(!result(Metric::Settle, Limit::AtMost(10.0)).pass);
        let at_most = result(Metric::Iops, Limit::AtMost(0.095));
        assert!(!at_most.pass && at_most.to.is_none());
        assert!(result(Metric::Iops, Limit::AtMost(0.097)).pass);
        let above = result(Metric::LatencyP99, Limit::Above(500_000.0));
        assert!(above.pass && above.value.is_some_and(|v| v > 400_000.0));
    }
}

//! All figures, in the order they are measured and reported.

mod ether;
mod goals;
mod i10;
mod modes;
mod pinof;
mod sweeps;
mod tyche;

use super::plan::{EvalClaim, EvalFigure, Test};
use crate::runs::MeasuringExtent;

/// Everything.
pub(crate) fn all(extent: MeasuringExtent) -> Vec<EvalFigure> {
    let mut figures = goals::figures(extent);
    figures.extend(i10::figures(extent));
    figures.extend(pinof::figures(extent));
    figures.extend(tyche::figures(extent));
    figures.extend(modes::figures(extent));
    figures.extend(sweeps::figures(extent));
    figures.extend(ether::figures(extent));
    figures.push(elsewhere());
    figures
}

/// Published claims that this machine or this transport cannot test: named, not passed over.
fn elsewhere() -> EvalFigure {
    let claim = |text, published, why| EvalClaim { text, published, test: Test::Elsewhere, why };
    let cores =
        "Needs more cores than the one a side that this machine has. The model has it: see below.";
    EvalFigure {
        id: "elsewhere",
        source: "all",
        title: "Not measured here",
        question: "Which published claims are left out, and why?",
        how: "",
        claims: vec![
            claim(
                "i10, fig. 7: 4 cores saturate a 700 kIOPS SSD (NVMe/TCP: 10)",
                "4 and 10 cores",
                cores,
            ),
            claim("i10, fig. 7: 2.8 MIOPS over 100 Gb/s with about 20 cores", "2.8 MIOPS", cores),
            claim(
                "i10, app. B: batching system calls as well brings another 1.2 times",
                "x1.2",
                "The reactor always batches its calls through io_uring: there is no side without.",
            ),
            claim("PINoF, fig. 7: ahead of i10 on 1 to 24 cores", "everywhere", cores),
            claim(
                "Tyche (2014), fig. 10: buffers and connections on the NIC's node: reads +35 %, writes +97 %",
                "+35 %, +97 %",
                "This machine has one NUMA node.",
            ),
            claim(
                "Tyche (2014), table III: Psearchy, IOR, HBase over 1 and 6 NICs of 10 GbE",
                "2.3 to 8 times NBD",
                "Needs links of 10 Gbit/s and cores to fill them.",
            ),
        ],
        ..EvalFigure::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Figures that the evaluation has to have.
    const WANTED: &str = "i10-fig6 i10-fig8 i10-fig9 i10-fig10 i10-fig11 i10-fig12 pinof-fig5 pinof-fig6 pinof-fig8 \
        tyche-fig5 tyche-fig8 tyche-fig12 sweep-aggregation sweep-timer sweep-size goals-depth goals-one goals-open \
        goals-writes goals-mixed goals-class goals-steps goals-lanes goals-floor ether-fig5 ether-fig7 ether-fig8 \
        ether-fig9 ether-fig11 ether-fig12 ether-modes elsewhere";

    #[test]
    fn every_figure_is_there_in_both_extents() {
        for extent in [MeasuringExtent::Full, MeasuringExtent::Quick] {
            let ids: Vec<&str> = all(extent).iter().map(|figure| figure.id).collect();
            for wanted in WANTED.split(' ') {
                assert!(ids.contains(&wanted), "{extent:?}: no {wanted}");
            }
            assert_eq!(ids.len(), WANTED.split(' ').count());
        }
    }

    #[test]
    fn every_figure_has_a_question_and_shows_something() {
        for figure in all(MeasuringExtent::Full).iter().chain(&all(MeasuringExtent::Quick)) {
            assert!(figure.question.ends_with('?'), "{}", figure.id);
            assert!(!figure.source.is_empty() && !figure.title.is_empty(), "{}", figure.id);
            let shows = figure.panels.iter().any(|panel| !panel.cells.is_empty());
            assert!(
                shows || !figure.profiled.is_empty() || figure.id == "elsewhere",
                "{}: empty",
                figure.id
            );
            assert!(!figure.claims.is_empty() || !figure.goals.is_empty(), "{}", figure.id);
        }
    }

    #[test]
    fn every_claim_has_its_published_figure_and_a_reason() {
        for claim in all(MeasuringExtent::Full).into_iter().flat_map(|figure| figure.claims) {
            assert!(!claim.published.is_empty(), "{}", claim.text);
            assert!(claim.why.len() > 20, "{}", claim.text);
            match &claim.test {
                Test::Effect { pairs, published, .. } => {
                    assert!(!pairs.is_empty() && *published != 1.0, "{}", claim.text);
                }
                Test::Everywhere { pairs, .. } => assert!(!pairs.is_empty(), "{}", claim.text),
                _ => {}
            }
        }
    }

    #[test]
    fn quick_measures_a_part_of_what_full_does() {
        let points =
            |extent| -> HashSet<_> { all(extent).iter().flat_map(EvalFigure::points).collect() };
        let (full, quick) = (points(MeasuringExtent::Full), points(MeasuringExtent::Quick));
        assert!(quick.is_subset(&full), "{:?}", quick.difference(&full).next());
        assert!(quick.len() * 3 < full.len(), "{} of {}", quick.len(), full.len());
    }

    #[test]
    fn points_have_distinct_names() {
        let points: HashSet<_> =
            all(MeasuringExtent::Full).iter().flat_map(EvalFigure::points).collect();
        let names: HashSet<_> =
            points.iter().map(|p| (p.load.to_string(), p.side.to_string())).collect();
        assert_eq!(names.len(), points.len());
    }
}

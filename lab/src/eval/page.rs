//! The section of docs/PERFORMANCE.md: a row for each published claim, and what the goals came to.

use super::judge;
use super::plan::Figure;
use super::result::{Data, Evaluation};
use super::tables;
use crate::grid::{self, strings};
use std::fmt::Write;

/// What stands between the markers.
pub(crate) fn markdown(figures: &[Figure], data: &Data) -> String {
    let e = data.evaluation;
    let mut out = String::new();
    writeln!(
        out,
        "{}.\nMedians of at most {} alternating rounds of {} s. Command: `{}`.\n",
        e.machine, e.rounds, e.seconds, e.command
    )
    .expect("a string takes all");
    claims(&mut out, figures, data);
    out.push_str(HOW_GOALS);
    goals(&mut out, figures, data);
    points(&mut out, figures, data);
    out
}

/// What the marks in the goals' tables are.
const HOW_GOALS: &str = "\nA bar is **missed** when the rounds exclude that it is kept: it lies outside of the \
    interval that has the median of the rounds' ratios nine times in ten. ~ marks what is beyond its bar, though \
    the rounds do not exclude that it is kept; it counts as kept, and (~n) is how many of these there are. Either is told with its interval. With \
    fewer than five rounds the median alone decides.\n";

/// Goals by how far they were missed, and how the claims came out by publication.
pub(crate) fn short(evaluations: &[(Vec<Figure>, Evaluation)]) -> String {
    let mut lines = vec![strings(&["goal", "bars kept", "farthest from its bar"])];
    let mut verdicts = Vec::new();
    // With the goals that were measured on it.
    let mut machines: Vec<(String, Vec<&str>)> = Vec::new();
    for (figures, evaluation) in evaluations {
        let data = Data::new(evaluation);
        let machine = evaluation.machine.to_string();
        let known = machines.iter().position(|(name, _)| *name == machine);
        let known = known.unwrap_or_else(|| {
            machines.push((machine, Vec::new()));
            machines.len() - 1
        });
        for figure in figures.iter().filter(|figure| !figure.bars.is_empty()) {
            let kept = judge::told(&figure.bars, &data);
            let farthest = judge::farthest(&figure.bars, &data);
            let farthest = farthest.map_or_else(String::new, |bar| tables::missed(bar, &data));
            lines.push(vec![figure.title.to_owned(), kept, farthest]);
            machines[known].1.push(figure.title);
        }
        verdicts.extend(judge::verdicts(figures, &data));
    }
    let mut out = String::new();
    for (number, (machine, titles)) in machines.iter().enumerate() {
        let what = if number == 0 { String::new() } else { format!("{}: ", titles.join(", ")) };
        writeln!(out, "{what}{machine}.").expect("a string takes all");
    }
    out.push('\n');
    grid::write_plain(&mut out, &lines);
    writeln!(out, "\n{}", judge::count(&verdicts)).expect("a string takes all");
    out
}

fn claims(out: &mut String, figures: &[Figure], data: &Data) {
    let mut lines = vec![strings(&["source", "claim", "published", "here", "verdict", "why"])];
    for figure in figures {
        for claim in &figure.claims {
            let judged = judge::claim(claim, data);
            lines.push(vec![
                figure.source.to_owned(),
                claim.text.to_owned(),
                claim.published.to_owned(),
                judged.measured,
                judged.verdict.name().to_owned(),
                claim.why.to_owned(),
            ]);
        }
    }
    writeln!(out, "{}\n", judge::tally(figures, data)).expect("a string takes all");
    grid::write_plain(out, &lines);
}

fn goals(out: &mut String, figures: &[Figure], data: &Data) {
    for figure in figures.iter().filter(|figure| !figure.bars.is_empty()) {
        let kept = judge::told(&figure.bars, data);
        writeln!(out, "\n### Goal: {}\n\n{} {kept} bars kept.\n", figure.title, figure.how)
            .expect("a string takes all");
        grid::write_plain(out, &tables::matrix(&figure.bars, data));
        if judge::missed(&figure.bars, data) && !figure.why.is_empty() {
            writeln!(out, "\nWhat is missed: {}", figure.why).expect("a string takes all");
        }
    }
}

/// All that was measured, of the figures that want it told.
fn points(out: &mut String, figures: &[Figure], data: &Data) {
    for figure in figures.iter().filter(|figure| !figure.tabled.is_empty()) {
        for panel in &figure.panels {
            writeln!(out, "\n{}:\n", panel.title).expect("a string takes all");
            grid::write_plain(out, &tables::side_by_side(panel, figure.tabled, data));
        }
    }
}

/// How it went, for a terminal.
pub(crate) fn summary(figures: &[Figure], data: &Data) -> String {
    let mut out = String::new();
    for figure in figures {
        for claim in &figure.claims {
            let judged = judge::claim(claim, data);
            writeln!(
                out,
                "{:<18} {:<15} {} (published {}): {}",
                figure.id,
                judged.verdict.name(),
                judged.measured,
                claim.published,
                claim.text
            )
            .expect("a string takes all");
        }
        if !figure.bars.is_empty() {
            let kept = judge::told(&figure.bars, data);
            writeln!(out, "{:<18} {kept} bars kept: {}", figure.id, figure.title)
                .expect("a string takes all");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::figures;
    use crate::eval::plan::{Extent, I10, UNBATCHED};
    use crate::eval::result::tests::evaluation;
    use crate::workload::Load;

    #[test]
    fn every_claim_has_a_row() {
        let load = Load::small(100, 128);
        let evaluation = evaluation(&[(load, I10, &[2.5e5]), (load, UNBATCHED, &[1.4e5])]);
        let figures = figures::all(Extent::Full);
        let page = markdown(&figures, &Data::new(&evaluation));
        for claim in figures.iter().flat_map(|figure| &figure.claims) {
            assert!(page.contains(claim.text), "{}", claim.text);
        }
        assert!(page.contains("| x1.79 | x1.79 | reproduced |"), "{page}");
    }
}

//! The section of docs/PERFORMANCE.md: a row for each published claim, and what the goals came to.

use super::judge;
use super::plan::Figure;
use super::result::Data;
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
    goals(&mut out, figures, data);
    points(&mut out, figures, data);
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
    table(out, &lines);
}

fn goals(out: &mut String, figures: &[Figure], data: &Data) {
    for figure in figures.iter().filter(|figure| !figure.bars.is_empty()) {
        let (kept, all) = judge::score(&figure.bars, data);
        writeln!(
            out,
            "\n### Goal: {}\n\n{} {kept} of {all} bars kept.\n",
            figure.title, figure.how
        )
        .expect("a string takes all");
        let mut matrix = tables::matrix(&figure.bars, data);
        for cell in matrix.iter_mut().flatten() {
            if let Some(missed) = cell.strip_prefix('!') {
                *cell = format!("**{missed}**");
            }
        }
        table(out, &matrix);
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
            table(out, &tables::side_by_side(panel, figure.tabled, data));
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
            let (kept, all) = judge::score(&figure.bars, data);
            writeln!(out, "{:<18} {kept} of {all} bars kept: {}", figure.id, figure.title)
                .expect("a string takes all");
        }
    }
    out
}

/// Long cells: no padding.
fn table(out: &mut String, lines: &grid::Grid) {
    for (number, line) in lines.iter().enumerate() {
        let cells: Vec<String> = line.iter().map(|cell| cell.replace('|', "\\|")).collect();
        writeln!(out, "| {} |", cells.join(" | ")).expect("a string takes all");
        if number == 0 {
            writeln!(out, "|{}", "---|".repeat(line.len())).expect("a string takes all");
        }
    }
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

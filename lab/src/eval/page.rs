//! Pages of an evaluation: a row for each published claim, and the goals.

use super::judge::{self, ClaimVerdict};
use super::plan::{EvalFigure, Panel};
use super::result::{EvalData, Evaluation};
use super::{chart, tables};
use crate::judge::{farthest, score_goals};
use crate::page::{PageParts, cells};
use crate::tables::{BoundIn, goals, matrix, missed};

/// Panels with more cells have their tables folded.
const CELLS_SHOWN: usize = 12;

/// The section of the journal.
pub(crate) fn journal(figures: &[EvalFigure], data: &EvalData) -> PageParts {
    let conditions = &data.evaluation.conditions;
    let mut page = PageParts::default();
    page.text(format!(
        "{}.\nMedians of at most {} alternating rounds of {} s. Command: `{}`.",
        conditions.machine, conditions.rounds, conditions.seconds, conditions.command
    ));
    claims(&mut page, figures, data);
    page.text(HOW_GOALS);
    for figure in figures.iter().filter(|figure| !figure.goals.is_empty()) {
        page.heading(3, format!("Goal: {}", figure.title));
        page.text(format!("{} {} bars kept.", figure.how, score_goals(&figure.goals, data)));
        page.wide(matrix("", &figure.goals, data, BoundIn::Heading));
        why(&mut page, figure, data);
    }
    for figure in figures.iter().filter(|figure| !figure.tabled.is_empty()) {
        for panel in &figure.panels {
            page.text(format!("{}:", panel.title));
            page.wide(tables::side_by_side(panel, figure.tabled, data));
        }
    }
    page
}

/// The marks in the tables of goals.
const HOW_GOALS: &str = "A bar is **missed** when the rounds exclude that it is kept: it lies outside of the \
    interval that has the median of the rounds' ratios nine times in ten. ~ marks what is beyond its bar, though \
    the rounds do not exclude that it is kept; it counts as kept, and (~n) is how many of these there are. Either is told with its interval. With \
    fewer than five rounds the median alone decides.";

/// Goals by how far they were missed, and how the claims came out.
pub(crate) fn short(evaluations: &[(Vec<EvalFigure>, Evaluation)]) -> PageParts {
    let mut lines = vec![cells("goal | bars kept | farthest from its bar")];
    let mut verdicts = Vec::new();
    // With the goals that were measured on it.
    let mut machines: Vec<(String, Vec<&str>)> = Vec::new();
    for (figures, evaluation) in evaluations {
        let data = EvalData::new(evaluation);
        let machine = evaluation.conditions.machine.to_string();
        let known = machines.iter().position(|(name, _)| *name == machine);
        let known = known.unwrap_or_else(|| {
            machines.push((machine, Vec::new()));
            machines.len() - 1
        });
        for figure in figures.iter().filter(|figure| !figure.goals.is_empty()) {
            let farthest = farthest(&figure.goals, &data);
            let farthest = farthest.map_or_else(String::new, |goal| missed(goal, &data));
            let kept = score_goals(&figure.goals, &data).to_string();
            lines.push(vec![figure.title.to_owned(), kept, farthest]);
            machines[known].1.push(figure.title);
        }
        verdicts.extend(judge::verdicts(figures, &data));
    }
    let machines = machines.iter().enumerate().map(|(number, (machine, titles))| match number {
        0 => format!("{machine}."),
        _ => format!("{}: {machine}.", titles.join(", ")),
    });
    let mut page = PageParts::default();
    page.text(machines.collect::<Vec<_>>().join("\n"));
    page.wide(lines);
    page.text(judge::count(&verdicts));
    page
}

fn claims(page: &mut PageParts, figures: &[EvalFigure], data: &EvalData) {
    let mut lines = vec![cells("source | claim | published | here | verdict | why")];
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
    page.text(judge::tally(figures, data));
    page.wide(lines);
}

/// Says why goals are missed, if any is.
fn why(page: &mut PageParts, figure: &EvalFigure, data: &EvalData) {
    if score_goals(&figure.goals, data).missed > 0 && !figure.why.is_empty() {
        page.text(format!("What is missed: {}", figure.why));
    }
}

/// The report of everything, with charts.
pub(crate) fn report(figures: &[EvalFigure], data: &EvalData) -> PageParts {
    let mut page = PageParts::default();
    introduction(&mut page, data);
    page.heading(2, "The published claims");
    claims(&mut page, figures, data);
    page.heading(2, "Our goals");
    let mut lines = vec![cells("goal | bars kept")];
    for figure in figures.iter().filter(|figure| !figure.goals.is_empty()) {
        let score = score_goals(&figure.goals, data);
        let mark = if score.missed > 0 { "!" } else { "" };
        lines.push(vec![figure.title.to_owned(), format!("{mark}{score}")]);
    }
    page.wide(lines);
    for figure in figures {
        section(&mut page, figure, data);
    }
    page
}

fn introduction(page: &mut PageParts, data: &EvalData) {
    let e = data.evaluation;
    let foreign = e.runs.iter().filter_map(|run| run.median.as_ref()).map(|m| m.foreign_cores);
    let failed = e.runs.iter().filter(|run| run.median.is_none()).count();
    page.text(
        "All batching policies of Roadtrain side by side, figure by figure as they were \
         published, against the bare-TCP floor of the same minutes, and against the goals of the project.",
    );
    page.text(format!("Machine: {}.", e.conditions.machine));
    page.text(format!(
        "How measured: `roadtrain bench`, one process a run, with its own target on loopback; \
         host on core 0, target on core 1, both asleep while there is nothing to do. Each run \
         loads for {} s and measures {} s. In each of {} rounds every load is run with all \
         policies one after the other, in the next round the other way round. Figures are \
         medians over the rounds; ratios are medians of each round's own ratio. mem is {} MiB \
         of memory, ssd the same whose every command takes 100 us, at most 64 at once. A run \
         that others disturbed is repeated; what others used in the worst median is {:.2} \
         cores. It took {:.0} minutes. Differences under 5 % mean nothing.",
        e.ramp_seconds,
        e.conditions.seconds,
        e.conditions.rounds,
        super::MIB,
        foreign.fold(0.0, f64::max),
        e.minutes,
    ));
    if e.quick {
        page.note("A quick run: fewer points, shorter and fewer runs.");
    }
    if failed > 0 {
        page.note(format!("{failed} of {} points failed; the tables say how.", e.runs.len()));
    }
    for (backend, peak) in &e.peaks {
        page.text(format!("Peak rate of open loops, {backend}: {:.0} k a second.", peak / 1e3));
    }
    page.text(format!("Command: `{}`.", e.conditions.command));
}

fn section(page: &mut PageParts, figure: &EvalFigure, data: &EvalData) {
    page.heading(2, format!("{} ({})", figure.title, figure.source));
    page.text(figure.question);
    page.text(figure.how);
    if !figure.claims.is_empty() {
        let mut lines = vec![cells("claim | published | here | verdict | criterion | why")];
        for claim in &figure.claims {
            let judged = judge::claim(claim, data);
            let mark = if judged.verdict == ClaimVerdict::Not { "!" } else { "" };
            let verdict = format!("{mark}{}", judged.verdict.name());
            let [text, published, why] =
                [claim.text, claim.published, claim.why].map(str::to_owned);
            lines.push(vec![text, published, judged.measured, verdict, judged.criterion, why]);
        }
        page.wide(lines);
    }
    if !figure.goals.is_empty() {
        page.text(format!("{} bars kept.", score_goals(&figure.goals, data)));
        page.wide(matrix("", &figure.goals, data, BoundIn::Heading));
        page.folded("All bars", goals(&figure.goals, data));
        why(page, figure, data);
    }
    figure.panels.iter().for_each(|one| panel(page, one, data));
    if figure.profiled.is_empty() {
        return;
    }
    match &data.evaluation.profiles_skipped {
        Some(reason) => page.note(format!("SKIPPED: {reason}")),
        None => {
            page.charts(chart::profile_svg(&figure.profiled, data));
            page.wide(tables::profile(&figure.profiled, data));
        }
    }
}

fn panel(page: &mut PageParts, panel: &Panel, data: &EvalData) {
    page.heading(3, panel.title.clone());
    page.charts(panel.charts.iter().filter_map(|chart| chart::svg(panel, chart, data)));
    let table = tables::panel(panel, data);
    match panel.cells.len() {
        cells if cells > CELLS_SHOWN => page.folded(format!("Table: {cells} rows"), table),
        _ => page.wide(table),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::figures;
    use crate::eval::plan::{I10, UNBATCHED};
    use crate::eval::result::tests::evaluation;
    use crate::runs::MeasuringExtent;
    use crate::workload::LabLoad;
    use crate::xml;

    const LOAD: LabLoad = LabLoad::small(100, 128);

    #[test]
    fn every_claim_has_a_row() {
        let evaluation = evaluation(&[(LOAD, I10, &[2.5e5]), (LOAD, UNBATCHED, &[1.4e5])]);
        let figures = figures::all(MeasuringExtent::Full);
        let page = journal(&figures, &EvalData::new(&evaluation)).markdown();
        for claim in figures.iter().flat_map(|figure| &figure.claims) {
            assert!(page.contains(claim.text), "{}", claim.text);
        }
        assert!(page.contains("| x1.79 | x1.79 | reproduced |"), "{page}");
    }

    #[test]
    fn the_report_is_well_formed_with_and_without_figures() {
        let full = evaluation(&[(LOAD, I10, &[2e5]), (LOAD, UNBATCHED, &[0.0])]);
        for evaluation in [&full, &evaluation(&[])] {
            let page =
                report(&figures::all(MeasuringExtent::Quick), &EvalData::new(evaluation)).html("x");
            xml::check(&page).unwrap_or_else(|e| panic!("{e}"));
            assert!(
                page.contains("Load and latency (i10, fig. 6)") && page.contains("SKIPPED: perf")
            );
        }
        let page = report(&figures::all(MeasuringExtent::Quick), &EvalData::new(&full)).html("x");
        assert!(page.contains("failed: exit status: 2: error: no &lt;such&gt; | policy"));
    }
}

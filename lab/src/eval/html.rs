//! The report: one page that needs nothing else, charts inline.

use super::judge::{self, Verdict};
use super::plan::{Bar, Figure, Panel, Point};
use super::result::Data;
use super::{chart, tables};
use crate::grid::Grid;
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");

/// Renders everything.
pub(crate) fn page(figures: &[Figure], data: &Data) -> String {
    let mut out = String::new();
    introduction(&mut out, data);
    claims(&mut out, figures, data);
    goals(&mut out, figures, data);
    for figure in figures {
        section(&mut out, figure, data);
    }
    document("Roadtrain: an evaluation", &out)
}

/// A whole page.
pub(crate) fn document(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"/>\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<main>\n<h1>{title}</h1>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// Text as HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Text, unless there is none.
pub(crate) fn paragraph(out: &mut String, class: &str, text: &str) {
    if !text.is_empty() {
        // Between backticks: code.
        let text = escape(text);
        let parts = text.split('`').enumerate();
        let text: String = parts
            .map(|(n, part)| if n % 2 == 1 { format!("<code>{part}</code>") } else { part.into() })
            .collect();
        writeln!(out, "<p class=\"{class}\">{text}</p>").expect("a string takes all");
    }
}

fn introduction(out: &mut String, data: &Data) {
    let e = data.evaluation;
    let foreign = e.runs.iter().filter_map(|run| run.median.as_ref()).map(|m| m.foreign_cores);
    let failed = e.runs.iter().filter(|run| run.median.is_none()).count();
    paragraph(
        out,
        "lead",
        "All batching policies of Roadtrain side by side, figure by figure as they were \
         published, against the bare-TCP floor of the same minutes, and against what the project \
         wants to reach.",
    );
    paragraph(out, "", &format!("Machine: {}.", e.machine));
    paragraph(
        out,
        "",
        &format!(
            "How measured: `roadtrain bench`, one process a run, with its own target on loopback; \
             host on core 0, target on core 1, both asleep while there is nothing to do. Each run \
             loads for {} s and measures {} s. In each of {} rounds every load is run with all \
             policies one after the other, in the next round the other way round. Figures are \
             medians over the rounds; ratios are medians of each round's own ratio. mem is {} MiB \
             of memory, ssd the same whose every command takes 100 us, at most 64 at once. A run \
             that others disturbed is repeated; what others used in the worst median is {:.2} \
             cores. It took {:.0} minutes. Differences under 5 % mean nothing.",
            e.ramp_seconds,
            e.seconds,
            e.rounds,
            super::MIB,
            foreign.fold(0.0, f64::max),
            e.minutes,
        ),
    );
    if e.quick {
        paragraph(out, "note", "A quick run: fewer points, shorter and fewer runs.");
    }
    if failed > 0 {
        let text = format!("{failed} of {} points failed; the tables say how.", e.runs.len());
        paragraph(out, "note", &text);
    }
    for (backend, peak) in &e.peaks {
        let text = format!("Peak rate of open loops, {backend}: {:.0} k a second.", peak / 1e3);
        paragraph(out, "", &text);
    }
    paragraph(out, "", &format!("Command: `{}`.", e.command));
}

/// All claims in one table.
fn claims(out: &mut String, figures: &[Figure], data: &Data) {
    let all: Vec<_> =
        figures.iter().flat_map(|f| f.claims.iter().map(move |claim| (f, claim))).collect();
    if all.is_empty() {
        return;
    }
    out.push_str(
        "<h2>The published claims</h2>\n<table>\n<thead><tr><th>source</th><th>claim</th>",
    );
    out.push_str("<th>published</th><th>here</th><th>verdict</th></tr></thead>\n<tbody>\n");
    for (figure, claim) in all {
        let judged = judge::claim(claim, data);
        writeln!(
            out,
            "<tr><td><a href=\"#{}\">{}</a></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            figure.id,
            escape(figure.source),
            escape(claim.text),
            escape(claim.published),
            escape(&judged.measured),
            badge(judged.verdict)
        )
        .expect("a string takes all");
    }
    out.push_str("</tbody>\n</table>\n");
}

fn badge(verdict: Verdict) -> String {
    let class = match verdict {
        Verdict::Reproduced => "good",
        Verdict::Partly => "fair",
        Verdict::Not => "bad",
        Verdict::Unmeasured => "none",
    };
    format!("<span class=\"badge {class}\">{}</span>", verdict.name())
}

/// How many bars each figure keeps.
fn goals(out: &mut String, figures: &[Figure], data: &Data) {
    let with: Vec<&Figure> = figures.iter().filter(|figure| !figure.bars.is_empty()).collect();
    if with.is_empty() {
        return;
    }
    out.push_str("<h2>Our goals</h2>\n<table>\n<thead><tr><th>goal</th><th>bars kept</th>");
    out.push_str("<th></th></tr></thead>\n<tbody>\n");
    for figure in with {
        let (kept, all) = judge::score(&figure.bars, data);
        let class = if kept == all { "good" } else { "bad" };
        writeln!(
            out,
            "<tr><td><a href=\"#{}\">{}</a></td><td class=\"n\">{kept} of {all}</td><td><span \
             class=\"badge {class}\">{}</span></td></tr>",
            figure.id,
            escape(figure.title),
            if kept == all { "reached" } else { "missed" }
        )
        .expect("a string takes all");
    }
    out.push_str("</tbody>\n</table>\n");
}

fn section(out: &mut String, figure: &Figure, data: &Data) {
    writeln!(
        out,
        "<section id=\"{}\">\n<h2>{} <small>{}</small></h2>",
        figure.id,
        escape(figure.title),
        escape(figure.source)
    )
    .expect("a string takes all");
    paragraph(out, "question", figure.question);
    paragraph(out, "", figure.how);
    for claim in &figure.claims {
        let judged = judge::claim(claim, data);
        let criterion = match judged.criterion.as_str() {
            "" => String::new(),
            text => format!("<br/><small>Criterion: {}.</small>", escape(text)),
        };
        writeln!(
            out,
            "<div class=\"verdict\">{} {}. Published {}, here {}.{criterion}<br/>Why: {}</div>",
            badge(judged.verdict),
            escape(claim.text),
            escape(claim.published),
            escape(&judged.measured),
            escape(claim.why)
        )
        .expect("a string takes all");
    }
    bars(out, &figure.bars, data);
    if judge::missed(&figure.bars, data) && !figure.why.is_empty() {
        paragraph(out, "", &format!("What is missed: {}", figure.why));
    }
    for panel in &figure.panels {
        charts(out, panel, data);
    }
    profile(out, &figure.profiled, data);
    out.push_str("</section>\n");
}

fn charts(out: &mut String, panel: &Panel, data: &Data) {
    writeln!(out, "<h3>{}</h3>\n<div class=\"charts\">", escape(&panel.title))
        .expect("a string takes all");
    for svg in panel.charts.iter().filter_map(|chart| chart::svg(panel, chart, data)) {
        writeln!(out, "<figure>{svg}</figure>").expect("a string takes all");
    }
    out.push_str("</div>\n");
    let folded = panel.cells.len() > 12;
    if folded {
        writeln!(out, "<details><summary>Table: {} rows</summary>", panel.cells.len())
            .expect("a string takes all");
    }
    grid(out, &tables::panel(panel, data));
    if folded {
        out.push_str("</details>\n");
    }
}

/// A grid as a table; a cell that begins with `!` is marked, and a lone one stretches to the end.
pub(crate) fn grid(out: &mut String, grid: &Grid) {
    out.push_str("<div class=\"scroll\"><table>\n");
    for (number, line) in grid.iter().enumerate() {
        let tag = if number == 0 { "th" } else { "td" };
        out.push_str("<tr>");
        for (column, cell) in line.iter().enumerate() {
            let (text, marked) = match cell.strip_prefix('!') {
                Some(text) => (text, true),
                None => (cell.as_str(), false),
            };
            let class = class(text, marked);
            let lone = marked && line[column + 1..].iter().all(String::is_empty);
            let span = if lone { line.len() - column } else { 1 };
            let span = if span > 1 { format!(" colspan=\"{span}\"") } else { String::new() };
            write!(out, "<{tag}{class}{span}>{}</{tag}>", escape(text))
                .expect("a string takes all");
            if lone {
                break;
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
}

/// Numbers stand to the right.
fn class(text: &str, marked: bool) -> &'static str {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '+' || c == '-');
    match (marked, is_number) {
        (true, true) => " class=\"n miss\"",
        (true, false) => " class=\"miss\"",
        (false, true) => " class=\"n\"",
        (false, false) => "",
    }
}

fn bars(out: &mut String, bars: &[Bar], data: &Data) {
    if bars.is_empty() {
        return;
    }
    let kept = judge::told(bars, data);
    writeln!(out, "<p class=\"lead\">{kept} bars kept.</p>").expect("a string takes all");
    grid(out, &tables::matrix(bars, data));
    out.push_str("<details><summary>All bars</summary>\n");
    grid(out, &tables::bars(bars, data));
    out.push_str("</details>\n");
}

fn profile(out: &mut String, points: &[Point], data: &Data) {
    if points.is_empty() {
        return;
    }
    if let Some(reason) = &data.evaluation.profiles_skipped {
        paragraph(out, "note", &format!("SKIPPED: {reason}"));
        return;
    }
    if let Some(svg) = chart::profile_svg(points, data) {
        writeln!(out, "<div class=\"charts\"><figure>{svg}</figure></div>")
            .expect("a string takes all");
    }
    grid(out, &tables::profile(points, data));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::figures;
    use crate::eval::plan::{Extent, I10, UNBATCHED};
    use crate::eval::result::tests::evaluation;
    use crate::eval::xml;
    use crate::workload::Load;

    #[test]
    fn the_page_is_well_formed_with_and_without_figures() {
        let load = Load::small(100, 128);
        let full = evaluation(&[(load, I10, &[2e5]), (load, UNBATCHED, &[0.0])]);
        for evaluation in [full, evaluation(&[])] {
            let page = page(&figures::all(Extent::Quick), &Data::new(&evaluation));
            xml::check(&page).unwrap_or_else(|e| panic!("{e}"));
            assert!(page.contains("id=\"i10-fig6\"") && page.contains("SKIPPED: perf"));
        }
    }

    #[test]
    fn a_failed_run_is_shown_with_its_message() {
        let evaluation = evaluation(&[(Load::small(100, 128), UNBATCHED, &[0.0])]);
        let page = page(&figures::all(Extent::Quick), &Data::new(&evaluation));
        assert!(page.contains("failed: exit status: 2: error: no &lt;such&gt; policy"));
    }
}

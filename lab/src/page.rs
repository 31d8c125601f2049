//! Pages of results: written as Markdown, for documents and a terminal, or as HTML that needs nothing else.

use std::fmt::Write;

const STYLE: &str = include_str!("style.css");

/// Lines of cells, the first one the heading. A cell that begins with `!` is missed or failed.
pub(crate) type Grid = Vec<Vec<String>>;

/// Cells from text between bars.
pub(crate) fn cells(line: &str) -> Vec<String> {
    line.split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// A figure, or a dash.
pub(crate) fn optional(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".into(), |v| format!("{v:.digits$}"))
}

/// Figures of both ends.
pub(crate) fn pair(host: Option<f64>, target: Option<f64>, digits: usize) -> String {
    format!("{} / {}", optional(host, digits), optional(target, digits))
}

/// Text as HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

enum PagePart {
    /// The level begins with 2.
    Heading(usize, String),
    Text(String),
    /// A remark, only in HTML.
    Note(String),
    List(Vec<String>),
    /// A table whose columns line up in Markdown.
    Table(Grid),
    /// A table with long cells.
    Wide(Grid),
    /// A table with many lines, only in HTML: its title is shown, and the table when it is opened.
    Folded(String, Grid),
    /// Charts as SVG, only in HTML.
    Charts(Vec<String>),
}

/// Parts below each other.
#[derive(Default)]
pub(crate) struct PageParts(Vec<PagePart>);

impl PageParts {
    pub(crate) fn heading(&mut self, level: usize, text: impl Into<String>) {
        self.0.push(PagePart::Heading(level, text.into()));
    }

    /// Adds text, unless there is none.
    pub(crate) fn text(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !text.is_empty() {
            self.0.push(PagePart::Text(text));
        }
    }

    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.0.push(PagePart::Note(text.into()));
    }

    pub(crate) fn list(&mut self, lines: Vec<String>) {
        self.0.push(PagePart::List(lines));
    }

    pub(crate) fn table(&mut self, grid: Grid) {
        self.0.push(PagePart::Table(grid));
    }

    pub(crate) fn wide(&mut self, grid: Grid) {
        self.0.push(PagePart::Wide(grid));
    }

    pub(crate) fn folded(&mut self, title: impl Into<String>, grid: Grid) {
        self.0.push(PagePart::Folded(title.into(), grid));
    }

    pub(crate) fn charts(&mut self, charts: impl IntoIterator<Item = String>) {
        self.0.push(PagePart::Charts(charts.into_iter().collect()));
    }

    /// The page for a document or a terminal.
    pub(crate) fn markdown(&self) -> String {
        let parts = self.0.iter().filter_map(|part| {
            let mut out = String::new();
            match part {
                PagePart::Heading(level, text) => out = format!("{} {text}\n", "#".repeat(*level)),
                PagePart::Text(text) => out = format!("{text}\n"),
                PagePart::List(lines) => {
                    lines.iter().for_each(|line| out += &format!("- {line}\n"))
                }
                PagePart::Table(grid) => padded(&mut out, grid),
                PagePart::Wide(grid) => plain(&mut out, grid),
                PagePart::Note(_) | PagePart::Folded(..) | PagePart::Charts(_) => return None,
            }
            Some(out)
        });
        parts.collect::<Vec<_>>().join("\n")
    }

    /// The whole page as a file.
    pub(crate) fn html(&self, title: &str) -> String {
        let title = escape(title);
        let body: String = self.0.iter().map(html_part).collect();
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\"/>\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
             </head>\n<body>\n<main>\n<h1>{title}</h1>\n{body}</main>\n</body>\n</html>\n"
        )
    }
}

/// A missed cell is bold.
fn marked(cell: &str) -> String {
    match cell.strip_prefix('!') {
        Some(missed) => format!("**{}**", missed.replace('|', "\\|")),
        None => cell.replace('|', "\\|"),
    }
}

/// All columns but the first and the last align right.
fn padded(out: &mut String, grid: &Grid) {
    let grid: Grid =
        grid.iter().map(|line| line.iter().map(|cell| marked(cell)).collect()).collect();
    let last = grid[0].len() - 1;
    let is_right = |column: usize| column != 0 && column != last;
    let width =
        |c: usize| grid.iter().map(|line| line[c].chars().count()).max().unwrap_or(0).max(3);
    let widths: Vec<usize> = (0..=last).map(width).collect();
    for (number, line) in grid.iter().enumerate() {
        for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            *out += &match is_right(column) {
                true => format!("| {cell:>width$} "),
                false => format!("| {cell:<width$} "),
            };
        }
        *out += "|\n";
        if number == 0 {
            for (column, &width) in widths.iter().enumerate() {
                let end = if is_right(column) { ":" } else { "-" };
                *out += &format!("| {}{end} ", "-".repeat(width - 1));
            }
            *out += "|\n";
        }
    }
}

fn plain(out: &mut String, grid: &Grid) {
    for (number, line) in grid.iter().enumerate() {
        let cells: Vec<String> = line.iter().map(|cell| marked(cell)).collect();
        *out += &format!("| {} |\n", cells.join(" | "));
        if number == 0 {
            *out += &format!("|---{}|\n", "|---:".repeat(line.len() - 1));
        }
    }
}

fn html_part(part: &PagePart) -> String {
    match part {
        PagePart::Heading(level, text) => format!("<h{level}>{}</h{level}>\n", escape(text)),
        PagePart::Text(text) => format!("<p>{}</p>\n", html_text(text)),
        PagePart::Note(text) => format!("<p class=\"note\">{}</p>\n", html_text(text)),
        PagePart::List(lines) => {
            let lines = lines.iter().map(|line| format!("<li>{}</li>\n", html_text(line)));
            format!("<ul>\n{}</ul>\n", lines.collect::<String>())
        }
        PagePart::Table(grid) | PagePart::Wide(grid) => html_grid(grid),
        PagePart::Folded(title, grid) => format!(
            "<details><summary>{}</summary>\n{}</details>\n",
            escape(title),
            html_grid(grid)
        ),
        PagePart::Charts(charts) => {
            let charts = charts.iter().map(|svg| format!("<figure>{svg}</figure>\n"));
            format!("<div class=\"charts\">\n{}</div>\n", charts.collect::<String>())
        }
    }
}

/// Text between backticks is code.
fn html_text(text: &str) -> String {
    let text = escape(text);
    let parts = text.split('`').enumerate();
    parts
        .map(|(n, part)| if n % 2 == 1 { format!("<code>{part}</code>") } else { part.into() })
        .collect()
}

/// A missed cell is marked; without others behind it, it stretches to the end.
fn html_grid(grid: &Grid) -> String {
    let mut out = String::from("<div class=\"scroll\"><table>\n");
    for (number, line) in grid.iter().enumerate() {
        let tag = if number == 0 { "th" } else { "td" };
        out += "<tr>";
        for (column, cell) in line.iter().enumerate() {
            let (text, is_marked) = match cell.strip_prefix('!') {
                Some(text) => (text, true),
                None => (cell.as_str(), false),
            };
            let is_lone = is_marked && line[column + 1..].iter().all(String::is_empty);
            let span = if is_lone { line.len() - column } else { 1 };
            let span = if span > 1 { format!(" colspan=\"{span}\"") } else { String::new() };
            let class = class(text, is_marked);
            write!(out, "<{tag}{class}{span}>{}</{tag}>", escape(text))
                .expect("a string takes all");
            if is_lone {
                break;
            }
        }
        out += "</tr>\n";
    }
    out + "</table></div>\n"
}

/// Numbers stand to the right.
fn class(text: &str, is_marked: bool) -> &'static str {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '+' || c == '-');
    match (is_marked, is_number) {
        (true, true) => " class=\"n miss\"",
        (true, false) => " class=\"miss\"",
        (false, true) => " class=\"n\"",
        (false, false) => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml;

    fn grid() -> Grid {
        vec![cells("a | bcde | f"), ["ghij", "!k|", "lmno"].map(str::to_owned).into()]
    }

    #[test]
    fn columns_line_up() {
        let mut page = PageParts::default();
        page.table(grid());
        page.wide(grid());
        let text = page.markdown();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "| a    |    bcde | f    |");
        assert_eq!(lines[1], "| ---- | ------: | ---- |");
        assert_eq!(lines[2], "| ghij | **k\\|** | lmno |");
        assert_eq!(
            lines[4..],
            ["| a | bcde | f |", "|---|---:|---:|", "| ghij | **k\\|** | lmno |"]
        );
    }

    #[test]
    fn parts_stand_apart_and_html_has_all_of_them() {
        let mut page = PageParts::default();
        page.heading(3, "One < two");
        page.text("Command: `x`.");
        page.text("");
        page.list(cells("a | b"));
        page.note("only there");
        page.charts(["<svg/>".to_owned()]);
        page.folded("more", vec![cells("x | y"), cells("!failed: <no> | ")]);
        assert_eq!(page.markdown(), "### One < two\n\nCommand: `x`.\n\n- a\n- b\n");
        let html = page.html("title");
        xml::check(&html).unwrap_or_else(|e| panic!("{e}\n{html}"));
        for part in ["<code>x</code>", "<h3>One &lt; two</h3>", "colspan=\"2\">failed: &lt;no&gt;"]
        {
            assert!(html.contains(part), "{html}");
        }
    }
}

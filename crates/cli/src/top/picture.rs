//! A screen as an SVG, for the documentation.

use super::app::TopState;
use super::dashboard::{Dashboard, DashboardView};
use super::view;
use crate::failure::{CommandFailure, CommandResult};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use std::path::Path;
use std::time::Duration;
use std::{fs, thread};

/// Columns and lines of the picture.
const SIZE: (u16, u16) = (110, 30);
/// Intervals before the picture.
const SAMPLES: u32 = 60;
/// Size of a cell, and of its letters.
const CELL: (f64, f64) = (8.0, 18.0);
const FONT: f64 = 13.3;
const PADDING: f64 = 14.0;
const BACKGROUND: &str = "#11161d";
const FOREGROUND: &str = "#d5dbe3";

/// Samples for a while, and writes the screen of the lanes.
///
/// # Errors
/// The file cannot be written.
pub(super) fn draw(
    mut app: TopState,
    mut dashboard: Dashboard,
    interval: Duration,
    sample: &mut dyn FnMut(&mut Dashboard),
    file: &Path,
) -> CommandResult {
    for _ in 0..SAMPLES {
        thread::sleep(interval);
        sample(&mut dashboard);
    }
    app.view = DashboardView::Lanes;
    let Ok(mut terminal) = Terminal::new(TestBackend::new(SIZE.0, SIZE.1));
    let Ok(_) = terminal.draw(|frame| view::draw(frame, &app, &dashboard));
    let written = fs::write(file, svg(terminal.backend().buffer()));
    written.map_err(|e| CommandFailure::failed(format!("--picture {}: {e}", file.display())))
}

/// Converts a screen to SVG: text stays text, so that it can be searched; bars and box lines become shapes that join.
pub(super) fn svg(buffer: &Buffer) -> String {
    let area = buffer.area;
    let (width, height) = (
        f64::from(area.width) * CELL.0 + 2.0 * PADDING,
        f64::from(area.height) * CELL.1 + 2.0 * PADDING,
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.1} {height:.1}\" font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, \
         monospace\" font-size=\"{FONT}\">\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n"
    );
    for y in 0..area.height {
        let mut x = 0;
        while x < area.width {
            let cell = &buffer[(x, y)];
            let mut text = String::new();
            let from = x;
            while x < area.width && is_alike(&buffer[(x, y)], cell) {
                text.push_str(buffer[(x, y)].symbol());
                x += 1;
            }
            write_run(&mut svg, (from, y), x - from, (cell, &text));
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn is_alike(one: &Cell, other: &Cell) -> bool {
    (one.fg, one.bg, one.modifier) == (other.fg, other.bg, other.modifier)
        && is_shape(one.symbol()) == is_shape(other.symbol())
}

/// Writes adjacent cells of one style.
fn write_run(svg: &mut String, (x, y): (u16, u16), cells: u16, (cell, text): (&Cell, &str)) {
    let (mut ink, mut paper) = (color(cell.fg, FOREGROUND), color(cell.bg, BACKGROUND));
    if cell.modifier.contains(Modifier::REVERSED) {
        std::mem::swap(&mut ink, &mut paper);
    }
    let (left, top) = (PADDING + f64::from(x) * CELL.0, PADDING + f64::from(y) * CELL.1);
    let width = f64::from(cells) * CELL.0;
    if paper != BACKGROUND {
        svg.push_str(&rectangle((left, top), (width, CELL.1), paper));
    }
    if text.trim().is_empty() {
        return;
    }
    if is_shape(cell.symbol()) {
        for (number, symbol) in text.chars().enumerate() {
            let left = left + number as f64 * CELL.0;
            if let Some(share) = bar(symbol) {
                let high = CELL.1 * share;
                svg.push_str(&rectangle((left, top + CELL.1 - high), (CELL.0, high), ink));
            } else if let Some(line) = box_line(symbol) {
                svg.push_str(&format!(
                    "<path transform=\"translate({left} {top})\" d=\"{line}\" fill=\"none\" stroke=\"{ink}\"/>\n"
                ));
            }
        }
        return;
    }
    let weight = if cell.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    svg.push_str(&format!(
        "<text x=\"{left}\" y=\"{}\" textLength=\"{width}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{ink}\"{weight} \
         xml:space=\"preserve\">{text}</text>\n",
        top + CELL.1 * 0.75
    ));
}

fn rectangle((x, y): (f64, f64), (width, height): (f64, f64), fill: &str) -> String {
    format!(
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\" \
         shape-rendering=\"crispEdges\"/>\n"
    )
}

/// True if it is drawn as a shape, so that it joins its neighbours.
fn is_shape(symbol: &str) -> bool {
    symbol.chars().next().is_some_and(|first| bar(first).is_some() || box_line(first).is_some())
}

/// Returns the share of its cell that a bar fills.
fn bar(symbol: char) -> Option<f64> {
    let place = "▁▂▃▄▅▆▇█".chars().position(|bar| bar == symbol)?;
    Some((place + 1) as f64 / 8.0)
}

/// Returns the path of a box line, in a cell of 8 by 18.
fn box_line(symbol: char) -> Option<&'static str> {
    Some(match symbol {
        '─' => "M0 9H8",
        '│' => "M4 0V18",
        '╭' => "M4 18V13Q4 9 8 9",
        '╮' => "M4 18V13Q4 9 0 9",
        '╰' => "M4 0V5Q4 9 8 9",
        '╯' => "M4 0V5Q4 9 0 9",
        _ => return None,
    })
}

fn color(color: Color, otherwise: &'static str) -> &'static str {
    match color {
        Color::Cyan => "#56c8d8",
        Color::Yellow => "#e6c067",
        Color::DarkGray => "#6b7684",
        _ => otherwise,
    }
}

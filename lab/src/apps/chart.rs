//! A row's chart as SVG: CPU time of an operation on each side, by who uses it.

use super::plan::Row;
use super::result::{Applications, Measure};
use crate::eval::html::escape;
use std::fmt::Write;

const WIDTH: f64 = 760.0;
/// Where bars begin, and how far they go at most; behind them stands the sum.
const LEFT: f64 = 230.0;
const BAR: f64 = 460.0;
const LINE: f64 = 22.0;
const THICKNESS: f64 = 14.0;
/// Title, legend.
const HEAD: f64 = 52.0;

/// Who uses it, and their colour: they keep their distance, also to the colour-blind.
const PARTS: [(&str, &str); 4] = [
    ("application", "#888888"),
    ("client", "#0072b2"),
    ("server", "#e69f00"),
    ("loop device, kernel and other", "#91cdb4"),
];

/// Stacked bars; nothing if nothing of the row was measured.
pub(super) fn svg(row: Row, applications: &Applications) -> Option<String> {
    let bars: Vec<(&str, &Measure)> = applications
        .of(row)
        .filter_map(|run| Some((run.side.as_str(), run.median.as_ref()?)))
        .collect();
    let longest = bars.iter().map(|(_, m)| parts(m).iter().sum()).fold(0.0, f64::max);
    if longest <= 0.0 {
        return None;
    }
    let height = HEAD + LINE * bars.len() as f64 + 8.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\" \
         fill=\"#3f3f46\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    let unit = row.workload.unit().split(',').next().unwrap_or_default();
    text(&mut out, (8.0, 18.0), "start", &format!("CPU-us per {unit} - {row}"));
    legend(&mut out);
    for (number, (side, measure)) in bars.iter().enumerate() {
        let y = HEAD + LINE * number as f64;
        text(&mut out, (LEFT - 8.0, y + THICKNESS - 2.0), "end", side);
        let mut x = LEFT;
        for (value, (_, colour)) in parts(measure).into_iter().zip(PARTS) {
            let width = BAR * value / longest;
            rectangle(&mut out, (x, y), (width, THICKNESS), colour);
            x += width;
        }
        let sum: f64 = parts(measure).iter().sum();
        let digits = if sum < 100.0 { 1 } else { 0 };
        text(&mut out, (x + 6.0, y + THICKNESS - 2.0), "start", &format!("{sum:.digits$}"));
    }
    out.push_str("</svg>\n");
    Some(out)
}

/// In the order of `PARTS`.
fn parts(m: &Measure) -> [f64; 4] {
    let loads = &m.loads;
    [loads.application.cores, loads.client.cores, loads.server.cores, loads.rest_cores()]
        .map(|cores| m.cpu_us(cores))
}

fn legend(out: &mut String) {
    let mut x = LEFT;
    for (name, colour) in PARTS {
        rectangle(out, (x, 28.0), (10.0, 10.0), colour);
        text(out, (x + 14.0, 37.0), "start", name);
        x += 30.0 + 7.0 * name.len() as f64;
    }
}

fn rectangle(out: &mut String, at: (f64, f64), size: (f64, f64), colour: &str) {
    writeln!(
        out,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
        at.0, at.1, size.0, size.1
    )
    .expect("a string takes all");
}

fn text(out: &mut String, at: (f64, f64), anchor: &str, text: &str) {
    let text = escape(text);
    writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{text}</text>",
        at.0, at.1
    )
    .expect("a string takes all");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apps::plan::Extent;
    use crate::apps::result::tests::applications;
    use crate::apps::side::{OURS, Side};
    use crate::eval::xml;

    #[test]
    fn each_side_that_was_measured_has_a_bar() {
        let row = Extent::Quick.rows()[0];
        let all = [(row, OURS, &[1e5][..]), (row, Side::Qemu, &[5e4]), (row, Side::Tgt, &[0.0])];
        let svg = svg(row, &applications(&all)).expect("two were");
        xml::check(&svg).unwrap_or_else(|e| panic!("{e}\n{svg}"));
        // 2 of 0.5, 0.75, 0.25 cores and the rest at 50,000 a second.
        assert!(svg.contains(">40.0</text>") && svg.contains(">20.0</text>"), "{svg}");
        assert!(svg.contains(&format!("width=\"{:.1}\"", BAR * 0.75 / 2.0)), "{svg}");
        assert!(!svg.contains(&Side::Tgt.to_string()), "{svg}");
    }

    #[test]
    fn without_figures_there_is_no_chart() {
        let row = Extent::Quick.rows()[0];
        assert!(svg(row, &applications(&[(row, OURS, &[0.0])])).is_none());
        assert!(svg(row, &applications(&[])).is_none());
    }
}

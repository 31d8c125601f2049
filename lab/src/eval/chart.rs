//! Charts as SVG.

use super::plan::{ChartKind, CpuPart, EvalPoint, Panel, PanelCell, PanelChart, XAxis};
use super::result::EvalData;
use crate::metric::Metric;
use crate::tables::distinct;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

const SIZE: (u32, u32) = (600, 320);
/// The chart's part of the width; the legend has the rest.
const CHART_WIDTH: u32 = 475;
const GRID: RGBColor = RGBColor(228, 228, 231);
const INK: RGBColor = RGBColor(63, 63, 70);
const FONT: &str = "sans-serif";
const BAR_WIDTH: f64 = 0.82;

/// Colours that keep their distance, also to the colour-blind.
const COLOURS: [RGBColor; 8] = [
    RGBColor(136, 136, 136),
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(145, 205, 180),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
];
/// Series that always have the same colour.
const NAMED: [&str; 7] = ["unbatched", "none", "i10", "pinof", "pinof-flat", "tyche", "auto"];

/// A series of a chart: places on the x axis, and values.
struct Series {
    name: String,
    colour: RGBColor,
    places: Vec<(f64, f64)>,
}

/// A chart of a panel; nothing if nothing of it was measured.
pub(crate) fn svg(panel: &Panel, chart: &PanelChart, data: &EvalData) -> Option<String> {
    let ticks = distinct(panel.cells.iter().map(|cell| cell.tick.clone()));
    let all = series(panel, chart, data, &ticks);
    if all.iter().all(|series| series.places.is_empty()) {
        return None;
    }
    let caption = format!("{} - {}", chart.y.title(), panel.title);
    draw(|area, key| {
        let values = || all.iter().flat_map(|series| &series.places);
        let top = values().map(|place| place.1).fold(0.0, f64::max);
        let bottom = values().map(|place| place.1).fold(f64::INFINITY, f64::min);
        let right = values().map(|place| place.0).fold(0.0, f64::max) * 1.05;
        let (across, title) = match panel.x {
            XAxis::Ticks(title) => (-0.5..ticks.len() as f64 - 0.5, title),
            XAxis::Measured(metric) => (0.0..right, metric.title()),
        };
        let labels = matches!(panel.x, XAxis::Ticks(_)).then_some(&ticks[..]);
        let axes = Axes { caption: &caption, x: title, y: chart.y.title(), labels, across };
        match chart.kind {
            ChartKind::LogLines if bottom > 0.0 => {
                let (from, to) = (bottom / 1.3, top * 1.3);
                let marks = log_marks(from, to);
                axes.lines(area, (from..to).log_scale().with_key_points(marks), &all)?;
            }
            ChartKind::Bars => axes.bars(area, top * 1.1, &all)?,
            _ => axes.lines(area, 0.0..top * 1.1, &all)?,
        }
        let entries = all.iter().filter(|_| all.len() > 1);
        legend(key, entries.map(|series| (series.name.as_str(), series.colour)))
    })
}

/// A profile's parts for each point.
pub(crate) fn profile_svg(points: &[EvalPoint], data: &EvalData) -> Option<String> {
    let names: Vec<String> = points.iter().map(|point| point.side.to_string()).collect();
    let part = |part: CpuPart| {
        let values = points.iter().map(|point| data.part(part, point).unwrap_or(0.0));
        (part.name(), values.collect())
    };
    let parts: Vec<(&str, Vec<f64>)> = CpuPart::ALL.map(part).into();
    stacked(("CPU-ns per I/O of both cores", "policy", Metric::Cpu.title()), &names, &parts)
}

/// Bars of parts that lie on each other, with a caption and the titles of both axes; nothing if all are empty.
pub(crate) fn stacked(
    (caption, x, y): (&str, &str, &str),
    names: &[String],
    parts: &[(&str, Vec<f64>)],
) -> Option<String> {
    let sum = |bar: usize| parts.iter().map(|(_, values)| values[bar]).sum::<f64>();
    let top = (0..names.len()).map(sum).fold(0.0, f64::max);
    if top == 0.0 {
        return None;
    }
    draw(|area, key| {
        let across = -0.5..names.len() as f64 - 0.5;
        let axes = Axes { caption, x, y, labels: Some(names), across };
        let mut context = axes.context(area, 0.0..top * 1.15)?;
        let mut base = vec![0.0; names.len()];
        for ((_, values), colour) in parts.iter().zip(PART_COLOURS) {
            let bars = values.iter().zip(&mut base).enumerate().map(|(place, (value, base))| {
                let (x, from) = (place as f64, *base);
                *base += value;
                let corners = [(x - BAR_WIDTH / 2.0, from), (x + BAR_WIDTH / 2.0, *base)];
                Rectangle::new(corners, colour.filled())
            });
            context.draw_series(bars)?;
        }
        let entries: Vec<_> = parts.iter().zip(PART_COLOURS).collect();
        legend(key, entries.into_iter().rev().map(|((name, _), colour)| (*name, colour)))
    })
}

const PART_COLOURS: [RGBColor; 6] = [
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(0, 114, 178),
    RGBColor(204, 121, 167),
    RGBColor(160, 160, 160),
    RGBColor(232, 232, 236),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type PlotContext<'a, 'b, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, Y>>;
type ChartError = Box<dyn std::error::Error>;
type Drawn = Result<(), ChartError>;

/// Draws into the chart's area and into the legend's.
fn draw(f: impl FnOnce(&Area, &Area) -> Drawn) -> Option<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let drawn = area.fill(&WHITE).map_err(Into::into).and_then(|()| {
            let (chart, key) = area.split_horizontally(CHART_WIDTH);
            f(&chart, &key)
        });
        drawn.and_then(|()| Ok(area.present()?)).inspect_err(|e| eprintln!("chart: {e}")).ok()?;
    }
    Some(text)
}

fn series(panel: &Panel, chart: &PanelChart, data: &EvalData, ticks: &[String]) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for cell in &panel.cells {
        let known = all.iter().position(|series| series.name == cell.series);
        let index = known.unwrap_or_else(|| {
            let colour = colour(&cell.series, all.len());
            all.push(Series { name: cell.series.clone(), colour, places: Vec::new() });
            all.len() - 1
        });
        let x = place(panel, cell, data, ticks);
        let y = data.value(chart.y, &cell.point).filter(|y| y.is_finite());
        all[index].places.extend(x.zip(y));
    }
    all
}

fn place(panel: &Panel, cell: &PanelCell, data: &EvalData, ticks: &[String]) -> Option<f64> {
    match panel.x {
        XAxis::Ticks(_) => ticks.iter().position(|tick| *tick == cell.tick).map(|n| n as f64),
        XAxis::Measured(metric) => data.value(metric, &cell.point),
    }
}

fn colour(name: &str, index: usize) -> RGBColor {
    let named = NAMED.iter().position(|known| *known == name);
    COLOURS[named.unwrap_or_else(|| match index {
        0 => 2,
        n => n % COLOURS.len(),
    })]
}

/// Captions and axes of a chart.
struct Axes<'a> {
    caption: &'a str,
    x: &'a str,
    y: &'a str,
    /// Labels of the places 0, 1, 2...; numbers without.
    labels: Option<&'a [String]>,
    across: std::ops::Range<f64>,
}

impl Axes<'_> {
    fn context<'a, 'b, Y>(
        &self,
        area: &'a Area<'b>,
        up: Y,
    ) -> Result<PlotContext<'a, 'b, Y::CoordDescType>, ChartError>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
    {
        let mut context = ChartBuilder::on(area)
            .caption(self.caption, (FONT, 17).into_font().color(&INK))
            .margin(10)
            .x_label_area_size(38)
            .y_label_area_size(58)
            .build_cartesian_2d(self.across.clone(), up)?;
        let label = |x: &f64| match self.labels {
            None => number(*x),
            Some(labels) => {
                let whole = (x - x.round()).abs() < 0.01 && *x > -0.01;
                labels.get(x.round() as usize).filter(|_| whole).cloned().unwrap_or_default()
            }
        };
        let count = self.labels.map_or(8, |labels| labels.len() + 1);
        context
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .x_labels(count)
            .x_label_formatter(&label)
            .y_label_formatter(&|y| number(*y))
            .x_desc(self.x)
            .y_desc(self.y)
            .label_style((FONT, 14).into_font().color(&INK))
            .draw()?;
        Ok(context)
    }

    fn lines<Y>(&self, area: &Area, up: Y, all: &[Series]) -> Drawn
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
    {
        let mut context = self.context(area, up)?;
        for Series { name, colour, places } in all {
            let colour = *colour;
            let width = if name == "auto" { 3 } else { 2 };
            let line = LineSeries::new(places.iter().copied(), colour.stroke_width(width));
            context.draw_series(line)?;
            let dots = places.iter().map(|&place| Circle::new(place, 3, colour.filled()));
            context.draw_series(dots)?;
        }
        Ok(())
    }

    fn bars(&self, area: &Area, top: f64, all: &[Series]) -> Drawn {
        let mut context = self.context(area, 0.0..top)?;
        let width = BAR_WIDTH / all.len() as f64;
        for (index, Series { colour, places, .. }) in all.iter().enumerate() {
            let colour = *colour;
            let bars = places.iter().map(|&(x, y)| {
                let left = x - BAR_WIDTH / 2.0 + width * index as f64;
                Rectangle::new([(left, 0.0), (left + width * 0.94, y)], colour.filled())
            });
            context.draw_series(bars)?;
        }
        Ok(())
    }
}

fn legend<'a>(area: &Area, entries: impl Iterator<Item = (&'a str, RGBColor)>) -> Drawn {
    for (index, (name, colour)) in entries.enumerate() {
        let y = 44 + 20 * index as i32;
        area.draw(&Rectangle::new([(2, y), (14, y + 10)], colour.filled()))?;
        area.draw(&Text::new(name.to_owned(), (20, y), (FONT, 14).into_font().color(&INK)))?;
    }
    Ok(())
}

/// Round numbers of a logarithmic scale: 1, 2, 5, 10... and fewer of a long one.
fn log_marks(from: f64, to: f64) -> Vec<f64> {
    let steps: &[f64] = if to / from > 3000.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let decades = from.log10().floor() as i32..=to.log10().ceil() as i32;
    let marks = decades.flat_map(|n| steps.iter().map(move |step| step * 10f64.powi(n)));
    marks.filter(|mark| (from..=to).contains(mark)).collect()
}

/// Formats a number as shortly as possible.
fn number(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{} M", trim(v / 1e6)),
        v if v >= 1e4 => format!("{} k", trim(v / 1e3)),
        v => trim(v),
    }
}

fn trim(value: f64) -> String {
    let text = if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::plan::{AUTO, NONE};
    use crate::eval::result::tests::evaluation;
    use crate::workload::LabLoad;
    use crate::xml;

    fn panel(kind: ChartKind, x: XAxis) -> Panel {
        let setups = [NONE, AUTO];
        Panel::new("4 KiB < 8 KiB & more", x)
            .loads(1, LabLoad::small(100, 1), &setups)
            .loads(8, LabLoad::small(100, 8), &setups)
            .chart(Metric::Iops, kind)
    }

    #[test]
    fn charts_are_well_formed() {
        let evaluation = evaluation(&[
            (LabLoad::small(100, 1), NONE, &[2e4]),
            (LabLoad::small(100, 8), NONE, &[1e5]),
            (LabLoad::small(100, 8), AUTO, &[2e5]),
        ]);
        let data = EvalData::new(&evaluation);
        for kind in [ChartKind::Lines, ChartKind::LogLines, ChartKind::Bars] {
            for x in [XAxis::Ticks("depth"), XAxis::Measured(Metric::LatencyMean)] {
                let panel = panel(kind, x);
                let svg = svg(&panel, &panel.charts[0], &data).expect("there is something to draw");
                xml::check(&svg).unwrap_or_else(|e| panic!("{kind:?}: {e}\n{svg}"));
                assert!(svg.contains("auto") && svg.contains("4 KiB &lt; 8 KiB &amp; more"));
            }
        }
    }

    #[test]
    fn nothing_measured_nothing_drawn() {
        let evaluation = evaluation(&[]);
        let panel = panel(ChartKind::Lines, XAxis::Ticks("depth"));
        assert!(svg(&panel, &panel.charts[0], &EvalData::new(&evaluation)).is_none());
    }

    #[test]
    fn logarithmic_scales_have_round_marks() {
        assert_eq!(log_marks(15.0, 120.0), [20.0, 50.0, 100.0]);
        assert_eq!(log_marks(0.5, 9000.0), [1.0, 10.0, 100.0, 1000.0]);
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in
            [(0.0, "0"), (0.5, "0.5"), (9000.0, "9000"), (64000.0, "64 k"), (1.5e6, "1.5 M")]
        {
            assert_eq!(number(value), text);
        }
    }
}

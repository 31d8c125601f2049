//! What an evaluation consists of: figures, made of points to measure, with the claims and the bars
//! that the measurements are held against.

use super::metric::Metric;
use crate::workload::{KIB, Load, Setup, StoreKind};
use std::fmt;

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Full,
    /// Fewer points and rounds: fits into a CI job.
    Quick,
}

/// What is run at a load: the product, the bare-TCP floor, or another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    Product(Setup),
    /// With at most so many messages a send.
    Floor(usize),
    /// nbdkit with fio and libnbd, over links.
    Nbdkit,
}

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Point {
    pub(crate) load: Load,
    pub(crate) side: Side,
}

/// A point at its place in a chart and a table.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) series: String,
    /// Its place on the x axis: cells of the same tick stand above each other.
    pub(crate) tick: String,
    pub(crate) point: Point,
}

/// What the x axis shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XAxis {
    /// The cells' ticks, equally far apart.
    Ticks(&'static str),
    /// A measured figure.
    Measured(Metric),
}

/// How a chart is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Lines,
    /// Lines over a logarithmic scale.
    LogLines,
    Bars,
}

/// A chart of a panel's cells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chart {
    pub(crate) y: Metric,
    pub(crate) kind: Kind,
}

/// Cells that belong together: one table, one or more charts.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: XAxis,
    pub(crate) cells: Vec<Cell>,
    pub(crate) charts: Vec<Chart>,
}

/// Which of several pairs counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// The one with the greatest effect in the published direction ("up to").
    Most,
    /// The one with the least ("at least").
    Least,
    Median,
}

/// A bound on a ratio, or on a difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    /// At least so many times the other.
    Min(f64),
    /// At most so many times the other.
    Max(f64),
    /// At most so much more than the other.
    Above(f64),
    /// At most so much, whatever others do.
    AtMost(f64),
}

/// What a point is compared with, by a metric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) of: Point,
    pub(crate) to: Point,
}

/// A part of the CPU time, for profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Part {
    Application,
    Block,
    Network,
    Switch,
    Other,
    Idle,
}

/// How a published claim is tested.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there are some dozens")]
pub(crate) enum Test {
    /// A ratio of a size: how much of the published effect is there.
    Effect { metric: Metric, pairs: Vec<Pair>, pick: Pick, published: f64 },
    /// A ratio that holds for all pairs.
    Everywhere { metric: Metric, pairs: Vec<Pair>, limit: Limit },
    /// What a step (from, to) adds, as a share of the whole.
    Share { metric: Metric, from: Point, to: Point, whole: Point, published: f64 },
    /// A value as such.
    Value { metric: Metric, at: Point, published: f64 },
    /// CPU time in one part of the profile, per I/O or as a share of all time.
    Profile { per_io: bool, part: Part, of: Point, to: Point, published: f64 },
    /// Cannot be tested here.
    Elsewhere,
}

/// What a publication says.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) text: &'static str,
    /// The published figure, in its own words.
    pub(crate) published: &'static str,
    pub(crate) test: Test,
    /// Why it comes out so on one core a side of this machine.
    pub(crate) why: &'static str,
}

/// A goal of ours: a point against the best of others.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    /// Where it stands in a table: what is varied,
    pub(crate) row: String,
    /// and under which conditions.
    pub(crate) column: String,
    pub(crate) metric: Metric,
    pub(crate) of: Point,
    pub(crate) among: Vec<Point>,
    pub(crate) limit: Limit,
}

/// A figure of the evaluation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figure {
    pub(crate) id: &'static str,
    /// Publication and figure.
    pub(crate) source: &'static str,
    pub(crate) title: &'static str,
    pub(crate) question: &'static str,
    /// The workload, and what stands for what.
    pub(crate) how: &'static str,
    pub(crate) panels: Vec<Panel>,
    /// Points to profile.
    pub(crate) profiled: Vec<Point>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) bars: Vec<Bar>,
    /// Why bars are missed where they are.
    pub(crate) why: &'static str,
    /// What docs/PERFORMANCE.md tells of every point; nothing: only claims and bars.
    pub(crate) tabled: &'static [Metric],
}

/// One request a send, as NVMe/TCP of 2019.
pub(crate) const UNBATCHED: Setup = Setup { caravan_requests: Some(1), ..Setup::new("none") };
/// All that is queued goes, as today's Linux.
pub(crate) const NONE: Setup = Setup::new("none");
/// i10 as published: 16 requests, 64 KiB, 50 us.
pub(crate) const I10: Setup = Setup::new("i10");
pub(crate) const PINOF: Setup = Setup::new("pinof");
/// PINoF without priorities: its own ablation.
pub(crate) const PINOF_FLAT: Setup = Setup::new("pinof-flat");
/// Tyche's adaptive level; it adapts every 20 ms instead of every second, as runs are that short.
pub(crate) const TYCHE: Setup = Setup { batch_interval_ms: Some(20), ..Setup::new("tyche") };
pub(crate) const AUTO: Setup = Setup::new("auto");

/// What `auto` is held against.
pub(crate) const FIXED: [Setup; 6] = [UNBATCHED, NONE, I10, PINOF, PINOF_FLAT, TYCHE];
pub(crate) const ALL: [Setup; 7] = [UNBATCHED, NONE, I10, PINOF, PINOF_FLAT, TYCHE, AUTO];
/// Without the ablation.
pub(crate) const MAIN: [Setup; 6] = [UNBATCHED, NONE, I10, PINOF, TYCHE, AUTO];
pub(crate) const STORES: [StoreKind; 2] = [StoreKind::Memory, StoreKind::Ssd];

impl Extent {
    /// The values of an axis.
    pub(crate) fn pick<T: Copy>(self, full: &[T], quick: &[T]) -> Vec<T> {
        match self {
            Self::Full => full.to_vec(),
            Self::Quick => quick.to_vec(),
        }
    }
}

impl Point {
    pub(crate) fn new(load: Load, setup: Setup) -> Self {
        Self { load, side: Side::Product(setup) }
    }
}

impl Pair {
    /// Two setups at one load.
    pub(crate) fn at(load: Load, of: Setup, to: Setup) -> Self {
        Self { of: Point::new(load, of), to: Point::new(load, to) }
    }

    /// Two setups at several loads.
    pub(crate) fn over(loads: impl IntoIterator<Item = Load>, of: Setup, to: Setup) -> Vec<Self> {
        loads.into_iter().map(|load| Self::at(load, of, to)).collect()
    }
}

impl Panel {
    pub(crate) fn new(title: impl Into<String>, x: XAxis) -> Self {
        Self { title: title.into(), x, cells: Vec::new(), charts: Vec::new() }
    }

    /// What the ticks are.
    pub(crate) fn x_title(&self) -> &'static str {
        match self.x {
            XAxis::Ticks(title) => title,
            XAxis::Measured(_) => "of the peak",
        }
    }

    /// Adds a chart.
    pub(crate) fn chart(mut self, y: Metric, kind: Kind) -> Self {
        self.charts.push(Chart { y, kind });
        self
    }

    /// Adds a cell.
    pub(crate) fn cell(mut self, series: impl ToString, tick: impl ToString, point: Point) -> Self {
        let (series, tick) = (series.to_string(), tick.to_string());
        self.cells.push(Cell { series, tick, point });
        self
    }

    /// Adds a tick: a load under several setups, each a series.
    pub(crate) fn loads(self, tick: impl ToString, load: Load, setups: &[Setup]) -> Self {
        setups.iter().fold(self, |panel, &setup| {
            let point = Point::new(load, setup);
            panel.cell(point.side, tick.to_string(), point)
        })
    }
}

impl Figure {
    /// All points that have to be measured, once each.
    pub(crate) fn points(&self) -> Vec<Point> {
        let cells = self.panels.iter().flat_map(|panel| &panel.cells).map(|cell| cell.point);
        let mut points: Vec<Point> = Vec::new();
        for point in cells
            .chain(self.claims.iter().flat_map(Claim::points))
            .chain(self.bars.iter().flat_map(|bar| bar.among.iter().copied().chain([bar.of])))
        {
            if !points.contains(&point) {
                points.push(point);
            }
        }
        points
    }
}

impl Claim {
    fn points(&self) -> Vec<Point> {
        match &self.test {
            Test::Effect { pairs, .. } | Test::Everywhere { pairs, .. } => {
                pairs.iter().flat_map(|pair| [pair.of, pair.to]).collect()
            }
            Test::Share { from, to, whole, .. } => vec![*from, *to, *whole],
            Test::Value { at, .. } => vec![*at],
            Test::Profile { .. } | Test::Elsewhere => vec![],
        }
    }
}

impl Part {
    pub(crate) const ALL: [Self; 6] =
        [Self::Application, Self::Block, Self::Network, Self::Switch, Self::Other, Self::Idle];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Block => "block",
            Self::Network => "network",
            Self::Switch => "context switch",
            Self::Other => "other",
            Self::Idle => "idle",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Product(UNBATCHED) => f.write_str("unbatched"),
            Self::Product(TYCHE) => f.write_str("tyche"),
            Self::Product(setup) => setup.fmt(f),
            Self::Floor(gather) => write!(f, "floor, {gather} a send"),
            Self::Nbdkit => f.write_str("nbdkit"),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Min(bound) => write!(f, ">= {bound:.2}"),
            Self::Max(bound) => write!(f, "<= {bound:.2}"),
            Self::Above(bound) => write!(f, "<= +{bound:.0}"),
            Self::AtMost(bound) => write!(f, "at most {bound}"),
        }
    }
}

/// The large requests of mixed loads.
pub(crate) const LARGE: usize = 128 * KIB;

//! The parts of an evaluation: figures, made of points to measure, with the claims and the goals
//! that the measurements are held against.

use crate::judge::{Bound, Goal};
use crate::metric::Metric;
use crate::runs::{Compare, NamedSide};
use crate::tables::distinct;
use crate::workload::{KIB, LabLoad, LoadStore, ProductSetup};
use std::fmt;

/// A program that is run at a load: the product, the bare-TCP floor, or another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum EvalSide {
    Product(ProductSetup),
    /// With at most so many messages a send.
    Floor(usize),
    /// nbdkit with fio and libnbd, over links.
    Nbdkit,
}

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EvalPoint {
    pub(crate) load: LabLoad,
    pub(crate) side: EvalSide,
}

/// A point at its place in a chart and a table.
#[derive(Clone, Debug)]
pub(crate) struct PanelCell {
    pub(crate) series: String,
    /// Its place on the x axis: cells of the same tick stand above each other.
    pub(crate) tick: String,
    pub(crate) point: EvalPoint,
}

/// The x axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XAxis {
    /// The cells' ticks, equally far apart.
    Ticks(&'static str),
    /// A measured figure.
    Measured(Metric),
}

/// How a chart is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChartKind {
    Lines,
    /// Lines over a logarithmic scale.
    LogLines,
    Bars,
}

/// A chart of a panel's cells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PanelChart {
    pub(crate) y: Metric,
    pub(crate) kind: ChartKind,
}

/// Cells that belong together: one table, one or more charts.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: XAxis,
    pub(crate) cells: Vec<PanelCell>,
    pub(crate) charts: Vec<PanelChart>,
}

/// The one of several pairs that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairPick {
    /// The one with the greatest effect in the published direction ("up to").
    Most,
    /// The one with the least ("at least").
    Least,
    Median,
}

/// Two points that are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointPair {
    pub(crate) of: EvalPoint,
    pub(crate) to: EvalPoint,
}

/// A part of the CPU time, for profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum CpuPart {
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
    Effect { metric: Metric, pairs: Vec<PointPair>, pick: PairPick, published: f64 },
    /// A comparison that holds for all pairs.
    Everywhere { metric: Metric, compare: Compare, pairs: Vec<PointPair>, bound: Bound },
    /// The gain of a step (from, to), as a share of the whole.
    Share { metric: Metric, from: EvalPoint, to: EvalPoint, whole: EvalPoint, published: f64 },
    /// A value as such.
    Value { metric: Metric, at: EvalPoint, published: f64 },
    /// CPU time in one part of the profile, per I/O or as a share of all time.
    Profile { per_io: bool, part: CpuPart, of: EvalPoint, to: EvalPoint, published: f64 },
    /// Cannot be tested here.
    Elsewhere,
}

/// A claim of a publication.
#[derive(Clone, Debug)]
pub(crate) struct EvalClaim {
    pub(crate) text: &'static str,
    /// The published figure, in its own words.
    pub(crate) published: &'static str,
    pub(crate) test: Test,
    /// Why it comes out so on one core a side of this machine.
    pub(crate) why: &'static str,
}

/// A figure of the evaluation.
#[derive(Clone, Debug, Default)]
pub(crate) struct EvalFigure {
    pub(crate) id: &'static str,
    /// Publication and figure.
    pub(crate) source: &'static str,
    pub(crate) title: &'static str,
    pub(crate) question: &'static str,
    /// The workload, and what stands for what.
    pub(crate) how: &'static str,
    pub(crate) panels: Vec<Panel>,
    /// Points to profile.
    pub(crate) profiled: Vec<EvalPoint>,
    pub(crate) claims: Vec<EvalClaim>,
    pub(crate) goals: Vec<Goal<EvalPoint>>,
    /// Reasons for what is missed.
    pub(crate) why: &'static str,
    /// Figures of every point that the journal shows; nothing: only claims and goals.
    pub(crate) tabled: &'static [Metric],
}

/// One request a send, as NVMe/TCP of 2019.
pub(crate) const UNBATCHED: ProductSetup =
    ProductSetup { caravan_requests: Some(1), ..ProductSetup::new("none") };
/// All that is queued goes, as today's Linux.
pub(crate) const NONE: ProductSetup = ProductSetup::new("none");
/// i10 as published: 16 requests, 64 KiB, 50 us.
pub(crate) const I10: ProductSetup = ProductSetup::new("i10");
pub(crate) const PINOF: ProductSetup = ProductSetup::new("pinof");
/// PINoF without priorities: its own ablation.
pub(crate) const PINOF_FLAT: ProductSetup = ProductSetup::new("pinof-flat");
/// Tyche's adaptive level; it adapts every 20 ms instead of every second, as runs are that short.
pub(crate) const TYCHE: ProductSetup =
    ProductSetup { batch_interval_ms: Some(20), ..ProductSetup::new("tyche") };
pub(crate) const AUTO: ProductSetup = ProductSetup::new("auto");

/// Policies that `auto` is held against.
pub(crate) const FIXED: [ProductSetup; 6] = [UNBATCHED, NONE, I10, PINOF, PINOF_FLAT, TYCHE];
pub(crate) const ALL: [ProductSetup; 7] = [UNBATCHED, NONE, I10, PINOF, PINOF_FLAT, TYCHE, AUTO];
/// Without the ablation.
pub(crate) const MAIN: [ProductSetup; 6] = [UNBATCHED, NONE, I10, PINOF, TYCHE, AUTO];
pub(crate) const STORES: [LoadStore; 2] = [LoadStore::Memory, LoadStore::Ssd];

impl EvalPoint {
    pub(crate) fn new(load: LabLoad, setup: ProductSetup) -> Self {
        Self { load, side: EvalSide::Product(setup) }
    }
}

impl PointPair {
    /// Two setups at one load.
    pub(crate) fn at(load: LabLoad, of: ProductSetup, to: ProductSetup) -> Self {
        Self { of: EvalPoint::new(load, of), to: EvalPoint::new(load, to) }
    }

    /// Two setups at several loads.
    pub(crate) fn over(
        loads: impl IntoIterator<Item = LabLoad>,
        of: ProductSetup,
        to: ProductSetup,
    ) -> Vec<Self> {
        loads.into_iter().map(|load| Self::at(load, of, to)).collect()
    }
}

impl Panel {
    pub(crate) fn new(title: impl Into<String>, x: XAxis) -> Self {
        Self { title: title.into(), x, cells: Vec::new(), charts: Vec::new() }
    }

    /// The title of the ticks.
    pub(crate) fn x_title(&self) -> &'static str {
        match self.x {
            XAxis::Ticks(title) => title,
            XAxis::Measured(_) => "of the peak",
        }
    }

    /// Adds a chart.
    pub(crate) fn chart(mut self, y: Metric, kind: ChartKind) -> Self {
        self.charts.push(PanelChart { y, kind });
        self
    }

    /// Adds a cell.
    pub(crate) fn cell(
        mut self,
        series: impl ToString,
        tick: impl ToString,
        point: EvalPoint,
    ) -> Self {
        let (series, tick) = (series.to_string(), tick.to_string());
        self.cells.push(PanelCell { series, tick, point });
        self
    }

    /// Adds a tick: a load with several sides, each a series of that name.
    pub(crate) fn sides<S: Into<EvalSide> + Copy>(
        self,
        tick: impl ToString,
        load: LabLoad,
        sides: &[(&str, S)],
    ) -> Self {
        sides.iter().fold(self, |panel, &(series, side)| {
            panel.cell(series, tick.to_string(), EvalPoint { load, side: side.into() })
        })
    }

    /// Adds a tick: a load under several setups, each a series.
    pub(crate) fn loads(self, tick: impl ToString, load: LabLoad, setups: &[ProductSetup]) -> Self {
        setups.iter().fold(self, |panel, &setup| {
            let point = EvalPoint::new(load, setup);
            panel.cell(point.side, tick.to_string(), point)
        })
    }
}

impl EvalFigure {
    /// All points that have to be measured, once each.
    pub(crate) fn points(&self) -> Vec<EvalPoint> {
        let cells = self.panels.iter().flat_map(|panel| &panel.cells).map(|cell| cell.point);
        let claims = self.claims.iter().flat_map(EvalClaim::points);
        let goals = self.goals.iter();
        let goals = goals.flat_map(|goal| goal.among.iter().copied().chain([goal.of]));
        distinct(cells.chain(claims).chain(goals))
    }
}

impl EvalClaim {
    fn points(&self) -> Vec<EvalPoint> {
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

impl CpuPart {
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

impl From<ProductSetup> for EvalSide {
    fn from(setup: ProductSetup) -> Self {
        Self::Product(setup)
    }
}

impl fmt::Display for EvalSide {
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

impl NamedSide for EvalPoint {
    fn case(&self) -> String {
        self.load.to_string()
    }

    fn side(&self) -> String {
        self.side.to_string()
    }
}

/// The large requests of mixed loads.
pub(crate) const LARGE: usize = 128 * KIB;

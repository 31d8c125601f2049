//! Measures points: all sides of a load one after the other.

use super::MIB;
use super::plan::{AUTO, EvalFigure, EvalPoint, EvalSide, I10, NONE, STORES};
use crate::floor;
use crate::measure::{Measure, median};
use crate::noise;
use crate::product::{self, LoadTiming};
use crate::runs::{self, NamedSide, RunCase, SideRun, SideTurn};
use crate::tables::distinct;
use crate::wired::{Wired, WiredContestant};
use crate::workload::{LabLoad, LoadLinks, LoadStore, LoadWaiting, ProductSetup};
use anyhow::{Context, bail};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Time of starting, filling and ending, in addition to the measured time.
const OVERHEAD_SECONDS: f64 = 0.15;
/// The same over links, with filling the target's memory.
const WIRED_OVERHEAD_SECONDS: f64 = 0.5;
/// Memory there: it is filled over the links.
const WIRED_MIB: usize = 64;
/// One of so many rounds measures shaped links: what limits them is the same in all.
const SHAPED_EVERY: usize = 3;
/// Runs of each policy that the peak rate is the median of.
const PEAK_RUNS: usize = 3;

/// Rounds and times of an extent.
#[derive(Clone, Copy, Debug)]
pub(super) struct EvalBudget {
    pub(super) rounds: usize,
    pub(super) seconds: f64,
    pub(super) ramp_seconds: f64,
    /// Rounds over links, at most: runs take long.
    pub(super) wired_rounds: usize,
    /// Measured time there, at least: CPU time is counted from outside, when surely everything runs.
    pub(super) wired_seconds: f64,
    pub(super) profile_rounds: usize,
}

/// The way of measuring.
#[derive(Debug)]
pub(super) struct EvalManner {
    pub(super) program: PathBuf,
    pub(super) budget: EvalBudget,
    pub(super) retries: usize,
    /// Repetitions that are left for all runs together: disturbance must not double the time.
    pub(super) repeats_left: Cell<usize>,
    /// The way in which both ends wait, instead of that of the setup.
    pub(super) waiting: Option<LoadWaiting>,
    /// A thread computes on each of the two cores meanwhile.
    pub(super) has_neighbours: bool,
    /// Links that have been made.
    pub(super) wires: RefCell<HashMap<LoadLinks, Rc<Wired>>>,
}

/// The points of the figures, each once, those of a load together.
pub(super) fn points(figures: &[EvalFigure]) -> Vec<EvalPoint> {
    let mut points = distinct(figures.iter().flat_map(EvalFigure::points));
    let mut order: HashMap<LabLoad, usize> = HashMap::new();
    for point in &points {
        let next = order.len();
        order.entry(point.load).or_insert(next);
    }
    points.sort_by_key(|point| order[&point.load]);
    points
}

/// The stores whose peak rate is needed.
fn paced(points: &[EvalPoint]) -> impl Iterator<Item = LoadStore> {
    let open = |store| {
        move |point: &EvalPoint| point.load.peak_percent.is_some() && point.load.store == store
    };
    STORES.into_iter().filter(move |&store| points.iter().any(open(store)))
}

impl EvalManner {
    pub(super) fn new(program: &Path, budget: EvalBudget) -> Self {
        Self {
            program: program.to_owned(),
            budget,
            retries: 0,
            repeats_left: Cell::new(0),
            waiting: None,
            has_neighbours: false,
            wires: RefCell::default(),
        }
    }

    /// The time that all rounds take, in minutes.
    pub(super) fn minutes(&self, points: &[EvalPoint]) -> f64 {
        let EvalBudget { seconds, ramp_seconds, wired_seconds, .. } = self.budget;
        let each = |load: &LabLoad| match load.wire {
            Some(_) => seconds.max(wired_seconds) + ramp_seconds + WIRED_OVERHEAD_SECONDS,
            None => seconds + ramp_seconds + OVERHEAD_SECONDS,
        };
        let all = points.iter().map(|point| self.rounds_of(&point.load) as f64 * each(&point.load));
        all.sum::<f64>() / 60.0
    }

    /// Runs in all rounds.
    pub(super) fn runs(&self, points: &[EvalPoint]) -> usize {
        points.iter().map(|point| self.rounds_of(&point.load)).sum()
    }

    fn rounds_of(&self, load: &LabLoad) -> usize {
        let wired = self.budget.rounds.min(self.budget.wired_rounds);
        match load.wire {
            Some(wire) if wire.is_gigabit => wired.div_ceil(SHAPED_EVERY),
            Some(_) => wired,
            None => self.budget.rounds,
        }
    }

    /// Requests a second of 4 KiB reads that each of none, i10 and auto can do, by store that needs it.
    pub(super) fn peaks(&self, points: &[EvalPoint]) -> BTreeMap<String, f64> {
        let peak = |store| {
            let rates = [NONE, I10, AUTO].into_iter().filter_map(|setup| {
                let point = EvalPoint::new(LabLoad::small(100, 128).on(store), setup);
                let runs = (0..PEAK_RUNS).filter_map(|_| self.measure(&point, None).ok());
                median(runs.map(|measure| measure.iops))
            });
            rates.reduce(f64::min)
        };
        paced(points).filter_map(|store| Some((store.name().to_owned(), peak(store)?))).collect()
    }

    /// Measures everything; when interrupted, what there is by then.
    pub(super) fn run(&self, points: &[EvalPoint], peaks: &BTreeMap<String, f64>) -> Vec<SideRun> {
        let case = |of_load: &[EvalPoint]| RunCase {
            title: of_load[0].case(),
            rounds: self.rounds_of(&of_load[0].load),
            turns: of_load.iter().map(|&point| self.turn(point, peaks)).collect(),
        };
        let loads = points.chunk_by(|one, next| one.load == next.load);
        let mut cases: Vec<RunCase<EvalPoint>> = loads.map(case).collect();
        runs::measure(&mut cases, |point, _| {
            vec![rate(&point.load, peaks).and_then(|rate| self.measure(point, rate))]
        });
        runs::finish(cases)
    }

    fn turn(&self, point: EvalPoint, peaks: &BTreeMap<String, f64>) -> SideTurn<EvalPoint> {
        let EvalPoint { load, side } = point;
        let command = match side {
            EvalSide::Product(setup) => {
                let setup = self.as_it_waits(setup);
                let rate = rate(&load, peaks).unwrap_or_default();
                let timing = self.timing(&load, rate);
                let words = match load.wire {
                    Some(_) => product::against(&load, &setup, &timing, "..."),
                    None => product::arguments(&load, &setup, &timing),
                };
                format!("roadtrain {}", words.join(" "))
            }
            EvalSide::Nbdkit => "nbdkit memory; fio --ioengine=nbd".to_owned(),
            EvalSide::Floor(gather) => format!("roadtrain-lab floor --gather {gather} ..."),
        };
        SideTurn { side: point, runs: vec![SideRun::new(&point, command)] }
    }

    fn as_it_waits(&self, setup: ProductSetup) -> ProductSetup {
        ProductSetup { waiting: self.waiting.unwrap_or(setup.waiting), ..setup }
    }

    fn timing(&self, load: &LabLoad, rate: Option<f64>) -> LoadTiming {
        let seconds = match load {
            // Some steps have to fit in.
            load if load.steps => self.budget.seconds * 4.0,
            load if load.wire.is_some() => self.budget.seconds.max(self.budget.wired_seconds),
            _ => self.budget.seconds,
        };
        let mib = if load.wire.is_some() { WIRED_MIB } else { MIB };
        LoadTiming { mib, seconds, ramp_seconds: self.budget.ramp_seconds, rate }
    }

    fn measure(&self, point: &EvalPoint, rate: Option<f64>) -> anyhow::Result<Measure> {
        let load = &point.load;
        if let Some(wire) = load.wire {
            let contestant = match point.side {
                EvalSide::Product(setup) => WiredContestant::Product(self.as_it_waits(setup)),
                EvalSide::Nbdkit => WiredContestant::Nbdkit,
                EvalSide::Floor(_) => bail!("the floor is loopback's"),
            };
            return self.wired(wire)?.measure(load, contestant, &self.timing(load, rate));
        }
        match point.side {
            EvalSide::Nbdkit => bail!("nbdkit runs over links only"),
            EvalSide::Product(setup) => {
                let setup = self.as_it_waits(setup);
                let arguments = product::arguments(load, &setup, &self.timing(load, rate));
                self.quiet(|| product::run(&self.program, &arguments))
            }
            EvalSide::Floor(gather) => {
                let direction = load.direction().context("the floor has no mixed loads")?;
                let args = floor::FloorArgs {
                    gather,
                    seconds: self.budget.seconds,
                    warmup: self.budget.ramp_seconds,
                    memory: MIB << 20,
                    ..load.floor(direction, LoadWaiting::Sleep)
                };
                self.quiet(|| floor::run(&args))
            }
        }
    }

    /// The links between two network namespaces; made once.
    fn wired(&self, wire: LoadLinks) -> anyhow::Result<Rc<Wired>> {
        if let Some(wired) = self.wires.borrow().get(&wire) {
            return Ok(wired.clone());
        }
        let wired = Rc::new(Wired::new(&self.program, wire)?);
        self.wires.borrow_mut().insert(wire, wired.clone());
        Ok(wired)
    }

    /// Runs again after disturbances by other programs, as long as repetitions are left.
    fn quiet(&self, run: impl Fn() -> anyhow::Result<Measure>) -> anyhow::Result<Measure> {
        if self.has_neighbours {
            return noise::beside_neighbours(run);
        }
        let runs = Cell::new(0_usize);
        let counted = || {
            runs.set(runs.get() + 1);
            run()
        };
        let outcome = noise::quiet(self.retries.min(self.repeats_left.get()), counted);
        let repeats = runs.get().saturating_sub(1);
        self.repeats_left.set(self.repeats_left.get().saturating_sub(repeats));
        outcome
    }
}

/// The rate of an open loop.
fn rate(load: &LabLoad, peaks: &BTreeMap<String, f64>) -> anyhow::Result<Option<f64>> {
    let Some(percent) = load.peak_percent else { return Ok(None) };
    let peak = peaks.get(load.store.name()).context("the peak rate could not be measured")?;
    Ok(Some(peak * f64::from(percent) / 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::figures;
    use crate::runs::MeasuringExtent;
    use std::collections::HashSet;

    #[test]
    fn every_point_is_measured_once() {
        let figures = figures::all(MeasuringExtent::Full);
        let wanted: HashSet<EvalPoint> = figures.iter().flat_map(EvalFigure::points).collect();
        let points = points(&figures);
        assert_eq!(points.len(), wanted.len());
        let loads: HashSet<LabLoad> = points.iter().map(|point| point.load).collect();
        assert_eq!(points.chunk_by(|a, b| a.load == b.load).count(), loads.len());
    }

    #[test]
    fn it_fits_into_the_time_that_is_promised() {
        use crate::eval::{FULL, QUICK};
        let minutes = |extent, budget: EvalBudget, part: &str| {
            let mut figures = figures::all(extent);
            figures.retain(|figure| figure.id.contains(part));
            EvalManner::new(Path::new(""), budget).minutes(&points(&figures))
        };
        let (full, over_links) = (
            minutes(MeasuringExtent::Full, FULL, ""),
            minutes(MeasuringExtent::Full, FULL, "ether"),
        );
        assert!(full <= 60.0 && over_links <= 10.0, "{full}, over links {over_links}");
        let (quick, over_links) = (
            minutes(MeasuringExtent::Quick, QUICK, ""),
            minutes(MeasuringExtent::Quick, QUICK, "ether"),
        );
        assert!(quick <= 6.5 && over_links <= 1.5, "{quick}, over links {over_links}");
    }

    #[test]
    fn only_needed_peaks_are_measured() {
        let paced = |extent| paced(&points(&figures::all(extent))).collect::<Vec<_>>();
        assert_eq!(paced(MeasuringExtent::Full), STORES);
        assert_eq!(paced(MeasuringExtent::Quick), [LoadStore::Memory]);
    }

    #[test]
    fn rates_are_shares_of_the_peak() {
        let peaks = BTreeMap::from([("mem".to_owned(), 1000.0)]);
        let open = LabLoad { peak_percent: Some(30), ..LabLoad::small(100, 8) };
        assert_eq!(rate(&open, &peaks).expect("a peak"), Some(300.0));
        assert_eq!(rate(&LabLoad::small(100, 8), &peaks).expect("closed"), None);
        assert!(rate(&open, &BTreeMap::new()).is_err());
    }
}

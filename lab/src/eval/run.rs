//! Measures points: round by round, all sides of a load one after the other, the next round the other
//! way round.

use super::MIB;
use super::plan::{AUTO, Figure, I10, NONE, Point, STORES, Side};
use super::result::RunResult;
use crate::floor;
use crate::interrupt;
use crate::measure::{Measure, median};
use crate::noise;
use crate::product::{self, Timing};
use crate::wired::{Contestant, Wired};
use crate::workload::{Load, Setup, StoreKind, Waiting, Wire};
use anyhow::{Context, bail};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

/// What starting, filling and ending takes beside the measured time.
const OVERHEAD_SECONDS: f64 = 0.15;
/// The same over links, with filling the target's memory.
const WIRED_OVERHEAD_SECONDS: f64 = 0.5;
/// Memory there: it is filled over the links.
const WIRED_MIB: usize = 64;
/// One of so many rounds measures shaped links: what limits them is the same in all.
const SHAPED_EVERY: usize = 3;
/// Runs of each policy that the peak rate is the median of.
const PEAK_RUNS: usize = 3;

/// How to measure.
#[derive(Debug)]
pub(super) struct Manner {
    pub(super) program: PathBuf,
    pub(super) rounds: usize,
    pub(super) seconds: f64,
    pub(super) ramp_seconds: f64,
    /// Rounds over links, at most: runs take long.
    pub(super) wired_rounds: usize,
    /// Measured time there, at least: CPU time is counted from outside, when surely everything runs.
    pub(super) wired_seconds: f64,
    pub(super) retries: usize,
    /// Repetitions that are left for all runs together: disturbance must not double the time.
    pub(super) repeats_left: Cell<usize>,
    /// How both ends wait, whatever their setup says.
    pub(super) waiting: Option<Waiting>,
    /// A thread computes on each of the two cores meanwhile.
    pub(super) has_neighbours: bool,
    /// Links that have been made.
    pub(super) wires: RefCell<HashMap<Wire, Rc<Wired>>>,
}

/// A load with all that is run at it.
#[derive(Debug)]
pub(super) struct Block {
    load: Load,
    sides: Vec<Side>,
}

/// Sorts the figures' points by load, each once, in the order in which loads first appear.
pub(super) fn blocks(figures: &[Figure]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut places: HashMap<Load, usize> = HashMap::new();
    for Point { load, side } in figures.iter().flat_map(Figure::points) {
        let place = *places.entry(load).or_insert_with(|| {
            blocks.push(Block { load, sides: Vec::new() });
            blocks.len() - 1
        });
        if !blocks[place].sides.contains(&side) {
            blocks[place].sides.push(side);
        }
    }
    blocks
}

/// Runs in a round.
#[cfg(test)]
fn count(blocks: &[Block]) -> usize {
    blocks.iter().map(|block| block.sides.len()).sum()
}

/// The stores whose peak rate is asked for.
fn paced(blocks: &[Block]) -> impl Iterator<Item = StoreKind> {
    let open =
        |store| move |block: &Block| block.load.peak_percent.is_some() && block.load.store == store;
    STORES.into_iter().filter(move |&store| blocks.iter().any(open(store)))
}

impl Manner {
    /// How long all rounds take, in minutes.
    pub(super) fn minutes(&self, blocks: &[Block]) -> f64 {
        let seconds = |block: &Block| match block.load.wire {
            Some(_) => {
                self.seconds.max(self.wired_seconds) + self.ramp_seconds + WIRED_OVERHEAD_SECONDS
            }
            None => self.seconds + self.ramp_seconds + OVERHEAD_SECONDS,
        };
        let runs = |block: &Block| (block.sides.len() * self.rounds_of(block)) as f64;
        blocks.iter().map(|block| runs(block) * seconds(block)).sum::<f64>() / 60.0
    }

    /// Runs in all rounds.
    pub(super) fn runs(&self, blocks: &[Block]) -> usize {
        blocks.iter().map(|block| block.sides.len() * self.rounds_of(block)).sum()
    }

    fn rounds_of(&self, block: &Block) -> usize {
        let wired = self.rounds.min(self.wired_rounds);
        match block.load.wire {
            Some(wire) if wire.is_gigabit => wired.div_ceil(SHAPED_EVERY),
            Some(_) => wired,
            None => self.rounds,
        }
    }

    /// Requests a second of 4 KiB reads that each of none, i10 and auto can do, by store that needs it.
    pub(super) fn peaks(&self, blocks: &[Block]) -> BTreeMap<String, f64> {
        let peak = |store| {
            let rates = [NONE, I10, AUTO].into_iter().filter_map(|setup| {
                let point = Point::new(Load::small(100, 128).on(store), setup);
                let runs = (0..PEAK_RUNS).filter_map(|_| self.measure(&point, None).ok());
                median(runs.map(|measure| measure.iops))
            });
            rates.reduce(f64::min)
        };
        paced(blocks).filter_map(|b| Some((b.name().to_owned(), peak(b)?))).collect()
    }

    /// Measures everything; when interrupted, what there is by then.
    pub(super) fn run(&self, blocks: &[Block], peaks: &BTreeMap<String, f64>) -> Vec<RunResult> {
        let mut progress = Progress::new(self.runs(blocks));
        let mut results: Vec<Vec<RunResult>> = blocks
            .iter()
            .map(|block| block.sides.iter().map(|&side| self.result(block, side, peaks)).collect())
            .collect();
        'rounds: for round in 0..self.rounds {
            let all = blocks.iter().zip(&mut results);
            for (block, results) in all.filter(|(block, _)| round < self.rounds_of(block)) {
                progress.show(&format!("round {}/{}: {}", round + 1, self.rounds, block.load));
                let order: Vec<usize> = match round % 2 {
                    0 => (0..results.len()).collect(),
                    _ => (0..results.len()).rev().collect(),
                };
                for index in order {
                    if interrupt::check().is_err() {
                        break 'rounds;
                    }
                    progress.done += 1;
                    let (result, side) = (&mut results[index], block.sides[index]);
                    if result.is_hopeless() {
                        continue;
                    }
                    let point = Point { load: block.load, side };
                    let outcome = rate(&block.load, peaks)
                        .and_then(|rate| self.measure(&point, rate))
                        .inspect_err(|e| eprintln!("  {side}: {e:#}"));
                    if outcome.is_ok() || interrupt::check().is_ok() {
                        result.add(outcome);
                    }
                }
            }
        }
        results.into_iter().flatten().collect()
    }

    fn result(&self, block: &Block, side: Side, peaks: &BTreeMap<String, f64>) -> RunResult {
        let point = Point { load: block.load, side };
        let command = match side {
            Side::Product(setup) => {
                let setup = self.as_it_waits(setup);
                let rate = rate(&block.load, peaks).unwrap_or_default();
                let timing = self.timing(&block.load, rate);
                let words = match block.load.wire {
                    Some(_) => product::against(&block.load, &setup, &timing, "..."),
                    None => product::arguments(&block.load, &setup, &timing),
                };
                format!("roadtrain {}", words.join(" "))
            }
            Side::Nbdkit => "nbdkit memory; fio --ioengine=nbd".to_owned(),
            Side::Floor(gather) => format!("roadtrain-lab floor --gather {gather} ..."),
        };
        RunResult::new(&point, command)
    }

    fn as_it_waits(&self, setup: Setup) -> Setup {
        Setup { waiting: self.waiting.unwrap_or(setup.waiting), ..setup }
    }

    fn timing(&self, load: &Load, rate: Option<f64>) -> Timing {
        let seconds = match load {
            // Some steps have to fit in.
            load if load.steps => self.seconds * 4.0,
            load if load.wire.is_some() => self.seconds.max(self.wired_seconds),
            _ => self.seconds,
        };
        let mib = if load.wire.is_some() { WIRED_MIB } else { MIB };
        Timing { mib, seconds, ramp_seconds: self.ramp_seconds, rate }
    }

    fn measure(&self, point: &Point, rate: Option<f64>) -> anyhow::Result<Measure> {
        let load = &point.load;
        if let Some(wire) = load.wire {
            let contestant = match point.side {
                Side::Product(setup) => Contestant::Product(self.as_it_waits(setup)),
                Side::Nbdkit => Contestant::Nbdkit,
                Side::Floor(_) => bail!("the floor is loopback's"),
            };
            return self.wired(wire)?.measure(load, contestant, &self.timing(load, rate));
        }
        match point.side {
            Side::Nbdkit => bail!("nbdkit runs over links only"),
            Side::Product(setup) => {
                let setup = self.as_it_waits(setup);
                let arguments = product::arguments(load, &setup, &self.timing(load, rate));
                self.quiet(|| product::run(&self.program, &arguments))
            }
            Side::Floor(gather) => {
                let direction = load.direction().context("the floor has no mixed loads")?;
                let args = floor::Args {
                    gather,
                    seconds: self.seconds,
                    warmup: self.ramp_seconds,
                    memory: MIB << 20,
                    ..load.floor(direction, Waiting::Sleep)
                };
                self.quiet(|| floor::run(&args).map(|result| Measure::from(&result)))
            }
        }
    }
}

impl Manner {
    /// The links between two network namespaces; made once.
    fn wired(&self, wire: Wire) -> anyhow::Result<Rc<Wired>> {
        if let Some(wired) = self.wires.borrow().get(&wire) {
            return Ok(wired.clone());
        }
        let wired = Rc::new(Wired::new(&self.program, wire)?);
        self.wires.borrow_mut().insert(wire, wired.clone());
        Ok(wired)
    }

    /// Runs again when others disturbed who are not meant to, as long as repetitions are left.
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
fn rate(load: &Load, peaks: &BTreeMap<String, f64>) -> anyhow::Result<Option<f64>> {
    let Some(percent) = load.peak_percent else { return Ok(None) };
    let peak = peaks.get(load.store.name()).context("the peak rate could not be measured")?;
    Ok(Some(peak * f64::from(percent) / 100.0))
}

/// How far it has come.
struct Progress {
    began: Instant,
    done: usize,
    all: usize,
}

impl Progress {
    fn new(all: usize) -> Self {
        Self { began: Instant::now(), done: 0, all }
    }

    fn show(&self, what: &str) {
        let left = self.began.elapsed().as_secs_f64() / self.done.max(1) as f64
            * (self.all - self.done) as f64;
        let left = if self.done == 0 { String::new() } else { format!(", {:.0} s left", left) };
        eprintln!("{}/{}{left}: {what}", self.done, self.all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::figures;
    use crate::eval::plan::Extent;
    use std::collections::HashSet;

    #[test]
    fn every_point_is_measured_once() {
        let figures = figures::all(Extent::Full);
        let wanted: HashSet<Point> = figures.iter().flat_map(Figure::points).collect();
        let blocks = blocks(&figures);
        assert_eq!(count(&blocks), wanted.len());
        let loads: HashSet<Load> = blocks.iter().map(|block| block.load).collect();
        assert_eq!(loads.len(), blocks.len());
    }

    #[test]
    fn it_fits_into_the_time_that_is_promised() {
        use crate::eval::{Budget, FULL, QUICK};
        let minutes = |extent, budget: Budget, part: &str| {
            let mut figures = figures::all(extent);
            figures.retain(|figure| figure.id.contains(part));
            let manner = Manner {
                program: PathBuf::new(),
                rounds: budget.rounds,
                seconds: budget.seconds,
                ramp_seconds: budget.ramp_seconds,
                wired_rounds: budget.wired_rounds,
                wired_seconds: budget.wired_seconds,
                retries: 0,
                repeats_left: Cell::new(0),
                waiting: None,
                has_neighbours: false,
                wires: RefCell::default(),
            };
            manner.minutes(&blocks(&figures))
        };
        let (full, over_links) =
            (minutes(Extent::Full, FULL, ""), minutes(Extent::Full, FULL, "ether"));
        assert!(full <= 60.0 && over_links <= 10.0, "{full}, over links {over_links}");
        let (quick, over_links) =
            (minutes(Extent::Quick, QUICK, ""), minutes(Extent::Quick, QUICK, "ether"));
        assert!(quick <= 6.5 && over_links <= 1.5, "{quick}, over links {over_links}");
    }

    #[test]
    fn only_needed_peaks_are_measured() {
        let paced = |extent| paced(&blocks(&figures::all(extent))).collect::<Vec<_>>();
        assert_eq!(paced(Extent::Full), STORES);
        assert_eq!(paced(Extent::Quick), [StoreKind::Memory]);
    }

    #[test]
    fn rates_are_shares_of_the_peak() {
        let peaks = BTreeMap::from([("mem".to_owned(), 1000.0)]);
        let open = Load { peak_percent: Some(30), ..Load::small(100, 8) };
        assert_eq!(rate(&open, &peaks).expect("a peak"), Some(300.0));
        assert_eq!(rate(&Load::small(100, 8), &peaks).expect("closed"), None);
        assert!(rate(&open, &BTreeMap::new()).is_err());
    }
}

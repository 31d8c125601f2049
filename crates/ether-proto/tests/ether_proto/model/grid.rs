//! Policies over a grid of machines and loads: how close `auto` comes to the best fixed policy of each point.

use super::check_parts;
use super::costs::Costs;
use super::cpu::ModelRandom;
use super::load::{LoadOperations, ModelLoad, ms};
use super::run::{ModelScenario, ScenarioOutcome};
use super::table::{AUTO, policies};
use super::target::ModelStore;
use crate::cases::is_thorough;
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_proto::time::Instant;
use roadtrain_proto::wait::WaitPolicy;
use std::fmt::Write;
use std::ops::Range;
use std::time::Duration;

const WAKE_UPS_US: [f64; 5] = [2.0, 6.0, 18.0, 60.0, 200.0];
const SENDS_US: [f64; 4] = [0.3, 1.0, 3.0, 8.0];
const PDUS_US: [f64; 4] = [0.1, 0.3, 0.8, 2.0];
const TRIPS_US: [f64; 4] = [0.0, 5.0, 25.0, 100.0];
/// Service time and parallelism.
const STORES: [(u64, usize); 9] =
    [(0, 1), (20, 1), (20, 8), (20, 64), (20, 256), (100, 1), (100, 16), (100, 64), (100, 256)];
const OPERATIONS: [LoadOperations; 3] =
    [LoadOperations::Reads, LoadOperations::Writes, LoadOperations::Mix];
const DEPTHS: [u32; 14] = [1, 2, 3, 4, 6, 8, 16, 24, 32, 64, 96, 128, 256, 511];
const PERCENTS: [u32; 7] = [5, 10, 25, 50, 70, 80, 95];
const STEPS: [(u32, u32); 5] = [(1, 8), (1, 32), (1, 128), (4, 64), (16, 256)];
const BURSTS: [usize; 4] = [4, 8, 32, 64];

/// Start of every run, which is not measured.
const BEGINNING: Duration = Duration::from_millis(10);
/// Approximate number of requests that a run measures, and limits of its time.
const REQUESTS: f64 = 2500.0;
const MEASURED_MIN: Duration = Duration::from_millis(5);
const MEASURED_MAX: Duration = Duration::from_millis(60);

/// The form of a load.
#[derive(Clone, Copy, Debug)]
enum LoadForm {
    /// Requests always in flight.
    Depth(u32),
    /// Percent of the highest throughput of any fixed policy with 256 in flight.
    Open(u32),
    /// Two depths, in turn.
    Steps(u32, u32),
    /// Requests submitted together each millisecond.
    Bursts(usize),
}

impl LoadForm {
    fn name(self) -> &'static str {
        match self {
            LoadForm::Depth(_) => "closed loops",
            LoadForm::Open(_) => "open loops",
            LoadForm::Steps(..) => "steps",
            LoadForm::Bursts(_) => "bursts",
        }
    }
}

/// A machine and its load.
#[derive(Clone, Copy, Debug)]
struct GridPoint {
    wake_up_us: f64,
    send_us: f64,
    pdu_us: f64,
    trip_us: f64,
    store: (u64, usize),
    one_core: bool,
    operations: LoadOperations,
    form: LoadForm,
}

/// Result of `auto` at a point.
#[derive(Clone, Copy)]
struct GridVerdict {
    point: GridPoint,
    best: &'static str,
    /// [`GridPoint::figures`] of the best and of `auto`.
    of_best: [f64; 3],
    of_auto: [f64; 3],
}

fn us(us: f64) -> Duration {
    Duration::from_nanos((us * 1000.0) as u64)
}

impl GridPoint {
    fn random(random: &mut ModelRandom) -> Self {
        fn pick<T: Copy>(random: &mut ModelRandom, from: &[T]) -> T {
            from[(random.next() % from.len() as u64) as usize]
        }
        let form = match random.next() % 10 {
            0..6 => LoadForm::Depth(pick(random, &DEPTHS)),
            6..8 => LoadForm::Open(pick(random, &PERCENTS)),
            8 => {
                let (low, high) = pick(random, &STEPS);
                LoadForm::Steps(low, high)
            }
            _ => LoadForm::Bursts(pick(random, &BURSTS)),
        };
        GridPoint {
            wake_up_us: pick(random, &WAKE_UPS_US),
            send_us: pick(random, &SENDS_US),
            pdu_us: pick(random, &PDUS_US),
            trip_us: pick(random, &TRIPS_US),
            store: pick(random, &STORES),
            one_core: random.next().is_multiple_of(4),
            operations: pick(random, &OPERATIONS),
            form,
        }
    }

    fn costs(&self) -> Costs {
        let (wake_up, send) = (us(self.wake_up_us), us(self.send_us));
        let costs = Costs::of(wake_up, send, us(self.pdu_us), us(self.trip_us));
        Costs { one_core: self.one_core, ..costs }
    }

    fn store(&self) -> ModelStore {
        match self.store {
            (0, _) => ModelStore::Memory,
            (us, parallel) => ModelStore::Ssd { service: Duration::from_micros(us), parallel },
        }
    }

    /// Returns the time of a run that measures enough requests at that depth.
    fn measured(&self, depth: f64) -> Range<Instant> {
        let (service, parallel) = (self.store.0 as f64, self.store.1 as f64);
        let round_trip = 2.0 * (self.trip_us + self.wake_up_us + self.send_us) + service;
        let handled = 2.6 * self.pdu_us + self.send_us / 8.0;
        let each = handled.max(round_trip / depth).max(service / parallel);
        let length = us(each * REQUESTS).clamp(MEASURED_MIN, MEASURED_MAX);
        let start = ms(0) + BEGINNING;
        start..start + length
    }

    fn load(&self) -> (ModelLoad, Range<Instant>) {
        match self.form {
            LoadForm::Depth(depth) => (ModelLoad::depth(depth), self.measured(depth.into())),
            LoadForm::Open(percent) => {
                let peak = GridPoint { form: LoadForm::Depth(256), ..*self };
                let rate = peak.verdict().of_best[0] * 1000.0 * f64::from(percent) / 100.0;
                let length = Duration::from_secs_f64(REQUESTS / rate);
                let start = ms(0) + BEGINNING;
                let measured = start..start + length.clamp(MEASURED_MIN, MEASURED_MAX * 2);
                (ModelLoad::random_rate(rate, measured.end), measured)
            }
            LoadForm::Steps(low, high) => {
                let depths = [low, high].into_iter().cycle().take(8);
                (ModelLoad::depths(5, depths), ms(10)..ms(40))
            }
            LoadForm::Bursts(size) => {
                (ModelLoad::bursts(size, Duration::from_millis(1), ms(50)), ms(10)..ms(50))
            }
        }
    }

    fn run(&self, policy: PolicyConfig, load: &(ModelLoad, Range<Instant>)) -> ScenarioOutcome {
        let (load, measured) = load.clone();
        let (costs, store, operations) = (self.costs(), self.store(), self.operations);
        let waiting = WaitPolicy::Adaptive;
        ModelScenario { costs, waiting, policy, lanes: 1, load, operations, store, measured }.run()
    }

    /// The best fixed policy of a closed load has the most throughput, that of an open one the least p99.
    /// kIOPS, 99th percentile of latencies in us, busy us of both ends for each request.
    fn figures(&self, policy: PolicyConfig, load: &(ModelLoad, Range<Instant>)) -> [f64; 3] {
        let outcome = self.run(policy, load);
        let iops = outcome.iops(&outcome.measured);
        let span = outcome.measured.end.since(outcome.measured.start).as_secs_f64();
        let busy = (outcome.host.busy + outcome.target.busy).as_secs_f64();
        let p99 = outcome.latency_us(&outcome.measured).1;
        [iops / 1000.0, p99, busy * 1e6 / (iops * span).max(1.0)]
    }

    fn verdict(&self) -> GridVerdict {
        let load = self.load();
        let figures = policies().into_iter();
        let figures = figures.map(|(name, policy)| (name, self.figures(policy, &load)));
        let (auto, fixed): (Vec<_>, Vec<_>) = figures.partition(|(name, _)| *name == AUTO);
        let is_open = matches!(self.form, LoadForm::Open(_) | LoadForm::Bursts(_));
        let worth = |of: &[f64; 3]| if is_open { -of[1] } else { of[0] };
        let done = fixed.into_iter().filter(|(_, of)| of[1] > 0.0);
        let best = done.max_by(|a, b| worth(&a.1).total_cmp(&worth(&b.1)));
        let (best, of_best) = best.expect("there are fixed policies");
        GridVerdict { point: *self, best, of_best, of_auto: auto[0].1 }
    }
}

impl GridVerdict {
    /// Throughput and p99 as parts of the best's.
    fn ratios(&self, of: [f64; 3]) -> [f64; 2] {
        [of[0] / self.of_best[0], of[1] / self.of_best[1]]
    }

    fn row(&self) -> String {
        let GridPoint { wake_up_us, send_us, pdu_us, trip_us, store, one_core, operations, form } =
            self.point;
        let [throughput, p99] = self.ratios(self.of_auto);
        let machine = format!("{wake_up_us:3} {send_us:3} {pdu_us:3} {trip_us:3}");
        let store = format!("{:3}x{:<3}", store.0, store.1);
        let cores = if one_core { 1 } else { 2 };
        let load = format!("{} {}", format!("{operations:?}").to_lowercase(), show(form));
        format!(
            "{machine} | {store} {cores} | {load:18} | {:10} {:7.1} {:8.1} {:6.2} | {:7.1} {:8.1} {:6.2} | {:4.2} {:5.2}",
            self.best,
            self.of_best[0],
            self.of_best[1],
            self.of_best[2],
            self.of_auto[0],
            self.of_auto[1],
            self.of_auto[2],
            throughput,
            p99,
        )
    }
}

fn show(form: LoadForm) -> String {
    match form {
        LoadForm::Depth(depth) => format!("{depth}"),
        LoadForm::Open(percent) => format!("{percent} %"),
        LoadForm::Steps(low, high) => format!("{low}..{high}"),
        LoadForm::Bursts(size) => format!("{size} a ms"),
    }
}

/// Returns the first `count` points in the order of the seed.
fn points(count: usize) -> Vec<GridPoint> {
    let mut random = ModelRandom(15);
    (0..count).map(|_| GridPoint::random(&mut random)).collect()
}

fn verdicts(points: &[GridPoint]) -> Vec<GridVerdict> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    let size = points.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let run = |points: &[GridPoint]| points.iter().map(GridPoint::verdict).collect::<Vec<_>>();
        let parts: Vec<_> =
            points.chunks(size).map(|part| scope.spawn(move || run(part))).collect();
        parts.into_iter().flat_map(|part| part.join().expect("a run ends")).collect()
    })
}

/// Summarises which share of the points lies within the limits, and where the others lie: ratios of throughput and
/// p99.
fn summary(verdicts: &[GridVerdict], ratios: fn(&GridVerdict) -> [f64; 2]) -> String {
    let [mut throughput, mut p99] = [0, 1].map(|which| {
        let ratios = verdicts.iter().map(|verdict| ratios(verdict)[which]);
        ratios.collect::<Vec<_>>()
    });
    throughput.sort_by(f64::total_cmp);
    p99.sort_by(|a, b| b.total_cmp(a));
    let part = |ratios: &[f64], is_in: &dyn Fn(f64) -> bool| {
        let count = ratios.iter().filter(|&&ratio| is_in(ratio)).count();
        count as f64 * 100.0 / verdicts.len() as f64
    };
    let mean = |ratios: &[f64]| {
        let sum: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
        (sum / ratios.len() as f64).exp()
    };
    let at = |ratios: &[f64], percent: usize| ratios[ratios.len() * percent / 100];
    format!(
        "throughput: at least 0.97 at {:.0} %, 0.90 at {:.0} % of {} points; least {:.2}, 5 % below {:.2}, mean {:.3}\n\
         p99:        at most  1.05 at {:.0} %, 1.25 at {:.0} %; most {:.2}, 5 % above {:.2}, mean {:.3}\n",
        part(&throughput, &|ratio| ratio >= 0.97),
        part(&throughput, &|ratio| ratio >= 0.90),
        verdicts.len(),
        throughput[0],
        at(&throughput, 5),
        mean(&throughput),
        part(&p99, &|ratio| ratio <= 1.05),
        part(&p99, &|ratio| ratio <= 1.25),
        p99[0],
        at(&p99, 5),
        mean(&p99),
    )
}

/// Summarises all points, and those of each form of load.
fn summaries(verdicts: &[GridVerdict]) -> String {
    let of_auto = |verdict: &GridVerdict| verdict.ratios(verdict.of_auto);
    let mut text = summary(verdicts, of_auto);
    for name in ["closed loops", "open loops", "steps", "bursts"] {
        let of_form = verdicts.iter().filter(|verdict| verdict.point.form.name() == name);
        let of_form: Vec<_> = of_form.copied().collect();
        if !of_form.is_empty() {
            write!(text, "\n{name}\n{}", summary(&of_form, of_auto)).expect("a string");
        }
    }
    text
}

fn table(verdicts: &[GridVerdict]) -> String {
    let mut text = String::from(
        "auto beside the best fixed policy. us of a wake-up, a send, a PDU, a trip | store (us x parallel), cores | load |\n\
         the best: kIOPS, p99 (us), busy us of both ends for each request | auto: the same | ratios of kIOPS, p99\n\n",
    );
    text += &summaries(verdicts);
    text += "\n";
    for verdict in verdicts {
        writeln!(text, "{}", verdict.row()).expect("a string");
    }
    text
}

/// A sample of the grid.
#[test]
fn grid() {
    let points = points(160);
    let snapshot = include_str!("snapshots/ether_proto__model__grid__grid.snap");
    if !is_thorough() {
        return check_parts(snapshot, &points, 8, |point| point.verdict().row());
    }
    let table = table(&verdicts(&points));
    insta::with_settings!({omit_expression => true}, { insta::assert_snapshot!(table) });
}

/// More of the grid: `MODEL_POINTS=2000 cargo test --release -p roadtrain-ether-proto --test ether_proto
/// much_of_the_grid -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn much_of_the_grid() {
    let count = std::env::var("MODEL_POINTS").ok().and_then(|count| count.parse().ok());
    println!("{}", table(&verdicts(&points(count.unwrap_or(1000)))));
}

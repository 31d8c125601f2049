//! What TLS costs: the product with and without it, beside what the cipher alone would add to plain.

use super::Args;
use super::result::{Least, Most, TlsRow};
use crate::floor::{self, Cipher, Direction, Sealing};
use crate::measure::{Measure, median};
use crate::noise::quiet;
use crate::product::{self, Timing};
use crate::workload::{KIB, Load, Setup, Waiting};

/// Throughput of that of the limit.
const OF_LIMIT_MIN: f64 = 0.85;
/// What a round trip at depth 1 may take more than plain, in microseconds.
const ADDED_US_MAX: f64 = 8.0;

struct Plan {
    title: &'static str,
    rw: Direction,
    bs: usize,
    depth: usize,
}

const PLANS: [Plan; 5] = [
    Plan { title: "4 KiB reads, depth 128", rw: Direction::Read, bs: 4 * KIB, depth: 128 },
    Plan { title: "4 KiB writes, depth 128", rw: Direction::Write, bs: 4 * KIB, depth: 128 },
    Plan { title: "128 KiB reads, depth 32", rw: Direction::Read, bs: 128 * KIB, depth: 32 },
    Plan { title: "128 KiB writes, depth 32", rw: Direction::Write, bs: 128 * KIB, depth: 32 },
    Plan { title: "4 KiB reads, depth 1", rw: Direction::Read, bs: 4 * KIB, depth: 1 },
];

/// A round: plain, with TLS, and the cipher alone.
struct Round {
    plain: Measure,
    tls: Measure,
    sealing: Sealing,
}

impl Round {
    /// Throughput of that of the limit: the CPU time of plain and of the cipher, on cores as busy as plain's.
    fn of_limit(&self) -> Option<f64> {
        let plain = self.plain.cpu_us_per_io()?;
        let cipher = self.sealing.host_us + self.sealing.target_us;
        Some(self.tls.iops / (self.plain.iops * plain / (plain + cipher)))
    }
}

/// The set-ups while they are measured, in turns.
#[derive(Default)]
pub(super) struct Runs {
    rows: [Vec<Round>; PLANS.len()],
    errors: [Option<String>; PLANS.len()],
}

impl Runs {
    /// Each once.
    pub(super) fn round(&mut self, args: &Args) {
        for (at, plan) in PLANS.iter().enumerate() {
            eprintln!("tls: {}", plan.title);
            match round(plan, args) {
                Ok(round) => self.rows[at].push(round),
                Err(e) => {
                    eprintln!("tls: {e:#}");
                    self.errors[at] = Some(format!("{e:#}"));
                }
            }
        }
    }

    pub(super) fn finish(self) -> Vec<TlsRow> {
        let rows = PLANS.iter().zip(self.rows).zip(self.errors);
        rows.map(|((plan, rounds), error)| row(plan, &rounds, error)).collect()
    }
}

fn row(plan: &Plan, rounds: &[Round], error: Option<String>) -> TlsRow {
    let middle = |f: fn(&Round) -> &Measure| {
        let runs: Vec<Measure> = rounds.iter().map(|round| f(round).clone()).collect();
        (!runs.is_empty()).then(|| Measure::median(&runs))
    };
    let cipher = |f: fn(&Sealing) -> f64| median(rounds.iter().map(|round| f(&round.sealing)));
    let of_limit = median(rounds.iter().filter_map(Round::of_limit)).filter(|_| plan.depth > 1);
    let added = rounds.iter().map(|round| round.tls.latency_us_mean - round.plain.latency_us_mean);
    let added = median(added).filter(|_| plan.depth == 1);
    TlsRow {
        title: plan.title.into(),
        plain: middle(|round| &round.plain),
        tls: middle(|round| &round.tls),
        cipher_host_us: cipher(|sealing| sealing.host_us),
        cipher_target_us: cipher(|sealing| sealing.target_us),
        of_limit: of_limit.map(|value| Least { value, bound: OF_LIMIT_MIN }),
        added_us: added.map(|value| Most { value, bound: ADDED_US_MAX }),
        error,
    }
}

fn round(plan: &Plan, args: &Args) -> anyhow::Result<Round> {
    let &Plan { rw, bs, depth, .. } = plan;
    let timing = Timing { mib: 256, seconds: args.seconds, ramp_seconds: 0.3, rate: None };
    let reads_percent = if rw == Direction::Read { 100 } else { 0 };
    let setup = Setup { waiting: Waiting::Default, ..Setup::new("auto") };
    let line = product::arguments(&Load::new(reads_percent, bs, depth), &setup, &timing);
    let secured = [&line[..], &["--tls".to_owned()]].concat();
    let run = |line: &[String]| quiet(args.retries, || product::run(&args.program, line));
    let (plain, tls) = (run(&line)?, run(&secured)?);
    let workload = floor::Args { rw, bs, depth, ..floor::Args::default() };
    Ok(Round { plain, tls, sealing: Sealing::measure(Cipher::Aes128, &workload)? })
}

//! What was measured, as written to and read from JSON.

use super::plan::{Figure, Row};
use super::side::Side;
use crate::machine::Machine;
use crate::measure::median;
use serde::{Deserialize, Serialize};

/// What somebody takes of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Load {
    pub(super) cores: f64,
    pub(super) switches_per_second: f64,
}

/// Of the whole machine, and of those of it who are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Loads {
    /// All of them, and the kernel's own threads, and whatever else runs.
    pub(super) machine: Load,
    /// The application, and its own server if it has one.
    pub(super) application: Load,
    /// Who shows the file.
    pub(super) client: Load,
    /// The far end.
    pub(super) server: Load,
}

/// A run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Measure {
    pub(super) operations_per_second: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bytes_per_second: Option<f64>,
    pub(super) latency_us_p50: f64,
    pub(super) latency_us_p99: f64,
    /// Meanwhile.
    pub(super) loads: Loads,
}

/// A whole measurement.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Applications {
    pub(super) machine: Machine,
    /// The command that made it.
    pub(super) command: String,
    /// Fewer rows.
    pub(super) quick: bool,
    pub(super) rounds: usize,
    /// Measured time of each run.
    pub(super) seconds: u32,
    /// How long it all took.
    pub(super) minutes: f64,
    /// Size of each device.
    pub(super) device_bytes: u64,
    pub(super) sides: Vec<SideResult>,
    /// Rows that were left out, and why.
    pub(super) skipped: Vec<Skipped>,
    pub(super) runs: Vec<RunResult>,
}

/// A side, and why it is not there if it is not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SideResult {
    pub(super) side: String,
    pub(super) how: String,
    pub(super) skipped: Option<String>,
}

/// What could not be run at all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Skipped {
    pub(super) what: String,
    pub(super) why: String,
}

/// A row on a side.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunResult {
    pub(super) row: String,
    pub(super) side: String,
    #[serde(default)]
    /// The last failure.
    pub(super) error: Option<String>,
    #[serde(default)]
    pub(super) median: Option<Measure>,
    #[serde(default)]
    /// Each round's, none where it failed.
    pub(super) rounds: Vec<Option<Measure>>,
}

impl Loads {
    /// What nobody known has used: the loop device's threads, and the kernel's others.
    pub(super) fn rest_cores(&self) -> f64 {
        let known = self.application.cores + self.client.cores + self.server.cores;
        (self.machine.cores - known).max(0.0)
    }

    /// The median of each figure.
    fn median(runs: &[Measure]) -> Option<Self> {
        let of = |load: fn(&Self) -> Load| {
            Some(Load {
                cores: median(runs.iter().map(|m| load(&m.loads).cores))?,
                switches_per_second: median(
                    runs.iter().map(|m| load(&m.loads).switches_per_second),
                )?,
            })
        };
        Some(Self {
            machine: of(|loads| loads.machine)?,
            application: of(|loads| loads.application)?,
            client: of(|loads| loads.client)?,
            server: of(|loads| loads.server)?,
        })
    }
}

impl Measure {
    /// Operations for each second of a core.
    pub(super) fn per_cpu_second(&self) -> f64 {
        self.operations_per_second / self.loads.machine.cores.max(1e-3)
    }

    /// CPU time of an operation, of so many cores.
    pub(super) fn cpu_us(&self, cores: f64) -> f64 {
        1e6 * cores / self.operations_per_second.max(1e-9)
    }

    /// Context switches of an operation.
    pub(super) fn switches(&self, load: Load) -> f64 {
        load.switches_per_second / self.operations_per_second.max(1e-9)
    }

    pub(super) fn figure(&self, figure: Figure) -> f64 {
        match figure {
            Figure::PerCpuSecond => self.per_cpu_second(),
            Figure::P50 => self.latency_us_p50,
            Figure::P99 => self.latency_us_p99,
        }
    }

    /// The median of each figure.
    fn median(runs: &[Self]) -> Option<Self> {
        let of = |figure: fn(&Self) -> f64| median(runs.iter().map(figure));
        Some(Self {
            operations_per_second: of(|m| m.operations_per_second)?,
            bytes_per_second: median(runs.iter().filter_map(|m| m.bytes_per_second)),
            latency_us_p50: of(|m| m.latency_us_p50)?,
            latency_us_p99: of(|m| m.latency_us_p99)?,
            loads: Loads::median(runs)?,
        })
    }
}

impl RunResult {
    /// Not run yet.
    pub(super) fn new(row: Row, side: Side) -> Self {
        let (row, side) = (row.to_string(), side.to_string());
        Self { row, side, error: None, median: None, rounds: Vec::new() }
    }

    /// Adds a round.
    pub(super) fn add(&mut self, outcome: anyhow::Result<Measure>) {
        self.rounds.push(match outcome {
            Ok(measure) => Some(measure),
            Err(e) => {
                self.error = Some(format!("{e:#}"));
                None
            }
        });
        let done: Vec<Measure> = self.rounds.iter().flatten().copied().collect();
        self.median = Measure::median(&done);
    }

    /// Whether it failed twice and never worked.
    pub(super) fn is_hopeless(&self) -> bool {
        self.rounds.len() >= 2 && self.median.is_none()
    }
}

impl Applications {
    /// A row on all sides.
    pub(super) fn of(&self, row: Row) -> impl Iterator<Item = &RunResult> {
        let row = row.to_string();
        self.runs.iter().filter(move |run| run.row == row)
    }

    /// A row on a side.
    pub(super) fn run(&self, row: Row, side: Side) -> Option<&RunResult> {
        let (row, side) = (row.to_string(), side.to_string());
        self.runs.iter().find(|run| run.row == row && run.side == side)
    }

    /// The median of each round's own ratio.
    pub(super) fn ratio(&self, row: Row, figure: Figure, of: Side, to: Side) -> Option<f64> {
        let (of, to) = (self.run(row, of)?, self.run(row, to)?);
        let rounds = of.rounds.iter().zip(&to.rounds);
        median(
            rounds.filter_map(|(of, to)| {
                Some(of.as_ref()?.figure(figure) / to.as_ref()?.figure(figure))
            }),
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::apps::plan::Extent;
    use crate::apps::side::OURS;

    /// Of so many operations a second for each of two cores; p99 is 1e9 over that.
    pub(in crate::apps) fn measure(operations_per_second: f64) -> Measure {
        Measure {
            operations_per_second,
            bytes_per_second: Some(operations_per_second * 4096.0),
            latency_us_p50: 5e8 / operations_per_second,
            latency_us_p99: 1e9 / operations_per_second,
            loads: Loads {
                machine: Load { cores: 2.0, switches_per_second: 3.0 * operations_per_second },
                application: Load { cores: 0.5, switches_per_second: operations_per_second },
                client: Load { cores: 0.75, switches_per_second: 0.0 },
                server: Load { cores: 0.25, switches_per_second: 0.0 },
            },
        }
    }

    /// With the given rounds; zero is a failure.
    pub(in crate::apps) fn applications(runs: &[(Row, Side, &[f64])]) -> Applications {
        let run = |&(row, side, rounds): &(Row, Side, &[f64])| {
            let mut run = RunResult::new(row, side);
            for &rate in rounds {
                run.add(match rate > 0.0 {
                    true => Ok(measure(rate)),
                    false => Err(anyhow::anyhow!("fio: exit status: 1: <no> | device")),
                });
            }
            run
        };
        let side = |side: Side| SideResult {
            side: side.to_string(),
            how: side.how(),
            skipped: (side == Side::Tgt).then(|| "tgtd is not installed".into()),
        };
        Applications {
            machine: Machine {
                processor: "made up".into(),
                cores: 2,
                memory_gib: 1.0,
                hypervisor: true,
                kernel: "6".into(),
                congestion_control: "cubic".into(),
                huge_pages: "always".into(),
            },
            command: "roadtrain-lab apps".into(),
            quick: true,
            rounds: 3,
            seconds: 1,
            minutes: 3.0,
            device_bytes: 1 << 30,
            sides: Side::ALL.into_iter().map(side).collect(),
            skipped: vec![Skipped { what: "rocksdb".into(), why: "no db_bench".into() }],
            runs: runs.iter().map(run).collect(),
        }
    }

    #[test]
    fn json_round_trip() {
        let row = Extent::Quick.rows()[0];
        let before = applications(&[(row, OURS, &[1e5, 0.0, 3e5])]);
        let json = serde_json::to_string(&before).expect("serialisable");
        let after: Applications = serde_json::from_str(&json).expect("the same");
        assert_eq!(serde_json::to_string(&after).expect("serialisable"), json);
        let run = after.run(row, OURS).expect("there");
        assert_eq!(run.median.expect("two rounds").operations_per_second, 2e5);
        assert!(run.rounds[1].is_none() && run.error.is_some());
    }

    #[test]
    fn cpu_time_is_of_all_cores() {
        let m = measure(1e5);
        assert_eq!((m.per_cpu_second(), m.cpu_us(m.loads.machine.cores)), (5e4, 20.0));
        assert_eq!(m.cpu_us(m.loads.rest_cores()), 5.0);
        assert_eq!(m.switches(m.loads.machine), 3.0);
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let row = Extent::Quick.rows()[0];
        let all = applications(&[
            (row, OURS, &[100.0, 200.0, 0.0, 990.0]),
            (row, Side::Qemu, &[50.0, 100.0, 1.0, 100.0]),
        ]);
        assert_eq!(all.ratio(row, Figure::PerCpuSecond, OURS, Side::Qemu), Some(2.0));
        assert_eq!(all.ratio(row, Figure::P99, OURS, Side::Qemu), Some(0.5));
        assert_eq!(all.ratio(row, Figure::P99, OURS, Side::Tgt), None);
    }

    #[test]
    fn what_always_fails_is_given_up() {
        let row = Extent::Quick.rows()[0];
        assert!(applications(&[(row, OURS, &[0.0, 0.0])]).runs[0].is_hopeless());
        assert!(!applications(&[(row, OURS, &[0.0, 1.0])]).runs[0].is_hopeless());
        assert!(!applications(&[(row, OURS, &[0.0])]).runs[0].is_hopeless());
    }
}

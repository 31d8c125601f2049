//! The rows of the tables, in groups that run one after the other on a side before the
//! next side has its turn.

use super::side::{ALTERNATIVES, AppSide, OURS};
use crate::judge::{Bound, Goal, Rule};
use crate::metric::Metric;
use crate::runs::{Compare, MeasuringExtent};
use std::fmt;

/// A kind of application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AppGroup {
    Fio,
    Rocksdb,
    Postgres,
    Scan,
}

/// File system on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filesystem {
    Ext4,
    Xfs,
}

/// An application and what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AppWorkload {
    /// 4 KiB random reads of the file, or of the loop device over it.
    Reads { depth: usize, device: bool },
    /// Random keys, with or without a concurrent writer.
    Rocksdb { writing: bool },
    /// pgbench: reads only, or the mix of TPC-B.
    Postgres { reading: bool },
    /// Files read in order by so many threads.
    Scan { threads: usize },
}

/// A table: an application on all sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AppRow {
    pub(super) workload: AppWorkload,
    /// None: no file system.
    pub(super) filesystem: Option<Filesystem>,
}

impl MeasuringExtent {
    /// Rounds; each runs everything once.
    pub(super) fn rounds(self) -> usize {
        match self {
            Self::Full => 5,
            Self::Quick => 3,
        }
    }

    /// Sides that are run by default.
    pub(super) fn sides(self) -> Vec<AppSide> {
        let quick =
            [AppSide::Local, AppSide::Roadtrain("i10"), OURS, AppSide::Nbdfuse, AppSide::Qemu];
        match self {
            Self::Full => AppSide::ALL.to_vec(),
            Self::Quick => quick.to_vec(),
        }
    }

    /// The rows in the order in which they are run.
    pub(super) fn rows(self) -> Vec<AppRow> {
        let mut rows = vec![AppRow::bare(32, false), AppRow::bare(1, false)];
        match self {
            Self::Full => {
                rows.push(AppRow::bare(32, true));
                rows.extend(Filesystem::ALL.iter().flat_map(|&on| {
                    let scans =
                        [1, 2, 4].map(|threads| AppRow::on(on, AppWorkload::Scan { threads }));
                    databases(on).into_iter().chain(scans)
                }));
            }
            Self::Quick => {
                rows.extend(databases(Filesystem::Ext4));
                rows.push(AppRow::on(Filesystem::Xfs, AppWorkload::Scan { threads: 2 }));
            }
        }
        rows
    }
}

fn databases(on: Filesystem) -> [AppRow; 4] {
    [
        AppWorkload::Rocksdb { writing: false },
        AppWorkload::Rocksdb { writing: true },
        AppWorkload::Postgres { reading: true },
        AppWorkload::Postgres { reading: false },
    ]
    .map(|workload| AppRow::on(on, workload))
}

impl AppRow {
    fn bare(depth: usize, device: bool) -> Self {
        Self { workload: AppWorkload::Reads { depth, device }, filesystem: None }
    }

    fn on(filesystem: Filesystem, workload: AppWorkload) -> Self {
        Self { workload, filesystem: Some(filesystem) }
    }

    /// Goals: ours against each alternative.
    pub(super) fn goals(self) -> Vec<Goal<(String, String)>> {
        let per_cpu = |ratio| (Metric::PerCpuSecond, Bound::AtLeast(ratio));
        let at_most = |metric| (metric, Bound::AtMost(1.0));
        let wanted = match self.workload {
            AppWorkload::Reads { depth: 32, device: false } => vec![per_cpu(1.5)],
            AppWorkload::Reads { depth: 1, device: false } => vec![at_most(Metric::LatencyP50)],
            AppWorkload::Reads { .. } | AppWorkload::Scan { .. } => vec![],
            AppWorkload::Rocksdb { .. } | AppWorkload::Postgres { .. } => {
                vec![per_cpu(1.0), at_most(Metric::LatencyP99)]
            }
        };
        let run = |side: AppSide| (self.to_string(), side.to_string());
        let goal = |(metric, bound): (Metric, Bound), to: AppSide| Goal {
            row: format!("{self}: {}", metric.title().trim_end_matches(" us")),
            column: to.to_string(),
            metric,
            compare: Compare::Ratio,
            of: run(OURS),
            among: vec![run(to)],
            bound: Some(bound),
            rule: Rule::IfThere,
        };
        wanted.into_iter().flat_map(|want| ALTERNATIVES.map(|to| goal(want, to))).collect()
    }
}

impl AppWorkload {
    pub(super) fn group(self) -> AppGroup {
        match self {
            Self::Reads { .. } => AppGroup::Fio,
            Self::Rocksdb { .. } => AppGroup::Rocksdb,
            Self::Postgres { .. } => AppGroup::Postgres,
            Self::Scan { .. } => AppGroup::Scan,
        }
    }

    /// The name of an operation.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Reads { .. } | Self::Rocksdb { writing: false } => "read",
            Self::Rocksdb { writing: true } => "read, the writer's beside them",
            Self::Postgres { .. } => "transaction",
            Self::Scan { .. } => "file",
        }
    }
}

impl AppGroup {
    /// As `--only` names it, and its data's folder.
    pub(super) fn id(self) -> &'static str {
        match self {
            Self::Fio => "fio",
            Self::Rocksdb => "rocksdb",
            Self::Postgres => "postgres",
            Self::Scan => "scan",
        }
    }
}

impl Filesystem {
    pub(super) const ALL: [Self; 2] = [Self::Ext4, Self::Xfs];

    /// As `mount -t` takes it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }

    /// Makes it at once, so that nothing is left for later, and without discarding.
    pub(super) fn make(self) -> &'static str {
        match self {
            Self::Ext4 => "mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0",
            Self::Xfs => "mkfs.xfs -q -f -K",
        }
    }
}

impl fmt::Display for AppRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.workload {
            AppWorkload::Reads { depth, device } => {
                write!(f, "fio, 4 KiB random reads, depth {depth}")?;
                f.write_str(if device { ", through the loop device" } else { "" })?;
            }
            AppWorkload::Rocksdb { writing: false } => f.write_str("RocksDB ReadRandom")?,
            AppWorkload::Rocksdb { writing: true } => f.write_str("RocksDB ReadWhileWriting")?,
            AppWorkload::Postgres { reading: true } => f.write_str("PostgreSQL, pgbench -S")?,
            AppWorkload::Postgres { reading: false } => f.write_str("PostgreSQL, pgbench TPC-B")?,
            AppWorkload::Scan { threads: 1 } => f.write_str("scan of files, 1 thread")?,
            AppWorkload::Scan { threads } => write!(f, "scan of files, {threads} threads")?,
        }
        self.filesystem.map_or(Ok(()), |on| write!(f, ", {}", on.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn rows_and_sides_have_distinct_names() {
        for extent in [MeasuringExtent::Full, MeasuringExtent::Quick] {
            let names: HashSet<String> = extent.rows().iter().map(AppRow::to_string).collect();
            assert_eq!(names.len(), extent.rows().len());
        }
        let ids: HashSet<&str> = AppSide::ALL.iter().map(|side| side.id()).collect();
        let names: HashSet<String> = AppSide::ALL.iter().map(AppSide::to_string).collect();
        assert_eq!((ids.len(), names.len()), (AppSide::ALL.len(), AppSide::ALL.len()));
    }

    #[test]
    fn quick_is_a_part_of_full() {
        let full = MeasuringExtent::Full.rows();
        assert!(MeasuringExtent::Quick.rows().iter().all(|row| full.contains(row)));
        let full = MeasuringExtent::Full.sides();
        assert!(MeasuringExtent::Quick.sides().iter().all(|side| full.contains(side)));
    }

    #[test]
    fn the_goals_are_those_of_the_applications() {
        let goals: Vec<_> =
            MeasuringExtent::Quick.rows().into_iter().flat_map(AppRow::goals).collect();
        assert_eq!(goals.len(), 3 * (1 + 1 + 4 * 2));
        let strict: Vec<_> =
            goals.iter().filter(|g| g.bound == Some(Bound::AtLeast(1.5))).collect();
        assert!(strict.iter().all(|goal| goal.metric == Metric::PerCpuSecond));
        assert!(strict.iter().all(|goal| goal.of.1 == OURS.to_string()));
        assert_eq!(strict.len(), ALTERNATIVES.len());
    }
}

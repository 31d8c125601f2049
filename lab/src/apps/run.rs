//! Measures applications: all sides are up all the time, and each runs all rows of a group when it is its turn.

use super::data;
use super::data::{AppData, MountedFilesystem};
use super::plan::{AppGroup, AppRow, AppWorkload, Filesystem};
use super::side::AppSide;
use super::stack::{self, Site, Stack};
use super::workload::{AppMeter, fio, rocksdb, scan};
use super::{SideResult, Skipped};
use crate::interrupt;
use crate::measure::Measure;
use crate::runs::{self, RunCase, SideRun};
use crate::tables::distinct;
use crate::undo::{Folder, LabMount};
use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// Size of each device.
pub(super) const DEVICE_BYTES: u64 = 1 << 30;

/// Rows and sides to run, and the way of running them.
#[derive(Clone, Debug)]
pub(super) struct AppsManner {
    pub(super) program: PathBuf,
    pub(super) sides: Vec<AppSide>,
    pub(super) rows: Vec<AppRow>,
    pub(super) rounds: usize,
    /// Measured time of each run.
    pub(super) seconds: u32,
}

/// The results.
pub(super) struct AppResults {
    pub(super) sides: Vec<SideResult>,
    pub(super) skipped: Vec<Skipped>,
    pub(super) runs: Vec<SideRun>,
}

/// A side that is up.
struct Up {
    side: AppSide,
    /// Unmounted before the device goes.
    mounted: Option<MountedFilesystem>,
    stack: Stack,
}

/// Everything that is there while it runs, in the order in which it goes.
struct AppBench<'a> {
    manner: &'a AppsManner,
    ups: Vec<Up>,
    data: AppData,
    runs: Vec<SideRun>,
    work: PathBuf,
}

/// Measures everything that this machine can run, and undoes all.
pub(super) fn measure(manner: &AppsManner) -> anyhow::Result<AppResults> {
    let (rows, skipped) = possible(&manner.rows);
    let name = format!("roadtrain-apps-{}", std::process::id());
    let folder = Folder::new(std::env::temp_dir().join(name))?;
    let work = folder.path().to_owned();
    let store = work.join("store");
    fs::create_dir(&store)?;
    let _store = LabMount::new("-t tmpfs -o size=75%,mode=1777 roadtrain-apps", &store)?;
    eprintln!("making the data");
    let data = AppData::make(&store, &work, &groups(&rows))?;
    let site = Site { program: &manner.program, work: &work, store: &store, bytes: DEVICE_BYTES };
    let (ups, sides) = bring_up(&manner.sides, &site)?;
    let mut bench = AppBench { manner, ups, data, runs: Vec::new(), work: work.clone() };
    for filesystem in [None, Some(Filesystem::Ext4), Some(Filesystem::Xfs)] {
        let rows: Vec<AppRow> =
            rows.iter().copied().filter(|row| row.filesystem == filesystem).collect();
        bench.phase(filesystem, &rows)?;
    }
    let runs = std::mem::take(&mut bench.runs);
    Ok(AppResults { sides, skipped, runs })
}

/// Rows that can be run, and why others cannot.
fn possible(rows: &[AppRow]) -> (Vec<AppRow>, Vec<Skipped>) {
    let mut skipped: Vec<Skipped> = Vec::new();
    let mut possible = rows.to_vec();
    possible.retain(|&row| match data::unavailable(row) {
        None => true,
        Some((what, why)) => {
            if skipped.iter().all(|known| known.what != what) {
                eprintln!("SKIPPED {what}: {why}");
                skipped.push(Skipped { what: what.to_owned(), why });
            }
            false
        }
    });
    (possible, skipped)
}

/// Groups of rows, each once, in order.
fn groups(rows: &[AppRow]) -> Vec<AppGroup> {
    distinct(rows.iter().map(|row| row.workload.group()))
}

fn bring_up(sides: &[AppSide], site: &Site) -> anyhow::Result<(Vec<Up>, Vec<SideResult>)> {
    let (mut ups, mut results) = (Vec::new(), Vec::new());
    for &side in sides {
        let outcome = match side.unavailable() {
            Some(why) => Err(anyhow::anyhow!(why)),
            None => Stack::up(side, site),
        };
        interrupt::check()?;
        let skipped = match outcome {
            Ok(stack) => {
                ups.push(Up { side, mounted: None, stack });
                None
            }
            Err(e) => {
                eprintln!("SKIPPED {side}: {e:#}");
                Some(format!("{e:#}"))
            }
        };
        results.push(SideResult { side: side.to_string(), how: side.how(), skipped });
    }
    Ok((ups, results))
}

impl AppBench<'_> {
    /// All rows on one kind of file system.
    fn phase(&mut self, filesystem: Option<Filesystem>, rows: &[AppRow]) -> anyhow::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let groups = groups(rows);
        let fits = |up: &Up| filesystem.is_none() || up.side.keeps_concurrent_writes();
        let there: Vec<usize> =
            (0..self.ups.len()).filter(|&index| fits(&self.ups[index])).collect();
        let mut errors: Vec<Option<String>> = vec![None; self.ups.len()];
        for &index in &there {
            let up = &mut self.ups[index];
            let what = filesystem.map_or("filling", Filesystem::name);
            eprintln!("{what}: {}", up.side);
            let outcome = up.prepare(filesystem, &groups, &self.data, &self.work);
            interrupt::check()?;
            errors[index] = outcome.err().map(|e| format!("{e:#}"));
        }
        let of_group = |group: AppGroup| -> Vec<AppRow> {
            rows.iter().copied().filter(|row| row.workload.group() == group).collect()
        };
        let turn = |index: usize, group: AppGroup| {
            let names = |row: AppRow| (row.to_string(), self.ups[index].side.to_string());
            let runs =
                of_group(group).into_iter().map(|row| SideRun::new(&names(row), String::new()));
            runs::SideTurn { side: (index, group), runs: runs.collect() }
        };
        let case = |&group: &AppGroup| RunCase {
            title: group.id().to_owned(),
            rounds: self.manner.rounds,
            turns: there.iter().map(|&index| turn(index, group)).collect(),
        };
        let mut cases: Vec<_> = groups.iter().map(case).collect();
        runs::measure(&mut cases, |&(index, group), round| {
            let rows = of_group(group);
            let up = &mut self.ups[index];
            match &errors[index] {
                Some(error) => rows.iter().map(|_| Err(anyhow::anyhow!(error.clone()))).collect(),
                None => up.run(&rows, &self.data, &up.meter(self.manner.seconds), round),
            }
        });
        interrupt::check()?;
        self.runs.extend(runs::finish(cases));
        for up in &mut self.ups {
            up.mounted = None;
        }
        Ok(())
    }
}

impl Up {
    /// Brings the data onto the device.
    fn prepare(
        &mut self,
        filesystem: Option<Filesystem>,
        groups: &[AppGroup],
        data: &AppData,
        work: &Path,
    ) -> anyhow::Result<()> {
        let Some(filesystem) = filesystem else {
            return stack::fill(&self.stack.file, &data.pattern, fio::BYTES);
        };
        let at = work.join(self.side.id()).join("mounted");
        let mut mounted = MountedFilesystem::make(filesystem, &self.stack.device, at)?;
        for &group in groups {
            data.copy(group, mounted.path())?;
        }
        mounted.remount()?;
        self.mounted = Some(mounted);
        Ok(())
    }

    fn meter(&self, seconds: u32) -> AppMeter {
        AppMeter { seconds, parties: self.stack.parties.clone() }
    }

    /// Runs rows of one group.
    fn run(
        &mut self,
        rows: &[AppRow],
        data: &AppData,
        meter: &AppMeter,
        round: usize,
    ) -> Vec<anyhow::Result<Measure>> {
        match rows.first().map(|row| row.workload.group()) {
            Some(AppGroup::Postgres) => self.run_postgres(rows, data, meter).unwrap_or_else(|e| {
                let error = format!("{e:#}");
                rows.iter().map(|_| Err(anyhow::anyhow!(error.clone()))).collect()
            }),
            _ => rows.iter().map(|row| self.run_row(row.workload, meter, round)).collect(),
        }
    }

    fn run_row(
        &self,
        workload: AppWorkload,
        meter: &AppMeter,
        round: usize,
    ) -> anyhow::Result<Measure> {
        let folder = || {
            let mounted = self.mounted.as_ref().context("nothing is mounted")?;
            anyhow::Ok(mounted.folder(workload.group()))
        };
        match workload {
            AppWorkload::Reads { depth, device } => {
                let file = if device { &self.stack.device } else { &self.stack.file };
                fio::run(file, depth, meter)
            }
            AppWorkload::Rocksdb { writing } => rocksdb::run(&folder()?, writing, meter, round + 1),
            AppWorkload::Scan { threads } => scan::run(&folder()?, threads, meter),
            AppWorkload::Postgres { .. } => bail!("needs a server"),
        }
    }

    /// A server for all rows, with nothing in the page cache at its start.
    fn run_postgres(
        &mut self,
        rows: &[AppRow],
        data: &AppData,
        meter: &AppMeter,
    ) -> anyhow::Result<Vec<anyhow::Result<Measure>>> {
        let mounted = self.mounted.as_mut().context("nothing is mounted")?;
        mounted.remount()?;
        let installation = data.postgres.as_ref().context("no PostgreSQL")?;
        let server = installation.start(&mounted.folder(AppGroup::Postgres))?;
        let run = |row: &AppRow| match row.workload {
            AppWorkload::Postgres { reading } => server.run(reading, meter),
            _ => bail!("needs no server"),
        };
        Ok(rows.iter().map(run).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::MeasuringExtent;

    #[test]
    fn groups_are_named_once_and_in_order() {
        let all = groups(&MeasuringExtent::Full.rows());
        assert_eq!(all, [AppGroup::Fio, AppGroup::Rocksdb, AppGroup::Postgres, AppGroup::Scan]);
        assert!(groups(&[]).is_empty());
    }
}

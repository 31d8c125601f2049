//! Data of the applications: made once, in memory, and copied to every side, so that all have the same.

use super::plan::{AppGroup, AppRow, Filesystem};
use super::workload::{fio, postgres, rocksdb, scan};
use crate::command::{self, run};
use crate::undo::LabMount;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// The originals.
pub(super) struct AppData {
    folder: PathBuf,
    /// As many random bytes as fio reads.
    pub(super) pattern: PathBuf,
    pub(super) postgres: Option<postgres::Installation>,
}

/// Why a row cannot be run on this machine, and what it is that cannot.
pub(super) fn unavailable(row: AppRow) -> Option<(&'static str, String)> {
    let missing = |program: &str| {
        command::find(program).is_none().then(|| format!("{program} is not installed"))
    };
    let group = row.workload.group();
    let why = match group {
        AppGroup::Fio => missing("fio"),
        AppGroup::Rocksdb => missing("db_bench"),
        AppGroup::Postgres => postgres::unavailable(),
        AppGroup::Scan => None,
    };
    let make = row.filesystem.and_then(|on| Some((on, on.make().split(' ').next()?)));
    let made = make.and_then(|(on, program)| Some((on.name(), missing(program)?)));
    why.map(|why| (group.id(), why)).or(made)
}

impl AppData {
    /// Creates the data that `groups` need. `work` is for PostgreSQL's other files.
    pub(super) fn make(store: &Path, work: &Path, groups: &[AppGroup]) -> anyhow::Result<Self> {
        let (folder, pattern) = (store.join("data"), store.join("pattern"));
        fs::create_dir(&folder)?;
        let mib = fio::BYTES >> 20;
        let line =
            format!("dd if=/dev/urandom bs=1M count={mib} status=none of={}", pattern.display());
        run(&mut command::words(&line), LIMIT)?;
        let mut data = Self { folder, pattern, postgres: None };
        for &group in groups {
            let original = data.original(group);
            match group {
                AppGroup::Fio => {}
                AppGroup::Rocksdb => rocksdb::create(&original)?,
                AppGroup::Postgres => {
                    let installation = postgres::Installation::find(work.join("postgres"))?;
                    installation.create(&original)?;
                    data.postgres = Some(installation);
                }
                AppGroup::Scan => scan::create(&original, &data.pattern)?,
            }
        }
        Ok(data)
    }

    fn original(&self, group: AppGroup) -> PathBuf {
        self.folder.join(group.id())
    }

    /// Copies it onto a device's file system.
    pub(super) fn copy(&self, group: AppGroup, to: &Path) -> anyhow::Result<()> {
        let mut command = Command::new("cp");
        run(command.arg("-a").arg(self.original(group)).arg(to), LIMIT).map(drop)
    }
}

/// A file system on a device.
pub(super) struct MountedFilesystem {
    device: PathBuf,
    at: PathBuf,
    on: Filesystem,
    mount: Option<LabMount>,
}

impl MountedFilesystem {
    /// Makes and mounts it.
    pub(super) fn make(on: Filesystem, device: &Path, at: PathBuf) -> anyhow::Result<Self> {
        run(command::words(on.make()).arg(device), LIMIT)?;
        fs::create_dir_all(&at)?;
        let mut mounted = Self { device: device.to_owned(), at, on, mount: None };
        mounted.remount()?;
        Ok(mounted)
    }

    /// Afterwards nothing of it is in the page cache.
    pub(super) fn remount(&mut self) -> anyhow::Result<()> {
        self.mount = None;
        let line = format!("-t {} -o noatime {}", self.on.name(), self.device.display());
        self.mount = Some(LabMount::new(&line, &self.at)?);
        Ok(())
    }

    /// Where a group's data is.
    pub(super) fn folder(&self, group: AppGroup) -> PathBuf {
        self.at.join(group.id())
    }

    pub(super) fn path(&self) -> &Path {
        &self.at
    }
}

//! Data of the applications: made once, in memory, and copied to every side, so that all have the same.

use super::plan::{Filesystem, Group, Row};
use super::workload::{fio, postgres, rocksdb, scan};
use crate::command::{self, run};
use crate::undo::Mount;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// The originals.
pub(super) struct Data {
    folder: PathBuf,
    /// As many random bytes as fio reads.
    pub(super) pattern: PathBuf,
    pub(super) postgres: Option<postgres::Installation>,
}

/// Why a row cannot be run on this machine, and what it is that cannot.
pub(super) fn unavailable(row: Row) -> Option<(&'static str, String)> {
    let missing = |program: &str| {
        command::find(program).is_none().then(|| format!("{program} is not installed"))
    };
    let group = row.workload.group();
    let why = match group {
        Group::Fio => missing("fio"),
        Group::Rocksdb => missing("db_bench"),
        Group::Postgres => postgres::unavailable(),
        Group::Scan => None,
    };
    let make = row.filesystem.and_then(|on| Some((on, on.make().split(' ').next()?)));
    let made = make.and_then(|(on, program)| Some((on.name(), missing(program)?)));
    why.map(|why| (group.id(), why)).or(made)
}

impl Data {
    /// Makes what `groups` need. `work` is for what PostgreSQL writes beside its data.
    pub(super) fn make(store: &Path, work: &Path, groups: &[Group]) -> anyhow::Result<Self> {
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
                Group::Fio => {}
                Group::Rocksdb => rocksdb::create(&original)?,
                Group::Postgres => {
                    let installation = postgres::Installation::find(work.join("postgres"))?;
                    installation.create(&original)?;
                    data.postgres = Some(installation);
                }
                Group::Scan => scan::create(&original, &data.pattern)?,
            }
        }
        Ok(data)
    }

    fn original(&self, group: Group) -> PathBuf {
        self.folder.join(group.id())
    }

    /// Copies it onto a device's file system.
    pub(super) fn copy(&self, group: Group, to: &Path) -> anyhow::Result<()> {
        let mut command = Command::new("cp");
        run(command.arg("-a").arg(self.original(group)).arg(to), LIMIT).map(drop)
    }
}

/// A file system on a device.
pub(super) struct Mounted {
    device: PathBuf,
    at: PathBuf,
    on: Filesystem,
    mount: Option<Mount>,
}

impl Mounted {
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
        self.mount = Some(Mount::new(&line, &self.at)?);
        Ok(())
    }

    /// Where a group's data is.
    pub(super) fn folder(&self, group: Group) -> PathBuf {
        self.at.join(group.id())
    }

    pub(super) fn path(&self) -> &Path {
        &self.at
    }
}

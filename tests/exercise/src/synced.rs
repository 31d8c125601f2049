//! Checks that synced files survive a crash.
//!
//! `synced FOLDER --record FILE` writes file after file and syncs each and its folder. Only then does it write the
//! name into the record, which is on another file system. It ends when it is stopped or the device fails. `--check`
//! compares afterwards.

use crate::model::{content, same};
use anyhow::{Context, Result, bail};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// Write files, sync them and record it, until stopped; or check that all of the record are there
#[derive(clap::Args)]
pub(crate) struct SyncedArgs {
    /// where the files are
    folder: PathBuf,
    /// where their names are recorded: on a file system that survives
    #[arg(long)]
    record: PathBuf,
    /// check instead of writing
    #[arg(long)]
    check: bool,
    /// stop after so many files
    #[arg(long, default_value_t = u64::MAX)]
    files: u64,
    /// the largest file, in bytes
    #[arg(long, default_value_t = 256 << 10)]
    size: usize,
}

pub(crate) fn run(args: &SyncedArgs) -> Result<()> {
    if args.check {
        let found = check(args)?;
        println!("{found} synced files are intact");
        return Ok(());
    }
    let mut record = OpenOptions::new().create(true).append(true).open(&args.record)?;
    let first = recorded(&args.record)?.len() as u64;
    for number in first..args.files.saturating_add(first) {
        let length = fastrand::Rng::with_seed(number).usize(1..=args.size);
        if let Err(error) = write_synced(&args.folder, number, length) {
            println!("stopped at file {number}: {error}");
            return Ok(());
        }
        writeln!(record, "{number} {length}")?;
    }
    Ok(())
}

/// Writes a file so that it appears whole under its name on stable storage, or not at all.
fn write_synced(folder: &Path, number: u64, length: usize) -> std::io::Result<()> {
    let unfinished = folder.join(format!("{number}.unfinished"));
    let mut file = File::create(&unfinished)?;
    file.write_all(&content(number, length))?;
    file.sync_all()?;
    fs::rename(&unfinished, folder.join(number.to_string()))?;
    File::open(folder)?.sync_all()
}

fn check(args: &SyncedArgs) -> Result<usize> {
    let files = recorded(&args.record)?;
    for (number, length) in &files {
        let path = args.folder.join(number.to_string());
        let found = fs::read(&path).with_context(|| format!("{} was synced", path.display()))?;
        same(0, &content(*number, *length), &found).with_context(|| path.display().to_string())?;
    }
    if files.is_empty() {
        bail!("{} names no file: nothing is shown", args.record.display());
    }
    Ok(files.len())
}

/// Returns the numbers and lengths in the record; its last line may be incomplete.
fn recorded(record: &Path) -> Result<Vec<(u64, usize)>> {
    let mut files = Vec::new();
    for line in BufReader::new(File::open(record)?).lines() {
        let line = line?;
        if let Some((number, length)) = line.split_once(' ') {
            files.push((number.parse()?, length.parse()?));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(folder: &Path, check: bool) -> SyncedArgs {
        let (files, record) = (folder.join("files"), folder.join("record"));
        fs::create_dir_all(&files).unwrap();
        SyncedArgs { folder: files, record, check, files: 5, size: 10_000 }
    }

    #[test]
    fn what_was_synced_is_found() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            run(&args(folder.path(), false)).unwrap();
        }
        assert_eq!(check(&args(folder.path(), true)).unwrap(), 10);
    }

    #[test]
    fn a_lost_or_changed_file_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        run(&args(folder.path(), false)).unwrap();
        let three = folder.path().join("files/3");
        let mut bytes = fs::read(&three).unwrap();
        bytes[17] ^= 1;
        fs::write(&three, bytes).unwrap();
        assert!(check(&args(folder.path(), true)).is_err());
        fs::remove_file(&three).unwrap();
        assert!(check(&args(folder.path(), true)).is_err());
    }
}

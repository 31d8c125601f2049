//! One file or block device: random operations, each checked against a model.

use crate::model::same;
use anyhow::{Context, Result, anyhow, bail};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(crate) mod sys;

/// Alignment of buffers: direct I/O requires it, and other I/O may be split at memory pages.
const MEMORY_ALIGNMENT: usize = 4096;

/// Number of last operations that an error lists.
const LISTED_MAX: usize = 24;

/// Read, write, punch, zero, map, truncate and sync one file or block device at random
#[derive(clap::Args)]
pub(crate) struct OpsArgs {
    /// a regular file (made if it is not there) or a block device; it is overwritten
    file: PathBuf,
    /// bytes to use of it, from its beginning
    #[arg(long, default_value_t = 2 << 20)]
    size: u64,
    /// operations of each job
    #[arg(long, default_value_t = 5000)]
    ops: u32,
    /// the largest operation, in bytes
    #[arg(long, default_value_t = 128 << 10)]
    largest: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// offsets and lengths are multiples of it
    #[arg(long, default_value_t = 1)]
    align: u64,
    /// past the page cache, without mappings
    #[arg(long)]
    direct: bool,
    /// the size of the file cannot be changed (block devices are known)
    #[arg(long)]
    fixed: bool,
    /// threads; needs a fixed size
    #[arg(long, default_value_t = 1)]
    jobs: u64,
    /// threads take turns every so many bytes, so that they share blocks [default: one part for each]
    #[arg(long)]
    stripe: Option<u64>,
}

#[derive(Clone, Debug)]
enum FileOp {
    Read(Range<u64>),
    Write(Range<u64>),
    MapRead(Range<u64>),
    MapWrite(Range<u64>),
    Punch(Range<u64>),
    Zero(Range<u64>),
    Truncate(u64),
    Sync,
    Forget,
}

pub(crate) fn run(args: &OpsArgs) -> Result<()> {
    let device = args.file.metadata().is_ok_and(|m| m.file_type().is_block_device());
    let fixed = args.fixed || device;
    if args.align == 0 || args.jobs == 0 || args.stripe == Some(0) || args.largest < args.align {
        bail!("--align, --jobs, --stripe and --largest must be more than nothing");
    }
    if args.jobs > 1 && !fixed {
        bail!("several jobs need a file of fixed size (--fixed)");
    }
    prepare(&args.file, if fixed { args.size } else { 0 }, fixed)?;
    let skipped = std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..args.jobs)
            .map(|job| scope.spawn(move || OpsJob::new(args, job, fixed)?.run()))
            .collect();
        let mut skipped = Vec::new();
        for job in jobs {
            skipped.extend(job.join().map_err(|_| anyhow!("a job panicked"))??);
        }
        anyhow::Ok(skipped)
    })?;
    println!("{} operations as expected{}", u64::from(args.ops) * args.jobs, also(&skipped));
    Ok(())
}

fn also(skipped: &[&'static str]) -> String {
    let mut names = skipped.to_vec();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() { String::new() } else { format!("; not supported: {}", names.join(", ")) }
}

/// Fills the file with zeroes, like the model.
fn prepare(path: &Path, size: u64, fixed: bool) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true);
    if !fixed {
        options.create(true).truncate(true);
    }
    let file = options.open(path).with_context(|| path.display().to_string())?;
    let mut zeroes = sys::AlignedMemory::new(1 << 20, MEMORY_ALIGNMENT);
    let zeroes = zeroes.bytes();
    let mut at = 0;
    while at < size {
        let length = (size - at).min(zeroes.len() as u64);
        file.write_all_at(&zeroes[..length as usize], at)?;
        at += length;
    }
    Ok(file.sync_all()?)
}

struct OpsJob<'a> {
    args: &'a OpsArgs,
    number: u64,
    fixed: bool,
    file: File,
    rng: fastrand::Rng,
    /// Expected contents of the file; only this job's stripes count.
    model: Vec<u8>,
    buffer: sys::AlignedMemory,
    done: Vec<FileOp>,
    skipped: Vec<&'static str>,
}

impl<'a> OpsJob<'a> {
    fn new(args: &'a OpsArgs, number: u64, fixed: bool) -> Result<OpsJob<'a>> {
        let flags = if args.direct { libc::O_DIRECT } else { 0 };
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(flags).open(&args.file)?;
        Ok(OpsJob {
            args,
            number,
            fixed,
            file,
            rng: fastrand::Rng::with_seed(args.seed.wrapping_mul(1000).wrapping_add(number)),
            model: if fixed { vec![0; args.size as usize] } else { Vec::new() },
            buffer: sys::AlignedMemory::new(args.largest as usize, MEMORY_ALIGNMENT),
            done: Vec::new(),
            skipped: Vec::new(),
        })
    }

    fn run(mut self) -> Result<Vec<&'static str>> {
        for number in 0..self.args.ops {
            let op = self.choose();
            self.done.push(op.clone());
            if let Err(error) = self.apply(&op) {
                let last = &self.done[self.done.len().saturating_sub(LISTED_MAX)..];
                let listed: Vec<String> = last.iter().map(|op| format!("  {op:?}")).collect();
                return Err(error.context(format!(
                    "job {}, operation {number}, the last ones were\n{}",
                    self.number,
                    listed.join("\n")
                )));
            }
        }
        self.file.sync_all()?;
        Ok(self.skipped)
    }

    fn choose(&mut self) -> FileOp {
        let maps = !self.args.direct;
        match self.rng.u32(0..100) {
            0..30 => FileOp::Read(self.range(false)),
            30..65 => FileOp::Write(self.range(true)),
            65..72 if maps => FileOp::MapRead(self.range(false)),
            72..80 if maps => FileOp::MapWrite(self.range(false)),
            80..86 => FileOp::Punch(self.range(false)),
            86..92 => FileOp::Zero(self.range(false)),
            92..96 if !self.fixed => {
                let units = self.args.size / self.args.align;
                FileOp::Truncate(self.rng.u64(0..=units) * self.args.align)
            }
            96..98 => FileOp::Forget,
            98.. => FileOp::Sync,
            _ => FileOp::Write(self.range(true)),
        }
    }

    /// Returns a range in one of this job's stripes; with `beyond`, also past the end of a file that can grow.
    fn range(&mut self, beyond: bool) -> Range<u64> {
        let align = self.args.align;
        let end = if self.fixed || beyond { self.args.size } else { self.model.len() as u64 };
        let stripe = self.stripe(end);
        let units = (stripe.end - stripe.start) / align;
        if units == 0 {
            return stripe.start..stripe.start;
        }
        let from = self.rng.u64(0..units);
        let length = self.rng.u64(1..=(units - from).min(self.args.largest / align));
        let start = stripe.start + from * align;
        start..start + length * align
    }

    fn stripe(&mut self, end: u64) -> Range<u64> {
        let jobs = self.args.jobs;
        let width = self.args.stripe.unwrap_or(self.args.size / jobs).max(1);
        let rounds = (end / (width * jobs)).max(1);
        let start = (self.rng.u64(0..rounds) * jobs + self.number) * width;
        start.min(end)..(start + width).min(end)
    }

    fn apply(&mut self, op: &FileOp) -> Result<()> {
        match op {
            FileOp::Read(range) => self.read(range),
            FileOp::Write(range) => self.write(range),
            FileOp::MapRead(range) => self.map(range, false),
            FileOp::MapWrite(range) => self.map(range, true),
            FileOp::Punch(range) => self.clear(range, libc::FALLOC_FL_PUNCH_HOLE, "punching holes"),
            FileOp::Zero(range) => self.clear(range, libc::FALLOC_FL_ZERO_RANGE, "zeroing ranges"),
            FileOp::Truncate(length) => {
                self.file.set_len(*length)?;
                self.model.resize(*length as usize, 0);
                Ok(())
            }
            FileOp::Sync => Ok(self.file.sync_data()?),
            FileOp::Forget => Ok(sys::forget(&self.file)?),
        }
    }

    fn read(&mut self, range: &Range<u64>) -> Result<()> {
        let buffer = &mut self.buffer.bytes()[..(range.end - range.start) as usize];
        self.file.read_exact_at(buffer, range.start)?;
        same(range.start, &self.model[within(range)], buffer)
    }

    fn write(&mut self, range: &Range<u64>) -> Result<()> {
        let buffer = &mut self.buffer.bytes()[..(range.end - range.start) as usize];
        self.rng.fill(buffer);
        self.file.write_all_at(buffer, range.start)?;
        if self.model.len() < range.end as usize {
            self.model.resize(range.end as usize, 0);
        }
        self.model[within(range)].copy_from_slice(buffer);
        Ok(())
    }

    fn map(&mut self, range: &Range<u64>, write: bool) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let mut map = match sys::FileMapping::new(self.file.as_raw_fd(), range.clone()) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
                return self.skip("mappings");
            }
            map => map?,
        };
        same(range.start, &self.model[within(range)], map.bytes())?;
        if write {
            self.rng.fill(map.bytes());
            self.model[within(range)].copy_from_slice(map.bytes());
            map.sync()?;
        }
        Ok(())
    }

    fn clear(&mut self, range: &Range<u64>, mode: i32, name: &'static str) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        match sys::fallocate(&self.file, mode | libc::FALLOC_FL_KEEP_SIZE, range) {
            Ok(()) => {
                self.model[within(range)].fill(0);
                Ok(())
            }
            Err(error) if is_unsupported(&error) => self.skip(name),
            // A block device requires whole blocks.
            Err(error) if self.fixed && error.raw_os_error() == Some(libc::EINVAL) => {
                self.skip("clearing parts of blocks")
            }
            Err(error) => Err(error.into()),
        }
    }

    fn skip(&mut self, name: &'static str) -> Result<()> {
        if !self.skipped.contains(&name) {
            self.skipped.push(name);
        }
        Ok(())
    }
}

fn within(range: &Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(file: PathBuf) -> OpsArgs {
        OpsArgs {
            file,
            size: 256 << 10,
            ops: 800,
            largest: 20_000,
            seed: 5,
            align: 1,
            direct: false,
            fixed: false,
            jobs: 1,
            stripe: None,
        }
    }

    #[test]
    fn a_good_file_system_is_as_expected() {
        let folder = tempfile::tempdir().unwrap();
        run(&args(folder.path().join("file"))).unwrap();
    }

    #[test]
    fn jobs_that_share_blocks_do_not_meet() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, vec![1; 256 << 10]).unwrap();
        run(&OpsArgs { fixed: true, jobs: 3, stripe: Some(700), ..args(file) }).unwrap();
    }

    #[test]
    fn a_lost_write_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let args = OpsArgs { fixed: true, ..args(folder.path().join("file")) };
        std::fs::write(&args.file, vec![0; args.size as usize]).unwrap();
        let mut job = OpsJob::new(&args, 0, true).unwrap();
        job.write(&(100..300)).unwrap();
        job.file.write_all_at(&[job.model[150] ^ 1], 150).unwrap();
        assert!(job.read(&(0..100)).is_ok());
        let error = job.read(&(100..300)).unwrap_err().to_string();
        assert!(error.starts_with("byte 150 "), "{error}");
    }
}

//! Writers of neighbouring 512-byte blocks: none is torn, and none is lost with a neighbour.
//!
//! `neighbours FILE --record FILE` lets each writer write blocks of its own, which lie between those of the others. Each
//! block has its number, the number of its write, and bytes that follow from both. The record, on a file system that
//! survives, has for each block the last write that was begun and the last one that was acknowledged. `--check` compares
//! any copy of the blocks with it: also the device of a target that was killed, while the writers wait for the next one.

use crate::ops::sys::AlignedMemory;
use anyhow::{Context, Result, anyhow, bail};
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const BLOCK: u64 = 512;
/// Bytes of a block's entry in the record: write begun, write acknowledged.
const ENTRY: u64 = 16;
/// Blocks that a writer has in a row, in the second half: they begin and end inside of blocks of 4,096 bytes.
const ROW: u64 = 37;
/// Most blocks of one write.
const BLOCKS_MAX: u64 = 20;
/// Bytes that the check reads at once.
const CHUNK: usize = 1 << 20;

/// Write neighbouring 512-byte blocks from several threads, or check that none is torn or lost
#[derive(clap::Args)]
pub(crate) struct NeighboursArgs {
    /// a file or block device of zeroes
    file: PathBuf,
    /// where writes are recorded: on a file system that survives
    #[arg(long)]
    record: PathBuf,
    /// check instead of writing
    #[arg(long)]
    check: bool,
    /// bytes to use, from the beginning; a multiple of 1 MiB
    #[arg(long, default_value_t = 2 << 20)]
    size: u64,
    #[arg(long, default_value_t = 8)]
    writers: u64,
    /// operations of each writer
    #[arg(long, default_value_t = 500)]
    ops: u32,
    /// go on until this file is there, also after these operations
    #[arg(long)]
    until: Option<PathBuf>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(args: &NeighboursArgs) -> Result<()> {
    if args.writers == 0 || args.size == 0 || !args.size.is_multiple_of(CHUNK as u64) {
        bail!("--writers must be more than nothing, and --size a multiple of 1 MiB");
    }
    if !args.check {
        let record = File::create(&args.record)?;
        record.set_len(args.size / BLOCK * ENTRY)?;
        let operations = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..args.writers)
                .map(|number| scope.spawn(move || NeighbourWriter::new(args, number)?.run()))
                .collect();
            writers.into_iter().try_fold(0, |sum, writer| {
                let operations = writer.join().map_err(|_| anyhow!("a writer panicked"))?;
                operations.map(|operations| sum + operations)
            })
        })?;
        check(&args.file, &args.record, args.size)?;
        println!("{operations} operations as expected");
        return Ok(());
    }
    let written = check(&args.file, &args.record, args.size)?;
    println!("{written} blocks are whole");
    Ok(())
}

/// Opens for I/O past the page cache.
fn open_direct(path: &Path, write: bool) -> Result<File> {
    let opened = OpenOptions::new().read(true).write(write).custom_flags(libc::O_DIRECT).open(path);
    opened.with_context(|| path.display().to_string())
}

struct NeighbourWriter<'a> {
    args: &'a NeighboursArgs,
    number: u64,
    file: File,
    record: File,
    rng: fastrand::Rng,
    /// Number of the last write of each block; only those of this writer count.
    writes: Vec<u64>,
    buffer: AlignedMemory,
}

impl<'a> NeighbourWriter<'a> {
    fn new(args: &'a NeighboursArgs, number: u64) -> Result<NeighbourWriter<'a>> {
        Ok(NeighbourWriter {
            args,
            number,
            file: open_direct(&args.file, true)?,
            record: OpenOptions::new().write(true).open(&args.record)?,
            rng: fastrand::Rng::with_seed(args.seed.wrapping_mul(1000).wrapping_add(number)),
            writes: vec![0; (args.size / BLOCK) as usize],
            buffer: AlignedMemory::new((BLOCKS_MAX * BLOCK) as usize, 4096),
        })
    }

    /// Returns the number of operations.
    fn run(mut self) -> Result<u64> {
        let is_over = |operation| {
            let until = self.args.until.as_ref();
            operation >= u64::from(self.args.ops) && until.is_none_or(|until| until.exists())
        };
        let mut operation = 0;
        while !is_over(operation) {
            let blocks = self.choose();
            let done = match self.rng.u32(0..5) {
                0 => self.read(blocks.clone()),
                _ => self.write(blocks.clone()),
            };
            done.with_context(|| {
                format!("writer {}, operation {operation}, blocks {blocks:?}", self.number)
            })?;
            operation += 1;
        }
        Ok(operation)
    }

    /// Returns blocks of this writer: every so many single ones in the first half, rows in the second.
    fn choose(&mut self) -> Range<u64> {
        let (half, writers) = (self.args.size / BLOCK / 2, self.args.writers);
        if self.rng.bool() {
            let block = self.rng.u64(0..half / writers) * writers + self.number;
            return block..block + 1;
        }
        let row = self.rng.u64(0..half / (ROW * writers)) * writers + self.number;
        let first = half + row * ROW + self.rng.u64(0..ROW);
        let end = half + (row + 1) * ROW;
        first..first + self.rng.u64(1..=(end - first).min(BLOCKS_MAX))
    }

    fn write(&mut self, blocks: Range<u64>) -> Result<()> {
        let buffer = &mut self.buffer.bytes()[..((blocks.end - blocks.start) * BLOCK) as usize];
        for (block, place) in blocks.clone().zip(buffer.chunks_mut(BLOCK as usize)) {
            let write = &mut self.writes[block as usize];
            *write += 1;
            place.copy_from_slice(&content(block, *write));
        }
        self.note(blocks.clone(), 0)?;
        self.file.write_all_at(buffer_of(&mut self.buffer, &blocks), blocks.start * BLOCK)?;
        self.note(blocks, 8)
    }

    /// Records the writes of these blocks, at `at` of each entry.
    fn note(&self, blocks: Range<u64>, at: u64) -> Result<()> {
        for block in blocks {
            let write = self.writes[block as usize].to_le_bytes();
            self.record.write_all_at(&write, block * ENTRY + at)?;
        }
        Ok(())
    }

    fn read(&mut self, blocks: Range<u64>) -> Result<()> {
        let buffer = buffer_of(&mut self.buffer, &blocks);
        self.file.read_exact_at(buffer, blocks.start * BLOCK)?;
        for (block, found) in blocks.zip(buffer.chunks(BLOCK as usize)) {
            let expected = self.writes[block as usize];
            match write_of(block, found) {
                Some(write) if write == expected => {}
                found => bail!("block {block} has write {found:?}, not {expected}"),
            }
        }
        Ok(())
    }
}

fn buffer_of<'a>(buffer: &'a mut AlignedMemory, blocks: &Range<u64>) -> &'a mut [u8] {
    &mut buffer.bytes()[..((blocks.end - blocks.start) * BLOCK) as usize]
}

/// Returns the bytes of a block after a write; before the first one it is zeroes.
fn content(block: u64, write: u64) -> [u8; BLOCK as usize] {
    let mut bytes = [0; BLOCK as usize];
    if write > 0 {
        let mixed = (block << 32 ^ write).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for (index, word) in (0..).zip(bytes.as_chunks_mut::<8>().0) {
            let value = if index == 0 { write } else { mixed.rotate_left(index) ^ block };
            *word = value.to_le_bytes();
        }
    }
    bytes
}

/// Returns the number of the write whose content a block has; `None` for a torn one.
fn write_of(block: u64, bytes: &[u8]) -> Option<u64> {
    let write = u64::from_le_bytes(*bytes.first_chunk()?);
    (bytes == content(block, write)).then_some(write)
}

/// Checks each block: whole, not older than its acknowledged write, not newer than the one begun. Returns the number of
/// blocks that were written.
fn check(file: &Path, record: &Path, size: u64) -> Result<usize> {
    let (blocks, record) = (open_direct(file, false)?, File::open(record)?);
    let mut chunk = AlignedMemory::new(CHUNK, 4096);
    let mut written = 0;
    for start in (0..size).step_by(CHUNK) {
        let first = start / BLOCK;
        let acknowledged = entries(&record, first)?;
        blocks.read_exact_at(chunk.bytes(), start)?;
        let begun = entries(&record, first)?;
        for (index, found) in chunk.bytes().chunks(BLOCK as usize).enumerate() {
            let block = first + index as u64;
            let (least, most) = (acknowledged[index].1, begun[index].0);
            match write_of(block, found) {
                None => bail!("block {block} is torn"),
                Some(write) if !(least..=most).contains(&write) => {
                    bail!("block {block} has write {write}, not one of {least} to {most}")
                }
                Some(write) => written += usize::from(write > 0),
            }
        }
    }
    if written == 0 {
        bail!("no block was written: nothing is shown");
    }
    Ok(written)
}

/// Returns the entries of the record for one chunk: write begun, write acknowledged.
fn entries(record: &File, first: u64) -> Result<Vec<(u64, u64)>> {
    let mut bytes = vec![0; CHUNK / BLOCK as usize * ENTRY as usize];
    record.read_exact_at(&mut bytes, first * ENTRY)?;
    let (words, _) = bytes.as_chunks::<8>();
    Ok(words.chunks(2).map(|w| (u64::from_le_bytes(w[0]), u64::from_le_bytes(w[1]))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(folder: &Path) -> NeighboursArgs {
        let file = folder.join("file");
        File::create(&file).unwrap().set_len(2 << 20).unwrap();
        let record = folder.join("record");
        NeighboursArgs {
            file,
            record,
            check: false,
            size: 2 << 20,
            writers: 8,
            ops: 50,
            until: None,
            seed: 3,
        }
    }

    #[test]
    fn writers_of_neighbours_find_their_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let args = args(folder.path());
        run(&args).unwrap();
        run(&NeighboursArgs { check: true, ..args }).unwrap();
    }

    #[test]
    fn a_torn_block_and_a_lost_one_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let args = NeighboursArgs { check: true, ..args(folder.path()) };
        run(&NeighboursArgs { check: false, ..args }).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(folder.path().join("file"));
        let (file, mut block) = (file.unwrap(), [0; BLOCK as usize]);
        let of = |block: u64, bytes: &mut [u8]| file.read_exact_at(bytes, block * BLOCK).unwrap();
        let first = (0..).find(|&n| {
            of(n, &mut block);
            write_of(n, &block).is_some_and(|write| write > 0)
        });
        let at = first.unwrap() * BLOCK;
        let check = || check(&folder.path().join("file"), &folder.path().join("record"), 2 << 20);
        file.write_all_at(&[0; 256], at).unwrap();
        assert!(check().unwrap_err().to_string().contains("torn"));
        file.write_all_at(&[0; BLOCK as usize], at).unwrap();
        assert!(check().unwrap_err().to_string().contains("has write 0, not one of"));
        file.write_all_at(&block, at).unwrap();
        check().unwrap();
    }
}

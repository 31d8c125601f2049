//! Copies a volume's content to a second file: shared if the file system can, else byte by byte.

use super::VolumeError;
use super::step_hook::StoreFileStep;
use super::store_files::StoreFiles;
use super::volume_space;
use rustix::fs::{SeekFrom, copy_file_range, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Most bytes of one copy call.
const PIECE: u64 = 16 << 20;
/// Bytes per read and write, where the kernel does not copy.
const READ_BYTES: u64 = 1 << 20;

/// Check that is true if no host can write to the source.
pub(crate) type Quiet<'a> = &'a (dyn Fn() -> bool + Sync);

/// Progress of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CopyProgress {
    /// Bytes copied.
    pub copied: u64,
    /// Bytes to copy.
    pub of: u64,
}

impl CopyProgress {
    /// Returns the progress in percent.
    #[must_use]
    pub fn percent(&self) -> u64 {
        (self.copied.saturating_mul(100)).checked_div(self.of).unwrap_or(100).min(100)
    }
}

/// Copies the content of `from`, at most `bytes`; holes stay holes. `to` has its size already. `each` receives the
/// bytes of each piece.
///
/// # Errors
/// The source changed during the copy, or the file system failed.
pub(crate) fn copy(
    store_files: &StoreFiles,
    (from, to, bytes): (&File, &File, u64),
    quiet: Quiet<'_>,
    busy: impl Fn() -> VolumeError,
    mut each: impl FnMut(u64),
) -> Result<(), VolumeError> {
    let failed = |source| VolumeError::io(store_files.path(), "copy in", source);
    if !quiet() {
        return Err(busy());
    }
    // Data that is only in the page cache has its timestamp already, but maybe no extents.
    store_files.sync(from).map_err(failed)?;
    let stamp = || from.metadata().map(|m| (m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()));
    let before = stamp().map_err(failed)?;
    pieces(store_files, (from, to), bytes, &mut each).map_err(failed)?;
    if !quiet() || stamp().map_err(failed)? != before {
        return Err(busy());
    }
    Ok(())
}

/// Returns the bytes that a copy of at most `bytes` takes.
pub(crate) fn needed(from: &File, bytes: u64) -> io::Result<u64> {
    // A block device does not report holes.
    if from.metadata()?.is_file() { volume_space::content(from) } else { Ok(bytes) }
}

fn pieces(
    store_files: &StoreFiles,
    (from, to): (&File, &File),
    bytes: u64,
    each: &mut dyn FnMut(u64),
) -> io::Result<()> {
    let metadata = from.metadata()?;
    let end = if metadata.is_file() { metadata.len().min(bytes) } else { bytes };
    let mut at = 0;
    while at < end {
        let data = match seek(from, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => break, // a hole to the end
            Err(Errno::INVAL) => at,   // no support for holes
            Err(error) => return Err(error.into()),
        };
        let hole = seek(from, SeekFrom::Hole(data)).unwrap_or(end).min(end);
        piece(store_files, from, to, (data, hole), each)?;
        at = hole;
    }
    Ok(())
}

fn piece(
    store_files: &StoreFiles,
    from: &File,
    to: &File,
    (mut at, end): (u64, u64),
    each: &mut dyn FnMut(u64),
) -> io::Result<()> {
    while at < end {
        store_files.step_hook.pass(StoreFileStep::Copy)?;
        let (mut off_in, mut off_out) = (at, at);
        let len = (end - at).min(PIECE) as usize;
        match copy_file_range(from, Some(&mut off_in), to, Some(&mut off_out), len) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(copied) => {
                at += copied as u64;
                each(copied as u64);
            }
            Err(Errno::INTR) => {}
            // Different file systems, or a block device.
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                let copied = read_and_write(from, to, at, end - at)?;
                at += copied;
                each(copied);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Copies some of the `len` bytes at `at`; zeroes stay a hole. Returns the number of bytes.
fn read_and_write(from: &File, to: &File, at: u64, len: u64) -> io::Result<u64> {
    let mut piece = vec![0; len.min(READ_BYTES) as usize];
    from.read_exact_at(&mut piece, at)?;
    if piece.iter().any(|byte| *byte != 0) {
        to.write_all_at(&piece, at)?;
    }
    Ok(piece.len() as u64)
}

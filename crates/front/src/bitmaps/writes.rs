//! All bitmaps of a disk, and the writes in flight.

use super::bitmap::{BitmapBackup, BitmapError, BitmapView, DirtyBitmap};
use super::bits::{WORDS_MAX, words};
use super::file::{BitmapFile, BitmapIdentity};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tracing::{error, warn};

/// Most bitmaps of a disk.
pub const BITMAPS_MAX: usize = 16;
/// Default bytes of one bit.
pub const GRANULARITY_BYTES: u32 = 64 << 10;
/// Smallest and largest bytes of one bit.
const GRANULARITIES: std::ops::RangeInclusive<u32> = 4096..=64 << 20;
/// Longest wait of a backup's start for writes that have begun before.
const WRITES_WAIT: Duration = Duration::from_secs(20);

/// A bitmap that an attachment keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmapSpec {
    /// Name: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// File that keeps it; `None` if it ends with the attachment.
    pub file: Option<PathBuf>,
    /// Bytes of one bit, a power of two.
    pub granularity_bytes: u32,
}

/// All bitmaps of a disk.
#[derive(Debug)]
pub struct DirtyBitmaps {
    bitmaps: Vec<DirtyBitmap>,
    /// Number of backups that were started; writes belong to the one before which they began.
    epoch: AtomicU64,
    /// Writes in flight of even and odd epochs.
    in_flight: [AtomicU64; 2],
    /// Lock of the start of a backup.
    starts: Mutex<()>,
}

impl DirtyBitmaps {
    /// Opens the bitmaps of a disk of `bytes`, and marks their files as in use.
    ///
    /// # Errors
    /// A name, a granularity or a file is unfit.
    pub fn open(specs: &[BitmapSpec], identity: BitmapIdentity, bytes: u64) -> io::Result<Self> {
        let mut bitmaps: Vec<DirtyBitmap> = Vec::new();
        for spec in specs {
            let invalid = |what: String| {
                io::Error::new(io::ErrorKind::InvalidInput, format!("bitmap {}: {what}", spec.name))
            };
            spec.check().map_err(invalid)?;
            if bitmaps.len() == BITMAPS_MAX || bitmaps.iter().any(|one| one.name == spec.name) {
                return Err(invalid(format!(
                    "its name is taken, or there are {BITMAPS_MAX} others"
                )));
            }
            let granularity = spec.granularity_bytes;
            if words(bytes, granularity.trailing_zeros()) == WORDS_MAX {
                return Err(invalid(
                    "give it a larger granularity: it needs too much memory".into(),
                ));
            }
            bitmaps.push(spec.open(identity, bytes)?);
        }
        let (epoch, in_flight, starts) = Default::default();
        Ok(DirtyBitmaps { bitmaps, epoch, in_flight, starts })
    }

    /// Marks the bytes of a write in all bitmaps. It has to be kept until the write has ended.
    pub(crate) fn begin(self: &Arc<Self>, offset: u64, length: u32) -> TrackedWrite {
        let epoch = loop {
            let epoch = self.epoch.load(Ordering::SeqCst);
            self.in_flight[epoch as usize & 1].fetch_add(1, Ordering::SeqCst);
            if self.epoch.load(Ordering::SeqCst) == epoch {
                break epoch;
            }
            // A backup has started in between, and may not wait for this write.
            self.in_flight[epoch as usize & 1].fetch_sub(1, Ordering::SeqCst);
        };
        self.bitmaps.iter().for_each(|bitmap| bitmap.mark(offset, length));
        TrackedWrite { bitmaps: self.clone(), epoch }
    }

    /// Declares all bitmaps invalid.
    pub(crate) fn invalidate(&self, reason: &str) {
        for bitmap in &self.bitmaps {
            if bitmap.view().invalid.is_none() {
                warn!(bitmap = bitmap.name, "invalid until the next full backup: {reason}");
            }
            bitmap.invalidate(reason);
        }
    }

    fn find(&self, name: &str) -> Result<&DirtyBitmap, BitmapError> {
        let found = self.bitmaps.iter().find(|bitmap| bitmap.name == name);
        found.ok_or_else(|| BitmapError::Unknown(name.to_owned()))
    }

    /// Starts a backup of a disk of `bytes`. It has to copy what the bitmap shows from now on until its finish: at least
    /// all changes before this returns. Waits for the writes in flight.
    ///
    /// # Errors
    /// Fails if the bitmap does not exist, or if the writes do not end.
    pub fn start(&self, name: &str, bytes: u64) -> Result<BitmapBackup, BitmapError> {
        self.start_within(name, bytes, WRITES_WAIT)
    }

    fn start_within(
        &self,
        name: &str,
        bytes: u64,
        time: Duration,
    ) -> Result<BitmapBackup, BitmapError> {
        let bitmap = self.find(name)?;
        let _turn = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        let until = Instant::now() + time;
        // A start that has failed may have left writes of the epoch before.
        let epoch = self.epoch.load(Ordering::SeqCst);
        self.wait_for_writes(epoch + 1, until)?;
        let frozen = bitmap.freeze(bytes)?;
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.wait_for_writes(epoch, until)?;
        Ok(bitmap.start(frozen))
    }

    fn wait_for_writes(&self, epoch: u64, until: Instant) -> Result<(), BitmapError> {
        loop {
            let count = self.in_flight[epoch as usize & 1].load(Ordering::SeqCst);
            if count == 0 {
                return Ok(());
            }
            if Instant::now() >= until {
                let text = format!("{count} writes are in flight and do not end: try again later");
                return Err(BitmapError::Refused(text));
            }
            sleep(Duration::from_millis(1));
        }
    }

    /// Finishes backup `number`: what has changed before its start is clean.
    ///
    /// # Errors
    /// Fails if that backup is not in progress, or if the bitmap became invalid meanwhile.
    pub fn finish(&self, name: &str, number: u64) -> Result<(), BitmapError> {
        self.find(name)?.finish(number)
    }

    /// Returns all bitmaps as they are shown.
    #[must_use]
    pub fn views(&self) -> Vec<BitmapView> {
        self.bitmaps.iter().map(DirtyBitmap::view).collect()
    }

    /// Returns the names of all bitmaps, in the order of their numbers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.bitmaps.iter().map(|bitmap| bitmap.name.as_str())
    }

    /// Returns lengths of dirty and clean ranges in turns, from `offset` on, at most `extents_max`.
    pub(crate) fn extents(
        &self,
        number: usize,
        (offset, length): (u64, u32),
        extents_max: usize,
    ) -> Vec<(u32, bool)> {
        let bitmap = self.bitmaps.get(number);
        bitmap.map_or(vec![(length, true)], |one| one.extents(offset, length, extents_max))
    }

    /// Writes all bitmaps to their files, after the last write has ended.
    pub(crate) fn save(&self) {
        let unfinished: u64 = self.in_flight.iter().map(|one| one.load(Ordering::SeqCst)).sum();
        if unfinished > 0 {
            self.invalidate("writes had not ended when the attachment ended");
        }
        for bitmap in &self.bitmaps {
            if let Some(Err(error)) = bitmap.save() {
                error!(
                    bitmap = bitmap.name,
                    "it is lost, and the next backup has to be full: {error}"
                );
            }
        }
    }
}

impl BitmapSpec {
    /// # Errors
    /// A description of the problem.
    fn check(&self) -> Result<(), String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !(1..=64).contains(&self.name.len()) || !self.name.chars().all(is_plain) {
            return Err("a name has 1 to 64 letters, digits, dots, dashes and underscores".into());
        }
        let granularity = self.granularity_bytes;
        if !granularity.is_power_of_two() || !GRANULARITIES.contains(&granularity) {
            return Err("its granularity is a power of two from 4KiB to 64MiB".into());
        }
        Ok(())
    }

    fn open(&self, identity: BitmapIdentity, bytes: u64) -> io::Result<DirtyBitmap> {
        let BitmapSpec { name, file, granularity_bytes } = self;
        let is_anonymous = BitmapIdentity { lba_bytes: 0, ..identity } == BitmapIdentity::default();
        let (file, saved) = match file {
            None => (None, Err("it is new, and no full backup has finished".to_owned())),
            Some(path) => {
                let failed = |error: io::Error| {
                    let text = format!("bitmap {name}: {}: {error}", path.display());
                    io::Error::new(error.kind(), text)
                };
                let (file, saved) =
                    BitmapFile::open(path, identity, *granularity_bytes, bytes).map_err(failed)?;
                let nameless = || "the namespace has no identifier that the bitmap could keep";
                let saved = if is_anonymous { Err(nameless().to_owned()) } else { saved };
                (Some(file), saved)
            }
        };
        Ok(DirtyBitmap::new(name.clone(), *granularity_bytes, bytes, (file, saved)))
    }
}

/// A write in flight; its end is the end of this value.
#[derive(Debug)]
pub(crate) struct TrackedWrite {
    bitmaps: Arc<DirtyBitmaps>,
    epoch: u64,
}

impl TrackedWrite {
    /// Records that the target may execute the write after its end here: no bitmap can know when.
    pub(crate) fn may_come_late(&self) {
        self.bitmaps.invalidate("a write has failed, and the target may still execute it");
    }
}

impl Drop for TrackedWrite {
    fn drop(&mut self) {
        self.bitmaps.in_flight[self.epoch as usize & 1].fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;

//! One bitmap: its sets, its validity, its backups.

use super::bits::{GrowingBits, WORDS_MAX, words};
use super::file::{BitmapFile, SavedBitmap};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// A bitmap as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmapView {
    /// Name.
    pub name: String,
    /// File that keeps it; `None` if it ends with the attachment.
    pub file: Option<PathBuf>,
    /// Bytes of one bit.
    pub granularity_bytes: u32,
    /// Size of the disk in bytes.
    pub bytes: u64,
    /// Bytes that are dirty; all if it is invalid.
    pub dirty_bytes: u64,
    /// Reason why it does not know all changes; `None` if it does.
    pub invalid: Option<String>,
    /// Number of the backup that has started and not finished.
    pub backup: Option<u64>,
}

/// A backup that has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapBackup {
    /// Number that its finish names.
    pub number: u64,
    /// True if everything has to be copied.
    pub full: bool,
}

/// Refusal of an operation on a bitmap, with advice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BitmapError {
    /// No bitmap of that name exists.
    #[error("there is no bitmap {0}")]
    Unknown(String),
    /// The operation is not possible now.
    #[error("{0}")]
    Refused(String),
}

/// A bitmap, used by all threads.
#[derive(Debug)]
pub(super) struct DirtyBitmap {
    pub(super) name: String,
    granularity_shift: u32,
    /// Changes since the start of the last backup.
    changed: GrowingBits,
    /// Earlier changes, which the backup in progress copies.
    in_backup: GrowingBits,
    /// True if everything counts as dirty.
    all: AtomicBool,
    state: Mutex<BitmapState>,
}

#[derive(Debug)]
struct BitmapState {
    file: Option<BitmapFile>,
    /// Size of the disk in bytes.
    bytes: u64,
    invalid: Option<String>,
    /// Number of times it became invalid.
    invalidations: u64,
    /// Backup in progress, with `invalidations` at its start.
    backup: Option<(BitmapBackup, u64)>,
    /// Number of the last backup.
    last_backup: u64,
}

impl DirtyBitmap {
    /// Makes a bitmap with the content of `saved`.
    pub(super) fn new(
        name: String,
        granularity_bytes: u32,
        bytes: u64,
        (file, saved): (Option<BitmapFile>, Result<SavedBitmap, String>),
    ) -> DirtyBitmap {
        let granularity_shift = granularity_bytes.trailing_zeros();
        let words = words(bytes, granularity_shift);
        let (changed, in_backup) = (GrowingBits::new(words), GrowingBits::new(words));
        let invalid = match saved {
            Ok(SavedBitmap { words }) => {
                words.iter().enumerate().for_each(|(at, &word)| changed.add(at, word));
                None
            }
            Err(reason) => Some(reason),
        };
        let all = AtomicBool::new(invalid.is_some());
        let state = Mutex::new(BitmapState {
            file,
            bytes,
            invalid,
            invalidations: 0,
            backup: None,
            last_backup: 0,
        });
        DirtyBitmap { name, granularity_shift, changed, in_backup, all, state }
    }

    fn state(&self) -> MutexGuard<'_, BitmapState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks bytes as changed.
    pub(super) fn mark(&self, offset: u64, length: u32) {
        let last = offset + u64::from(length.max(1)) - 1;
        self.changed.add_range(offset >> self.granularity_shift, last >> self.granularity_shift);
    }

    /// Declares the bitmap invalid: everything is dirty until a full backup that starts after this has finished.
    pub(super) fn invalidate(&self, reason: &str) {
        let mut state = self.state();
        self.all.store(true, Ordering::SeqCst);
        state.invalidations += 1;
        state.invalid.get_or_insert_with(|| reason.to_owned());
    }

    /// Moves all changes into the backup, first part of its start. Returns the bitmap's validity.
    pub(super) fn freeze(&self, bytes: u64) -> Result<FrozenBitmap, BitmapError> {
        let mut state = self.state();
        if bytes >> self.granularity_shift >= WORDS_MAX as u64 * 64 {
            let text = format!("bitmap {}: the disk has grown too large for it", self.name);
            return Err(BitmapError::Refused(text));
        }
        // A backup in progress is followed by this one: what it has not finished stays in the set.
        (state.backup, state.bytes) = (None, bytes);
        for at in 0..words(bytes, self.granularity_shift) {
            let word = self.changed.word(at);
            // In this order: a bit is in one of the sets at any time.
            self.in_backup.add(at, word);
            self.changed.remove(at, word);
        }
        Ok(FrozenBitmap { full: state.invalid.is_some(), invalidations: state.invalidations })
    }

    /// Starts the backup, once the writes before [`DirtyBitmap::freeze`] have ended.
    pub(super) fn start(&self, frozen: FrozenBitmap) -> BitmapBackup {
        let mut state = self.state();
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Another process' numbers are others: a finish that comes late names no backup of this one.
        let number = (time.as_micros() as u64).max(state.last_backup + 1);
        let backup = BitmapBackup { number, full: frozen.full };
        (state.backup, state.last_backup) = (Some((backup, frozen.invalidations)), number);
        backup
    }

    /// Finishes a backup: what it has copied is clean.
    pub(super) fn finish(&self, number: u64) -> Result<(), BitmapError> {
        let mut state = self.state();
        let refuse = |why: &str| Err(BitmapError::Refused(format!("bitmap {}: {why}", self.name)));
        let Some((_, invalidations)) = state.backup.filter(|(backup, _)| backup.number == number)
        else {
            return refuse(
                "that backup is not in progress: another has started since, or this attachment has",
            );
        };
        state.backup = None;
        if invalidations != state.invalidations {
            let reason = state.invalid.clone().unwrap_or_default();
            return refuse(&format!("it became invalid meanwhile, {reason}: make a full backup"));
        }
        for at in 0..words(state.bytes, self.granularity_shift) {
            self.in_backup.remove(at, u64::MAX);
        }
        state.invalid = None;
        self.all.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Returns lengths of dirty and clean ranges in turns, from `offset` on, at most `extents_max`.
    pub(super) fn extents(&self, offset: u64, length: u32, extents_max: usize) -> Vec<(u32, bool)> {
        let end = offset + u64::from(length);
        if self.all.load(Ordering::SeqCst) {
            return vec![(length, true)];
        }
        let (mut at, mut extents) = (offset, Vec::<(u32, bool)>::new());
        while at < end {
            let bit = at >> self.granularity_shift;
            let word = self.dirty_word((bit / 64) as usize) >> (bit % 64);
            let is_dirty = word & 1 == 1;
            let same = if is_dirty { word.trailing_ones() } else { word.trailing_zeros() };
            let bits = u64::from(same).min(64 - bit % 64);
            let next = ((bit + bits) << self.granularity_shift).min(end);
            let bytes = (next - at) as u32;
            let is_full = extents.len() == extents_max;
            match extents.last_mut() {
                Some((before, was_dirty)) if *was_dirty == is_dirty => *before += bytes,
                _ if is_full => return extents,
                _ => extents.push((bytes, is_dirty)),
            }
            at = next;
        }
        extents
    }

    fn dirty_word(&self, at: usize) -> u64 {
        self.changed.word(at) | self.in_backup.word(at)
    }

    /// Returns the bitmap as it is shown.
    pub(super) fn view(&self) -> BitmapView {
        let state = self.state();
        let granularity = 1u64 << self.granularity_shift;
        let bits: u64 = (0..words(state.bytes, self.granularity_shift))
            .map(|at| u64::from(self.dirty_word(at).count_ones()))
            .sum();
        let dirty_bytes = if state.invalid.is_some() { state.bytes } else { bits * granularity };
        BitmapView {
            name: self.name.clone(),
            file: state.file.as_ref().map(|file| file.path().to_owned()),
            granularity_bytes: granularity as u32,
            bytes: state.bytes,
            dirty_bytes: dirty_bytes.min(state.bytes),
            invalid: state.invalid.clone(),
            backup: state.backup.map(|(backup, _)| backup.number),
        }
    }

    /// Writes the bitmap to its file at a clean end. `None` without a file.
    pub(super) fn save(&self) -> Option<io::Result<()>> {
        let mut state = self.state();
        let count = words(state.bytes, self.granularity_shift);
        let (bytes, invalid) = (state.bytes, state.invalid.clone());
        let file = state.file.as_mut()?;
        let saved = match invalid {
            Some(reason) => Err(reason),
            None => Ok(SavedBitmap { words: (0..count).map(|at| self.dirty_word(at)).collect() }),
        };
        Some(file.save(bytes, &saved))
    }
}

/// A bitmap whose changes are in the backup.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrozenBitmap {
    full: bool,
    invalidations: u64,
}

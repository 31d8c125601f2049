//! Error Information log of a controller.
//!
//! Lanes on any thread record the failures of their commands while the control plane reads them. The log has no lock,
//! so that a host whose commands fail does not slow down others. Each entry is guarded by a number that is odd while
//! the entry is being written. A writer that finds another one in an entry skips it: the error is counted but not
//! listed.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU64, fence};
use roadtrain_wire::discovery::trtype;
use roadtrain_wire::log::{ErrorEntry, PARAMETER_NONE};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::FromZeros;
use std::sync::OnceLock;

/// Entries kept (ELPE + 1).
pub(super) const ERROR_ENTRIES: usize = 64;

/// The newest errors.
#[derive(Debug, Default)]
pub(super) struct ErrorLog {
    count: AtomicU64,
    /// Allocated by the first error: most controllers have none.
    entries: OnceLock<Box<[ErrorSlot; ERROR_ENTRIES]>>,
}

/// Slot for one of every [`ERROR_ENTRIES`] errors.
#[derive(Debug, Default)]
struct ErrorSlot {
    /// Twice the number of the stored error, plus one while it is being written; 0: empty.
    state: AtomicU64,
    words: [AtomicU64; 3],
}

impl ErrorLog {
    /// Adds the failure of `sqe` on queue `qid`, caused by the command's byte `byte`.
    pub(super) fn record(&self, qid: u16, sqe: &Sqe, status: Status, byte: Option<u8>) {
        let number = self.count.fetch_add(1, Relaxed) + 1;
        let entries =
            self.entries.get_or_init(|| Box::new(std::array::from_fn(|_| ErrorSlot::default())));
        let parameter = byte.map_or(PARAMETER_NONE, u16::from);
        let fields = [qid, sqe.cid.get(), status.to_field(), parameter];
        let words = [
            fields.into_iter().fold(0, |word, field| word << 16 | u64::from(field)),
            if qid == 0 { 0 } else { sqe.slba() },
            u64::from(sqe.nsid.get()) << 8 | u64::from(sqe.opcode),
        ];
        entries[number as usize % ERROR_ENTRIES].write(number, words);
    }

    /// Returns the number of errors ever recorded.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Returns the newest errors, newest first.
    pub(super) fn newest(&self) -> Vec<ErrorEntry> {
        let entries = self.entries.get().into_iter().flat_map(|entries| entries.iter());
        let mut newest: Vec<ErrorEntry> = entries.filter_map(ErrorSlot::read).collect();
        newest.sort_unstable_by_key(|entry| core::cmp::Reverse(entry.error_count.get()));
        newest
    }
}

impl ErrorSlot {
    fn write(&self, number: u64, words: [u64; 3]) {
        let old = self.state.load(Relaxed);
        let is_taken = old % 2 == 1 || old > 2 * number;
        if is_taken || self.state.compare_exchange(old, 2 * number + 1, Acquire, Relaxed).is_err() {
            return;
        }
        // A reader of any new word sees that the entry is being written.
        fence(Release);
        for (place, word) in self.words.iter().zip(words) {
            place.store(word, Relaxed);
        }
        self.state.store(2 * number, Release);
    }

    /// Returns the error, or `None` if the entry is empty or being written.
    fn read(&self) -> Option<ErrorEntry> {
        let state = self.state.load(Acquire);
        let [fields, lba, command] = self.words.each_ref().map(|word| word.load(Relaxed));
        fence(Acquire);
        if state == 0 || state % 2 == 1 || self.state.load(Relaxed) != state {
            return None;
        }
        let field = |n: u32| (fields >> (16 * (3 - n))) as u16;
        Some(ErrorEntry {
            error_count: (state / 2).into(),
            sqid: field(0).into(),
            cid: field(1).into(),
            status: field(2).into(),
            parameter: field(3).into(),
            lba: lba.into(),
            nsid: ((command >> 8) as u32).into(),
            trtype: trtype::TCP,
            opcode: command as u8,
            version: 1,
            ..ErrorEntry::new_zeroed()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicBool;
    use roadtrain_wire::sqe::opcode;

    /// Records an error with the same number in all fields.
    fn record(log: &ErrorLog, number: u16) {
        let mut sqe = Sqe::rw(opcode::READ, number.into(), number.into(), 1);
        sqe.cid = number.into();
        log.record(number, &sqe, Status::LBA_OUT_OF_RANGE, None);
    }

    #[test]
    fn threads_do_not_mix_their_errors() {
        const EACH: u16 = 20_000;
        let (log, over) = (ErrorLog::default(), AtomicBool::new(false));
        let check = || {
            let newest = log.newest();
            assert!(newest.is_sorted_by(|a, b| a.error_count.get() > b.error_count.get()));
            for entry in &newest {
                let number = entry.sqid.get();
                assert!(number > 0);
                assert_eq!(entry.cid.get(), number);
                assert_eq!(entry.lba.get(), number.into());
                assert_eq!(entry.nsid.get(), number.into());
                assert_eq!(entry.status.get(), Status::LBA_OUT_OF_RANGE.to_field());
            }
            newest.len()
        };
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !over.load(Relaxed) {
                    check();
                }
            });
            let write = |first: u16| (0..EACH).for_each(|n| record(&log, first + n));
            let writers = [1, 20_001, 40_001].map(|first| scope.spawn(move || write(first)));
            for writer in writers {
                writer.join().unwrap();
            }
            over.store(true, Relaxed);
            reader.join().unwrap();
        });
        assert_eq!(log.count(), 3 * u64::from(EACH));
        assert!(check() > 0);
    }
}

//! Changes of marks: one save at a time, and no change takes effect before it is saved.

use super::extents::{ByteExtents, MARKS_MAX, SPLIT_MAX};
use super::image;
use roadtrain_proto::op::ByteRange;
use roadtrain_wire::status::Status;
use std::sync::Arc;

/// Storage of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarksPlace {
    /// In memory, like the blocks.
    Memory,
    /// In a file.
    File,
    /// None: nothing can be marked.
    Nowhere,
}

/// A change of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkChange {
    /// Marks the range, which cannot be read any more.
    Mark(ByteRange),
    /// Clears the range, which was written to stable storage.
    Clear(ByteRange),
    /// Clears everything behind this many bytes, the store's new size.
    Truncate(u64),
}

/// Work that results from a change. `W` identifies a waiter.
#[derive(Debug, PartialEq, Eq)]
pub enum MarksStep<W> {
    /// Save this, then call [`Marks::saved`]. There is one such step at a time.
    Save(Arc<[u8]>),
    /// Report the result: the change is in effect, or was not made.
    Answer(W, Result<(), Status>),
}

/// A save in progress.
#[derive(Debug)]
struct MarksSave<W> {
    /// Marks that take effect when it is done.
    next: ByteExtents,
    waiting: Vec<W>,
}

/// Marks of a store.
#[derive(Debug)]
pub struct Marks<W> {
    place: MarksPlace,
    /// Marks in effect.
    marks: ByteExtents,
    /// Further marks that the file may have after a failed save: the next start of the target may find them.
    doubtful: ByteExtents,
    /// True if the last save has failed: the file may also lack marks in effect.
    has_failed: bool,
    /// Marks with all requested changes.
    wanted: ByteExtents,
    save: Option<MarksSave<W>>,
    /// Waiters for the next save.
    waiting: Vec<W>,
}

impl<W> Marks<W> {
    /// Creates the state from the stored marks.
    #[must_use]
    pub fn new(place: MarksPlace, marks: ByteExtents) -> Self {
        let (wanted, doubtful) = (marks.clone(), ByteExtents::default());
        Marks { place, marks, doubtful, has_failed: false, wanted, save: None, waiting: Vec::new() }
    }

    /// Returns the storage of the marks.
    #[must_use]
    pub fn place(&self) -> MarksPlace {
        self.place
    }

    /// True if nothing is marked, and nothing is to be: the storage may change.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.is_empty() && self.wanted.is_empty() && self.save.is_none()
    }

    /// Returns the marks in effect.
    #[must_use]
    pub fn marks(&self) -> &ByteExtents {
        &self.marks
    }

    /// True if no command has anything to check.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty() && self.doubtful.is_empty()
    }

    /// True if the range cannot be read.
    #[must_use]
    pub fn is_marked(&self, range: &ByteRange) -> bool {
        self.marks.touch(range)
    }

    /// True if a write to the range has to clear it: it is marked, or may be after a restart.
    #[must_use]
    pub fn is_to_clear(&self, range: &ByteRange) -> bool {
        self.marks.touch(range) || self.doubtful.touch(range)
    }

    /// Requests a change. `who` gets the result once the change is in effect.
    pub fn submit(&mut self, change: MarkChange, who: W, steps: &mut Vec<MarksStep<W>>) {
        let next = match self.next(change) {
            Ok(next) => next,
            Err(status) => return steps.push(MarksStep::Answer(who, Err(status))),
        };
        self.wanted = next;
        self.waiting.push(who);
        self.begin(steps);
    }

    fn next(&self, change: MarkChange) -> Result<ByteExtents, Status> {
        let mut next = self.wanted.clone();
        let max = match change {
            MarkChange::Mark(_) if self.place == MarksPlace::Nowhere => {
                return Err(Status::INVALID_OPCODE.dnr());
            }
            MarkChange::Mark(range) => {
                next.insert(&range);
                MARKS_MAX
            }
            MarkChange::Clear(range) => {
                next.remove(&range);
                SPLIT_MAX
            }
            MarkChange::Truncate(end) => {
                next.remove(&ByteRange { offset: end, len: u64::MAX });
                SPLIT_MAX
            }
        };
        // A change that reduces the number of ranges is never refused.
        match next.count() <= max.max(self.wanted.count()) {
            true => Ok(next),
            false => Err(Status::CAPACITY_EXCEEDED.dnr()),
        }
    }

    fn begin(&mut self, steps: &mut Vec<MarksStep<W>>) {
        if self.save.is_some() || self.waiting.is_empty() {
            return;
        }
        let is_saved = self.wanted == self.marks && !self.has_failed;
        if self.place != MarksPlace::File || is_saved {
            self.marks = self.wanted.clone();
            steps.extend(self.waiting.drain(..).map(|who| MarksStep::Answer(who, Ok(()))));
            return;
        }
        let (next, waiting) = (self.wanted.clone(), core::mem::take(&mut self.waiting));
        steps.push(MarksStep::Save(image::emit(&next).into()));
        self.save = Some(MarksSave { next, waiting });
    }

    /// Ends a save. If it has failed nothing changes now, though the next start of the target may find the change.
    pub fn saved(&mut self, is_saved: bool, steps: &mut Vec<MarksStep<W>>) {
        let Some(MarksSave { next, mut waiting }) = self.save.take() else { return };
        self.has_failed = !is_saved;
        if is_saved {
            (self.marks, self.doubtful) = (next, ByteExtents::default());
        } else {
            next.iter().for_each(|range| self.doubtful.insert(&range));
            if self.doubtful.count() > SPLIT_MAX {
                self.doubtful.join();
            }
            // Later changes build on the failed one.
            self.wanted = self.marks.clone();
            waiting.append(&mut self.waiting);
        }
        let result = if is_saved { Ok(()) } else { Err(Status::INTERNAL_ERROR) };
        steps.extend(waiting.into_iter().map(|who| MarksStep::Answer(who, result)));
        self.begin(steps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uncorrectable::parse_image;

    const FAILED: Result<(), Status> = Err(Status::INTERNAL_ERROR);

    fn blocks(first: u64, count: u64) -> ByteRange {
        ByteRange { offset: first * 512, len: count * 512 }
    }

    fn of(ranges: &[ByteRange]) -> ByteExtents {
        let mut extents = ByteExtents::default();
        ranges.iter().for_each(|range| extents.insert(range));
        extents
    }

    fn submit(marks: &mut Marks<u8>, change: MarkChange, who: u8) -> Vec<MarksStep<u8>> {
        let mut steps = Vec::new();
        marks.submit(change, who, &mut steps);
        steps
    }

    fn saved(marks: &mut Marks<u8>, is_saved: bool) -> Vec<MarksStep<u8>> {
        let mut steps = Vec::new();
        marks.saved(is_saved, &mut steps);
        steps
    }

    fn image(steps: &[MarksStep<u8>]) -> ByteExtents {
        match steps.last() {
            Some(MarksStep::Save(image)) => parse_image(image).unwrap(),
            _ => panic!("{steps:?} save nothing"),
        }
    }

    #[test]
    fn a_mark_is_in_force_when_it_was_saved() {
        let mut marks = Marks::new(MarksPlace::File, ByteExtents::default());
        let steps = submit(&mut marks, MarkChange::Mark(blocks(1, 2)), 1);
        assert_eq!(image(&steps), of(&[blocks(1, 2)]));
        assert!(!marks.is_marked(&blocks(1, 1)), "it is not answered");
        assert_eq!(saved(&mut marks, true), [MarksStep::Answer(1, Ok(()))]);
        assert!(marks.is_marked(&blocks(2, 5)) && !marks.is_marked(&blocks(3, 5)));
        let steps = submit(&mut marks, MarkChange::Clear(blocks(2, 1)), 2);
        assert_eq!(image(&steps), of(&[blocks(1, 1)]));
        assert!(marks.is_marked(&blocks(2, 1)), "not before that is saved");
        saved(&mut marks, true);
        assert!(!marks.is_marked(&blocks(2, 1)) && marks.is_marked(&blocks(1, 1)));
    }

    #[test]
    fn what_comes_during_a_save_shares_the_next_one() {
        let mut marks = Marks::new(MarksPlace::File, ByteExtents::default());
        submit(&mut marks, MarkChange::Mark(blocks(1, 1)), 1);
        assert_eq!(submit(&mut marks, MarkChange::Mark(blocks(5, 1)), 2), []);
        assert_eq!(submit(&mut marks, MarkChange::Clear(blocks(1, 1)), 3), []);
        let steps = saved(&mut marks, true);
        assert_eq!((&steps[0], steps.len()), (&MarksStep::Answer(1, Ok(())), 2));
        assert_eq!(image(&steps), of(&[blocks(5, 1)]));
        assert_eq!(saved(&mut marks, true), [2, 3].map(|who| MarksStep::Answer(who, Ok(()))));
        assert_eq!(*marks.marks(), of(&[blocks(5, 1)]));
    }

    #[test]
    fn what_changes_nothing_is_not_saved() {
        let mut marks = Marks::new(MarksPlace::File, of(&[blocks(1, 4)]));
        for change in [MarkChange::Mark(blocks(2, 1)), MarkChange::Clear(blocks(9, 1))] {
            assert_eq!(submit(&mut marks, change, 1), [MarksStep::Answer(1, Ok(()))]);
        }
    }

    #[test]
    fn a_save_that_fails_changes_nothing_but_is_not_forgotten() {
        let mut marks = Marks::new(MarksPlace::File, of(&[blocks(1, 1)]));
        submit(&mut marks, MarkChange::Mark(blocks(5, 1)), 1);
        submit(&mut marks, MarkChange::Clear(blocks(1, 1)), 2);
        let failed = saved(&mut marks, false);
        assert_eq!(failed, [1, 2].map(|who| MarksStep::Answer(who, FAILED)));
        assert_eq!(*marks.marks(), of(&[blocks(1, 1)]));
        // The file may still mark block 5: a write to it clears that.
        assert!(!marks.is_marked(&blocks(5, 1)) && marks.is_to_clear(&blocks(5, 1)));
        let steps = submit(&mut marks, MarkChange::Clear(blocks(5, 1)), 3);
        assert_eq!(image(&steps), of(&[blocks(1, 1)]));
        saved(&mut marks, true);
        assert!(!marks.is_to_clear(&blocks(5, 1)) && marks.is_to_clear(&blocks(1, 1)));
    }

    #[test]
    fn a_mark_that_the_file_may_lack_is_saved_before_it_is_answered_again() {
        let mut marks = Marks::new(MarksPlace::File, of(&[blocks(1, 1)]));
        submit(&mut marks, MarkChange::Clear(blocks(1, 1)), 1);
        assert_eq!(saved(&mut marks, false), [MarksStep::Answer(1, FAILED)]);
        assert!(marks.is_marked(&blocks(1, 1)), "the write has failed");
        // The file has the mark, or lacks it: a result reported now would be lost with the process.
        let steps = submit(&mut marks, MarkChange::Mark(blocks(1, 1)), 2);
        assert_eq!(image(&steps), of(&[blocks(1, 1)]));
        assert_eq!(saved(&mut marks, true), [MarksStep::Answer(2, Ok(()))]);
        let steps = submit(&mut marks, MarkChange::Mark(blocks(1, 1)), 3);
        assert_eq!(steps, [MarksStep::Answer(3, Ok(()))], "the file has it now");
    }

    #[test]
    fn marks_have_a_budget_and_writes_have_more() {
        let every_second = |count: usize| {
            let ranges: Vec<_> = (0..count as u64).map(|n| blocks(n * 100, 50)).collect();
            of(&ranges)
        };
        let mut marks = Marks::new(MarksPlace::Memory, every_second(MARKS_MAX));
        let full = Err(Status::CAPACITY_EXCEEDED.dnr());
        let beyond = MarkChange::Mark(blocks(1 << 40, 1));
        assert_eq!(submit(&mut marks, beyond, 1), [MarksStep::Answer(1, full)]);
        let joins = MarkChange::Mark(blocks(0, 101));
        assert_eq!(submit(&mut marks, joins, 1), [MarksStep::Answer(1, Ok(()))]);
        for n in 0..=MARKS_MAX as u64 {
            submit(&mut marks, MarkChange::Clear(blocks(n * 100 + 120, 1)), 1);
        }
        assert_eq!(marks.marks().count(), 2 * (MARKS_MAX - 1), "each write makes two of one");
        let mut marks = Marks::new(MarksPlace::Memory, every_second(SPLIT_MAX));
        let splits = MarkChange::Clear(blocks(20, 1));
        assert_eq!(submit(&mut marks, splits, 1), [MarksStep::Answer(1, full)]);
        let clears = MarkChange::Clear(blocks(0, 50));
        assert_eq!(submit(&mut marks, clears, 1), [MarksStep::Answer(1, Ok(()))]);
    }

    #[test]
    fn where_there_is_no_place_nothing_is_marked() {
        let mut marks = Marks::new(MarksPlace::Nowhere, ByteExtents::default());
        let refused = Err(Status::INVALID_OPCODE.dnr());
        assert_eq!(
            submit(&mut marks, MarkChange::Mark(blocks(0, 1)), 1),
            [MarksStep::Answer(1, refused)]
        );
        assert_eq!(
            submit(&mut marks, MarkChange::Clear(blocks(0, 1)), 1),
            [MarksStep::Answer(1, Ok(()))]
        );
        assert!(marks.is_empty());
    }

    #[test]
    fn a_store_of_another_size_has_no_marks_behind_its_end() {
        let mut marks = Marks::new(MarksPlace::Memory, of(&[blocks(0, 4), blocks(8, 4)]));
        submit(&mut marks, MarkChange::Truncate(10 * 512), 1);
        assert_eq!(*marks.marks(), of(&[blocks(0, 4), blocks(8, 2)]));
        submit(&mut marks, MarkChange::Truncate(0), 1);
        assert!(marks.is_empty());
    }
}

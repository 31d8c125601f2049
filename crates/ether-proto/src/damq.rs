//! The pages that a target keeps for a lane (damq); the host assigns them to the data of its writes.
//!
//! First fit over a bitmap: the lowest pages are reused most and stay warm at the target, which touches pages only
//! when they are used.

/// Most pages that a host uses, whatever a target offers: 1 GiB.
const PAGES_MAX: u32 = 1 << 18;

/// The set of free pages.
#[derive(Clone, Debug)]
pub(super) struct DamqPages {
    /// A set bit is a free page.
    words: Vec<u64>,
    pages: u32,
    free: u32,
    /// First word that may contain a free page.
    first: usize,
}

impl DamqPages {
    /// Creates a set in which all of `pages` are free; pages beyond [`PAGES_MAX`] are not used.
    pub(super) fn new(pages: u32) -> Self {
        let pages = pages.min(PAGES_MAX);
        let mut words = vec![u64::MAX; pages.div_ceil(64) as usize];
        if let (Some(last), rest @ 1..) = (words.last_mut(), pages % 64) {
            *last = (1 << rest) - 1;
        }
        DamqPages { words, pages, free: pages, first: 0 }
    }

    /// Total number of pages.
    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    /// Takes the first run of `count` (at least 1) free pages. Returns its first page.
    pub(super) fn take(&mut self, count: u32) -> Option<u32> {
        if count > self.free {
            return None;
        }
        self.skip_full();
        let start = if count == 1 { self.first_page()? } else { self.first_run(count)? };
        self.mark(start, count, false);
        Some(start)
    }

    /// Returns a run of pages to the set.
    pub(super) fn give(&mut self, start: u32, count: u32) {
        self.mark(start, count, true);
        self.first = self.first.min((start / 64) as usize);
    }

    fn skip_full(&mut self) {
        while self.words.get(self.first) == Some(&0) {
            self.first += 1;
        }
    }

    fn first_page(&self) -> Option<u32> {
        let word = self.words.get(self.first)?;
        Some(self.first as u32 * 64 + word.trailing_zeros())
    }

    fn first_run(&self, count: u32) -> Option<u32> {
        let (mut start, mut length) = (0, 0);
        for (index, &word) in self.words.iter().enumerate().skip(self.first) {
            let mut bit = 0;
            while bit < 64 {
                let rest = word >> bit;
                // Zeroes shifted in at the top end a run of ones there, so a run does not exceed the word.
                let ones = rest.trailing_ones();
                if ones == 0 {
                    length = 0;
                    bit += rest.trailing_zeros();
                    continue;
                }
                if length == 0 {
                    start = index as u32 * 64 + bit;
                }
                length += ones;
                if length >= count {
                    return Some(start);
                }
                bit += ones;
            }
        }
        None
    }

    fn mark(&mut self, start: u32, count: u32, is_free: bool) {
        let (mut page, end) = (start, start + count);
        debug_assert!(end <= self.pages, "pages beyond the damq");
        while page < end {
            let (bit, word) = (page % 64, &mut self.words[(page / 64) as usize]);
            let many = (64 - bit).min(end - page);
            let mask = (u64::MAX >> (64 - many)) << bit;
            debug_assert_eq!(*word & mask, if is_free { 0 } else { mask }, "page taken twice");
            *word ^= mask;
            page += many;
        }
        self.free = if is_free { self.free + count } else { self.free - count };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_run_that_fits_is_taken() {
        let mut damq = DamqPages::new(200);
        assert_eq!(damq.take(60), Some(0));
        assert_eq!(damq.take(10), Some(60), "over the end of a word");
        assert_eq!(damq.take(130), Some(70));
        assert_eq!(damq.take(1), None);
        damq.give(10, 3);
        damq.give(62, 4);
        assert_eq!(damq.take(4), Some(62));
        assert_eq!(damq.take(2), Some(10));
        assert_eq!((damq.take(2), damq.take(1)), (None, Some(12)));
        assert_eq!(damq.free, 0);
    }

    #[test]
    fn what_is_offered_beyond_reason_is_not_used() {
        assert_eq!(DamqPages::new(u32::MAX).pages(), PAGES_MAX);
        assert_eq!(DamqPages::new(0).take(1), None);
    }

    proptest! {
        /// Compares with a list of booleans.
        #[test]
        fn runs_never_overlap(pages in 1u32..300, steps in prop::collection::vec((any::<bool>(), 1u32..70), 1..200)) {
            let mut damq = DamqPages::new(pages);
            let mut free = vec![true; pages as usize];
            let mut taken: Vec<(u32, u32)> = Vec::new();
            for (take, n) in steps {
                if take {
                    let expected = free.windows(n as usize).position(|run| run.iter().all(|&f| f));
                    let start = damq.take(n);
                    prop_assert_eq!(start, expected.map(|start| start as u32));
                    if let Some(start) = start {
                        free[start as usize..][..n as usize].fill(false);
                        taken.push((start, n));
                    }
                } else if !taken.is_empty() {
                    let (start, count) = taken.swap_remove(n as usize % taken.len());
                    free[start as usize..][..count as usize].fill(true);
                    damq.give(start, count);
                }
                prop_assert_eq!(damq.free as usize, free.iter().filter(|&&f| f).count());
            }
        }
    }
}

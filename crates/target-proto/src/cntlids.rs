//! Allocation of controller identifiers, in rotation.

use core::ops::RangeInclusive;

/// A range of identifiers, allocated in rotation, so that a used one is not reused for long.
#[derive(Clone, Debug)]
pub(super) struct Cntlids {
    range: RangeInclusive<u16>,
    /// Identifier allocated last; 0: none yet.
    last: u16,
}

impl Cntlids {
    pub(super) fn new(range: RangeInclusive<u16>) -> Cntlids {
        Cntlids { range, last: 0 }
    }

    pub(super) fn contains(&self, cntlid: u16) -> bool {
        self.range.contains(&cntlid)
    }

    /// Returns each identifier once, beginning with the next in rotation.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = u16> + use<> {
        let (first, last) = (*self.range.start(), *self.range.end());
        let next = self.last.checked_add(1).filter(|next| (first..=last).contains(next));
        let next = next.unwrap_or(first);
        (next..=last).chain(first..next)
    }

    /// Records an allocation: the next rotation begins behind it.
    pub(super) fn note_allocated(&mut self, cntlid: u16) {
        self.last = cntlid;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_given_out_in_turn() {
        let mut cntlids = Cntlids::new(5..=8);
        let in_turn = |cntlids: &Cntlids| cntlids.in_turn().collect::<Vec<_>>();
        assert_eq!(in_turn(&cntlids), [5, 6, 7, 8]);
        cntlids.note_allocated(6);
        assert_eq!(in_turn(&cntlids), [7, 8, 5, 6]);
        cntlids.note_allocated(8);
        assert_eq!(in_turn(&cntlids), [5, 6, 7, 8]);
        assert!(cntlids.contains(8) && !cntlids.contains(9));
        let mut all = Cntlids::new(u16::MAX..=u16::MAX);
        all.note_allocated(u16::MAX);
        assert_eq!(in_turn(&all), [u16::MAX]);
    }
}

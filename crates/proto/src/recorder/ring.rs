//! Ring of the last entries.

/// Ring that takes no memory before its first entry.
#[derive(Debug)]
pub(super) struct RecordRing<T> {
    entries: Vec<T>,
    /// Index of the next entry, once the ring is full.
    next: usize,
    capacity: usize,
}

impl<T> RecordRing<T> {
    pub(super) fn new(capacity: usize) -> Self {
        RecordRing { entries: Vec::new(), next: 0, capacity }
    }

    /// Adds an entry; replaces the oldest if the ring is full.
    pub(super) fn push(&mut self, entry: T) {
        if self.entries.len() < self.capacity {
            return self.entries.push(entry);
        }
        self.entries[self.next] = entry;
        self.next = (self.next + 1) % self.capacity;
    }

    /// Returns the entries from the oldest on.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        let (later, earlier) = self.entries.split_at(self.next);
        earlier.iter().chain(later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_stay_in_their_order() {
        let mut ring = RecordRing::new(3);
        for (number, kept) in [vec![0], vec![0, 1], vec![0, 1, 2], vec![1, 2, 3], vec![2, 3, 4]]
            .into_iter()
            .enumerate()
        {
            ring.push(number);
            assert_eq!(ring.iter().copied().collect::<Vec<_>>(), kept);
        }
    }
}

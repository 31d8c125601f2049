//! Tasks that wait for their due time.

use roadtrain_proto::time::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Tasks by due time; tasks due at the same time keep their order of arrival.
#[derive(Default)]
pub(crate) struct DueQueue {
    /// Due time, serial number, task.
    waiting: BinaryHeap<Reverse<(Instant, u64, u32)>>,
    serial: u64,
}

impl DueQueue {
    pub(crate) fn push(&mut self, due: Instant, task: u32) {
        self.serial += 1;
        self.waiting.push(Reverse((due, self.serial, task)));
    }

    /// Removes a task.
    pub(crate) fn remove(&mut self, task: u32) {
        self.waiting.retain(|Reverse((_, _, waiting))| *waiting != task);
    }

    /// Takes the next task that is due by `now`.
    #[inline]
    pub(crate) fn pop(&mut self, now: Instant) -> Option<u32> {
        if self.next()? > now {
            return None;
        }
        self.waiting.pop().map(|Reverse((_, _, task))| task)
    }

    /// Returns the time at which the next task is due.
    #[inline]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.waiting.peek().map(|&Reverse((due, ..))| due)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// One task arrives each nanosecond, due after its delay; the queue is checked at intervals.
        #[test]
        fn each_leaves_once_in_order_and_not_too_early(
            delays in prop::collection::vec(0..300u64, 1..300),
            check_every in 1..20u64,
        ) {
            let mut queue = DueQueue::default();
            let due = |task: usize| task as u64 + delays[task];
            let mut left = Vec::new();
            for now in 0..1000u64 {
                if (now as usize) < delays.len() {
                    queue.push(Instant(due(now as usize)), now as u32);
                }
                if now % check_every == 0 || now == 999 {
                    let first = left.len();
                    while let Some(task) = queue.pop(Instant(now)) {
                        prop_assert!(due(task as usize) <= now);
                        left.push(task);
                    }
                    prop_assert!(left[first..].is_sorted_by_key(|&task| (due(task as usize), task)));
                    prop_assert!(queue.next().is_none_or(|next| next > Instant(now)));
                }
            }
            prop_assert_eq!(queue.len(), 0);
            left.sort_unstable();
            prop_assert_eq!(left, (0..delays.len() as u32).collect::<Vec<_>>());
        }
    }
}

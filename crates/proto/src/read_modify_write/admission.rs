//! Admission of operations: exclusive access to physical blocks, and a budget of memory.

use crate::op::ByteRange;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Needs of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmwClaim {
    /// Range that the operation changes, whole physical blocks; a length of 0: it changes nothing.
    pub range: ByteRange,
    /// True for a read-modify-write: no other change of the range runs meanwhile.
    pub is_exclusive: bool,
    /// Bytes of memory that it needs.
    pub bytes: u32,
}

impl RmwClaim {
    fn conflicts(&self, other: &RmwClaim) -> bool {
        (self.is_exclusive || other.is_exclusive) && self.range.overlaps(&other.range)
    }
}

/// State of an operation that has begun.
#[derive(Debug)]
struct ClaimState<K> {
    claim: RmwClaim,
    /// Earlier operations with a conflicting claim.
    blockers: u32,
    /// Later operations that this one blocks, in their order.
    blocked: Vec<K>,
    has_memory: bool,
}

/// Admission of the operations of one store. `K` identifies an operation in flight.
///
/// Operations with conflicting claims run one after the other, in the order in which they began. An admitted operation
/// waits for no other one, and a waiting one only for earlier ones or for memory that admitted ones have: so each
/// is admitted in the end.
#[derive(Debug)]
pub struct RmwAdmission<K> {
    claims: HashMap<K, ClaimState<K>>,
    /// Number of exclusive claims. Shared ones need no comparison while there are none.
    exclusive: usize,
    free_bytes: u64,
    /// Operations that wait for memory, first come first served.
    memory_waiters: VecDeque<K>,
}

impl<K: Copy + Eq + Hash> RmwAdmission<K> {
    /// Creates the admission with a budget of memory in bytes, which no single operation exceeds.
    #[must_use]
    pub fn new(budget_bytes: u64) -> Self {
        RmwAdmission {
            claims: HashMap::new(),
            exclusive: 0,
            free_bytes: budget_bytes,
            memory_waiters: VecDeque::new(),
        }
    }

    /// Begins an operation. True if it is admitted now; otherwise [`end`](Self::end) returns it later.
    pub fn begin(&mut self, key: K, claim: RmwClaim) -> bool {
        let mut blockers = 0;
        if claim.range.len > 0 && (claim.is_exclusive || self.exclusive > 0) {
            for earlier in self.claims.values_mut() {
                if earlier.claim.conflicts(&claim) {
                    earlier.blocked.push(key);
                    blockers += 1;
                }
            }
        }
        self.exclusive += usize::from(claim.is_exclusive);
        let state = ClaimState { claim, blockers, blocked: Vec::new(), has_memory: false };
        let replaced = self.claims.insert(key, state);
        debug_assert!(replaced.is_none(), "a key identifies one operation");
        blockers == 0 && self.take_memory(key)
    }

    /// Ends an operation, or withdraws one that waits. Appends the operations that are admitted now to `admitted`.
    pub fn end(&mut self, key: K, admitted: &mut Vec<K>) {
        let Some(ended) = self.claims.remove(&key) else { return };
        self.exclusive -= usize::from(ended.claim.is_exclusive);
        if ended.has_memory {
            self.free_bytes += u64::from(ended.claim.bytes);
        } else {
            self.withdraw(key, &ended);
        }
        for later in ended.blocked {
            let Some(state) = self.claims.get_mut(&later) else { continue };
            state.blockers -= 1;
            if state.blockers == 0 && self.take_memory(later) {
                admitted.push(later);
            }
        }
        while let Some(&next) = self.memory_waiters.front()
            && self.has_memory_for(next)
        {
            self.memory_waiters.pop_front();
            if self.take_memory_now(next) {
                admitted.push(next);
            }
        }
    }

    /// Returns the number of operations that have begun and not ended.
    #[must_use]
    pub fn len(&self) -> usize {
        self.claims.len()
    }

    /// True if no operation has begun.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Removes an operation that was not admitted from those that it waited for.
    fn withdraw(&mut self, key: K, state: &ClaimState<K>) {
        if state.blockers > 0 {
            self.claims.values_mut().for_each(|earlier| earlier.blocked.retain(|k| *k != key));
        }
        self.memory_waiters.retain(|waiter| *waiter != key);
    }

    /// Takes the memory of an operation behind those that wait for theirs. False if it has to wait.
    fn take_memory(&mut self, key: K) -> bool {
        let Some(state) = self.claims.get(&key) else { return false };
        if state.claim.bytes == 0 || self.memory_waiters.is_empty() && self.has_memory_for(key) {
            return self.take_memory_now(key);
        }
        self.memory_waiters.push_back(key);
        false
    }

    fn has_memory_for(&self, key: K) -> bool {
        let state = self.claims.get(&key);
        state.is_none_or(|state| u64::from(state.claim.bytes) <= self.free_bytes)
    }

    fn take_memory_now(&mut self, key: K) -> bool {
        let Some(state) = self.claims.get_mut(&key) else { return false };
        state.has_memory = true;
        self.free_bytes -= u64::from(state.claim.bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::cases;
    use proptest::prelude::*;

    const BLOCK: u64 = 4096;

    fn claim(first: u64, blocks: u64, is_exclusive: bool, bytes: u32) -> RmwClaim {
        let range = ByteRange { offset: first * BLOCK, len: blocks * BLOCK };
        RmwClaim { range, is_exclusive, bytes }
    }

    fn end(admission: &mut RmwAdmission<u32>, key: u32) -> Vec<u32> {
        let mut admitted = Vec::new();
        admission.end(key, &mut admitted);
        admitted
    }

    #[test]
    fn a_read_modify_write_is_alone_and_in_turn() {
        let mut admission = RmwAdmission::new(1 << 20);
        assert!(admission.begin(1, claim(0, 4, false, 0)));
        assert!(admission.begin(2, claim(2, 4, false, 0)), "shared claims overlap");
        assert!(!admission.begin(3, claim(3, 1, true, 4096)), "both shared ones are in flight");
        assert!(!admission.begin(4, claim(3, 1, false, 0)), "it began after the exclusive one");
        assert!(admission.begin(5, claim(6, 1, true, 4096)), "another block");
        assert_eq!(end(&mut admission, 1), []);
        assert_eq!(end(&mut admission, 2), [3]);
        assert_eq!(end(&mut admission, 3), [4]);
        assert_eq!((end(&mut admission, 4), end(&mut admission, 5)), (vec![], vec![]));
        assert!(admission.is_empty());
    }

    #[test]
    fn a_withdrawn_operation_blocks_none_and_its_key_is_free() {
        let mut admission = RmwAdmission::new(1 << 20);
        assert!(admission.begin(1, claim(0, 1, true, 4096)));
        assert!(!admission.begin(2, claim(0, 1, true, 4096)));
        assert!(!admission.begin(3, claim(0, 1, true, 4096)));
        assert_eq!(end(&mut admission, 2), [], "3 still waits for 1");
        assert!(!admission.begin(2, claim(0, 1, true, 4096)), "another operation with that key");
        assert_eq!(end(&mut admission, 1), [3], "not 2, which waits for 3");
        assert_eq!(end(&mut admission, 3), [2]);
    }

    #[test]
    fn memory_is_limited_and_given_in_turn() {
        let mut admission = RmwAdmission::new(10);
        assert!(admission.begin(1, claim(0, 0, false, 6)));
        assert!(!admission.begin(2, claim(0, 0, false, 8)));
        assert!(!admission.begin(3, claim(0, 0, false, 2)), "2 was first");
        assert!(admission.begin(4, claim(0, 1, false, 0)), "it needs none");
        assert_eq!(end(&mut admission, 1), [2, 3]);
        assert!(!admission.begin(5, claim(0, 0, false, 1)));
        assert_eq!(end(&mut admission, 5), []);
        assert_eq!((end(&mut admission, 2), end(&mut admission, 3)), (vec![], vec![]));
        assert!(admission.begin(6, claim(0, 0, false, 10)), "all is free again");
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: cases(256), failure_persistence: None, ..ProptestConfig::default()
        })]

        /// Operations begin and end at random. Conflicting ones never run at once and run in their order, the budget is
        /// kept, and each is admitted once as the others end.
        #[test]
        fn conflicts_are_apart_and_all_are_admitted(
            steps in prop::collection::vec(
                (0..8u64, 1..4u64, any::<bool>(), 0..5u32, 0..6usize), 1..120),
        ) {
            let mut admission = RmwAdmission::new(8);
            let mut begun: Vec<(u32, RmwClaim, bool)> = Vec::new();
            let admit = |begun: &mut Vec<(u32, RmwClaim, bool)>, key: u32| {
                let at = begun.iter().position(|(k, ..)| *k == key).unwrap();
                assert!(!begun[at].2, "admitted twice");
                let claim = begun[at].1;
                assert!(!begun[..at].iter().any(|(_, other, _)| other.conflicts(&claim)));
                assert!(!begun[at..].iter().any(|(_, other, runs)| *runs && other.conflicts(&claim)));
                begun[at].2 = true;
                let used: u32 = begun.iter().filter(|(.., runs)| *runs).map(|b| b.1.bytes).sum();
                assert!(used <= 8, "{used} bytes");
            };
            for (key, (first, blocks, is_exclusive, bytes, ends)) in (0..).zip(steps) {
                let claim = claim(first, blocks, is_exclusive, bytes);
                begun.push((key, claim, false));
                if admission.begin(key, claim) {
                    admit(&mut begun, key);
                }
                // Some end after they ran, and one of four is withdrawn while it may wait.
                if ends < 4 && ends < begun.len() {
                    let index = if ends == 0 { 0 } else { begun.len() - ends };
                    let (ended, _, runs) = begun[index];
                    if runs || ends == 1 {
                        begun.remove(index);
                        end(&mut admission, ended).into_iter().for_each(|k| admit(&mut begun, k));
                    }
                }
            }
            while let Some(at) = begun.iter().position(|(.., runs)| *runs) {
                let (ended, ..) = begun.remove(at);
                end(&mut admission, ended).into_iter().for_each(|k| admit(&mut begun, k));
            }
            prop_assert!(begun.is_empty(), "some were never admitted: {begun:?}");
            prop_assert!(admission.is_empty());
        }
    }
}

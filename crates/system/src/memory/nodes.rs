//! NUMA nodes of a thread's memory.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::sync::Once;
use tracing::warn;

/// Words of a node mask: more nodes than any kernel is built for.
const MASK_WORDS: usize = 16;

thread_local! {
    /// Nodes of mappings made by this thread; empty: any.
    static MEMORY: RefCell<BTreeSet<u32>> = const { RefCell::new(BTreeSet::new()) };
}

/// Guard that sets the nodes of mappings made by this thread.
pub struct MemoryNodesGuard {
    before: BTreeSet<u32>,
}

/// Sets the nodes of new mappings: a single one while it has memory, several in turn; empty: any.
#[must_use]
pub fn scoped_memory_nodes(nodes: BTreeSet<u32>) -> MemoryNodesGuard {
    MemoryNodesGuard { before: MEMORY.replace(nodes) }
}

impl Drop for MemoryNodesGuard {
    fn drop(&mut self) {
        MEMORY.set(mem::take(&mut self.before));
    }
}

/// Sets the nodes of the calling thread's memory from now on, mapped or not; empty: any.
///
/// # Errors
/// There are no such nodes. Mappings are taken from them all the same where that is possible.
pub fn set_memory_nodes(nodes: BTreeSet<u32>) -> io::Result<()> {
    let policy = if nodes.is_empty() { Ok(()) } else { set_policy(&nodes) };
    MEMORY.set(nodes);
    policy
}

/// True if nodes are set for the calling thread, and `node` is none of them.
#[must_use]
pub fn is_far(node: u32) -> bool {
    MEMORY.with_borrow(|own| !own.is_empty() && !own.contains(&node))
}

/// Binds a mapping that was just made and not yet touched to the thread's nodes.
pub(super) fn bind(start: *mut u8, bytes: usize) {
    static WARNED: Once = Once::new();
    let outcome = MEMORY.with_borrow(|nodes| match nodes.is_empty() {
        true => Ok(()),
        false => bind_to(start, bytes, nodes),
    });
    if let Err(error) = outcome {
        WARNED.call_once(|| warn!("cannot bind memory to its node: {error}"));
    }
}

/// Returns the memory policy: a single node is preferred, not required, because slow memory is better than none.
fn mode(nodes: &BTreeSet<u32>) -> libc::c_int {
    if nodes.len() == 1 { libc::MPOL_PREFERRED } else { libc::MPOL_INTERLEAVE }
}

fn mask(nodes: &BTreeSet<u32>) -> [libc::c_ulong; MASK_WORDS] {
    let bits = libc::c_ulong::BITS;
    let mut mask = [0; MASK_WORDS];
    for &node in nodes {
        if let Some(word) = mask.get_mut((node / bits) as usize) {
            *word |= 1 << (node % bits);
        }
    }
    mask
}

/// Number of bits of a mask in the kernel's count: one too many.
fn mask_bits() -> libc::c_ulong {
    (MASK_WORDS * libc::c_ulong::BITS as usize + 1) as libc::c_ulong
}

fn set_policy(nodes: &BTreeSet<u32>) -> io::Result<()> {
    let mask = mask(nodes);
    // SAFETY: the kernel reads `mask_bits` - 1 bits, which `mask` has.
    check(unsafe {
        libc::syscall(libc::SYS_set_mempolicy, mode(nodes), mask.as_ptr(), mask_bits())
    })
}

fn bind_to(start: *mut u8, bytes: usize, nodes: &BTreeSet<u32>) -> io::Result<()> {
    let mask = mask(nodes);
    let flags: libc::c_uint = 0;
    // SAFETY: changes where pages of the caller's mapping will come from, never their contents; the kernel reads
    // `mask_bits` - 1 bits, which `mask` has.
    check(unsafe {
        libc::syscall(libc::SYS_mbind, start, bytes, mode(nodes), mask.as_ptr(), mask_bits(), flags)
    })
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{HUGE_PAGE_BYTES, HugeMemory};
    use std::fs;

    /// The policy of the mapping at `start`, as the kernel shows it.
    fn policy(start: *mut u8) -> Option<String> {
        let maps = fs::read_to_string("/proc/self/numa_maps").ok()?;
        let wanted = format!("{:x} ", start as usize);
        let line = maps.lines().find_map(|line| line.strip_prefix(&wanted))?;
        line.split_whitespace().next().map(str::to_owned)
    }

    #[test]
    fn mappings_are_bound_to_the_set_nodes() {
        let guard = scoped_memory_nodes(BTreeSet::from([0]));
        let bound = HugeMemory::new(HUGE_PAGE_BYTES).unwrap();
        drop(guard);
        let free = HugeMemory::new(HUGE_PAGE_BYTES).unwrap();
        let Some(policy_of_bound) = policy(bound.as_ptr()) else {
            return crate::skipped::skipped("this kernel has no NUMA policies");
        };
        assert_eq!(policy_of_bound, "prefer:0");
        assert_ne!(policy(free.as_ptr()).as_deref(), Some("prefer:0"));
    }

    #[test]
    fn nodes_that_are_not_there_are_an_error() {
        assert!(set_policy(&BTreeSet::from([1000])).is_err());
    }

    #[test]
    fn masks_have_the_nodes_bits() {
        let mask = mask(&BTreeSet::from([0, 3, 64, 5000]));
        assert_eq!((mask[0], mask[1]), (0b1001, 1));
        assert!(mask[2..].iter().all(|&word| word == 0));
    }
}

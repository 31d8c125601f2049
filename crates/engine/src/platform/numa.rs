//! The system calls: which cores this thread runs on, which nodes its memory comes from.

use super::cpus::Cpus;
use super::placement::Seat;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::sync::Once;
use std::time::Duration;
use tracing::warn;

/// Words of a node mask: more nodes than any kernel is built for.
const MASK_WORDS: usize = 16;

/// What a frame over an interface on another node costs beside its way: its octets pass between nodes, and what waits
/// for them there. About what a jumbo frame takes at 10 Gbit/s.
const DETOUR: Duration = Duration::from_micros(5);

thread_local! {
    /// Nodes that mappings made by this thread are taken from; empty: anywhere.
    static MEMORY: RefCell<BTreeSet<u32>> = const { RefCell::new(BTreeSet::new()) };
}

/// Mappings that this thread makes while it lives are taken from certain nodes.
pub(crate) struct TakingFrom {
    before: BTreeSet<u32>,
}

/// Takes the memory of mappings to come from `nodes`: a single one while it has some, several in turn; empty:
/// from anywhere.
#[must_use]
pub(crate) fn take_from(nodes: BTreeSet<u32>) -> TakingFrom {
    TakingFrom { before: MEMORY.replace(nodes) }
}

impl Drop for TakingFrom {
    fn drop(&mut self) {
        MEMORY.set(mem::take(&mut self.before));
    }
}

/// Moves the calling thread to its seat, for good. What cannot be had costs speed, not function.
pub(crate) fn sit_down(seat: &Seat) {
    if !seat.cpus.is_empty()
        && let Err(error) = run_on(&seat.cpus)
    {
        warn!("cannot run on {seat}: {error}");
    }
    let nodes: BTreeSet<u32> = seat.node.into_iter().collect();
    if !nodes.is_empty()
        && let Err(error) = set_policy(&nodes)
    {
        warn!("cannot use the {seat}: {error}");
    }
    MEMORY.set(nodes);
}

/// What using a device on `node` costs this thread: nothing on its own node, or where either is not known.
pub(crate) fn detour(node: Option<u32>) -> Duration {
    let is_far = |node| MEMORY.with_borrow(|own| !own.is_empty() && !own.contains(&node));
    if node.is_some_and(is_far) { DETOUR } else { Duration::ZERO }
}

/// Binds a mapping that was just made and not yet touched, as this thread was told.
pub(crate) fn bind(start: *mut u8, bytes: usize) {
    static WARNED: Once = Once::new();
    let outcome = MEMORY.with_borrow(|nodes| match nodes.is_empty() {
        true => Ok(()),
        false => bind_to(start, bytes, nodes),
    });
    if let Err(error) = outcome {
        WARNED.call_once(|| warn!("cannot bind memory to its node: {error}"));
    }
}

/// Cores that this process may use.
pub(crate) fn allowed() -> Cpus {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is as large as said; 0 is the calling thread.
    unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) };
    // SAFETY: every number is below CPU_SETSIZE.
    (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// The core that the calling thread runs on just now.
pub(crate) fn current_core() -> Option<usize> {
    // SAFETY: asks for a number, touches no memory.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Lets the calling thread run on these cores only.
///
/// # Errors
/// None of them exists or may be used.
pub(crate) fn run_on(cpus: &Cpus) -> io::Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for cpu in cpus.iter() {
        if cpu >= libc::CPU_SETSIZE as usize {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no core {cpu}")));
        }
        // SAFETY: below CPU_SETSIZE.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: `set` lives through the call and its size is given; 0 is the calling thread.
    check(unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) }.into())
}

/// A single node is preferred, not insisted on: better slow memory than none.
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

/// Bits of a mask, as the kernel counts them: one too many.
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
    // SAFETY: changes where pages of the caller's mapping will come from, never what is in them; the kernel
    // reads `mask_bits` - 1 bits, which `mask` has.
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
    use std::thread;

    /// The policy of the mapping at `start`, as the kernel shows it.
    fn policy(start: *mut u8) -> Option<String> {
        let maps = fs::read_to_string("/proc/self/numa_maps").ok()?;
        let wanted = format!("{:x} ", start as usize);
        let line = maps.lines().find_map(|line| line.strip_prefix(&wanted))?;
        line.split_whitespace().next().map(str::to_owned)
    }

    #[test]
    fn mappings_are_bound_while_told() {
        let told = take_from(BTreeSet::from([0]));
        let bound = HugeMemory::new(HUGE_PAGE_BYTES).unwrap();
        drop(told);
        let free = HugeMemory::new(HUGE_PAGE_BYTES).unwrap();
        let Some(policy_of_bound) = policy(bound.as_ptr()) else {
            return crate::skipped::skipped("this kernel has no NUMA policies");
        };
        assert_eq!(policy_of_bound, "prefer:0");
        assert_ne!(policy(free.as_ptr()).as_deref(), Some("prefer:0"));
    }

    #[test]
    fn other_nodes_are_a_detour() {
        assert_eq!(detour(Some(1)), Duration::ZERO, "it belongs to no node");
        let _near = take_from(BTreeSet::from([0]));
        assert_eq!(detour(Some(0)), Duration::ZERO);
        assert_eq!(detour(Some(1)), DETOUR);
        assert_eq!(detour(None), Duration::ZERO, "nobody knows");
    }

    #[test]
    fn a_thread_takes_its_seat() {
        let cpu = allowed().iter().next().expect("we run somewhere");
        let seat = Seat { cpus: Cpus::from_iter([cpu]), node: None };
        let seen = thread::spawn(move || {
            sit_down(&seat);
            allowed()
        });
        assert_eq!(seen.join().unwrap(), Cpus::from_iter([cpu]));
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        assert!(run_on(&Cpus::from_iter([libc::CPU_SETSIZE as usize])).is_err());
        assert!(set_policy(&BTreeSet::from([1000])).is_err());
    }

    #[test]
    fn masks_have_the_nodes_bits() {
        let mask = mask(&BTreeSet::from([0, 3, 64, 5000]));
        assert_eq!((mask[0], mask[1]), (0b1001, 1));
        assert!(mask[2..].iter().all(|&word| word == 0));
    }
}

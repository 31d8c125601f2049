//! Record of the requests in flight, in memory that the frontend keeps if this process dies.
//!
//! One region for each queue has the split virtqueue's layout of the vhost-user protocol: a header, then an entry for
//! each possible head. A head is marked when it is taken and cleared after it was put into the used ring. `used_idx`
//! repeats the used ring's index, so that a successor knows whether the last clearing was missed. The frontend may
//! write to the memory at any time: nothing read from it is trusted, and each value is read once.

use super::lost_memory::{Guard, is_set};
use super::memory::map_file;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, Release};
use vhost::vhost_user::message::VhostUserInflight;
use vm_memory::mmap::MmapRegion;
use vm_memory::{AtomicAccess, Bytes, VolatileMemory};

const VERSION: u16 = 1;
/// Bytes of a region's header, and of an entry.
const ENTRY_BYTES: usize = 16;
/// Alignment of regions, in bytes.
const REGION_ALIGNMENT: usize = 64;

/// Offsets in the header.
mod header {
    pub(super) const VERSION: usize = 8;
    pub(super) const DESC_NUM: usize = 10;
    pub(super) const LAST_BATCH_HEAD: usize = 12;
    pub(super) const USED_IDX: usize = 14;
}

/// Offsets in an entry.
mod entry {
    pub(super) const INFLIGHT: usize = 0;
    pub(super) const COUNTER: usize = 8;
}

/// The memory of all queues.
pub(crate) struct InflightMemory {
    /// Dropped before the mapping.
    _guard: Guard,
    lost: Arc<AtomicBool>,
    mapping: MmapRegion<()>,
    queues: u16,
    queue_size: u16,
}

fn region_bytes(queue_size: u16) -> usize {
    (ENTRY_BYTES * (1 + usize::from(queue_size))).next_multiple_of(REGION_ALIGNMENT)
}

impl InflightMemory {
    /// Creates memory for `queues` queues of `queue_size`. Returns it with its description and file for the frontend.
    ///
    /// # Errors
    /// Fails if the system has no memory or no descriptor left.
    pub(crate) fn create(
        queues: u16,
        queue_size: u16,
    ) -> io::Result<(Self, VhostUserInflight, File)> {
        let bytes = (region_bytes(queue_size) * usize::from(queues)) as u64;
        let file = memfd_create("vhost-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let file = File::from(file);
        let layout = VhostUserInflight::new(bytes, 0, queues, queue_size);
        Ok((Self::map(&layout, file.try_clone()?)?, layout, file))
    }

    /// Maps the memory that the frontend kept.
    ///
    /// # Errors
    /// Fails if the memory is too small for its declared queues.
    pub(crate) fn map(layout: &VhostUserInflight, file: File) -> io::Result<Self> {
        let (queues, queue_size) = (layout.num_queues, layout.queue_size);
        let needed = (region_bytes(queue_size) * usize::from(queues)) as u64;
        if layout.mmap_size < needed {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "in-flight memory is too small",
            ));
        }
        let mapping = map_file(file, layout.mmap_offset, needed)?;
        let lost = Arc::default();
        let guard = Guard::new(mapping.as_ptr(), mapping.size(), &lost)?;
        Ok(InflightMemory { _guard: guard, lost, mapping, queues, queue_size })
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.mapping.size()
    }
}

/// One queue's region.
pub(crate) struct Inflight {
    memory: Arc<InflightMemory>,
    base: usize,
    /// Order in which the next head is taken.
    counter: u64,
}

impl Inflight {
    /// Returns the region of queue `index`, if the memory has one, for heads below `size`.
    pub(crate) fn of(memory: &Arc<InflightMemory>, index: u16, size: u16) -> Option<Self> {
        let fits = index < memory.queues && size <= memory.queue_size;
        let base = region_bytes(memory.queue_size) * usize::from(index);
        fits.then(|| Inflight { memory: memory.clone(), base, counter: 0 })
    }

    /// True if the frontend has cut the memory.
    pub(crate) fn is_lost(&self) -> bool {
        is_set(&self.memory.lost)
    }

    fn load<T: AtomicAccess>(&self, at: usize) -> T {
        let slice = self.memory.mapping.as_volatile_slice();
        slice.load(self.base + at, Relaxed).expect("fields are inside the mapping, and aligned")
    }

    fn store<T: AtomicAccess>(&self, at: usize, value: T) {
        let slice = self.memory.mapping.as_volatile_slice();
        // Release: a process that reads the memory after this one has died sees the stores in order.
        slice
            .store(value, self.base + at, Release)
            .expect("fields are inside the mapping, and aligned");
    }

    fn entry(head: u16) -> usize {
        ENTRY_BYTES * (1 + usize::from(head))
    }

    /// Starts with a used ring whose index is `used_idx`. Returns the heads that were in flight when the predecessor
    /// ended, in the order in which they were taken.
    pub(crate) fn recover(&mut self, used_idx: u16, size: u16) -> Vec<u16> {
        if self.load::<u16>(header::VERSION) != VERSION {
            self.store(header::VERSION, VERSION);
            self.store(header::DESC_NUM, self.memory.queue_size);
        }
        if self.load::<u16>(header::USED_IDX) != used_idx {
            let last = self.load::<u16>(header::LAST_BATCH_HEAD);
            if last < size {
                self.clear(last);
            }
            self.store(header::USED_IDX, used_idx);
        }
        let is_marked = |head: &u16| self.load::<u8>(Self::entry(*head) + entry::INFLIGHT) == 1;
        let order = |head: u16| (self.load::<u64>(Self::entry(head) + entry::COUNTER), head);
        let mut heads: Vec<(u64, u16)> = (0..size).filter(is_marked).map(order).collect();
        heads.sort_unstable();
        self.counter = heads.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        heads.into_iter().map(|(_, head)| head).collect()
    }

    /// Marks `head`, which is taken from the available ring.
    pub(crate) fn mark(&mut self, head: u16) {
        self.store(Self::entry(head) + entry::COUNTER, self.counter);
        self.store(Self::entry(head) + entry::INFLIGHT, 1u8);
        self.counter = self.counter.wrapping_add(1);
    }

    fn clear(&self, head: u16) {
        self.store(Self::entry(head) + entry::INFLIGHT, 0u8);
    }

    /// Records that `head` is about to be put into the used ring.
    pub(crate) fn ending(&self, head: u16) {
        self.store(header::LAST_BATCH_HEAD, head);
    }

    /// Records that `head` is in the used ring, whose index is `used_idx` now.
    pub(crate) fn ended(&self, head: u16, used_idx: u16) {
        self.clear(head);
        self.store(header::USED_IDX, used_idx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maps the same memory as another process would.
    fn again(layout: &VhostUserInflight, file: &File) -> Arc<InflightMemory> {
        Arc::new(InflightMemory::map(layout, file.try_clone().unwrap()).unwrap())
    }

    #[test]
    fn a_successor_learns_what_was_in_flight_and_in_which_order() {
        let (memory, layout, file) = InflightMemory::create(2, 8).unwrap();
        let memory = Arc::new(memory);
        let mut inflight = Inflight::of(&memory, 1, 8).unwrap();
        assert_eq!(inflight.recover(0, 8), [0u16; 0]);
        [5, 2, 7, 3].into_iter().for_each(|head| inflight.mark(head));
        inflight.ending(2);
        inflight.ended(2, 1);
        inflight.mark(2);
        let memory = again(&layout, &file);
        assert_eq!(Inflight::of(&memory, 0, 8).unwrap().recover(0, 8), [0u16; 0]);
        let mut inflight = Inflight::of(&memory, 1, 8).unwrap();
        assert_eq!(inflight.recover(1, 8), [5, 7, 3, 2]);
        inflight.mark(0);
        assert_eq!(Inflight::of(&memory, 1, 8).unwrap().recover(1, 8), [5, 7, 3, 2, 0]);
    }

    #[test]
    fn used_chains_are_not_done_again() {
        let (memory, layout, file) = InflightMemory::create(1, 8).unwrap();
        let mut inflight = Inflight::of(&Arc::new(memory), 0, 8).unwrap();
        inflight.recover(0, 8);
        inflight.mark(1);
        inflight.mark(2);
        inflight.ending(1);
        // It dies after the used ring's index went to 1: otherwise the head is to be done again.
        for (used_idx, heads) in [(0, vec![1, 2]), (1, vec![2])] {
            let mut inflight = Inflight::of(&again(&layout, &file), 0, 8).unwrap();
            assert_eq!(inflight.recover(used_idx, 8), heads);
        }
    }

    /// Sorting may fail if the compared values change meanwhile.
    #[test]
    fn a_frontend_that_writes_meanwhile_is_survived() {
        const SIZE: u16 = 1024;
        let (memory, layout, file) = InflightMemory::create(1, SIZE).unwrap();
        let mut inflight = Inflight::of(&Arc::new(memory), 0, SIZE).unwrap();
        inflight.recover(0, SIZE);
        (0..SIZE).for_each(|head| inflight.mark(head));
        let (frontend, ended) = (again(&layout, &file), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let frontend = Inflight::of(&frontend, 0, SIZE).unwrap();
                let mut random = 1u64;
                while !ended.load(Relaxed) {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let head = (random >> 32) as u16 % SIZE;
                    frontend.store(Inflight::entry(head) + entry::COUNTER, random);
                }
            });
            let recovered = std::panic::catch_unwind(|| {
                for _ in 0..500 {
                    let mut successor = Inflight::of(&again(&layout, &file), 0, SIZE).unwrap();
                    let mut heads = successor.recover(0, SIZE);
                    heads.sort_unstable();
                    assert!(heads.into_iter().eq(0..SIZE), "each once");
                }
            });
            ended.store(true, Relaxed);
            assert!(recovered.is_ok());
        });
    }

    #[test]
    fn the_frontends_layout_is_checked() {
        let (memory, layout, file) = InflightMemory::create(2, 8).unwrap();
        let map = |layout: VhostUserInflight| {
            InflightMemory::map(&layout, file.try_clone().unwrap()).map(drop).map_err(|e| e.kind())
        };
        let bytes = layout.mmap_size;
        assert_eq!(bytes, memory.bytes() as u64);
        assert!(map(layout).is_ok());
        assert!(map(VhostUserInflight::new(bytes, 0, 3, 8)).is_err());
        assert!(map(VhostUserInflight::new(u64::MAX, 0, 3, 8)).is_err());
        assert!(map(VhostUserInflight::new(bytes, 4096, 2, 8)).is_err());
        assert!(map(VhostUserInflight::new(u64::MAX, u64::MAX, u16::MAX, u16::MAX)).is_err());
        let memory = Arc::new(memory);
        assert!(Inflight::of(&memory, 2, 8).is_none());
        assert!(Inflight::of(&memory, 0, 16).is_none());
        // Random content yields no head beyond the ring.
        let slice = memory.mapping.as_volatile_slice();
        slice.write_slice(&vec![1; bytes as usize], 0).unwrap();
        assert_eq!(Inflight::of(&memory, 0, 4).unwrap().recover(9, 4), [0, 1, 2, 3]);
    }
}

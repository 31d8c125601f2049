//! Buffers of a reactor: power-of-two classes carved from huge-page chunks, bounded by a budget.

use std::fmt;
use std::sync::Arc;

use super::{Buffer, LENT, RESERVED};
use crate::memory::{HUGE_PAGE_BYTES, HugeMemory, PAGE_BYTES};

const CHUNK_BYTES: usize = HUGE_PAGE_BYTES;
/// Maximum buffers outside of the budget.
const RESERVED_MAX: u32 = 16;
const CLASSES: usize = (BufferPool::LEN_MAX / PAGE_BYTES).trailing_zeros() as usize + 1;

/// Pool of page-aligned buffers in classes of 4 KiB to 1 MiB. A chunk serves one class at a time and may change it when
/// all its buffers were given back.
///
/// Invariant: a chunk is listed in `open[class]` exactly if it has a buffer left to take.
pub struct BufferPool {
    chunks: Vec<PoolChunk>,
    open: [Vec<u32>; CLASSES],
    chunks_max: usize,
    reserved: u32,
    used: bool,
    given: u64,
}

struct PoolChunk {
    memory: Arc<HugeMemory>,
    class: usize,
    /// Buffers that were given back, most recently used last.
    returned: Vec<Buffer>,
    /// Slots that were ever carved since the chunk has this class; the rest is untouched.
    carved: usize,
}

/// Memory of a pool, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// Mapped bytes.
    pub mapped_bytes: usize,
    /// Limit of the mapped bytes.
    pub budget_bytes: usize,
    /// Bytes of buffers taken and not given back, rounded up to classes.
    pub taken_bytes: usize,
    /// Bytes taken at any time since the last [`BufferPool::trim`] that could give them back to the system.
    pub kept_bytes: usize,
    /// Number of buffers from the reserve that were not given back.
    pub reserved: u32,
}

impl BufferPool {
    /// Maximum length of a buffer.
    pub const LEN_MAX: usize = 1 << 20;

    /// A pool that maps at most `budget_bytes` (at least one chunk of 2 MiB), none of it now.
    #[must_use]
    pub fn new(budget_bytes: usize) -> BufferPool {
        let chunks_max = (budget_bytes / CHUNK_BYTES).clamp(1, LENT as usize - 1);
        BufferPool {
            chunks: Vec::new(),
            open: [const { Vec::new() }; CLASSES],
            chunks_max,
            reserved: 0,
            used: false,
            given: 0,
        }
    }

    /// Takes a buffer of `len` bytes with unspecified contents. `None`: exhausted; wait for a `give`, then retry. A
    /// `len` above [`LEN_MAX`](Self::LEN_MAX) is the caller's bug and never succeeds.
    pub fn take(&mut self, len: usize) -> Option<Buffer> {
        debug_assert!(len <= Self::LEN_MAX, "{len} bytes from a pool");
        if len > Self::LEN_MAX {
            return None;
        }
        self.used = true;
        let class = class_of(len);
        let index = match self.open[class].last() {
            Some(&index) => index,
            None => self.open_chunk(class).or_else(|| self.larger_chunk(class))?,
        };
        let chunk = &mut self.chunks[index as usize];
        let mut buffer = chunk.take(index);
        if chunk.is_spent() {
            let class = chunk.class;
            self.open[class].pop();
        }
        buffer.set_len(len);
        Some(buffer)
    }

    /// Takes a buffer from a small reserve outside of the budget, for data that has to be received first. The other
    /// buffers may wait for PDUs behind it. `None`: wait for a `give`, then retry.
    pub fn take_reserved(&mut self, len: usize) -> Option<Buffer> {
        if self.reserved == RESERVED_MAX || len > Self::LEN_MAX {
            return None;
        }
        self.reserved += 1;
        let mut buffer = Buffer::alloc(len);
        buffer.chunk = RESERVED;
        Some(buffer)
    }

    /// Takes a buffer back. Drops one that is not from this pool.
    pub fn give(&mut self, buffer: Buffer) {
        self.used = true;
        self.given += 1;
        if buffer.chunk == RESERVED {
            self.reserved = self.reserved.saturating_sub(1);
            return;
        }
        let Some(chunk) = self.chunks.get_mut(buffer.chunk as usize) else { return };
        let ours = buffer.memory.as_ref().is_some_and(|memory| Arc::ptr_eq(memory, &chunk.memory));
        if !ours {
            return;
        }
        if chunk.is_spent() {
            self.open[chunk.class].push(buffer.chunk);
        }
        chunk.returned.push(buffer);
    }

    /// Returns the current memory of the pool.
    #[must_use]
    pub fn usage(&self) -> PoolUsage {
        let taken = |c: &PoolChunk| (c.carved - c.returned.len()) * class_bytes(c.class);
        PoolUsage {
            mapped_bytes: self.chunks.len() * CHUNK_BYTES,
            budget_bytes: self.chunks_max * CHUNK_BYTES,
            taken_bytes: self.chunks.iter().map(taken).sum(),
            kept_bytes: self.chunks.iter().map(|c| c.carved * class_bytes(c.class)).sum(),
            reserved: self.reserved,
        }
    }

    /// Number of buffers that were given back: more than before means that [`BufferPool::take`] may succeed again.
    #[must_use]
    #[inline]
    pub fn given(&self) -> u64 {
        self.given
    }

    /// True if buffers were taken or given back since the last call: [`BufferPool::trim`] is for idle pools.
    #[inline]
    pub fn was_used(&mut self) -> bool {
        std::mem::take(&mut self.used)
    }

    /// Gives the memory of unused chunks back to the system; the chunks stay usable.
    pub fn trim(&mut self) {
        for (index, chunk) in self.chunks.iter_mut().enumerate() {
            let was_spent = chunk.is_spent();
            if chunk.carved > 0 && chunk.reset() {
                let dropped = chunk.memory.discard(0, CHUNK_BYTES);
                debug_assert!(dropped, "a chunk lies inside itself");
                if was_spent {
                    self.open[chunk.class].push(index as u32);
                }
            }
        }
    }

    /// Finds a chunk for a class that has none open: an idle one of another class, or a new one, or one with dropped
    /// buffers.
    fn open_chunk(&mut self, class: usize) -> Option<u32> {
        let index = match self.idle_chunk() {
            Some(index) => index,
            None if self.chunks.len() < self.chunks_max => self.map_chunk(class)?,
            None => self.chunks.iter_mut().position(PoolChunk::reset)? as u32,
        };
        for open in &mut self.open {
            open.retain(|&i| i != index);
        }
        self.chunks[index as usize].class = class;
        self.open[class].push(index);
        Some(index)
    }

    /// Finds a chunk of a larger class when there is no other: few large buffers in use must not keep small ones
    /// waiting.
    #[inline]
    fn larger_chunk(&self, class: usize) -> Option<u32> {
        self.open[class + 1..].iter().find_map(|open| open.last().copied())
    }

    #[inline]
    fn idle_chunk(&mut self) -> Option<u32> {
        let index = self.chunks.iter().position(|c| c.returned.len() == c.carved)?;
        self.chunks[index].reset().then_some(index as u32)
    }

    fn map_chunk(&mut self, class: usize) -> Option<u32> {
        let memory = match HugeMemory::new(CHUNK_BYTES) {
            Ok(memory) => Arc::new(memory),
            Err(error) => {
                tracing::warn!(%error, "no memory for another chunk of buffers");
                return None;
            }
        };
        self.chunks.push(PoolChunk { memory, class, returned: Vec::new(), carved: 0 });
        Some(self.chunks.len() as u32 - 1)
    }
}

impl PoolChunk {
    #[inline]
    fn is_spent(&self) -> bool {
        self.returned.is_empty() && self.carved == CHUNK_BYTES / class_bytes(self.class)
    }

    /// Takes a buffer from a chunk that is not spent; `index` is the chunk's own.
    fn take(&mut self, index: u32) -> Buffer {
        self.returned.pop().unwrap_or_else(|| {
            let bytes = class_bytes(self.class);
            let offset = self.carved * bytes;
            self.carved += 1;
            // SAFETY: each slot is carved once until `reset`, which happens only when no buffer is left.
            unsafe { Buffer::carve(&self.memory, offset, bytes, index) }
        })
    }

    /// Makes the chunk whole again if none of its buffers is in use: all were given back or dropped.
    fn reset(&mut self) -> bool {
        if Arc::strong_count(&self.memory) != self.returned.len() + 1 {
            return false;
        }
        self.returned.clear();
        // Also orders writes of other threads into buffers that they dropped before our next use.
        let alone = Arc::get_mut(&mut self.memory).is_some();
        debug_assert!(alone, "only buffers hold the memory");
        if alone {
            self.carved = 0;
        }
        alone
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("usage", &self.usage()).finish()
    }
}

#[inline]
fn class_of(len: usize) -> usize {
    (len.max(PAGE_BYTES).next_power_of_two() / PAGE_BYTES).trailing_zeros() as usize
}

#[inline]
const fn class_bytes(class: usize) -> usize {
    PAGE_BYTES << class
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: usize = CHUNK_BYTES;

    fn take_all(pool: &mut BufferPool, len: usize) -> Vec<Buffer> {
        std::iter::from_fn(|| pool.take(len)).collect()
    }

    #[test]
    fn classes_are_powers_of_two() {
        let mut pool = BufferPool::new(64 << 20);
        for (len, capacity) in [
            (0, 4096),
            (1, 4096),
            (4096, 4096),
            (4097, 8192),
            (100_000, 131_072),
            (1 << 20, 1 << 20),
        ] {
            let buffer = pool.take(len).unwrap();
            assert_eq!((buffer.len(), buffer.capacity()), (len, capacity));
        }
    }

    #[test]
    fn the_reserve_is_small_and_comes_back() {
        let mut pool = BufferPool::new(CHUNK);
        let taken = take_all(&mut pool, 4096);
        let mut reserved: Vec<Buffer> =
            std::iter::from_fn(|| pool.take_reserved(16 << 10)).collect();
        assert_eq!(reserved.len(), RESERVED_MAX as usize);
        assert!(reserved.iter().all(|buffer| buffer.len() == 16 << 10));
        pool.give(reserved.pop().unwrap());
        assert_eq!(pool.usage().reserved, RESERVED_MAX - 1);
        assert!(pool.take(4096).is_none(), "the reserve is apart from the budget");
        taken.into_iter().chain(reserved).for_each(|buffer| pool.give(buffer));
        assert_eq!((pool.usage().taken_bytes, pool.usage().reserved), (0, 0));
    }

    #[test]
    fn nothing_is_mapped_before_use() {
        assert_eq!(BufferPool::new(64 << 20).usage().mapped_bytes, 0);
    }

    #[test]
    fn exhaustion_ends_with_a_give() {
        let mut pool = BufferPool::new(2 * CHUNK);
        let mut taken = take_all(&mut pool, 4096);
        assert_eq!(taken.len(), 2 * CHUNK / 4096);
        assert_eq!(pool.usage().taken_bytes, 2 * CHUNK);
        assert!(pool.take(1).is_none());
        let given = taken.pop().unwrap();
        let address = given.as_ptr();
        pool.give(given);
        assert_eq!(pool.take(1).unwrap().as_ptr(), address);
    }

    #[test]
    fn buffers_do_not_overlap() {
        let mut pool = BufferPool::new(2 * CHUNK);
        let mut taken = take_all(&mut pool, 64 << 10);
        for (i, buffer) in taken.iter_mut().enumerate() {
            buffer.fill(i as u8);
        }
        for (i, buffer) in taken.iter().enumerate() {
            assert!(buffer.iter().all(|&b| b == i as u8));
        }
    }

    #[test]
    fn a_wholly_free_chunk_changes_class() {
        let mut pool = BufferPool::new(CHUNK);
        let mut small = take_all(&mut pool, 4096);
        let last = small.pop().unwrap();
        small.into_iter().for_each(|b| pool.give(b));
        assert!(pool.take(1 << 20).is_none(), "one small buffer is still out");
        pool.give(last);
        let large = take_all(&mut pool, 1 << 20);
        assert_eq!(large.len(), 2);
        assert!(pool.take(4096).is_none());
        large.into_iter().for_each(|b| pool.give(b));
        assert_eq!(take_all(&mut pool, 4096).len(), CHUNK / 4096);
    }

    #[test]
    fn a_small_buffer_is_taken_from_a_larger_class_for_want_of_others() {
        let mut pool = BufferPool::new(2 * CHUNK);
        let mut large = take_all(&mut pool, 64 << 10);
        let kept = large.pop().unwrap();
        let other = large.remove(0);
        large.into_iter().for_each(|buffer| pool.give(buffer));
        let small = take_all(&mut pool, 4096);
        assert_eq!(small.len(), 2 * CHUNK / (64 << 10) - 2);
        assert!(small.iter().all(|buffer| (buffer.len(), buffer.capacity()) == (4096, 64 << 10)));
        assert!(pool.take(128 << 10).is_none(), "both chunks have a buffer out");
        small.into_iter().chain([kept, other]).for_each(|buffer| pool.give(buffer));
        assert_eq!((pool.usage().taken_bytes, take_all(&mut pool, 1 << 20).len()), (0, 4));
    }

    #[test]
    fn dropped_buffers_are_found_again() {
        let mut pool = BufferPool::new(CHUNK);
        let taken = take_all(&mut pool, 4096);
        std::thread::spawn(move || drop(taken)).join().unwrap();
        assert_eq!(take_all(&mut pool, 8192).len(), CHUNK / 8192);
    }

    #[test]
    fn a_mix_of_given_and_dropped_is_made_whole() {
        let mut pool = BufferPool::new(CHUNK);
        for (i, buffer) in take_all(&mut pool, 1 << 18).into_iter().enumerate() {
            if i % 2 == 0 {
                pool.give(buffer);
            }
        }
        assert_eq!(take_all(&mut pool, 1 << 20).len(), 2);
    }

    #[test]
    fn strangers_are_dropped() {
        let mut pool = BufferPool::new(CHUNK);
        let mut other = BufferPool::new(CHUNK);
        let mine = pool.take(4096).unwrap();
        pool.give(other.take(4096).unwrap());
        pool.give(Buffer::alloc(4096));
        assert_eq!(pool.usage().taken_bytes, 4096);
        pool.give(mine);
        assert_eq!(pool.usage().taken_bytes, 0);
    }

    #[test]
    fn buffers_outlive_their_pool() {
        let mut pool = BufferPool::new(CHUNK);
        let mut buffer = pool.take(4096).unwrap();
        drop(pool);
        buffer.fill(9);
        assert!(buffer.iter().all(|&b| b == 9));
    }

    #[test]
    fn trim_zeroes_idle_chunks_only() {
        let mut pool = BufferPool::new(2 * CHUNK);
        let mut busy = pool.take(1 << 20).unwrap();
        busy.fill(3);
        let mut idle: Vec<Buffer> = (0..CHUNK / 4096).map(|_| pool.take(4096).unwrap()).collect();
        idle.iter_mut().for_each(|b| b.fill(4));
        idle.into_iter().for_each(|b| pool.give(b));
        assert_eq!(pool.usage().kept_bytes, (1 << 20) + CHUNK);
        pool.trim();
        assert_eq!(pool.usage().kept_bytes, 1 << 20);
        assert!(busy.iter().all(|&b| b == 3));
        let again: Vec<Buffer> = (0..CHUNK / 4096).map(|_| pool.take(4096).unwrap()).collect();
        assert!(again.iter().all(|b| b.iter().all(|&b| b == 0)));
    }

    #[test]
    fn use_is_noticed() {
        let mut pool = BufferPool::new(CHUNK);
        assert!(!pool.was_used());
        let buffer = pool.take(4096).unwrap();
        assert!(pool.was_used() && !pool.was_used());
        pool.give(buffer);
        assert!(pool.was_used() && !pool.was_used());
    }

    #[test]
    fn trim_reopens_chunks_whose_buffers_were_dropped() {
        let mut pool = BufferPool::new(CHUNK);
        drop(take_all(&mut pool, 4096));
        pool.trim();
        let first = pool.take(4096).unwrap();
        assert!(pool.take(4096).is_some());
        drop(first);
    }

    #[test]
    fn random_use_keeps_every_byte() {
        let mut pool = BufferPool::new(4 * CHUNK);
        let mut out: Vec<(u8, Buffer)> = Vec::new();
        let mut seed = 42_u64;
        for step in 0..20_000_u32 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let roll = (seed >> 33) as usize;
            if roll.is_multiple_of(2) || out.is_empty() {
                let Some(mut buffer) = pool.take((roll >> 1) % (256 << 10)) else { continue };
                let (tag, len) = (step as u8, buffer.len());
                buffer[..len.min(64)].fill(tag);
                buffer[len.saturating_sub(64)..].fill(tag);
                out.push((tag, buffer));
            } else {
                let (tag, buffer) = out.swap_remove(roll % out.len());
                let len = buffer.len();
                assert!(buffer[..len.min(64)].iter().all(|&b| b == tag));
                assert!(buffer[len.saturating_sub(64)..].iter().all(|&b| b == tag));
                if roll % 16 != 1 {
                    pool.give(buffer);
                }
            }
        }
        out.into_iter().for_each(|(_, b)| pool.give(b));
        assert_eq!(take_all(&mut pool, 1 << 20).len(), 8);
    }
}

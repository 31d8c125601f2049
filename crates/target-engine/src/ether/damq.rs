//! Memory where a host places the data of a lane.

use roadtrain_proto::time::Instant;
use roadtrain_system::buffer::Buffer;
use roadtrain_system::memory::HugeMemory;
use roadtrain_wire::ether::PAGE_BYTES;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Pages for one request of the largest size.
pub(crate) const PAGES_MIN: u32 = 256;
/// Pages for each slot, if enough memory is left.
const PAGES_PER_SLOT: u32 = 32;
/// Most pages of a lane: 16 MiB.
const PAGES_MAX: u32 = 4096;
/// Divisor: a lane gets at most one eighth of the memory that is left. 128 MiB suffice for 28 lanes.
const PARTS: usize = 8;

/// Data pages of a lane. The system allocates physical memory when the host uses a page.
pub(crate) struct LaneDamq {
    memory: Arc<HugeMemory>,
    /// Time of the last placement since the memory was last returned.
    used: Option<Instant>,
}

/// Returns the pages for a lane of `slots` when `left` bytes are available for lanes; `None` if these are too few.
pub(crate) fn pages(slots: u16, left: usize) -> Option<u32> {
    let share = u32::try_from(left / PARTS / PAGE_BYTES).unwrap_or(u32::MAX).max(PAGES_MIN);
    let wanted = (u32::from(slots) * PAGES_PER_SLOT).clamp(PAGES_MIN, PAGES_MAX).min(share);
    (wanted as usize * PAGE_BYTES <= left).then_some(wanted)
}

impl LaneDamq {
    /// Allocates `pages` pages.
    pub(crate) fn new(pages: u32) -> io::Result<Self> {
        let memory = Arc::new(HugeMemory::new(pages as usize * PAGE_BYTES)?);
        Ok(LaneDamq { memory, used: None })
    }

    /// Returns the size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }

    /// Copies a piece to offset `place`. Returns false if it does not fit.
    pub(crate) fn put(&mut self, now: Instant, place: u64, piece: &[u8]) -> bool {
        let Some(to) = self.memory.range(place, piece.len()) else { return false };
        self.used = Some(now);
        // SAFETY: `range` checked the bounds. No code holds a reference to the memory: data that the host overwrites is
        // the host's to lose.
        unsafe { to.copy_from_nonoverlapping(piece.as_ptr(), piece.len()) };
        true
    }

    /// Lends the data of a request as a buffer. The host may reuse the pages once it has the completion.
    pub(crate) fn lend(&self, place: u64, length: u32) -> Option<Buffer> {
        // SAFETY: the host's data is written through raw pointers, on the reactor's thread.
        unsafe { Buffer::lend(&self.memory, place, length as usize) }
    }

    /// Returns the memory to the system if it was idle for `idle` and no buffer refers to it. The caller ensures that
    /// no request is partly placed: its host does not send those pieces again.
    pub(crate) fn trim(&mut self, now: Instant, idle: Duration) {
        let is_idle = |used: &mut Instant| now.since(*used) >= idle;
        if Arc::strong_count(&self.memory) == 1 && self.used.take_if(is_idle).is_some() {
            let dropped = self.memory.discard(0, self.memory.len());
            debug_assert!(dropped, "the memory lies inside itself");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = PAGE_BYTES as u64;

    #[test]
    fn pages_are_shared_out_until_there_are_too_few() {
        let mib = 1 << 20;
        assert_eq!(pages(128, 128 * mib), Some(4096));
        assert_eq!(pages(128, 64 * mib), Some(2048));
        assert_eq!(pages(1024, 128 * mib), Some(4096));
        assert_eq!(pages(1024, 32 * mib), Some(1024));
        assert_eq!(pages(2, 2 * mib), Some(PAGES_MIN));
        assert_eq!(pages(1024, mib), Some(PAGES_MIN));
        assert_eq!(pages(2, mib - 1), None);
    }

    #[test]
    fn the_usual_memory_does_for_many_lanes() {
        let mut left = 128 << 20;
        let lanes = std::iter::from_fn(|| {
            let pages = pages(128, left)?;
            left -= pages as usize * PAGE_BYTES;
            Some(pages)
        });
        assert_eq!(lanes.count(), 28);
    }

    #[test]
    fn pieces_stay_inside_and_are_lent() {
        let mut damq = LaneDamq::new(PAGES_MIN).unwrap();
        let end = damq.len() as u64;
        assert!(damq.put(Instant(1), end - 3, &[1, 2, 3]));
        assert!(!damq.put(Instant(1), end - 2, &[1, 2, 3]));
        assert!(!damq.put(Instant(1), u64::MAX, &[1, 2, 3]));
        assert!(damq.lend(end - PAGE, PAGE as u32 + 1).is_none());
        let lent = damq.lend(end - PAGE, PAGE as u32).unwrap();
        assert_eq!(lent[PAGE_BYTES - 3..], [1, 2, 3]);
    }

    #[test]
    fn idle_memory_goes_back_unless_it_is_lent() {
        let idle = Duration::from_secs(1);
        let mut damq = LaneDamq::new(PAGES_MIN).unwrap();
        assert!(damq.put(Instant(1), 0, &[7]));
        let lent = damq.lend(0, 1).unwrap();
        damq.trim(Instant(0) + idle * 2, idle);
        assert_eq!(lent[..], [7]);
        drop(lent);
        damq.trim(Instant(0) + idle / 2, idle);
        assert_eq!(damq.lend(0, 1).unwrap()[..], [7]);
        damq.trim(Instant(0) + idle * 2, idle);
        assert_eq!(damq.lend(0, 1).unwrap()[..], [0]);
    }
}

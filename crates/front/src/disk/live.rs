//! A namespace while it is served.

use super::DiskFault;
use super::guard::Guards;
use super::info::DiskInfo;
use super::request::{DiskOp, DiskRequest};
use crate::bitmaps::{DirtyBitmaps, TrackedWrite};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A namespace while it is served; shared by the fronts of its lanes and by the thread that watches it.
#[derive(Debug)]
pub struct LiveDisk {
    info: DiskInfo,
    blocks: AtomicU64,
    removed: AtomicBool,
    guards: Guards,
    bitmaps: OnceLock<Arc<DirtyBitmaps>>,
}

impl LiveDisk {
    /// Makes a disk after checks of `info`.
    ///
    /// # Errors
    /// Returns `InvalidInput` for invalid sizes.
    pub fn new(info: DiskInfo) -> io::Result<Self> {
        info.check()?;
        let (blocks, guards) = (AtomicU64::new(info.blocks), Guards::new(info.lba_bytes));
        let removed = AtomicBool::new(false);
        Ok(LiveDisk { info, blocks, removed, guards, bitmaps: OnceLock::new() })
    }

    /// Returns the properties given to [`LiveDisk::new`]; `blocks` is the first size, not the present one.
    pub fn info(&self) -> &DiskInfo {
        &self.info
    }

    /// Sets the size to `blocks`. From now on requests beyond a smaller end fail, and requests beyond the old end of a
    /// grown namespace succeed.
    pub fn resize(&self, blocks: u64) {
        let most = u64::MAX / u64::from(self.info.lba_bytes);
        let blocks = blocks.min(most);
        if let Some(bitmaps) = self.bitmaps()
            && blocks != self.blocks.load(Ordering::Relaxed)
        {
            let now = blocks * u64::from(self.info.lba_bytes);
            let before = self.bytes();
            bitmaps.invalidate(&format!("the namespace was resized from {before} to {now} bytes"));
        }
        self.blocks.store(blocks, Ordering::Relaxed);
    }

    /// Marks the namespace as gone: requests are refused until [`LiveDisk::restore`].
    pub fn remove(&self) {
        if let Some(bitmaps) = self.bitmaps()
            && !self.is_removed()
        {
            bitmaps.invalidate("the namespace was removed or replaced");
        }
        self.removed.store(true, Ordering::Relaxed);
    }

    /// Marks the namespace as present again.
    pub fn restore(&self) {
        self.removed.store(false, Ordering::Relaxed);
    }

    /// Applies the state of the namespace: its size in blocks, or `None` if it is gone.
    pub fn update(&self, blocks: Option<u64>) {
        match blocks {
            Some(blocks) => {
                self.resize(blocks);
                self.restore();
            }
            None => self.remove(),
        }
    }

    /// True if the namespace is gone.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Relaxed)
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed) * u64::from(self.info.lba_bytes)
    }

    /// Checks that the disk can carry out `request`; [`DiskJobs`](super::DiskJobs) takes only such requests.
    pub(crate) fn check(&self, request: &DiskRequest) -> Result<(), DiskFault> {
        if self.is_removed() {
            return Err(DiskFault::Gone);
        }
        let (op, info) = (request.op, &self.info);
        if op.writes() && info.read_only {
            return Err(DiskFault::ReadOnly);
        }
        match op {
            DiskOp::Discard if !info.trim => return Err(DiskFault::NotServed),
            DiskOp::WriteZeroes { .. } if !info.write_zeroes => return Err(DiskFault::NotServed),
            DiskOp::Flush => return Ok(()),
            _ => {}
        }
        let end = request.offset.checked_add(request.length.into());
        let inside = end.is_some_and(|end| end <= self.bytes());
        if inside { Ok(()) } else { Err(DiskFault::beyond_the_end(op)) }
    }

    /// Keeps `bitmaps` of all changes from now on. To be called once, before the first request.
    pub(crate) fn keep_bitmaps(&self, bitmaps: Arc<DirtyBitmaps>) {
        let is_first = self.bitmaps.set(bitmaps).is_ok();
        debug_assert!(is_first);
    }

    /// Returns the bitmaps of changes, if the disk has any.
    pub fn bitmaps(&self) -> Option<&Arc<DirtyBitmaps>> {
        self.bitmaps.get()
    }

    /// Marks the bytes of a request that changes the disk, before any of it is sent.
    pub(crate) fn track(&self, request: &DiskRequest) -> Option<TrackedWrite> {
        match self.bitmaps.get() {
            Some(bitmaps) if request.op.writes() => {
                Some(bitmaps.begin(request.offset, request.length))
            }
            _ => None,
        }
    }

    pub(crate) fn guards(&self) -> &Guards {
        &self.guards
    }
}

#[cfg(test)]
mod tests {
    use super::super::info::test_info;
    use super::*;

    fn check(disk: &LiveDisk, op: DiskOp, offset: u64, length: u32) -> Result<(), DiskFault> {
        disk.check(&DiskRequest { op, offset, length, fua: false })
    }

    #[test]
    fn resize_is_seen_and_bounded() {
        let disk = LiveDisk::new(test_info()).unwrap();
        assert_eq!(disk.bytes(), 1 << 20);
        disk.resize(4096);
        assert_eq!(disk.bytes(), 2 << 20);
        disk.resize(u64::MAX);
        assert_eq!(disk.bytes(), u64::MAX - 511);
    }

    #[test]
    fn ranges_must_be_inside() {
        let disk = LiveDisk::new(test_info()).unwrap();
        let end = 1 << 20;
        for (op, fault) in [
            (DiskOp::Read, DiskFault::Invalid),
            (DiskOp::Write, DiskFault::NoSpace),
            (DiskOp::WriteZeroes { deallocate: true }, DiskFault::NoSpace),
            (DiskOp::Discard, DiskFault::Invalid),
        ] {
            assert_eq!(check(&disk, op, end - 1, 1), Ok(()));
            assert_eq!(check(&disk, op, end, 1), Err(fault));
            assert_eq!(check(&disk, op, end - 1, 2), Err(fault));
            assert_eq!(check(&disk, op, u64::MAX, 2), Err(fault));
        }
        disk.resize(1);
        assert_eq!(check(&disk, DiskOp::Read, 512, 1), Err(DiskFault::Invalid));
        disk.update(None);
        assert_eq!(check(&disk, DiskOp::Flush, 0, 0), Err(DiskFault::Gone));
        disk.update(Some(2));
        assert_eq!(check(&disk, DiskOp::Read, 512, 1), Ok(()));
    }

    #[test]
    fn only_what_is_served_is_taken() {
        let zeroes = DiskOp::WriteZeroes { deallocate: false };
        let disk =
            LiveDisk::new(DiskInfo { trim: false, write_zeroes: false, ..test_info() }).unwrap();
        assert_eq!(check(&disk, DiskOp::Discard, 0, 512), Err(DiskFault::NotServed));
        assert_eq!(check(&disk, zeroes, 0, 512), Err(DiskFault::NotServed));
        let disk = LiveDisk::new(DiskInfo { read_only: true, ..test_info() }).unwrap();
        for op in [DiskOp::Write, DiskOp::Discard, zeroes] {
            assert_eq!(check(&disk, op, 0, 512), Err(DiskFault::ReadOnly));
        }
        assert_eq!(check(&disk, DiskOp::Read, 0, 512), Ok(()));
        assert_eq!(check(&disk, DiskOp::Flush, 0, 0), Ok(()));
    }
}

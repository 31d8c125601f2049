//! Where a namespace's blocks are kept: memory, nothing at all, a file, or a block device.
//!
//! Memory and null answer at once, straight from and to their bytes ([`Backend::read_range`],
//! [`Backend::write_range`], [`Backend::write_at`]). Files and block devices answer through the
//! reactor's ring: an [`IoTask`] carries one operation through short transfers, retries and
//! fall-backs. An `IoTask` takes operations for every kind of backend, so a caller that does not
//! care for the short cut needs only that.
//!
//! An emulated SSD is memory at the pace of a [`Station`]: whoever executes an operation on it lets
//! the time pass first.

mod change;
mod disk;
mod flushes;
mod identity;
mod immediate;
mod op;
mod spec;
mod station;
mod status;
mod task;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use roadtrain_wire::status::Status;

use crate::memory::{HugeMemory, PAGE_BYTES};
pub(crate) use change::{Place, Resize};
use disk::Disk;
pub(crate) use flushes::{Flushes, Unflushed, Waker};
pub use op::{ByteRange, IoOp};
pub use spec::{BackendKind, BackendSpec, OpenError};
pub use station::Station;
pub use task::{IoTask, Progress};

/// What a host has to know about a namespace's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Block size as a power of two: 9 or 12.
    pub lba_shift: u8,
    /// Capacity.
    pub blocks: u64,
    /// Writes are refused.
    pub read_only: bool,
    /// Writes may be lost with the power until flushed.
    pub volatile_cache: bool,
}

impl Geometry {
    /// Block size in bytes.
    #[must_use]
    pub fn lba_bytes(&self) -> u32 {
        1 << self.lba_shift
    }

    /// Capacity in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks << self.lba_shift
    }
}

/// An open backend, shared by all reactors.
#[derive(Debug)]
pub struct Backend {
    lba_shift: u8,
    /// Changes when the backend grows or shrinks.
    blocks: AtomicU64,
    read_only: bool,
    store: Store,
    /// An emulated SSD's pace.
    station: Option<Station>,
    /// What tells its blocks from all others, once somebody has asked.
    identity: OnceLock<u128>,
    /// `None`: what was written stays, or never was anywhere.
    flushes: Option<Flushes>,
    /// [`Backend::close`] was called.
    closed: AtomicBool,
}

#[derive(Debug)]
enum Store {
    /// May be larger than the capacity, as room to grow.
    Memory(HugeMemory),
    Null,
    Disk(Arc<Disk>),
}

/// Zeroes to read or to write from, in .bss.
#[repr(align(4096))]
struct Zeroes([u8; 1 << 20]);
static ZEROES: Zeroes = Zeroes([0; 1 << 20]);
const _: () = assert!(align_of::<Zeroes>() == PAGE_BYTES);

/// Memory is mapped this many times its size, as room for [`Backend::resize`]; costs addresses
/// only.
const MEMORY_GROWTH_MAX: u64 = 4;

impl Backend {
    /// Opens what `spec` names; a file may be created or grown for it.
    pub fn open(spec: &BackendSpec) -> Result<Backend, OpenError> {
        let lba_shift = spec.lba_shift()?;
        let (store, bytes) = match &spec.kind {
            BackendKind::Memory { size } => {
                (Store::Memory(map(spec.whole_blocks("mem", *size)?)?), *size)
            }
            BackendKind::Ssd { size, .. } => {
                (Store::Memory(map(spec.whole_blocks("ssd", *size)?)?), *size)
            }
            BackendKind::Null { size } => (Store::Null, spec.whole_blocks("null", *size)?),
            BackendKind::File { path, size, create } => {
                let disk = Disk::open_file(spec, path, *size, *create)?;
                let bytes = disk.bytes().map_err(|e| OpenError::io(path, "read the size of", e))?;
                (Store::Disk(Arc::new(disk)), bytes)
            }
            BackendKind::Block { path } => {
                let disk = Disk::open_block(spec, path)?;
                let bytes = disk.bytes().map_err(|e| OpenError::io(path, "read the size of", e))?;
                (Store::Disk(Arc::new(disk)), bytes)
            }
            #[cfg(test)]
            BackendKind::Fifo { path, size } => {
                (Store::Disk(Arc::new(Disk::open_fifo(path, spec.read_only))), *size)
            }
        };
        let blocks = AtomicU64::new(bytes >> lba_shift);
        let station = match spec.kind {
            BackendKind::Ssd { service, parallel, .. } => Some(Station::new(service, parallel)),
            _ => None,
        };
        let flushes = matches!(store, Store::Disk(_)).then(Flushes::default);
        let (read_only, closed) = (spec.read_only, AtomicBool::new(false));
        let identity = OnceLock::new();
        Ok(Backend { lba_shift, blocks, read_only, store, station, identity, flushes, closed })
    }

    /// Block size, capacity and so on, as they are now.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        Geometry {
            lba_shift: self.lba_shift,
            blocks: self.blocks.load(Ordering::Relaxed),
            read_only: self.read_only,
            volatile_cache: matches!(self.store, Store::Disk(_)) && !self.read_only,
        }
    }

    /// Looks whether somebody grew or shrank the file or device, and returns the geometry from now
    /// on.
    pub fn refresh(&self) -> io::Result<Geometry> {
        if let Store::Disk(disk) = &self.store {
            self.set_bytes(disk.bytes()?);
        }
        Ok(self.geometry())
    }

    /// What an operation has to wait for before it is started: an emulated SSD's time.
    #[inline]
    #[must_use]
    pub fn station(&self) -> Option<&Station> {
        self.station.as_ref()
    }

    /// Who is to be told of failed flushes; `None`: none fails.
    #[inline]
    #[must_use]
    pub(crate) fn flushes(&self) -> Option<&Flushes> {
        self.flushes.as_ref()
    }

    /// The next `count` flushes fail; returns how many of those told before are still to fail, less than none
    /// by those that were asked for beyond.
    #[cfg(test)]
    pub(crate) fn fail_flushes(&self, count: i64) -> i64 {
        let Store::Disk(disk) = &self.store else { return 0 };
        disk.failing_syncs.swap(count, Ordering::Relaxed)
    }

    /// Counts down with each flush, also when the backend is gone.
    #[cfg(test)]
    pub(crate) fn count_flushes(&self) -> Arc<std::sync::atomic::AtomicI64> {
        let Store::Disk(disk) = &self.store else { return Arc::default() };
        disk.failing_syncs.store(0, Ordering::Relaxed);
        disk.failing_syncs.clone()
    }

    /// Brings everything to stable storage: nobody writes any more. Waits for that.
    ///
    /// # Errors
    /// What was written may be lost, now or earlier without its host being told.
    pub(crate) fn close(&self) -> io::Result<()> {
        let (Store::Disk(disk), Some(flushes)) = (&self.store, &self.flushes) else {
            return Ok(());
        };
        if self.read_only || self.closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        disk.sync()?;
        match flushes.untold() {
            0 => Ok(()),
            hosts => Err(io::Error::other(format!(
                "an earlier flush had failed, and {hosts} of the hosts that wrote were not told"
            ))),
        }
    }

    /// Whether every operation completes within [`IoTask::start`].
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        !matches!(self.store, Store::Disk(_))
    }

    /// The bytes themselves, to send from without a copy in between; others may write them
    /// meanwhile, as on any disk. Valid as long as the backend. `None`: use an [`IoTask`], which
    /// also tells what is wrong. Not before the time of the [`station`](Self::station) has passed.
    #[inline]
    #[must_use]
    pub fn read_range(&self, offset: u64, len: usize) -> Option<*const u8> {
        match &self.store {
            Store::Memory(memory) if self.holds(offset, len as u64) => {
                memory.range(offset, len).map(<*mut u8>::cast_const)
            }
            Store::Null if self.holds(offset, len as u64) && len <= ZEROES.0.len() => {
                Some(ZEROES.0.as_ptr())
            }
            _ => None,
        }
    }

    /// The bytes themselves, to receive into without a copy in between. Valid as long as the
    /// backend. `None`: use [`write_at`](Self::write_at) or an [`IoTask`]; an emulated SSD's bytes
    /// change when their time has come, not while they arrive.
    #[inline]
    #[must_use]
    pub fn write_range(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let writable = !self.read_only && self.station.is_none();
        match &self.store {
            Store::Memory(memory) if writable && self.holds(offset, len as u64) => {
                memory.range(offset, len)
            }
            _ => None,
        }
    }

    /// Writes at once if the backend can. `false`: nothing was written; use an [`IoTask`].
    #[inline]
    #[must_use]
    pub fn write_at(&self, offset: u64, data: &[u8]) -> bool {
        match &self.store {
            Store::Null => !self.read_only && self.holds(offset, data.len() as u64),
            _ => match self.write_range(offset, data.len()) {
                Some(to) => {
                    // SAFETY: `write_range` checked the bounds, and `data` is not part of the
                    // backend's memory, to which no references exist.
                    unsafe { to.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
                    true
                }
                None => false,
            },
        }
    }

    /// Whether the range lies inside the capacity.
    #[inline]
    fn holds(&self, offset: u64, len: u64) -> bool {
        let bytes = self.blocks.load(Ordering::Relaxed) << self.lba_shift;
        offset.checked_add(len).is_some_and(|end| end <= bytes)
    }

    fn check_range(&self, offset: u64, len: u64) -> Result<(), Status> {
        if self.holds(offset, len) { Ok(()) } else { Err(Status::LBA_OUT_OF_RANGE.dnr()) }
    }

    fn set_bytes(&self, bytes: u64) {
        self.blocks.store(bytes >> self.lba_shift, Ordering::Relaxed);
    }
}

impl Drop for Backend {
    /// Its namespace is gone, perhaps with writes that nobody has flushed. A reactor must not wait for that.
    fn drop(&mut self) {
        let is_clean = self.flushes.as_ref().is_none_or(Flushes::is_clean);
        if is_clean || self.read_only || *self.closed.get_mut() {
            return;
        }
        let Store::Disk(disk) = &self.store else { return };
        let last = disk.last_flush();
        let flush = move || last.run();
        if let Err(error) = std::thread::Builder::new().name("roadtrain-flush".into()).spawn(flush)
        {
            tracing::error!(%error, "a namespace that was removed is not flushed");
        }
    }
}

fn map(size: u64) -> Result<HugeMemory, OpenError> {
    let failed = |source| OpenError::Memory { size, source };
    let len = usize::try_from(size).map_err(|_| failed(io::ErrorKind::OutOfMemory.into()))?;
    let roomy = len.checked_mul(MEMORY_GROWTH_MAX as usize);
    // Where the system counts addresses as memory, there is no room to grow.
    roomy
        .and_then(|roomy| HugeMemory::new(roomy).ok())
        .map_or_else(|| HugeMemory::new(len).map_err(failed), Ok)
}

//! The guest's memory, as the frontend shares it.

use super::lost_memory::{Guard, is_set, seal};
use rustix::fs::{fcntl_get_seals, fstatfs};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::mmap::{GuestRegionMmap, MmapRegion};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

/// Type of FUSE in statfs.
const FUSE_MAGIC: u32 = 0x6573_5546;
/// Longest wait for a file system to return its type.
const FUSE_TIMEOUT: Duration = Duration::from_secs(2);
const FUSE: &str = "the shared memory is a file of FUSE, whose program could make every access wait: use a memfd \
    or a file of tmpfs or hugetlbfs";

/// The guest's memory, mapped. Every access is checked against its regions. Memory that the frontend has cut becomes
/// empty: a reader checks [`is_lost`](Self::is_lost) before it trusts the data.
pub(crate) struct MappedMemory {
    /// Dropped before the mappings that they guard.
    _guards: Vec<Guard>,
    lost: Arc<AtomicBool>,
    mapped: GuestMemoryMmap<()>,
}

impl MappedMemory {
    pub(crate) fn new(mapped: GuestMemoryMmap<()>) -> io::Result<Self> {
        let lost = Arc::default();
        let guard =
            |region: &GuestRegionMmap<()>| Guard::new(region.as_ptr(), region.size(), &lost);
        let guards = mapped.iter().map(guard).collect::<io::Result<_>>()?;
        Ok(MappedMemory { _guards: guards, lost, mapped })
    }

    /// True if an access found memory that the frontend had cut.
    pub(crate) fn is_lost(&self) -> bool {
        is_set(&self.lost)
    }
}

impl Deref for MappedMemory {
    type Target = GuestMemoryMmap<()>;

    fn deref(&self) -> &GuestMemoryMmap<()> {
        &self.mapped
    }
}

/// A region's addresses: in the frontend's address space, which virtqueue addresses refer to, and in the guest's.
struct SharedRegion {
    user: u64,
    guest: u64,
    bytes: u64,
}

/// All regions that the frontend shares.
pub(crate) struct MemoryTable {
    memory: Arc<MappedMemory>,
    regions: Vec<SharedRegion>,
}

impl MemoryTable {
    /// Maps `regions`, each from its file.
    ///
    /// # Errors
    /// Fails if regions overlap, are beyond their files or cannot be mapped.
    pub(crate) fn map(regions: &[VhostUserMemoryRegion], files: Vec<File>) -> io::Result<Self> {
        let mapped: Result<Vec<_>, _> =
            regions.iter().zip(files).map(|(region, file)| map_region(region, file)).collect();
        let memory = GuestMemoryMmap::from_regions(mapped?).map_err(io::Error::other)?;
        let memory = MappedMemory::new(memory)?;
        let regions = regions.iter().map(|region| SharedRegion {
            user: region.user_addr,
            guest: region.guest_phys_addr,
            bytes: region.memory_size,
        });
        Ok(MemoryTable { memory: Arc::new(memory), regions: regions.collect() })
    }

    /// The memory.
    pub(crate) fn memory(&self) -> &Arc<MappedMemory> {
        &self.memory
    }

    /// Converts the address `user` in the frontend's address space to the guest's.
    pub(crate) fn guest_address(&self, user: u64) -> Option<GuestAddress> {
        self.regions.iter().find_map(|region| {
            let offset = user.checked_sub(region.user).filter(|offset| *offset < region.bytes)?;
            Some(GuestAddress(region.guest + offset))
        })
    }
}

/// Pending queries of a file system's type, in the whole process.
static PENDING_QUERIES: AtomicUsize = AtomicUsize::new(0);
/// Most pending queries; with so many, no other is started.
const PENDING_QUERIES_MAX: usize = 16;

/// Refuses memory in a FUSE file: an access to it would wait for FUSE's program, which may be the frontend's.
fn refuse_fuse(file: &File) -> io::Result<()> {
    // Memory that can be sealed is the kernel's own.
    if fcntl_get_seals(file).is_ok() {
        return Ok(());
    }
    // FUSE passes the query to its program, too. Each program that does not answer keeps a thread waiting.
    if PENDING_QUERIES.fetch_add(1, Ordering::Relaxed) >= PENDING_QUERIES_MAX {
        PENDING_QUERIES.fetch_sub(1, Ordering::Relaxed);
        return Err(io::Error::new(io::ErrorKind::Unsupported, FUSE));
    }
    let (file, (sender, answer)) = (file.try_clone()?, sync_channel(1));
    let query = move || {
        let found = fstatfs(&file);
        PENDING_QUERIES.fetch_sub(1, Ordering::Relaxed);
        let _ = sender.send(found.map(|found| found.f_type as u32));
    };
    let queries = std::thread::Builder::new().name("memory-kind".into()).spawn(query);
    queries.inspect_err(|_| _ = PENDING_QUERIES.fetch_sub(1, Ordering::Relaxed))?;
    match answer.recv_timeout(FUSE_TIMEOUT) {
        Ok(Ok(kind)) if kind != FUSE_MAGIC => Ok(()),
        Ok(Err(error)) => Err(error.into()),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, FUSE)),
    }
}

/// Maps `bytes` of `file` from `offset`; seals the file first if possible. Fails beyond the file's end: the mapping
/// would succeed, but an access would not.
pub(crate) fn map_file(file: File, offset: u64, bytes: u64) -> io::Result<MmapRegion<()>> {
    refuse_fuse(&file)?;
    // Sealed before its size is checked.
    seal(&file);
    let end = offset.checked_add(bytes);
    if bytes == 0 || end.is_none_or(|end| end > file.metadata().map_or(0, |file| file.len())) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "memory beyond the end of its file",
        ));
    }
    let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
    MmapRegion::from_file(FileOffset::new(file, offset), bytes).map_err(io::Error::other)
}

fn map_region(region: &VhostUserMemoryRegion, file: File) -> io::Result<GuestRegionMmap<()>> {
    let guest = GuestAddress(region.guest_phys_addr);
    let mapping = map_file(file, region.mmap_offset, region.memory_size)?;
    GuestRegionMmap::new(mapping, guest)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "memory beyond all addresses"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, open};
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    use std::ffi::CString;
    use std::os::fd::AsRawFd;
    use std::time::Instant;
    use vm_memory::Bytes;

    fn file(bytes: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        file
    }

    fn region(guest: u64, user: u64, offset: u64) -> VhostUserMemoryRegion {
        VhostUserMemoryRegion::new(guest, 0x1000, user, offset)
    }

    #[test]
    fn regions_are_mapped_and_found_by_the_frontends_addresses() {
        let regions = [region(0, 0x7000, 0), region(0x4000, 0x9000, 0x1000)];
        let files = vec![file(0x1000), file(0x2000)];
        let second = files[1].try_clone().unwrap();
        let table = MemoryTable::map(&regions, files).unwrap();
        assert_eq!(table.guest_address(0x7010), Some(GuestAddress(0x10)));
        assert_eq!(table.guest_address(0x9fff), Some(GuestAddress(0x4fff)));
        for nowhere in [0, 0x6fff, 0x8000, 0xa000, u64::MAX] {
            assert_eq!(table.guest_address(nowhere), None, "{nowhere:x}");
        }
        table.memory().write_slice(b"there", GuestAddress(0x4100)).unwrap();
        let mut bytes = [0; 5];
        std::os::unix::fs::FileExt::read_exact_at(&second, &mut bytes, 0x1100).unwrap();
        assert_eq!(&bytes, b"there");
        assert!(table.memory().write_slice(b"over", GuestAddress(0xffe)).is_err());
    }

    /// FUSE whose program never answers: a thread that queries the file, or touches its memory, waits.
    #[test]
    fn memory_of_a_silent_fuse_is_refused() {
        let Ok(device) = File::options().read(true).write(true).open("/dev/fuse") else {
            return crate::skipped::skipped("mounting needs root and /dev/fuse");
        };
        let directory = tempfile::tempdir().unwrap();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        let options = CString::new(options).unwrap();
        let at = directory.path();
        if let Err(error) = mount("none", at, "fuse", MountFlags::empty(), Some(&*options)) {
            return crate::skipped::skipped(format!("FUSE cannot be mounted: {error}"));
        }
        let root = open(at, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map(File::from);
        let begun = Instant::now();
        let refused = root.map(|root| map_file(root, 0, 4096).map(drop));
        let took = begun.elapsed();
        drop(device);
        unmount(at, UnmountFlags::DETACH).unwrap();
        let error = refused.unwrap().unwrap_err();
        assert!(error.to_string().contains("FUSE"), "{error}");
        assert!(took < Duration::from_secs(20), "{took:?}");
    }

    #[test]
    fn memory_that_is_not_there_is_refused() {
        let map = |region, bytes| MemoryTable::map(&[region], vec![file(bytes)]).map(drop);
        assert!(map(region(0, 0, 0), 0x1000).is_ok());
        assert!(map(region(0, 0, 0), 0xfff).is_err());
        assert!(map(region(0, 0, 0x1000), 0x1000).is_err());
        assert!(map(region(0, 0, 0x800), 0x2000).is_err(), "no page begins there");
        assert!(map(region(u64::MAX, 0, 0), 0x1000).is_err());
        assert!(map(VhostUserMemoryRegion::new(0, u64::MAX, 0, 1), 0x1000).is_err());
        let overlapping = [region(0, 0, 0), region(0x800, 0x1000, 0)];
        assert!(MemoryTable::map(&overlapping, vec![file(0x1000), file(0x1000)]).is_err());
    }
}

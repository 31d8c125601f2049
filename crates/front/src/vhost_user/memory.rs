//! The guest's memory, as the frontend shares it.

use super::lost_memory::{Guard, is_set, seal};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::mmap::{GuestRegionMmap, MmapRegion};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

/// The guest's memory, mapped. Every access is checked against its regions. When the frontend takes it away
/// it becomes empty: who has read from it asks whether it [`is_lost`](Self::is_lost) before believing what
/// was read.
pub(crate) struct Memory {
    /// Dropped before what they guard.
    _guards: Vec<Guard>,
    lost: Arc<AtomicBool>,
    mapped: GuestMemoryMmap<()>,
}

impl Memory {
    pub(crate) fn new(mapped: GuestMemoryMmap<()>) -> io::Result<Self> {
        let lost = Arc::default();
        let guard =
            |region: &GuestRegionMmap<()>| Guard::new(region.as_ptr(), region.size(), &lost);
        let guards = mapped.iter().map(guard).collect::<io::Result<_>>()?;
        Ok(Memory { _guards: guards, lost, mapped })
    }

    /// Whether something of it was not there when it was accessed.
    pub(crate) fn is_lost(&self) -> bool {
        is_set(&self.lost)
    }
}

impl Deref for Memory {
    type Target = GuestMemoryMmap<()>;

    fn deref(&self) -> &GuestMemoryMmap<()> {
        &self.mapped
    }
}

/// Where a region is in the frontend's address space, which virtqueues are told in.
struct Region {
    user: u64,
    guest: u64,
    bytes: u64,
}

/// All regions that the frontend told of.
pub(crate) struct MemoryTable {
    memory: Arc<Memory>,
    regions: Vec<Region>,
}

impl MemoryTable {
    /// Maps `regions`, each from its file.
    ///
    /// # Errors
    /// When they overlap, are beyond their files or cannot be mapped.
    pub(crate) fn map(regions: &[VhostUserMemoryRegion], files: Vec<File>) -> io::Result<Self> {
        let mapped: Result<Vec<_>, _> =
            regions.iter().zip(files).map(|(region, file)| map_region(region, file)).collect();
        let memory = GuestMemoryMmap::from_regions(mapped?).map_err(io::Error::other)?;
        let memory = Memory::new(memory)?;
        let regions = regions.iter().map(|region| Region {
            user: region.user_addr,
            guest: region.guest_phys_addr,
            bytes: region.memory_size,
        });
        Ok(MemoryTable { memory: Arc::new(memory), regions: regions.collect() })
    }

    /// The memory.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The guest's address of what is at `user` in the frontend's address space.
    pub(crate) fn guest_address(&self, user: u64) -> Option<GuestAddress> {
        self.regions.iter().find_map(|region| {
            let offset = user.checked_sub(region.user).filter(|offset| *offset < region.bytes)?;
            Some(GuestAddress(region.guest + offset))
        })
    }
}

/// Maps `bytes` of `file` from `offset`, which its owner cannot cut any more if that can be had. What lies
/// beyond the file's end would be there to touch.
pub(crate) fn map_file(file: File, offset: u64, bytes: u64) -> io::Result<MmapRegion<()>> {
    // Before its size is looked at.
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
        let mut octets = [0; 5];
        std::os::unix::fs::FileExt::read_exact_at(&second, &mut octets, 0x1100).unwrap();
        assert_eq!(&octets, b"there");
        assert!(table.memory().write_slice(b"over", GuestAddress(0xffe)).is_err());
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

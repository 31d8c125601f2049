//! A guest for tests: its memory, and the driver of a virtqueue in it.

use super::memory::MappedMemory;
use roadtrain_wire::virtio_blk::{RangeSegment, RequestHeader};
use roadtrain_wire::zerocopy::IntoBytes;
use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

/// Bytes of a guest's memory.
pub(crate) const MEMORY_BYTES: u64 = 64 << 20;
/// Address of the guest's memory in the frontend's address space.
pub(crate) const USER_BASE: u64 = 0x7f00_0000_0000;
/// Bytes of a queue's share of the memory.
const SHARE_BYTES: u64 = 8 << 20;
const AVAIL: u64 = 0x8000;
const USED: u64 = 0x10000;
const ARENA: u64 = 0x20000;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// A descriptor, and its content.
#[derive(Clone, Debug)]
pub(crate) enum ChainPart {
    /// Device-readable bytes.
    Read(Vec<u8>),
    /// Number of device-writable bytes.
    Write(u32),
}

/// Descriptors and ranges of a chain.
#[derive(Clone, Debug)]
pub(crate) struct ChainLayout {
    descriptors: Vec<u16>,
    writable: Vec<(u64, u32)>,
}

/// Driver of one queue.
pub(crate) struct Guest {
    memory: Arc<MappedMemory>,
    pub(crate) file: Arc<File>,
    pub(crate) base: u64,
    size: u16,
    free: Vec<u16>,
    chains: HashMap<u16, ChainLayout>,
    arena: u64,
    avail: u16,
    used: u16,
}

impl Guest {
    /// Makes a guest with one queue.
    pub(crate) fn new(size: u16) -> Self {
        let file = tempfile::tempfile().unwrap();
        file.set_len(MEMORY_BYTES).unwrap();
        let offset = FileOffset::new(file.try_clone().unwrap(), 0);
        let range = (GuestAddress(0), MEMORY_BYTES as usize, Some(offset));
        let memory = GuestMemoryMmap::from_ranges_with_files([range]).unwrap();
        Self::on(Arc::new(MappedMemory::new(memory).unwrap()), Arc::new(file), 0, size)
    }

    fn on(memory: Arc<MappedMemory>, file: Arc<File>, index: u64, size: u16) -> Self {
        let base = index * SHARE_BYTES;
        let free = (0..size).rev().collect();
        let chains = HashMap::new();
        Guest { memory, file, base, size, free, chains, arena: 0, avail: 0, used: 0 }
    }

    /// Returns another queue of the same guest.
    pub(crate) fn queue(&self, index: u64) -> Self {
        Self::on(self.memory.clone(), self.file.clone(), index, self.size)
    }

    pub(crate) fn memory(&self) -> &Arc<MappedMemory> {
        &self.memory
    }

    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// Returns the address of the descriptor table.
    pub(crate) fn table(&self) -> GuestAddress {
        GuestAddress(self.base)
    }

    pub(crate) fn avail_ring(&self) -> GuestAddress {
        GuestAddress(self.base + AVAIL)
    }

    pub(crate) fn used_ring(&self) -> GuestAddress {
        GuestAddress(self.base + USED)
    }

    pub(crate) fn header(operation: u32, sector: u64) -> Vec<u8> {
        let (operation, sector) = (operation.into(), sector.into());
        RequestHeader { operation, reserved: 0.into(), sector }.as_bytes().to_vec()
    }

    pub(crate) fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
        let (sector, sectors, flags) = (sector.into(), sectors.into(), flags.into());
        RangeSegment { sector, sectors, flags }.as_bytes().to_vec()
    }

    /// Puts a descriptor into the table at `table`.
    pub(crate) fn put(&self, table: GuestAddress, index: u16, descriptor: Descriptor) {
        self.memory.write_obj(descriptor, GuestAddress(table.0 + u64::from(index) * 16)).unwrap();
    }

    /// Reserves `bytes` bytes of memory.
    fn reserve(&mut self, bytes: u32) -> u64 {
        let bytes = u64::from(bytes).next_multiple_of(16);
        if ARENA + self.arena + bytes > SHARE_BYTES {
            self.arena = 0;
        }
        let at = self.base + ARENA + self.arena;
        self.arena += bytes;
        at
    }

    fn place(&mut self, part: &ChainPart) -> (u64, u32, u16) {
        match part {
            ChainPart::Read(bytes) => {
                let at = self.reserve(bytes.len() as u32);
                self.memory.write_slice(bytes, GuestAddress(at)).unwrap();
                (at, bytes.len() as u32, 0)
            }
            ChainPart::Write(bytes) => {
                let at = self.reserve(*bytes);
                let poison = vec![0xee; *bytes as usize];
                self.memory.write_slice(&poison, GuestAddress(at)).unwrap();
                (at, *bytes, WRITE)
            }
        }
    }

    /// Lays out a chain of `parts`; returns its head.
    pub(crate) fn lay_chain(&mut self, parts: &[ChainPart]) -> u16 {
        let at = self.free.len() - parts.len();
        let descriptors = self.free.split_off(at);
        self.fill(self.table(), parts, descriptors.clone(), descriptors)
    }

    /// Lays out a chain in an indirect table; returns its head.
    pub(crate) fn lay_indirect_chain(&mut self, parts: &[ChainPart]) -> u16 {
        let bytes = 16 * parts.len() as u32;
        let table = self.reserve(bytes);
        let head = self.free.pop().unwrap();
        self.put(self.table(), head, Descriptor::new(table, bytes, INDIRECT, 0));
        let indices = (0..parts.len() as u16).collect();
        self.fill(GuestAddress(table), parts, indices, vec![head])
    }

    fn fill(
        &mut self,
        table: GuestAddress,
        parts: &[ChainPart],
        indices: Vec<u16>,
        descriptors: Vec<u16>,
    ) -> u16 {
        let mut writable = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            let (address, bytes, flags) = self.place(part);
            let next = indices.get(at + 1);
            let flags = flags | if next.is_some() { NEXT } else { 0 };
            if flags & WRITE != 0 {
                writable.push((address, bytes));
            }
            let descriptor =
                Descriptor::new(address, bytes, flags, next.copied().unwrap_or_default());
            self.put(table, indices[at], descriptor);
        }
        let head = descriptors[0];
        self.chains.insert(head, ChainLayout { descriptors, writable });
        head
    }

    /// Puts `head` into the available ring; the caller kicks the device.
    pub(crate) fn offer(&mut self, head: u16) {
        let ring = self.avail_ring().0;
        let slot = ring + 4 + 2 * u64::from(self.avail % self.size);
        self.memory.write_obj(head, GuestAddress(slot)).unwrap();
        self.avail = self.avail.wrapping_add(1);
        self.set_avail(self.avail);
    }

    /// Sets the available ring's index.
    pub(crate) fn set_avail(&self, index: u16) {
        let order = std::sync::atomic::Ordering::Release;
        self.memory.store(index, GuestAddress(self.avail_ring().0 + 2), order).unwrap();
    }

    /// Enables notifications of each used chain.
    pub(crate) fn arm(&self) {
        let at = self.avail_ring().0 + 4 + 2 * u64::from(self.size);
        self.memory.write_obj(self.used, GuestAddress(at)).unwrap();
    }

    pub(crate) fn used_index(&self) -> u16 {
        let order = std::sync::atomic::Ordering::Acquire;
        self.memory.load(GuestAddress(self.used_ring().0 + 2), order).unwrap()
    }

    /// True if a used chain is pending.
    pub(crate) fn has_used(&self) -> bool {
        self.used_index() != self.used
    }

    /// Returns the available index at which the device wants a kick.
    pub(crate) fn avail_event(&self) -> u16 {
        let at = self.used_ring().0 + 4 + 8 * u64::from(self.size);
        self.memory.read_obj(GuestAddress(at)).unwrap()
    }

    /// Resets the queue, as after a reset of the device.
    pub(crate) fn reset(&mut self) {
        let zeroes = vec![0; ARENA as usize];
        self.memory.write_slice(&zeroes, GuestAddress(self.base)).unwrap();
        let index = self.base / SHARE_BYTES;
        *self = Self::on(self.memory.clone(), self.file.clone(), index, self.size);
    }

    /// Returns the next used chain: its head, the written bytes, and the reported length.
    pub(crate) fn next_used(&mut self) -> Option<(u16, Vec<u8>, u32)> {
        if !self.has_used() {
            return None;
        }
        let slot = self.used_ring().0 + 4 + 8 * u64::from(self.used % self.size);
        let [head, length]: [u32; 2] = self.memory.read_obj(GuestAddress(slot)).unwrap();
        self.used = self.used.wrapping_add(1);
        let laid = self.chains.remove(&(head as u16)).expect("used once");
        let mut bytes = Vec::new();
        for (address, written) in laid.writable {
            let at = bytes.len();
            bytes.resize(at + written as usize, 0);
            self.memory.read_slice(&mut bytes[at..], GuestAddress(address)).unwrap();
        }
        self.free.extend(laid.descriptors);
        Some((head as u16, bytes, length))
    }
}

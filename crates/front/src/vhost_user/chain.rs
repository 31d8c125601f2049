//! A descriptor chain, read from the guest's memory. Nothing in it is trusted.

use super::memory::MappedMemory;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions};

/// Most descriptors of a chain, in a table of its own.
pub(crate) const CHAIN_MAX: u16 = 1024;
/// Bytes of a descriptor.
pub(crate) const DESCRIPTOR_BYTES: u64 = size_of::<Descriptor>() as u64;

/// Cause of an invalid chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadChain {
    #[error("descriptor {index} of {size}")]
    NoSuchDescriptor { index: u16, size: u16 },
    #[error("a chain without end")]
    TooLong,
    #[error("{length} bytes at {address:#x} are not the guest's memory")]
    OutsideMemory { address: u64, length: u32 },
    #[error("a descriptor of no bytes")]
    Empty,
    #[error("4 GiB or more in a chain")]
    TooLarge,
    #[error("bytes to read behind bytes to write")]
    OutOfOrder,
    #[error("a table of descriptors in another, or with a successor")]
    NestedTable,
    #[error("a table of {0} bytes")]
    BadTable(u32),
    #[error("the frontend has cut the memory that it shares")]
    Lost,
    #[error("no header")]
    NoHeader,
    #[error("no place for the status")]
    NoStatus,
}

/// A range of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChainSegment {
    pub(crate) address: GuestAddress,
    pub(crate) length: u32,
}

/// Bytes in several ranges of the guest's memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segments {
    list: Vec<ChainSegment>,
    bytes: u32,
}

/// Position in [`Segments`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SegmentCursor {
    index: usize,
    offset: u32,
}

/// A chain: the device-readable part, then the device-writable part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain {
    pub(crate) readable: Segments,
    pub(crate) writable: Segments,
}

impl Segments {
    /// Returns the total number of bytes.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Returns the address of the last byte.
    pub(crate) fn last(&self) -> Option<GuestAddress> {
        let last = self.list.last()?;
        Some(GuestAddress(last.address.0 + u64::from(last.length) - 1))
    }

    fn clear(&mut self) {
        self.list.clear();
        self.bytes = 0;
    }

    fn push(&mut self, segment: ChainSegment) -> Result<(), BadChain> {
        self.bytes = self.bytes.checked_add(segment.length).ok_or(BadChain::TooLarge)?;
        self.list.push(segment);
        Ok(())
    }

    /// Advances by at most `most` contiguous bytes.
    fn step(&self, cursor: &mut SegmentCursor, most: usize) -> Option<ChainSegment> {
        let segment = self.list.get(cursor.index)?;
        let left = segment.length - cursor.offset;
        let length = usize::try_from(left).map_or(most, |left| left.min(most)) as u32;
        let address = GuestAddress(segment.address.0 + u64::from(cursor.offset));
        cursor.offset += length;
        if cursor.offset == segment.length {
            *cursor = SegmentCursor { index: cursor.index + 1, offset: 0 };
        }
        Some(ChainSegment { address, length })
    }

    /// Fills `into` with the bytes at `cursor`, and advances it.
    ///
    /// # Errors
    /// Fails if there are fewer bytes, or if they are no longer memory.
    pub(crate) fn read(
        &self,
        cursor: &mut SegmentCursor,
        memory: &MappedMemory,
        mut into: &mut [u8],
    ) -> Result<(), BadChain> {
        while !into.is_empty() {
            let from = self.step(cursor, into.len()).ok_or(BadChain::NoHeader)?;
            let (now, later) = into.split_at_mut(from.length as usize);
            memory.read_slice(now, from.address).map_err(|_| from.outside())?;
            into = later;
        }
        if memory.is_lost() { Err(BadChain::Lost) } else { Ok(()) }
    }

    /// Writes `bytes` at `cursor`, and advances it.
    ///
    /// # Errors
    /// Fails if there is less room, or if it is no longer memory.
    pub(crate) fn write(
        &self,
        cursor: &mut SegmentCursor,
        memory: &MappedMemory,
        mut bytes: &[u8],
    ) -> Result<(), BadChain> {
        while !bytes.is_empty() {
            let to = self.step(cursor, bytes.len()).ok_or(BadChain::NoStatus)?;
            let (now, later) = bytes.split_at(to.length as usize);
            memory.write_slice(now, to.address).map_err(|_| to.outside())?;
            bytes = later;
        }
        Ok(())
    }
}

impl ChainSegment {
    fn outside(&self) -> BadChain {
        BadChain::OutsideMemory { address: self.address.0, length: self.length }
    }
}

/// A descriptor table in the guest's memory.
#[derive(Clone, Copy)]
struct DescriptorTable {
    at: GuestAddress,
    size: u16,
}

impl DescriptorTable {
    fn get(&self, memory: &MappedMemory, index: u16) -> Result<Descriptor, BadChain> {
        if index >= self.size {
            return Err(BadChain::NoSuchDescriptor { index, size: self.size });
        }
        let offset = u64::from(index) * DESCRIPTOR_BYTES;
        let address = self.at.0.checked_add(offset);
        let descriptor = address.and_then(|at| memory.read_obj(GuestAddress(at)).ok());
        let length = DESCRIPTOR_BYTES as u32;
        descriptor.ok_or(BadChain::OutsideMemory { address: self.at.0, length })
    }

    fn of(descriptor: &Descriptor) -> Result<Self, BadChain> {
        let bytes = descriptor.len();
        let size = u64::from(bytes) / DESCRIPTOR_BYTES;
        if descriptor.has_next() {
            return Err(BadChain::NestedTable);
        }
        match u16::try_from(size) {
            Ok(size) if size > 0 && u64::from(bytes).is_multiple_of(DESCRIPTOR_BYTES) => {
                Ok(DescriptorTable { at: descriptor.addr(), size })
            }
            _ => Err(BadChain::BadTable(bytes)),
        }
    }
}

impl Chain {
    /// Reads the chain that begins with descriptor `head` of the `size` ones at `table`. For any content of the table
    /// this terminates, and the ranges that it takes are inside `memory`.
    ///
    /// # Errors
    /// Fails if the chain is invalid.
    pub(crate) fn take(
        &mut self,
        memory: &MappedMemory,
        table: GuestAddress,
        size: u16,
        head: u16,
    ) -> Result<(), BadChain> {
        self.readable.clear();
        self.writable.clear();
        let (mut table, mut is_indirect) = (DescriptorTable { at: table, size }, false);
        let (mut index, mut left) = (head, size.min(CHAIN_MAX));
        loop {
            let descriptor = table.get(memory, index)?;
            if descriptor.refers_to_indirect_table() {
                if std::mem::replace(&mut is_indirect, true) {
                    return Err(BadChain::NestedTable);
                }
                table = DescriptorTable::of(&descriptor)?;
                (index, left) = (0, CHAIN_MAX);
                continue;
            }
            left = left.checked_sub(1).ok_or(BadChain::TooLong)?;
            self.push(memory, &descriptor)?;
            if !descriptor.has_next() {
                return Ok(());
            }
            index = descriptor.next();
        }
    }

    fn push(&mut self, memory: &MappedMemory, descriptor: &Descriptor) -> Result<(), BadChain> {
        let segment = ChainSegment { address: descriptor.addr(), length: descriptor.len() };
        if segment.length == 0 {
            return Err(BadChain::Empty);
        }
        let writable = descriptor.is_write_only();
        let access = if writable { Permissions::Write } else { Permissions::Read };
        if !memory.check_range(segment.address, segment.length as usize, access) {
            return Err(segment.outside());
        }
        match writable {
            true => self.writable.push(segment),
            false if self.writable.bytes > 0 => Err(BadChain::OutOfOrder),
            false => self.readable.push(segment),
        }
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;

//! Get LBA Status (NVM Command Set 1.1, section 4.2.1): allocation state of the logical blocks of a range.

use crate::sqe::{Sqe, opcode};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Maximum blocks of a command's range.
pub const RANGE_BLOCKS_MAX: u64 = u16::MAX as u64;
/// Maximum blocks of a descriptor.
const DESCRIPTOR_BLOCKS_MAX: u64 = 1 << 32;

/// ATYPE: the requested information.
pub mod action {
    /// Allocated blocks.
    pub const ALLOCATED: u8 = 0x02;
    /// Potentially unrecoverable blocks, found by a scan.
    pub const SCAN: u8 = 0x10;
    /// Potentially unrecoverable blocks that are already known.
    pub const TRACKED: u8 = 0x11;
}

/// CMPC: reason why a list has ended.
pub mod condition {
    /// No reason. Blocks behind the last descriptor are unknown.
    pub const UNSPECIFIED: u8 = 0;
    /// The buffer was full (MNDW). Blocks behind the last descriptor are unknown.
    pub const NO_ROOM: u8 = 1;
    /// The whole range was checked.
    pub const COMPLETE: u8 = 2;
}

/// Fields of Get LBA Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLbaStatus {
    /// Starting LBA.
    pub slba: u64,
    /// Number of blocks; `None`: to the end of the namespace.
    pub blocks: Option<u16>,
    /// Maximum bytes of the list, a multiple of 4, not 0.
    pub bytes: u64,
    /// See [`action`].
    pub action: u8,
}

impl GetLbaStatus {
    /// Parses the fields of a Get LBA Status `sqe`.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let cdw13 = sqe.cdw13.get();
        GetLbaStatus {
            slba: sqe.slba(),
            blocks: Some(cdw13 as u16).filter(|&blocks| blocks > 0),
            bytes: (u64::from(sqe.cdw12.get()) + 1) * 4,
            action: (cdw13 >> 24) as u8,
        }
    }

    /// Returns the command, with data moved by the transport.
    #[must_use]
    pub fn emit(&self, nsid: u32) -> Sqe {
        let mut sqe = Sqe::new(opcode::GET_LBA_STATUS, nsid);
        sqe.set_slba(self.slba);
        sqe.cdw12 = ((self.bytes / 4).saturating_sub(1) as u32).into();
        let blocks = u32::from(self.blocks.unwrap_or(0));
        sqe.cdw13 = (blocks | u32::from(self.action) << 24).into();
        sqe.set_transport(self.bytes as u32);
        sqe
    }
}

/// Head of an LBA Status Descriptor List; descriptors follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LbaStatusHead {
    /// Number of descriptors (NLSD).
    pub count: U32,
    /// CMPC: see [`condition`].
    pub condition: u8,
    pub reserved5: [u8; 3],
}

/// LBA Status Descriptor.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LbaStatusDescriptor {
    /// Starting LBA.
    pub dslba: U64,
    /// Number of logical blocks, minus one.
    pub nlb: U32,
    pub reserved12: u8,
    /// Status of potentially unrecoverable blocks.
    pub status: u8,
    pub reserved14: [u8; 2],
}

const _: () = assert!(size_of::<LbaStatusHead>() == 8);
const _: () = assert!(size_of::<LbaStatusDescriptor>() == 16);

/// Returns the bytes of a list of that many descriptors.
#[must_use]
pub const fn list_bytes(descriptors: usize) -> usize {
    size_of::<LbaStatusHead>() + descriptors * size_of::<LbaStatusDescriptor>()
}

/// Returns the head of a list, and its descriptors as far as the bytes reach.
#[must_use]
pub fn parse_list(bytes: &[u8]) -> Option<(&LbaStatusHead, &[LbaStatusDescriptor])> {
    let (head, rest) = LbaStatusHead::ref_from_prefix(bytes).ok()?;
    let there = rest.len() / size_of::<LbaStatusDescriptor>();
    let count = usize::try_from(head.count.get()).unwrap_or(usize::MAX).min(there);
    let (descriptors, _) = <[LbaStatusDescriptor]>::ref_from_prefix_with_elems(rest, count).ok()?;
    Some((head, descriptors))
}

/// Writer of a list, from its first block to its last.
#[derive(Debug)]
pub struct LbaStatusList<'a> {
    place: &'a mut [u8],
    count: usize,
    /// First block and number of blocks of the last descriptor.
    last: Option<(u64, u64)>,
}

impl<'a> LbaStatusList<'a> {
    /// An empty list, limited by the length of `place`.
    #[must_use]
    pub fn new(place: &'a mut [u8]) -> Self {
        place.fill(0);
        LbaStatusList { place, count: 0, last: None }
    }

    /// Adds `blocks` blocks from `slba` on, behind all blocks added before. Adjacent blocks share a descriptor. False
    /// if the buffer cannot hold all of them.
    pub fn add(&mut self, mut slba: u64, mut blocks: u64) -> bool {
        while blocks > 0 {
            let joined = self.last.filter(|&(first, count)| {
                first.checked_add(count) == Some(slba) && count < DESCRIPTOR_BLOCKS_MAX
            });
            let (first, before) = joined.unwrap_or((slba, 0));
            let number = if joined.is_some() { self.count - 1 } else { self.count };
            let piece = blocks.min(DESCRIPTOR_BLOCKS_MAX - before);
            if !self.put(number, first, before + piece) {
                return false;
            }
            (self.count, self.last) = (number + 1, Some((first, before + piece)));
            (slba, blocks) = (slba.saturating_add(piece), blocks - piece);
        }
        true
    }

    /// Returns the block behind all added ones.
    #[must_use]
    pub fn end_of_last(&self) -> u64 {
        self.last.map_or(0, |(first, count)| first.saturating_add(count))
    }

    fn put(&mut self, number: usize, slba: u64, blocks: u64) -> bool {
        let descriptor = LbaStatusDescriptor {
            dslba: slba.into(),
            nlb: ((blocks - 1) as u32).into(),
            reserved12: 0,
            status: 0,
            reserved14: [0; 2],
        };
        let place = self.place.get_mut(list_bytes(number)..list_bytes(number + 1));
        place.map(|place| place.copy_from_slice(descriptor.as_bytes())).is_some()
    }

    /// Ends the list for that [reason](condition). A buffer that is shorter than the head gets a part of it.
    pub fn end(self, condition: u8) {
        let head =
            LbaStatusHead { count: (self.count as u32).into(), condition, reserved5: [0; 3] };
        let bytes = self.place.len().min(size_of::<LbaStatusHead>());
        self.place[..bytes].copy_from_slice(&head.as_bytes()[..bytes]);
    }
}

#[cfg(test)]
mod tests;

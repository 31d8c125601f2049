//! Data of a lane's commands: in the memory of the namespace, or in a buffer.

use crate::flushes::Unflushed;
use crate::namespace::LocalNamespace;
use crate::uncorrectable::Marked;
use roadtrain_proto::policy::Class;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::tuning::{PREFETCH_LINES, prefetch_read};
use roadtrain_store::{ByteRange, InPlace};
use roadtrain_system::buffer::Buffer;
use roadtrain_system::memory::Streaming;
use roadtrain_target_proto::execution::{self, LaneNamespace};
use roadtrain_target_proto::io::{BlockGeometry, TargetIoCommand};
use roadtrain_target_proto::reservations::CommandGroup;
use roadtrain_target_proto::stability::Epoch;
use std::sync::Arc;

/// Commands of a lane.
pub(crate) type LaneExecution = execution::CommandExecution<LocalNamespace, Buffer>;
/// Data from the host that arrived with its command.
pub(super) type LanePayload<'a> = execution::CommandPayload<'a, Buffer>;
type LaneCommandData = execution::SlotData<LocalNamespace, Buffer>;

/// Range in the memory of a namespace.
#[derive(Clone, Copy)]
pub(crate) struct InPlaceRange {
    start: *mut u8,
    length: u32,
    /// True if the CPU caches hold little of the namespace.
    is_cold: bool,
}

impl execution::InPlaceData for InPlaceRange {
    fn length(&self) -> u32 {
        self.length
    }
}

/// Returns the address of `length` bytes of a command's data from `offset`; `None` if they are out of range.
pub(super) fn range(data: &mut LaneCommandData, offset: u32, length: u32) -> Option<*mut u8> {
    let (offset, end) = (offset as usize, offset as usize + length as usize);
    match data {
        LaneCommandData::InPlace(place) if end <= place.length as usize => {
            // SAFETY: `end` is within the range that was checked against the namespace.
            Some(unsafe { place.start.add(offset) })
        }
        LaneCommandData::Buffer(buffer) => buffer.get_mut(offset..end).map(<[u8]>::as_mut_ptr),
        _ => None,
    }
}

/// Copies received bytes into a command's data from `offset`.
pub(super) fn fill(
    data: &mut LaneCommandData,
    offset: u32,
    bytes: &[u8],
    streaming: &mut Streaming,
) {
    let is_cold = matches!(data, LaneCommandData::InPlace(place) if place.is_cold);
    let Some(to) = range(data, offset, bytes.len() as u32) else { return };
    let (from, length) = (bytes.as_ptr(), bytes.len());
    if is_cold {
        // SAFETY: `range` checked the bounds; the receive buffer overlaps no data.
        unsafe { streaming.copy(from, to, length) };
    } else {
        // SAFETY: as above.
        unsafe { to.copy_from_nonoverlapping(from, length) };
    }
}

impl LaneNamespace for LocalNamespace {
    type Place = InPlaceRange;

    fn geometry(&self) -> &BlockGeometry {
        &self.geometry
    }

    fn class(&self) -> Option<Class> {
        self.class
    }

    #[inline]
    fn in_place(&self, command: &TargetIoCommand) -> Option<InPlaceRange> {
        let memory = self.in_place.as_ref()?;
        let (start, length) = match *command {
            TargetIoCommand::Read { offset, length, .. } => {
                (memory.read_range(offset, length as usize)?.cast_mut(), length)
            }
            TargetIoCommand::Write { offset, length, .. } => {
                (memory.write_range(offset, length as usize)?, length)
            }
            _ => return None,
        };
        Some(InPlaceRange { start, length, is_cold: self.is_cold })
    }

    #[inline]
    fn refuses(&self, group: CommandGroup) -> bool {
        self.access.refuses(group)
    }

    #[inline]
    fn is_limited(&self) -> bool {
        self.limits.iter().any(Option::is_some)
    }

    fn begins(&self, now: Instant, command: &TargetIoCommand) -> Instant {
        let limits = self.limits.iter().flatten();
        limits.map(|limit| limit.take(now, command)).fold(now, Instant::max)
    }

    fn give_back(&self, command: &TargetIoCommand) {
        self.limits.iter().flatten().for_each(|limit| limit.give_back(command));
    }

    fn is_limited_as(&self, other: &Self) -> bool {
        let which =
            |namespace: &Self| namespace.limits.each_ref().map(|l| l.as_ref().map(Arc::as_ptr));
        which(self) == which(other)
    }

    #[inline]
    fn is_marked(&self, command: &TargetIoCommand) -> bool {
        let marks = self.store.uncorrectable();
        marks.any() && command.range().is_some_and(|range| marks.is_to_clear(&range))
    }

    fn holds(&self, place: InPlaceRange, range: &ByteRange) -> bool {
        let memory = self.in_place.as_ref();
        let start = memory.and_then(|memory| memory.write_range(range.offset, range.len as usize));
        start.is_some_and(|start| {
            let (place_end, end) = (
                place.start.wrapping_add(place.length as usize),
                start.wrapping_add(range.len as usize),
            );
            place.start < end && start < place_end
        })
    }

    fn is_announced(&self) -> bool {
        self.in_place.as_ref().is_some_and(InPlace::is_announced)
    }

    fn put(&self, place: InPlaceRange, from: u32, bytes: &[u8]) {
        debug_assert!(from as usize + bytes.len() <= place.length as usize);
        let from = from.min(place.length) as usize;
        let length = bytes.len().min(place.length as usize - from);
        // SAFETY: `in_place` checked the range of the place, which belongs to a Write. The content of blocks is
        // undefined while a write to them is in flight.
        unsafe { place.start.add(from).copy_from_nonoverlapping(bytes.as_ptr(), length) };
    }

    #[inline]
    fn prefetch(&self, place: InPlaceRange) {
        prefetch_read(place.start, PREFETCH_LINES);
    }

    fn epoch(&self) -> Option<Epoch> {
        self.unflushed.as_ref().map(Unflushed::epoch)
    }

    fn wrote(&self, began: Epoch) {
        self.unflushed.iter().for_each(|unflushed| unflushed.wrote(began));
    }
}

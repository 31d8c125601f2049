//! Block allocation of a namespace, as its controller reports it (Get LBA Status; NVM Command Set 1.1, section 4.2.1).
//!
//! A range counts as a hole only if the controller clearly reports it so: copies of a disk leave holes out.

use super::bringup::ControllerInfo;
use super::procedure::{ControllerCommand, ProcedureDriver, ProcedureFailure};
use core::ops::Range;
use roadtrain_wire::identify::oacs;
use roadtrain_wire::lba_status::{
    GetLbaStatus, RANGE_BLOCKS_MAX, action, condition, list_bytes, parse_list,
};
use roadtrain_wire::status::Status;

/// Maximum number of allocated ranges in one query: their list fits in a page, which every controller can transfer.
pub const RANGES_MAX: u16 = 255;

/// Query of block allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationQuery {
    /// NSID.
    pub nsid: u32,
    /// First logical block.
    pub slba: u64,
    /// Number of logical blocks, not 0.
    pub blocks: u64,
    /// Maximum number of allocated ranges to return: 1 to [`RANGES_MAX`].
    pub ranges: u16,
}

/// Reported allocation. Blocks outside [`known`](Self::known) are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Range of blocks with a known state. It starts where the query starts, and may be shorter, or empty.
    pub known: Range<u64>,
    /// Allocated ranges among them, in order.
    pub allocated: Vec<Range<u64>>,
}

impl AllocationQuery {
    fn end(&self) -> u64 {
        self.slba.saturating_add(self.blocks)
    }

    fn command(&self) -> ControllerCommand {
        let bytes = list_bytes(self.ranges.clamp(1, RANGES_MAX).into());
        // Blocks after a long range cost little, as its list is short.
        let blocks = (self.blocks <= RANGE_BLOCKS_MAX).then_some(self.blocks as u16);
        let action = action::ALLOCATED;
        let get = GetLbaStatus { slba: self.slba, blocks, bytes: bytes as u64, action };
        ControllerCommand {
            bytes_in: bytes as u32,
            ..ControllerCommand::new("Get LBA Status", get.emit(self.nsid))
        }
    }

    /// Parses a list; `None`: invalid.
    fn parse(&self, list: &[u8]) -> Option<Allocation> {
        let (head, descriptors) = parse_list(list)?;
        let (mut allocated, mut at) = (Vec::new(), self.slba);
        for descriptor in descriptors {
            let first = descriptor.dslba.get();
            let end = first.checked_add(u64::from(descriptor.nlb.get()) + 1)?;
            if first < at {
                return None;
            }
            at = end;
            if first < self.end() {
                allocated.push(first..end.min(self.end()));
            }
        }
        let is_all = descriptors.len() == head.count.get() as usize;
        let is_complete = head.condition == condition::COMPLETE && is_all;
        let end = if is_complete { self.end() } else { at.min(self.end()) };
        Some(Allocation { known: self.slba..end, allocated })
    }
}

/// True if the controller supports Get LBA Status.
#[must_use]
pub fn is_offered(info: &ControllerInfo) -> bool {
    info.identify.oacs.get() & oacs::GET_LBA_STATUS != 0
}

/// Queries the controller; `None`: it does not report the state.
///
/// # Errors
/// The connection fails.
pub async fn query_ranges<E>(
    driver: &ProcedureDriver<E>,
    query: AllocationQuery,
) -> Result<Option<Allocation>, ProcedureFailure<E>> {
    let (cqe, list) = driver.command(0, query.command()).await?;
    Ok(if cqe.status() == Status::SUCCESS { query.parse(&list) } else { None })
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which have one")]
mod tests {
    use super::*;
    use roadtrain_wire::lba_status::LbaStatusList;

    const QUERY: AllocationQuery = AllocationQuery { nsid: 1, slba: 100, blocks: 50, ranges: 3 };

    fn parse(ranges: &[Range<u64>], condition: u8) -> Option<Allocation> {
        let mut bytes = vec![0; list_bytes(3)];
        let mut list = LbaStatusList::new(&mut bytes);
        ranges.iter().for_each(|range| assert!(list.add(range.start, range.end - range.start)));
        list.end(condition);
        QUERY.parse(&bytes)
    }

    fn reported(known: Range<u64>, allocated: &[Range<u64>]) -> Option<Allocation> {
        Some(Allocation { known, allocated: allocated.to_vec() })
    }

    #[test]
    fn blocks_are_holes_only_as_far_as_that_is_said() {
        use condition::{COMPLETE, NO_ROOM, UNSPECIFIED};
        assert_eq!(parse(&[], COMPLETE), reported(100..150, &[]));
        for condition in [NO_ROOM, UNSPECIFIED, 9] {
            assert_eq!(parse(&[], condition), reported(100..100, &[]), "nothing is known");
            let one = [110..120];
            assert_eq!(parse(&one, condition), reported(100..120, &one));
        }
        let two = [100..101, 140..150];
        assert_eq!(parse(&two, COMPLETE), reported(100..150, &two));
        assert_eq!(
            parse(&[140..300, 400..500], COMPLETE),
            reported(100..150, &[140..150]),
            "cut off"
        );
        assert_eq!(
            parse(&[200..300], UNSPECIFIED),
            reported(100..150, &[]),
            "the first one is behind it"
        );
    }

    #[test]
    fn nonsense_is_not_believed() {
        use condition::COMPLETE;
        assert_eq!(parse(&[99..101], COMPLETE), None, "before the range");
        assert_eq!(parse(&[110..120, 119..121], COMPLETE), None, "overlapping");
        assert_eq!(parse(&[120..121, 110..111], COMPLETE), None, "out of order");
        assert_eq!(parse(&[u64::MAX - 3..u64::MAX], COMPLETE), reported(100..150, &[]));
        assert_eq!(QUERY.parse(&[0; 7]), None, "no head");
        // The count exceeds the list.
        let mut bytes = vec![0; list_bytes(1)];
        let mut list = LbaStatusList::new(&mut bytes);
        assert!(list.add(110, 10));
        list.end(COMPLETE);
        bytes[0] = 2;
        assert_eq!(QUERY.parse(&bytes), reported(100..120, &[110..120]));
    }

    #[test]
    fn long_ranges_are_queried_without_an_end() {
        let sqe = |blocks| AllocationQuery { blocks, ..QUERY }.command().sqe;
        assert_eq!(sqe(50).cdw13.get(), 0x0200_0032);
        assert_eq!(sqe(0xffff).cdw13.get(), 0x0200_ffff);
        assert_eq!(sqe(0x1_0000).cdw13.get(), 0x0200_0000);
        assert_eq!((sqe(50).slba(), sqe(50).cdw12.get()), (100, (8 + 3 * 16) / 4 - 1));
        let most = AllocationQuery { ranges: u16::MAX, ..QUERY }.command();
        assert!(most.bytes_in <= 4096 && most.sqe.sgl.length.get() == most.bytes_in);
    }
}

//! A guest's request: its header and data, checked against the disk.

use super::chain::{BadChain, Chain, SegmentCursor};
use super::memory::MappedMemory;
use crate::disk::{DiskFault, DiskOp, DiskRequest, LiveDisk};
use roadtrain_wire::virtio_blk::{
    HEADER_BYTES, RANGE_BYTES, RangeSegment, RequestHeader, RequestStatus, SECTOR_BYTES, operation,
};
use roadtrain_wire::zerocopy::FromBytes;
use vm_memory::GuestAddress;

/// Most bytes of a Read or Write, which get their buffers all at once.
pub(crate) const DATA_BYTES_MAX: u32 = 32 << 20;
/// Most sectors of a Discard or Write Zeroes: their bytes are counted in 32 bits.
pub(crate) const RANGE_SECTORS_MAX: u32 = 1 << 22;

/// Operation of a guest's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VhostCommand {
    /// An operation that the disk supports.
    Disk(DiskRequest),
    Identify,
}

/// A decoded request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VhostRequest {
    /// Operation, or the status with which it fails.
    pub(crate) command: Result<VhostCommand, RequestStatus>,
    /// Start of the data: behind the header in the readable part, or at the start of the writable part.
    pub(crate) data: SegmentCursor,
    /// Address of the status byte.
    pub(crate) status_at: GuestAddress,
}

impl VhostRequest {
    /// Decodes `chain`, in whatever segments the guest has split it.
    ///
    /// # Errors
    /// Fails if it has no header or no room for a status, so that the guest cannot be answered.
    pub(crate) fn of(
        chain: &Chain,
        memory: &MappedMemory,
        disk: &LiveDisk,
    ) -> Result<Self, BadChain> {
        let status_at = chain.writable.last().ok_or(BadChain::NoStatus)?;
        let mut behind = SegmentCursor::default();
        let mut bytes = [0; HEADER_BYTES];
        chain.readable.read(&mut behind, memory, &mut bytes)?;
        let header = RequestHeader::read_from_bytes(&bytes).map_err(|_| BadChain::NoHeader)?;
        let data =
            if header.operation == operation::OUT { behind } else { SegmentCursor::default() };
        let command = match header.operation.get() {
            operation::IN => transfer(DiskOp::Read, header.sector.get(), writable_bytes(chain)),
            operation::OUT => transfer(DiskOp::Write, header.sector.get(), readable_bytes(chain)),
            operation::FLUSH => Ok(VhostCommand::Disk(request(DiskOp::Flush, 0, 0))),
            operation::GET_ID if writable_bytes(chain) > 0 => Ok(VhostCommand::Identify),
            operation::GET_ID => Err(RequestStatus::IoError),
            ranged @ (operation::DISCARD | operation::WRITE_ZEROES) => {
                let mut bytes = [0; RANGE_BYTES];
                let read = chain.readable.read(&mut behind, memory, &mut bytes);
                let range = read.ok().and_then(|()| RangeSegment::read_from_bytes(&bytes).ok());
                // Only one range: the configuration space allows no more.
                let range = range.filter(|_| readable_bytes(chain) as usize == RANGE_BYTES);
                range.ok_or(RequestStatus::IoError).and_then(|range| cover(ranged, &range))
            }
            _ => Err(RequestStatus::Unsupported),
        };
        let command = command.and_then(|command| allow(command, disk));
        Ok(VhostRequest { command, data, status_at })
    }
}

impl VhostRequest {
    /// Makes a write stable when it completes. (Not a Discard: its blocks may read as anything.)
    pub(crate) fn write_through(&mut self) {
        if let Ok(VhostCommand::Disk(request)) = &mut self.command {
            request.fua = matches!(request.op, DiskOp::Write | DiskOp::WriteZeroes { .. });
        }
    }
}

/// Returns the readable bytes behind the header, which exists.
fn readable_bytes(chain: &Chain) -> u32 {
    chain.readable.bytes() - HEADER_BYTES as u32
}

/// Returns the writable bytes before the status, which exists.
pub(crate) fn writable_bytes(chain: &Chain) -> u32 {
    chain.writable.bytes() - 1
}

fn request(op: DiskOp, offset: u64, length: u32) -> DiskRequest {
    DiskRequest { op, offset, length, fua: false }
}

/// Returns a transfer of whole sectors, not too many.
fn transfer(op: DiskOp, sector: u64, length: u32) -> Result<VhostCommand, RequestStatus> {
    let offset = sector.checked_mul(SECTOR_BYTES.into());
    let fits = length.is_multiple_of(SECTOR_BYTES) && length <= DATA_BYTES_MAX;
    let offset = offset.filter(|_| fits).ok_or(RequestStatus::IoError)?;
    Ok(VhostCommand::Disk(request(op, offset, length)))
}

/// Returns a Discard or Write Zeroes of a range.
fn cover(operation: u32, range: &RangeSegment) -> Result<VhostCommand, RequestStatus> {
    let flags = range.flags.get();
    let deallocate = flags & RangeSegment::UNMAP != 0;
    let (op, known) = match operation {
        operation::DISCARD => (DiskOp::Discard, 0),
        _ => (DiskOp::WriteZeroes { deallocate }, RangeSegment::UNMAP),
    };
    if flags & !known != 0 {
        return Err(RequestStatus::Unsupported);
    }
    let offset = range.sector.get().checked_mul(SECTOR_BYTES.into());
    let few = range.sectors.get() <= RANGE_SECTORS_MAX;
    let offset = offset.filter(|_| few).ok_or(RequestStatus::IoError)?;
    Ok(VhostCommand::Disk(request(op, offset, range.sectors.get() * SECTOR_BYTES)))
}

/// Checks that the disk can carry out `command`.
fn allow(command: VhostCommand, disk: &LiveDisk) -> Result<VhostCommand, RequestStatus> {
    match command {
        VhostCommand::Disk(request) => {
            disk.check(&request).map_err(status_of)?;
            Ok(command)
        }
        VhostCommand::Identify => Ok(command),
    }
}

/// Converts `fault` to the guest's status.
pub(crate) fn status_of(fault: DiskFault) -> RequestStatus {
    match fault {
        DiskFault::NotServed => RequestStatus::Unsupported,
        _ => RequestStatus::IoError,
    }
}

#[cfg(test)]
mod tests {
    use super::super::guest::{ChainPart, Guest};
    use super::*;
    use crate::disk::{DiskInfo, test_info};
    use RequestStatus::{IoError, Unsupported};

    const ZEROES: DiskOp = DiskOp::WriteZeroes { deallocate: false };

    fn header(operation: u32, sector: u64) -> ChainPart {
        ChainPart::Read(Guest::header(operation, sector))
    }

    fn take(guest: &Guest, head: u16) -> Chain {
        let mut chain = Chain::default();
        chain.take(guest.memory(), guest.table(), guest.size(), head).unwrap();
        chain
    }

    fn parse_for(info: DiskInfo, parts: &[ChainPart]) -> Result<VhostCommand, RequestStatus> {
        let mut guest = Guest::new(16);
        let head = guest.lay_chain(parts);
        let disk = LiveDisk::new(info).unwrap();
        VhostRequest::of(&take(&guest, head), guest.memory(), &disk).unwrap().command
    }

    fn parse(parts: &[ChainPart]) -> Result<VhostCommand, RequestStatus> {
        parse_for(test_info(), parts)
    }

    fn expected(op: DiskOp, offset: u64, length: u32) -> Result<VhostCommand, RequestStatus> {
        Ok(VhostCommand::Disk(request(op, offset, length)))
    }

    fn write(sector: u64, bytes: usize) -> [ChainPart; 3] {
        [header(operation::OUT, sector), ChainPart::Read(vec![7; bytes]), ChainPart::Write(1)]
    }

    fn read(sector: u64, bytes: u32) -> [ChainPart; 3] {
        [header(operation::IN, sector), ChainPart::Write(bytes), ChainPart::Write(1)]
    }

    fn range(operation: u32, sector: u64, sectors: u32, flags: u32) -> [ChainPart; 3] {
        [
            header(operation, 0),
            ChainPart::Read(Guest::range(sector, sectors, flags)),
            ChainPart::Write(1),
        ]
    }

    #[test]
    fn requests_inside_the_disk_are_understood() {
        assert_eq!(parse(&read(2, 4096)), expected(DiskOp::Read, 1024, 4096));
        assert_eq!(parse(&read(2047, 512)), expected(DiskOp::Read, 2047 * 512, 512));
        assert_eq!(parse(&write(8, 1024)), expected(DiskOp::Write, 4096, 1024));
        let flush = [header(operation::FLUSH, 0), ChainPart::Write(1)];
        assert_eq!(parse(&flush), expected(DiskOp::Flush, 0, 0));
        let identify = [header(operation::GET_ID, 0), ChainPart::Write(20), ChainPart::Write(1)];
        assert_eq!(parse(&identify), Ok(VhostCommand::Identify));
        assert_eq!(
            parse(&range(operation::DISCARD, 1, 2, 0)),
            expected(DiskOp::Discard, 512, 1024)
        );
        for deallocate in [false, true] {
            let zeroes = range(operation::WRITE_ZEROES, 1, 2, u32::from(deallocate));
            assert_eq!(parse(&zeroes), expected(DiskOp::WriteZeroes { deallocate }, 512, 1024));
        }
    }

    #[test]
    fn however_a_request_is_cut_it_is_the_same() {
        let head = Guest::header(operation::OUT, 8);
        let rest = [&head[5..], &[7; 100]].concat();
        let parts = [
            ChainPart::Read(head[..5].to_vec()),
            ChainPart::Read(rest),
            ChainPart::Read(vec![7; 412]),
            ChainPart::Write(1),
        ];
        assert_eq!(parse(&parts), expected(DiskOp::Write, 4096, 512));
        let parts = [header(operation::IN, 0), ChainPart::Write(100), ChainPart::Write(413)];
        assert_eq!(parse(&parts), expected(DiskOp::Read, 0, 512));
    }

    #[test]
    fn ranges_outside_the_disk_fail() {
        for (sector, bytes) in [(2047, 1024), (2048, 512), (u64::MAX, 512), (u64::MAX / 512, 512)] {
            assert_eq!(parse(&read(sector, bytes)), Err(IoError), "{sector}");
            assert_eq!(parse(&write(sector, bytes as usize)), Err(IoError), "{sector}");
            let discard = range(operation::DISCARD, sector, bytes / 512, 0);
            assert_eq!(parse(&discard), Err(IoError), "{sector}");
        }
        assert_eq!(parse(&read(0, 100)), Err(IoError));
        assert_eq!(parse(&write(0, 513)), Err(IoError));
        assert_eq!(parse(&range(operation::DISCARD, 0, u32::MAX, 0)), Err(IoError));
        assert_eq!(parse(&range(operation::DISCARD, 0, 8, 1)), Err(Unsupported));
        assert_eq!(parse(&range(operation::WRITE_ZEROES, 0, 8, 2)), Err(Unsupported));
        assert_eq!(parse(&[header(99, 0), ChainPart::Write(1)]), Err(Unsupported));
        assert_eq!(parse(&[header(operation::DISCARD, 0), ChainPart::Write(1)]), Err(IoError));
        assert_eq!(parse(&[header(operation::GET_ID, 0), ChainPart::Write(1)]), Err(IoError));
    }

    #[test]
    fn unsupported_operations_are_refused() {
        let (discard, zeroes) = (operation::DISCARD, operation::WRITE_ZEROES);
        let read_only = DiskInfo { read_only: true, ..test_info() };
        assert_eq!(parse_for(read_only.clone(), &write(0, 512)), Err(IoError));
        assert_eq!(parse_for(read_only.clone(), &range(discard, 0, 8, 0)), Err(IoError));
        assert_eq!(parse_for(read_only, &read(0, 512)), expected(DiskOp::Read, 0, 512));
        let plain = DiskInfo { trim: false, write_zeroes: false, ..test_info() };
        assert_eq!(parse_for(plain.clone(), &range(discard, 0, 8, 0)), Err(Unsupported));
        assert_eq!(parse_for(plain, &range(zeroes, 0, 8, 0)), Err(Unsupported));
        assert_eq!(parse(&range(zeroes, 0, 8, 0)), expected(ZEROES, 0, 4096));
    }

    #[test]
    fn without_header_or_status_there_is_no_reply() {
        let mut guest = Guest::new(16);
        let disk = LiveDisk::new(test_info()).unwrap();
        let short = Guest::header(operation::IN, 0)[..15].to_vec();
        for (parts, error) in [
            (vec![ChainPart::Read(short), ChainPart::Write(513)], BadChain::NoHeader),
            (vec![ChainPart::Write(513)], BadChain::NoHeader),
            (vec![header(operation::IN, 0)], BadChain::NoStatus),
        ] {
            let head = guest.lay_chain(&parts);
            let request = VhostRequest::of(&take(&guest, head), guest.memory(), &disk);
            assert_eq!(request.map(drop).unwrap_err(), error);
        }
    }
}

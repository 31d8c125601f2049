//! I/O commands of the NVM command set, checked against a namespace (NVM Command Set 1.0, section 3.2).

use super::reservations::CommandGroup;
use roadtrain_proto::op::ByteRange;
use roadtrain_wire::sqe::{
    COPY_RANGE_BYTES, FLAG_FUSE, FLAG_PSDT, FLAG_SGL, SGL_OFFSET, SGL_TRANSPORT, Sqe, cdw12, opcode,
};
use roadtrain_wire::status::Status;

/// Size of a Dataset Management range in bytes.
pub const DSM_RANGE_BYTES: u32 = 16;

/// Ranges of a Dataset Management command, at most.
pub const DSM_RANGES_MAX: u32 = 256;

/// Source ranges of a Copy, at most (MSRC, as a count from 1).
pub const COPY_RANGES_MAX: u32 = 128;

/// Length of a source range in bytes, at most (MSSRL).
pub const COPY_RANGE_BYTES_MAX: u64 = 4 << 20;

/// Length of all source ranges in bytes, at most (MCL): limits the duration of a Copy.
pub const COPY_BYTES_MAX: u64 = 16 << 20;

/// Buffer size of a Copy in bytes, which it moves at a time.
pub const COPY_BUFFER_BYTES: u32 = 64 << 10;

/// Properties of a namespace for the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockGeometry {
    /// Logical block size as a power of two.
    pub lba_shift: u8,
    /// Size in logical blocks.
    pub blocks: u64,
    /// True if writes are refused.
    pub read_only: bool,
    /// Bytes that a command transfers at most (MDTS).
    pub transfer_bytes_max: u32,
}

/// A checked I/O command, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetIoCommand {
    /// Sends the data at `offset`.
    Read {
        /// Offset in the namespace, in bytes.
        offset: u64,
        length: u32,
        /// The data is forced to stable storage before it is read.
        fua: bool,
    },
    /// Writes the data to `offset`.
    Write {
        /// Offset in the namespace, in bytes.
        offset: u64,
        length: u32,
        /// The data is on stable storage before the completion.
        fua: bool,
    },
    /// Compares the data with that at `offset`.
    Compare {
        /// Offset in the namespace, in bytes.
        offset: u64,
        length: u32,
        /// The stored data is forced to stable storage before the comparison.
        fua: bool,
    },
    WriteZeroes {
        /// Offset in the namespace, in bytes.
        offset: u64,
        /// Length in bytes.
        length: u64,
        deallocate: bool,
        /// The zeroes are on stable storage before the completion.
        fua: bool,
    },
    /// Marks the blocks, which cannot be read until they are written.
    WriteUncorrectable {
        /// Offset in the namespace, in bytes.
        offset: u64,
        /// Length in bytes.
        length: u64,
    },
    /// Reads the data at `offset` and reports only whether that was possible.
    Verify {
        /// Offset in the namespace, in bytes.
        offset: u64,
        length: u32,
        /// The data is forced to stable storage before it is read.
        fua: bool,
    },
    /// Deallocates the ranges in the command's data.
    DatasetManagement {
        ranges: u32,
        /// Bytes of data: Linux always sends 256 ranges, whatever the number in use.
        data_bytes: u32,
        /// True for deallocation; otherwise the command is a hint without effect.
        deallocate: bool,
    },
    /// Copies the source ranges in the command's data to `offset`.
    Copy {
        /// Offset in the namespace, in bytes.
        offset: u64,
        ranges: u32,
        /// Bytes of data.
        data_bytes: u32,
        /// The copy is on stable storage before the completion.
        fua: bool,
    },
    /// Forces everything written to stable storage.
    Flush,
}

impl TargetIoCommand {
    /// Returns the offset in the namespace, in bytes, of a command with one range.
    #[must_use]
    pub fn offset(&self) -> u64 {
        match *self {
            TargetIoCommand::Read { offset, .. }
            | TargetIoCommand::Write { offset, .. }
            | TargetIoCommand::Compare { offset, .. }
            | TargetIoCommand::Verify { offset, .. }
            | TargetIoCommand::Copy { offset, .. }
            | TargetIoCommand::WriteZeroes { offset, .. }
            | TargetIoCommand::WriteUncorrectable { offset, .. } => offset,
            TargetIoCommand::DatasetManagement { .. } | TargetIoCommand::Flush => 0,
        }
    }

    /// Returns the byte range that a Read, Write, Write Zeroes or Write Uncorrectable reads or changes.
    #[inline]
    #[must_use]
    pub fn range(&self) -> Option<ByteRange> {
        let (offset, len) = match *self {
            TargetIoCommand::Read { offset, length, .. }
            | TargetIoCommand::Write { offset, length, .. } => (offset, u64::from(length)),
            TargetIoCommand::WriteZeroes { offset, length, .. }
            | TargetIoCommand::WriteUncorrectable { offset, length } => (offset, length),
            _ => return None,
        };
        Some(ByteRange { offset, len })
    }

    /// Returns the bytes of data from the host.
    #[must_use]
    #[inline]
    pub fn data_out_bytes(&self) -> u32 {
        match *self {
            TargetIoCommand::Write { length, .. } | TargetIoCommand::Compare { length, .. } => {
                length
            }
            TargetIoCommand::DatasetManagement { data_bytes, .. }
            | TargetIoCommand::Copy { data_bytes, .. } => data_bytes,
            _ => 0,
        }
    }

    /// True if the data has to be on stable storage before it is read: Read, Compare and Verify with FUA.
    #[must_use]
    pub fn reads_stable_data(&self) -> bool {
        let (TargetIoCommand::Read { fua, .. }
        | TargetIoCommand::Compare { fua, .. }
        | TargetIoCommand::Verify { fua, .. }) = *self
        else {
            return false;
        };
        fua
    }

    /// True if the change is stable only after a flush.
    #[must_use]
    pub fn needs_flush(&self) -> bool {
        match *self {
            TargetIoCommand::Write { fua, .. }
            | TargetIoCommand::WriteZeroes { fua, .. }
            | TargetIoCommand::Copy { fua, .. } => !fua,
            TargetIoCommand::DatasetManagement { deallocate, .. } => deallocate,
            TargetIoCommand::Read { .. }
            | TargetIoCommand::Compare { .. }
            | TargetIoCommand::Verify { .. }
            | TargetIoCommand::WriteUncorrectable { .. }
            | TargetIoCommand::Flush => false,
        }
    }

    /// Returns the group to which reservations assign the command.
    #[inline]
    #[must_use]
    pub fn group(&self) -> CommandGroup {
        match self {
            TargetIoCommand::Read { .. }
            | TargetIoCommand::Compare { .. }
            | TargetIoCommand::Verify { .. } => CommandGroup::Read,
            TargetIoCommand::Write { .. }
            | TargetIoCommand::WriteZeroes { .. }
            | TargetIoCommand::WriteUncorrectable { .. }
            | TargetIoCommand::Copy { .. }
            | TargetIoCommand::DatasetManagement { .. }
            | TargetIoCommand::Flush => CommandGroup::Write,
        }
    }

    /// Sets FUA on a write, as when the volatile write cache is disabled.
    pub(super) fn force_unit_access(&mut self) {
        if let TargetIoCommand::Write { fua, .. }
        | TargetIoCommand::WriteZeroes { fua, .. }
        | TargetIoCommand::Copy { fua, .. } = self
        {
            *fua = true;
        }
    }

    /// Checks `sqe` against `geometry`; `in_capsule_bytes` is the size of its in-capsule data.
    ///
    /// # Errors
    /// The status of the completion.
    #[inline]
    pub fn parse(
        sqe: &Sqe,
        geometry: &BlockGeometry,
        in_capsule_bytes: u32,
    ) -> Result<Self, Status> {
        let command = parse_fields(sqe, geometry)?;
        check_sgl(sqe, &command, in_capsule_bytes)?;
        let writes = !matches!(
            command,
            TargetIoCommand::Read { .. }
                | TargetIoCommand::Compare { .. }
                | TargetIoCommand::Verify { .. }
                | TargetIoCommand::Flush
        );
        if writes && geometry.read_only {
            return Err(Status::NAMESPACE_WRITE_PROTECTED.dnr());
        }
        Ok(command)
    }
}

fn parse_fields(sqe: &Sqe, geometry: &BlockGeometry) -> Result<TargetIoCommand, Status> {
    // Fused commands are not executed alone, and over fabrics PSDT is 01b.
    if sqe.flags & (FLAG_FUSE | FLAG_PSDT) != FLAG_SGL {
        return Err(Status::INVALID_FIELD.dnr());
    }
    match sqe.opcode {
        opcode::FLUSH => Ok(TargetIoCommand::Flush),
        opcode::READ => {
            let (offset, length, fua) = data_range(sqe, geometry)?;
            Ok(TargetIoCommand::Read { offset, length, fua })
        }
        opcode::WRITE => {
            let (offset, length, fua) = data_range(sqe, geometry)?;
            Ok(TargetIoCommand::Write { offset, length, fua })
        }
        opcode::COMPARE => {
            let (offset, length, fua) = data_range(sqe, geometry)?;
            Ok(TargetIoCommand::Compare { offset, length, fua })
        }
        opcode::VERIFY => {
            let (offset, length, fua) = data_range(sqe, geometry)?; // VSL is MDTS
            Ok(TargetIoCommand::Verify { offset, length, fua })
        }
        opcode::WRITE_ZEROES => {
            let (offset, length) = block_range(sqe, geometry)?;
            let flags = sqe.cdw12.get();
            let (deallocate, fua) = (flags & cdw12::DEAC != 0, flags & cdw12::FUA != 0);
            Ok(TargetIoCommand::WriteZeroes { offset, length, deallocate, fua })
        }
        opcode::WRITE_UNCORRECTABLE => {
            let (offset, length) = block_range(sqe, geometry)?;
            Ok(TargetIoCommand::WriteUncorrectable { offset, length })
        }
        opcode::DATASET_MANAGEMENT => {
            let ranges = (sqe.cdw10.get() & 0xff) + 1;
            let deallocate = sqe.cdw11.get() & 4 != 0;
            let data_bytes = range_list_bytes(sqe, ranges)?;
            Ok(TargetIoCommand::DatasetManagement { ranges, data_bytes, deallocate })
        }
        opcode::COPY => copy(sqe, geometry),
        _ => Err(Status::INVALID_OPCODE.dnr()),
    }
}

/// Checks a Copy with source ranges of format 0; its list is checked once it has arrived.
fn copy(sqe: &Sqe, geometry: &BlockGeometry) -> Result<TargetIoCommand, Status> {
    let flags = sqe.cdw12.get();
    if flags & (cdw12::COPY_FORMAT | cdw12::COPY_PRINFO) != 0 {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let ranges = (flags & 0xff) + 1;
    if ranges > COPY_RANGES_MAX {
        return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.dnr());
    }
    if sqe.slba() >= geometry.blocks {
        return Err(Status::LBA_OUT_OF_RANGE.dnr());
    }
    let data_bytes = sqe.sgl.length.get();
    if !(ranges * COPY_RANGE_BYTES..=COPY_RANGES_MAX * COPY_RANGE_BYTES).contains(&data_bytes) {
        return Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
    }
    let (offset, fua) = (sqe.slba() << geometry.lba_shift, flags & cdw12::FUA != 0);
    Ok(TargetIoCommand::Copy { offset, ranges, data_bytes, fua })
}

/// Returns the size of the list of ranges: at least the ranges named, at most as many as a command can name.
fn range_list_bytes(sqe: &Sqe, ranges: u32) -> Result<u32, Status> {
    let length = sqe.sgl.length.get();
    match length {
        _ if length < ranges * DSM_RANGE_BYTES => Err(Status::DATA_SGL_LENGTH_INVALID.dnr()),
        _ if length > DSM_RANGES_MAX * DSM_RANGE_BYTES => {
            Err(Status::DATA_SGL_LENGTH_INVALID.dnr())
        }
        _ => Ok(length),
    }
}

fn block_range(sqe: &Sqe, geometry: &BlockGeometry) -> Result<(u64, u64), Status> {
    if sqe.cdw12.get() & cdw12::PRINFO != 0 {
        return Err(Status::INVALID_FIELD.dnr()); // no protection information without metadata
    }
    let (slba, blocks) = (sqe.slba(), u64::from(sqe.blocks()));
    match slba.checked_add(blocks) {
        Some(end) if end <= geometry.blocks => {
            Ok((slba << geometry.lba_shift, blocks << geometry.lba_shift))
        }
        _ => Err(Status::LBA_OUT_OF_RANGE.dnr()),
    }
}

fn data_range(sqe: &Sqe, geometry: &BlockGeometry) -> Result<(u64, u32, bool), Status> {
    let (offset, length) = block_range(sqe, geometry)?;
    if length > u64::from(geometry.transfer_bytes_max) {
        return Err(Status::INVALID_FIELD.dnr());
    }
    Ok((offset, length as u32, sqe.cdw12.get() & cdw12::FUA != 0))
}

/// Checks that the SGL describes exactly the command's data (NVMe TCP Transport, section 3.3.2.1).
#[inline]
fn check_sgl(sqe: &Sqe, command: &TargetIoCommand, in_capsule_bytes: u32) -> Result<(), Status> {
    let out = command.data_out_bytes();
    let length = match *command {
        TargetIoCommand::Read { length, .. } => length,
        _ => out,
    };
    check_data(sqe, (out, length), in_capsule_bytes)
}

/// Checks that the SGL describes `length` bytes, of which `out` come from the host: all or none.
#[inline]
pub(super) fn check_data(
    sqe: &Sqe,
    (out, length): (u32, u32),
    in_capsule_bytes: u32,
) -> Result<(), Status> {
    if length == 0 {
        let is_alone = in_capsule_bytes == 0;
        return if is_alone { Ok(()) } else { Err(Status::DATA_SGL_LENGTH_INVALID.dnr()) };
    }
    match sqe.sgl.kind {
        SGL_OFFSET if out == 0 || sqe.sgl.address.get() != 0 => {
            Err(Status::SGL_OFFSET_INVALID.dnr())
        }
        SGL_OFFSET if in_capsule_bytes == sqe.sgl.length.get() && in_capsule_bytes == length => {
            Ok(())
        }
        SGL_TRANSPORT if in_capsule_bytes == 0 && sqe.sgl.length.get() == length => Ok(()),
        SGL_OFFSET | SGL_TRANSPORT => Err(Status::DATA_SGL_LENGTH_INVALID.dnr()),
        _ => Err(Status::SGL_TYPE_INVALID.dnr()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: BlockGeometry =
        BlockGeometry { lba_shift: 9, blocks: 1024, read_only: false, transfer_bytes_max: 1 << 20 };

    fn dsm(ranges: u32, data_bytes: u32) -> Result<TargetIoCommand, Status> {
        let mut sqe = Sqe::new(opcode::DATASET_MANAGEMENT, 1);
        sqe.cdw10 = (ranges - 1).into();
        sqe.cdw11 = 4.into();
        sqe.set_in_capsule(data_bytes);
        TargetIoCommand::parse(&sqe, &GEOMETRY, data_bytes)
    }

    #[test]
    fn data_pointers_are_sgls() {
        for (flags, is_taken) in [(FLAG_SGL, true), (0, false), (0x80, false), (0xc0, false)] {
            let sqe = Sqe { flags, ..Sqe::new(opcode::FLUSH, 1) };
            assert_eq!(TargetIoCommand::parse(&sqe, &GEOMETRY, 0).is_ok(), is_taken, "{flags:#x}");
        }
    }

    #[test]
    fn fua_is_parsed_for_every_command_that_has_it() {
        for (opcode, stable) in
            [(opcode::READ, true), (opcode::COMPARE, true), (opcode::WRITE, false)]
        {
            for flags in [0, cdw12::FUA] {
                let mut sqe = Sqe::new(opcode, 1);
                sqe.cdw12 = flags.into();
                sqe.set_transport(512);
                let command = TargetIoCommand::parse(&sqe, &GEOMETRY, 0).unwrap();
                assert_eq!(command.reads_stable_data(), stable && flags != 0, "{opcode:#x}");
            }
        }
    }

    #[test]
    fn blocks_are_marked_as_they_are_written() {
        let mark = |slba, blocks| Sqe::rw(opcode::WRITE_UNCORRECTABLE, 1, slba, blocks);
        let parse = |sqe: &Sqe, geometry| TargetIoCommand::parse(sqe, geometry, 0);
        let command = TargetIoCommand::WriteUncorrectable { offset: 1000 << 9, length: 24 << 9 };
        assert_eq!(parse(&mark(1000, 24), &GEOMETRY), Ok(command));
        assert_eq!((command.group(), command.needs_flush()), (CommandGroup::Write, false));
        let beyond = Err(Status::LBA_OUT_OF_RANGE.dnr());
        assert_eq!(parse(&mark(1000, 25), &GEOMETRY), beyond);
        assert_eq!(parse(&mark(u64::MAX, 1), &GEOMETRY), beyond);
        let large = BlockGeometry { blocks: 1 << 30, ..GEOMETRY };
        assert!(parse(&mark(0, 65536), &large).is_ok(), "the transfer size is no limit");
        let read_only = BlockGeometry { read_only: true, ..GEOMETRY };
        let protected = Err(Status::NAMESPACE_WRITE_PROTECTED.dnr());
        assert_eq!(parse(&mark(0, 1), &read_only), protected);
    }

    #[test]
    fn commands_without_data_bring_none() {
        let flush = Sqe::new(opcode::FLUSH, 1);
        assert_eq!(TargetIoCommand::parse(&flush, &GEOMETRY, 0), Ok(TargetIoCommand::Flush));
        let refused = Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
        assert_eq!(TargetIoCommand::parse(&flush, &GEOMETRY, 512), refused);
    }

    #[test]
    fn a_range_list_may_be_longer_than_its_ranges() {
        // Linux sends 4,096 bytes for any number of ranges.
        for data_bytes in [32, 48, 4096] {
            let command =
                TargetIoCommand::DatasetManagement { ranges: 2, data_bytes, deallocate: true };
            assert_eq!(dsm(2, data_bytes), Ok(command));
            assert_eq!(command.data_out_bytes(), data_bytes);
        }
        for data_bytes in [0, 16, 31, 4097] {
            assert_eq!(dsm(2, data_bytes), Err(Status::DATA_SGL_LENGTH_INVALID.dnr()));
        }
    }
}

//! Any 64 bytes as a command: the fields of every format, and the checks of an I/O command.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_target_proto::io::{BlockGeometry, TargetIoCommand};
use roadtrain_wire::fabrics::{AuthenticationFields, Connect, Property};
use roadtrain_wire::lba_status::GetLbaStatus;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};

const GEOMETRY: BlockGeometry =
    BlockGeometry { lba_shift: 9, blocks: 1 << 20, read_only: false, transfer_bytes_max: 1 << 20 };

fuzz_target!(|input: &[u8]| {
    let Ok((sqe, rest)) = Sqe::read_from_prefix(input) else { return };
    let _ = (Connect::parse(&sqe), Property::parse(&sqe), AuthenticationFields::parse(&sqe));
    let _ = GetLbaStatus::parse(&sqe);
    assert_eq!(sqe.as_bytes(), &input[..64]);
    let end = GEOMETRY.blocks << GEOMETRY.lba_shift;
    match TargetIoCommand::parse(&sqe, &GEOMETRY, rest.len() as u32) {
        Ok(TargetIoCommand::Read { offset, length, .. })
        | Ok(TargetIoCommand::Write { offset, length, .. })
        | Ok(TargetIoCommand::Compare { offset, length, .. }) => {
            assert!(offset + u64::from(length) <= end && length <= GEOMETRY.transfer_bytes_max);
        }
        Ok(TargetIoCommand::WriteZeroes { offset, length, .. })
        | Ok(TargetIoCommand::WriteUncorrectable { offset, length }) => {
            assert!(offset + length <= end)
        }
        Ok(_) | Err(_) => {}
    }
});

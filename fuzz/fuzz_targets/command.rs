//! Any 64 bytes as a command: the fields of every format, and the checks of an I/O command.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_target_proto::io::{Geometry, IoCommand};
use roadtrain_wire::fabrics::{Authentication, Connect, Property};
use roadtrain_wire::lba_status::GetLbaStatus;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};

const GEOMETRY: Geometry =
    Geometry { lba_shift: 9, blocks: 1 << 20, read_only: false, transfer_bytes_max: 1 << 20 };

fuzz_target!(|input: &[u8]| {
    let Ok((sqe, rest)) = Sqe::read_from_prefix(input) else { return };
    let _ = (Connect::parse(&sqe), Property::parse(&sqe), Authentication::parse(&sqe));
    let _ = GetLbaStatus::parse(&sqe);
    assert_eq!(sqe.as_bytes(), &input[..64]);
    let end = GEOMETRY.blocks << GEOMETRY.lba_shift;
    match IoCommand::parse(&sqe, &GEOMETRY, rest.len() as u32) {
        Ok(IoCommand::Read { offset, length, .. })
        | Ok(IoCommand::Write { offset, length, .. })
        | Ok(IoCommand::Compare { offset, length, .. }) => {
            assert!(offset + u64::from(length) <= end && length <= GEOMETRY.transfer_bytes_max);
        }
        Ok(IoCommand::WriteZeroes { offset, length, .. })
        | Ok(IoCommand::WriteUncorrectable { offset, length }) => assert!(offset + length <= end),
        Ok(_) | Err(_) => {}
    }
});

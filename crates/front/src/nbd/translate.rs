//! Conversion of requests and errors between NBD and a disk.

use crate::disk::{DiskFault, DiskOp, DiskRequest};
use roadtrain_wire::nbd::{Command, Errno, NbdRequest, command_flag};

/// Returns the NBD error for `fault`.
pub(crate) fn errno_of(fault: DiskFault) -> Errno {
    match fault {
        DiskFault::NotServed => Errno::ENOTSUP,
        DiskFault::Gone => Errno::ESHUTDOWN,
        DiskFault::ReadOnly | DiskFault::Refused | DiskFault::Reserved => Errno::EPERM,
        DiskFault::Invalid => Errno::EINVAL,
        DiskFault::NoSpace => Errno::ENOSPC,
        DiskFault::Io => Errno::EIO,
    }
}

/// Converts a request that the session has checked to a disk request.
pub(crate) fn disk_request(request: &NbdRequest) -> DiskRequest {
    let op = match request.command {
        Command::READ => DiskOp::Read,
        Command::WRITE => DiskOp::Write,
        Command::TRIM => DiskOp::Discard,
        Command::WRITE_ZEROES => {
            DiskOp::WriteZeroes { deallocate: !request.has(command_flag::NO_HOLE) }
        }
        _ => DiskOp::Flush,
    };
    let (offset, length) = (request.offset, request.length);
    DiskRequest { op, offset, length, fua: request.has(command_flag::FUA) }
}

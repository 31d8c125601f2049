//! Conversion of requests and errors between NBD and a disk.

use crate::disk::{DiskOp, DiskRequest, Fault};
use roadtrain_wire::nbd::{Command, Errno, Request, command_flag};

/// Returns the NBD error for `fault`.
pub(crate) fn errno_of(fault: Fault) -> Errno {
    match fault {
        Fault::NotServed => Errno::ENOTSUP,
        Fault::Gone => Errno::ESHUTDOWN,
        Fault::ReadOnly | Fault::Refused | Fault::Reserved => Errno::EPERM,
        Fault::Invalid => Errno::EINVAL,
        Fault::NoSpace => Errno::ENOSPC,
        Fault::Io => Errno::EIO,
    }
}

/// Converts a request that the session has checked to a disk request.
pub(crate) fn disk_request(request: &Request) -> DiskRequest {
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

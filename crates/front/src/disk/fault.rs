//! Faults: causes of failed requests, in the terms of a local disk.

use super::request::DiskOp;
use roadtrain_wire::status::Status;

/// Cause of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskFault {
    /// The target does not support the operation.
    NotServed,
    /// The namespace is gone.
    Gone,
    /// The namespace takes no writes.
    ReadOnly,
    /// The target denies access.
    Refused,
    /// Another host has a reservation that forbids it.
    Reserved,
    /// The request is invalid.
    Invalid,
    /// No space is left.
    NoSpace,
    /// The storage or the path to it failed.
    Io,
}

impl DiskFault {
    /// Converts `status`, which is no success, to the fault of a request for `op`.
    pub(crate) fn of(status: Status, op: DiskOp) -> Self {
        const NOT_SERVED: [Status; 2] = [Status::INVALID_OPCODE, Status::INVALID_COMMAND_SET];
        const GONE: [Status; 2] = [Status::INVALID_NAMESPACE, Status::NAMESPACE_NOT_READY];
        let is = |list: &[Status]| list.iter().any(|&one| status.is(one));
        match status {
            _ if is(&NOT_SERVED) => DiskFault::NotServed,
            _ if is(&GONE) => DiskFault::Gone,
            _ if status.is(Status::NAMESPACE_WRITE_PROTECTED) => DiskFault::ReadOnly,
            _ if status.is(Status::ACCESS_DENIED) => DiskFault::Refused,
            _ if status.is(Status::RESERVATION_CONFLICT) => DiskFault::Reserved,
            _ if status.is(Status::INVALID_FIELD) => DiskFault::Invalid,
            _ if status.is(Status::CAPACITY_EXCEEDED) => DiskFault::NoSpace,
            _ if status.is(Status::LBA_OUT_OF_RANGE) => DiskFault::beyond_the_end(op),
            _ => DiskFault::Io,
        }
    }

    /// Returns the fault of an `op` that reaches beyond the disk's end.
    pub(crate) fn beyond_the_end(op: DiskOp) -> Self {
        match op {
            DiskOp::Write | DiskOp::WriteZeroes { .. } => DiskFault::NoSpace,
            _ => DiskFault::Invalid,
        }
    }

    /// Returns the errno that the kernel's own disks give. (NBD has its own errors.)
    pub(crate) fn errno(self) -> i32 {
        match self {
            DiskFault::NotServed => libc::EOPNOTSUPP,
            DiskFault::Gone => libc::ENXIO,
            DiskFault::ReadOnly => libc::EROFS,
            DiskFault::Refused => libc::EPERM,
            DiskFault::Reserved => libc::EBADE,
            DiskFault::Invalid => libc::EINVAL,
            DiskFault::NoSpace => libc::ENOSPC,
            DiskFault::Io => libc::EIO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_become_the_errors_that_programs_know() {
        let read = |status| DiskFault::of(status, DiskOp::Read).errno();
        assert_eq!(read(Status::LBA_OUT_OF_RANGE.dnr()), libc::EINVAL);
        assert_eq!(DiskFault::of(Status::LBA_OUT_OF_RANGE, DiskOp::Write), DiskFault::NoSpace);
        assert_eq!(DiskFault::of(Status::CAPACITY_EXCEEDED, DiskOp::Discard), DiskFault::NoSpace);
        assert_eq!(read(Status::NAMESPACE_WRITE_PROTECTED), libc::EROFS);
        assert_eq!(read(Status::RESERVATION_CONFLICT.dnr()), libc::EBADE);
        assert_eq!(read(Status::INVALID_NAMESPACE.dnr()), libc::ENXIO);
        assert_eq!(read(Status::INVALID_OPCODE), libc::EOPNOTSUPP);
        assert_eq!(read(Status::UNRECOVERED_READ_ERROR), libc::EIO);
        assert_eq!(read(Status::HOST_PATH_ERROR), libc::EIO);
        assert_eq!(read(Status::HOST_ABORTED), libc::EIO);
    }
}

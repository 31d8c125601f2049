//! Conversion of the system's errors to NVMe statuses.

use roadtrain_wire::status::Status;

/// Direction of a transfer, for errors that NVMe distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferDirection {
    Read,
    Write,
}

/// Returns the status of a failed operation. Do Not Retry is set if a retry cannot help.
pub(super) fn from_errno(errno: i32, access: TransferDirection) -> Status {
    match errno {
        // Block devices report medium, integrity and target errors as ENODATA, EILSEQ and EREMOTEIO.
        libc::EIO | libc::ENODATA | libc::EILSEQ | libc::EREMOTEIO => match access {
            TransferDirection::Read => Status::UNRECOVERED_READ_ERROR,
            TransferDirection::Write => Status::WRITE_FAULT,
        },
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => Status::CAPACITY_EXCEEDED.dnr(),
        libc::EROFS => Status::NAMESPACE_WRITE_PROTECTED.dnr(),
        libc::ECANCELED => Status::ABORT_REQUESTED,
        _ => Status::INTERNAL_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_its_status() {
        for (errno, read, write) in [
            (libc::EIO, Status::UNRECOVERED_READ_ERROR, Status::WRITE_FAULT),
            (libc::ENODATA, Status::UNRECOVERED_READ_ERROR, Status::WRITE_FAULT),
            (libc::ENOSPC, Status::CAPACITY_EXCEEDED, Status::CAPACITY_EXCEEDED),
            (libc::EDQUOT, Status::CAPACITY_EXCEEDED, Status::CAPACITY_EXCEEDED),
            (libc::EROFS, Status::NAMESPACE_WRITE_PROTECTED, Status::NAMESPACE_WRITE_PROTECTED),
            (libc::ENOMEM, Status::INTERNAL_ERROR, Status::INTERNAL_ERROR),
        ] {
            assert!(from_errno(errno, TransferDirection::Read).is(read), "{errno}");
            assert!(from_errno(errno, TransferDirection::Write).is(write), "{errno}");
        }
    }
}

//! NVMe status -> NBD error.

use roadtrain_wire::nbd::{Command, Errno};
use roadtrain_wire::status::Status;

/// The error that tells a client of `command` about `status`, which is no success.
pub(crate) fn errno_of(status: Status, command: Command) -> Errno {
    const NOT_SERVED: [Status; 2] = [Status::INVALID_OPCODE, Status::INVALID_COMMAND_SET];
    const GONE: [Status; 2] = [Status::INVALID_NAMESPACE, Status::NAMESPACE_NOT_READY];
    const REFUSED: [Status; 2] = [Status::NAMESPACE_WRITE_PROTECTED, Status::ACCESS_DENIED];
    let is = |list: &[Status]| list.iter().any(|&one| status.is(one));
    let writes = matches!(command, Command::WRITE | Command::WRITE_ZEROES);
    match status {
        _ if is(&NOT_SERVED) => Errno::ENOTSUP,
        _ if is(&GONE) => Errno::ESHUTDOWN,
        _ if is(&REFUSED) => Errno::EPERM,
        _ if status.is(Status::INVALID_FIELD) => Errno::EINVAL,
        _ if status.is(Status::CAPACITY_EXCEEDED) => Errno::ENOSPC,
        _ if status.is(Status::LBA_OUT_OF_RANGE) && writes => Errno::ENOSPC,
        _ if status.is(Status::LBA_OUT_OF_RANGE) => Errno::EINVAL,
        _ => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_become_the_errors_that_clients_know() {
        let read = |status| errno_of(status, Command::READ);
        assert_eq!(read(Status::LBA_OUT_OF_RANGE.dnr()), Errno::EINVAL);
        assert_eq!(errno_of(Status::LBA_OUT_OF_RANGE, Command::WRITE), Errno::ENOSPC);
        assert_eq!(errno_of(Status::CAPACITY_EXCEEDED, Command::TRIM), Errno::ENOSPC);
        assert_eq!(read(Status::NAMESPACE_WRITE_PROTECTED), Errno::EPERM);
        assert_eq!(read(Status::INVALID_NAMESPACE.dnr()), Errno::ESHUTDOWN);
        assert_eq!(read(Status::INVALID_OPCODE), Errno::ENOTSUP);
        assert_eq!(read(Status::UNRECOVERED_READ_ERROR), Errno::EIO);
        assert_eq!(read(Status::HOST_PATH_ERROR), Errno::EIO);
    }
}

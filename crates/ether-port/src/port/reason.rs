//! Advice for errors of opening a port.

use super::config::PortKind;
use std::io;

/// Adds advice to the error of a port of that kind.
pub(super) fn explained(error: io::Error, kind: PortKind) -> io::Error {
    let what = match (error.raw_os_error(), kind) {
        (Some(libc::EPERM | libc::EACCES), PortKind::Xdp) => {
            "needs root, or CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"
        }
        (Some(libc::EPERM | libc::EACCES), _) => "needs root, or CAP_NET_RAW",
        (Some(libc::EBUSY | libc::EEXIST), PortKind::Xdp) => {
            "AF_XDP takes all of an interface, for one program and one of its cores"
        }
        (Some(libc::ENOBUFS), PortKind::Xdp) => {
            "AF_XDP locks memory: needs CAP_IPC_LOCK, or a higher limit (ulimit -l)"
        }
        (Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT), PortKind::Xdp) => {
            "no AF_XDP here: use AF_PACKET"
        }
        _ => return error,
    };
    let kind = match error.raw_os_error() {
        Some(libc::ENOBUFS) => io::ErrorKind::OutOfMemory,
        _ => error.kind(),
    };
    io::Error::new(kind, format!("{error}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let of = |errno, kind| explained(io::Error::from_raw_os_error(errno), kind);
        let denied = of(libc::EPERM, PortKind::Auto);
        assert_eq!(denied.kind(), io::ErrorKind::PermissionDenied);
        assert!(
            denied.to_string().ends_with("(os error 1): needs root, or CAP_NET_RAW"),
            "{denied}"
        );
        let busy = of(libc::EBUSY, PortKind::Xdp);
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        assert!(busy.to_string().contains("one of its cores"), "{busy}");
        assert!(of(libc::ENOBUFS, PortKind::Xdp).to_string().contains("ulimit -l"));
        // Callers check this kind of error.
        assert_eq!(of(libc::ENODEV, PortKind::Xdp).raw_os_error(), Some(libc::ENODEV));
    }
}

//! Tells the service manager how far we are (the protocol of sd_notify); nobody is told where there is none.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use tracing::debug;

/// The service can be used.
pub(crate) const READY: &str = "READY=1";
/// The service ends.
pub(crate) const STOPPING: &str = "STOPPING=1";

/// Sends `state` to the socket that NOTIFY_SOCKET names: a path, or `@` and an abstract name.
pub(crate) fn tell(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
        return;
    };
    if let Err(error) = send(name.as_bytes(), state) {
        debug!("NOTIFY_SOCKET: {error}");
    }
}

fn send(name: &[u8], state: &str) -> io::Result<()> {
    let address = match name {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(Path::new(std::ffi::OsStr::from_bytes(path)))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_abstract_names_are_reached() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let name = format!("roadtrain-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, name) in [
            (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned()),
            (UnixDatagram::bind_addr(&address).unwrap(), format!("@{name}")),
        ] {
            send(name.as_bytes(), READY).unwrap();
            let mut text = [0; 32];
            let length = socket.recv(&mut text).unwrap();
            assert_eq!(&text[..length], b"READY=1");
        }
        assert!(send(b"/nonexistent/x", READY).is_err());
    }
}

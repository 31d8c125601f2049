//! Sockets of JSON-RPC that a target has by custom.

use std::path::{Path, PathBuf};

/// Where SPDK's clients look for a target, and so do ours.
pub(crate) const SOCKET: &str = "/var/tmp/spdk.sock";
/// Where the service roadtrain-serve has its socket.
pub(crate) const SERVICE_SOCKET: &str = "/run/roadtrain-serve/rpc.sock";

/// The socket of a target that nobody has named: SPDK's default, or that of the service if only that is there.
pub(crate) fn default_socket() -> PathBuf {
    first_there([SOCKET, SERVICE_SOCKET])
}

/// The first path at which there is something, or the first one.
fn first_there(paths: [&str; 2]) -> PathBuf {
    // A folder that may not be looked into may have it: whoever connects hears why that cannot be.
    let is_there = |path: &&str| !matches!(Path::new(path).try_exists(), Ok(false));
    paths.into_iter().find(is_there).unwrap_or(paths[0]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_is_found_when_there_is_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["spdk.sock", "rpc.sock"].map(|name| folder.path().join(name));
        let found = || first_there([&first, &second].map(|path| path.to_str().unwrap()));
        assert_eq!(found(), first);
        std::fs::write(&second, "").unwrap();
        assert_eq!(found(), second);
        std::fs::write(&first, "").unwrap();
        assert_eq!(found(), first);
    }
}

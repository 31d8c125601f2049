//! `roadtrain rpc`

use super::{NO_HEADING, known};
use clap::Args;
use clap_complete::ArgValueCandidates;
use std::path::{Path, PathBuf};

/// Where SPDK's clients look for a target, and so do ours.
pub(crate) const SOCKET: &str = "/var/tmp/spdk.sock";
/// Where the service roadtrain-serve has its socket.
pub(crate) const SERVICE_SOCKET: &str = "/run/roadtrain-serve/rpc.sock";

const EXAMPLES: &str = "\
Prints the result as JSON. docs/reference/rpc.md has the methods.

Exit status: 0 when the target has done it, 1 when it refuses (its message is on stderr), 2 when the
parameters are not valid JSON, 3 when nobody answers.

Examples:
  roadtrain rpc rpc_get_methods
  roadtrain rpc bdev_malloc_create '{\"name\": \"disk\", \"num_blocks\": 131072, \"block_size\": 512}'
  roadtrain rpc --rpc /run/roadtrain/rpc.sock nvmf_get_subsystems";

/// The socket of a target.
#[derive(Args, Clone, Debug)]
pub struct RpcSocketArgs {
    /// Unix socket of the target, as its --rpc says.
    /// [default: /var/tmp/spdk.sock or, if that is not there, /run/roadtrain-serve/rpc.sock, that of the service].
    #[arg(long = "rpc", value_name = "PATH", global = true, help_heading = NO_HEADING)]
    pub socket: Option<PathBuf>,
}

impl RpcSocketArgs {
    /// The socket that is meant.
    pub(crate) fn path(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(default_socket)
    }
}

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

/// Options of `roadtrain rpc`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RpcArgs {
    /// Method.
    #[arg(add = ArgValueCandidates::new(known::methods))]
    pub method: String,
    /// Its parameters, an object in JSON [default: none].
    #[arg(value_name = "JSON")]
    pub params: Option<String>,
    /// Whom to ask.
    #[command(flatten)]
    pub socket: RpcSocketArgs,
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

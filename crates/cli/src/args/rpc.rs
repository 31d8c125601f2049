//! `roadtrain rpc`

use super::socket::default_socket;
use super::{NO_HEADING, known};
use clap::Args;
use clap_complete::ArgValueCandidates;
use std::path::PathBuf;

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

//! `roadtrain rpc`

use super::{NO_HEADING, known};
use clap::Args;
use clap_complete::ArgValueCandidates;
use std::path::PathBuf;

/// Where SPDK's clients look for a target, and so do ours.
pub(crate) const SOCKET: &str = "/var/tmp/spdk.sock";

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
    #[arg(long = "rpc", value_name = "PATH", default_value = SOCKET, global = true, help_heading = NO_HEADING)]
    pub socket: PathBuf,
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

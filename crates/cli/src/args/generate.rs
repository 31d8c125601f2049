//! Commands that write files for packagers.

use clap::Args;
use clap_complete::Shell;
use std::path::PathBuf;

const EXAMPLES: &str = "\
The scripts have the shell call this program, so names of devices, volumes, subsystems, hosts and
methods are those of the running target (--rpc PATH).

Examples:
  roadtrain completions bash > ~/.local/share/bash-completion/completions/roadtrain
  roadtrain completions --dir target/completions";

/// Options of `roadtrain completions`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// Print the completions of this shell.
    #[arg(required_unless_present = "dir")]
    pub shell: Option<Shell>,
    /// Write those of every shell to this directory instead.
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "shell")]
    pub dir: Option<PathBuf>,
}

/// Options of `roadtrain man`.
#[derive(Args, Clone, Debug)]
pub struct ManArgs {
    /// Directory for roadtrain.1, roadtrain-serve.1 and so on.
    pub dir: PathBuf,
}

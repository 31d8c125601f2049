//! `roadtrain ctl`

use super::{AnaName, AnaPort, NO_HEADING};
use clap::{Args, Subcommand};

const EXAMPLES: &str = "\
Connected hosts are told. What is set is not written to the configuration file: a reload or a
restart goes back to what the file says.

Exit status: 0 when it is done, 2 when there is no such listener, 3 when no target answers.

Examples:
  roadtrain ctl ana --listener 192.0.2.1:4420 inaccessible
  roadtrain ctl ana --listener '[2001:db8::1]:4420' optimized --id target0";

/// Options of `roadtrain ctl`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CtlArgs {
    /// What to tell it.
    #[command(subcommand)]
    pub command: CtlCommand,
    /// The target's name, as `roadtrain status` shows it [default: the one with that listener].
    #[arg(long, value_name = "NAME", global = true, help_heading = NO_HEADING)]
    pub id: Option<String>,
}

/// What a target can be told while it runs.
#[derive(Clone, Debug, Subcommand)]
pub enum CtlCommand {
    /// Say how good the way to the namespaces is that a listener gives (asymmetric namespace access).
    Ana {
        /// The listener: ADDRESS:PORT (an IPv6 address in brackets), or ether; one address of a listener that has all
        /// will do.
        #[arg(long, value_name = "ADDRESS:PORT")]
        listener: AnaPort,
        /// Its state.
        state: AnaName,
    },
}

//! `roadtrain ctl`

use super::{
    AnaName, AnaPort, DeviceCommand, HostCommand, ListenerCommand, NO_HEADING, NamespaceCommand,
    RpcSocketArgs, SubsystemCommand,
};
use clap::{Args, Subcommand};

const EXAMPLES: &str = "\
Connected hosts are told. What ana sets is not written to the configuration file: a reload or a
restart goes back to what the file says. All others are for a target with --rpc, and are kept when
it has --state.

Exit status: 0 when it is done, 1 when the target refuses, 2 when it makes no sense, 3 when no
target answers.

Examples:
  roadtrain ctl device add disk file:/srv/images/disk.img
  roadtrain ctl subsystem add nqn.2025-01.io.example:disk --any-host
  roadtrain ctl namespace add nqn.2025-01.io.example:disk disk
  roadtrain ctl listener add nqn.2025-01.io.example:disk 192.0.2.1:4420
  roadtrain ctl host allow nqn.2025-01.io.example:disk nqn.2025-01.io.example:host7
  roadtrain ctl connections --json
  roadtrain ctl ana --listener 192.0.2.1:4420 inaccessible
  roadtrain ctl ana --listener '[2001:db8::1]:4420' optimized --id target0";

/// Options of `roadtrain ctl`.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CtlArgs {
    /// What to tell it.
    #[command(subcommand)]
    pub command: CtlCommand,
    /// Whom to tell, but for ana.
    #[command(flatten)]
    pub socket: RpcSocketArgs,
    /// For ana: the target's name, as `roadtrain status` shows it [default: the one with that listener].
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
    /// Devices: what blocks are kept in.
    #[command(subcommand)]
    Device(DeviceCommand),
    /// Subsystems.
    #[command(subcommand)]
    Subsystem(SubsystemCommand),
    /// Namespaces: devices as hosts see them.
    #[command(subcommand)]
    Namespace(NamespaceCommand),
    /// Where subsystems can be reached.
    #[command(subcommand)]
    Listener(ListenerCommand),
    /// Who may use subsystems.
    #[command(subcommand)]
    Host(HostCommand),
    /// Show who is connected.
    Connections {
        /// NQN of a subsystem [default: all].
        nqn: Option<String>,
    },
}

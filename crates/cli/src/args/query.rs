//! Commands that only read: discover, identify, list.

use super::{ConnectArgs, EtherArgs, NO_HEADING, Portal, Portals, TransportName};
use clap::Args;

const DISCOVER_EXAMPLES: &str = concat!(
    "\
Examples:
  roadtrain discover -a 127.0.0.1
  roadtrain discover -t tcp -a 192.0.2.7 -s 8009 --json
  roadtrain discover --mdns",
    ether!("\n  roadtrain discover -t ether -a eth1,eth2")
);

/// `roadtrain discover`
#[derive(Args, Clone, Debug)]
#[command(after_help = DISCOVER_EXAMPLES)]
pub struct DiscoverArgs {
    /// Transport.
    #[arg(short = 't', long, default_value = "tcp")]
    pub transport: TransportName,
    /// Transport address of the target.
    #[arg(short = 'a', long, value_name = "ADDRESS", required_unless_present = "mdns", help = concat!(
        "Transport address. IP address or name of the target",
        ether!("; with -t ether this machine's interfaces that lead to it: IF[,IF..]")
    ))]
    pub traddr: Option<String>,
    /// TCP port.
    #[arg(short = 's', long, value_name = "PORT", default_value_t = 4420)]
    pub trsvcid: u16,
    /// Multicast DNS on the local network. The discovery services that answer within 3 s are listed.
    #[arg(long, conflicts_with_all = ["traddr", "trsvcid"])]
    pub mdns: bool,
    /// Frame options.
    #[command(flatten)]
    pub ether: EtherArgs,
    /// The host's identity, keys and timeouts.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

impl DiscoverArgs {
    /// Returns the address to query; `None`: the local network.
    #[must_use]
    pub fn portal(&self) -> Option<Portal> {
        let traddr = self.traddr.clone()?;
        let (transport, trsvcid, ether) = (self.transport, self.trsvcid, self.ether);
        Some(Portal { transport, traddr, trsvcid, ether })
    }
}

const IDENTIFY_EXAMPLES: &str = "\
Examples:
  roadtrain identify -a 127.0.0.1 -n nqn.2025-01.io.example:disk
  roadtrain identify -a 127.0.0.1 -n nqn.2025-01.io.example:disk --nsid 1 --json";

/// `roadtrain identify`
#[derive(Args, Clone, Debug)]
#[command(after_help = IDENTIFY_EXAMPLES)]
pub struct IdentifyArgs {
    /// Where to connect.
    #[command(flatten)]
    pub portal: Portal,
    /// NQN of the subsystem.
    #[arg(short = 'n', long, value_name = "NQN", alias = "subnqn", help_heading = NO_HEADING)]
    pub nqn: String,
    /// Namespace ID [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..),
          help_heading = NO_HEADING)]
    pub nsid: Option<u32>,
    /// The host's identity, keys and timeouts.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

const LIST_EXAMPLES: &str = "\
Without an address: what this user has attached and serves here, also when its process is gone
(`roadtrain status` queries the processes). With one: the namespaces that a target has there.

Examples:
  roadtrain list
  roadtrain list --json
  roadtrain list -a 127.0.0.1
  roadtrain list -a 192.0.2.7 -s 4420 --json
  roadtrain list -a 192.0.2.7:4420 -a 198.51.100.7:4420";

/// `roadtrain list`
#[derive(Args, Clone, Debug)]
#[command(after_help = LIST_EXAMPLES)]
pub struct ListArgs {
    /// Transport.
    #[arg(short = 't', long, default_value = "tcp")]
    pub transport: TransportName,
    /// Transport address of a target.
    #[arg(short = 'a', long, value_name = "ADDRESS", help = concat!(
        "Transport address. IP address or name of a target, with :PORT or without; repeated, all of them",
        ether!("; with -t ether interfaces"),
        " [default: list what is attached and served here]"
    ))]
    pub traddr: Vec<String>,
    /// TCP port. That of addresses without one.
    #[arg(short = 's', long, value_name = "PORT", default_value_t = 4420, requires = "traddr")]
    pub trsvcid: u16,
    /// Frame options.
    #[command(flatten)]
    pub ether: EtherArgs,
    /// NQN of the subsystem [default: all].
    #[arg(short = 'n', long, value_name = "NQN", alias = "subnqn", help_heading = NO_HEADING)]
    pub nqn: Option<String>,
    /// The host's identity, keys and timeouts.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

impl ListArgs {
    /// Returns the targets to query.
    #[must_use]
    pub fn portals(&self) -> Vec<Portal> {
        let (transport, trsvcid, ether) = (self.transport, self.trsvcid, self.ether);
        Portals {
            transport,
            traddr: self.traddr.clone(),
            trsvcid,
            discover: false,
            mdns: false,
            ether,
        }
        .each()
    }
}

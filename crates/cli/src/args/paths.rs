//! Where a target listens, by one path or several.

use super::{EtherArgs, Portal, Transport};
use clap::{Args, ValueEnum};
use roadtrain_engine::host::PathPolicy;

/// Where a target listens, by one path or several.
#[derive(Args, Clone, Debug)]
pub struct Portals {
    /// Transport.
    #[arg(short = 't', long, default_value = "tcp")]
    pub transport: Transport,
    /// Address or name of the target, ADDR or ADDR:PORT. Repeated, each is a path to the same subsystem.
    #[arg(short = 'a', long, value_name = "ADDRESS", required_unless_present = "mdns", help = concat!(
        "Address or name of the target, ADDR or ADDR:PORT ([IPv6]:PORT); a name is looked up for each connection, so \
         it may move. Repeated, each is a path to the same subsystem",
        ether!("; with -t ether this machine's interfaces that lead to it: IF[,IF..]")
    ))]
    pub traddr: Vec<String>,
    /// TCP port of addresses without one.
    #[arg(short = 's', long, value_name = "PORT", default_value_t = 4420)]
    pub trsvcid: u16,
    /// -a names discovery controllers: all that they know of the subsystem are its paths.
    #[arg(long)]
    pub discover: bool,
    /// The same with the discovery services that answer on the local network (multicast DNS), instead of -a.
    #[arg(long, conflicts_with = "traddr")]
    pub mdns: bool,
    /// How frames are.
    #[command(flatten)]
    pub ether: EtherArgs,
}

impl Portals {
    /// Each of them.
    #[must_use]
    pub fn each(&self) -> Vec<Portal> {
        let (transport, trsvcid, ether) = (self.transport, self.trsvcid, self.ether);
        let portal = |traddr: &String| Portal { transport, traddr: traddr.clone(), trsvcid, ether };
        self.traddr.iter().map(portal).collect()
    }
}

/// By what a path is chosen, where there are several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PathPolicyName {
    /// The least expected latency: what is under way times how long requests take there.
    #[default]
    Latency,
    /// The fewest requests under way.
    QueueDepth,
    /// Each in turn.
    RoundRobin,
}

impl From<PathPolicyName> for PathPolicy {
    fn from(name: PathPolicyName) -> PathPolicy {
        match name {
            PathPolicyName::Latency => PathPolicy::Latency,
            PathPolicyName::QueueDepth => PathPolicy::QueueDepth,
            PathPolicyName::RoundRobin => PathPolicy::RoundRobin,
        }
    }
}

//! A target's addresses: one path or several.

use super::{EtherArgs, Portal, TransportName};
use clap::Args;

/// A target's addresses: one path or several.
#[derive(Args, Clone, Debug)]
pub struct Portals {
    /// Transport.
    #[arg(short = 't', long, default_value = "tcp")]
    pub transport: TransportName,
    /// Transport address of the target. Repeated, each is a path to the same subsystem.
    #[arg(short = 'a', long, value_name = "ADDRESS", required_unless_present = "mdns", help = concat!(
        "Transport address. IP address or name of the target, with :PORT or without ([IPv6]:PORT); a name is resolved \
         for each connection, so it may move. Repeated, each is a path to the same subsystem",
        ether!("; with -t ether, or written ether:IF[,IF..], this machine's interfaces that lead to it")
    ))]
    pub traddr: Vec<String>,
    /// TCP port. That of addresses without one.
    #[arg(short = 's', long, value_name = "PORT", default_value_t = 4420)]
    pub trsvcid: u16,
    /// -a names discovery controllers: all that they know of the subsystem are its paths.
    #[arg(long)]
    pub discover: bool,
    /// Multicast DNS on the local network. As --discover with the discovery services that answer, instead of -a.
    #[arg(long, conflicts_with = "traddr")]
    pub mdns: bool,
    /// Frame options.
    #[command(flatten)]
    pub ether: EtherArgs,
}

impl Portals {
    /// Returns each portal, over the transport that its address names, or else over that of `-t`.
    #[must_use]
    pub fn each(&self) -> Vec<Portal> {
        let named = |address: &String| {
            let over = |name| address.strip_prefix(name).map(str::to_owned);
            match (over("ether:"), over("tcp:")) {
                (Some(interfaces), _) => (TransportName::Ether, interfaces),
                (_, Some(address)) => (TransportName::Tcp, address),
                _ => (self.transport, address.clone()),
            }
        };
        let named: Vec<(TransportName, String)> = self.traddr.iter().map(named).collect();
        let has_frames = named.iter().any(|(transport, _)| transport.has_frames());
        let portal = |(transport, traddr): (TransportName, String)| {
            // In a mix of transports, the Ethernet options are not for TCP paths.
            let is_for_others = has_frames && !transport.has_frames();
            let ether = if is_for_others { EtherArgs::default() } else { self.ether };
            Portal { transport, traddr, trsvcid: self.trsvcid, ether }
        };
        named.into_iter().map(portal).collect()
    }
}

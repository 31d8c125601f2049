//! How a port is made.

use roadtrain_wire::ether::ETHERTYPE;

/// What a port is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortKind {
    /// What is best for the interface; the port may take all of it.
    #[default]
    Auto,
    /// AF_PACKET: any number of ports share an interface.
    Packet,
    /// AF_XDP: one port has all queues of its interface. Needs `CAP_NET_ADMIN` and `CAP_BPF`.
    Xdp,
}

/// How a port is made.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// What it is made of.
    pub kind: PortKind,
    /// EtherType of its frames.
    pub ethertype: u16,
    /// VLAN whose tag its frames carry.
    pub vlan: Option<u16>,
    /// About how much memory frames that arrive may take; `None`: what suits the interface.
    pub receive_bytes: Option<usize>,
}

impl Default for PortConfig {
    fn default() -> Self {
        PortConfig { kind: PortKind::Auto, ethertype: ETHERTYPE, vlan: None, receive_bytes: None }
    }
}

//! Configuration of a port.

use roadtrain_wire::ether::ETHERTYPE;

/// Socket family of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortKind {
    /// The best one for the interface; the port may use the whole interface.
    #[default]
    Auto,
    /// AF_PACKET: any number of ports share an interface.
    Packet,
    /// AF_XDP: one port has all queues of its interface. Needs `CAP_NET_ADMIN` and `CAP_BPF`.
    Xdp,
}

/// Configuration of a port.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// Socket family.
    pub kind: PortKind,
    /// EtherType of its frames.
    pub ethertype: u16,
    /// VLAN whose tag its frames carry.
    pub vlan: Option<u16>,
    /// Approximate memory for received frames, in bytes; `None` for a size that suits the interface.
    pub receive_bytes: Option<usize>,
}

impl Default for PortConfig {
    fn default() -> Self {
        PortConfig { kind: PortKind::Auto, ethertype: ETHERTYPE, vlan: None, receive_bytes: None }
    }
}

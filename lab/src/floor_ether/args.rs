//! What to measure, and how.

use crate::floor::{Direction, parse_bytes};
use clap::ValueEnum;
use roadtrain_ether_port::port::PortKind;
use serde::{Deserialize, Serialize};

/// The limit of the Ethernet transport on this machine (as root; in a network namespace of its own)
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// What the ports are made of
    #[arg(long, value_enum, value_delimiter = ',', default_value = "packet,xdp")]
    pub(super) kind: Vec<Kind>,
    /// Octets of a frame behind Ethernet's header
    #[arg(long, value_delimiter = ',', default_value = "1500,9000,65535")]
    pub(super) mtu: Vec<usize>,
    /// Direction of the data
    #[arg(long, value_enum, value_delimiter = ',', default_value = "randread,randwrite")]
    pub(super) rw: Vec<Direction>,
    /// Bytes per request (k and m suffixes)
    #[arg(long, default_value = "4k", value_parser = parse_bytes)]
    pub(super) bs: usize,
    /// Requests in flight
    #[arg(long, value_delimiter = ',', default_value = "1,128")]
    pub(super) depth: Vec<usize>,
    /// Most payloads that a frame carries (as many as fit, where that is fewer)
    #[arg(long, value_delimiter = ',', default_value = "1,2,64")]
    pub(super) payloads: Vec<usize>,
    /// Seconds to measure, after a warm-up
    #[arg(long, default_value_t = 1.0)]
    pub(super) seconds: f64,
    /// Seconds of warm-up
    #[arg(long, default_value_t = 0.2)]
    pub(super) warmup: f64,
    /// Runs of each case, in turns; the median counts
    #[arg(long, default_value_t = 1)]
    pub(super) rounds: usize,
    /// Core of the target's thread
    #[arg(long, default_value_t = 1)]
    pub(super) target_core: usize,
    /// Core of the host's thread
    #[arg(long, default_value_t = 0)]
    pub(super) host_core: usize,
    /// Both ends spin this long before they sleep
    #[arg(long, default_value_t = 0)]
    pub(super) spin_us: u64,
    /// Bytes of the target's memory
    #[arg(long, default_value = "1g", value_parser = parse_bytes)]
    pub(super) memory: usize,
    /// Memory of each port for frames that arrive [default: as the product]
    #[arg(long, value_parser = parse_bytes)]
    pub(super) receive: Option<usize>,
    /// Use these two interfaces, which reach each other, instead of a veth pair
    #[arg(long, value_names = ["HOST", "TARGET"], num_args = 2)]
    pub(super) interfaces: Option<Vec<String>>,
    /// Print one JSON array
    #[arg(long)]
    pub(super) json: bool,
}

/// What a port is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// AF_PACKET
    Packet,
    /// AF_XDP
    Xdp,
}

impl Kind {
    pub(super) fn port(self) -> PortKind {
        match self {
            Kind::Packet => PortKind::Packet,
            Kind::Xdp => PortKind::Xdp,
        }
    }
}

//! Options of the floor of the Ethernet transport.

use crate::floor::{DataDirection, parse_bytes};
use clap::ValueEnum;
use roadtrain_ether_port::port::PortKind;
use serde::Serialize;

/// The limit of the Ethernet transport on this machine (as root; in a network namespace of its own)
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FloorEtherArgs {
    /// Kinds of ports
    #[arg(long, value_enum, value_delimiter = ',', default_value = "packet,xdp")]
    pub(crate) kind: Vec<FloorPortKind>,
    /// Bytes of a frame behind Ethernet's header
    #[arg(long, value_delimiter = ',', default_value = "1500,9000,65535")]
    pub(crate) mtu: Vec<usize>,
    /// Direction of the data
    #[arg(long, value_enum, value_delimiter = ',', default_value = "randread,randwrite")]
    pub(crate) rw: Vec<DataDirection>,
    /// Bytes per request (k and m suffixes)
    #[arg(long, default_value = "4k", value_parser = parse_bytes)]
    pub(crate) bs: usize,
    /// Requests in flight
    #[arg(long, value_delimiter = ',', default_value = "1,128")]
    pub(crate) depth: Vec<usize>,
    /// Most payloads that a frame carries (as many as fit, where that is fewer)
    #[arg(long, value_delimiter = ',', default_value = "1,2,64")]
    pub(crate) payloads: Vec<usize>,
    /// Seconds to measure, after a warm-up
    #[arg(long, default_value_t = 1.0)]
    pub(crate) seconds: f64,
    /// Seconds of warm-up
    #[arg(long, default_value_t = 0.2)]
    pub(crate) warmup: f64,
    /// Runs of each case, in turns; the median counts
    #[arg(long, default_value_t = 1)]
    pub(crate) rounds: usize,
    /// Core of the target's thread
    #[arg(long, default_value_t = 1)]
    pub(crate) target_core: usize,
    /// Core of the host's thread
    #[arg(long, default_value_t = 0)]
    pub(crate) host_core: usize,
    /// Both ends spin this long before they sleep
    #[arg(long, default_value_t = 0)]
    pub(crate) spin_us: u64,
    /// Bytes of the target's memory
    #[arg(long, default_value = "1g", value_parser = parse_bytes)]
    pub(crate) memory: usize,
    /// Memory of each port for frames that arrive [default: as the product]
    #[arg(long, value_parser = parse_bytes)]
    pub(crate) receive: Option<usize>,
    /// Use these two interfaces, which reach each other, instead of a veth pair
    #[arg(long, value_names = ["HOST", "TARGET"], num_args = 2)]
    pub(crate) interfaces: Option<Vec<String>>,
    /// Print one JSON array
    #[arg(long)]
    pub(crate) json: bool,
}

impl Default for FloorEtherArgs {
    /// As with no option given.
    fn default() -> Self {
        use clap::{Args as _, FromArgMatches as _};
        let matches = Self::augment_args(clap::Command::new("floor-ether")).get_matches_from([""]);
        Self::from_arg_matches(&matches).expect("every option has a default")
    }
}

/// Kind of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FloorPortKind {
    /// AF_PACKET
    Packet,
    /// AF_XDP
    Xdp,
}

impl FloorPortKind {
    pub(crate) fn port(self) -> PortKind {
        match self {
            FloorPortKind::Packet => PortKind::Packet,
            FloorPortKind::Xdp => PortKind::Xdp,
        }
    }
}

//! Which way frames go.

use crate::ether::port::PortConfig;
use roadtrain_proto::ether::Packing;
use std::fmt;

/// Targets that can be reached straight on Ethernet.
#[derive(Clone, Debug)]
pub struct EtherAddress {
    /// Interfaces of this machine.
    pub interfaces: Vec<String>,
    /// How ports at them are made.
    pub port: PortConfig,
    /// What a frame may carry at once.
    pub packing: Packing,
}

impl EtherAddress {
    /// Those at `interfaces`, in the usual way.
    #[must_use]
    pub fn new(interfaces: Vec<String>) -> Self {
        EtherAddress { interfaces, port: PortConfig::default(), packing: Packing::default() }
    }
}

impl fmt::Display for EtherAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ether:{}", self.interfaces.join(","))
    }
}

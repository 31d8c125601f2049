//! Addresses of targets on raw Ethernet.

use roadtrain_ether_port::port::PortConfig;
use roadtrain_ether_proto::Packing;
use roadtrain_proto::seal::KeyLimits;
use roadtrain_proto::security::SealUse;
use std::fmt;

/// Interfaces and settings to reach targets on raw Ethernet.
#[derive(Clone, Debug)]
pub struct EtherAddress {
    /// Local interfaces.
    pub interfaces: Vec<String>,
    /// Configuration of their ports.
    pub port: PortConfig,
    /// Packing of records into frames.
    pub packing: Packing,
    /// Sealing of frames.
    pub seals: SealUse,
    /// Usage limits of a lane's keys; then all lanes are made again.
    pub seal_limits: KeyLimits,
}

impl EtherAddress {
    /// Creates an address with the default settings.
    #[must_use]
    pub fn new(interfaces: Vec<String>) -> Self {
        EtherAddress {
            interfaces,
            port: PortConfig::default(),
            packing: Packing::default(),
            seals: SealUse::Allowed,
            seal_limits: KeyLimits::HOST,
        }
    }
}

impl EtherAddress {
    pub(crate) fn seals(&self) -> SealUse {
        self.seals
    }

    pub(crate) fn ports(&self) -> usize {
        self.interfaces.len()
    }
}

impl fmt::Display for EtherAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ether:{}", self.interfaces.join(","))
    }
}

//! Which way frames go.

use roadtrain_ether_port::port::PortConfig;
use roadtrain_ether_proto::Packing;
use roadtrain_proto::seal::Limits;
use roadtrain_proto::security::SealUse;
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
    /// Whether frames are sealed.
    pub seals: SealUse,
    /// For how much the keys of a lane are used; then all lanes are made anew.
    pub seal_limits: Limits,
}

impl EtherAddress {
    /// Those at `interfaces`, in the usual way.
    #[must_use]
    pub fn new(interfaces: Vec<String>) -> Self {
        EtherAddress {
            interfaces,
            port: PortConfig::default(),
            packing: Packing::default(),
            seals: SealUse::Allowed,
            seal_limits: Limits::HOST,
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

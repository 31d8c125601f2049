//! Referrals of hosts to other discovery controllers.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// A discovery controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedReferral {
    /// Its address.
    pub address: IpAddr,
    /// Its TCP port.
    pub port: u16,
}

impl From<SocketAddr> for SavedReferral {
    fn from(at: SocketAddr) -> Self {
        SavedReferral { address: at.ip(), port: at.port() }
    }
}

impl From<&SavedReferral> for SocketAddr {
    fn from(spec: &SavedReferral) -> Self {
        SocketAddr::new(spec.address, spec.port)
    }
}

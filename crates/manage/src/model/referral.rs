//! Referrals of hosts to other discovery controllers.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// A discovery controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReferralSpec {
    /// Its address.
    pub address: IpAddr,
    /// Its TCP port.
    pub port: u16,
}

impl From<SocketAddr> for ReferralSpec {
    fn from(at: SocketAddr) -> Self {
        ReferralSpec { address: at.ip(), port: at.port() }
    }
}

impl From<&ReferralSpec> for SocketAddr {
    fn from(spec: &ReferralSpec) -> Self {
        SocketAddr::new(spec.address, spec.port)
    }
}

//! Entries of the discovery log in addition to the target's own subsystems.

use super::default_port;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Entries of the discovery log in addition to the target's own subsystems.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscoverySpec {
    /// Discovery controllers to which hosts are referred.
    #[serde(default, rename = "referral", skip_serializing_if = "Vec::is_empty")]
    pub referrals: Vec<ReferralSettings>,
}

/// A discovery controller over TCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReferralSettings {
    /// Its address. Discovery logs have no names.
    pub address: IpAddr,
    /// Its TCP port.
    #[serde(default = "default_port")]
    pub port: u16,
}

impl DiscoverySpec {
    /// Returns the addresses of the referrals.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.referrals.iter().map(|one| SocketAddr::new(one.address, one.port)).collect()
    }
}

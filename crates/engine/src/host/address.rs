//! Where a target is.

use std::fmt;
use std::net::SocketAddr;

/// Where a target is, and over which transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// NVMe/TCP.
    Tcp(SocketAddr),
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Address::Tcp(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
        }
    }
}

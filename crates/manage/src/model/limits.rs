//! What a device may do in a second, in the units of SPDK.

use roadtrain_proto::target::rate::Rates;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;

/// Zero is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceLimits {
    /// Reads and writes.
    pub ios: u64,
    /// MiB that are read or written.
    pub mbytes: u64,
    /// MiB that are read.
    pub read_mbytes: u64,
    /// MiB that are written.
    pub write_mbytes: u64,
}

impl DeviceLimits {
    /// What the engine keeps.
    #[must_use]
    pub fn rates(&self) -> Rates {
        let octets = |mbytes: u64| NonZeroU64::new(mbytes.saturating_mul(1 << 20));
        Rates {
            iops: NonZeroU64::new(self.ios),
            bandwidth: octets(self.mbytes),
            read_bandwidth: octets(self.read_mbytes),
            write_bandwidth: octets(self.write_mbytes),
            ..Rates::UNLIMITED
        }
    }
}

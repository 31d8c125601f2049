//! A pair of interfaces, and how fast what leaves one of them is.

use super::{NetworkNamespace, tool};
use crate::impair::Impairment;
use std::fs;

/// How the links are made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SegmentWiring {
    pub(crate) mtu: usize,
    /// Both ways; without, as fast as the machine.
    pub(crate) shape: Option<LinkSpeed>,
    pub(crate) impairment: Impairment,
    /// The impaired link; all are without.
    pub(crate) impaired: Option<usize>,
    /// Through the middle even when nothing is done there: it can be impaired later.
    pub(crate) is_switched: bool,
}

/// A link's speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinkSpeed {
    pub(crate) mbit_per_second: usize,
    /// The buffer of a switch's port.
    pub(crate) queue_kib: usize,
}

/// Burst above the speed: some frames.
const BURST_BYTES: usize = 32 << 10;
/// Ethernet's header.
const HEADER_BYTES: usize = 14;
/// Further bytes on a wire: preamble, checksum, gap between frames.
const WIRE_BYTES: usize = 24;

impl SegmentWiring {
    /// Straight, as fast as the machine.
    pub(crate) const fn plain(mtu: usize) -> Self {
        Self { mtu, shape: None, impairment: Impairment::NONE, impaired: None, is_switched: false }
    }

    /// Treatment of the frames of a link.
    pub(super) fn impairment_of(&self, link: usize) -> Impairment {
        match self.impaired {
            Some(impaired) if impaired != link => Impairment::NONE,
            _ => self.impairment,
        }
    }

    /// True if nothing is between host and target.
    pub(super) fn is_direct(&self) -> bool {
        self.shape.is_none() && self.impairment == Impairment::NONE && !self.is_switched
    }
}

impl LinkSpeed {
    /// 1 Gbit/s, with the buffer of a plain switch.
    pub(crate) const GIGABIT: Self = Self { mbit_per_second: 1000, queue_kib: 512 };

    /// The theoretical rate of payload: data of full frames, without Ethernet's own bytes.
    pub(crate) fn payload_bytes_per_second(self, mtu: usize) -> f64 {
        let wire = (mtu + HEADER_BYTES + WIRE_BYTES) as f64;
        self.mbit_per_second as f64 * 1e6 / 8.0 * mtu as f64 / wire
    }
}

/// Only our own frames are sent: no neighbour discovery of IPv6.
pub(super) fn quiet() -> anyhow::Result<()> {
    for which in ["all", "default"] {
        // Absent where the kernel has no IPv6.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1");
    }
    Ok(())
}

/// Frames that interfaces made from now on in this network namespace receive are worked on by one core, each link by
/// another one: the switch's work is shared by all cores. Else those that send do it in their system calls.
pub(super) fn steer(link: usize) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mask = 1_u32 << (link % cores.min(32));
    // Absent from older kernels.
    let _ = fs::write("/proc/sys/net/core/rps_default_mask", format!("{mask:x}"));
}

/// Makes a pair between two namespaces and sets it up.
pub(super) fn pair(
    one: &NetworkNamespace,
    name: &str,
    other: &NetworkNamespace,
    peer: &str,
    wiring: &SegmentWiring,
) -> anyhow::Result<()> {
    let there = other.path();
    tool(one, &format!("ip link add name {name} type veth peer name {peer} netns {there}"))?;
    for (namespace, name) in [(one, name), (other, peer)] {
        tool(namespace, &format!("ip link set dev {name} mtu {}", wiring.mtu))?;
        if wiring.shape.is_some() {
            // On a wire frames go one by one.
            let size = wiring.mtu + HEADER_BYTES;
            let line = format!("ip link set dev {name} gso_max_size {size} gso_max_segs 1");
            tool(namespace, &line)?;
        }
        tool(namespace, &format!("ip link set dev {name} up"))?;
    }
    Ok(())
}

/// Limits what leaves an interface.
pub(super) fn shape(
    namespace: &NetworkNamespace,
    name: &str,
    wiring: &SegmentWiring,
) -> anyhow::Result<()> {
    let Some(LinkSpeed { mbit_per_second, queue_kib }) = wiring.shape else { return Ok(()) };
    let limit = queue_kib << 10;
    let burst = BURST_BYTES.max(2 * wiring.mtu);
    let line = format!(
        "tc qdisc replace dev {name} root tbf rate {mbit_per_second}mbit overhead {WIRE_BYTES} \
         burst {burst} limit {limit}"
    );
    tool(namespace, &line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_theoretical_rate_is_what_ethernet_leaves() {
        let rate = LinkSpeed::GIGABIT.payload_bytes_per_second(9000);
        assert!((124.4e6..124.5e6).contains(&rate), "{rate}");
    }
}

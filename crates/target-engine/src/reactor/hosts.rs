//! Hosts of lanes over Ethernet.

use crate::lane::{EtherTransport, TargetLane};
use roadtrain_ether_proto::Rejected;
use std::collections::HashMap;

/// Lanes over Ethernet by host, and counters of ended lanes.
pub(super) struct EtherHosts {
    /// Index of each lane by the token of its host.
    pub(super) by_token: HashMap<u64, u32>,
    /// Bytes of data pages that are available to lanes.
    pub(super) damq_left: usize,
    /// Frames lost by ended lanes, by port.
    pub(super) lost: Vec<u64>,
    /// Records dropped by ended lanes.
    pub(super) rejected: Rejected,
}

impl EtherHosts {
    pub(super) fn new(damq_left: usize) -> Self {
        EtherHosts {
            by_token: HashMap::new(),
            damq_left,
            lost: Vec::new(),
            rejected: Rejected::default(),
        }
    }

    /// Removes a lane that ends.
    pub(super) fn forget(&mut self, lane: &TargetLane) {
        if let Some(ether) = lane.ether() {
            self.by_token.remove(&ether.qpair.end.links.peer_token());
            self.damq_left += ether.damq.len();
            count_lost(&mut self.lost, ether);
            self.rejected += ether.qpair.end.rejected;
        }
    }
}

/// Adds the lost frames of a lane.
pub(super) fn count_lost(lost: &mut Vec<u64>, ether: &EtherTransport) {
    for (port, count) in ether.lost() {
        lost.resize(lost.len().max(port + 1), 0);
        lost[port] += count;
    }
}

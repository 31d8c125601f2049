//! Hosts whose lanes come over Ethernet.

use crate::lane::{Ether, TargetLane};
use roadtrain_ether_proto::Rejected;
use std::collections::HashMap;

/// Lanes over Ethernet by their hosts, and what those had that have ended.
pub(super) struct Hosts {
    /// Lanes by their hosts' tokens.
    pub(super) by_token: HashMap<u64, u32>,
    /// Octets of data pages that lanes may still get.
    pub(super) damq_left: usize,
    /// Frames that lanes had given up which have ended, by port.
    pub(super) lost: Vec<u64>,
    /// What these lanes have dropped.
    pub(super) rejected: Rejected,
}

impl Hosts {
    pub(super) fn new(damq_left: usize) -> Self {
        Hosts {
            by_token: HashMap::new(),
            damq_left,
            lost: Vec::new(),
            rejected: Rejected::default(),
        }
    }

    /// The lane ends.
    pub(super) fn forget(&mut self, lane: &TargetLane) {
        if let Some(ether) = lane.ether() {
            self.by_token.remove(&ether.qpair.end.links.peer_token());
            self.damq_left += ether.damq.len();
            count_lost(&mut self.lost, ether);
            self.rejected += ether.qpair.end.rejected;
        }
    }
}

/// Adds what a lane has given up.
pub(super) fn count_lost(lost: &mut Vec<u64>, ether: &Ether) {
    for (port, count) in ether.lost() {
        lost.resize(lost.len().max(port + 1), 0);
        lost[port] += count;
    }
}

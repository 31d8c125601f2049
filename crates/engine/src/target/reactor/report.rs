//! What a reactor tells of itself.

use super::Reactor;
use crate::stats::LaneStats;
use crate::target::lane::Lane;
use crate::target::order::Usage;

impl Reactor {
    /// The sum of its lanes' counters.
    pub(super) fn stats(&mut self) -> LaneStats {
        let lanes = self.lanes.iter().map(Lane::stats);
        let sum = lanes.fold(self.past, |sum, lane| sum + lane);
        LaneStats { waits: self.core.waits, sends: sum.sends + self.port_sends(), ..sum }
    }

    /// What it holds.
    pub(super) fn usage(&self) -> Usage {
        let pool = self.shared.pool.usage();
        Usage {
            connections: self.lanes.len(),
            backend_commands: self.shared.tasks.count(),
            buffer_bytes: pool.taken_bytes,
            kept_bytes: pool.kept_bytes,
            reserved_buffers: pool.reserved as usize,
        }
    }
}

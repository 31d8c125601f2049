//! Instruments that say why: what each lane sent, in how many calls, for which doorbells.

use roadtrain_proto::policy::Doorbells;
use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};

/// Counters of a lane (or their sum). They only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LaneStats {
    /// Requests completed.
    pub requests: u64,
    /// Octets of their data.
    pub data_bytes: u64,
    /// Caravans sent.
    pub caravans: u64,
    /// Requests (responses) in them.
    pub caravan_requests: u64,
    /// Octets in them.
    pub caravan_bytes: u64,
    /// Send system calls.
    pub sends: u64,
    /// Receive system calls.
    pub receives: u64,
    /// Waits for the ring (reactor-wide, counted with its first lane).
    pub waits: u64,
    /// Doorbells of size.
    pub doorbells_size: u64,
    /// Doorbells of the timer.
    pub doorbells_timer: u64,
    /// Doorbells of urgent requests.
    pub doorbells_urgent: u64,
    /// Doorbells because nothing more was ready.
    pub doorbells_drained: u64,
    /// Connections lost and made again.
    pub reconnects: u64,
}

impl LaneStats {
    /// With the doorbells of a batcher.
    #[must_use]
    #[inline]
    pub fn with_doorbells(mut self, d: Doorbells) -> Self {
        self.doorbells_size += d.size;
        self.doorbells_timer += d.timer;
        self.doorbells_urgent += d.urgent;
        self.doorbells_drained += d.drained;
        self
    }

    #[inline]
    fn zip(self, o: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        LaneStats {
            requests: f(self.requests, o.requests),
            data_bytes: f(self.data_bytes, o.data_bytes),
            caravans: f(self.caravans, o.caravans),
            caravan_requests: f(self.caravan_requests, o.caravan_requests),
            caravan_bytes: f(self.caravan_bytes, o.caravan_bytes),
            sends: f(self.sends, o.sends),
            receives: f(self.receives, o.receives),
            waits: f(self.waits, o.waits),
            doorbells_size: f(self.doorbells_size, o.doorbells_size),
            doorbells_timer: f(self.doorbells_timer, o.doorbells_timer),
            doorbells_urgent: f(self.doorbells_urgent, o.doorbells_urgent),
            doorbells_drained: f(self.doorbells_drained, o.doorbells_drained),
            reconnects: f(self.reconnects, o.reconnects),
        }
    }
}

impl Add for LaneStats {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        self.zip(other, u64::wrapping_add)
    }
}

impl Sub for LaneStats {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        self.zip(earlier, u64::wrapping_sub)
    }
}

//! Instruments that say why: what each lane sent, in how many calls, for which doorbells.

use crate::metrics::Batching;
use roadtrain_proto::policy::Doorbells;
use serde::{Deserialize, Serialize};

roadtrain_proto::counters! {
    /// Counters of a lane (or their sum). They only grow.
    #[derive(Serialize, Deserialize)]
    pub struct LaneStats {
        /// Requests completed.
        requests,
        /// Octets of their data.
        data_bytes,
        /// Caravans sent.
        caravans,
        /// Requests (responses) in them.
        caravan_requests,
        /// Octets in them.
        caravan_bytes,
        /// Send system calls.
        sends,
        /// Receive system calls.
        receives,
        /// Waits for the ring (reactor-wide, counted with its first lane).
        waits,
        /// Doorbells of size.
        doorbells_size,
        /// Doorbells of the timer.
        doorbells_timer,
        /// Doorbells of urgent requests.
        doorbells_urgent,
        /// Doorbells because nothing more was ready.
        doorbells_drained,
        /// Connections lost and made again.
        reconnects,
    }
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

    /// Those of them that say how requests travel together.
    #[inline]
    #[must_use]
    pub fn batching(&self) -> Batching {
        let LaneStats {
            requests,
            data_bytes,
            caravans,
            caravan_requests,
            caravan_bytes,
            sends,
            receives,
            doorbells_size,
            doorbells_timer,
            doorbells_urgent,
            doorbells_drained,
            ..
        } = *self;
        Batching {
            requests,
            data_bytes,
            caravans,
            caravan_requests,
            caravan_bytes,
            sends,
            receives,
            doorbells_size,
            doorbells_timer,
            doorbells_urgent,
            doorbells_drained,
        }
    }
}

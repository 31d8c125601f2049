//! The counters of a target in JSON.

use roadtrain_engine::stats::LaneStats;
use serde::{Deserialize, Serialize};

/// The engine's counters as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    pub requests: u64,
    pub data_bytes: u64,
    pub caravans: u64,
    pub caravan_requests: u64,
    pub caravan_bytes: u64,
    pub sends: u64,
    pub receives: u64,
    pub waits: u64,
    pub doorbells_size: u64,
    pub doorbells_timer: u64,
    pub doorbells_urgent: u64,
    pub doorbells_drained: u64,
    pub reconnects: u64,
}

/// Defines both conversions, so that no field is forgotten.
macro_rules! convert {
    ($($field:ident),*) => {
        impl From<LaneStats> for Counters {
            fn from(s: LaneStats) -> Counters {
                let LaneStats { $($field),* } = s;
                Counters { $($field),* }
            }
        }
        impl From<Counters> for LaneStats {
            fn from(c: Counters) -> LaneStats {
                let Counters { $($field),* } = c;
                LaneStats { $($field),* }
            }
        }
    };
}

convert!(
    requests,
    data_bytes,
    caravans,
    caravan_requests,
    caravan_bytes,
    sends,
    receives,
    waits,
    doorbells_size,
    doorbells_timer,
    doorbells_urgent,
    doorbells_drained,
    reconnects
);

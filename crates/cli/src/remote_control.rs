//! A line protocol between `bench` and the target it starts: on stdin `stats`, on stdout one line of JSON;
//! end of input stops the target, so that it never outlives its parent.

use crate::signals;
use roadtrain_engine::stats::LaneStats;
use roadtrain_engine::target::Server;
use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::sync::Arc;
use std::thread;
use tracing::warn;

/// The word that asks for the counters.
pub(crate) const STATS: &str = "stats";

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

/// Answers on a thread of its own.
pub(crate) fn serve(server: Arc<Server>) {
    let answer = move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if line.trim() != STATS {
                warn!("unknown request '{line}' on stdin");
                continue;
            }
            let counters = Counters::from(server.stats());
            let text = serde_json::to_string(&counters).unwrap_or_default();
            if !matches!(crate::output::line_is_read(&text), Ok(true)) {
                break;
            }
        }
        signals::stop_self();
    };
    if let Err(error) = thread::Builder::new().name("roadtrain-stdin".into()).spawn(answer) {
        warn!("no thread for stdin: {error}");
    }
}

//! State of a reactor's waits, for other threads to read.

use roadtrain_proto::wait::WaitState;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

const WHOLE: f64 = 1e6;

/// State that the reactor writes after each reading of counters, and any thread reads.
#[derive(Debug, Default)]
pub struct WaitMeter {
    sleep_cost_ns: AtomicU32,
    spin_bound_ns: AtomicU32,
    caught_ppm: AtomicU32,
}

impl WaitMeter {
    /// Stores the state; only the reactor's thread calls it.
    pub fn write(&self, state: &WaitState) {
        let ns = |time: Duration| u32::try_from(time.as_nanos()).unwrap_or(u32::MAX);
        self.sleep_cost_ns.store(ns(state.sleep_cost), Relaxed);
        self.spin_bound_ns.store(ns(state.spin_bound), Relaxed);
        self.caught_ppm.store((state.caught * WHOLE) as u32, Relaxed);
    }

    /// Returns the state that was stored last.
    #[must_use]
    pub fn read(&self) -> WaitState {
        let time = |ns: &AtomicU32| Duration::from_nanos(ns.load(Relaxed).into());
        WaitState {
            sleep_cost: time(&self.sleep_cost_ns),
            spin_bound: time(&self.spin_bound_ns),
            caught: f64::from(self.caught_ppm.load(Relaxed)) / WHOLE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_state_is_read() {
        let meter = WaitMeter::default();
        assert_eq!(meter.read(), WaitState::default());
        let state = WaitState {
            sleep_cost: Duration::from_nanos(12_345),
            spin_bound: Duration::from_micros(24),
            caught: 0.75,
        };
        meter.write(&state);
        assert_eq!(meter.read(), state);
    }
}

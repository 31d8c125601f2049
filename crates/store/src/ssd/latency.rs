//! Latency model of an emulated SSD: each command takes the same time, a fixed number is served at once, the others
//! wait for their turn.
//!
//! If all take the same time, first come first served means that each command starts when the one `parallel` before it
//! has ended. So its end is known when it arrives, and no thread has to run in between. Commands take slots in
//! rotation; a slot only stores the time until which it is taken. All reactors share the slots, without a lock, and
//! none has to wake another.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use roadtrain_proto::time::Instant;

/// Serves commands in order of arrival.
#[derive(Debug)]
pub(super) struct LatencyModel {
    service: Duration,
    /// Number of commands so far.
    arrivals: AtomicUsize,
    /// Time until which each slot is taken.
    places: Box<[AtomicU64]>,
}

impl LatencyModel {
    /// Serves `parallel` commands at once (at least one), each for `service`.
    #[must_use]
    pub(super) fn new(service: Duration, parallel: u16) -> LatencyModel {
        let places = (0..parallel.max(1)).map(|_| AtomicU64::new(0)).collect();
        LatencyModel { service, arrivals: AtomicUsize::new(0), places }
    }

    /// Admits a command that arrives now; returns its end.
    #[must_use]
    pub(super) fn admit(&self, now: Instant) -> Instant {
        let arrival = self.arrivals.fetch_add(1, Ordering::Relaxed);
        let place = &self.places[arrival % self.places.len()];
        let end = |taken_until: u64| Instant(taken_until.max(now.0)) + self.service;
        let mut taken_until = place.load(Ordering::Relaxed);
        loop {
            // Fails only if another reactor uses the same slot, a whole rotation away.
            let done = end(taken_until);
            let relaxed = Ordering::Relaxed;
            match place.compare_exchange_weak(taken_until, done.0, relaxed, relaxed) {
                Ok(_) => return done,
                Err(other) => taken_until = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    const SERVICE: Duration = Duration::from_nanos(1000);

    /// Simulates the ends of commands that arrive at `times`: the first in the queue gets the first free server.
    fn simulate(times: &[u64], parallel: u16) -> Vec<u64> {
        let mut free_at: BinaryHeap<Reverse<u64>> = (0..parallel).map(|_| Reverse(0)).collect();
        let mut serve = |&now: &u64| {
            let Reverse(free) = free_at.pop().expect("a server");
            let end = free.max(now) + SERVICE.as_nanos() as u64;
            free_at.push(Reverse(end));
            end
        };
        times.iter().map(&mut serve).collect()
    }

    fn most_at_once(ends: &[u64]) -> usize {
        let service = SERVICE.as_nanos() as u64;
        let served_at =
            |time: u64| ends.iter().filter(|&&e| e - service <= time && time < e).count();
        ends.iter().map(|&end| served_at(end - service)).max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn serves_in_order_and_never_more_at_once(
            gaps in prop::collection::vec(prop_oneof![Just(0u64), 0..400u64, 0..5000u64], 1..200),
            parallel in 1..9u16,
        ) {
            let latency = LatencyModel::new(SERVICE, parallel);
            let mut now = 0;
            let times: Vec<u64> = gaps.iter().map(|gap| { now += gap; now }).collect();
            let ends: Vec<u64> = times.iter().map(|&t| latency.admit(Instant(t)).0).collect();
            prop_assert!(ends.is_sorted());
            prop_assert!(most_at_once(&ends) <= usize::from(parallel));
            prop_assert!(ends.iter().zip(&times).all(|(end, time)| end - time >= 1000));
            prop_assert_eq!(ends, simulate(&times, parallel));
        }
    }

    #[test]
    fn reactors_share_its_places() {
        const COMMANDS: usize = 4096;
        const PARALLEL: usize = 64;
        let latency = LatencyModel::new(SERVICE, PARALLEL as u16);
        let admit = || (0..COMMANDS).map(|_| latency.admit(Instant(7)).0).collect::<Vec<_>>();
        let mut ends = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(admit)).collect();
            threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect::<Vec<_>>()
        });
        ends.sort_unstable();
        let expected = |nth: usize| 7 + 1000 * (nth / PARALLEL + 1) as u64;
        assert_eq!(ends.len(), 4 * COMMANDS);
        assert!(ends.iter().enumerate().all(|(nth, &end)| end == expected(nth)));
    }

    #[test]
    fn takes_one_at_least() {
        let latency = LatencyModel::new(SERVICE, 0);
        assert_eq!(latency.admit(Instant(5)), Instant(1005));
        assert_eq!(latency.admit(Instant(5)), Instant(2005));
        assert_eq!(latency.admit(Instant(9000)), Instant(10_000));
    }
}

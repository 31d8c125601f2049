//! Limits how long a namespace stays in ANA Change, by the controller's ANA Transition Time (ANATT).
//!
//! A namespace that stays in ANA Change for longer counts as inaccessible, so any other path comes first. The ANA log
//! is then read again, and from time to time, in case the event for the next state was lost.

use crate::paths::AnaTable;
use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ana::AnaState;

/// Namespaces of a path in ANA Change.
#[derive(Debug, Default)]
pub(super) struct Transitions {
    /// NSID, start of ANA Change, and `true` once it was reported as late; ordered by NSID.
    since: Vec<(u32, Instant, bool)>,
    /// Time of the last read of the ANA log.
    read_at: Instant,
    /// ANATT; zero: not reported.
    limit: Duration,
}

impl Transitions {
    /// Creates the table for a controller with an ANATT in seconds.
    pub(super) fn new(anatt: u8) -> Self {
        Transitions { limit: Duration::from_secs(anatt.into()), ..Transitions::default() }
    }

    /// Applies a new ANA log. Returns the effective states, and the namespaces that have just become late.
    pub(super) fn read(&mut self, now: Instant, ana: AnaTable) -> (AnaTable, Vec<u32>) {
        self.read_at = now;
        let before = std::mem::take(&mut self.since);
        let is_changing = |&&(_, state): &&(u32, AnaState)| state == AnaState::Change;
        let mut late = Vec::new();
        for &(nsid, _) in ana.iter().filter(is_changing) {
            let known = before.binary_search_by_key(&nsid, |(other, ..)| *other).ok();
            let (_, since, was_late) = known.map_or((nsid, now, false), |at| before[at]);
            let is_late = !self.limit.is_zero() && since + self.limit <= now;
            if is_late && !was_late {
                late.push(nsid);
            }
            self.since.push((nsid, since, is_late));
        }
        if !self.since.iter().any(|&(.., is_late)| is_late) {
            return (ana, late);
        }
        let counts = |&(nsid, state): &(u32, AnaState)| {
            let at = self.since.binary_search_by_key(&nsid, |(other, ..)| *other);
            let is_late = at.is_ok_and(|at| self.since[at].2);
            (nsid, if is_late { AnaState::Inaccessible } else { state })
        };
        (ana.iter().map(counts).collect(), late)
    }

    /// Returns when the log is to be read again without an event.
    pub(super) fn due(&self) -> Option<Instant> {
        let due = |&(_, since, is_late): &(u32, Instant, bool)| {
            (if is_late { self.read_at } else { since }) + self.limit
        };
        self.since.iter().map(due).min().filter(|_| !self.limit.is_zero())
    }

    /// Clears the table before another controller is connected.
    pub(super) fn clear(&mut self) {
        self.since.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_namespace_counts_as_inaccessible_and_is_reported_once() {
        let at = |seconds| Instant(0) + Duration::from_secs(seconds);
        let table =
            |states: &[AnaState]| -> AnaTable { (1..).zip(states.iter().copied()).collect() };
        let (change, good) = (AnaState::Change, AnaState::Optimized);
        let mut transitions = Transitions::new(10);
        assert_eq!(transitions.due(), None);
        let both = table(&[change, good]);
        assert_eq!(transitions.read(at(1), both.clone()), (both.clone(), vec![]));
        assert_eq!(transitions.due(), Some(at(11)));
        let (_, late) = transitions.read(at(5), table(&[change, change]));
        assert!(late.is_empty());
        let lost = AnaState::Inaccessible;
        let (counts, late) = transitions.read(at(11), table(&[change, change]));
        assert_eq!((counts, late), (table(&[lost, change]), vec![1]));
        assert_eq!(transitions.due(), Some(at(15)));
        assert_eq!(
            transitions.read(at(15), table(&[change, good])),
            (table(&[lost, good]), vec![])
        );
        assert_eq!(transitions.due(), Some(at(25)), "again, in case that an event is lost");
        let (counts, late) = transitions.read(at(16), table(&[good, change]));
        assert_eq!((counts, late), (table(&[good, change]), vec![]));
        assert_eq!(transitions.due(), Some(at(26)), "it has begun anew");

        let mut unlimited = Transitions::new(0);
        unlimited.read(at(1), both.clone());
        assert_eq!((unlimited.due(), unlimited.read(at(99), both.clone())), (None, (both, vec![])));
    }
}

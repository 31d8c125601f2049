//! Counters of dropped frames by reason: before they reach a lane, and in lanes.

use roadtrain_ether_proto::Rejected;
use std::fmt;
use std::ops::Add;

/// Reason why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Drop {
    /// Frame shorter than its header, or than BODY claims.
    Truncated,
    /// Unsupported VERSION.
    Version,
    /// TYPE that is unknown or not valid here.
    Type,
    /// Wrong HCRC.
    HeaderCrc,
    /// Wrong BCRC.
    BodyCrc,
    /// TOKEN of no lane.
    Token,
    /// LINK that the lane does not have.
    Link,
    /// Source address other than the link's.
    Source,
    /// Invalid body.
    Setup,
    /// Rate limit exceeded, or too many at once.
    Rate,
}

const NAMES: [&str; 10] = [
    "truncated",
    "version",
    "type",
    "header-crc",
    "body-crc",
    "token",
    "link",
    "source",
    "setup",
    "rate",
];

/// Counters of dropped frames and records. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    before: [u64; NAMES.len()],
    /// Records dropped by lanes.
    lanes: Rejected,
}

impl Drops {
    /// Counts one dropped frame.
    pub(crate) fn count(&mut self, drop: Drop) {
        self.before[drop as usize] += 1;
    }

    /// Adds the records that lanes dropped.
    pub(crate) fn with_lanes(self, lanes: Rejected) -> Drops {
        Drops { lanes, ..self }
    }

    /// Returns the number of frames dropped for this reason before they reached a lane.
    #[must_use]
    pub fn of(&self, drop: Drop) -> u64 {
        self.before[drop as usize]
    }

    /// Returns the sum over all reasons.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_reason().map(|(_, count)| count).sum()
    }

    /// Returns each reason's name and count.
    pub fn by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.into_iter().zip(self.before).chain(self.lanes.by_reason())
    }
}

impl Add for Drops {
    type Output = Drops;
    fn add(self, other: Drops) -> Drops {
        let before = std::array::from_fn(|reason| self.before[reason] + other.before[reason]);
        Drops { before, lanes: self.lanes + other.lanes }
    }
}

impl fmt::Display for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, count) in self.by_reason().filter(|(_, count)| *count > 0) {
            write!(f, "{separator}{name} {count}")?;
            separator = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_counted_by_reason() {
        let mut drops = Drops::default();
        drops.count(Drop::Rate);
        drops.count(Drop::Truncated);
        drops.lanes.beyond = 3;
        let sum = drops + drops;
        assert_eq!((sum.of(Drop::Rate), sum.of(Drop::Token), sum.total()), (2, 0, 10));
        assert_eq!(sum.to_string(), "truncated 2, rate 2, beyond 6");
        let names: std::collections::BTreeSet<_> = sum.by_reason().map(|(name, _)| name).collect();
        assert_eq!(names.len(), sum.by_reason().count(), "one row for each reason");
    }
}

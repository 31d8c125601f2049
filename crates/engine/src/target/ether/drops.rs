//! What was dropped on its way to a lane, by reason. What a lane itself drops, its queue pair counts.

use std::fmt;
use std::ops::Add;

/// Why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Drop {
    /// Shorter than its header, or than BODY says.
    Truncated,
    /// Another VERSION.
    Version,
    /// Unknown TYPE, or one that nobody sends here.
    Type,
    /// HCRC is wrong.
    HeaderCrc,
    /// BCRC is wrong.
    BodyCrc,
    /// No lane has this TOKEN.
    Token,
    /// The lane has no such LINK.
    Link,
    /// Not from where the link comes from.
    Source,
    /// A body that makes no sense.
    Setup,
    /// Too often, or too many at once.
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

/// Counters of dropped frames. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; NAMES.len()]);

impl Drops {
    /// One more.
    pub(in crate::target) fn count(&mut self, drop: Drop) {
        self.0[drop as usize] += 1;
    }

    /// Those of one reason.
    #[must_use]
    pub fn of(&self, drop: Drop) -> u64 {
        self.0[drop as usize]
    }

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Each reason's name and count.
    pub fn by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.into_iter().zip(self.0)
    }
}

impl Add for Drops {
    type Output = Drops;
    fn add(self, other: Drops) -> Drops {
        Drops(std::array::from_fn(|reason| self.0[reason] + other.0[reason]))
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
        let sum = drops + drops;
        assert_eq!((sum.of(Drop::Rate), sum.of(Drop::Token), sum.total()), (2, 0, 4));
        assert_eq!(sum.to_string(), "truncated 2, rate 2");
    }
}

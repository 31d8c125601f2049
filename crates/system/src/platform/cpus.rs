//! Sets of cores as the kernel writes them: `0-3,8`.

use std::collections::BTreeSet;
use std::fmt;

/// Maximum number of cores; larger numbers are ignored.
const CPUS_MAX: usize = 1 << 16;

/// A set of cores (or of nodes, which the kernel lists in the same form).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus(BTreeSet<usize>);

impl Cpus {
    /// Parses a kernel list; ignores invalid parts.
    #[must_use]
    pub fn parse(list: &str) -> Cpus {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: usize = first.trim().parse().ok()?;
            let last: usize = last.trim().parse().ok()?;
            (last < CPUS_MAX).then_some(first..=last)
        };
        Cpus(list.trim().split(',').filter_map(range).flatten().collect())
    }

    /// True if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if `cpu` is in the set.
    #[must_use]
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(&cpu)
    }

    /// Returns the cores in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().copied()
    }

    /// Returns the cores in both sets.
    #[must_use]
    pub fn and(&self, other: &Cpus) -> Cpus {
        Cpus(self.0.intersection(&other.0).copied().collect())
    }

    /// Returns the only core, if there is exactly one.
    #[must_use]
    pub fn single(&self) -> Option<usize> {
        let mut all = self.iter();
        all.next().filter(|_| all.next().is_none())
    }
}

impl FromIterator<usize> for Cpus {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Cpus {
        Cpus(cpus.into_iter().collect())
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if_eq(&(last + 1)) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_alike() {
        for list in ["", "0", "0-3", "0-1,4", "1,3,5-7,64"] {
            assert_eq!(Cpus::parse(&format!("{list}\n")).to_string(), list);
        }
        assert_eq!(Cpus::parse("0,1,2").to_string(), "0-2");
    }

    #[test]
    fn nonsense_is_left_out() {
        assert_eq!(Cpus::parse("x,2,5-,3-1,0-99999999999").to_string(), "2");
        assert_eq!(Cpus::parse("0-9999999").to_string(), "");
    }

    #[test]
    fn a_single_core_is_known() {
        assert_eq!(Cpus::parse("7").single(), Some(7));
        assert_eq!(Cpus::parse("7-8").single(), None);
        assert_eq!(Cpus::parse("").single(), None);
    }
}

//! Numbering of the connections of all paths: each path numbers its own by their queue identifiers minus one.

use roadtrain_host_proto::express::EXPRESSES_MAX;

/// Numbers over all paths: lanes path by path, then express connections path by path.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionNumbers {
    lanes: usize,
    paths: usize,
}

impl ConnectionNumbers {
    /// Creates the numbering for this many path slots with this many lanes each.
    pub(super) fn new(lanes: usize, paths: usize) -> Self {
        ConnectionNumbers { lanes: lanes.max(1), paths }
    }

    /// Returns the number over all paths of connection `number` of a path.
    pub(super) fn of(self, path: usize, number: usize) -> usize {
        match number.checked_sub(self.lanes) {
            None => path * self.lanes + number,
            Some(express) => self.paths * self.lanes + path * EXPRESSES_MAX as usize + express,
        }
    }

    /// Returns the path, and the number on that path.
    pub(super) fn split(self, number: usize) -> (usize, usize) {
        match number.checked_sub(self.paths * self.lanes) {
            None => (number / self.lanes, number % self.lanes),
            Some(express) => {
                let most = EXPRESSES_MAX as usize;
                (express / most, self.lanes + express % most)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_has_a_number_of_its_own() {
        for (lanes, paths) in [(1, 1), (3, 1), (1, 2), (2, 16)] {
            let numbers = ConnectionNumbers::new(lanes, paths);
            let mut seen = Vec::new();
            for path in 0..paths {
                for number in 0..lanes + EXPRESSES_MAX as usize {
                    let all = numbers.of(path, number);
                    assert_eq!(numbers.split(all), (path, number));
                    assert_eq!(all < lanes * paths, number < lanes, "only lanes are counted");
                    seen.push(all);
                }
            }
            seen.sort_unstable();
            assert!(seen.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}

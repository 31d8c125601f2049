//! Which reactor a connection is on.
//!
//! A connection belongs to the reactor on the core that processes its packets: there what has been received is in the
//! caches, and nobody else has to be woken.

/// The reactors, and who goes where.
#[derive(Debug)]
pub struct Flows {
    /// By reactor: the core that it is pinned to.
    cores: Vec<Option<usize>>,
    /// Connections placed so far.
    placed: usize,
}

impl Flows {
    /// Reactors on these cores, at least one.
    #[must_use]
    pub fn new(cores: Vec<Option<usize>>) -> Self {
        debug_assert!(!cores.is_empty());
        Flows { cores, placed: 0 }
    }

    /// The reactor for a new connection whose packets are processed on the core `packets`: one on that core, or
    /// else any, in turn.
    pub fn choose(&mut self, packets: Option<usize>) -> usize {
        let is_near = |reactor: &usize| packets.is_some() && self.cores[*reactor] == packets;
        let mut fitting: Vec<usize> = (0..self.cores.len()).filter(is_near).collect();
        if fitting.is_empty() {
            fitting = (0..self.cores.len()).collect();
        }
        let turn = self.placed % fitting.len();
        self.placed += 1;
        fitting[turn]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_goes_where_its_packets_are() {
        let mut flows = Flows::new(vec![Some(2), Some(5), Some(2)]);
        assert_eq!([5, 5, 5].map(|core| flows.choose(Some(core))), [1, 1, 1]);
        let mut both = [2, 2].map(|core| flows.choose(Some(core)));
        both.sort_unstable();
        assert_eq!(both, [0, 2], "reactors of one core take turns");
    }

    #[test]
    fn connections_without_a_reactor_of_their_own_are_dealt_out() {
        let mut flows = Flows::new(vec![Some(2), Some(5)]);
        assert_eq!([Some(7), None, Some(8), None].map(|core| flows.choose(core)), [0, 1, 0, 1]);
    }
}

//! Commands that wait for the control plane, and turns that wait for reactors.

use crate::TurnOf;
use std::collections::{BTreeMap, HashMap};

/// Commands about reservations that are not answered, and turns that have taken access away. `O` identifies a command.
#[derive(Debug)]
pub struct Pending<O> {
    last: u64,
    commands: HashMap<u64, O>,
    /// Number of reactors that may still execute what the turn has forbidden.
    fences: BTreeMap<TurnOf, usize>,
}

impl<O> Default for Pending<O> {
    fn default() -> Self {
        Pending { last: 0, commands: HashMap::new(), fences: BTreeMap::new() }
    }
}

impl<O> Pending<O> {
    /// A command waits: its token.
    pub fn enter(&mut self, command: O) -> u64 {
        self.last += 1;
        self.commands.insert(self.last, command);
        self.last
    }

    /// The command with this token is answered.
    pub fn take(&mut self, token: u64) -> Option<O> {
        self.commands.remove(&token)
    }

    /// Commands that wait.
    #[must_use]
    pub fn count(&self) -> usize {
        self.commands.len()
    }

    /// A turn waits for this number of reactors.
    pub fn begin(&mut self, turn: TurnOf, reactors: usize) {
        self.fences.insert(turn, reactors);
    }

    /// A reactor executes nothing more that the turn has forbidden. `true`: it was the last one.
    pub fn fenced(&mut self, turn: &TurnOf) -> bool {
        let Some(left) = self.fences.get_mut(turn) else { return false };
        *left = left.saturating_sub(1);
        let is_over = *left == 0;
        if is_over {
            self.fences.remove(turn);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_over_when_all_reactors_have_fenced() {
        let turn = |number| TurnOf { nqn: "nqn.2025-01.io.example:a".into(), nsid: 1, number };
        let mut pending = Pending::<u32>::default();
        pending.begin(turn(1), 2);
        pending.begin(turn(2), 1);
        assert!(!pending.fenced(&turn(1)) && pending.fenced(&turn(2)));
        assert!(pending.fenced(&turn(1)) && !pending.fenced(&turn(1)));
    }

    #[test]
    fn a_command_is_answered_once() {
        let mut pending = Pending::default();
        let tokens = ["a", "b"].map(|command| pending.enter(command));
        assert_eq!((pending.take(tokens[1]), pending.take(tokens[1])), (Some("b"), None));
        assert_eq!((pending.count(), pending.take(tokens[0])), (1, Some("a")));
    }
}

//! Reservation commands that wait for the control plane, and turns that wait for reactors.

use crate::TurnOf;
use std::collections::{BTreeMap, HashMap};

/// Reservation commands in progress, and turns that have revoked access. `O` identifies a command.
#[derive(Debug)]
pub struct PendingReservations<O> {
    last: u64,
    commands: HashMap<u64, O>,
    /// Number of reactors that may still execute commands that the turn forbids.
    fences: BTreeMap<TurnOf, usize>,
}

impl<O> Default for PendingReservations<O> {
    fn default() -> Self {
        PendingReservations { last: 0, commands: HashMap::new(), fences: BTreeMap::new() }
    }
}

impl<O> PendingReservations<O> {
    /// Adds a command. Returns its token.
    pub fn enter(&mut self, command: O) -> u64 {
        self.last += 1;
        self.commands.insert(self.last, command);
        self.last
    }

    /// Removes the command with this token, which completes.
    pub fn take(&mut self, token: u64) -> Option<O> {
        self.commands.remove(&token)
    }

    /// Returns the number of commands in progress.
    #[must_use]
    pub fn count(&self) -> usize {
        self.commands.len()
    }

    /// Makes a turn wait for this number of reactors.
    pub fn begin(&mut self, turn: TurnOf, reactors: usize) {
        self.fences.insert(turn, reactors);
    }

    /// Records that a reactor executes nothing that the turn forbids. Returns true if it was the last one.
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
        let mut pending = PendingReservations::<u32>::default();
        pending.begin(turn(1), 2);
        pending.begin(turn(2), 1);
        assert!(!pending.fenced(&turn(1)) && pending.fenced(&turn(2)));
        assert!(pending.fenced(&turn(1)) && !pending.fenced(&turn(1)));
    }

    #[test]
    fn a_command_is_answered_once() {
        let mut pending = PendingReservations::default();
        let tokens = ["a", "b"].map(|command| pending.enter(command));
        assert_eq!((pending.take(tokens[1]), pending.take(tokens[1])), (Some("b"), None));
        assert_eq!((pending.count(), pending.take(tokens[0])), (1, Some("a")));
    }
}

//! Records of the states that sessions reach.

use std::collections::BTreeMap;

/// Counts of the states that were reached.
#[derive(Debug, Default)]
pub struct Reached(BTreeMap<&'static str, u32>);

impl Reached {
    /// Counts a state.
    pub fn note(&mut self, state: &'static str) {
        *self.0.entry(state).or_default() += 1;
    }

    /// Returns the count of a state.
    #[must_use]
    pub fn count(&self, state: &str) -> u32 {
        self.0.get(state).copied().unwrap_or_default()
    }
}

/// Asserts that each fixed input reaches its states.
pub(crate) fn assert_reached(inputs: &[crate::inputs::Input], run: impl Fn(&[u8]) -> Reached) {
    for (name, bytes, states) in inputs {
        let reached = run(bytes);
        for state in *states {
            assert!(reached.count(state) > 0, "{name} does not reach {state:?}: {reached:?}");
        }
    }
}

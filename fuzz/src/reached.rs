//! How far sessions get.

use std::collections::BTreeMap;

/// States that were reached, and how often.
#[derive(Debug, Default)]
pub struct Reached(BTreeMap<&'static str, u32>);

impl Reached {
    /// It has been reached.
    pub fn note(&mut self, state: &'static str) {
        *self.0.entry(state).or_default() += 1;
    }

    /// How often it was.
    #[must_use]
    pub fn count(&self, state: &str) -> u32 {
        self.0.get(state).copied().unwrap_or_default()
    }
}

/// Panics unless each fixed input gets as far as it is made for.
pub(crate) fn assert_reached(inputs: &[crate::inputs::Input], run: impl Fn(&[u8]) -> Reached) {
    for (name, octets, states) in inputs {
        let reached = run(octets);
        for state in *states {
            assert!(reached.count(state) > 0, "{name} does not reach {state:?}: {reached:?}");
        }
    }
}

//! Runs of named scenarios: tests run some seeds of each, the program many.

use crate::scenario::{ALL, SimScenario, mixing};
use crate::summary::Summary;
use crate::world::RunFailure;

/// Scenarios without a separate effect over Ethernet.
const TCP_ONLY: [&str; 16] = [
    "losing-paths",
    "forging",
    "renewing",
    "mixing",
    "paths",
    "late-write",
    "counting",
    "counting-paths",
    "taking-paths",
    "fence",
    "marking-paths",
    "targets",
    "sticking",
    "failing-fast",
    "moving",
    "standing-still",
];

/// Network of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunNetwork {
    /// TCP.
    Tcp,
    /// TCP, with express connections that open and close all the time.
    Mixing,
    /// Ethernet.
    Ethernet,
}

/// A named scenario over a network.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    name: &'static str,
    change: SimScenario,
    lanes: RunNetwork,
}

impl Runs {
    /// Returns the scenario of that name, if there is one.
    #[must_use]
    pub fn of(name: &str, lanes: RunNetwork) -> Option<Self> {
        let (name, change) = *ALL.iter().find(|(known, _)| *known == name)?;
        Some(Runs { name, change, lanes })
    }

    /// Returns every scenario that has an effect over that network.
    pub fn all(lanes: RunNetwork) -> impl Iterator<Item = Self> {
        let applies = move |name| lanes != RunNetwork::Ethernet || !TCP_ONLY.contains(&name);
        ALL.into_iter().filter(move |(name, _)| applies(*name)).map(move |(name, change)| Runs {
            name,
            change,
            lanes,
        })
    }

    /// Returns the name of the scenario.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs a seed.
    ///
    /// # Errors
    /// The first violation found; assertions of the state machines included.
    pub fn run(&self, seed: u64) -> Result<Summary, RunFailure> {
        match self.lanes {
            RunNetwork::Tcp => crate::run_changed(seed, self.change),
            RunNetwork::Ethernet => crate::ether::run_changed(seed, self.change),
            RunNetwork::Mixing => crate::run_changed(seed, |plan| {
                (self.change)(plan);
                mixing(plan);
            }),
        }
    }

    /// Returns the command that runs a seed again.
    #[must_use]
    pub fn command(&self, seed: u64) -> String {
        let lanes = match self.lanes {
            RunNetwork::Tcp => "",
            RunNetwork::Mixing => " --mixing",
            RunNetwork::Ethernet => " --ethernet",
        };
        let name = self.name;
        format!(
            "cargo run --release -p roadtrain-sim -- --first {seed} --seeds 1 --scenario {name}{lanes}"
        )
    }
}

/// Returns the first seed to run: `FIRST_SEED`, or 0.
///
/// # Panics
/// `FIRST_SEED` is no number.
#[must_use]
pub fn first_seed() -> u64 {
    number("FIRST_SEED").unwrap_or(0)
}

/// Reads a number from the environment.
///
/// # Panics
/// It is no number.
#[must_use]
pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

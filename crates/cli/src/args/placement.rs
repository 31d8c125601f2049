//! Placement on one NUMA node.

use super::word;
use clap::ValueEnum;
use roadtrain_system::platform::NumaPlacement;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Objects kept on one NUMA node; without effect on a machine with a single node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlacementName {
    /// Nothing.
    None,
    /// Memory: on the node of the core, without --cores on the node of the network interface.
    Buffers,
    /// Memory and threads: without --cores these run on the node of the network interface.
    #[default]
    Full,
}

impl From<PlacementName> for NumaPlacement {
    fn from(name: PlacementName) -> NumaPlacement {
        match name {
            PlacementName::None => NumaPlacement::None,
            PlacementName::Buffers => NumaPlacement::Buffers,
            PlacementName::Full => NumaPlacement::Full,
        }
    }
}

impl fmt::Display for PlacementName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&word(self))
    }
}

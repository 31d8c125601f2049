//! How important requests are.

use super::word;
use clap::ValueEnum;
use roadtrain_host_engine::Class;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How important a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassName {
    /// Somebody waits for each of them: sent at once, past the others.
    Latency,
    /// As the policy likes.
    #[default]
    Normal,
    /// Throughput counts: may wait for others.
    Bulk,
}

impl From<ClassName> for Class {
    fn from(name: ClassName) -> Class {
        match name {
            ClassName::Latency => Class::Latency,
            ClassName::Normal => Class::Normal,
            ClassName::Bulk => Class::Bulk,
        }
    }
}

impl fmt::Display for ClassName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&word(self))
    }
}

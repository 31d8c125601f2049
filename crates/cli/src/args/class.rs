//! Priority classes of requests.

use super::word;
use clap::ValueEnum;
use roadtrain_host_engine::Class;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Priority class of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassName {
    /// A caller waits for each request: sent at once, ahead of the others.
    Latency,
    /// Sent as the policy decides.
    #[default]
    Normal,
    /// Throughput matters: may wait for others.
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

//! Which threads of the target a command passes through.

use super::word;
use clap::ValueEnum;
use roadtrain_engine::target::Dispatch;
use std::fmt;

/// Which threads of the target a command and its completion pass through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DispatchName {
    /// None but the reactor's.
    #[default]
    Nowq,
    /// The reactor executes; completions go through a work queue's thread, and back to be sent.
    Rec,
    /// As rec, and a block thread executes.
    Base,
}

impl From<DispatchName> for Dispatch {
    fn from(name: DispatchName) -> Dispatch {
        match name {
            DispatchName::Nowq => Dispatch::NoWq,
            DispatchName::Rec => Dispatch::Rec,
            DispatchName::Base => Dispatch::Base,
        }
    }
}

impl fmt::Display for DispatchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&word(self))
    }
}

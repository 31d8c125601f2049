//! Why a configuration, or a change to it, cannot be.

use super::ana::AnaListener;
use core::fmt;
use core::net::SocketAddr;
use thiserror::Error;

/// What a configuration or an operation is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// What hosts are granted.
    Limits,
    /// A subsystem, by its NQN.
    Subsystem(String),
    /// A namespace of a subsystem, by its NSID.
    Namespace(String, u32),
    /// A host that may use a subsystem, by its NQN.
    Host(String, String),
    /// An address.
    Listener(SocketAddr),
    /// The way to the namespaces at a listener.
    Ana(AnaListener),
    /// Which hosts authenticate.
    Authentication,
    /// A discovery controller to which hosts are referred.
    Referral(SocketAddr),
}

impl Place {
    pub(super) fn subsystem(nqn: &str) -> Place {
        Place::Subsystem(nqn.to_owned())
    }

    pub(super) fn namespace(nqn: &str, nsid: u32) -> Place {
        Place::Namespace(nqn.to_owned(), nsid)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Limits => f.write_str("limits"),
            Place::Subsystem(nqn) => write!(f, "subsystem {nqn}"),
            Place::Namespace(nqn, nsid) => write!(f, "namespace {nsid} of {nqn}"),
            Place::Host(nqn, host) => write!(f, "host {host} of {nqn}"),
            Place::Authentication => f.write_str("authentication"),
            Place::Referral(address) => write!(f, "referral {address}"),
            Place::Listener(address) => write!(f, "listener {address}"),
            Place::Ana(listener) => write!(f, "listener {listener}"),
        }
    }
}

/// Why a configuration, or a change to it, cannot be: what is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A value that cannot be.
    #[error("{place}: {field} {value}: {hint}")]
    Invalid {
        place: Place,
        field: &'static str,
        /// As it was given.
        value: String,
        /// What to give instead.
        hint: String,
    },
    /// It is there already.
    #[error("{0} is there already")]
    Exists(Place),
    /// There is none.
    #[error("there is no {0}")]
    Unknown(Place),
    /// Two namespaces would look like one to hosts, which would write to either.
    #[error(
        "{place} has the identity of {other}: export the blocks once, or give each a uuid and an nguid of its own"
    )]
    SameIdentity { place: Place, other: Place },
    /// The store of a namespace cannot be opened or cannot have that size.
    #[error("{place}: {problem}")]
    Store {
        place: Place,
        /// What its store says, and what to do.
        problem: String,
    },
    /// An address cannot be listened on.
    #[error("cannot open {place}: {problem}")]
    Listen {
        /// Which listener.
        place: Place,
        /// What the system says.
        problem: String,
    },
}

impl ConfigError {
    /// A value that cannot be.
    #[must_use]
    pub fn invalid(
        place: Place,
        field: &'static str,
        value: impl fmt::Display,
        hint: impl Into<String>,
    ) -> Self {
        ConfigError::Invalid { place, field, value: value.to_string(), hint: hint.into() }
    }

    /// Where it is wrong.
    #[must_use]
    pub fn place(&self) -> &Place {
        match self {
            ConfigError::Exists(place) | ConfigError::Unknown(place) => place,
            ConfigError::Invalid { place, .. }
            | ConfigError::SameIdentity { place, .. }
            | ConfigError::Store { place, .. }
            | ConfigError::Listen { place, .. } => place,
        }
    }
}

//! Errors of a configuration, or of a change to it.

use super::ana::AnaListener;
use core::fmt;
use core::net::SocketAddr;
use thiserror::Error;

/// Object of a configuration that an error or an operation concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigObject {
    /// The limits for controllers.
    Limits,
    /// A subsystem, by its NQN.
    Subsystem(String),
    /// A namespace of a subsystem, by its NSID.
    Namespace(String, u32),
    /// A host that may use a subsystem, by its NQN.
    Host(String, String),
    /// A listener, by its address.
    Listener(SocketAddr),
    /// The ANA state of a listener.
    Ana(AnaListener),
    /// Authentication of hosts.
    Authentication,
    /// A discovery controller to which hosts are referred.
    Referral(SocketAddr),
}

impl ConfigObject {
    pub(super) fn subsystem(nqn: &str) -> ConfigObject {
        ConfigObject::Subsystem(nqn.to_owned())
    }

    pub(super) fn namespace(nqn: &str, nsid: u32) -> ConfigObject {
        ConfigObject::Namespace(nqn.to_owned(), nsid)
    }
}

impl fmt::Display for ConfigObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigObject::Limits => f.write_str("limits"),
            ConfigObject::Subsystem(nqn) => write!(f, "subsystem {nqn}"),
            ConfigObject::Namespace(nqn, nsid) => write!(f, "namespace {nsid} of {nqn}"),
            ConfigObject::Host(nqn, host) => write!(f, "host {host} of {nqn}"),
            ConfigObject::Authentication => f.write_str("authentication"),
            ConfigObject::Referral(address) => write!(f, "referral {address}"),
            ConfigObject::Listener(address) => write!(f, "listener {address}"),
            ConfigObject::Ana(listener) => write!(f, "listener {listener}"),
        }
    }
}

/// Error of a configuration or of a change to it, with the object concerned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A field has an invalid value.
    #[error("{place}: {field} {value}: {hint}")]
    Invalid {
        place: ConfigObject,
        field: &'static str,
        /// The invalid value, as given.
        value: String,
        /// Hint for a valid value.
        hint: String,
    },
    /// The object exists already.
    #[error("{0} exists already")]
    Exists(ConfigObject),
    /// The object does not exist.
    #[error("there is no {0}")]
    Unknown(ConfigObject),
    /// Two namespaces have one identity: hosts would take them for one and write to either.
    #[error(
        "{place} has the identity of {other}: export the blocks once, or give each a uuid and an nguid of its own"
    )]
    SameIdentity { place: ConfigObject, other: ConfigObject },
    /// The store of a namespace cannot be opened or cannot have that size.
    #[error("{place}: {problem}")]
    Store {
        place: ConfigObject,
        /// Error of the store, with advice.
        problem: String,
    },
    /// The listener cannot be opened.
    #[error("cannot open {place}: {problem}")]
    Listen {
        /// The listener.
        place: ConfigObject,
        /// Error of the operating system.
        problem: String,
    },
}

impl ConfigError {
    /// Returns an error for an invalid value.
    #[must_use]
    pub fn invalid(
        place: ConfigObject,
        field: &'static str,
        value: impl fmt::Display,
        hint: impl Into<String>,
    ) -> Self {
        ConfigError::Invalid { place, field, value: value.to_string(), hint: hint.into() }
    }

    /// Returns the object concerned.
    #[must_use]
    pub fn place(&self) -> &ConfigObject {
        match self {
            ConfigError::Exists(place) | ConfigError::Unknown(place) => place,
            ConfigError::Invalid { place, .. }
            | ConfigError::SameIdentity { place, .. }
            | ConfigError::Store { place, .. }
            | ConfigError::Listen { place, .. } => place,
        }
    }
}

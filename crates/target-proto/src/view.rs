//! How hosts see a namespace: which of them, and in which ANA group.

use super::config_error::{ConfigError, ConfigObject};
use core::fmt;
use roadtrain_wire::fabrics::is_nqn;
use std::collections::BTreeSet;

/// Largest ANA group of a namespace. Groups above it are reserved for namespaces that are out of reach.
pub const ANA_GROUPS_MAX: u32 = 512;

/// Hosts that see a namespace, and its ANA group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceView {
    /// NQNs of the hosts that see the namespace; `None`: all hosts of the subsystem.
    pub hosts: Option<BTreeSet<String>>,
    /// ANA group, 1..=[`ANA_GROUPS_MAX`].
    pub ana_group: u32,
}

impl NamespaceView {
    /// View of a namespace that is seen by all hosts, in the first ANA group.
    pub const ALL: NamespaceView = NamespaceView { hosts: None, ana_group: 1 };

    /// True if the host sees the namespace.
    #[must_use]
    pub fn shows_to(&self, hostnqn: &str) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| hosts.contains(hostnqn))
    }

    /// # Errors
    /// The first invalid value.
    pub(super) fn check(&self, place: impl Fn() -> ConfigObject) -> Result<(), ConfigError> {
        check_group(&place, self.ana_group)?;
        let wrong = self.hosts.iter().flatten().find(|host| !is_nqn(host));
        wrong.map_or(Ok(()), |host| {
            let hint = "write nqn.2025-01.io.example:name (at most 223 bytes)";
            Err(ConfigError::invalid(place(), "hosts", format!("{host:?}"), hint))
        })
    }
}

impl fmt::Display for NamespaceView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            None => f.write_str("seen by all hosts")?,
            Some(hosts) if hosts.is_empty() => f.write_str("seen by no host")?,
            Some(hosts) => {
                let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
                write!(f, "seen by {}", hosts.join(", "))?;
            }
        }
        write!(f, ", ANA group {}", self.ana_group)
    }
}

impl Default for NamespaceView {
    fn default() -> Self {
        NamespaceView::ALL
    }
}

/// # Errors
/// The ANA group cannot have namespaces.
pub(super) fn check_group(place: impl Fn() -> ConfigObject, group: u32) -> Result<(), ConfigError> {
    if (1..=ANA_GROUPS_MAX).contains(&group) {
        return Ok(());
    }
    let hint = format!("choose a number from 1 to {ANA_GROUPS_MAX}");
    Err(ConfigError::invalid(place(), "ANA group", group, hint))
}

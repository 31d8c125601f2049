//! Management of namespaces by hosts: its settings, and the requests of hosts.

use std::collections::BTreeSet;

/// Management of a subsystem's namespaces by hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceManagement {
    /// NQNs of the hosts that may manage namespaces, at least one.
    pub administrators: BTreeSet<String>,
    /// Block size of new namespaces as a power of two.
    pub lba_shift: u8,
}

/// A change of namespaces that a host has requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceRequest {
    /// Create a namespace that no host sees. The result is its NSID.
    Create {
        /// Size in logical blocks.
        blocks: u64,
        /// Block size as a power of two.
        lba_shift: u8,
        /// ANA group.
        ana_group: u32,
    },
    /// Delete a namespace with its data; `None`: all namespaces of the subsystem.
    Delete { nsid: Option<u32> },
    /// Show a namespace to more hosts.
    Attach { nsid: u32, hosts: BTreeSet<String> },
    /// Hide a namespace from hosts. If all hosts see it, all other hosts that may use the subsystem still do.
    Detach { nsid: u32, hosts: BTreeSet<String> },
}

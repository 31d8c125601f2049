//! ANA states and groups of a controller's path to the namespaces.

use super::ana::AnaState;
use super::config::NamespaceConfig;
use super::view::ANA_GROUPS_MAX;
use std::collections::BTreeMap;

/// Largest identifier of an ANA group, and most groups that exist (ANAGRPMAX and NANAGRPID).
pub(super) const ANA_GROUP_IDS_MAX: u32 = ANA_GROUPS_MAX + 4;

/// Returns the reserved group of the namespaces that have this state because they are out of reach.
fn reserved_group(state: AnaState) -> u32 {
    let above = match state {
        AnaState::Optimized | AnaState::NonOptimized => 1,
        AnaState::Inaccessible => 2,
        AnaState::PersistentLoss => 3,
        AnaState::Change => 4,
    };
    ANA_GROUPS_MAX + above
}

/// ANA states of a path.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct PathStates {
    /// State of the groups without one of their own.
    pub(super) state: AnaState,
    /// States of groups.
    pub(super) groups: BTreeMap<u32, AnaState>,
}

impl PathStates {
    fn of_group(&self, group: u32) -> AnaState {
        self.groups.get(&group).copied().unwrap_or(self.state)
    }
}

/// ANA states of a controller's path to the namespaces.
#[derive(Debug, Default)]
pub(super) struct AnaOfController {
    path: PathStates,
    /// Change count of the ANA log: changes of states, groups and namespaces that its host sees.
    pub(super) changes: u64,
}

impl AnaOfController {
    pub(super) fn new(path: PathStates) -> Self {
        AnaOfController { path, changes: 1 }
    }

    /// Returns the state of the groups without one of their own.
    pub(super) fn state(&self) -> AnaState {
        self.path.state
    }

    /// True if every group is optimized.
    pub(super) fn is_optimized(&self) -> bool {
        self.path == PathStates::default()
    }

    /// Sets the path's states. Returns true if hosts have to be notified. A persistent loss is final.
    pub(super) fn set_path(&mut self, path: PathStates) -> bool {
        let is_news = self.path != path && self.path.state != AnaState::PersistentLoss;
        if is_news {
            (self.path, self.changes) = (path, self.changes + 1);
        }
        is_news
    }

    /// Returns the state of a namespace.
    pub(super) fn of(&self, namespace: &NamespaceConfig) -> AnaState {
        self.path.of_group(namespace.view.ana_group).or_worse(namespace.ana)
    }

    /// Returns the group in which a namespace is listed.
    pub(super) fn group_of(&self, namespace: &NamespaceConfig) -> u32 {
        let (group, state) = (namespace.view.ana_group, self.of(namespace));
        if self.path.of_group(group) == state { group } else { reserved_group(state) }
    }

    /// True if the namespace reports neither use nor capacity on this path.
    pub(super) fn hides_capacity(&self, namespace: &NamespaceConfig) -> bool {
        matches!(self.of(namespace), AnaState::Inaccessible | AnaState::PersistentLoss)
    }
}

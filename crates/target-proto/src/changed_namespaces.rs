//! Changed Namespace List of a controller (NVMe Base 2.1, section 5.1.12.1.5).

use roadtrain_wire::identify::{NAMESPACE_LIST_ENTRIES, NSID_ALL, NamespaceList};
use std::collections::BTreeSet;

/// NSIDs whose namespaces have changed since the host last read the list. A page holds 1,024 of them: after more
/// changes the list has the single entry FFFFFFFFh, and the host checks all namespaces.
#[derive(Debug, Default)]
pub(super) struct ChangedNamespaces {
    nsids: BTreeSet<u32>,
    has_overflowed: bool,
}

impl ChangedNamespaces {
    /// Adds a namespace that has changed.
    pub(super) fn insert(&mut self, nsid: u32) {
        if self.has_overflowed {
            return;
        }
        self.nsids.insert(nsid);
        if self.nsids.len() > NAMESPACE_LIST_ENTRIES {
            (self.nsids, self.has_overflowed) = (BTreeSet::new(), true);
        }
    }

    /// Empties the list: the host has read it.
    pub(super) fn clear(&mut self) {
        *self = ChangedNamespaces::default();
    }

    /// Returns the log page.
    pub(super) fn page(&self) -> NamespaceList {
        let overflow = self.has_overflowed.then_some(NSID_ALL);
        NamespaceList::from_nsids(self.nsids.iter().copied().chain(overflow))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(changed: &ChangedNamespaces) -> Vec<u32> {
        changed.page().iter().collect()
    }

    #[test]
    fn a_list_that_is_too_long_has_one_entry_for_all() {
        let mut changed = ChangedNamespaces::default();
        assert!(entries(&changed).is_empty());
        (1..=1024).rev().for_each(|nsid| changed.insert(nsid));
        assert!(entries(&changed).into_iter().eq(1..=1024));
        changed.insert(7);
        assert_eq!(entries(&changed).len(), 1024, "a namespace that has changed twice");
        changed.insert(1025);
        assert_eq!(entries(&changed), [NSID_ALL]);
        changed.insert(3);
        assert_eq!(entries(&changed), [NSID_ALL], "until the host has read it");
        assert!(changed.nsids.is_empty(), "nothing is kept beside it");
        changed.clear();
        changed.insert(3);
        assert_eq!(entries(&changed), [3]);
    }
}

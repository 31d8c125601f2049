//! The namespace that each NSID stands for while a controller is in use.
//!
//! A request names an NSID, but means the namespace that the NSID first stood for. If another namespace replaces it (a
//! target that lost its state, another file), an older write would destroy data there. What is read there would be
//! taken for the old data. So the NSID is *stale*: its requests fail, including those that wait for a connection, until
//! the expected namespace is back. An NSID that has disappeared is stale as well: the target would refuse its requests
//! only until another namespace takes the NSID.
//!
//! All paths of a host share these expectations: the namespace that any path saw first counts for all. A path that has
//! not seen an NSID yet carries no request to it, as another namespace may be there.

use super::bringup::NamespaceInfo;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Namespace that any path of a host first saw under each NSID. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct ExpectedNamespaces(Arc<Mutex<BTreeMap<u32, NamespaceInfo>>>);

/// NSIDs that no request of a path may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BarredNsids {
    /// Stale NSIDs, in increasing order.
    stale: Arc<[u32]>,
    /// With other paths, the only allowed NSIDs, in increasing order.
    seen: Option<Arc<[u32]>>,
}

impl BarredNsids {
    /// True if the NSID is barred.
    #[inline]
    #[must_use]
    pub fn has(&self, nsid: u32) -> bool {
        match &self.seen {
            None => !self.stale.is_empty() && self.stale.binary_search(&nsid).is_ok(),
            Some(seen) => seen.binary_search(&nsid).is_err(),
        }
    }

    /// Returns the stale NSIDs: their namespace is missing or replaced.
    #[must_use]
    pub fn stale(&self) -> &[u32] {
        &self.stale
    }

    /// Creates a set with these stale NSIDs, in increasing order; all others are allowed.
    #[must_use]
    pub fn only(stale: &[u32]) -> BarredNsids {
        BarredNsids { stale: stale.into(), seen: None }
    }
}

/// Expected namespaces, as one path checks them.
#[derive(Debug)]
pub struct NamespaceIdentityCheck {
    pinned: ExpectedNamespaces,
    barred: BarredNsids,
}

impl NamespaceIdentityCheck {
    /// Creates the check of a host's only path.
    #[must_use]
    pub fn single_path() -> NamespaceIdentityCheck {
        NamespaceIdentityCheck {
            pinned: ExpectedNamespaces::default(),
            barred: BarredNsids::default(),
        }
    }

    /// Creates the check of one of several paths that share `pinned`.
    #[must_use]
    pub fn shared(pinned: ExpectedNamespaces) -> NamespaceIdentityCheck {
        let seen = Some(Arc::default());
        NamespaceIdentityCheck { pinned, barred: BarredNsids { seen, ..BarredNsids::default() } }
    }

    /// Checks the current namespaces, in the order of NSIDs. True if the set of barred NSIDs has changed.
    pub fn check(&mut self, namespaces: &[NamespaceInfo]) -> bool {
        let mut by_nsid = self.pinned.0.lock().unwrap_or_else(PoisonError::into_inner);
        for now in namespaces {
            by_nsid.entry(now.nsid).or_insert_with(|| now.clone());
        }
        let is_there = |pinned: &NamespaceInfo| {
            let at = namespaces.binary_search_by_key(&pinned.nsid, |now| now.nsid);
            at.is_ok_and(|at| namespaces[at].is_same(pinned))
        };
        let (seen, stale): (Vec<_>, Vec<_>) = by_nsid.values().partition(|pinned| is_there(pinned));
        let nsids = |of: Vec<&NamespaceInfo>| of.iter().map(|pinned| pinned.nsid).collect();
        let seen = self.barred.seen.is_some().then(|| nsids(seen));
        let barred = BarredNsids { stale: nsids(stale), seen };
        let has_changed = self.barred != barred;
        self.barred = barred;
        has_changed
    }

    /// Returns the NSIDs that requests of this path may not name.
    #[must_use]
    pub fn barred(&self) -> BarredNsids {
        self.barred.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(nsid: u32, nguid: u8) -> NamespaceInfo {
        NamespaceInfo { nsid, block_bytes: 512, nguid: [nguid; 16], ..NamespaceInfo::default() }
    }

    #[test]
    fn an_nsid_is_barred_while_another_namespace_is_there() {
        let mut identities = NamespaceIdentityCheck::single_path();
        let mut stale_after = |namespaces: &[NamespaceInfo]| {
            identities.check(namespaces);
            identities.barred().stale().to_vec()
        };
        let none: [u32; 0] = [];
        assert_eq!(stale_after(&[namespace(1, 1), namespace(2, 2)]), none);
        assert_eq!(stale_after(&[namespace(1, 1), namespace(2, 9), namespace(3, 3)]), [2]);
        assert_eq!(stale_after(&[namespace(1, 1)]), [2, 3], "something else may come there");
        assert_eq!(stale_after(&[namespace(1, 8), namespace(2, 9)]), [1, 2, 3], "it is remembered");
        assert_eq!(stale_after(&[namespace(1, 1), namespace(2, 9), namespace(3, 3)]), [2]);
        let grown = NamespaceInfo { blocks: 7, ..namespace(1, 1) };
        let coarse = NamespaceInfo { block_bytes: 4096, ..namespace(2, 2) };
        assert_eq!(
            stale_after(&[grown, coarse, namespace(3, 3)]),
            [2],
            "another block is another place"
        );
    }

    #[test]
    fn what_one_path_has_seen_counts_for_the_others() {
        let pinned = ExpectedNamespaces::default();
        let [mut one, mut other] = [
            NamespaceIdentityCheck::shared(pinned.clone()),
            NamespaceIdentityCheck::shared(pinned),
        ];
        one.check(&[namespace(1, 1), namespace(5, 5)]);
        other.check(&[namespace(1, 1), namespace(5, 6)]);
        assert_eq!(one.barred().stale(), []);
        assert_eq!(other.barred().stale(), [5], "another one has come there meanwhile");
        one.check(&[namespace(1, 1), namespace(5, 6)]);
        assert_eq!(one.barred().stale(), [5]);
    }

    #[test]
    fn a_path_that_has_not_seen_an_nsid_yet_carries_no_request_to_it() {
        let pinned = ExpectedNamespaces::default();
        let [mut one, mut other] = [
            NamespaceIdentityCheck::shared(pinned.clone()),
            NamespaceIdentityCheck::shared(pinned),
        ];
        assert!(one.barred().has(1), "it has not checked");
        other.check(&[namespace(1, 1)]);
        assert!(one.check(&[namespace(1, 1), namespace(5, 5)]));
        assert!(!one.barred().has(5));
        assert!(other.barred().has(5), "another one may be there");
        assert!(other.check(&[namespace(1, 1), namespace(5, 5)]), "the change is to be applied");
        assert!(!other.barred().has(5));
        assert!(
            !NamespaceIdentityCheck::single_path().barred().has(5),
            "no other path has expectations"
        );
    }

    #[test]
    fn each_identifier_counts() {
        let one = namespace(1, 1);
        for other in [
            NamespaceInfo { uuid: [1; 16], ..one.clone() },
            NamespaceInfo { eui64: [1; 8], ..one.clone() },
            NamespaceInfo { nguid: [0; 16], ..one.clone() },
        ] {
            assert!(!one.is_same(&other), "{other:?}");
        }
        assert!(one.is_same(&NamespaceInfo { read_only: true, blocks: 9, ..one.clone() }));
    }
}

//! Which namespace each NSID stands for, as long as a controller is used.
//!
//! Requests name an NSID, but mean blocks: those that were there when the NSID was first seen. When another
//! namespace is there (a target that has lost its memory, another file), an older write would destroy it and what
//! it holds would be taken for what was read before. So the NSID is *stale*: its requests fail, also those that
//! wait for a connection, until the namespace they mean is back. An NSID that was there and is not there now is stale
//! as well: the target would refuse its requests only until something else comes there.
//!
//! All paths of a host mean the same: what one of them has seen first is what counts for the others.

use super::bringup::NamespaceInfo;
use super::requests::StaleNsids;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What was first seen under each NSID, by whichever path of a host. Its clones are one.
#[derive(Clone, Debug, Default)]
pub struct Pinned(Arc<Mutex<BTreeMap<u32, NamespaceInfo>>>);

/// What is to be had of it by one path.
#[derive(Debug, Default)]
pub struct Pins {
    pinned: Pinned,
    stale: StaleNsids,
}

impl Pins {
    /// Of a path of the host to which that is pinned.
    #[must_use]
    pub fn new(pinned: Pinned) -> Pins {
        Pins { pinned, ..Pins::default() }
    }

    /// Looks at the namespaces that there are; whether other NSIDs are stale now.
    pub fn check(&mut self, namespaces: &[NamespaceInfo]) -> bool {
        let mut by_nsid = self.pinned.0.lock().unwrap_or_else(PoisonError::into_inner);
        for now in namespaces {
            by_nsid.entry(now.nsid).or_insert_with(|| now.clone());
        }
        let is_there = |pinned: &NamespaceInfo| {
            namespaces.iter().any(|now| now.nsid == pinned.nsid && now.is_same(pinned))
        };
        let pinned = by_nsid.values().filter(|pinned| !is_there(pinned));
        let stale: Vec<u32> = pinned.map(|pinned| pinned.nsid).collect();
        let has_changed = *self.stale != *stale;
        if has_changed {
            self.stale = stale.into();
        }
        has_changed
    }

    /// What is stale, in increasing order.
    #[must_use]
    pub fn stale(&self) -> StaleNsids {
        self.stale.clone()
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
        let mut pins = Pins::default();
        let mut look = |namespaces: &[NamespaceInfo]| {
            pins.check(namespaces);
            pins.stale().to_vec()
        };
        let none: [u32; 0] = [];
        assert_eq!(look(&[namespace(1, 1), namespace(2, 2)]), none);
        assert_eq!(look(&[namespace(1, 1), namespace(2, 9), namespace(3, 3)]), [2]);
        assert_eq!(look(&[namespace(1, 1)]), [2, 3], "something else may come there");
        assert_eq!(look(&[namespace(1, 8), namespace(2, 9)]), [1, 2, 3], "it is remembered");
        assert_eq!(look(&[namespace(1, 1), namespace(2, 9), namespace(3, 3)]), [2]);
        let grown = NamespaceInfo { blocks: 7, ..namespace(1, 1) };
        let coarse = NamespaceInfo { block_bytes: 4096, ..namespace(2, 2) };
        assert_eq!(look(&[grown, coarse, namespace(3, 3)]), [2], "another block is another place");
    }

    #[test]
    fn what_one_path_has_seen_counts_for_the_others() {
        let pinned = Pinned::default();
        let [mut one, mut other] = [Pins::new(pinned.clone()), Pins::new(pinned)];
        one.check(&[namespace(1, 1), namespace(5, 5)]);
        other.check(&[namespace(1, 1), namespace(5, 6)]);
        assert_eq!(*one.stale(), []);
        assert_eq!(*other.stale(), [5], "another one has come there meanwhile");
        one.check(&[namespace(1, 1), namespace(5, 6)]);
        assert_eq!(*one.stale(), [5]);
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

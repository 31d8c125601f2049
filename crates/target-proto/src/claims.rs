//! Identifiers that hosts name or receive: claimed controller identifiers, and host identifiers.

use super::connected::ConnectedQueue;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Claimed controller identifiers, with the latest claim to each.
#[derive(Debug, Default)]
pub(super) struct Claims {
    by_cntlid: BTreeMap<u16, u64>,
    last: u64,
}

impl Claims {
    pub(super) fn enter(&mut self, cntlid: u16) -> u64 {
        self.last += 1;
        self.by_cntlid.insert(cntlid, self.last);
        self.last
    }

    pub(super) fn contains(&self, cntlid: u16) -> bool {
        self.by_cntlid.contains_key(&cntlid)
    }

    /// Returns the identifier with the oldest claim among those for which `may_be` is true.
    pub(super) fn oldest(&self, may_be: impl Fn(&u16) -> bool) -> Option<u16> {
        let claims = self.by_cntlid.iter().filter(|(cntlid, _)| may_be(cntlid));
        claims.min_by_key(|(_, number)| **number).map(|(cntlid, _)| *cntlid)
    }

    /// Ends a claim. Returns false if a newer claim has taken the identifier.
    pub(super) fn take(&mut self, cntlid: u16, number: u64) -> bool {
        let is_it = self.by_cntlid.get(&cntlid) == Some(&number);
        if is_it {
            self.by_cntlid.remove(&cntlid);
        }
        is_it
    }
}

/// Host identifiers (HOSTID). Each is bound at a subsystem to the NQN that was first authenticated with it there,
/// because reservations use it. A host with access to one subsystem takes no identifier at others.
#[derive(Debug, Default)]
pub(super) struct HostIds(BTreeMap<(Arc<str>, [u8; 16]), Arc<str>>);

/// Identifiers bound to one NQN at a subsystem, at most: some hosts generate one for each Connect.
const HOSTIDS_MAX: usize = 64;

impl HostIds {
    /// Binds an identifier to the authenticated NQN, if it is free.
    ///
    /// # Errors
    /// The NQN to which it is bound.
    pub(super) fn enter(
        &mut self,
        queue: &ConnectedQueue,
        is_proved: bool,
    ) -> Result<(), Arc<str>> {
        let ConnectedQueue { subnqn, hostnqn, hostid, .. } = queue;
        let key = (subnqn.clone(), *hostid);
        match self.0.get(&key) {
            Some(owner) if owner != hostnqn => return Err(owner.clone()),
            Some(_) => return Ok(()),
            None => {}
        }
        let is_own =
            |((at, _), owner): &(&(Arc<str>, _), &Arc<str>)| at == subnqn && *owner == hostnqn;
        let own = || self.0.iter().filter(is_own).count();
        if is_proved && own() < HOSTIDS_MAX {
            self.0.insert(key, hostnqn.clone());
        }
        Ok(())
    }

    /// Removes the identifiers of hosts without a key.
    pub(super) fn retain(&mut self, has_key: impl Fn(&str) -> bool) {
        self.0.retain(|_, owner| has_key(owner));
    }

    /// Removes the identifiers of a deleted subsystem.
    pub(super) fn forget(&mut self, subnqn: &str) {
        self.0.retain(|(at, _), _| **at != *subnqn);
    }
}

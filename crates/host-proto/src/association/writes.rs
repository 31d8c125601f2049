//! What becomes of acknowledged writes when a path is connected again ([`crate::write_verifier`]).

use super::{Action, Association, NamespaceInfo};

impl<E: Send + 'static> Association<E> {
    /// Compares the verifiers of a path's controller with those of before. Another namespace under the NSID says nothing of
    /// that.
    pub(super) fn check_writes(&mut self, namespaces: &[NamespaceInfo]) {
        let barred = self.pins.barred();
        let same = namespaces.iter().filter(|now| !barred.stale().contains(&now.nsid));
        let nsids = self.writes.observe(same);
        self.lose_writes(nsids);
    }

    /// The path is live.
    pub(super) fn begin_writes(&mut self) {
        let nsids = self.writes.connected();
        self.lose_writes(nsids);
    }

    fn lose_writes(&mut self, nsids: Vec<u32>) {
        if !nsids.is_empty() {
            self.actions.push_back(Action::WritesLost { nsids });
        }
    }
}

//! What becomes of acknowledged writes when a path is connected again ([`crate::host::write_verifier`]).

use super::{Action, Association, NamespaceInfo, PathId};

impl<E: Send + 'static> Association<E> {
    /// Whether the machine of the path's controller still has what it has acknowledged. Another namespace under the NSID
    /// says nothing of that.
    pub(super) fn check_writes(&mut self, number: usize, namespaces: &[NamespaceInfo]) {
        let barred = self.pins.barred();
        let same = namespaces.iter().filter(|now| !barred.stale().contains(&now.nsid));
        let nsids = self.writes.observe(same);
        if !nsids.is_empty() {
            self.actions.push_back(Action::WritesLost { path: PathId(number as u16), nsids });
        }
    }
}

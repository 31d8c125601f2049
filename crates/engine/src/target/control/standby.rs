//! Namespaces whose blocks another process has: they are served as soon as it has ended.

use super::Control;
use crate::target::export::Blocks;
use crate::target::stores::Open;
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, Weak};
use std::thread;
use std::time::Duration;
use tracing::warn;

/// How often it is looked whether blocks are free.
const LOOK: Duration = Duration::from_millis(100);
/// The same after an attempt that has failed.
const PAUSE: Duration = Duration::from_secs(5);

impl Control {
    /// Has namespaces that stand by looked at, by a thread that ends when there are none.
    pub(super) fn watch_standby(&self) {
        let mut watched = self.standby.lock().unwrap_or_else(PoisonError::into_inner);
        if *watched || self.lock().stores.standing_by().next().is_none() {
            return;
        }
        let control = self.weak.clone();
        let watch = move || while look(&control) {};
        match thread::Builder::new().name("roadtrain-standby".into()).spawn(watch) {
            Ok(_) => *watched = true,
            Err(error) => warn!("namespaces that stand by are not taken over: {error}"),
        }
    }

    /// It begins to serve nothing any more.
    fn is_leaving(&self) -> bool {
        self.lock().target.is_leaving()
    }

    /// Serves what is free now. Whether there is something left to wait for.
    fn take_over(&self) -> bool {
        let stores = self.lock().stores.clone();
        if self.is_leaving() {
            return false;
        }
        let is_free = |open: &Open| matches!(&open.export.blocks, Blocks::Spec(spec) if roadtrain_store::is_free(spec));
        let standing = || stores.standing_by();
        let free: BTreeSet<_> = standing()
            .filter(|(_, open)| is_free(open))
            .map(|(nqn, open)| (nqn.to_owned(), open.export.nsid))
            .collect();
        for (nqn, open) in standing() {
            if let Err(error) = self.check_size(&open.store) {
                let nsid = open.export.nsid;
                warn!("{nqn}, namespace {nsid}: its size where it is served is not known: {error}");
            }
        }
        if !free.is_empty() {
            let is_it =
                |nqn: &str, nsid| !self.is_leaving() && free.contains(&(nqn.to_owned(), nsid));
            let taken = self.change(is_it, |exports| Ok(exports.clone()));
            if let Err(error) = taken {
                warn!("what was free is not taken over, and tried again: {error}");
                thread::sleep(PAUSE);
            }
        }
        let mut watched = self.standby.lock().unwrap_or_else(PoisonError::into_inner);
        *watched = self.lock().stores.standing_by().next().is_some();
        *watched
    }
}

/// Whether to go on.
fn look(control: &Weak<Control>) -> bool {
    thread::sleep(LOOK);
    let control: Option<Arc<Control>> = control.upgrade();
    control.is_some_and(|control| control.take_over())
}

//! Standby: namespaces whose blocks several targets can open. This target serves them while it owns the exclusive lock.

use super::TargetControlPlane;
use crate::open_store::OpenStore;
use crate::stores::OpenNamespace;
use roadtrain_store::Store;
use roadtrain_target_proto::{ConfigError, ConfigObject};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Interval of checks for the owner of the blocks.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Delay before another attempt for a namespace whose change has failed.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Number of checks between two queries for the size of blocks that another target owns.
const SIZE_CHECK_TURNS: u32 = 5;

/// Namespaces whose change has failed, with the time of the next attempt.
type Pauses = BTreeMap<(String, u32), Instant>;

impl TargetControlPlane {
    /// Starts a thread that watches namespaces whose blocks may change owners. The thread ends when no such namespaces
    /// are left.
    pub(super) fn watch_standby(&self) {
        let mut watched = self.standby.lock().unwrap_or_else(PoisonError::into_inner);
        if *watched || self.lock().stores.changing_hands().next().is_none() {
            return;
        }
        let (control, life) = (self.weak.clone(), Arc::new(()));
        let (polling, alive) = (self.weak.clone(), Arc::downgrade(&life));
        let watch = move || {
            let mut pauses = Pauses::new();
            (0..).all(|turn| check_once(&control, turn, &mut pauses));
            drop(life);
        };
        let poll = move || {
            let mut polled = Vec::new();
            while (alive.strong_count() > 0 || !polled.is_empty())
                && poll_once(&polling, &mut polled)
            {}
        };
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.into()).spawn(run).map(drop)
        };
        let begun = spawn("roadtrain-standby", Box::new(watch))
            .map(|()| *watched = true)
            .and_then(|()| spawn("roadtrain-owner", Box::new(poll)));
        begun.unwrap_or_else(|error| warn!("cannot watch the namespaces that stand by: {error}"));
    }

    /// True if the target starts to serve nothing more, because it is leaving.
    fn is_leaving(&self) -> bool {
        self.lock().target.is_leaving()
    }

    /// Serves namespaces whose blocks this target owns now, and stops serving the others. Returns true if namespaces
    /// are left to watch.
    fn follow_owners(&self, turn: u32, pauses: &mut Pauses) -> bool {
        let stores = self.lock().stores.clone();
        if self.is_leaving() {
            return false;
        }
        pauses.retain(|_, until| Instant::now() < *until);
        let key = |(nqn, open): &(&str, &OpenNamespace)| ((*nqn).to_owned(), open.export.nsid);
        let mut changed: Vec<_> = stores
            .changing_hands()
            .filter(|one| one.1.needs_change() && !pauses.contains_key(&key(one)))
            .collect();
        // Reports lost namespaces first, before it waits for others to open.
        changed.sort_by_key(|(_, open)| open.must_reopen());
        if turn.is_multiple_of(SIZE_CHECK_TURNS) {
            // An image reports its size itself. A query may wait for its cluster.
            let needs_query = |open: &OpenNamespace| open.stands_by() && !open.changes_hands();
            let standing = stores.changing_hands().filter(|(_, open)| needs_query(open));
            standing.for_each(|(nqn, open)| self.follow_size(nqn, open));
        }
        let changed: Vec<_> = changed.iter().map(key).collect();
        drop(stores); // the replaced stores close at once
        // Each namespace by itself: one that cannot be opened does not delay the others.
        for key in changed {
            let is_it = |nqn: &str, nsid| !self.is_leaving() && (nqn, nsid) == (&*key.0, key.1);
            if let Err(error) = self.change(is_it, |exports| Ok(exports.clone())) {
                warn!(
                    "the owner of the blocks has changed, but the namespace cannot follow yet; a retry follows: {error}"
                );
                pauses.insert(key, Instant::now() + RETRY_DELAY);
            }
        }
        let mut watched = self.standby.lock().unwrap_or_else(PoisonError::into_inner);
        *watched = self.lock().stores.changing_hands().next().is_some();
        *watched
    }

    fn follow_size(&self, nqn: &str, open: &OpenNamespace) {
        if let Err(error) = self.check_size(&open.store) {
            let nsid = open.export.nsid;
            warn!("{nqn}, namespace {nsid}: the current size of its blocks is unknown: {error}");
        }
    }

    /// Returns the store of a namespace that this target serves.
    pub(crate) fn store(&self, nqn: &str, nsid: u32) -> Option<Arc<dyn Store>> {
        let state = self.lock();
        let open = state.stores.get(nqn, nsid).filter(|open| open.is_served())?;
        Some(open.store.store().clone())
    }

    /// Seizes the blocks of a namespace from the target that owns them, and serves the namespace. Waits at most
    /// `timeout`. Returns true if this target did not serve it before.
    pub(crate) fn claim(
        &self,
        nqn: &str,
        nsid: u32,
        timeout: Duration,
    ) -> Result<bool, ConfigError> {
        let place = || ConfigObject::Namespace(nqn.to_owned(), nsid);
        let failed = |problem: String| ConfigError::Store { place: place(), problem };
        let find = || {
            let found = self.lock().stores.get(nqn, nsid).cloned();
            found.ok_or_else(|| ConfigError::Unknown(place()))
        };
        if find()?.is_served() {
            return Ok(false);
        }
        let begun = Instant::now();
        let mut seized = Weak::new();
        while begun.elapsed() < timeout {
            let open = find()?;
            if open.is_served() {
                let ms = begun.elapsed().as_millis();
                info!("{nqn}, namespace {nsid}: taken over in {ms} ms");
                return Ok(true);
            }
            // A store that has just lost its blocks is replaced by one that stands by, which needs its own `take_over`.
            let this = Arc::downgrade(&open.store);
            if open.stands_by() && !seized.ptr_eq(&this) {
                open.store.store().take_over().map_err(|error| failed(error.to_string()))?;
                seized = this;
            }
            drop(open); // or the replaced store would not close
            thread::sleep(CHECK_INTERVAL / 5);
        }
        Err(failed(format!("is not served here after {} s: see the log", timeout.as_secs())))
    }
}

/// Runs one check. Returns true while the thread shall continue.
fn check_once(control: &Weak<TargetControlPlane>, turn: u32, pauses: &mut Pauses) -> bool {
    thread::sleep(CHECK_INTERVAL);
    let control: Option<Arc<TargetControlPlane>> = control.upgrade();
    control.is_some_and(|control| control.follow_owners(turn, pauses))
}

/// Queries the owners of the blocks of all stores, also of replaced stores with commands in flight. A store that is cut
/// off then completes its commands. A separate thread does this, so that hosts do not wait while another namespace
/// opens. Returns true while the thread shall continue.
fn poll_once(control: &Weak<TargetControlPlane>, polled: &mut Vec<Weak<OpenStore>>) -> bool {
    thread::sleep(CHECK_INTERVAL);
    let Some(control) = control.upgrade() else { return false };
    let state = control.lock();
    let stores: Vec<Arc<OpenStore>> =
        state.stores.changing_hands().map(|(_, open)| open.store.clone()).collect();
    drop(state);
    drop(control);
    poll_owners(polled, &stores);
    true
}

/// Queries these stores, and those of earlier calls while they are in use.
pub(crate) fn poll_owners(polled: &mut Vec<Weak<OpenStore>>, stores: &[Arc<OpenStore>]) {
    for store in stores {
        if !polled.iter().any(|known| known.ptr_eq(&Arc::downgrade(store))) {
            polled.push(Arc::downgrade(store));
        }
    }
    for open in polled.iter().filter_map(Weak::upgrade) {
        let _ = open.store().ownership();
    }
    polled.retain(|store| store.strong_count() > 0);
}

//! Changes of a few namespaces among thousands, and the namespaces of each lane.

use super::{ControlState, TargetControlPlane};
use crate::export::Export;
use crate::flushes::Unflushed;
use crate::namespace::{LaneNamespaces, LocalNamespace, NamespaceFinder};
use crate::open_store::OpenStore;
use crate::order::TargetReactorMessage;
use crate::stores::{OpenByNsid, OpenNamespaces};
use roadtrain_system::platform;
use roadtrain_target_proto::rate::RateLimit;
use roadtrain_target_proto::stability::StoreUser;
use roadtrain_target_proto::{
    ConfigError, ConfigOperation, ConnectedQueue, NamespaceKeys, SubsystemNamespaces, TargetConfig,
    TargetEvent,
};
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use tracing::info;

/// Most namespaces of a subsystem that a lane finds at once. With more it finds each at the first command, which takes
/// the control plane's lock.
const FOUND_AT_ONCE_MAX: usize = 64;

impl TargetControlPlane {
    /// Applies `operations`, which change the namespaces `keys` and nothing else. The other namespaces are not touched,
    /// so the cost hardly depends on their number.
    pub(crate) fn change_namespaces(
        &self,
        operations: &[ConfigOperation<Export>],
        keys: &NamespaceKeys,
    ) -> Result<Vec<ConfigOperation>, ConfigError> {
        let mut exports = self.lock_exports();
        let next = exports.part(keys).with(operations)?;
        let changes = self.switch_part(&next, keys)?;
        Arc::make_mut(&mut exports).apply_checked(operations)?;
        Ok(changes)
    }

    /// Switches to the exports `next` of the namespaces `keys`. Opens and checks everything before it takes the lock.
    fn switch_part(
        &self,
        next: &TargetConfig<Export>,
        keys: &NamespaceKeys,
    ) -> Result<Vec<ConfigOperation>, ConfigError> {
        let (open, config) = {
            let state = self.lock();
            (state.stores.clone(), state.target.config().clone())
        };
        let mut prepared = open.prepare(&next.subsystems, |_, _| true)?;
        prepared.check_beside(&open, keys)?;
        let wanted = prepared.config(next, Vec::new());
        let before = config.part(keys);
        let mut changes = before.operations_to(&wanted);
        before.with(&changes)?;
        config.check_beside(&wanted, keys)?;
        let before = open.part(keys);
        drop((open, config)); // so that a change copies neither
        prepared.stage()?;
        let new = prepared.stores();
        let mut state = self.lock();
        prepared.check_moved(&state.target)?;
        // The changes are checked, so this does not fail. If it does, it has changed nothing.
        if !changes.is_empty() {
            state.target.apply(&changes)?;
        }
        super::reservations::restore(&mut state.target, &new);
        let switched = prepared.switch_part(&mut state.stores, keys);
        let gone = keys.iter().filter(|(nqn, nsid)| new.get(nqn, *nsid).is_none());
        self.meters.remove(gone.map(|(nqn, nsid)| (nqn.as_str(), *nsid)));
        changes.extend(unseen_changes(&before, &new));
        self.publish(state);
        changes.iter().for_each(|change| info!("{change}"));
        // Hosts receive no event about another store or class, but lanes need it.
        for subsystem in &next.subsystems {
            let changed = TargetEvent::NamespacesChanged { nqn: subsystem.nqn.as_str().into() };
            self.broadcast(|| TargetReactorMessage::Event(changed.clone()));
        }
        drop(switched);
        self.watch_sizes_of(&new);
        self.watch_standby();
        Ok(changes)
    }

    /// Returns the namespaces of a lane. Those that the lane has used and that have not changed are taken over.
    pub(crate) fn lane_namespaces(
        self: &Arc<Self>,
        queue: Option<&ConnectedQueue>,
        before: &LaneNamespaces,
    ) -> LaneNamespaces {
        let Some(connected) = queue.filter(|connected| connected.qid > 0) else {
            return LaneNamespaces::default();
        };
        let mut state = self.lock();
        let ControlState { target, stores, host_limits, .. } = &mut *state;
        let host_limit = host_limits.get(&connected.subnqn, &connected.hostnqn);
        let table = target.namespaces_of(connected);
        let Some(table) = table else { return LaneNamespaces::default() };
        let is_same = |nsid: u32, known: &LocalNamespace| {
            let open = stores.get(&connected.subnqn, nsid);
            open.is_some_and(|open| open.version == known.version)
                && table.get(nsid) == Some(&known.geometry)
                && table.refusal(nsid).is_none()
                && is_same_limit(known.limits[1].as_ref(), host_limit.as_ref())
        };
        let kept = before.used().into_iter().filter(|(nsid, known)| is_same(*nsid, known));
        let mut used: Vec<_> = kept.collect();
        let finder = LaneNamespaceFinder {
            control: self.clone(),
            connected: connected.clone(),
            user: Arc::new(connected.user()),
            host_limit,
            table: table.clone(),
            stores: stores.of(&connected.subnqn),
        };
        drop(state);
        if table.iter().nth(FOUND_AT_ONCE_MAX).is_none() {
            let known: HashSet<u32> = used.iter().map(|(nsid, _)| *nsid).collect();
            let new = table.iter().map(|(nsid, _)| nsid).filter(|nsid| !known.contains(nsid));
            let found = new.filter_map(|nsid| Some((nsid, Rc::new(finder.find(nsid)?))));
            used.extend(found.collect::<Vec<_>>());
        }
        LaneNamespaces::new(table, Rc::new(finder), used)
    }

    /// Returns the stores that a Flush of all namespaces of a lane concerns.
    pub(crate) fn stores_to_flush(&self, connected: &ConnectedQueue) -> Vec<Arc<OpenStore>> {
        let state = self.lock();
        let table = state.target.namespaces_of(connected);
        let nsids = table.iter().flat_map(|table| {
            let in_reach = table.iter().filter(|(nsid, _)| table.refusal(*nsid).is_none());
            in_reach.map(|(nsid, _)| nsid)
        });
        let open = nsids.filter_map(|nsid| state.stores.get(&connected.subnqn, nsid));
        open.map(|open| open.store.clone()).collect()
    }
}

/// Returns the changes of classes and rate limits, which hosts do not see.
fn unseen_changes(before: &OpenNamespaces, now: &OpenNamespaces) -> Vec<ConfigOperation> {
    let reclassed = now.reclassed(before).map(|(nqn, open)| {
        let (nqn, namespace) = (nqn.to_owned(), open.config.clone());
        ConfigOperation::ReplaceNamespace { nqn, namespace }
    });
    let relimited = now.relimited(before).map(|(nqn, open)| {
        let (nsid, rates) = (open.export.nsid, open.export.rates);
        ConfigOperation::LimitNamespace { nqn: nqn.to_owned(), nsid, rates }
    });
    reclassed.chain(relimited).collect()
}

fn is_same_limit(one: Option<&Arc<RateLimit>>, other: Option<&Arc<RateLimit>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// Finder of the namespaces that a lane uses for the first time. It finds what was there when the lane received the last
/// change: the host may not know yet that an NSID stands for other blocks.
struct LaneNamespaceFinder {
    control: Arc<TargetControlPlane>,
    connected: ConnectedQueue,
    user: Arc<StoreUser>,
    host_limit: Option<Arc<RateLimit>>,
    table: Arc<SubsystemNamespaces>,
    stores: Arc<OpenByNsid>,
}

impl NamespaceFinder for LaneNamespaceFinder {
    /// Returns the namespace if it is accessible. Takes the lock only for a namespace of the lane's table.
    fn find(&self, nsid: u32) -> Option<LocalNamespace> {
        let geometry = *self.table.get(nsid)?;
        if self.table.refusal(nsid).is_some() {
            return None;
        }
        let connected = &self.connected;
        let open = self.stores.get(&nsid)?;
        let access =
            self.control.lock().target.access(&connected.subnqn, nsid, connected.hostid)?;
        let store = open.store.clone();
        let own_limit = open.export.rates.is_limited().then(|| open.limit.clone());
        Some(LocalNamespace {
            version: open.version,
            geometry,
            in_place: store.store().in_place(),
            is_cold: platform::outgrows_caches(geometry.blocks << geometry.lba_shift),
            unflushed: store.flushes().map(|flushes| Unflushed::new(flushes, &self.user)),
            class: open.export.class,
            access,
            cells: self.control.meters.namespace(&connected.subnqn, nsid),
            limits: [own_limit, self.host_limit.clone()],
            store,
        })
    }
}

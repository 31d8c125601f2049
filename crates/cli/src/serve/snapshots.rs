//! Snapshot operations on namespaces of a running target.

use crate::control::{
    ControlRefusal, ControlReply, RefusalReason, SnapshotAction, SnapshotReply, SnapshotView,
};
use roadtrain_store::{SnapshotError, Snapshots, Store, StoreSnapshot};
use roadtrain_target_engine::Server;
use serde_json::json;
use std::sync::Arc;
use tracing::info;

/// Runs an operation, and returns the snapshots after it.
pub(super) fn answer(
    server: &Server,
    (nqn, nsid): (&str, u32),
    action: &SnapshotAction,
) -> ControlReply {
    let refused = |why, message: String| ControlRefusal {
        place: Some(format!("namespace {nsid} of {nqn}").into()),
        ..ControlRefusal::new(why, message)
    };
    let none =
        || refused(RefusalReason::Unknown, format!("namespace {nsid} of {nqn} is not served here"));
    let store = server.store(nqn, nsid).ok_or_else(none)?;
    let snapshots = store
        .snapshots()
        .ok_or_else(|| refused(RefusalReason::Store, "its store has no snapshots".to_owned()))?;
    let is_free = || check_free(server, &store);
    act(snapshots, action, &is_free).map_err(|error| {
        let why = match &error {
            SnapshotError::Unknown(_) => RefusalReason::Unknown,
            SnapshotError::Exists(_) => RefusalReason::Exists,
            SnapshotError::Refused(_) | SnapshotError::Failed(_) => RefusalReason::Store,
        };
        refused(why, error.to_string())
    })?;
    if !matches!(action, SnapshotAction::List) {
        info!(?action, "snapshot operation done on namespace {nsid} of {nqn}");
    }
    let all = snapshots.list().map_err(|error| refused(RefusalReason::Store, error.to_string()))?;
    Ok(json!(SnapshotReply { snapshots: all.into_iter().map(SnapshotView::from).collect() }))
}

/// Checks that no host is connected to any subsystem with the blocks of `store`.
fn check_free(server: &Server, store: &Arc<dyn Store>) -> Result<(), SnapshotError> {
    let (config, controllers) = server.view();
    let serves = |nqn: &str| {
        let subsystem = config.subsystems.iter().find(|subsystem| subsystem.nqn == nqn);
        let namespaces = subsystem.into_iter().flat_map(|subsystem| &subsystem.namespaces);
        namespaces
            .into_iter()
            .filter_map(|namespace| server.store(nqn, namespace.nsid))
            .any(|other| has_same_blocks(&other, store))
    };
    match controllers.iter().find(|controller| serves(&controller.subnqn)) {
        None => Ok(()),
        Some(user) => Err(SnapshotError::Refused(format!(
            "{} is connected to {}: what it uses is not rolled back. Disconnect its hosts first",
            user.hostnqn, user.subnqn
        ))),
    }
}

/// True if both stores have the same blocks. An image that another subsystem serves read-only is opened twice.
fn has_same_blocks(other: &Arc<dyn Store>, store: &Arc<dyn Store>) -> bool {
    let is_alike = || matches!((other.identity(), store.identity()), (Ok(a), Ok(b)) if a == b);
    Arc::ptr_eq(other, store) || (other.snapshots().is_some() && is_alike())
}

fn act(
    snapshots: &dyn Snapshots,
    action: &SnapshotAction,
    is_free: &dyn Fn() -> Result<(), SnapshotError>,
) -> Result<(), SnapshotError> {
    match action {
        SnapshotAction::List => Ok(()),
        SnapshotAction::Create { name } => snapshots.create(name),
        SnapshotAction::Remove { name } => snapshots.remove(name),
        SnapshotAction::Protect { name } => snapshots.protect(name),
        SnapshotAction::Unprotect { name } => snapshots.unprotect(name),
        SnapshotAction::Clone { name, to } => snapshots.clone_to(name, to),
        SnapshotAction::Rollback { name } => snapshots.roll_back(name, is_free),
    }
}

impl From<StoreSnapshot> for SnapshotView {
    fn from(snapshot: StoreSnapshot) -> SnapshotView {
        let StoreSnapshot { name, bytes, created, is_protected: protected } = snapshot;
        SnapshotView { name, bytes, created, protected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_host_engine::{AdminConnection, HostConfig};
    use roadtrain_store::{
        DifferencesQuery, DiskDifferences, OpenError, StoreCompletion, StoreGeometry, StoreIo,
        StoreOperation, StoreToken,
    };
    use roadtrain_system::buffer::Buffer;
    use roadtrain_target_engine::{Export, ServerConfig, Subsystem};

    const NQN: &str = "nqn.2026-11.test:a";
    const OTHER_NQN: &str = "nqn.2026-11.test:b";

    /// An open image, which its identity distinguishes from others.
    #[derive(Debug)]
    struct TestImage(u128);

    impl Store for TestImage {
        fn geometry(&self) -> StoreGeometry {
            StoreGeometry { lba_shift: 9, blocks: 8, read_only: false, volatile_cache: false }
        }

        fn identity(&self) -> Result<u128, OpenError> {
            Ok(self.0)
        }

        fn submit(
            &self,
            _: StoreOperation,
            buffer: Option<Buffer>,
            token: StoreToken,
            io: &mut StoreIo<'_>,
        ) {
            io.complete(StoreCompletion::new(token, Ok(()), buffer));
        }

        fn snapshots(&self) -> Option<&dyn Snapshots> {
            Some(self)
        }
    }

    impl Snapshots for TestImage {
        fn list(&self) -> Result<Vec<StoreSnapshot>, SnapshotError> {
            Ok(Vec::new())
        }

        fn create(&self, _: &str) -> Result<(), SnapshotError> {
            Ok(())
        }

        fn remove(&self, _: &str) -> Result<(), SnapshotError> {
            Ok(())
        }

        fn protect(&self, _: &str) -> Result<(), SnapshotError> {
            Ok(())
        }

        fn unprotect(&self, _: &str) -> Result<(), SnapshotError> {
            Ok(())
        }

        fn clone_to(&self, _: &str, _: &str) -> Result<(), SnapshotError> {
            Ok(())
        }

        fn roll_back(
            &self,
            _: &str,
            check: &dyn Fn() -> Result<(), SnapshotError>,
        ) -> Result<(), SnapshotError> {
            check()
        }

        fn differences(
            &self,
            _: &str,
            _: Option<&str>,
            _: DifferencesQuery,
        ) -> Result<DiskDifferences, SnapshotError> {
            Ok(DiskDifferences::default())
        }
    }

    /// Rolls back while a host, each time with another NQN, is connected to one of two subsystems.
    fn roll_back_beside(ours: &Arc<dyn Store>, theirs: Arc<dyn Store>, nqn: &str) -> ControlReply {
        let subsystem = |nqn: &str, store: Arc<dyn Store>, id: u8| {
            // Two namespaces with the same blocks need different identities.
            let export = Export { nguid: Some([id; 16]), ..Export::with_store(1, store) };
            Subsystem { namespaces: vec![export], ..Subsystem::new(nqn) }
        };
        let subsystems = vec![subsystem(NQN, ours.clone(), 1), subsystem(OTHER_NQN, theirs, 2)];
        let listen = vec!["127.0.0.1:0".parse().unwrap()];
        let server = Server::start(ServerConfig::new(listen, subsystems)).unwrap();
        let host =
            HostConfig::new(server.addresses()[0], nqn, "nqn.2026-11.test:stranger", [7; 16]);
        let connected = AdminConnection::connect(&host).unwrap();
        let rollback = SnapshotAction::Rollback { name: "one".into() };
        let reply = answer(&server, (NQN, 1), &rollback);
        drop(connected);
        server.stop();
        reply
    }

    #[test]
    fn a_rollback_needs_a_namespace_without_hosts_in_any_subsystem() {
        let image: Arc<dyn Store> = Arc::new(TestImage(1));
        let again: Arc<dyn Store> = Arc::new(TestImage(1));
        let another: Arc<dyn Store> = Arc::new(TestImage(2));
        for (theirs, nqn) in [(&another, NQN), (&image, OTHER_NQN), (&again, OTHER_NQN)] {
            let refusal = roll_back_beside(&image, theirs.clone(), nqn).unwrap_err();
            let expected = format!("nqn.2026-11.test:stranger is connected to {nqn}");
            assert!(refusal.message.contains(&expected), "{}", refusal.message);
        }
        assert!(roll_back_beside(&image, another, OTHER_NQN).is_ok());
    }
}

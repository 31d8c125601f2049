//! Random operations, compared with a model of volumes.

use super::*;
use crate::cases::cases;
use proptest::prelude::*;
use std::collections::BTreeMap;

const TOTAL: u64 = 12;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Clone, Debug)]
enum StoreAction {
    Create { name: usize, clusters: u64, thin: bool },
    Snapshot { of: usize, name: usize },
    Clone { of: usize, name: usize },
    Inflate { of: usize },
    Decouple { of: usize },
    SetReadOnly { of: usize },
    Resize { of: usize, clusters: u64 },
    Rename { of: usize, name: usize },
    Delete { of: usize },
    Write { of: usize, cluster: u64, value: u8 },
    Reopen,
}

fn action() -> impl Strategy<Value = StoreAction> {
    let name = || 0..NAMES.len();
    prop_oneof![
        3 => (name(), 1u64..5, any::<bool>())
            .prop_map(|(name, clusters, thin)| StoreAction::Create { name, clusters, thin }),
        3 => (name(), name()).prop_map(|(of, name)| StoreAction::Snapshot { of, name }),
        2 => (name(), name()).prop_map(|(of, name)| StoreAction::Clone { of, name }),
        2 => name().prop_map(|of| StoreAction::Inflate { of }),
        2 => name().prop_map(|of| StoreAction::Decouple { of }),
        1 => name().prop_map(|of| StoreAction::SetReadOnly { of }),
        1 => (name(), 1u64..6).prop_map(|(of, clusters)| StoreAction::Resize { of, clusters }),
        1 => (name(), name()).prop_map(|(of, name)| StoreAction::Rename { of, name }),
        2 => name().prop_map(|of| StoreAction::Delete { of }),
        4 => (name(), 0u64..5, 1u8..).prop_map(|(of, cluster, value)| StoreAction::Write { of, cluster, value }),
        1 => Just(StoreAction::Reopen),
    ]
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Modelled {
    clusters: u64,
    thin: bool,
    snapshot: bool,
    read_only: bool,
    parent: Option<String>,
    content: BTreeMap<u64, u8>,
}

impl Modelled {
    fn is_read_only(&self) -> bool {
        self.snapshot || self.read_only
    }
}

/// Volumes by name, and their names in order.
#[derive(Default)]
struct StoreModel {
    volumes: BTreeMap<String, Modelled>,
    order: Vec<String>,
}

impl StoreModel {
    /// Returns the most and the least clusters that can be free: thin volumes may take their space or not.
    fn free(&self) -> (u64, u64) {
        let thick: u64 =
            self.volumes.values().filter(|v| !v.thin && !v.snapshot).map(|v| v.clusters).sum();
        let other: u64 =
            self.volumes.values().filter(|v| v.thin || v.snapshot).map(|v| v.clusters).sum();
        (TOTAL.saturating_sub(thick), TOTAL.saturating_sub(thick + other))
    }

    fn add(&mut self, name: &str, volume: Modelled) {
        self.volumes.insert(name.into(), volume);
        self.order.push(name.into());
    }

    /// Applies an action to both. The model confirms each success, and has a reason for each refusal.
    fn apply(&mut self, store: &VolumeStore, action: &StoreAction) {
        match *action {
            StoreAction::Create { name, clusters, thin } => {
                let name = NAMES[name];
                let (is_taken, (most, least)) = (self.volumes.contains_key(name), self.free());
                match store.create(name, clusters * CLUSTER, thin) {
                    Ok(_) => {
                        assert!(!is_taken && (thin || clusters <= most));
                        let (parent, content) = (None, BTreeMap::new());
                        let (snapshot, read_only) = (false, false);
                        let new = Modelled { clusters, thin, snapshot, read_only, parent, content };
                        self.add(name, new);
                    }
                    Err(VolumeError::Taken(_)) => assert!(is_taken),
                    Err(VolumeError::NoSpace { .. }) => assert!(!thin && clusters > least),
                    Err(error) => panic!("{error}"),
                }
            }
            StoreAction::Snapshot { of, name } => {
                let Some((uuid, source)) = self.find(store, of) else { return };
                match store.snapshot(uuid, NAMES[name], &quiet) {
                    Ok(_) => {
                        assert!(!source.snapshot && !self.volumes.contains_key(NAMES[name]));
                        let new = Modelled { snapshot: true, read_only: false, ..source };
                        self.add(NAMES[name], new);
                        let volume = self.volumes.get_mut(NAMES[of]).unwrap();
                        (volume.thin, volume.parent) = (true, Some(NAMES[name].into()));
                    }
                    Err(error) => self.is_refused(&error, source.snapshot, name),
                }
            }
            StoreAction::Clone { of, name } => {
                let Some((uuid, source)) = self.find(store, of) else { return };
                match store.clone_snapshot(uuid, NAMES[name]) {
                    Ok(_) => {
                        assert!(source.is_read_only() && !self.volumes.contains_key(NAMES[name]));
                        let parent = Some(NAMES[of].into());
                        let (snapshot, read_only) = (false, false);
                        let new = Modelled { snapshot, read_only, thin: true, parent, ..source };
                        self.add(NAMES[name], new);
                    }
                    Err(error) => self.is_refused(&error, !source.is_read_only(), name),
                }
            }
            StoreAction::Inflate { of } => {
                let Some((uuid, source)) = self.find(store, of) else { return };
                match store.inflate(uuid) {
                    Ok(()) => {
                        assert!(!source.snapshot);
                        let volume = self.volumes.get_mut(NAMES[of]).unwrap();
                        (volume.thin, volume.parent) = (false, None);
                    }
                    Err(VolumeError::ReadOnly(_)) => assert!(source.snapshot),
                    Err(VolumeError::NoSpace { .. }) => assert!(source.thin),
                    Err(error) => panic!("{error}"),
                }
            }
            StoreAction::Decouple { of } => {
                let Some((uuid, source)) = self.find(store, of) else { return };
                match store.decouple(uuid) {
                    Ok(()) => {
                        assert!(!source.snapshot && source.parent.is_some());
                        self.volumes.get_mut(NAMES[of]).unwrap().parent = None;
                    }
                    Err(VolumeError::ReadOnly(_)) => assert!(source.snapshot),
                    Err(VolumeError::Invalid(_)) => assert!(source.parent.is_none()),
                    Err(VolumeError::NoSpace { .. }) => assert!(source.thin),
                    Err(error) => panic!("{error}"),
                }
            }
            StoreAction::SetReadOnly { of } => {
                let Some((uuid, source)) = self.find(store, of) else { return };
                store.set_read_only(uuid).unwrap();
                self.volumes.get_mut(NAMES[of]).unwrap().read_only = !source.snapshot;
            }
            StoreAction::Resize { of, clusters } => {
                let Some((uuid, source)) = self.find(store, of) else { return };
                match store.resize(uuid, clusters * CLUSTER) {
                    Ok(_) => {
                        assert!(!source.is_read_only() && clusters >= source.clusters);
                        self.volumes.get_mut(NAMES[of]).unwrap().clusters = clusters;
                    }
                    Err(VolumeError::ReadOnly(_)) => assert!(source.is_read_only()),
                    Err(VolumeError::Invalid(_)) => assert!(clusters < source.clusters),
                    Err(VolumeError::NoSpace { .. }) => assert!(!source.thin),
                    Err(error) => panic!("{error}"),
                }
            }
            StoreAction::Rename { of, name } => {
                let Some((uuid, _)) = self.find(store, of) else { return };
                match store.rename(uuid, NAMES[name]) {
                    Ok(()) => self.rename(NAMES[of], NAMES[name]),
                    Err(VolumeError::Taken(_)) => assert!(self.volumes.contains_key(NAMES[name])),
                    Err(error) => panic!("{error}"),
                }
            }
            StoreAction::Delete { of } => {
                let Some((uuid, gone)) = self.find(store, of) else { return };
                store.delete(uuid).unwrap();
                self.volumes.remove(NAMES[of]);
                self.order.retain(|name| name != NAMES[of]);
                for child in
                    self.volumes.values_mut().filter(|v| v.parent.as_deref() == Some(NAMES[of]))
                {
                    child.parent.clone_from(&gone.parent);
                }
            }
            StoreAction::Write { of, cluster, value } => {
                let Some((uuid, volume)) = self.find(store, of) else { return };
                if !volume.is_read_only() && cluster < volume.clusters {
                    write(store, uuid, cluster * CLUSTER, value);
                    self.volumes.get_mut(NAMES[of]).unwrap().content.insert(cluster, value);
                }
            }
            StoreAction::Reopen => {}
        }
    }

    fn find(&self, store: &VolumeStore, of: usize) -> Option<(Uuid, Modelled)> {
        let volume = self.volumes.get(NAMES[of])?;
        let known = store.list().into_iter().find(|volume| volume.name == NAMES[of]);
        Some((known.expect("the store lost a volume").uuid, volume.clone()))
    }

    fn is_refused(&self, error: &VolumeError, wrong_kind: bool, name: usize) {
        match error {
            VolumeError::Invalid(_) => assert!(wrong_kind),
            VolumeError::Taken(_) => assert!(self.volumes.contains_key(NAMES[name])),
            // Copies: the model does not know their space.
            VolumeError::NoSpace { .. } => {}
            error => panic!("{error}"),
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        let volume = self.volumes.remove(from).unwrap();
        self.volumes.insert(to.into(), volume);
        let names = self
            .order
            .iter_mut()
            .chain(self.volumes.values_mut().filter_map(|v| v.parent.as_mut()));
        names.filter(|name| *name == from).for_each(|name| *name = to.into());
    }

    fn check(&self, store: &VolumeStore) {
        let names: Vec<String> = store.list().into_iter().map(|volume| volume.name).collect();
        assert_eq!(names, self.order);
        for info in store.volumes() {
            let (volume, expected) = (&info.volume, &self.volumes[&info.volume.name]);
            let kind = (volume.thin, volume.snapshot, volume.read_only);
            assert_eq!(kind, (expected.thin, expected.snapshot, expected.read_only));
            let shape = (volume.size / CLUSTER, &info.parent);
            assert_eq!(shape, (expected.clusters, &expected.parent), "{}", volume.name);
            assert!(info.clusters <= expected.clusters.max(1));
            for cluster in 0..expected.clusters {
                let value = expected.content.get(&cluster).copied().unwrap_or(0);
                assert_eq!(read(store, volume.uuid, cluster * CLUSTER), value, "{}", volume.name);
            }
        }
        let (most, least) = self.free();
        assert!((least..=most).contains(&free(store)));
    }
}

fn run(lab: &StoreLab, actions: &[StoreAction]) {
    let mut model = StoreModel::default();
    let mut store = lab.open_sized(TOTAL * CLUSTER);
    for action in actions {
        model.apply(&store, action);
        if matches!(action, StoreAction::Reopen) {
            drop(store);
            store = lab.open_sized(TOTAL * CLUSTER);
        }
        model.check(&store);
    }
    store.settle();
    model.check(&store);
    let mut known: Vec<Uuid> = store.list().iter().map(|volume| volume.uuid).collect();
    known.sort_unstable();
    assert_eq!(known, lab.files());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(48)))]

    #[test]
    fn a_store_is_what_its_model_is(actions in prop::collection::vec(action(), 1..40)) {
        run(&StoreLab::quick(), &actions);
    }
}

#[test]
fn a_store_that_shares_extents_is_what_its_model_is() {
    let Some(xfs) = StoreLab::xfs() else { return };
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: cases(12),
        ..Default::default()
    });
    let number = std::cell::Cell::new(0);
    let tested = runner.run(&prop::collection::vec(action(), 1..40), |actions| {
        number.set(number.get() + 1);
        let folder = xfs.folder.join(number.get().to_string());
        run(
            &StoreLab { folder, mounted: None, _directory: tempfile::tempdir().unwrap() },
            &actions,
        );
        Ok(())
    });
    tested.unwrap();
}

//! RPC's part of a target's snapshot: the names and kinds of devices, the limits of subsystems.

use super::Manager;
use crate::model::{ManagedDevice, ManagedModel, SavedSubsystem};
use roadtrain_reactor::metrics::{DeviceSample, MetricsSnapshot, NamespaceSample, SubsystemSample};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

impl Manager {
    /// Adds the model's data to a snapshot of the target: names and kinds of the devices created by RPC, and devices
    /// without a namespace.
    pub fn describe(&self, seen: &mut MetricsSnapshot) {
        describe(&self.model(), seen);
    }
}

fn describe(model: &ManagedModel, seen: &mut MetricsSnapshot) {
    let devices: HashMap<&str, &Arc<ManagedDevice>> =
        model.devices.iter().map(|device| (device.name.as_str(), device)).collect();
    let claims = model.claims_by_device().into_iter().map(|(device, place)| (place, device));
    let claims: HashMap<(&str, u32), &str> = claims.collect();
    for namespace in &mut seen.namespaces {
        if let Some(name) = claims.get(&(namespace.nqn.as_str(), namespace.nsid)) {
            (*name).clone_into(&mut namespace.device);
            devices.get(name).iter().for_each(|device| shown(namespace, device));
        }
    }
    let claimed: HashSet<&str> = claims.into_values().collect();
    let alone = model.devices.iter().filter(|device| !claimed.contains(device.name.as_str()));
    seen.unused_devices = alone.map(|device| sample(device)).collect();
    let specs: HashMap<&str, &SavedSubsystem> =
        model.subsystems.iter().map(|spec| (spec.nqn.as_str(), spec)).collect();
    for subsystem in &mut seen.subsystems {
        if let Some(spec) = specs.get(subsystem.nqn.as_str()) {
            limited(subsystem, spec);
        }
    }
}

fn shown(namespace: &mut NamespaceSample, device: &ManagedDevice) {
    namespace.store = device.location();
    device.product().clone_into(&mut namespace.product);
}

fn sample(device: &ManagedDevice) -> DeviceSample {
    let geometry = device.store.geometry();
    DeviceSample {
        name: device.name.clone(),
        store: device.location(),
        block_bytes: geometry.lba_bytes(),
        product: device.product().to_owned(),
        capacity_bytes: geometry.bytes(),
    }
}

fn limited(subsystem: &mut SubsystemSample, spec: &SavedSubsystem) {
    subsystem.namespaces_max = spec.max_namespaces.into();
    subsystem.named_hosts = spec.hosts.iter().cloned().collect();
    subsystem.shared = spec.ana_reporting;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DeviceKind, RbdAccess, RbdImageSpec, SavedNamespace};
    use roadtrain_reactor::metrics::name_in_file;
    use roadtrain_store::{StoreKind, StoreSpec, open};

    const NQN: &str = "nqn.2026-11.test:a";

    fn device(name: &str, kind: DeviceKind) -> Arc<ManagedDevice> {
        let spec =
            StoreSpec { kind: StoreKind::Null { size: 1 << 20 }, lba_bytes: 512, read_only: false };
        let store = open(&spec).unwrap();
        let (name, uuid) = (name.into(), [7; 16]);
        let (aliases, file, standby) = Default::default();
        Arc::new(ManagedDevice { name, aliases, uuid, kind, file, store, standby })
    }

    fn image(pool: &str) -> DeviceKind {
        let access = RbdAccess::default();
        DeviceKind::Rbd(RbdImageSpec {
            pool: pool.into(),
            image: "disk".into(),
            access,
            ..RbdImageSpec::default()
        })
    }

    #[test]
    fn what_rpc_has_made_is_what_rpc_says() {
        let subsystem = serde_json::json!({
            "nqn": NQN, "max_namespaces": 4, "allow_any_host": true, "ana_reporting": true,
            "allow_hosts": ["nqn.2026-11.test:host"],
        });
        let mut spec: SavedSubsystem = serde_json::from_value(subsystem).unwrap();
        spec.namespaces = vec![SavedNamespace::new(1, "image"), SavedNamespace::new(2, "file")];
        let devices = vec![
            device("image", image("pool/of")),
            device("file", DeviceKind::Aio("/srv/disk".into())),
            device("spare", DeviceKind::Malloc),
            device("lent", DeviceKind::Aio("/srv/lent".into())),
        ];
        let lent = [("lent".to_owned(), ("nqn.2026-11.test:b".to_owned(), 2))].into();
        let subsystems = vec![spec];
        let model = ManagedModel { devices, subsystems, lent, ..ManagedModel::default() };
        let sample = |nqn: &str, nsid| NamespaceSample {
            nqn: nqn.into(),
            nsid,
            device: name_in_file(nqn, nsid),
            store: "embedded".into(),
            product: "Embedded".into(),
            ..NamespaceSample::default()
        };
        let of = |nqn: &str| SubsystemSample {
            nqn: nqn.into(),
            namespaces_max: 1024,
            ..SubsystemSample::default()
        };
        let mut seen = MetricsSnapshot {
            namespaces: vec![
                sample(NQN, 1),
                sample(NQN, 2),
                sample("nqn.2026-11.test:b", 1),
                sample("nqn.2026-11.test:b", 2),
            ],
            subsystems: vec![of(NQN), of("nqn.2026-11.test:b")],
            ..MetricsSnapshot::default()
        };
        describe(&model, &mut seen);
        let namespaces = seen.namespaces.iter();
        let said: Vec<_> = namespaces.map(|n| [&*n.device, &*n.product, &*n.store]).collect();
        assert_eq!(said[0], ["image", "Ceph Rbd Disk", "pool/of/disk"]);
        assert_eq!(said[1], ["file", "AIO disk", "/srv/disk"]);
        assert_eq!(said[2], ["nqn.2026-11.test:b/1", "Embedded", "embedded"], "not RPC's");
        assert_eq!(said[3], ["lent", "AIO disk", "/srv/lent"], "a namespace of the file has it");
        let [DeviceSample { name, product, capacity_bytes, block_bytes, store }] =
            &seen.unused_devices[..]
        else {
            panic!("{:?}", seen.unused_devices)
        };
        assert_eq!((&**name, &**product, &**store), ("spare", "Malloc disk", "mem"));
        assert_eq!((*capacity_bytes, *block_bytes), (1 << 20, 512));
        let [own, other] = &seen.subsystems[..] else { panic!("{:?}", seen.subsystems) };
        assert_eq!((own.namespaces_max, own.shared, own.named_hosts.len()), (4, true, 1));
        assert_eq!((other.namespaces_max, other.shared, other.named_hosts.len()), (1024, false, 0));
    }
}

//! Differences between a model and its changed copy, found without a search for each of thousands of objects.

use super::{ManagedModel, SavedNamespace};
use roadtrain_target_engine::Subsystem;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most namespaces whose devices are searched one by one, without an index.
const SEARCHED_MAX: usize = 16;

/// Returns what remains of two lists without their common beginning and end, which `is_same` compares.
pub(super) fn differing<'a, T>(
    old: &'a [T],
    new: &'a [T],
    is_same: impl Fn(&T, &T) -> bool,
) -> (&'a [T], &'a [T]) {
    let begin = old.iter().zip(new).take_while(|(a, b)| is_same(a, b)).count();
    let (old, new) = (&old[begin..], &new[begin..]);
    let end = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| is_same(a, b)).count();
    (&old[..old.len() - end], &new[..new.len() - end])
}

/// Namespaces of the two models that may differ.
struct ModelDifference<'a> {
    /// Names of devices that were added, removed or replaced, or have other limits.
    devices: BTreeSet<&'a str>,
    /// NQN and NSID of namespaces that were added, removed or replaced.
    namespaces: BTreeSet<(&'a str, u32)>,
}

impl<'a> ModelDifference<'a> {
    fn between(old: &'a ManagedModel, new: &'a ManagedModel) -> ModelDifference<'a> {
        let (gone, come) = differing(&old.devices, &new.devices, Arc::ptr_eq);
        let mut devices: BTreeSet<&str> = gone.iter().chain(come).map(|one| &*one.name).collect();
        let limits = |of: &'a ManagedModel, other: &ManagedModel| {
            let all =
                of.limits.iter().filter(|(name, limits)| other.limits.get(*name) != Some(limits));
            all.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
        };
        devices.extend(limits(old, new).into_iter().chain(limits(new, old)));
        let mut namespaces = BTreeSet::new();
        let by_nqn = |model: &'a ManagedModel| -> BTreeMap<&'a str, &'a [SavedNamespace]> {
            model.served().map(|one| (one.nqn.as_str(), &one.namespaces[..])).collect()
        };
        let (were, are) = (by_nqn(old), by_nqn(new));
        let nqns: BTreeSet<&str> = were.keys().chain(are.keys()).copied().collect();
        for nqn in nqns {
            let of = |all: &BTreeMap<&str, &'a [SavedNamespace]>| all.get(nqn).copied();
            let (was, is) = (of(&were).unwrap_or_default(), of(&are).unwrap_or_default());
            let (gone, come) = differing(was, is, PartialEq::eq);
            namespaces.extend(gone.iter().chain(come).map(|one| (nqn, one.nsid)));
        }
        ModelDifference { devices, namespaces }
    }

    fn has(&self, nqn: &str, one: &SavedNamespace) -> bool {
        !self.namespaces.is_empty() && self.namespaces.contains(&(nqn, one.nsid))
            || !self.devices.is_empty() && self.devices.contains(one.device.as_str())
    }
}

impl ManagedModel {
    /// Returns the subsystems that the engine exports for this model and for its changed copy `next`, with those
    /// namespaces only that may differ.
    #[must_use]
    pub fn differing_exports(&self, next: &ManagedModel) -> (Vec<Subsystem>, Vec<Subsystem>) {
        let changed = ModelDifference::between(self, next);
        let is_few = changed.namespaces.len() + changed.devices.len() <= SEARCHED_MAX;
        let of = |model: &ManagedModel| -> Vec<Subsystem> {
            let by_name = if is_few { None } else { Some(model.devices_by_name()) };
            let find = |name: &str| match &by_name {
                Some(by_name) => by_name.get(name).copied(),
                None => model.device(name),
            };
            let subsystems = model.served();
            subsystems.map(|one| one.export(model, find, |n| changed.has(&one.nqn, n))).collect()
        };
        (of(self), of(next))
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{device, namespace};
    use super::super::{RateLimitsSpec, SavedSubsystem};
    use super::*;
    use roadtrain_target_engine::Export;
    use roadtrain_target_proto::TargetConfig;

    fn model() -> ManagedModel {
        let of = |nqn: &str, from: u32| SavedSubsystem {
            nqn: nqn.into(),
            namespaces: (1..=20).map(|n| namespace(n, &format!("d{}", from + n))).collect(),
            max_namespaces: 99,
            ..SavedSubsystem::default()
        };
        ManagedModel {
            devices: (1..=45).map(|n| device(&format!("d{n}"))).collect(),
            subsystems: vec![of("nqn.2026-11.test:a", 0), of("nqn.2026-11.test:b", 20)],
            ..ManagedModel::default()
        }
    }

    /// The differing namespaces lead to the same operations as all namespaces do.
    #[test]
    fn the_difference_says_as_much_as_the_whole() {
        let whole = |model: &ManagedModel| TargetConfig::<Export> {
            subsystems: model.exports(),
            ..TargetConfig::default()
        };
        type ModelChange = (&'static str, usize, fn(&mut ManagedModel));
        let changes: &[ModelChange] = &[
            ("nothing", 0, |_| ()),
            ("a new device", 0, |model| model.devices.push(device("new"))),
            ("a new namespace", 1, |model| {
                model.subsystems[0].namespaces.push(namespace(21, "d41"));
            }),
            ("a namespace less", 1, |model| drop(model.subsystems[1].namespaces.remove(3))),
            ("another device", 1, |model| model.devices[4] = device("d5")),
            ("a device less", 1, |model| drop(model.remove_device("d30"))),
            ("a limit", 1, |model| {
                let limits = RateLimitsSpec { iops: 9, ..RateLimitsSpec::default() };
                model.limits.insert("d7".into(), limits);
            }),
            ("two of them", 2, |model| {
                model.subsystems[0].namespaces[0].uuid = Some("1".repeat(32));
                model.subsystems[0].namespaces[19].uuid = Some("2".repeat(32));
            }),
            ("a subsystem less", 1, |model| drop(model.subsystems.remove(0))),
            ("a shadowed subsystem", 1, |model| {
                model.shadowed.insert("nqn.2026-11.test:b".into());
            }),
            ("a new subsystem", 1, |model| {
                let new = SavedSubsystem {
                    nqn: "nqn.2026-11.test:c".into(),
                    namespaces: vec![namespace(1, "d44")],
                    ..SavedSubsystem::default()
                };
                model.subsystems.push(new);
            }),
            ("all", 20, |model| {
                model.devices.iter_mut().take(20).for_each(|one| {
                    *one = device(&one.name);
                })
            }),
        ];
        for (what, count, change) in changes {
            let old = model();
            let mut next = old.clone();
            change(&mut next);
            let (before, after) = old.differing_exports(&next);
            let of = |subsystems| TargetConfig::<Export> { subsystems, ..TargetConfig::default() };
            let operations = of(before).operations_to(&of(after));
            assert_eq!(operations, whole(&old).operations_to(&whole(&next)), "{what}");
            assert_eq!(operations.len(), *count, "{what}");
        }
    }
}

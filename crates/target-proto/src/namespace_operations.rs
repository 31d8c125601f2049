//! Changes of a few namespaces in a configuration of thousands. Only the changed ones are checked and copied: the others
//! are valid already.

use super::config::{
    NamespaceDescription, SubsystemConfig, TARGET_NAMESPACES_MAX, TargetConfig, too_many_namespaces,
};
use super::config_error::{ConfigError, ConfigObject};
use super::operations::ConfigOperation;
use std::collections::{BTreeMap, BTreeSet};

/// Most namespaces that are changed one by one. The cost of each grows with the number of all namespaces, so more are
/// changed together with a check of the whole configuration.
const CHANGED_ALONE_MAX: usize = 16;

/// Namespaces by NQN and NSID.
pub type NamespaceKeys = BTreeSet<(String, u32)>;

/// Returns the namespaces that `operations` change; `None` if they change anything else, or many namespaces.
#[must_use]
pub fn changed_namespaces<N>(operations: &[ConfigOperation<N>]) -> Option<NamespaceKeys>
where
    N: NamespaceDescription,
{
    let key = |operation: &ConfigOperation<N>| match operation {
        ConfigOperation::AddNamespace { nqn, namespace }
        | ConfigOperation::ReplaceNamespace { nqn, namespace } => {
            Some((nqn.clone(), namespace.nsid()))
        }
        ConfigOperation::RemoveNamespace { nqn, nsid }
        | ConfigOperation::ResizeNamespace { nqn, nsid, .. }
        | ConfigOperation::LimitNamespace { nqn, nsid, .. }
        | ConfigOperation::ViewNamespace { nqn, nsid, .. } => Some((nqn.clone(), *nsid)),
        _ => None,
    };
    let is_few = (1..=CHANGED_ALONE_MAX).contains(&operations.len());
    is_few.then(|| operations.iter().map(key).collect())?
}

impl<N: NamespaceDescription> SubsystemConfig<N> {
    /// Returns the subsystem with other namespaces.
    #[must_use]
    pub fn with_namespaces<M>(&self, namespaces: Vec<M>) -> SubsystemConfig<M> {
        SubsystemConfig {
            nqn: self.nqn.clone(),
            serial: self.serial.clone(),
            model: self.model.clone(),
            allowed_hosts: self.allowed_hosts.clone(),
            host_rates: self.host_rates.clone(),
            listeners: self.listeners.clone(),
            ana_groups: self.ana_groups.clone(),
            cntlids: self.cntlids.clone(),
            dmrsl: self.dmrsl,
            wzsl: self.wzsl,
            management: self.management.clone(),
            namespaces,
        }
    }
}

impl<N: NamespaceDescription> TargetConfig<N> {
    /// Returns the namespaces `keys`, in their subsystems, without anything else.
    #[must_use]
    pub fn part(&self, keys: &NamespaceKeys) -> TargetConfig<N> {
        let nqns: BTreeSet<&str> = keys.iter().map(|(nqn, _)| nqn.as_str()).collect();
        let of = |nqn: &str, subsystem: &SubsystemConfig<N>| {
            let mut nsids = BTreeSet::new();
            nsids.extend(keys.iter().filter(|(other, _)| other == nqn).map(|(_, nsid)| *nsid));
            let all = subsystem.namespaces.iter();
            let named = all.filter(|one| nsids.contains(&one.nsid())).cloned().collect();
            // States of groups are of listeners, which are not among it.
            let ana_groups = BTreeMap::new();
            SubsystemConfig { ana_groups, ..subsystem.with_namespaces(named) }
        };
        let subsystems = nqns.into_iter().filter_map(|nqn| {
            let subsystem = self.subsystems.iter().find(|one| one.nqn == nqn)?;
            Some(of(nqn, subsystem))
        });
        let (subsystems, limits) = (subsystems.collect(), self.limits);
        TargetConfig { subsystems, limits, ..TargetConfig::default() }
    }

    /// Applies `operations` as [`TargetConfig::with`] does, in place.
    ///
    /// # Errors
    /// The first error; nothing has changed then.
    pub fn change(&mut self, operations: &[ConfigOperation<N>]) -> Result<(), ConfigError> {
        let Some(keys) = changed_namespaces(operations) else {
            *self = self.with(operations)?;
            return Ok(());
        };
        let part = self.part(&keys).with(operations)?;
        self.check_beside(&part, &keys)?;
        self.apply_checked(operations)
    }

    /// Applies operations that were checked before, in place.
    ///
    /// # Errors
    /// The first error: the operations were not checked, and those before it stay.
    pub fn apply_checked(&mut self, operations: &[ConfigOperation<N>]) -> Result<(), ConfigError> {
        operations.iter().try_for_each(|operation| self.apply(operation))
    }

    /// Checks that `part`, which replaces the namespaces `keys`, fits to the other namespaces.
    ///
    /// # Errors
    /// A namespace with the identity of another one, or too many namespaces.
    pub fn check_beside(
        &self,
        part: &TargetConfig<N>,
        keys: &NamespaceKeys,
    ) -> Result<(), ConfigError> {
        let count = |of: &TargetConfig<N>| -> usize {
            of.subsystems.iter().map(|one| one.namespaces.len()).sum()
        };
        let all = (count(self) + count(part)).saturating_sub(count(&self.part(keys)));
        if all > TARGET_NAMESPACES_MAX {
            return Err(too_many_namespaces(all));
        }
        let halves = |one: &N| one.id().map(|id| [id.uuid, id.nguid]);
        let is_same = |one: &Option<[[u8; 16]; 2]>, other: &Option<[[u8; 16]; 2]>| {
            let (Some(one), Some(other)) = (one, other) else { return false };
            one.iter().any(|half| other.contains(half))
        };
        let of = |config: &'_ TargetConfig<N>| {
            let each = config.subsystems.iter();
            let named = each.flat_map(|one| one.namespaces.iter().map(|n| (one.nqn.as_str(), n)));
            named.map(|(nqn, n)| (nqn.to_owned(), n.nsid(), halves(n))).collect::<Vec<_>>()
        };
        let new = of(part);
        for subsystem in &self.subsystems {
            for namespace in &subsystem.namespaces {
                let id = halves(namespace);
                let Some((nqn, nsid, _)) = new.iter().find(|(.., one)| is_same(one, &id)) else {
                    continue;
                };
                let other = (subsystem.nqn.clone(), namespace.nsid());
                if !keys.contains(&other) {
                    return Err(ConfigError::SameIdentity {
                        place: ConfigObject::namespace(nqn, *nsid),
                        other: ConfigObject::namespace(&other.0, other.1),
                    });
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::NamespaceConfig;
    use super::super::identity::NamespaceId;
    use super::*;

    const NQN: &str = "nqn.2024-01.test:disk";
    const OTHER: &str = "nqn.2024-01.test:other";

    fn namespace(nsid: u32, id: u128) -> NamespaceConfig {
        let id = (id > 0).then(|| NamespaceId::choose(Some(id.to_be_bytes()), None, 0));
        NamespaceConfig { id, ..NamespaceConfig::new(nsid, 8, 9) }
    }

    fn config() -> TargetConfig {
        let of = |nqn: &str, ids: &[(u32, u128)]| SubsystemConfig {
            namespaces: ids.iter().map(|(nsid, id)| namespace(*nsid, *id)).collect(),
            ..SubsystemConfig::new(nqn)
        };
        let subsystems = vec![of(NQN, &[(1, 1), (2, 2), (3, 0)]), of(OTHER, &[(1, 11)])];
        TargetConfig { subsystems, ..TargetConfig::default() }
    }

    fn add(nqn: &str, namespace: NamespaceConfig) -> ConfigOperation {
        ConfigOperation::AddNamespace { nqn: nqn.into(), namespace }
    }

    fn replace(nqn: &str, namespace: NamespaceConfig) -> ConfigOperation {
        ConfigOperation::ReplaceNamespace { nqn: nqn.into(), namespace }
    }

    fn remove(nsid: u32) -> ConfigOperation {
        ConfigOperation::RemoveNamespace { nqn: NQN.into(), nsid }
    }

    /// A change of single namespaces has the same outcome as a check of the whole configuration.
    #[test]
    fn a_small_change_is_accepted_and_refused_as_a_whole_one() {
        let limit = ConfigOperation::LimitNamespace {
            nqn: NQN.into(),
            nsid: 2,
            rates: super::super::rate::RateSettings::UNLIMITED,
        };
        let resize =
            |nsid, bytes| ConfigOperation::ResizeNamespace { nqn: NQN.into(), nsid, bytes };
        for operations in [
            vec![add(NQN, namespace(4, 4))],
            vec![add(NQN, namespace(1, 4))],
            vec![add(NQN, namespace(4, 2))],
            vec![add(NQN, namespace(4, 11))],
            vec![add(OTHER, namespace(4, 3)), add(NQN, namespace(4, 3))],
            vec![add("nqn.2024-01.test:none", namespace(1, 9))],
            vec![add(NQN, namespace(0, 9))],
            vec![add(NQN, namespace(16_385, 9))],
            vec![remove(1), remove(1)],
            vec![remove(1), add(OTHER, namespace(2, 1))],
            vec![replace(NQN, namespace(1, 2)), replace(NQN, namespace(2, 1))],
            vec![replace(NQN, namespace(1, 2))],
            vec![replace(NQN, namespace(9, 9))],
            vec![resize(1, 512), limit.clone(), remove(3)],
            vec![resize(1, 511)],
            vec![resize(9, 512)],
        ] {
            let config = config();
            let keys = changed_namespaces(&operations).unwrap();
            let whole = config.with(&operations);
            let part = config.part(&keys).with(&operations).and_then(|part| {
                config.check_beside(&part, &keys)?;
                Ok(part)
            });
            match (whole, part) {
                (Ok(whole), Ok(part)) => assert_eq!(whole.part(&keys), part, "{operations:?}"),
                (Err(whole), Err(part)) => assert_eq!(
                    std::mem::discriminant(&whole),
                    std::mem::discriminant(&part),
                    "{whole} or {part}"
                ),
                (whole, part) => panic!("{operations:?}: {whole:?}, alone {part:?}"),
            }
            let mut in_place = config.clone();
            let outcome = in_place.change(&operations);
            assert_eq!(outcome.is_ok(), config.with(&operations).is_ok(), "{operations:?}");
            assert_eq!(in_place, config.with(&operations).unwrap_or(config), "{operations:?}");
        }
    }

    #[test]
    fn changes_of_anything_else_and_of_many_are_not_small() {
        let any = ConfigOperation::AllowAnyHost { nqn: NQN.into(), allow: true };
        let is_small = |operations: &[ConfigOperation]| changed_namespaces(operations).is_some();
        assert!(is_small(&[remove(1), remove(2)]));
        assert!(!is_small(&[remove(1), any]) && !is_small(&[]));
        let many: Vec<_> = (1..=17).map(remove).collect();
        assert!(is_small(&many[..16]) && !is_small(&many));
    }

    #[test]
    fn a_target_has_a_limit_over_all_subsystems() {
        let of = |number: u32, count: u32| SubsystemConfig {
            namespaces: (1..=count).map(|nsid| namespace(nsid, 0)).collect(),
            ..SubsystemConfig::new(format!("nqn.2024-01.test:{number}"))
        };
        let mut subsystems: Vec<_> = (1..=4).map(|number| of(number, 16_384)).collect();
        subsystems.push(of(5, 0));
        let mut full = TargetConfig { subsystems, ..TargetConfig::default() };
        full.check().unwrap();
        let nqn = "nqn.2024-01.test:5";
        let error = full.change(&[add(nqn, namespace(1, 0))]).unwrap_err().to_string();
        assert!(error.contains("65536"), "{error}");
        assert_eq!(full.with(&[add(nqn, namespace(1, 0))]).unwrap_err().to_string(), error);
        let one = ConfigOperation::RemoveNamespace { nqn: "nqn.2024-01.test:1".into(), nsid: 7 };
        full.change(&[one, add(nqn, namespace(1, 0))]).unwrap();
    }
}

//! Changes as values: differences between configurations, and lists that fail without effect.

use super::script::{HOST, Script, local};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use roadtrain_target_proto::{
    AnaListener, AnaState, ConfigError, ConfigOperation, NamespaceConfig, NamespaceId,
    NamespaceManagement, SubsystemConfig, TargetConfig, TargetListener, TlsUse,
};
use std::collections::BTreeSet;
use std::net::SocketAddr;

const NQNS: [&str; 3] = ["nqn.x:a", "nqn.x:b", "nqn.x:c"];

fn namespace(nsid: u32) -> impl Strategy<Value = NamespaceConfig> {
    let sizes = (1u64..4, prop::sample::select(vec![9u8, 12]));
    // Few stores, so that one often has another number, or appears twice.
    (sizes, any::<bool>(), option::of(0u128..6)).prop_map(
        move |((blocks, shift), read_only, store)| {
            let id = store.map(NamespaceId::of_store);
            NamespaceConfig { read_only, id, ..NamespaceConfig::new(nsid, blocks * 8, shift) }
        },
    )
}

/// Returns a listener at an address of its own.
fn listener(portid: u16) -> TargetListener {
    let address = SocketAddr::new(local().ip(), 4420 + portid);
    TargetListener { portid, address, tls: TlsUse::Off, named_only: false }
}

fn management() -> impl Strategy<Value = NamespaceManagement> {
    let administrators = btree_set(prop::sample::select(vec![HOST, "nqn.x:h"]), 1..3);
    (administrators, prop::sample::select(vec![9u8, 12])).prop_map(|(hosts, lba_shift)| {
        let administrators = hosts.into_iter().map(str::to_owned).collect();
        NamespaceManagement { administrators, lba_shift }
    })
}

fn subsystem(nqn: &'static str) -> impl Strategy<Value = SubsystemConfig> {
    let namespaces = vec((1u32..5).prop_flat_map(namespace), 0..4);
    let hosts = option::of(btree_set(prop::sample::select(vec![HOST, "nqn.x:h", "nqn.x:i"]), 0..3));
    let own = (option::of("[a-c]{1,2}"), option::of(management()));
    (namespaces, hosts, own).prop_map(move |(namespaces, hosts, (serial, management))| {
        let mut subsystem = SubsystemConfig::new(nqn);
        let mut nsids = BTreeSet::new();
        subsystem.namespaces =
            namespaces.into_iter().filter(|namespace| nsids.insert(namespace.nsid)).collect();
        subsystem.allowed_hosts = hosts.map(|hosts| hosts.into_iter().map(str::to_owned).collect());
        (subsystem.serial, subsystem.management) = (serial, management);
        subsystem
    })
}

/// Returns a valid configuration.
fn config() -> impl Strategy<Value = TargetConfig> {
    let subsystems = btree_map(0..NQNS.len(), Just(()), 0..4)
        .prop_flat_map(|which| which.into_keys().map(|n| subsystem(NQNS[n])).collect::<Vec<_>>());
    let ports = btree_map(1u16..4, 0usize..3, 0..3);
    let config = (subsystems.prop_shuffle(), ports).prop_map(|(subsystems, ports)| {
        let uses = [TlsUse::Off, TlsUse::Allowed, TlsUse::Required];
        let with_tls = |(at, tls)| TargetListener { tls: uses[tls], ..listener(at) };
        let ana = ports.iter().filter(|(at, _)| *at % 2 == 1);
        let ana =
            ana.map(|(at, tls)| (AnaListener::Tcp(listener(*at).address), AnaState::ALL[*tls]));
        let (ana, listeners) = (ana.collect(), ports.into_iter().map(with_tls).collect());
        TargetConfig { subsystems, listeners, ana, ..TargetConfig::default() }
    });
    config.prop_filter("a store that is given twice", |config| config.check().is_ok())
}

/// Returns the configuration in a canonical order.
fn sorted(mut config: TargetConfig) -> TargetConfig {
    config.subsystems.sort_by(|a, b| a.nqn.cmp(&b.nqn));
    for subsystem in &mut config.subsystems {
        subsystem.namespaces.sort_by_key(|namespace| namespace.nsid);
    }
    config.listeners.sort_by_key(|listener| listener.portid);
    config
}

/// Returns an operation that often, but not always, succeeds.
fn operation() -> impl Strategy<Value = ConfigOperation> {
    let nqn = || prop::sample::select(NQNS.to_vec()).prop_map(str::to_owned);
    let host = || prop::sample::select(vec![HOST, "nqn.x:h", "none"]).prop_map(str::to_owned);
    let added = (0..NQNS.len()).prop_flat_map(|n| subsystem(NQNS[n]));
    let put = || (nqn(), (0u32..5).prop_flat_map(namespace));
    let listener = (1u16..4).prop_map(listener);
    prop_oneof![
        added.prop_map(ConfigOperation::AddSubsystem),
        nqn().prop_map(|nqn| ConfigOperation::RemoveSubsystem { nqn }),
        put().prop_map(|(nqn, namespace)| ConfigOperation::AddNamespace { nqn, namespace }),
        put().prop_map(|(nqn, namespace)| ConfigOperation::ReplaceNamespace { nqn, namespace }),
        (nqn(), 0u32..5).prop_map(|(nqn, nsid)| ConfigOperation::RemoveNamespace { nqn, nsid }),
        (nqn(), 1u32..5, 0u64..9).prop_map(|(nqn, nsid, n)| ConfigOperation::ResizeNamespace {
            nqn,
            nsid,
            bytes: n * 2048
        }),
        (nqn(), option::of(management())).prop_map(|(nqn, management)| {
            ConfigOperation::SetNamespaceManagement { nqn, management }
        }),
        (nqn(), any::<bool>())
            .prop_map(|(nqn, allow)| ConfigOperation::AllowAnyHost { nqn, allow }),
        (nqn(), host()).prop_map(|(nqn, host)| ConfigOperation::AllowHost { nqn, host }),
        (nqn(), host()).prop_map(|(nqn, host)| ConfigOperation::DisallowHost { nqn, host }),
        listener.clone().prop_map(ConfigOperation::Listen),
        listener.clone().prop_map(ConfigOperation::Unlisten),
        (listener, option::of(0usize..5)).prop_map(|(at, state)| ConfigOperation::SetAna {
            listener: AnaListener::Tcp(at.address),
            state: state.map(|state| AnaState::ALL[state]),
        }),
    ]
}

/// Returns the namespaces as hosts see them.
fn seen(script: &Script) -> Vec<Option<Vec<(u32, u64)>>> {
    let table = |nqn: &&str| {
        let table = script.target.namespaces(nqn)?;
        Some(table.iter().map(|(nsid, geometry)| (nsid, geometry.blocks)).collect())
    };
    NQNS.iter().map(table).collect()
}

/// True if both errors say the same. Either of several namespaces with one identity may be named.
fn is_alike(one: &ConfigError, other: &ConfigError) -> bool {
    let is_identity = |error: &ConfigError| matches!(error, ConfigError::SameIdentity { .. });
    one == other || (is_identity(one) && is_identity(other))
}

proptest! {
    #[test]
    fn the_difference_makes_one_configuration_another(from in config(), to in config()) {
        let operations = from.operations_to(&to);
        let made = from.with(&operations).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(sorted(made), sorted(to.clone()));
        prop_assert_eq!(to.operations_to(&to), vec![]);

        let mut script = Script::with(&from);
        script.target.apply(&operations).unwrap();
        prop_assert_eq!(seen(&script), seen(&Script::with(&to)));
    }

    /// A running target gets the configuration after the operations, or does not change.
    #[test]
    fn all_or_nothing(from in config(), operations in vec(operation(), 1..6)) {
        let mut script = Script::with(&from);
        match from.with(&operations) {
            Ok(next) => {
                prop_assert_eq!(next.check(), Ok(()));
                script.target.apply(&operations).unwrap();
                prop_assert_eq!(&**script.target.config(), &next);
                prop_assert_eq!(seen(&script), seen(&Script::with(&next)));
            }
            Err(error) => {
                let before = seen(&script);
                let refused = script.target.apply(&operations).unwrap_err();
                prop_assert!(is_alike(&refused, &error), "{refused} for {error}");
                prop_assert_eq!(&**script.target.config(), &from);
                prop_assert_eq!((seen(&script), script.events()), (before, vec![]));
                let (place, text) = (error.place().to_string(), error.to_string());
                prop_assert!(text.contains(&place), "{} does not say where: {}", text, place);
            }
        }
    }
}

/// A host that is named in the list that excludes others keeps its controller, whatever the order.
#[test]
fn hosts_that_stay_are_not_sent_away_in_between() {
    use super::script::NQN;
    let mut script = Script::new();
    let cntlid = script.controller(NQN);
    let nqn = || NQN.to_owned();
    let host = HOST.to_owned();
    let operations = [
        ConfigOperation::AllowAnyHost { nqn: nqn(), allow: false },
        ConfigOperation::AllowHost { nqn: nqn(), host },
    ];
    script.target.apply(&operations).unwrap();
    assert_eq!(script.events(), []);
    script.target.disconnect(cntlid, 0);
}

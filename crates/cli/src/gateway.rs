//! A group of gateways: its configuration in a Ceph cluster, which `roadtrain ctl --group` changes.
//!
//! ```text
//! config   the tables that all gateways serve, and their check
//! changes  additions and removals
//! object   their storage: an object in a pool, which also has the gateways' heartbeats
//! show     display of a group's state
//! ```

mod changes;
mod config;
mod object;
mod show;

pub(crate) use config::GroupConfig;
pub(crate) use object::{GatewayGroup, GatewayStatus, GroupHeartbeats, GroupState};

pub(crate) use changes::{GroupAddition, GroupRemoval, HostKeyFile};

use crate::args::{CephArgs, GlobalArgs};
use crate::failure::{CommandFailure, CommandResult};
use crate::namespace::NamespaceSettings;
use crate::output;
use changes::{AddedKeys, ChangeDescriptions};
use roadtrain_proto::digest::digest;
use roadtrain_store::{ObjectError, RbdImage, StoreKind, StoreSpec};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::warn;

/// Time limit for gateways to apply a change, before the command reports a failure.
const APPLY_WAIT: Duration = Duration::from_secs(30);
/// Interval between checks whether they have applied it.
const APPLY_POLL: Duration = Duration::from_millis(200);
/// Attempts to make a change while others make changes at the same time.
const ATTEMPTS: u32 = 20;

/// A group, with the access to its cluster.
#[derive(Clone, Debug)]
pub(crate) struct GroupAccess {
    pub(crate) group: String,
    pub(crate) pool: String,
    pub(crate) ceph: CephArgs,
}

impl GroupAccess {
    fn open(&self) -> CommandResult<GatewayGroup> {
        GatewayGroup::open(&self.pool, &self.group, &self.ceph)
    }
}

/// A change of a group.
#[derive(Clone, Debug)]
pub(crate) enum GroupChange {
    /// Adds objects, or changes settings.
    Add(GroupAddition),
    /// Removes objects.
    Remove(GroupRemoval),
}

/// Makes a change, waits until the gateways have applied it, and shows the result.
pub(crate) fn change_group(
    place: &GroupAccess,
    change: GroupChange,
    global: &GlobalArgs,
) -> CommandResult {
    match change {
        GroupChange::Add(addition) => add(place, addition, global),
        GroupChange::Remove(removal) => remove(place, &removal, global),
    }
}

/// Shows the configuration, the gateways, and the namespaces that they serve.
pub(crate) fn show(place: &GroupAccess, global: &GlobalArgs) -> CommandResult {
    show::run(place, global)
}

fn add(place: &GroupAccess, mut args: GroupAddition, global: &GlobalArgs) -> CommandResult {
    let keys = AddedKeys::read(&args)?;
    let namespaces = args.namespaces.clone();
    // The image is created by this command, not by a gateway.
    args.namespaces.iter_mut().for_each(|namespace| namespace.create = None);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let serial = digest(&[place.group.as_bytes(), &now.as_nanos().to_le_bytes()]);
    let serial = format!("{serial:032x}")[..20].to_owned();
    let group = place.open()?;
    let changed = change(
        &group,
        |config| {
            let changes =
                changes::add(config, &args, &keys, &serial).map_err(CommandFailure::usage)?;
            // An invalid change creates no image.
            config.check()?;
            Ok(changes)
        },
        || images(place, &namespaces),
    )?;
    report(&group, changed, global)
}

/// Creates the images that have `create`, and checks that all exist.
fn images(args: &GroupAccess, namespaces: &[NamespaceSettings]) -> CommandResult {
    for namespace in namespaces {
        let numbered = NamespaceSettings { nsid: Some(1), ..namespace.clone() };
        let spec = numbered.export().map_err(CommandFailure::usage)?.blocks;
        let roadtrain_target_engine::ExportBlocks::Spec(StoreSpec {
            kind: StoreKind::Rbd(image),
            lba_bytes,
            ..
        }) = spec
        else {
            continue;
        };
        let how = config::place(&args.pool, &args.ceph);
        // The passphrase is at the gateways: this command only checks that the image exists.
        let (conf, id, keyring) = (how.conf, how.id, how.keyring);
        let image = RbdImage { conf, id, keyring, passphrase: None, ..image };
        let spec = StoreSpec { kind: StoreKind::Rbd(image), lba_bytes, read_only: true };
        roadtrain_store::open(&spec).map_err(CommandFailure::failed)?;
    }
    Ok(())
}

fn remove(place: &GroupAccess, args: &GroupRemoval, global: &GlobalArgs) -> CommandResult {
    let group = place.open()?;
    let mut gone = remove_gateways(&group, &args.gateways)?;
    if args.nqn.is_none() && args.hosts.is_empty() {
        let version = group.read_heartbeats()?.version;
        return report(&group, ChangedConfig { version, changes: gone }, global);
    }
    let mut changed = change(
        &group,
        |config| {
            let changes = changes::remove(config, args).map_err(CommandFailure::usage)?;
            config.check()?;
            Ok(changes)
        },
        || Ok(()),
    )?;
    gone.append(&mut changed.changes);
    report(&group, ChangedConfig { changes: gone, ..changed }, global)
}

/// Removes gateways that have stopped.
fn remove_gateways(group: &GatewayGroup, gateways: &[String]) -> CommandResult<ChangeDescriptions> {
    if gateways.is_empty() {
        return Ok(ChangeDescriptions::new());
    }
    let state = group.read()?.unwrap_or_default();
    let living = group.live_gateways()?;
    for gateway in gateways {
        let is_known = state.gateways.contains_key(gateway)
            || state.slots.values().any(|owner| owner == gateway);
        let wrong = match is_known {
            false => "there is no such gateway",
            true if living.contains(gateway) => "it runs: stop it first",
            true => continue,
        };
        return Err(CommandFailure::usage(format!("gateway {gateway}: {wrong}")));
    }
    gateways.iter().try_for_each(|gateway| group.remove_gateway(&state, gateway))?;
    Ok(gateways.iter().map(|gateway| format!("gateway {gateway}")).collect())
}

/// A change that was made, with the version of the configuration.
struct ChangedConfig {
    version: u64,
    changes: ChangeDescriptions,
}

/// Changes the configuration as a whole or not at all, on top of concurrent changes. `before` runs once, before it is
/// written.
fn change(
    group: &GatewayGroup,
    change: impl Fn(&mut GroupConfig) -> CommandResult<ChangeDescriptions>,
    before: impl FnOnce() -> CommandResult,
) -> CommandResult<ChangedConfig> {
    let mut before = Some(before);
    for _ in 0..ATTEMPTS {
        let GroupState { version, mut config, .. } = group.read()?.unwrap_or_default();
        let old = config.clone();
        let changes = change(&mut config)?;
        if config == old {
            return Ok(ChangedConfig { version, changes: ChangeDescriptions::new() });
        }
        before.take().map_or(Ok(()), |before| before())?;
        if group.write(version, &config)? {
            return Ok(ChangedConfig { version: version + 1, changes });
        }
    }
    Err(CommandFailure::failed(format!(
        "gateway group {}: it was changed by others at each attempt: try again",
        group.name()
    )))
}

/// Result of a change.
#[derive(Serialize)]
struct GroupChangeReport {
    config_version: u64,
    changes: Vec<GroupChanged>,
    /// Gateways that serve the version.
    applied: BTreeSet<String>,
    /// Gateways that cannot serve it, with the reason.
    refusals: BTreeMap<String, String>,
    /// Gateways that have not replied in time.
    silent: BTreeSet<String>,
}

/// A change of a group.
#[derive(Serialize)]
struct GroupChanged {
    /// Description.
    what: String,
}

/// Returns no gateways, as the cluster does not list them.
fn unknown(error: ObjectError) -> Vec<String> {
    warn!(
        "changed, but the gateways cannot be listed: see `roadtrain ctl --group` with `gateway list`: {error}"
    );
    Vec::new()
}

/// Reports no gateways when their state cannot be read; it is read again later.
fn unread(failure: CommandFailure) -> Option<GroupState> {
    warn!("changed, but the state of its gateways cannot be read: {}", failure.message);
    None
}

/// Waits for the gateways, and reports the result.
fn report(group: &GatewayGroup, changed: ChangedConfig, global: &GlobalArgs) -> CommandResult {
    let ChangedConfig { version, changes } = changed;
    let mut report = GroupChangeReport {
        config_version: version,
        changes: changes.into_iter().map(|what| GroupChanged { what }).collect(),
        applied: BTreeSet::new(),
        refusals: BTreeMap::new(),
        // The change is made: a later failure does not undo it.
        silent: group.live_gateways().unwrap_or_else(unknown).into_iter().collect(),
    };
    let begun = Instant::now();
    while !report.silent.is_empty() {
        let state = group.read().unwrap_or_else(unread).unwrap_or_default();
        for gateway in report.silent.clone() {
            let Some(status) = state.gateways.get(&gateway) else { continue };
            match &status.refused {
                Some((of, why)) if *of >= version => {
                    report.refusals.insert(gateway.clone(), why.clone());
                }
                _ if status.version >= version => {
                    report.applied.insert(gateway.clone());
                }
                _ => continue,
            }
            report.silent.remove(&gateway);
        }
        if report.silent.is_empty() || begun.elapsed() >= APPLY_WAIT {
            break;
        }
        thread::sleep(APPLY_POLL);
    }
    say(&report, global)?;
    match report.refusals.is_empty() && report.silent.is_empty() {
        true => Ok(()),
        false => Err(CommandFailure::failed(format!(
            "gateway group {}: version {version} is not served by all: see above, and the logs of these gateways",
            group.name()
        ))),
    }
}

fn say(report: &GroupChangeReport, global: &GlobalArgs) -> CommandResult {
    if global.json {
        return output::json(report);
    }
    let mut lines: Vec<String> = report.changes.iter().map(|one| one.what.clone()).collect();
    if lines.is_empty() {
        lines.push("nothing has changed".into());
    }
    let names = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
    let version = report.config_version;
    match report.applied.is_empty() {
        true if report.refusals.is_empty() && report.silent.is_empty() => {
            lines.push(format!("version {version}; no gateway is there to serve it"));
        }
        true => {}
        false => lines.push(format!("version {version} is served by {}", names(&report.applied))),
    }
    lines.extend(
        report
            .refusals
            .iter()
            .map(|(gateway, why)| format!("{gateway} keeps its former version: {why}")),
    );
    if !report.silent.is_empty() {
        lines.push(format!("no reply from {}", names(&report.silent)));
    }
    output::line(&lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::object::GroupObject;
    use super::*;
    use crate::args::CommandLine;
    use clap::Parser;
    use roadtrain_store::{NotifyHandler, NotifyReplies, ObjectMap, ObjectMapChange, ObjectWatch};
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    type Failing = fn(&mut FailingCluster) -> Result<NotifyReplies, ObjectError>;

    /// A cluster that fails as a test requires, once a change was made.
    #[derive(Debug)]
    struct FailingCluster {
        map: ObjectMap,
        is_changed: bool,
        fails_to_read: bool,
        notify: Failing,
    }

    #[derive(Clone, Debug)]
    struct Object(Arc<Mutex<FailingCluster>>);

    fn failed(problem: &str) -> ObjectError {
        ObjectError::new("disks/roadtrain.gateways.gates", problem)
    }

    impl GroupObject for Object {
        fn read(&self, prefix: &str) -> Result<ObjectMap, ObjectError> {
            let mut cluster = self.0.lock().unwrap();
            if cluster.is_changed && std::mem::take(&mut cluster.fails_to_read) {
                return Err(failed("not read"));
            }
            let named = cluster.map.iter().filter(|(name, _)| name.starts_with(prefix));
            Ok(named.map(|(name, value)| (name.clone(), value.clone())).collect())
        }

        fn change(&self, change: &ObjectMapChange) -> Result<bool, ObjectError> {
            let mut cluster = self.0.lock().unwrap();
            cluster.is_changed = true;
            cluster.map.extend(change.set.clone());
            Ok(true)
        }

        fn notify(&self, _: &[u8]) -> Result<NotifyReplies, ObjectError> {
            let mut cluster = self.0.lock().unwrap();
            (cluster.notify)(&mut cluster)
        }

        fn watch(&self, _: Box<NotifyHandler>) -> Result<ObjectWatch, ObjectError> {
            Err(failed("not watched"))
        }
    }

    /// Log lines of a test.
    #[derive(Clone, Default)]
    struct GroupTestLog(Arc<Mutex<Vec<u8>>>);

    impl Write for GroupTestLog {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(text)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Adds a host, with notifications as in `notify`; returns the outcome, the object and the log.
    fn added(fails_to_read: bool, notify: Failing) -> (CommandResult, ObjectMap, String) {
        let cluster =
            FailingCluster { map: ObjectMap::new(), is_changed: false, fails_to_read, notify };
        let object = Object(Arc::new(Mutex::new(cluster)));
        let group = GatewayGroup::new("disks", "gates", Box::new(object.clone()));
        let line = "roadtrain ctl --group gates --pool disks gateway list";
        let cli = CommandLine::try_parse_from(line.split(' ')).unwrap();
        let lines = GroupTestLog::default();
        let log = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || log.clone()).finish();
        let outcome = tracing::subscriber::with_default(subscriber, || {
            let add = |config: &mut GroupConfig| {
                config.hosts.push(crate::config::HostSpec {
                    nqn: "nqn.2026-11.test:host".into(),
                    ..crate::config::HostSpec::default()
                });
                Ok(vec!["a host".into()])
            };
            let changed = change(&group, add, || Ok(()))?;
            assert_eq!(changed.version, 1);
            report(&group, changed, &cli.global)
        });
        let map = object.0.lock().unwrap().map.clone();
        let log = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        (outcome, map, log)
    }

    /// A change in the object is no failure, even if its notification fails.
    #[test]
    fn a_change_without_notification_is_made() {
        let made = |(outcome, map, log): (CommandResult, ObjectMap, String)| {
            assert_eq!(outcome, Ok(()));
            assert!(map["configuration"].starts_with(b"[[host]]"), "{map:?}");
            log
        };
        let log = made(added(false, |_| Err(failed("not passed on"))));
        assert!(log.contains("not every gateway was notified") && log.contains("not passed on"));
        let log = made(added(false, |_| Ok(NotifyReplies::default())));
        assert!(
            log.contains("not every gateway was notified") && log.contains("no reply"),
            "{log}"
        );
        let log = made(added(false, |_| {
            Ok(NotifyReplies { is_complete: true, ..NotifyReplies::default() })
        }));
        assert_eq!(log, "", "all is well");
        // A gateway replies, but its state cannot be read at once.
        let log = made(added(true, |cluster| {
            let status =
                serde_json::to_vec(&GatewayStatus { version: 1, ..GatewayStatus::default() })
                    .unwrap();
            cluster.map.insert("gateway/one".into(), status);
            Ok(NotifyReplies { replies: vec![b"one".to_vec()], is_complete: true })
        }));
        assert!(log.contains("cannot be read"), "{log}");
    }
}

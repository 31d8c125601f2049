//! Additions to and removals from a group's configuration.

use super::config::GroupConfig;
use crate::config::{HostSpec, SubsystemSettings, assign_nsids};
use crate::failure::{CommandFailure, CommandResult};
use crate::keys::file;
use crate::namespace::NamespaceSettings;

/// Descriptions of changes.
pub(crate) type ChangeDescriptions = Vec<String>;

/// A host's key in a file.
#[derive(Clone, Debug)]
pub(crate) struct HostKeyFile {
    pub(crate) host: String,
    pub(crate) file: String,
}

/// Additions and settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupAddition {
    /// The subsystem, which is created if it does not exist.
    pub(crate) nqn: Option<String>,
    pub(crate) serial: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) namespaces: Vec<NamespaceSettings>,
    pub(crate) allow_hosts: Vec<String>,
    pub(crate) require_auth: bool,
    pub(crate) require_tls: bool,
    pub(crate) dhchap_key: Vec<HostKeyFile>,
    pub(crate) dhchap_ctrl_key: Vec<HostKeyFile>,
    pub(crate) tls_keys: Vec<HostKeyFile>,
}

/// Removals.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupRemoval {
    /// The subsystem; removed as a whole if no part of it is named.
    pub(crate) nqn: Option<String>,
    pub(crate) nsid: Vec<u32>,
    /// Hosts that may not use the subsystem any more.
    pub(crate) allow_hosts: Vec<String>,
    /// Hosts whose keys are removed, and that no subsystem allows by name any more.
    pub(crate) hosts: Vec<String>,
    /// Gateways that are down and do not come back.
    pub(crate) gateways: Vec<String>,
}

/// A host, and the line in its key file.
type HostKeyLine = (String, String);

/// Keys to add, read from their files.
pub(crate) struct AddedKeys {
    dhchap: Vec<HostKeyLine>,
    dhchap_ctrl: Vec<HostKeyLine>,
    tls: Vec<HostKeyLine>,
}

impl AddedKeys {
    /// Reads the keys.
    ///
    /// # Errors
    /// A file cannot be read, or has no key.
    pub(crate) fn read(args: &GroupAddition) -> CommandResult<AddedKeys> {
        let read = |option: &str, keys: &[HostKeyFile]| {
            let line = |key: &HostKeyFile| {
                let text = file::line(option, &key.file)?;
                Ok::<_, CommandFailure>((key.host.clone(), text.to_string()))
            };
            keys.iter().map(line).collect::<CommandResult<Vec<HostKeyLine>>>()
        };
        Ok(AddedKeys {
            dhchap: read("--dhchap-key", &args.dhchap_key)?,
            dhchap_ctrl: read("--dhchap-ctrl-key", &args.dhchap_ctrl_key)?,
            tls: read("--tls-key", &args.tls_keys)?,
        })
    }
}

/// Adds to `config`. A new subsystem without a serial number gets `serial`.
///
/// # Errors
/// A conflicting namespace.
pub(crate) fn add(
    config: &mut GroupConfig,
    args: &GroupAddition,
    keys: &AddedKeys,
    serial: &str,
) -> Result<ChangeDescriptions, String> {
    let mut changes = ChangeDescriptions::new();
    if let Some(nqn) = &args.nqn {
        let subsystem = subsystem(config, nqn, &mut changes);
        set_numbers(subsystem, args, serial, &mut changes);
        for namespace in &args.namespaces {
            add_namespace(subsystem, namespace.clone(), &mut changes)?;
        }
        for host in &args.allow_hosts {
            if subsystem.allow_hosts.get_or_insert_default().insert(host.clone()) {
                changes.push(format!("subsystem {nqn}: host {host} may use it"));
            }
        }
        for (is_wanted, is_so, what) in [
            (args.require_auth, &mut subsystem.require_auth, "requires authentication"),
            (args.require_tls, &mut subsystem.require_tls, "requires TLS"),
        ] {
            if is_wanted && !std::mem::replace(is_so, true) {
                changes.push(format!("subsystem {nqn}: {what}"));
            }
        }
    }
    for (nqn, key) in &keys.dhchap {
        host(config, nqn).dhchap_key = Some(key.clone());
        changes.push(format!("host {nqn}: key for authentication"));
    }
    for (nqn, key) in &keys.dhchap_ctrl {
        host(config, nqn).dhchap_ctrl_key = Some(key.clone());
        changes.push(format!("host {nqn}: key of the target"));
    }
    for (nqn, key) in &keys.tls {
        config.tls.keys.insert(nqn.clone(), key.clone());
        changes.push(format!("host {nqn}: key for TLS"));
    }
    Ok(changes)
}

fn subsystem<'a>(
    config: &'a mut GroupConfig,
    nqn: &str,
    changes: &mut ChangeDescriptions,
) -> &'a mut SubsystemSettings {
    let known = config.subsystems.iter().position(|subsystem| subsystem.nqn == nqn);
    let at = known.unwrap_or_else(|| {
        changes.push(format!("subsystem {nqn}"));
        config.subsystems.push(SubsystemSettings::new(nqn.to_owned()));
        config.subsystems.len() - 1
    });
    &mut config.subsystems[at]
}

/// Sets serial and model number. All gateways report the same serial number, so it does not depend on the machine.
fn set_numbers(
    subsystem: &mut SubsystemSettings,
    args: &GroupAddition,
    serial: &str,
    changes: &mut ChangeDescriptions,
) {
    let nqn = &subsystem.nqn;
    if args.serial.is_some() && args.serial != subsystem.serial {
        subsystem.serial.clone_from(&args.serial);
        changes.push(format!("subsystem {nqn}: another serial number"));
    }
    if args.model.is_some() && args.model != subsystem.model {
        subsystem.model.clone_from(&args.model);
        changes.push(format!("subsystem {nqn}: another model number"));
    }
    subsystem.serial.get_or_insert_with(|| serial.to_owned());
}

fn add_namespace(
    subsystem: &mut SubsystemSettings,
    namespace: NamespaceSettings,
    changes: &mut ChangeDescriptions,
) -> Result<(), String> {
    let nqn = &subsystem.nqn;
    if let Some(nsid) = namespace.nsid
        && subsystem.namespaces.iter().any(|one| one.nsid == Some(nsid))
    {
        return Err(format!("subsystem {nqn}: namespace {nsid} exists already: remove it first"));
    }
    subsystem.namespaces.push(namespace);
    subsystem.namespaces = assign_nsids(std::mem::take(&mut subsystem.namespaces));
    if let Some(NamespaceSettings { nsid: Some(nsid), image: Some(image), .. }) =
        subsystem.namespaces.last()
    {
        changes.push(format!("subsystem {nqn}: namespace {nsid}: rbd:{image}"));
    }
    Ok(())
}

fn host<'a>(config: &'a mut GroupConfig, nqn: &str) -> &'a mut HostSpec {
    let at = config.hosts.iter().position(|host| host.nqn == nqn).unwrap_or_else(|| {
        config.hosts.push(HostSpec { nqn: nqn.to_owned(), ..HostSpec::default() });
        config.hosts.len() - 1
    });
    &mut config.hosts[at]
}

/// Removes from `config`.
///
/// # Errors
/// A part that does not exist.
pub(crate) fn remove(
    config: &mut GroupConfig,
    args: &GroupRemoval,
) -> Result<ChangeDescriptions, String> {
    let mut changes = ChangeDescriptions::new();
    if let Some(nqn) = &args.nqn {
        let known = config.subsystems.iter().position(|subsystem| subsystem.nqn == *nqn);
        let at = known.ok_or_else(|| format!("there is no subsystem {nqn}"))?;
        if args.nsid.is_empty() && args.allow_hosts.is_empty() {
            config.subsystems.remove(at);
            changes.push(format!("subsystem {nqn}"));
        } else {
            remove_from(&mut config.subsystems[at], args, &mut changes)?;
        }
    }
    for nqn in &args.hosts {
        let before = changes.len();
        if config.hosts.iter().any(|host| host.nqn == *nqn) {
            config.hosts.retain(|host| host.nqn != *nqn);
            changes.push(format!("host {nqn}: keys for authentication"));
        }
        if config.tls.keys.remove(nqn).is_some() {
            changes.push(format!("host {nqn}: key for TLS"));
        }
        for subsystem in &mut config.subsystems {
            if subsystem.allow_hosts.as_mut().is_some_and(|hosts| hosts.remove(nqn)) {
                changes.push(format!("subsystem {}: host {nqn} may not use it", subsystem.nqn));
            }
        }
        if changes.len() == before {
            return Err(format!("there is no host {nqn}"));
        }
    }
    Ok(changes)
}

fn remove_from(
    subsystem: &mut SubsystemSettings,
    args: &GroupRemoval,
    changes: &mut ChangeDescriptions,
) -> Result<(), String> {
    let nqn = &subsystem.nqn;
    for nsid in &args.nsid {
        let known = subsystem.namespaces.iter().position(|one| one.nsid == Some(*nsid));
        let at = known.ok_or_else(|| format!("subsystem {nqn}: there is no namespace {nsid}"))?;
        let namespace = subsystem.namespaces.remove(at);
        let image = namespace.image.unwrap_or_default();
        changes.push(format!("subsystem {nqn}: namespace {nsid}: rbd:{image}"));
    }
    for host in &args.allow_hosts {
        if !subsystem.allow_hosts.as_mut().is_some_and(|hosts| hosts.remove(host)) {
            return Err(format!("subsystem {nqn}: host {host} is not one of those that it names"));
        }
        changes.push(format!("subsystem {nqn}: host {host} may not use it"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{CommandLine, RoadtrainCommand};
    use crate::ctl::group_change;
    use crate::gateway::GroupChange;
    use clap::Parser;

    const KEY: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";

    fn change(config: &mut GroupConfig, line: &str) -> Result<ChangeDescriptions, String> {
        let words = ["roadtrain", "ctl", "--group", "gates", "--pool", "disks"];
        let cli =
            CommandLine::try_parse_from(words.into_iter().chain(line.split_whitespace())).unwrap();
        let RoadtrainCommand::Ctl(args) = cli.command else { unreachable!() };
        match group_change(&args.command).unwrap().unwrap() {
            GroupChange::Add(args) => {
                add(config, &args, &AddedKeys::read(&args).unwrap(), "01234567890123456789")
            }
            GroupChange::Remove(args) => remove(config, &args),
        }
    }

    #[test]
    fn what_is_added_can_be_removed() {
        let mut config = GroupConfig::default();
        let add = "subsystem add -n nqn.x:y --namespace rbd:disks/a --namespace rbd:disks/b";
        let mut changes = change(&mut config, add).unwrap();
        let allow = format!("host allow -n nqn.x:y -q nqn.x:h --dhchap-key {KEY}");
        changes.extend(change(&mut config, &allow).unwrap());
        assert_eq!(changes.len(), 5, "{changes:?}");
        assert!(!changes.iter().any(|change| change.contains(KEY)));
        config.check().unwrap();
        assert_eq!(config.subsystems[0].serial.as_deref(), Some("01234567890123456789"));
        // The next free NSID, and the same serial number as before.
        change(&mut config, "namespace remove -n nqn.x:y --nsid 1").unwrap();
        let mut changes = change(&mut config, "namespace add -n nqn.x:y rbd:disks/c").unwrap();
        changes.extend(change(&mut config, "subsystem set -n nqn.x:y --require-auth").unwrap());
        assert_eq!(
            changes,
            [
                "subsystem nqn.x:y: namespace 1: rbd:disks/c",
                "subsystem nqn.x:y: requires authentication"
            ]
        );
        config.check().unwrap();
        let changes = change(&mut config, "host deny -q nqn.x:h").unwrap();
        assert_eq!(
            changes,
            [
                "host nqn.x:h: keys for authentication",
                "subsystem nqn.x:y: host nqn.x:h may not use it"
            ]
        );
        // No host has a key any more, and the subsystem requires one.
        assert!(config.check().unwrap_err().message.contains("require_auth"));
        change(&mut config, "subsystem remove -n nqn.x:y").unwrap();
        assert!(config == GroupConfig::default());
    }

    #[test]
    fn what_is_not_there_is_not_removed() {
        let mut config = GroupConfig::default();
        change(&mut config, "namespace add -n nqn.x:y rbd:disks/a,nsid=7").unwrap();
        for (line, why) in [
            ("subsystem remove -n nqn.x:z", "there is no subsystem nqn.x:z"),
            ("namespace remove -n nqn.x:y --nsid 1", "there is no namespace 1"),
            ("host deny -n nqn.x:y -q nqn.x:h", "is not one of those"),
            ("host deny -q nqn.x:h", "there is no host nqn.x:h"),
            ("namespace add -n nqn.x:y rbd:disks/b,nsid=7", "namespace 7 exists already"),
        ] {
            let error = change(&mut config.clone(), line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
        change(&mut config, "subsystem add -n nqn.x:z --namespace rbd:disks/a").unwrap();
        assert!(config.check().unwrap_err().message.contains("this image exists already"));
    }
}

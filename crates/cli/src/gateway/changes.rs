//! What is added to a group's configuration, and removed from it.

use super::config::GroupConfig;
use crate::args::{GatewayAddArgs, GatewayRemoveArgs, HostKey};
use crate::config::{HostSpec, SubsystemSpec, number};
use crate::failure::{Failure, Outcome};
use crate::keys::file;
use crate::namespace::NamespaceSpec;

/// What changes, for people.
pub(crate) type Changes = Vec<String>;

/// Of options `HOSTNQN=FILE`: the host, and what is in the file.
type Key = (String, String);

/// The keys that are added, read from their files.
pub(crate) struct Keys {
    dhchap: Vec<Key>,
    dhchap_ctrl: Vec<Key>,
    tls: Vec<Key>,
}

impl Keys {
    /// Reads them.
    ///
    /// # Errors
    /// A file cannot be read, or has no key.
    pub(crate) fn read(args: &GatewayAddArgs) -> Outcome<Keys> {
        let read = |option: &str, keys: &[HostKey]| {
            let line = |key: &HostKey| {
                let text = file::line(option, &key.file.display().to_string())?;
                Ok::<_, Failure>((key.host.clone(), text.to_string()))
            };
            keys.iter().map(line).collect::<Outcome<Vec<Key>>>()
        };
        Ok(Keys {
            dhchap: read("--dhchap-key", &args.dhchap_key)?,
            dhchap_ctrl: read("--dhchap-ctrl-key", &args.dhchap_ctrl_key)?,
            tls: read("--tls-key", &args.tls_keys)?,
        })
    }
}

/// Adds to `config`. A subsystem that is new and has no serial number gets `serial`.
///
/// # Errors
/// What cannot be added.
pub(crate) fn add(
    config: &mut GroupConfig,
    args: &GatewayAddArgs,
    keys: &Keys,
    serial: &str,
) -> Result<Changes, String> {
    let mut changes = Changes::new();
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
            (args.require_auth, &mut subsystem.require_auth, "asks for authentication"),
            (args.require_tls, &mut subsystem.require_tls, "asks for TLS"),
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
    changes: &mut Changes,
) -> &'a mut SubsystemSpec {
    let known = config.subsystems.iter().position(|subsystem| subsystem.nqn == nqn);
    let at = known.unwrap_or_else(|| {
        changes.push(format!("subsystem {nqn}"));
        config.subsystems.push(SubsystemSpec {
            nqn: nqn.to_owned(),
            serial: None,
            model: None,
            allow_hosts: None,
            host_rates: Default::default(),
            require_auth: false,
            require_tls: false,
            namespaces: Vec::new(),
        });
        config.subsystems.len() - 1
    });
    &mut config.subsystems[at]
}

/// All gateways say the same serial number, so it does not depend on the machine.
fn set_numbers(
    subsystem: &mut SubsystemSpec,
    args: &GatewayAddArgs,
    serial: &str,
    changes: &mut Changes,
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
    subsystem: &mut SubsystemSpec,
    namespace: NamespaceSpec,
    changes: &mut Changes,
) -> Result<(), String> {
    let nqn = &subsystem.nqn;
    if let Some(nsid) = namespace.nsid
        && subsystem.namespaces.iter().any(|one| one.nsid == Some(nsid))
    {
        return Err(format!("subsystem {nqn}: namespace {nsid} is there already: remove it first"));
    }
    subsystem.namespaces.push(namespace);
    subsystem.namespaces = number(std::mem::take(&mut subsystem.namespaces));
    if let Some(NamespaceSpec { nsid: Some(nsid), image: Some(image), .. }) =
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
/// What is not there.
pub(crate) fn remove(
    config: &mut GroupConfig,
    args: &GatewayRemoveArgs,
) -> Result<Changes, String> {
    let mut changes = Changes::new();
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
    subsystem: &mut SubsystemSpec,
    args: &GatewayRemoveArgs,
    changes: &mut Changes,
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
    use crate::args::{Cli, Command, GatewayCommand};
    use clap::Parser;

    const KEY: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";

    fn command(line: &str) -> GatewayCommand {
        let words = ["roadtrain", "gateway"].into_iter().chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words.chain(["-p", "disks", "-g", "gates"])).unwrap();
        let Command::Gateway(args) = cli.command else { unreachable!() };
        args.command
    }

    fn change(config: &mut GroupConfig, line: &str) -> Result<Changes, String> {
        match command(line) {
            GatewayCommand::Add(args) => {
                add(config, &args, &Keys::read(&args).unwrap(), "01234567890123456789")
            }
            GatewayCommand::Remove(args) => remove(config, &args),
            GatewayCommand::Show(_) => unreachable!(),
        }
    }

    #[test]
    fn what_is_added_can_be_removed() {
        let mut config = GroupConfig::default();
        let add = format!(
            "add -n nqn.x:y --namespace rbd:disks/a --namespace rbd:disks/b --allow-host nqn.x:h --dhchap-key nqn.x:h={KEY}"
        );
        let changes = change(&mut config, &add).unwrap();
        assert_eq!(changes.len(), 5, "{changes:?}");
        assert!(!changes.iter().any(|change| change.contains(KEY)));
        config.check().unwrap();
        assert_eq!(config.subsystems[0].serial.as_deref(), Some("01234567890123456789"));
        // The next free number, and the same serial number as before.
        change(&mut config, "remove -n nqn.x:y --nsid 1").unwrap();
        let changes =
            change(&mut config, "add -n nqn.x:y --namespace rbd:disks/c --require-auth").unwrap();
        assert_eq!(
            changes,
            [
                "subsystem nqn.x:y: namespace 1: rbd:disks/c",
                "subsystem nqn.x:y: asks for authentication"
            ]
        );
        config.check().unwrap();
        let changes = change(&mut config, "remove --host nqn.x:h").unwrap();
        assert_eq!(
            changes,
            [
                "host nqn.x:h: keys for authentication",
                "subsystem nqn.x:y: host nqn.x:h may not use it"
            ]
        );
        // Nobody has a key any more, and the subsystem asks for one.
        assert!(config.check().unwrap_err().message.contains("require_auth"));
        change(&mut config, "remove -n nqn.x:y").unwrap();
        assert!(config == GroupConfig::default());
    }

    #[test]
    fn what_is_not_there_is_not_removed() {
        let mut config = GroupConfig::default();
        change(&mut config, "add -n nqn.x:y --namespace rbd:disks/a,nsid=7").unwrap();
        for (line, why) in [
            ("remove -n nqn.x:z", "there is no subsystem nqn.x:z"),
            ("remove -n nqn.x:y --nsid 1", "there is no namespace 1"),
            ("remove -n nqn.x:y --allow-host nqn.x:h", "is not one of those"),
            ("remove --host nqn.x:h", "there is no host nqn.x:h"),
            ("add -n nqn.x:y --namespace rbd:disks/b,nsid=7", "namespace 7 is there already"),
        ] {
            let error = change(&mut config.clone(), line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
        change(&mut config, "add -n nqn.x:z --namespace rbd:disks/a").unwrap();
        assert!(config.check().unwrap_err().message.contains("this image is there already"));
    }
}

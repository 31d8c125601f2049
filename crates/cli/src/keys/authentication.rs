//! Reads authentication keys from options and files for the engine.

use super::file;
use crate::args::{DhGroupName, HashName, KeyArgs, SecurityArgs};
use crate::config::Spelling;
use crate::failure::{CommandFailure, CommandResult};
use crate::identity::check_nqn;
use roadtrain_proto::security::DhchapKey;
use roadtrain_proto::security::dhchap::{AuthOffer, DhchapKeys};
use roadtrain_target_proto::HostAuthentication;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A host with the files of its keys. The keys themselves are never in a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// Its NQN.
    pub nqn: String,
    /// File with its key for authentication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhchap_key: Option<String>,
    /// File with the key by which the target proves its identity to this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhchap_ctrl_key: Option<String>,
}

/// Authentication of hosts, and the algorithms that may be negotiated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthenticationSpec {
    /// Hosts without a key are refused.
    pub required: bool,
    /// Hashes, the best first; none: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hashes: Vec<HashName>,
    /// Groups, the best first; none: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<DhGroupName>,
}

impl AuthenticationSpec {
    /// Converts the options of the command line.
    pub(crate) fn of(args: &SecurityArgs) -> Self {
        AuthenticationSpec {
            required: args.require_auth,
            hashes: args.dhchap_hash.clone(),
            groups: args.dhchap_dhgroup.clone(),
        }
    }

    /// Reads the keys of `hosts` from their files.
    ///
    /// # Errors
    /// A key cannot be read, or is invalid.
    pub(crate) fn read(
        &self,
        hosts: &[HostSpec],
        spelling: &Spelling,
    ) -> CommandResult<HostAuthentication> {
        let mut offer = AuthOffer::default();
        if !self.hashes.is_empty() {
            offer.hashes = self.hashes.iter().map(|hash| hash.hash()).collect();
        }
        if !self.groups.is_empty() {
            offer.groups = self.groups.iter().map(|group| group.group()).collect();
        }
        let (mut keys, mut former) = (BTreeMap::new(), BTreeMap::new());
        for HostSpec { nqn, dhchap_key, dhchap_ctrl_key } in hosts {
            let what = format!("{} of host {nqn}", spelling.name("dhchap_key"));
            let (host, other) = two_keys(&what, dhchap_key.as_deref())?;
            former.extend(other.map(|other| (nqn.clone(), other)));
            let what = format!("{} of host {nqn}", spelling.name("dhchap_ctrl_key"));
            let controller = key(&what, dhchap_ctrl_key.as_deref())?;
            if host.is_some() {
                keys.insert(nqn.clone(), DhchapKeys { host, controller });
            }
        }
        let required = self.required;
        Ok(HostAuthentication { required, offer, keys, former, ..HostAuthentication::default() })
    }
}

fn key(what: &str, file: Option<&str>) -> CommandResult<Option<DhchapKey>> {
    let Some(file) = file else { return Ok(None) };
    parse(what, file, &file::line(what, file)?).map(Some)
}

/// Reads a host's key, and a second one that is valid while the key is changed.
fn two_keys(
    what: &str,
    file: Option<&str>,
) -> CommandResult<(Option<DhchapKey>, Option<DhchapKey>)> {
    let Some(file) = file else { return Ok((None, None)) };
    let (line, former) = file::lines(what, file)?;
    let former = former.map(|line| parse(what, file, &line)).transpose()?;
    Ok((Some(parse(what, file, &line)?), former))
}

fn parse(what: &str, file: &str, line: &str) -> CommandResult<DhchapKey> {
    let wrong = |error| CommandFailure::usage(format!("{what}: {}: {error}", file::name(file)));
    DhchapKey::parse(line).map_err(wrong)
}

/// Returns the hosts that options `HOSTNQN=FILE` name, with their files.
///
/// # Errors
/// An invalid option.
pub(crate) fn hosts(args: &SecurityArgs) -> Result<Vec<HostSpec>, String> {
    let mut hosts = BTreeMap::<String, HostSpec>::new();
    for (option, files) in
        [("--dhchap-key", &args.dhchap_key), ("--dhchap-ctrl-key", &args.dhchap_ctrl_key)]
    {
        for entry in files {
            let hint = || format!("{option} {entry}: write HOSTNQN=FILE");
            let (nqn, file) = entry.split_once('=').ok_or_else(hint)?;
            let host = hosts.entry(nqn.to_owned()).or_default();
            host.nqn = nqn.to_owned();
            let place = match option {
                "--dhchap-key" => &mut host.dhchap_key,
                _ => &mut host.dhchap_ctrl_key,
            };
            if place.replace(file.to_owned()).is_some() {
                return Err(format!("{option}: {nqn} has two keys"));
            }
        }
    }
    Ok(hosts.into_values().collect())
}

/// Checks what does not need the files.
///
/// # Errors
/// The first error.
pub(crate) fn check(
    spec: &AuthenticationSpec,
    hosts: &[HostSpec],
    spelling: &Spelling,
) -> Result<(), String> {
    for (at, host) in hosts.iter().enumerate() {
        let of_host = match (spelling.is_command_line(), &host.dhchap_key) {
            (false, _) => "host",
            (true, Some(_)) => "--dhchap-key",
            (true, None) => "--dhchap-ctrl-key",
        };
        check_nqn(&host.nqn).map_err(|error| format!("{of_host}: {error}"))?;
        if hosts[..at].iter().any(|other| other.nqn == host.nqn) {
            return Err(format!("host {} is given twice", host.nqn));
        }
        if host.dhchap_ctrl_key.is_some() && host.dhchap_key.is_none() {
            return Err(format!(
                "host {}: the target authenticates itself only to a host that does, too: add its {}",
                host.nqn,
                spelling.name("dhchap_key")
            ));
        }
    }
    let has_keys = hosts.iter().any(|host| host.dhchap_key.is_some());
    if spec != &AuthenticationSpec::default() && !has_keys {
        let key = match (spec.required, spec.hashes.is_empty()) {
            (true, _) => "authentication.required",
            (false, false) => "authentication.hashes",
            (false, true) => "authentication.groups",
        };
        let (name, advice) = (spelling.name(key), spelling.add_dhchap_key());
        return Err(format!("{name} without a key admits no host: {advice}"));
    }
    Ok(())
}

/// Reads the keys with which a host authenticates.
///
/// # Errors
/// A key cannot be read, or is invalid.
pub(crate) fn of_host(args: &KeyArgs) -> CommandResult<DhchapKeys> {
    Ok(DhchapKeys {
        host: key("--dhchap-secret", args.dhchap_secret.as_deref())?,
        controller: key("--dhchap-ctrl-secret", args.dhchap_ctrl_secret.as_deref())?,
    })
}

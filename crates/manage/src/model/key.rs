//! Keys that RPC has named. Each is in a file of its own: the state file has the path, never the key.

use super::ManagedModel;
use roadtrain_proto::security::dhchap::DhchapKeys;
use roadtrain_proto::security::{DhchapKey, TlsKey};
use roadtrain_system::memory;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Longest file of a key in bytes, with comments.
const FILE_BYTES_MAX: usize = 4096;

/// A key in the state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySpec {
    /// Unique.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
}

/// A key that was read.
#[derive(Debug)]
pub struct NamedKey {
    /// Name and file.
    pub spec: KeySpec,
    /// The key itself.
    pub kind: KeyKind,
}

/// A key, by its use.
#[derive(Debug)]
pub enum KeyKind {
    /// For TLS.
    Tls(TlsKey),
    /// For DH-HMAC-CHAP authentication.
    Dhchap(DhchapKey),
}

/// Reason why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NamedKeyError {
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(io::Error),
    /// Other users can read or change the file.
    #[error("others can read or change it: it has to be this process's user's, with mode 0600")]
    Exposed,
    /// The content is no key.
    #[error("{0}")]
    Unfit(String),
}

impl NamedKey {
    /// Reads the key.
    ///
    /// # Errors
    /// The file has no key, or other users can read it.
    pub fn open(spec: KeySpec) -> Result<NamedKey, NamedKeyError> {
        // Runs before the first byte of a key is in memory.
        memory::keep_secret().map_err(NamedKeyError::Unreadable)?;
        let text = read(&spec.path)?;
        let is_content = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with('#');
        let mut lines = text.lines().filter(is_content).map(str::trim);
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return Err(NamedKeyError::Unfit("a file has one key, in one line".into()));
        };
        let unfit = |error: &dyn std::fmt::Display| NamedKeyError::Unfit(error.to_string());
        let kind = match line.starts_with("DHHC-1:") {
            true => KeyKind::Dhchap(DhchapKey::parse(line).map_err(|error| unfit(&error))?),
            false => KeyKind::Tls(TlsKey::parse(line).map_err(|error| unfit(&error))?),
        };
        Ok(NamedKey { spec, kind })
    }
}

/// Reads all of the file, which only its owner may read.
fn read(path: &Path) -> Result<Zeroizing<String>, NamedKeyError> {
    // NONBLOCK: opening a pipe must not wait; the check below refuses it.
    let mut options = File::options();
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path).map_err(NamedKeyError::Unreadable)?;
    // Checks the open file: the name may belong to another file by now.
    let metadata = file.metadata().map_err(NamedKeyError::Unreadable)?;
    let own = rustix::process::geteuid().as_raw();
    if metadata.mode() & 0o077 != 0 || metadata.uid() != own || !metadata.is_file() {
        return Err(NamedKeyError::Exposed);
    }
    // One allocation: a buffer that grows would leave copies of the key behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(FILE_BYTES_MAX + 2));
    let most = FILE_BYTES_MAX as u64 + 1;
    file.take(most).read_to_end(&mut bytes).map_err(NamedKeyError::Unreadable)?;
    let text = std::str::from_utf8(&bytes).ok().filter(|_| bytes.len() <= FILE_BYTES_MAX);
    let text = text.ok_or_else(|| NamedKeyError::Unfit("it is no key".into()))?;
    Ok(Zeroizing::new(text.to_owned()))
}

/// The names of the keys that a host has for a subsystem.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostKeys {
    /// Key by which the host authenticates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhchap_key: Option<String>,
    /// Key by which the controller authenticates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhchap_ctrlr_key: Option<String>,
    /// Pre-shared key for TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psk: Option<String>,
}

impl HostKeys {
    /// True if the host has no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == HostKeys::default()
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        [&self.dhchap_key, &self.dhchap_ctrlr_key, &self.psk].into_iter().flatten()
    }
}

impl ManagedModel {
    /// Returns the key with that name.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<&NamedKey> {
        self.keys.iter().find(|key| key.spec.name == name).map(|key| &**key)
    }

    fn dhchap_key(&self, name: &str) -> Option<&DhchapKey> {
        match &self.key(name)?.kind {
            KeyKind::Dhchap(key) => Some(key),
            KeyKind::Tls(_) => None,
        }
    }

    fn tls_key(&self, name: &str) -> Option<&TlsKey> {
        match &self.key(name)?.kind {
            KeyKind::Tls(key) => Some(key),
            KeyKind::Dhchap(_) => None,
        }
    }

    fn hosts_with_keys(&self) -> impl Iterator<Item = (&SubsystemName, &HostName, &HostKeys)> {
        keyed(self.subsystems.iter().map(|one| (&one.nqn, &one.host_keys)))
    }

    /// Returns hosts with keys, of served subsystems only.
    fn served_hosts_with_keys(
        &self,
    ) -> impl Iterator<Item = (&SubsystemName, &HostName, &HostKeys)> {
        keyed(self.served().map(|one| (&one.nqn, &one.host_keys)))
    }

    /// Returns how many hosts of subsystems use a key, and the first of them.
    #[must_use]
    pub fn users_of_key(&self, name: &str) -> (usize, Option<(&str, &str)>) {
        let uses = self.hosts_with_keys().filter(|(.., keys)| keys.names().any(|one| one == name));
        let mut uses = uses.map(|(nqn, host, _)| (nqn.as_str(), host.as_str()));
        let first = uses.next();
        (usize::from(first.is_some()) + uses.count(), first)
    }

    /// Checks that all keys exist and have the right kind.
    ///
    /// # Errors
    /// A description of the first problem.
    pub fn check_host_keys(&self, keys: &HostKeys) -> Result<(), String> {
        let unknown = |name: &String| self.key(name).is_none();
        if let Some(name) = keys.names().find(|name| unknown(name)) {
            return Err(format!("no key {name}"));
        }
        let is_dhchap = |name: &String| self.dhchap_key(name).is_some();
        if let Some(name) = [&keys.dhchap_key, &keys.dhchap_ctrlr_key]
            .into_iter()
            .flatten()
            .find(|name| !is_dhchap(name))
        {
            return Err(format!("key {name} is for TLS"));
        }
        match &keys.psk {
            Some(name) if self.tls_key(name).is_none() => {
                Err(format!("key {name} is for authentication"))
            }
            _ => Ok(()),
        }
    }

    /// Checks the keys of all hosts.
    ///
    /// # Errors
    /// A description of the first problem.
    pub(super) fn check_keys(&self) -> Result<(), String> {
        self.hosts_with_keys().try_for_each(|(nqn, host, keys)| {
            self.check_host_keys(keys).map_err(|error| format!("host {host} of {nqn}: {error}"))
        })
    }

    /// Returns the authentication keys, by subsystem and host.
    #[must_use]
    pub fn keys_at(&self) -> BTreeMap<String, BTreeMap<String, DhchapKeys>> {
        let mut all = BTreeMap::<String, BTreeMap<String, DhchapKeys>>::new();
        for (nqn, host, names) in self.served_hosts_with_keys() {
            let key = |name: &Option<String>| self.dhchap_key(name.as_deref()?).cloned();
            let keys = DhchapKeys {
                host: key(&names.dhchap_key),
                controller: key(&names.dhchap_ctrlr_key),
            };
            if keys.host.is_some() {
                all.entry(nqn.clone()).or_default().insert(host.clone(), keys);
            }
        }
        all
    }

    /// Returns the TLS keys, by host and subsystem.
    #[must_use]
    pub fn psks(&self) -> BTreeMap<(String, String), TlsKey> {
        let psk = |(nqn, host, names): (&SubsystemName, &HostName, &HostKeys)| {
            let key = self.tls_key(names.psk.as_deref()?)?.clone();
            Some(((host.clone(), nqn.clone()), key))
        };
        self.served_hosts_with_keys().filter_map(psk).collect()
    }
}

/// Returns the hosts that have keys.
fn keyed<'a>(
    subsystems: impl Iterator<Item = (&'a SubsystemName, &'a BTreeMap<HostName, HostKeys>)>,
) -> impl Iterator<Item = (&'a SubsystemName, &'a HostName, &'a HostKeys)> {
    subsystems.flat_map(|(nqn, keys)| keys.iter().map(move |(host, keys)| (nqn, host, keys)))
}

/// NQNs.
type SubsystemName = String;
type HostName = String;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn open(path: &Path) -> Result<NamedKey, NamedKeyError> {
        NamedKey::open(KeySpec { name: "k".into(), path: path.into() })
    }

    #[test]
    fn a_key_is_read_if_no_other_user_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        assert!(matches!(open(&path), Err(NamedKeyError::Unreadable(_))));
        let line = DhchapKey::new(None, &[7; 32]).unwrap().print();
        fs::write(&path, format!("# a comment\n{}\n", *line)).unwrap();
        for (mode, is_good) in [(0o644, false), (0o660, false), (0o600, true), (0o400, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            match open(&path) {
                Ok(key) => assert!(is_good && matches!(key.kind, KeyKind::Dhchap(_))),
                Err(error) => assert!(!is_good, "{error}"),
            }
        }
        assert!(matches!(open(folder.path()), Err(NamedKeyError::Exposed)));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for text in [String::new(), "DHHC-1:00:short:".into(), "secret".into(), "a".repeat(5000)] {
            fs::write(&path, &text).unwrap();
            let error = open(&path).unwrap_err();
            assert!(matches!(error, NamedKeyError::Unfit(_)), "{error}");
            assert!(text.is_empty() || !error.to_string().contains(&text), "{error}");
        }
    }
}

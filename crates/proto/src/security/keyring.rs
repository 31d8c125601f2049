//! PSKs of keyrings: already derived for a host and a subsystem, each under its identity.

use super::channel::SecuredAs;
use super::interchange::{self, KeyError};
use super::tls_key::{FORM, Suite, TlsPsk};
use super::{Hash, Secret};
use std::collections::BTreeMap;
use thiserror::Error;

/// Kinds of identities, the best first: a host takes a PSK of the first kind that it has.
const KINDS: [&str; 4] = ["NVMe1R02", "NVMe1R01", "NVMe0R02", "NVMe0R01"];

/// Reason why an entry of a keyring cannot be used. It shows no bytes of the PSK.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyringError {
    #[error("a line of a keyring is IDENTITY KEY, as nvme tls-key --export writes it")]
    Line,
    #[error("{identity}: {error}")]
    Key { identity: String, error: KeyError },
    #[error("{identity}: it has {found} bytes, and a PSK with this identity has {expected}")]
    Length { identity: String, found: usize, expected: usize },
    #[error("{identity} is given twice, with different PSKs")]
    Twice { identity: String },
}

/// Fields of an identity.
struct PskIdentity<'a> {
    hash: Hash,
    hostnqn: &'a str,
    subnqn: &'a str,
}

impl<'a> PskIdentity<'a> {
    /// Parses an identity; `None`: not an identity of a PSK derived from a configured one.
    fn parse(text: &'a str) -> Option<Self> {
        let mut words = text.split(' ');
        let kind = words.next().filter(|kind| KINDS.contains(kind))?;
        let hash = if kind.ends_with("01") { Hash::Sha256 } else { Hash::Sha384 };
        let (hostnqn, subnqn) = (words.next()?, words.next()?);
        // Version 1 ends with a digest.
        let is_whole = words.next().is_some() == kind.starts_with("NVMe1");
        let is_named = !hostnqn.is_empty() && !subnqn.is_empty();
        let is_so = is_whole && is_named && words.next().is_none();
        is_so.then_some(PskIdentity { hash, hostnqn, subnqn })
    }
}

/// PSKs by their identities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyring(BTreeMap<String, TlsPsk>);

impl Keyring {
    /// Parses lines of an identity, a space, and the PSK as `NVMeTLSkey-1:hh:..:`. Empty lines and those that begin
    /// with # are ignored.
    ///
    /// # Errors
    /// Names the first wrong line.
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        let mut keyring = Keyring::default();
        let is_content = |line: &&str| !line.is_empty() && !line.starts_with('#');
        for line in text.lines().map(str::trim).filter(is_content) {
            let (identity, key) = line.rsplit_once(' ').ok_or(KeyringError::Line)?;
            let wrong = |error| KeyringError::Key { identity: identity.to_owned(), error };
            if !identity.starts_with("NVMe") {
                return Err(KeyringError::Line);
            }
            let (_, psk) = interchange::parse(FORM, key).map_err(wrong)?;
            keyring.add(identity, psk)?;
        }
        Ok(keyring)
    }

    /// Adds a PSK. Ignores one whose identity is not that of a configured PSK. The same keyring may hold other kinds of
    /// keys. PSKs that authentications have generated are for no other host.
    ///
    /// # Errors
    /// The PSK does not have the length of its identity's hash, or another one has its identity.
    pub fn add(&mut self, identity: &str, psk: Secret) -> Result<(), KeyringError> {
        let Some(PskIdentity { hash, .. }) = PskIdentity::parse(identity) else { return Ok(()) };
        let Some(suite) = Suite::of_hash(hash) else { return Ok(()) };
        let (identity, found) = (identity.to_owned(), psk.reveal().len());
        if found != hash.bytes() {
            return Err(KeyringError::Length { identity, found, expected: hash.bytes() });
        }
        match self.0.get(&identity) {
            Some(other) if other.psk != psk => Err(KeyringError::Twice { identity }),
            _ => {
                self.0.insert(identity.clone(), TlsPsk { identity, psk, suite });
                Ok(())
            }
        }
    }

    /// Returns the PSKs with which a host may connect to a subsystem: those of the best kind that exists. There are
    /// several while a key is changed.
    #[must_use]
    pub fn of(&self, hostnqn: &str, subnqn: &str) -> Vec<&TlsPsk> {
        let is_theirs = |identity: &str| {
            let names = PskIdentity::parse(identity);
            names.is_some_and(|names| names.hostnqn == hostnqn && names.subnqn == subnqn)
        };
        let of_kind = |kind: &str| -> Vec<&TlsPsk> {
            let all = self.0.values().filter(|psk| psk.identity.starts_with(kind));
            all.filter(|psk| is_theirs(&psk.identity)).collect()
        };
        KINDS.into_iter().map(of_kind).find(|some| !some.is_empty()).unwrap_or_default()
    }

    /// Returns the PSK with that identity.
    #[must_use]
    pub fn get(&self, identity: &str) -> Option<&TlsPsk> {
        self.0.get(identity)
    }

    /// Returns the PSK with that identity, and its host and subsystem.
    #[must_use]
    pub fn find(&self, identity: &str) -> Option<(TlsPsk, SecuredAs)> {
        let psk = self.0.get(identity)?.clone();
        let PskIdentity { hostnqn, subnqn, .. } = PskIdentity::parse(identity)?;
        let (hostnqn, subnqn) = (hostnqn.to_owned(), subnqn.to_owned());
        Some((psk, SecuredAs { hostnqn, subnqn, by_generated: false }))
    }

    /// Returns the hosts that have PSKs.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.0.keys().filter_map(|identity| Some(PskIdentity::parse(identity)?.hostnqn))
    }

    /// True if the keyring is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::{Derivation, IdentityVersion, TlsKey};

    const HOST: &str = "nqn.host";
    const SUBSYSTEM: &str = "nqn.subsystem";

    fn derived(hash: Hash, fill: u8, version: IdentityVersion) -> TlsPsk {
        let key = TlsKey::new(Some(hash), &vec![fill; hash.bytes()]).unwrap();
        key.tls_psk_by(HOST, SUBSYSTEM, Derivation { version, compat: false })
    }

    /// A line as `nvme tls-key --export` writes it.
    fn line(psk: &TlsPsk) -> String {
        let hash = psk.suite.hash().id();
        format!("{} {}\n", psk.identity, *interchange::print(FORM, hash, &psk.psk))
    }

    #[test]
    fn exported_lines_are_read_again() {
        let [first, second] =
            [Hash::Sha256, Hash::Sha384].map(|hash| derived(hash, 1, IdentityVersion::V1));
        let text = format!("# mine\n\n{}{}", line(&first), line(&second));
        let keyring = Keyring::parse(&text).unwrap();
        for psk in [&first, &second] {
            let (found, secured_as) = keyring.find(&psk.identity).unwrap();
            assert_eq!(&found, psk);
            let (hostnqn, subnqn) = (HOST.to_owned(), SUBSYSTEM.to_owned());
            assert_eq!(secured_as, SecuredAs { hostnqn, subnqn, by_generated: false });
        }
        assert_eq!(keyring.hosts().collect::<Vec<_>>(), [HOST, HOST]);
        assert_eq!(keyring.find(&first.identity.replace("host", "other")), None);
        assert_eq!(keyring.of("nqn.other", SUBSYSTEM), Vec::<&TlsPsk>::new());
        assert_eq!(keyring.of(HOST, "nqn.other"), Vec::<&TlsPsk>::new());
    }

    /// Order of a Linux host: version 1 before version 0, SHA-384 before SHA-256.
    #[test]
    fn a_host_takes_the_best_kind() {
        let versions = [IdentityVersion::V0, IdentityVersion::V1];
        let kinds = versions.map(|version| [Hash::Sha256, Hash::Sha384].map(|h| (h, version)));
        let mut keyring = Keyring::default();
        for (hash, version) in kinds.into_iter().flatten() {
            let psk = derived(hash, 1, version);
            keyring.add(&psk.identity, psk.psk.clone()).unwrap();
            assert_eq!(keyring.of(HOST, SUBSYSTEM), [&psk]);
        }
        let other = derived(Hash::Sha384, 2, IdentityVersion::V1);
        keyring.add(&other.identity, other.psk).unwrap();
        assert_eq!(keyring.of(HOST, SUBSYSTEM).len(), 2);
    }

    #[test]
    fn entries_that_are_no_psk_of_a_host_are_left_out() {
        let whole = derived(Hash::Sha256, 1, IdentityVersion::V1);
        for identity in [
            "a logon".to_owned(),
            whole.identity.replace("1R01", "1G01"),
            whole.identity.replace("1R01", "1R03"),
            whole.identity.replace("1R01", "0R01"),
            format!("{} more", whole.identity),
            format!("NVMe1R01 {HOST} {SUBSYSTEM}"),
            format!("NVMe0R01  {SUBSYSTEM}"),
        ] {
            let mut keyring = Keyring::default();
            keyring.add(&identity, whole.psk.clone()).unwrap();
            assert!(keyring.is_empty(), "{identity}");
        }
    }

    #[test]
    fn a_wrong_entry_is_an_error_without_the_key() {
        let psk = derived(Hash::Sha256, 1, IdentityVersion::V1);
        let good = line(&psk);
        let wide = derived(Hash::Sha384, 1, IdentityVersion::V1);
        let of_other_length = line(&TlsPsk { identity: psk.identity.clone(), ..wide });
        let changed = derived(Hash::Sha256, 2, IdentityVersion::V1);
        let twice = line(&TlsPsk { identity: psk.identity.clone(), ..changed });
        for (text, said) in [
            (psk.identity.clone(), "it does not have the form"),
            (good.replace("NVMe1", "nvme1"), "IDENTITY KEY"),
            ("word".to_owned(), "IDENTITY KEY"),
            (good.trim().replace("key-1:01:", "key-1:01:A"), "base64"),
            (of_other_length, "48 bytes, and a PSK with this identity has 32"),
            (format!("{good}{twice}"), "twice"),
        ] {
            let error = Keyring::parse(&text).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
            assert!(!error.contains("NVMeTLSkey-1:01"), "{error}");
        }
        assert!(Keyring::parse(&format!("{good}{good}")).is_ok(), "the same one, twice");
    }
}

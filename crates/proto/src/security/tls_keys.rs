//! TLS keys of a target, by identity.

use super::channel::SecuredAs;
use super::keyring::Keyring;
use super::tls_key::{Derivation, IdentityVersion, TlsKey, TlsPsk};
use roadtrain_wire::fabrics::DISCOVERY_NQN;
use std::collections::{BTreeMap, BTreeSet};

/// Keys of the hosts that a target accepts with TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsKeys {
    /// Configured PSKs by the NQN of their host: one, or two while it is changed.
    pub configured: BTreeMap<String, Vec<TlsKey>>,
    /// Configured PSKs for one subsystem: by the NQNs of host and subsystem. They are valid for discovery, too.
    pub at: BTreeMap<(String, String), TlsKey>,
    /// PSKs that another program has derived from configured ones.
    pub keyring: Keyring,
}

/// Hosts that have a key for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsHosts {
    /// NQNs of hosts with a key for every subsystem.
    pub everywhere: BTreeSet<String>,
    /// NQNs of host and subsystem, for keys of one subsystem.
    pub at: BTreeSet<(String, String)>,
}

impl<const N: usize> From<[String; N]> for TlsHosts {
    fn from(everywhere: [String; N]) -> Self {
        TlsHosts { everywhere: everywhere.into(), at: BTreeSet::new() }
    }
}

impl TlsHosts {
    /// True if a host has a key for any subsystem.
    #[must_use]
    pub fn knows(&self, hostnqn: &str) -> bool {
        self.everywhere.contains(hostnqn) || self.at.iter().any(|(host, _)| host == hostnqn)
    }

    /// True if a host has a key for that subsystem.
    #[must_use]
    pub fn has(&self, hostnqn: &str, subnqn: &str) -> bool {
        let is_it = |host: &str, subsystem: &str| {
            host == hostnqn && (subsystem == subnqn || subnqn == DISCOVERY_NQN)
        };
        self.everywhere.contains(hostnqn) || self.at.iter().any(|(h, s)| is_it(h, s))
    }
}

impl<const N: usize> From<[(String, Vec<TlsKey>); N]> for TlsKeys {
    fn from(configured: [(String, Vec<TlsKey>); N]) -> Self {
        TlsKeys { configured: configured.into(), ..TlsKeys::default() }
    }
}

impl TlsKeys {
    /// Returns the hosts that have a key.
    #[must_use]
    pub fn hosts(&self) -> TlsHosts {
        let configured = self.configured.keys().map(String::as_str);
        TlsHosts {
            everywhere: configured.chain(self.keyring.hosts()).map(str::to_owned).collect(),
            at: self.at.keys().cloned().collect(),
        }
    }

    /// Returns the configured keys that a host may have for a subsystem.
    fn keys_of(&self, hostnqn: &str, subnqn: &str) -> impl Iterator<Item = &TlsKey> {
        let is_it = move |subsystem: &str| subsystem == subnqn || subnqn == DISCOVERY_NQN;
        let own = self.at.iter().filter(move |((host, at), _)| host == hostnqn && is_it(at));
        own.map(|(_, key)| key).chain(self.configured.get(hostnqn).into_iter().flatten())
    }

    /// Returns the PSK with that identity, and its host and subsystem. The digest in an identity of version 1 selects
    /// one of two keys. It also shows which derivation the host uses, if the key has a hash. Otherwise the correct
    /// derivation is assumed. With version 0 the first key of the suite counts. A configured PSK precedes one of the
    /// keyring.
    #[must_use]
    pub fn find(&self, identity: &str) -> Option<(TlsPsk, SecuredAs)> {
        self.find_configured(identity).or_else(|| self.keyring.find(identity))
    }

    fn find_configured(&self, identity: &str) -> Option<(TlsPsk, SecuredAs)> {
        let (version, names) = match identity.split_at_checked(5)? {
            ("NVMe0", rest) => (IdentityVersion::V0, rest),
            ("NVMe1", rest) => (IdentityVersion::V1, rest),
            _ => return None,
        };
        let mut words = names.split(' ').skip(1);
        let (hostnqn, subnqn) = (words.next()?, words.next()?);
        let mut psks = self.keys_of(hostnqn, subnqn).flat_map(|key| {
            let psk = |compat| key.tls_psk_by(hostnqn, subnqn, Derivation { version, compat });
            [false, true].map(psk)
        });
        let psk = psks.find(|psk| psk.identity == identity)?;
        let (hostnqn, subnqn) = (hostnqn.to_owned(), subnqn.to_owned());
        Some((psk, SecuredAs { hostnqn, subnqn, by_generated: false }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::Hash;

    #[test]
    fn an_identity_names_one_key() {
        let key = TlsKey::new(Some(Hash::Sha256), &[7; 32]).unwrap();
        let keys = TlsKeys::from([("nqn.host".to_owned(), vec![key.clone()])]);
        for (version, compat) in [
            (IdentityVersion::V1, false),
            (IdentityVersion::V1, true),
            (IdentityVersion::V0, false),
        ] {
            let psk = key.tls_psk_by("nqn.host", "nqn.subsystem", Derivation { version, compat });
            let (found, secured_as) = keys.find(&psk.identity).unwrap();
            assert_eq!(found, psk);
            let (hostnqn, subnqn) = ("nqn.host".into(), "nqn.subsystem".into());
            let of = SecuredAs { hostnqn, subnqn, by_generated: false };
            assert_eq!(secured_as, of);
            let other = TlsKey::new(Some(Hash::Sha256), &[8; 32]).unwrap();
            let keys = TlsKeys::from([("nqn.host".to_owned(), vec![other])]);
            let found = keys.find(&psk.identity).map(|(psk, _)| psk);
            assert_ne!(
                found,
                Some(psk),
                "a PSK of version 0 has the same identity, and is another one"
            );
        }
    }

    /// While a key is changed, the host may have either.
    #[test]
    fn two_keys_are_good_side_by_side() {
        let [new, old, other] =
            [1, 2, 3].map(|fill| TlsKey::new(Some(Hash::Sha256), &[fill; 32]).unwrap());
        let keys = TlsKeys::from([("nqn.host".to_owned(), vec![new.clone(), old.clone()])]);
        for (key, is_good) in [(new, true), (old, true), (other, false)] {
            let psk = key.tls_psk("nqn.host", "nqn.subsystem");
            let found = keys.find(&psk.identity).map(|(psk, _)| psk);
            assert_eq!(found, is_good.then_some(psk));
        }
    }

    /// A key for one subsystem is valid there and for discovery.
    #[test]
    fn a_key_of_one_subsystem_is_no_key_of_another() {
        let [one, other] = [1, 2].map(|fill| TlsKey::new(Some(Hash::Sha256), &[fill; 32]).unwrap());
        let at = |subsystem: &str| ("nqn.host".to_owned(), subsystem.to_owned());
        let at = [(at("nqn.one"), one.clone()), (at("nqn.other"), other.clone())].into();
        let keys = TlsKeys { at, ..TlsKeys::default() };
        for (key, subsystem, is_good) in [
            (&one, "nqn.one", true),
            (&one, "nqn.other", false),
            (&other, "nqn.other", true),
            (&one, DISCOVERY_NQN, true),
            (&other, DISCOVERY_NQN, true),
            (&one, "nqn.third", false),
        ] {
            let psk = key.tls_psk("nqn.host", subsystem);
            assert_eq!(keys.find(&psk.identity).is_some(), is_good, "{subsystem}");
        }
        let hosts = keys.hosts();
        assert!(hosts.has("nqn.host", "nqn.one") && hosts.has("nqn.host", DISCOVERY_NQN));
        assert!(!hosts.has("nqn.host", "nqn.third") && !hosts.has("nqn.guest", "nqn.one"));
    }

    #[test]
    fn a_wrong_identity_names_no_key() {
        let key = TlsKey::new(None, &[7; 32]).unwrap();
        let whole = key.tls_psk("nqn.host", "nqn.subsystem").identity;
        let keys = TlsKeys::from([("nqn.host".to_owned(), vec![key])]);
        for end in 0..whole.len() {
            assert_eq!(keys.find(&whole[..end]), None, "{}", &whole[..end]);
        }
        for other in
            [format!("{whole} "), whole.replace("1R01", "1G01"), whole.replace("R01", "R02")]
        {
            assert_eq!(keys.find(&other), None, "{other}");
        }
    }
}

//! Consistency of access settings.

use super::ServeConfig;
use crate::args::TlsMode;
use roadtrain_proto::security::TlsKeys;
use std::collections::BTreeMap;

impl ServeConfig {
    /// Checks that hosts of secured subsystems have keys: "any host" and "secure" exclude each other.
    pub(super) fn check_policy(&self) -> Result<(), String> {
        self.check_listeners()?;
        if self.subsystems.iter().any(|s| s.require_auth) && !self.authenticates() {
            return Err(
                "require_auth without a key admits no host: add a host with a dhchap_key".into()
            );
        }
        // The hosts of a keyring are known after it has been read.
        let has_keyring = self.tls.as_ref().is_some_and(|tls| tls.keyring.is_some());
        self.check_hosts(|host| has_keyring || self.has_tls_key(host))
    }

    /// Checks keys that have been read, including those of a keyring.
    pub(crate) fn check_keys(&self, keys: &TlsKeys) -> Result<(), String> {
        let hosts = keys.hosts();
        if self.uses_tls() && hosts.everywhere.is_empty() && !self.concatenates() {
            let keyring = self.tls.as_ref().and_then(|tls| tls.keyring.as_deref());
            let keyring = keyring.unwrap_or_default();
            let name = self.spelling.name("tls.keyring");
            return Err(format!(
                "{name} {keyring}: it has no PSK of a host, so no host could connect with TLS"
            ));
        }
        self.check_hosts(|host| hosts.everywhere.contains(host))
    }

    /// Checks that hosts have a key for the secured subsystems that they may use.
    fn check_hosts(&self, has_tls_key: impl Fn(&str) -> bool) -> Result<(), String> {
        let has_key =
            |host: &str| self.hosts.iter().any(|one| one.nqn == host && one.dhchap_key.is_some());
        let is_secure_only =
            self.ether.is_none() && self.tls_modes().values().all(|m| *m == TlsMode::Required);
        for subsystem in &self.subsystems {
            let by_key =
                self.authentication.required || subsystem.require_auth || self.requires_seal();
            let by_tls = is_secure_only || subsystem.require_tls;
            for host in subsystem.allow_hosts.iter().flatten() {
                let makes_psk = self.concatenates() && has_key(host);
                let (lacks, key) = match host {
                    host if by_key && !has_key(host) => ("authentication", "dhchap_key"),
                    host if by_tls && !makes_psk && !has_tls_key(host) => ("TLS", "tls.keys"),
                    _ => continue,
                };
                let (nqn, key) = (&subsystem.nqn, self.spelling.name(key));
                return Err(format!(
                    "subsystem {nqn}: it is secured, and host {host}, which may use it, has no key for {lacks} ({key})"
                ));
            }
        }
        Ok(())
    }

    /// Checks that listeners with TLS have keys of hosts, and that subsystems that require TLS have such a listener.
    fn check_listeners(&self) -> Result<(), String> {
        let has_keys =
            self.tls.as_ref().is_some_and(|tls| !tls.keys.is_empty() || tls.keyring.is_some());
        if self.uses_tls() && !has_keys && !self.concatenates() {
            let advice = match self.spelling.is_command_line() {
                true => "--tls-key HOSTNQN=FILE or --keyring",
                false => "[tls.keys] or tls.keyring",
            };
            return Err(format!("TLS: name the hosts and their keys by {advice}"));
        }
        if self.subsystems.iter().any(|subsystem| subsystem.require_tls) && !self.uses_tls() {
            return Err("require_tls: no listener has TLS, so no host could connect".into());
        }
        Ok(())
    }

    fn has_tls_key(&self, host: &str) -> bool {
        let keys = self.tls.as_ref().map(|tls| &tls.keys);
        keys.is_some_and(|keys: &BTreeMap<String, String>| keys.contains_key(host))
    }

    /// True if a host has a key for authentication.
    fn authenticates(&self) -> bool {
        self.hosts.iter().any(|host| host.dhchap_key.is_some())
    }

    /// True if such a host can generate a key for TLS: a listener accepts plain connections as well as secured ones.
    fn concatenates(&self) -> bool {
        self.authenticates() && self.tls_modes().values().any(|mode| *mode == TlsMode::Allowed)
    }
}

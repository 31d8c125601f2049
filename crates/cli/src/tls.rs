//! TLS settings of the configuration, and keys from files.

use crate::args::{SecurityArgs, TlsMode};
use crate::config::Spelling;
use crate::failure::{CommandFailure, CommandResult};
use crate::identity::check_nqn;
use crate::keys::{file, keyring};
use roadtrain_proto::security::{TlsKey, TlsKeys};
use roadtrain_target_engine::{TlsConfig, TlsUse};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// TLS settings for TCP connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(default)]
pub struct TlsSpec {
    /// Use of TLS.
    pub mode: TlsMode,
    /// A keyring of the kernel, or a file like one, with keys of other hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keyring: Option<String>,
    /// Key files of allowed hosts, by host NQN.
    pub keys: BTreeMap<String, String>,
    /// Source of the settings, for messages.
    #[serde(skip)]
    pub(crate) spelling: Spelling,
}

impl TlsSpec {
    /// Converts the options; `None` without TLS.
    ///
    /// # Errors
    /// A host is named twice.
    pub(crate) fn from_args(args: &SecurityArgs) -> Result<Option<Self>, String> {
        let mut keys = BTreeMap::new();
        for key in &args.tls_keys {
            let file = key.file.display().to_string();
            if keys.insert(key.host.clone(), file).is_some() {
                return Err(format!("--tls-key: {} is given twice", key.host));
            }
        }
        let is_somewhere = args.tls_at.iter().any(|at| at.tls != TlsMode::Off);
        let (mode, keyring) = (args.tls, args.keyring.clone());
        let unused = match (keys.is_empty(), &keyring) {
            (false, _) => Some("--tls-key"),
            (_, Some(_)) => Some("--keyring"),
            (true, None) => None,
        };
        match (mode, unused) {
            (TlsMode::Off, None) if !is_somewhere => Ok(None),
            (TlsMode::Off, Some(option)) if !is_somewhere => {
                Err(format!("{option} needs --tls required, --tls allowed or --tls-at"))
            }
            _ => {
                let spelling = Spelling::of_command_line();
                Ok(Some(TlsSpec { mode, keyring, keys, spelling }))
            }
        }
    }

    pub(crate) fn check(&self, spelling: &Spelling) -> Result<(), String> {
        let named = |error| format!("{}: {error}", spelling.name("tls.keys"));
        self.keys.keys().try_for_each(|host| check_nqn(host)).map_err(named)
    }

    /// Reads the keys from their files.
    ///
    /// # Errors
    /// A file or keyring cannot be read, or has no key.
    pub(crate) fn config(&self, at: BTreeMap<SocketAddr, TlsUse>) -> CommandResult<TlsConfig> {
        let (option, keyring) = (self.spelling.name("tls.keys"), self.spelling.name("tls.keyring"));
        let named = |(host, file): (&String, &String)| Ok((host.clone(), keys(&option, file)?));
        let configured = self.keys.iter().map(named).collect::<CommandResult<_>>()?;
        let read = |argument: &str| keyring::read(&keyring, argument);
        let keyring = self.keyring.as_deref().map(read).transpose()?.unwrap_or_default();
        let keys = TlsKeys { configured, keyring, ..TlsKeys::default() };
        Ok(TlsConfig { tls: self.mode.into(), at, keys })
    }
}

/// Reads the configured PSK from a file.
///
/// # Errors
/// The file has no key.
pub(crate) fn key(option: &str, argument: &str) -> CommandResult<TlsKey> {
    parse(option, argument, &file::line(option, argument)?)
}

/// Reads a host's key, and a second one that is valid while the key is changed.
fn keys(option: &str, argument: &str) -> CommandResult<Vec<TlsKey>> {
    let (line, former) = file::lines(option, argument)?;
    let lines = [Some(line), former].into_iter().flatten();
    lines.map(|line| parse(option, argument, &line)).collect()
}

fn parse(option: &str, argument: &str, line: &str) -> CommandResult<TlsKey> {
    let wrong =
        |error| CommandFailure::usage(format!("{option}: {}: {error}", file::name(argument)));
    TlsKey::parse(line).map_err(wrong)
}

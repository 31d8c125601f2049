//! Use of TLS, and the keys of hosts.

use clap::ValueEnum;
use roadtrain_target_engine::TlsUse;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::str::FromStr;

/// Use of TLS on connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlsMode {
    /// No connection is secured.
    #[default]
    Off,
    /// Connections that begin with TLS are secured; others are accepted as they are.
    Allowed,
    /// All connections are secured; others are refused.
    Required,
}

impl From<TlsMode> for TlsUse {
    fn from(mode: TlsMode) -> TlsUse {
        match mode {
            TlsMode::Off => TlsUse::Off,
            TlsMode::Allowed => TlsUse::Allowed,
            TlsMode::Required => TlsUse::Required,
        }
    }
}

/// A listener with its use of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerTls {
    /// Its address or name, as it was given.
    pub address: String,
    /// Use of TLS.
    pub tls: TlsMode,
}

impl FromStr for ListenerTls {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, mode) = text.split_once('=').unwrap_or_default();
        let tls = TlsMode::from_str(mode, false);
        match (address.is_empty(), tls) {
            (false, Ok(tls)) => Ok(ListenerTls { address: address.to_owned(), tls }),
            _ => Err("write ADDRESS=off, ADDRESS=allowed or ADDRESS=required".to_owned()),
        }
    }
}

/// A host, and the file with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostTlsKeyFile {
    /// Its NQN.
    pub host: String,
    /// The file.
    pub file: PathBuf,
}

impl FromStr for HostTlsKeyFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, file) = text.split_once('=').unwrap_or_default();
        if host.is_empty() || file.is_empty() {
            return Err("write HOSTNQN=FILE".to_owned());
        }
        Ok(HostTlsKeyFile { host: host.to_owned(), file: file.into() })
    }
}

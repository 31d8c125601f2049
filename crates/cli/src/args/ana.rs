//! ANA states of the paths to a target's namespaces, and its range of controller IDs.

use clap::ValueEnum;
use roadtrain_target_engine::AnaState;
use roadtrain_target_proto::TargetLimits;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// ANA state of the path that a listener gives to the namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnaName {
    /// As good as can be.
    Optimized,
    /// Used only by hosts that have no optimized path.
    NonOptimized,
    /// Used by no host: I/O is refused, and hosts use other paths or wait.
    Inaccessible,
    /// Lost for good: hosts that have received this state do not use the path again before they reconnect.
    PersistentLoss,
    /// About to have another state, which has to come within 10 s.
    Change,
}

impl From<AnaName> for AnaState {
    fn from(name: AnaName) -> AnaState {
        match name {
            AnaName::Optimized => AnaState::Optimized,
            AnaName::NonOptimized => AnaState::NonOptimized,
            AnaName::Inaccessible => AnaState::Inaccessible,
            AnaName::PersistentLoss => AnaState::PersistentLoss,
            AnaName::Change => AnaState::Change,
        }
    }
}

/// Listener: ADDRESS:PORT, `[IPv6]:PORT`, an address alone, or `ether`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum AnaPort {
    /// Over TCP.
    Tcp {
        /// Address or name, without brackets.
        address: String,
        /// TCP port; `None`: the default port of all listeners.
        port: Option<u16>,
    },
    /// Over Ethernet without IP, on any interface.
    Ether,
}

impl FromStr for AnaPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unfit = || format!("'{text}': write ADDRESS:PORT, [IPv6]:PORT or ether");
        let plain = text.strip_prefix("tcp:").unwrap_or(text);
        if plain == "ether" {
            return Ok(AnaPort::Ether);
        }
        let (address, port) = match plain.strip_prefix('[') {
            Some(rest) => {
                let (address, port) = rest.split_once(']').ok_or_else(unfit)?;
                let port = if port.is_empty() { None } else { port.strip_prefix(':') };
                (address, port)
            }
            // An IPv6 address without brackets has no port behind it.
            None if plain.matches(':').count() > 1 => (plain, None),
            None => plain.split_once(':').map_or((plain, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map(str::parse).transpose().map_err(|_| unfit())?;
        if address.is_empty() || port == Some(0) {
            return Err(unfit());
        }
        Ok(AnaPort::Tcp { address: address.to_owned(), port })
    }
}

impl fmt::Display for AnaPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AnaPort::Tcp { address, port } = self else { return f.write_str("ether") };
        match (address.contains(':'), port) {
            (true, Some(port)) => write!(f, "[{address}]:{port}"),
            (false, Some(port)) => write!(f, "{address}:{port}"),
            (_, None) => f.write_str(address),
        }
    }
}

impl TryFrom<String> for AnaPort {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<AnaPort> for String {
    fn from(port: AnaPort) -> String {
        port.to_string()
    }
}

/// A listener with the ANA state of its paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerAna {
    /// The listener.
    pub port: AnaPort,
    /// ANA state.
    pub state: AnaName,
}

impl FromStr for ListenerAna {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (port, state) = text.split_once('=').unwrap_or((text, ""));
        let state = match AnaName::from_str(state, false) {
            // The other states are temporary, or only mean something to connected hosts.
            Ok(state) if state as u8 <= AnaName::Inaccessible as u8 => state,
            _ => {
                return Err(
                    "write ADDRESS:PORT=optimized, ADDRESS:PORT=non-optimized or ADDRESS:PORT=inaccessible"
                        .to_owned(),
                );
            }
        };
        Ok(ListenerAna { port: port.parse()?, state })
    }
}

/// Controller IDs from `min` to `max`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CntlidRange {
    /// The smallest, 1 at least.
    pub min: u16,
    /// The largest.
    pub max: u16,
}

impl FromStr for CntlidRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u16>().ok();
        let ends = text.split_once('-').and_then(|(min, max)| Some((number(min)?, number(max)?)));
        match ends {
            Some((min, max)) if min >= 1 && min <= max && max <= TargetLimits::CNTLID_MAX => {
                Ok(CntlidRange { min, max })
            }
            _ => Err(format!("'{text}': write MIN-MAX, within 1-{}", TargetLimits::CNTLID_MAX)),
        }
    }
}

impl fmt::Display for CntlidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.min, self.max)
    }
}

impl TryFrom<String> for CntlidRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<CntlidRange> for String {
    fn from(range: CntlidRange) -> String {
        range.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_written_as_they_are_read() {
        let tcp = |address: &str, port| AnaPort::Tcp { address: address.into(), port };
        for (text, port) in [
            ("127.0.0.1:4421", tcp("127.0.0.1", Some(4421))),
            ("[2001:db8::1]:4421", tcp("2001:db8::1", Some(4421))),
            ("2001:db8::1", tcp("2001:db8::1", None)),
            ("storage.example:4420", tcp("storage.example", Some(4420))),
            ("127.0.0.1", tcp("127.0.0.1", None)),
            ("ether", AnaPort::Ether),
        ] {
            assert_eq!(text.parse(), Ok(port.clone()));
            assert_eq!(port.to_string(), text);
        }
        assert_eq!("[::1]".parse(), Ok(tcp("::1", None)));
        assert_eq!("tcp:127.0.0.1:4420".parse(), Ok(tcp("127.0.0.1", Some(4420))));
        for nonsense in ["", ":4420", "h:0", "h:70000", "h:x", "[::1", "[]:1", "[::1]:x"] {
            assert!(nonsense.parse::<AnaPort>().is_err(), "{nonsense}");
        }
    }

    #[test]
    fn a_state_belongs_to_a_listener() {
        let at: ListenerAna = "[::1]:4420=non-optimized".parse().unwrap();
        assert_eq!((at.port.to_string().as_str(), at.state), ("[::1]:4420", AnaName::NonOptimized));
        for nonsense in ["", "h:1", "h:1=", "h:1=best", "=optimized", "h:1=change"] {
            assert!(nonsense.parse::<ListenerAna>().is_err(), "{nonsense}");
        }
        for name in AnaName::value_variants() {
            assert_eq!(AnaState::from(*name).name(), crate::args::word(name));
        }
    }

    #[test]
    fn ranges_are_within_what_there_is() {
        let range: CntlidRange = "1-65519".parse().unwrap();
        assert_eq!((range.min, range.max, range.to_string().as_str()), (1, 65519, "1-65519"));
        assert_eq!("7-7".parse(), Ok(CntlidRange { min: 7, max: 7 }));
        for nonsense in ["", "7", "0-5", "5-4", "1-65520", "a-b", "1-", "-1"] {
            assert!(nonsense.parse::<CntlidRange>().is_err(), "{nonsense}");
        }
    }
}

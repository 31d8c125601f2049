//! Addresses of servers.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Port that IANA reserves for NBD.
const PORT: u16 = 10809;
const EXAMPLE: &str = "write nbd:unix:/PATH or nbd:tcp:HOST:PORT (an IPv6 address in brackets)";

/// Address of a server: `unix:/PATH` or `tcp:HOST[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdServerAddress {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP socket.
    Tcp {
        /// Name or address; IPv6 addresses without brackets.
        host: String,
        /// Port.
        port: u16,
    },
}

impl NbdServerAddress {
    /// True if only this machine reaches it.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            NbdServerAddress::Unix(_) => true,
            NbdServerAddress::Tcp { host, .. } => {
                let address = host.parse::<std::net::IpAddr>();
                host == "localhost" || address.is_ok_and(|address| address.is_loopback())
            }
        }
    }
}

impl fmt::Display for NbdServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdServerAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            NbdServerAddress::Tcp { host, port } if host.contains(':') => {
                write!(f, "tcp:[{host}]:{port}")
            }
            NbdServerAddress::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

impl FromStr for NbdServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no address of an NBD server: {EXAMPLE}");
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(wrong()),
                path => Ok(NbdServerAddress::Unix(path.into())),
            };
        }
        let rest = text.strip_prefix("tcp:").ok_or_else(wrong)?;
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?;
                let port = if port.is_empty() { None } else { port.strip_prefix(':') };
                if port.is_none() && !rest.ends_with(']') {
                    return Err(wrong());
                }
                (host, port)
            }
            None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| wrong()))?;
        if host.is_empty() || port == 0 || host.contains('/') {
            return Err(wrong());
        }
        Ok(NbdServerAddress::Tcp { host: host.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_print_as_they_parse() {
        for text in
            ["unix:/run/x.sock", "unix:x", "tcp:127.0.0.1:10809", "tcp:[::1]:1", "tcp:a.b:2"]
        {
            assert_eq!(text.parse::<NbdServerAddress>().unwrap().to_string(), text);
        }
        let short = |text: &str| text.parse::<NbdServerAddress>().unwrap().to_string();
        assert_eq!(short("tcp:server"), "tcp:server:10809");
        assert_eq!(short("tcp:[::1]"), "tcp:[::1]:10809");
    }

    #[test]
    fn wrong_addresses_say_what_to_write() {
        for text in
            ["", "unix:", "tcp:", "tcp::1", "tcp:a:b", "tcp:a:0", "tcp:[::1", "tcp:[::1]1", "x"]
        {
            let error = text.parse::<NbdServerAddress>().expect_err(text);
            assert!(error.contains("nbd:unix:/PATH"), "{text}: {error}");
        }
    }

    #[test]
    fn local_addresses() {
        let is_local = |text: &str| text.parse::<NbdServerAddress>().unwrap().is_local();
        assert!(is_local("unix:/x") && is_local("tcp:127.0.0.2:1") && is_local("tcp:[::1]:1"));
        assert!(is_local("tcp:localhost:1") && !is_local("tcp:192.0.2.1:1"));
    }
}

//! Listening addresses of an NBD server.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Port that IANA reserves for NBD.
pub const NBD_PORT: u16 = 10809;

/// `nbd:unix:/path.sock` or `nbd:tcp:HOST:PORT` (the port is [`NBD_PORT`] when left out).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// A Unix socket at this path.
    Unix(PathBuf),
    /// A TCP socket.
    Tcp {
        /// Name or address, IPv6 addresses without brackets.
        host: String,
        /// Port; 0 lets the system choose.
        port: u16,
    },
}

impl NbdAddress {
    /// Returns the address as clients write it: `nbd+unix:///?socket=/path.sock` or `nbd://HOST:PORT`.
    pub fn uri(&self) -> String {
        match self {
            NbdAddress::Unix(path) => format!("nbd+unix:///?socket={}", escape(path)),
            NbdAddress::Tcp { host, port } => format!("nbd://{}", host_port(host, *port)),
        }
    }

    /// Returns the URI for clients that have to use TLS; they add their identity, and the place of their keys or
    /// certificates.
    pub(crate) fn uri_with_tls(&self) -> String {
        self.uri().replacen("nbd", "nbds", 1)
    }
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdAddress::Unix(path) => write!(f, "nbd:unix:{}", path.display()),
            NbdAddress::Tcp { host, port } => write!(f, "nbd:tcp:{}", host_port(host, *port)),
        }
    }
}

/// Escapes a path as a part of a URI.
fn escape(path: &Path) -> String {
    let mut text = String::new();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' | b':' | b'@' => text.push(byte.into()),
            byte if byte.is_ascii_alphanumeric() => text.push(byte.into()),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Error of a text that is no [`NbdAddress`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressError(String);

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (wanted: nbd:unix:/PATH or nbd:tcp:HOST:PORT)", self.0)
    }
}

impl std::error::Error for AddressError {}

impl FromStr for NbdAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = |what: &str| AddressError(format!("`{text}`: {what}"));
        let rest = text.strip_prefix("nbd:").ok_or_else(|| error("does not begin with `nbd:`"))?;
        if let Some(path) = rest.strip_prefix("unix:") {
            return match path {
                "" => Err(error("no path")),
                path => Ok(NbdAddress::Unix(PathBuf::from(path))),
            };
        }
        let rest = rest.strip_prefix("tcp:").ok_or_else(|| error("neither unix nor tcp"))?;
        let wanted =
            "write HOST:PORT, such as nbd:tcp:127.0.0.1:10809 (an IPv6 address in brackets)";
        let (host, port) = split_host_port(rest).ok_or_else(|| error(wanted))?;
        if host.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(error(wanted));
        }
        Ok(NbdAddress::Tcp { host: host.to_owned(), port })
    }
}

fn split_host_port(text: &str) -> Option<(&str, u16)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, tail) = rest.split_once(']')?;
        let port = if tail.is_empty() { NBD_PORT } else { tail.strip_prefix(':')?.parse().ok()? };
        return (!host.is_empty()).then_some((host, port));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (text, NBD_PORT),
    };
    // An IPv6 address without brackets would be ambiguous: it could end in a port or not.
    (!host.is_empty() && !host.contains(':')).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> NbdAddress {
        NbdAddress::Tcp { host: host.into(), port }
    }

    #[test]
    fn addresses_parse() {
        assert_eq!("nbd:unix:/run/a b.sock".parse(), Ok(NbdAddress::Unix("/run/a b.sock".into())));
        assert_eq!("nbd:tcp:127.0.0.1:7".parse(), Ok(tcp("127.0.0.1", 7)));
        assert_eq!("nbd:tcp:localhost".parse(), Ok(tcp("localhost", NBD_PORT)));
        assert_eq!("nbd:tcp:[::1]:7".parse(), Ok(tcp("::1", 7)));
        assert_eq!("nbd:tcp:[::1]".parse(), Ok(tcp("::1", NBD_PORT)));
    }

    #[test]
    fn nonsense_is_refused_with_a_hint() {
        for text in [
            "",
            "nbd:",
            "tcp:a:1",
            "nbd:unix:",
            "nbd:udp:a:1",
            "nbd:tcp::1",
            "nbd:tcp:a:x",
            "nbd:tcp:[a",
        ] {
            let error = text.parse::<NbdAddress>().unwrap_err().to_string();
            assert!(error.contains("nbd:unix:/PATH"), "{error}");
        }
        assert!("nbd:tcp:::1".parse::<NbdAddress>().is_err(), "ambiguous");
        assert!("nbd:tcp:a:70000".parse::<NbdAddress>().is_err(), "port out of range");
    }

    #[test]
    fn addresses_print_as_they_parse() {
        for text in ["nbd:unix:/run/a.sock", "nbd:tcp:a:1", "nbd:tcp:[::1]:2"] {
            assert_eq!(text.parse::<NbdAddress>().unwrap().to_string(), text);
        }
        assert_eq!(tcp("::1", 3).uri(), "nbd://[::1]:3");
        let uri = NbdAddress::Unix("/run/a b&c%41.sock".into()).uri();
        assert_eq!(uri, "nbd+unix:///?socket=/run/a%20b%26c%2541.sock");
    }
}

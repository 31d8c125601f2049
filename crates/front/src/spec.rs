//! Front-end specifications, as written after `--as`.

use crate::nbd::NbdAddress;
use crate::system_resource::SystemResource;
use crate::vhost_user;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// `nbd:unix:/PATH`, `nbd:tcp:HOST:PORT`, `fuse:/MOUNTPOINT`, `ublk[:ID]` or `vhost-user:/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrontSpec {
    /// An NBD server.
    Nbd(NbdAddress),
    /// A file for each namespace in a file system mounted there.
    Fuse(PathBuf),
    /// A kernel block device, `/dev/ublkbN`; `None` lets the kernel choose the number.
    Ublk(Option<u32>),
    /// A disk of virtual machines whose monitor connects to this Unix socket; with a slash at the end a
    /// directory with a socket for each namespace.
    VhostUser(PathBuf),
}

/// The front-ends, without their parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontKind {
    /// `nbd`
    Nbd,
    /// `fuse`
    Fuse,
    /// `ublk`
    Ublk,
    /// `vhost-user`
    VhostUser,
}

impl FrontSpec {
    /// Returns the kind of the front-end.
    #[must_use]
    pub fn kind(&self) -> FrontKind {
        match self {
            FrontSpec::Nbd(_) => FrontKind::Nbd,
            FrontSpec::Fuse(_) => FrontKind::Fuse,
            FrontSpec::Ublk(_) => FrontKind::Ublk,
            FrontSpec::VhostUser(_) => FrontKind::VhostUser,
        }
    }

    /// Returns the resources that a killed process with this front-end leaves, as far as they are known beforehand. No
    /// two attachments may share one.
    #[must_use]
    pub fn resources(&self) -> Vec<SystemResource> {
        match self {
            FrontSpec::VhostUser(path) if vhost_user::is_directory(path) => Vec::new(),
            FrontSpec::Nbd(NbdAddress::Unix(path)) | FrontSpec::VhostUser(path) => {
                vec![SystemResource::Socket(path.clone())]
            }
            FrontSpec::Fuse(path) => vec![SystemResource::Mount(path.clone())],
            FrontSpec::Ublk(Some(id)) => vec![SystemResource::Ublk(*id)],
            FrontSpec::Nbd(NbdAddress::Tcp { .. }) | FrontSpec::Ublk(None) => Vec::new(),
        }
    }

    /// Makes relative paths absolute, for a process in another directory.
    ///
    /// # Errors
    /// Fails if the current directory is not available.
    pub fn absolute(self) -> std::io::Result<Self> {
        let path = |path: PathBuf| std::path::absolute(path);
        Ok(match self {
            FrontSpec::Nbd(NbdAddress::Unix(p)) => FrontSpec::Nbd(NbdAddress::Unix(path(p)?)),
            FrontSpec::Fuse(p) => FrontSpec::Fuse(path(p)?),
            FrontSpec::VhostUser(p) => FrontSpec::VhostUser(path(p)?),
            other => other,
        })
    }
}

impl fmt::Display for FrontKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FrontKind::Nbd => "nbd",
            FrontKind::Fuse => "fuse",
            FrontKind::Ublk => "ublk",
            FrontKind::VhostUser => "vhost-user",
        })
    }
}

impl fmt::Display for FrontSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrontSpec::Nbd(address) => address.fmt(f),
            FrontSpec::Fuse(path) | FrontSpec::VhostUser(path) => {
                write!(f, "{}:{}", self.kind(), path.display())
            }
            FrontSpec::Ublk(None) => f.write_str("ublk"),
            FrontSpec::Ublk(Some(id)) => write!(f, "ublk:{id}"),
        }
    }
}

/// Error of a text that is no [`FrontSpec`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(String);

const WANTED: &str =
    "nbd:unix:/PATH, nbd:tcp:HOST:PORT, fuse:/MOUNTPOINT, ublk, ublk:ID or vhost-user:/PATH";

impl FromStr for FrontSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let wrong = |what: &str| SpecError(format!("`{text}`: {what} (wanted: {WANTED})"));
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        let path = || match rest {
            None | Some("") => Err(wrong("no path")),
            Some(path) => Ok(PathBuf::from(path)),
        };
        match kind {
            "nbd" => text.parse().map(FrontSpec::Nbd).map_err(|e| SpecError(format!("{e}"))),
            "fuse" => path().map(FrontSpec::Fuse),
            "vhost-user" => path().map(FrontSpec::VhostUser),
            "ublk" => {
                let id = rest.map(str::parse).transpose();
                id.map(FrontSpec::Ublk).map_err(|_| wrong("the ID is a number"))
            }
            _ => Err(wrong("no such front-end")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_print_as_they_parse() {
        for (text, kind) in [
            ("nbd:unix:/run/a b.sock", FrontKind::Nbd),
            ("nbd:tcp:[::1]:7", FrontKind::Nbd),
            ("fuse:/mnt/rt", FrontKind::Fuse),
            ("ublk", FrontKind::Ublk),
            ("ublk:3", FrontKind::Ublk),
            ("vhost-user:/run/v.sock", FrontKind::VhostUser),
        ] {
            let spec: FrontSpec = text.parse().unwrap();
            assert_eq!((spec.kind(), spec.to_string().as_str()), (kind, text));
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_hint() {
        for text in ["", "disk", "fuse", "fuse:", "ublk:", "ublk:x", "ublk:-1", "vhost-user:"] {
            let error = text.parse::<FrontSpec>().unwrap_err().to_string();
            assert!(error.contains("fuse:/MOUNTPOINT"), "{error}");
        }
        let error = "nbd:udp:x".parse::<FrontSpec>().unwrap_err().to_string();
        assert!(error.contains("nbd:unix:/PATH"), "{error}");
    }

    #[test]
    fn exclusive_resources_are_known_beforehand() {
        let resources = |text: &str| {
            let spec: FrontSpec = text.parse().unwrap();
            spec.resources().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(resources("nbd:unix:/a"), resources("vhost-user:/a"), "the same socket");
        assert_eq!(resources("vhost-user:/d/"), "", "sockets in a directory are not known yet");
        assert_eq!(resources("fuse:/m"), "mount:/m");
        assert_eq!(resources("ublk:2"), "ublk:2");
        assert_eq!(resources("ublk"), "");
        assert_eq!(resources("nbd:tcp:a:1"), "");
    }

    #[test]
    fn paths_become_absolute() {
        let spec: FrontSpec = "fuse:x".parse().unwrap();
        let FrontSpec::Fuse(path) = spec.absolute().unwrap() else { panic!() };
        assert!(path.is_absolute() && path.ends_with("x"));
        let spec: FrontSpec = "vhost-user:d/".parse().unwrap();
        assert!(spec.absolute().unwrap().to_string().ends_with("/d/"), "it stays a directory");
    }
}

//! TLS for clients over TCP: with pre-shared keys, or with certificates. The files are those that nbdkit, QEMU and
//! libnbd use.

use roadtrain_reactor::clients::{Acceptor, Certificates, key_of, keys};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use tracing::warn;
use zeroize::Zeroizing;

/// Longest file of keys or certificates, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Files of keys or certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdTls {
    /// File with lines `user:key`, as psktool writes it. It is read for each client, so it may change.
    Keys(PathBuf),
    /// Directory with `server-cert.pem` and `server-key.pem`.
    Certificates {
        /// Path of the directory.
        directory: PathBuf,
        /// True if clients need a certificate that `ca-cert.pem` has signed.
        verifies_clients: bool,
    },
}

impl NbdTls {
    /// Returns the acceptor of TLS clients.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or is invalid.
    pub(crate) fn acceptor(&self) -> io::Result<Acceptor> {
        match self {
            NbdTls::Keys(path) => {
                keys(&text(path)?).map_err(|error| wrong(path, error))?;
                let path = path.clone();
                Acceptor::new(move |user| find_key(&path, user)).map_err(io::Error::other)
            }
            NbdTls::Certificates { directory, verifies_clients } => {
                let file = |name| read(&directory.join(name));
                let clients = if *verifies_clients { Some(clients(directory)?) } else { None };
                let (chain, key) = (file("server-cert.pem")?, file("server-key.pem")?);
                let clients = clients.as_ref().map(|clients| &clients[..]);
                let certificates = Certificates { chain: &chain, key: &key, clients };
                Acceptor::with_certificates(certificates).map_err(|error| wrong(directory, error))
            }
        }
    }
}

/// Reads the certificates that sign clients' certificates.
fn clients(directory: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let revoked = directory.join("ca-crl.pem");
    if revoked.exists() {
        let what =
            "revoked certificates are not known here, so clients that have one would come in";
        return Err(io::Error::new(
            ErrorKind::Unsupported,
            format!("{}: {what}", revoked.display()),
        ));
    }
    read(&directory.join("ca-cert.pem"))
}

/// Returns the key of `user` in the current file.
fn find_key(path: &Path, user: &str) -> Option<roadtrain_proto::security::TlsPsk> {
    let found = text(path).and_then(|text| key_of(&text, user).map_err(|error| wrong(path, error)));
    found.unwrap_or_else(|error| {
        warn!("an NBD client is refused: {error}");
        None
    })
}

fn wrong(path: &Path, error: impl std::fmt::Display) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("{}: {error}", path.display()))
}

fn text(path: &Path) -> io::Result<Zeroizing<String>> {
    let bytes = read(path)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| wrong(path, "it is not text"))?;
    Ok(Zeroizing::new(text.to_owned()))
}

fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(named)?;
    let length = file.metadata().map_err(named)?.len();
    if length > FILE_BYTES_MAX {
        return Err(wrong(path, "it is too long"));
    }
    // Read at once: a buffer that grows would leave copies of the key behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(length as usize + 1));
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(named)?;
    Ok(bytes)
}

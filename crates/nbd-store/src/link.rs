//! Connections to an export: address, TLS, handshake.

use crate::stream::{ConnectDeadline, NbdStream, NbdStreamError};
use crate::{NbdClientHandshake, NbdHandshakeStep, NbdServerAddress, NbdTerms};
use roadtrain_proto::security::TlsPsk;
use roadtrain_tls::{ClientCertificates, Handshake, keys};
use roadtrain_wire::nbd::transmission_flag;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing::debug;
use zeroize::Zeroizing;

/// Longest file of keys or certificates, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Files for TLS, as nbdkit, QEMU and libnbd name them. They are read for each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdTlsFiles {
    /// File with lines `user:key`, as psktool writes it.
    Keys {
        /// Path of the file.
        path: PathBuf,
        /// User whose key is used; `None`: the only one of the file.
        user: Option<String>,
    },
    /// Directory with `ca-cert.pem`, and for a server that wants a certificate, `client-cert.pem` and `client-key.pem`.
    Certificates {
        /// Path of the directory.
        directory: PathBuf,
        /// Name or address in the server's certificate; `None`: the one that is connected to.
        hostname: Option<String>,
    },
}

impl NbdTlsFiles {
    /// Starts the handshake with the server at `address`.
    fn handshake(&self, address: &NbdServerAddress) -> Result<Handshake, NbdStreamError> {
        match self {
            NbdTlsFiles::Keys { path, user } => {
                Ok(Handshake::connect(find_key(path, user.as_deref())?)?)
            }
            NbdTlsFiles::Certificates { directory, hostname } => {
                let file = |name: &str| read(&directory.join(name));
                let trusted = file("ca-cert.pem")?;
                let own = match directory.join("client-cert.pem").exists() {
                    true => Some((file("client-cert.pem")?, file("client-key.pem")?)),
                    false => None,
                };
                let own = own.as_ref().map(|(chain, key)| (&chain[..], &key[..]));
                let name = match (hostname, address) {
                    (Some(name), _) => name,
                    (None, NbdServerAddress::Tcp { host, .. }) => host,
                    (None, NbdServerAddress::Unix(_)) => "localhost",
                };
                let certificates = ClientCertificates { trusted: &trusted, own };
                Handshake::connect_trusting(certificates, name).map_err(|error| {
                    NbdStreamError::Files(format!("{}: {error}", directory.display()))
                })
            }
        }
    }
}

fn find_key(path: &Path, user: Option<&str>) -> Result<TlsPsk, NbdStreamError> {
    let wrong = |problem: String| NbdStreamError::Files(format!("{}: {problem}", path.display()));
    let bytes = read(path)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| wrong("it is not text".into()))?;
    let mut keys = keys(text).map_err(|error| wrong(error.to_string()))?;
    match user {
        Some(user) => {
            let key = keys.into_iter().find(|key| key.identity == user);
            key.ok_or_else(|| wrong(format!("it has no key of the user {user}")))
        }
        None if keys.len() > 1 => {
            Err(wrong(format!("it has {} keys: name a user with tls-user=NAME", keys.len())))
        }
        None => keys.pop().ok_or_else(|| wrong("it has no key".into())),
    }
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, NbdStreamError> {
    let named = |error: io::Error| NbdStreamError::Files(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(named)?;
    let length = file.metadata().map_err(named)?.len();
    if length > FILE_BYTES_MAX {
        return Err(NbdStreamError::Files(format!("{}: it is too long", path.display())));
    }
    // Read at once: a buffer that grows would leave copies of the key behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(length as usize + 1));
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(named)?;
    Ok(bytes)
}

/// Everything that is needed to connect to an export.
#[derive(Clone, Debug)]
pub(crate) struct NbdLink {
    pub(crate) address: NbdServerAddress,
    pub(crate) export: String,
    pub(crate) tls: Option<NbdTlsFiles>,
    /// Maximum number of connections, where the server allows several.
    pub(crate) connections: usize,
    pub(crate) connect_timeout: Duration,
    /// Block size that hosts should see.
    pub(crate) lba_bytes: u32,
}

/// Connections to an export.
pub(crate) struct NbdConnections {
    pub(crate) terms: NbdTerms,
    pub(crate) streams: Vec<NbdStream>,
}

impl NbdLink {
    /// Makes all connections.
    ///
    /// # Errors
    /// The first one cannot be made, or the export cannot be used.
    pub(crate) fn connect(&self) -> Result<NbdConnections, NbdStreamError> {
        let (first, terms) = self.connect_one()?;
        terms.lba_bytes(self.lba_bytes)?;
        let mut streams = vec![first];
        if terms.has(transmission_flag::CAN_MULTI_CONN) {
            while streams.len() < self.connections {
                match self.connect_one() {
                    Ok((stream, other)) if other == terms => streams.push(stream),
                    Ok(_) => break,
                    Err(error) => {
                        debug!("{}: {} connections: {error}", self.address, streams.len());
                        break;
                    }
                }
            }
        }
        Ok(NbdConnections { terms, streams })
    }

    fn connect_one(&self) -> Result<(NbdStream, NbdTerms), NbdStreamError> {
        let deadline = ConnectDeadline::new(self.connect_timeout);
        let mut stream = NbdStream::connect(&self.address, deadline)?;
        let mut handshake = NbdClientHandshake::new(&self.export, self.tls.is_some());
        loop {
            let mut place = vec![0; handshake.wanted()];
            stream.read_exact(&mut place, deadline)?;
            let step = handshake.receive(&place)?;
            let outgoing = handshake.take_outgoing();
            match (step, &self.tls) {
                (NbdHandshakeStep::Done(terms), _) => return Ok((stream, terms)),
                (NbdHandshakeStep::StartTls, Some(tls)) => {
                    stream.secure(tls.handshake(&self.address)?, deadline)?;
                    stream.write_all(&outgoing, deadline)?;
                }
                _ => stream.write_all(&outgoing, deadline)?,
            }
        }
    }
}

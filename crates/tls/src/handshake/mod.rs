//! The handshake, by s2n-tls: octets in, octets out, and in the end the keys.

mod library;

use crate::error::{DECRYPT_ERROR, UNKNOWN_PSK_IDENTITY};
use crate::hello::{HANDSHAKE_BYTES_MAX, identities};
use crate::open::Opener;
use crate::record::{CONTENT_TYPE_HANDSHAKE, RecordEnd};
use crate::schedule::TrafficSecret;
use crate::seal::Sealer;
use crate::{Error, suite};
use library::Pipes;
use roadtrain_proto::security::{Secret, Suite, TlsPsk};
use s2n_tls::callbacks::{ClientHelloCallback, ConnectionFuture, VerifyHostNameCallback};
use s2n_tls::config::Config;
use s2n_tls::connection::Connection;
use s2n_tls::enums::{Blinding, ClientAuthType, Mode, SerializationVersion};
use s2n_tls::error::Error as LibraryError;
use s2n_tls::security::DEFAULT_TLS13;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use zeroize::Zeroizing;

/// What a target sends that refuses a ClientHello: the same, whatever was wrong with it, but for PSKs that were made by
/// authentication.
pub const FATAL_DECRYPT_ERROR: [u8; 7] = fatal(DECRYPT_ERROR);
/// The refusal of a PSK that was made by authentication and is not known, perhaps not any more: the host is to
/// authenticate again.
pub const FATAL_UNKNOWN_PSK_IDENTITY: [u8; 7] = fatal(UNKNOWN_PSK_IDENTITY);
/// Characters of a peer's identity that a message shows.
const SHOWN_CHARS_MAX: usize = 600;

/// What a handshake has made.
pub struct Keys {
    /// For what we send.
    pub sealer: Sealer,
    /// For what we receive.
    pub opener: Opener,
    /// Of the key that both have; empty where certificates say who somebody is.
    pub identity: String,
    /// Its suite.
    pub suite: Suite,
    /// Octets after the handshake that have come with it.
    pub rest: Vec<u8>,
    /// Blocks of AES that each of the two keys takes.
    pub blocks_max: u64,
    /// Whether we are the host.
    pub is_host: bool,
}

/// Which key an identity has.
type LookUp = dyn Fn(&str) -> Option<TlsPsk> + Send + Sync;

/// How a server proves who it is without a key that clients have, and whether clients prove who they are. All are
/// in PEM.
#[derive(Clone, Copy)]
pub struct Certificates<'a> {
    /// The server's certificate, and those between it and what clients trust.
    pub chain: &'a [u8],
    /// Its private key.
    pub key: &'a [u8],
    /// Those that sign the certificates that clients need; `None`: clients need none.
    pub clients: Option<&'a [u8]>,
}

/// What a server's handshakes have in common.
pub struct Acceptor {
    config: Config,
    has_certificate: bool,
}

/// Whom a client's certificate names is not asked: who signed it decides.
struct AnyName;

impl VerifyHostNameCallback for AnyName {
    fn verify_host_name(&self, _: &str) -> bool {
        true
    }
}

/// What a host has offered. The callback that chooses its key writes it.
type Offer = Arc<Mutex<Option<Choice>>>;

/// What became of a host's offer.
struct Choice {
    psk: Option<TlsPsk>,
    /// Of those offered, the one that counts.
    identity: String,
}

struct Chooser(Box<LookUp>);

impl ClientHelloCallback for Chooser {
    fn on_client_hello(
        &self,
        connection: &mut Connection,
    ) -> Result<Option<Pin<Box<dyn ConnectionFuture>>>, LibraryError> {
        let hello = connection.client_hello()?.raw_message()?;
        let offered = identities(&hello).unwrap_or_default();
        let known = offered.iter().find_map(|identity| (self.0)(identity));
        let first = offered.first().map(|identity| (*identity).to_owned());
        let identity = known.as_ref().map(|psk| psk.identity.clone()).or(first);
        let identity = identity.unwrap_or_default();
        // Who is not known is refused at the same point, in the same way and after as much work as who has a wrong key.
        match &known {
            Some(psk) => append(connection, psk)?,
            None if identity.is_empty() => {}
            None => append(connection, &decoy(&identity).map_err(application)?)?,
        }
        if let Some(offer) = connection.application_context::<Offer>() {
            *offer.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(Choice { psk: known, identity });
        }
        Ok(None)
    }
}

/// The record of a fatal alert, in the clear.
const fn fatal(alert: u8) -> [u8; 7] {
    [0x15, 3, 3, 0, 2, 2, alert]
}

fn application(error: Error) -> LibraryError {
    LibraryError::application(Box::new(error))
}

/// A key that nobody has.
fn decoy(identity: &str) -> Result<TlsPsk, Error> {
    let mut secret = Zeroizing::new([0; 32]);
    aws_lc_rs::rand::fill(&mut *secret).map_err(|_| Error::Library("random numbers".into()))?;
    let psk = Secret::new(&*secret);
    Ok(TlsPsk { identity: identity.to_owned(), psk, suite: Suite::Aes128GcmSha256 })
}

fn append(connection: &mut Connection, psk: &TlsPsk) -> Result<(), LibraryError> {
    let mut builder = s2n_tls::psk::Psk::builder()?;
    builder.set_identity(psk.identity.as_bytes())?;
    builder.set_secret(psk.psk.reveal())?;
    builder.set_hmac(suite::psk_hmac(psk.suite))?;
    connection.append_psk(&builder.build()?)
}

fn library(error: LibraryError) -> Error {
    Error::Library(format!("{}: {}", error.name(), error.message()))
}

impl Acceptor {
    /// Takes hosts whose identity `look_up` has a key for.
    ///
    /// # Errors
    /// The library's.
    pub fn new(
        look_up: impl Fn(&str) -> Option<TlsPsk> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let mut builder = config().map_err(library)?;
        builder.set_client_hello_callback(Chooser(Box::new(look_up))).map_err(library)?;
        Ok(Acceptor { config: builder.build().map_err(library)?, has_certificate: false })
    }

    /// Takes clients that trust `certificates`, and that have one themselves if that is asked for.
    ///
    /// # Errors
    /// They are no certificates, or the key is not theirs.
    pub fn with_certificates(certificates: Certificates<'_>) -> Result<Self, Error> {
        let mut builder = config().map_err(library)?;
        builder.load_pem(certificates.chain, certificates.key).map_err(library)?;
        if let Some(clients) = certificates.clients {
            builder.trust_pem(clients).map_err(library)?;
            builder.set_client_auth_type(ClientAuthType::Required).map_err(library)?;
            builder.set_verify_host_callback(AnyName).map_err(library)?;
        }
        Ok(Acceptor { config: builder.build().map_err(library)?, has_certificate: true })
    }

    /// A host has connected.
    ///
    /// # Errors
    /// The library's.
    pub fn accept(&self) -> Result<Handshake, Error> {
        let mut library = connection(Mode::Server, &self.config)?;
        if self.has_certificate {
            return Ok(Handshake::new(library, Side::Certified));
        }
        // The library asks for a waker as soon as there is a callback; ours never waits.
        library.set_waker(Some(std::task::Waker::noop())).map_err(self::library)?;
        let offer = Offer::default();
        library.set_application_context(offer.clone());
        Ok(Handshake::new(library, Side::Target(offer)))
    }
}

fn config() -> Result<s2n_tls::config::Builder, LibraryError> {
    let mut builder = Config::builder();
    builder.set_security_policy(&DEFAULT_TLS13)?;
    builder.set_serialization_version(SerializationVersion::V1)?;
    // No certificate counts; reading the system's takes 4 ms, the handshake a tenth of one.
    builder.with_system_certs(false)?;
    Ok(builder)
}

fn connection(mode: Mode, config: &Config) -> Result<Connection, Error> {
    let mut connection = Connection::new(mode);
    connection.set_config(config.clone()).map_err(library)?;
    // Otherwise an error makes the library wait for seconds, against a side channel that AES-GCM does not have.
    connection.set_blinding(Blinding::SelfService).map_err(library)?;
    Ok(connection)
}

enum Side {
    Host(TlsPsk),
    Target(Offer),
    /// A server with a certificate.
    Certified,
}

/// A handshake under way.
pub struct Handshake {
    pipes: Pipes,
    side: Side,
    received: usize,
    record: RecordEnd,
    is_done: bool,
    /// Something that only a peer could understand that has gone on with the handshake.
    has_sent: bool,
}

impl Handshake {
    /// Connects to a target that knows `psk`.
    ///
    /// # Errors
    /// The library's.
    pub fn connect(psk: TlsPsk) -> Result<Self, Error> {
        let config = config().and_then(s2n_tls::config::Builder::build).map_err(library)?;
        let mut library = connection(Mode::Client, &config)?;
        append(&mut library, &psk).map_err(self::library)?;
        let mut handshake = Handshake::new(library, Side::Host(psk));
        handshake.advance()?;
        Ok(handshake)
    }

    fn new(library: Connection, side: Side) -> Self {
        let pipes = Pipes::new(library);
        let record = RecordEnd::default();
        Handshake { pipes, side, received: 0, record, is_done: false, has_sent: false }
    }

    /// Octets to the end of the header or of the record that comes, which are to be received next. Who receives no more
    /// has none that come after the handshake.
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.record.left()
    }

    /// Goes on with what the peer has sent.
    ///
    /// # Errors
    /// The handshake has failed. A target sends what is [`Handshake::outgoing`] before it closes the connection.
    pub fn receive(&mut self, octets: &[u8]) -> Result<(), Error> {
        let is_target = !matches!(self.side, Side::Host(_));
        if let Some(&kind) = octets.first().filter(|_| is_target && self.received == 0)
            && kind != CONTENT_TYPE_HANDSHAKE
        {
            return Err(Error::Plain);
        }
        self.received += octets.len();
        self.record.advance(octets);
        if !self.is_done && self.received > HANDSHAKE_BYTES_MAX {
            return Err(Error::TooLong);
        }
        self.pipes.push(octets);
        self.advance()
    }

    fn advance(&mut self) -> Result<(), Error> {
        if self.is_done {
            return Ok(());
        }
        match self.pipes.negotiate() {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(())) => {
                self.is_done = true;
                Ok(())
            }
            Poll::Ready(Err(error)) => {
                let error = self.explain(&error);
                if !matches!(self.side, Side::Host(_)) && !self.has_sent {
                    self.pipes.outgoing().clear();
                    self.pipes.outgoing().extend(fatal(error.refusal()));
                }
                Err(error)
            }
        }
    }

    /// What the library says is right and tells users nothing.
    fn explain(&mut self, error: &LibraryError) -> Error {
        if let Some(code) = self.pipes.alert() {
            return Error::Alert(code);
        }
        let other = || Error::Handshake(format!("{}: {}", error.name(), error.message()));
        let Side::Target(offer) = &self.side else { return other() };
        match offer.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(Choice { identity, .. }) if identity.is_empty() => {
                Error::Handshake("the peer offers no pre-shared key".to_owned())
            }
            Some(Choice { psk: None, identity }) => Error::UnknownIdentity(shown(identity)),
            Some(Choice { identity, .. }) if !self.has_sent => Error::WrongKey(shown(identity)),
            _ => other(),
        }
    }

    /// What is to be sent; the caller takes it away.
    pub fn outgoing(&mut self) -> &mut Vec<u8> {
        let outgoing = self.pipes.outgoing();
        self.has_sent |= !outgoing.is_empty();
        outgoing
    }

    /// Whether [`Handshake::keys`] can be had.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// The keys, when it is done and everything was sent. Each takes `blocks_max` blocks of AES.
    ///
    /// # Errors
    /// The two have not agreed on the key and on its suite.
    pub fn keys(mut self, blocks_max: u64) -> Result<Keys, Error> {
        let identity = self.pipes.identity().map_err(library)?;
        let is_host = matches!(self.side, Side::Host(_));
        let psk = match &self.side {
            Side::Host(psk) => Some(psk.clone()),
            Side::Target(offer) => {
                let choice = offer.lock().unwrap_or_else(PoisonError::into_inner).take();
                choice.and_then(|choice| choice.psk)
            }
            Side::Certified => None,
        };
        let known = psk.as_ref().map_or(&[][..], |psk| psk.identity.as_bytes());
        let has_key = psk.is_some() != matches!(self.side, Side::Certified);
        if !has_key || known != identity {
            return Err(Error::Handshake("it is not secured by our key".into()));
        }
        let serialized = self.pipes.serialize().map_err(library)?;
        let (suite, [host, target]) = secrets(&serialized)?;
        if psk.as_ref().is_some_and(|psk| psk.suite != suite) {
            return Err(Error::Handshake("the key is not for this cipher suite".into()));
        }
        let (ours, theirs) = if is_host { (host, target) } else { (target, host) };
        Ok(Keys {
            sealer: Sealer::new(ours, blocks_max)?,
            opener: Opener::new(theirs, blocks_max, is_host)?,
            identity: psk.map(|psk| psk.identity).unwrap_or_default(),
            suite,
            rest: self.pipes.take_rest(),
            blocks_max,
            is_host,
        })
    }
}

/// An identity as a peer sent it, for a line of text.
fn shown(identity: &str) -> String {
    identity.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect()
}

/// The traffic secrets of host and target in a connection that s2n-tls has written down (version 1): u64 1, two octets
/// of the version of TLS, the suite, two sequence numbers, u16 fragment's length, secrets.
fn secrets(serialized: &[u8]) -> Result<(Suite, [TrafficSecret; 2]), Error> {
    const SECRETS: usize = 8 + 2 + 2 + 8 + 8 + 2;
    let cut_off = || Error::Library("the connection's secrets are not there".to_owned());
    let (head, secrets) = serialized.split_at_checked(SECRETS).ok_or_else(cut_off)?;
    let code = u16::from_be_bytes([head[10], head[11]]);
    let is_fresh =
        head[..8] == 1u64.to_be_bytes() && head[8..10] == [3, 4] && head[12..28] == [0; 16];
    let suite = suite::from_code(code).filter(|_| is_fresh);
    let suite = suite.ok_or_else(|| Error::Handshake(format!("cipher suite {code:#06x}")))?;
    let length = suite.hash().bytes();
    let (host, rest) = secrets.split_at_checked(length).ok_or_else(cut_off)?;
    let target = rest.get(..length).ok_or_else(cut_off)?;
    Ok((suite, [TrafficSecret::new(suite, host)?, TrafficSecret::new(suite, target)?]))
}

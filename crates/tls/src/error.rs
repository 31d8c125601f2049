//! Why a handshake or a connection ends.

/// The alert for an identity that is not known.
pub(crate) const UNKNOWN_PSK_IDENTITY: u8 = 115;
/// The alert for a key that is another one, and for most of what a target refuses.
pub(crate) const DECRYPT_ERROR: u8 = 51;

/// The alert of targets whose look-up of an identity fails.
const INTERNAL_ERROR: u8 = 80;

/// What the peer did, or what it does not know.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The peer has refused us.
    #[error("the peer sent the TLS alert {name} ({0})", name = alert_name(*.0))]
    Alert(u8),
    /// The host speaks as if there were no TLS.
    #[error("the connection does not begin with TLS, which is required here")]
    Plain,
    /// A record whose header or content cannot be.
    #[error("a TLS record that cannot be: {what} {value}")]
    Record {
        /// The field.
        what: &'static str,
        /// Its value.
        value: u32,
    },
    /// A record that was not sealed with our peer's key, or was altered.
    #[error("a TLS record whose tag is wrong")]
    Tag,
    /// More records without data than any peer needs.
    #[error("too many TLS records without data")]
    Idle,
    /// As much was sealed or opened with a key as AES-GCM allows.
    #[error("the TLS keys are used up: the connection has to be made again")]
    UsedUp,
    /// The peer's identity is not one that we have a key for.
    #[error("no key for the identity {0}")]
    UnknownIdentity(String),
    /// The peer has another key than we.
    #[error("the peer's key for the identity {0} is another one")]
    WrongKey(String),
    /// The handshake went wrong in another way.
    #[error("TLS handshake: {0}")]
    Handshake(String),
    /// The peer sends more than a handshake needs.
    #[error("a TLS handshake of more than {} octets", crate::hello::HANDSHAKE_BYTES_MAX)]
    TooLong,
    /// Of the library.
    #[error("TLS library: {0}")]
    Library(String),
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        std::io::Error::new(std::io::ErrorKind::InvalidData, error)
    }
}

impl Error {
    /// The alert by which a target refuses a ClientHello. Hosts whose PSK was made by authentication forget it, and
    /// authenticate again, only when they receive that the identity is not known (NVMe/TCP Transport 1.1, section
    /// 3.6.1.4: PSKs that are generated).
    #[must_use]
    pub(crate) fn refusal(&self) -> u8 {
        match self {
            Error::UnknownIdentity(identity) if is_generated(identity) => UNKNOWN_PSK_IDENTITY,
            _ => DECRYPT_ERROR,
        }
    }

    /// The alert that tells the peer.
    #[must_use]
    pub fn alert(&self) -> u8 {
        match self {
            Error::Record { what: "length", .. } => 22,
            Error::Record { .. } | Error::Idle | Error::Plain => 10,
            Error::Tag => 20,
            Error::UnknownIdentity(_) => self.refusal(),
            Error::WrongKey(_) | Error::Handshake(_) => DECRYPT_ERROR,
            Error::TooLong => 50,
            Error::Alert(_) | Error::UsedUp => 0,
            Error::Library(_) => 80,
        }
    }

    /// Whether the target may know the same key by another identity: it has refused the one that was offered, or cannot
    /// do anything with it.
    #[must_use]
    pub fn may_know_another(&self) -> bool {
        self.is_refusal() || matches!(self, Error::Alert(INTERNAL_ERROR))
    }

    /// Whether one of the two has refused the other's key: trying again does not help.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Error::Alert(code) => matches!(code, 20 | 40 | 47 | 48 | 49 | 51 | 71 | 115 | 116),
            Error::UnknownIdentity(_) | Error::WrongKey(_) => true,
            _ => false,
        }
    }
}

/// Whether an identity has the form of a PSK that authentication has made: `NVMe1G01 ..`.
fn is_generated(identity: &str) -> bool {
    matches!(identity.as_bytes(), [b'N', b'V', b'M', b'e', b'0' | b'1', b'G', ..])
}

fn alert_name(code: u8) -> &'static str {
    match code {
        0 => "close_notify",
        10 => "unexpected_message",
        20 => "bad_record_mac",
        22 => "record_overflow",
        40 => "handshake_failure",
        47 => "illegal_parameter",
        50 => "decode_error",
        51 => "decrypt_error",
        70 => "protocol_version",
        71 => "insufficient_security",
        80 => "internal_error",
        109 => "missing_extension",
        115 => "unknown_psk_identity",
        116 => "certificate_required",
        _ => "unknown",
    }
}

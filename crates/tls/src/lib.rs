//! TLS 1.3: the handshake, and the records after it. No sockets, no clock. NVMe/TCP uses it with pre-shared keys; a
//! server of another protocol may have a certificate instead.
//!
//! - [`Handshake`] is the library s2n-tls between two buffers. When it is done, it returns the [`TlsSessionKeys`] of both
//!   directions and is dropped.
//! - [`Sealer`] and [`Opener`] are the record layer: bytes of several buffers become records in one buffer, and records
//!   become bytes in several buffers. The cipher's pass over them is the only copy.
//! - [`TlsRecords`] combines both above a socket that sends and receives bytes in parts.
//!
//! This crate checks everything that a peer sends: lengths, types, tags, the order of messages, and their total size.

mod cipher;
mod control_record;
mod error;
mod frame;
mod handshake;
mod hello;
mod key_file;
mod open;
mod record;
mod records;
mod schedule;
mod seal;
mod suite;

pub use control_record::{
    ControlRecord, IDLE_MAX, KEY_UPDATE_MESSAGE, alert_message, parse_control_record,
};
pub use error::TlsError;
pub use frame::FrameCipher;
pub use handshake::{
    Acceptor, Certificates, ClientCertificates, FATAL_DECRYPT_ERROR, FATAL_UNKNOWN_PSK_IDENTITY,
    Handshake, TlsSessionKeys,
};
pub use hello::HANDSHAKE_BYTES_MAX;
pub use key_file::{KEY_BYTES_MIN, PskFileError, key_of, keys};
pub use open::{OpenedRecords, Opener};
pub use record::{
    CONTENT_BYTES_MAX, CONTENT_TYPE_ALERT, CONTENT_TYPE_DATA, CONTENT_TYPE_HANDSHAKE,
    RECORD_BYTES_MAX, sealed_blocks, sealed_bytes,
};
pub use records::{Incoming, RecordSocket, TlsRecords};
pub use roadtrain_proto::security::BLOCKS_MAX;
pub use schedule::TrafficSecret;
pub use seal::Sealer;

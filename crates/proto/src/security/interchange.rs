//! Written form of keys: a name, a hash, and the key's bytes with their CRC in base64.

use super::Secret;
use base64ct::{Base64, Encoding};
use core::fmt::Write;
use crc_fast::CrcAlgorithm::Crc32IsoHdlc;
use thiserror::Error;
use zeroize::Zeroizing;

/// Bytes of the CRC behind the key.
const CRC_BYTES: usize = 4;

/// Reason why a line is not a key. It shows no bytes of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    #[error("it does not have the form {0}:HH:BASE64:")]
    Form(&'static str),
    #[error("its hash is {hash:02}, and {form} has {known}")]
    Hash { form: &'static str, hash: u8, known: &'static str },
    #[error("its base64 is not valid")]
    Base64,
    #[error("it has {found} bytes, and a key of this kind has {expected}")]
    Length { found: usize, expected: &'static str },
    #[error("its CRC is wrong: it was not copied whole, or a character was changed")]
    Crc,
}

/// Returns the hash's number and the bytes of a line `form:HH:BASE64:`. Spaces and newlines around it are ignored.
pub(super) fn parse(form: &'static str, line: &str) -> Result<(u8, Secret), KeyError> {
    let wrong = KeyError::Form(form);
    let rest = line.trim().strip_prefix(form).and_then(|rest| rest.strip_prefix(':'));
    let (hash, rest) = rest.and_then(|rest| rest.split_once(':')).ok_or(wrong)?;
    let encoded = rest.strip_suffix(':').ok_or(wrong)?;
    if hash.len() != 2 || !hash.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(wrong);
    }
    let hash = hash.parse().map_err(|_| wrong)?;
    let bytes = Base64::decode_vec(encoded).map(Zeroizing::new);
    let bytes = bytes.map_err(|_| KeyError::Base64)?;
    let expected = "32, 48 or 64, and 4 of CRC";
    let short = KeyError::Length { found: bytes.len(), expected };
    let (key, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or(short)?;
    if crc_of(key) != u32::from_le_bytes(*crc) {
        return Err(KeyError::Crc);
    }
    Ok((hash, Secret::new(key)))
}

/// Returns the line that [`parse`] reads.
pub(super) fn print(form: &'static str, hash: u8, key: &Secret) -> Zeroizing<String> {
    let key = key.reveal();
    // Strings that grow would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(key.len() + CRC_BYTES));
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(&crc_of(key).to_le_bytes());
    let encoded = Zeroizing::new(Base64::encode_string(&bytes));
    let mut line = Zeroizing::new(String::with_capacity(form.len() + 5 + encoded.len()));
    // Writing to a string does not fail.
    let _ = write!(line, "{form}:{hash:02}:{}:", *encoded);
    line
}

fn crc_of(bytes: &[u8]) -> u32 {
    crc_fast::checksum(Crc32IsoHdlc, bytes) as u32
}

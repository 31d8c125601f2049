//! Random numbers from the kernel.

use roadtrain_proto::security::Secret;
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;
use zeroize::Zeroizing;

/// Returns random bytes.
///
/// # Errors
/// The kernel has none.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // Up to 256 come whole, once the kernel has any.
    match getrandom(&mut bytes, GetRandomFlags::empty())? {
        got if got == N => Ok(bytes),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Returns a random number.
///
/// # Errors
/// The kernel has none.
pub fn number() -> io::Result<u64> {
    bytes().map(u64::from_le_bytes)
}

/// Returns random bytes of a secret, at most 256.
///
/// # Errors
/// The kernel has none.
pub fn secret(length: usize) -> io::Result<Secret> {
    let bytes = Zeroizing::new(bytes::<256>()?);
    bytes.get(..length).map(Secret::new).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

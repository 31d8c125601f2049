//! Random numbers from the kernel.

use roadtrain_proto::security::Secret;
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;
use zeroize::Zeroizing;

/// Returns random bytes.
///
/// # Errors
/// The kernel has none.
pub fn octets<const N: usize>() -> io::Result<[u8; N]> {
    let mut octets = [0; N];
    // Up to 256 come whole, once the kernel has any.
    match getrandom(&mut octets, GetRandomFlags::empty())? {
        got if got == N => Ok(octets),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Returns a random number.
///
/// # Errors
/// The kernel has none.
pub fn number() -> io::Result<u64> {
    octets().map(u64::from_le_bytes)
}

/// Returns random bytes of a secret, at most 256.
///
/// # Errors
/// The kernel has none.
pub fn secret(bytes: usize) -> io::Result<Secret> {
    let octets = Zeroizing::new(octets::<256>()?);
    octets.get(..bytes).map(Secret::new).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

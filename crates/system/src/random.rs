//! Numbers that nobody can guess.

use std::io;

/// Octets from the kernel.
///
/// # Errors
/// The kernel has none.
pub fn octets<const N: usize>() -> io::Result<[u8; N]> {
    let mut octets = [0; N];
    // SAFETY: writes at most N octets to `octets`. Up to 256 come whole, once the kernel has any.
    let got = unsafe { libc::getrandom(octets.as_mut_ptr().cast(), N, 0) };
    match usize::try_from(got) {
        Ok(got) if got == N => Ok(octets),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A number.
///
/// # Errors
/// The kernel has none.
pub fn number() -> io::Result<u64> {
    octets().map(u64::from_le_bytes)
}

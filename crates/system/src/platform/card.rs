//! Settings that only a network card's driver reports.

use rustix::net::{AddressFamily, SocketType, socket};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

/// Requests of SIOCETHTOOL, from linux/ethtool.h.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const GET_TSO: u32 = 0x1e;
const GET_GSO: u32 = 0x23;
const GET_GRO: u32 = 0x2b;
const GET_CHANNELS: u32 = 0x3c;

/// Offloads of packet processing, which the card or a late stage of the kernel does for many packets at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// True if received packets are joined (GRO).
    pub gro: bool,
    /// True if sent data is segmented as late as possible (GSO).
    pub gso: bool,
    /// True if the card segments sent data (TSO).
    pub tso: bool,
}

/// Numbers of pairs of queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicChannels {
    /// Queue pairs in use.
    pub combined: u32,
    /// Maximum queue pairs.
    pub combined_max: u32,
}

impl Offloads {
    /// Queries the driver of the interface with that name.
    ///
    /// # Errors
    /// There is no such interface, or its driver does not report them.
    pub fn read(name: &str) -> io::Result<Offloads> {
        let is_on = |request| query_driver(name, [request, 0]).map(|[_, value]| value != 0);
        Ok(Offloads { gro: is_on(GET_GRO)?, gso: is_on(GET_GSO)?, tso: is_on(GET_TSO)? })
    }
}

impl NicChannels {
    /// Queries the driver of the interface with that name.
    ///
    /// # Errors
    /// There is no such interface, or its driver does not report them.
    pub fn read(name: &str) -> io::Result<NicChannels> {
        // Maximum of rx, tx, other, combined, then the current numbers.
        let mut request = [0; 9];
        request[0] = GET_CHANNELS;
        let answer = query_driver(name, request)?;
        Ok(NicChannels { combined: answer[8], combined_max: answer[4] })
    }
}

/// Sends a request of 32-bit words, the first of which is its code; returns the reply.
fn query_driver<const WORDS: usize>(
    name: &str,
    mut request: [u32; WORDS],
) -> io::Result<[u32; WORDS]> {
    // SAFETY: all zeroes are a request without a name.
    let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= ifreq.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in ifreq.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    ifreq.ifr_ifru.ifru_data = ptr::from_mut(&mut request).cast();
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: the name ends with zero, and the data is as long as the reply to the request.
    match unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &mut ifreq) } {
        0 => Ok(request),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_joins_packets() {
        let loopback = Offloads::read("lo").expect("every kernel has it");
        assert!(loopback.gso, "{loopback:?}");
        assert!(NicChannels::read("lo").is_err(), "it has no driver with queues");
    }

    #[test]
    fn a_missing_object_is_an_error() {
        assert!(Offloads::read("no-such-one").is_err());
        assert!(Offloads::read("a name that no interface can have").is_err());
    }
}

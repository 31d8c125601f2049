//! What a network card's driver tells, and nothing else does.

use rustix::net::{AddressFamily, SocketType, socket};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

/// Requests of SIOCETHTOOL, as linux/ethtool.h has them.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const GET_TSO: u32 = 0x1e;
const GET_GSO: u32 = 0x23;
const GET_GRO: u32 = 0x2b;
const GET_CHANNELS: u32 = 0x3c;

/// Work with packets that the card, or the kernel late, does many at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// What is received is joined.
    pub gro: bool,
    /// What is sent is cut as late as possible.
    pub gso: bool,
    /// What is sent is cut by the card.
    pub tso: bool,
}

/// Pairs of queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// That are in use.
    pub combined: u32,
    /// That there could be.
    pub combined_max: u32,
}

impl Offloads {
    /// Asks the driver of the interface with that name.
    ///
    /// # Errors
    /// There is no such interface, or its driver does not tell.
    pub fn read(name: &str) -> io::Result<Offloads> {
        let is_on = |request| ask(name, [request, 0]).map(|[_, value]| value != 0);
        Ok(Offloads { gro: is_on(GET_GRO)?, gso: is_on(GET_GSO)?, tso: is_on(GET_TSO)? })
    }
}

impl Channels {
    /// Asks the driver of the interface with that name.
    ///
    /// # Errors
    /// There is no such interface, or its driver does not tell.
    pub fn read(name: &str) -> io::Result<Channels> {
        // The most of rx, tx, other, combined, then how many there are.
        let mut request = [0; 9];
        request[0] = GET_CHANNELS;
        let answer = ask(name, request)?;
        Ok(Channels { combined: answer[8], combined_max: answer[4] })
    }
}

/// Asks with a request of 32-bit words, the first of which says what is asked.
fn ask<const WORDS: usize>(name: &str, mut request: [u32; WORDS]) -> io::Result<[u32; WORDS]> {
    // SAFETY: all octets zero are a request without a name.
    let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= ifreq.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in ifreq.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    ifreq.ifr_ifru.ifru_data = ptr::from_mut(&mut request).cast();
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: the name ends with zero, and the data is as long as the kernel writes for what is asked.
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
        assert!(Channels::read("lo").is_err(), "it has no driver with queues");
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        assert!(Offloads::read("no-such-one").is_err());
        assert!(Offloads::read("a name that no interface can have").is_err());
    }
}

//! Detects that both ends of a connection run on one core, as with a hypervisor's local storage.
//!
//! The kernel does not report it, but it can be observed. The peer has an address of this machine, and the kernel
//! processes the peer's packets on the core that sends them. If that is always this thread's own core, and the thread
//! runs nowhere else, the peer shares it.

use roadtrain_system::platform::{numa, packets_core};
use socket2::SockRef;
use std::os::fd::AsFd;

/// Receives between two checks: a check costs a system call or two.
const RECEIVES: u32 = 64;
/// Checks in a row that have to find the peer on this core. The kernel processes acknowledgements here wherever the
/// peer runs, so one check proves little; one that finds another core is proof.
const CHECKS: u32 = 8;

/// Detection state of a connection.
#[derive(Debug)]
pub struct SharedCore {
    /// True if the peer may be on this machine.
    is_local: bool,
    receives: u32,
    /// Checks in a row that found the peer on this core.
    found: u32,
}

impl SharedCore {
    /// The detection state of a connected socket.
    #[inline]
    pub fn of(socket: &impl AsFd) -> Self {
        SharedCore { is_local: is_local(socket).unwrap_or(false), receives: 0, found: 0 }
    }

    /// Counts a receive from the socket. Returns whether both ends share a core, when that has changed.
    #[inline]
    pub fn received(&mut self, socket: &impl AsFd) -> Option<bool> {
        self.receives = self.receives.wrapping_add(1);
        if !self.is_local || !self.receives.is_multiple_of(RECEIVES) {
            return None;
        }
        self.checked(packets_core(socket).is_some_and(numa::is_only_core))
    }

    fn checked(&mut self, is_here: bool) -> Option<bool> {
        let before = self.found;
        self.found = if is_here { CHECKS.min(before + 1) } else { 0 };
        let (was, is) = (before == CHECKS, self.found == CHECKS);
        (was != is).then_some(is)
    }
}

/// True if the peer has an address of this machine, as far as one connection shows: the same as this end, or loopback.
fn is_local(socket: &impl AsFd) -> Option<bool> {
    let socket = SockRef::from(socket);
    let ip = |address: socket2::SockAddr| Some(address.as_socket()?.ip().to_canonical());
    let (own, peer) = (ip(socket.local_addr().ok()?)?, ip(socket.peer_addr().ok()?)?);
    Some(own == peer || peer.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn many_checks_find_it_here_and_one_on_another_core() {
        let mut core = SharedCore { is_local: true, receives: 0, found: 0 };
        let mut checked = |checks: &[bool]| -> Vec<_> {
            checks.iter().filter_map(|&is_here| core.checked(is_here)).collect()
        };
        assert!(checked(&[true; CHECKS as usize - 1]).is_empty());
        assert!(checked(&[false, true]).is_empty(), "it begins again");
        assert_eq!(checked(&[true; 3 * CHECKS as usize]), [true], "reported once");
        assert_eq!(checked(&[false, false]), [false]);
    }

    #[test]
    fn a_peer_is_local_at_loopback_and_at_our_own_address() {
        for address in ["127.0.0.1:0", "127.0.0.2:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                println!("SKIPPED {address}: the machine does not have it");
                continue;
            };
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            assert_eq!(is_local(&near), Some(true), "{address}");
            assert_eq!(is_local(&listener.accept().unwrap().0), Some(true), "{address}");
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(is_local(&listener), None, "no peer is connected");
    }
}

//! Whether both ends of a connection run on one core, as with a hypervisor's local storage.
//!
//! Nobody says so, but it shows: the peer is at an address of ours, and the kernel processes what it sends on the core
//! that sends it. When that is always this thread's own core, and the thread runs nowhere else, the peer is here.

use roadtrain_system::platform::{numa, packets_core};
use socket2::SockRef;
use std::os::fd::AsFd;

/// Receives between two looks: a look costs a system call or two.
const RECEIVES: u32 = 64;
/// Looks in a row that have to find the peer here. Acknowledgements of what this end sends are processed here wherever
/// the peer is, so one look says little; one that finds it elsewhere says all.
const LOOKS: u32 = 8;

/// What is known of the peer's core.
#[derive(Debug)]
pub struct SharedCore {
    /// The peer may be on this machine.
    is_local: bool,
    receives: u32,
    /// Looks in a row that found the peer here.
    found: u32,
}

impl SharedCore {
    /// Of a connected socket.
    #[inline]
    pub fn of(socket: &impl AsFd) -> Self {
        SharedCore { is_local: is_local(socket).unwrap_or(false), receives: 0, found: 0 }
    }

    /// The socket's owner has received from it: whether both ends share a core, when that has changed.
    #[inline]
    pub fn received(&mut self, socket: &impl AsFd) -> Option<bool> {
        self.receives = self.receives.wrapping_add(1);
        if !self.is_local || !self.receives.is_multiple_of(RECEIVES) {
            return None;
        }
        self.looked(packets_core(socket).is_some_and(numa::is_only_core))
    }

    fn looked(&mut self, is_here: bool) -> Option<bool> {
        let before = self.found;
        self.found = if is_here { LOOKS.min(before + 1) } else { 0 };
        let (was, is) = (before == LOOKS, self.found == LOOKS);
        (was != is).then_some(is)
    }
}

/// Whether the peer has an address of this machine, as far as one connection tells: the one that we have, too.
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
    fn many_looks_find_it_here_and_one_elsewhere() {
        let mut core = SharedCore { is_local: true, receives: 0, found: 0 };
        let mut looked = |looks: &[bool]| -> Vec<_> {
            looks.iter().filter_map(|&is_here| core.looked(is_here)).collect()
        };
        assert!(looked(&[true; LOOKS as usize - 1]).is_empty());
        assert!(looked(&[false, true]).is_empty(), "it begins again");
        assert_eq!(looked(&[true; 3 * LOOKS as usize]), [true], "told once");
        assert_eq!(looked(&[false, false]), [false]);
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
        assert_eq!(is_local(&listener), None, "nobody is connected");
    }
}

//! The connections of every host, until nothing of them is left.
//!
//! A host that has lost its connections tries its commands again over new ones, and then goes on. So nothing of
//! the old connections may be executed once the host is back: neither commands in a backend, nor octets that
//! were received but not looked at.

use crate::connection::any_hung_up;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Names a connection of a host.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    pub(super) hostnqn: Arc<str>,
    number: u64,
}

struct Presence {
    number: u64,
    /// `None`: the host says itself when the lane is over.
    socket: Option<RawFd>,
    /// Its lane has ended, but commands are in a backend.
    drains: bool,
}

/// What is left of connections that a host has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remains {
    Nothing,
    /// Lanes that have not noticed yet: they are to be ended without executing more.
    Lanes,
    /// Commands in a backend.
    Commands,
}

/// All of them. Sockets named here are open: a connection leaves before its socket is closed.
#[derive(Default)]
pub(super) struct Presences {
    hosts: HashMap<Arc<str>, Vec<Presence>>,
    last: u64,
}

impl Presences {
    /// A queue of the host was connected.
    pub(super) fn enter(&mut self, hostnqn: &Arc<str>, socket: Option<RawFd>) -> Pass {
        self.last += 1;
        let presence = Presence { number: self.last, socket, drains: false };
        self.hosts.entry(hostnqn.clone()).or_default().push(presence);
        Pass { hostnqn: hostnqn.clone(), number: self.last }
    }

    /// Its lane has ended; commands are in a backend.
    pub(super) fn drain(&mut self, pass: &Pass) {
        let mut present = self.hosts.get_mut(&pass.hostnqn).into_iter().flatten();
        if let Some(presence) = present.find(|presence| presence.number == pass.number) {
            presence.drains = true;
        }
    }

    /// Nothing is left of it.
    pub(super) fn leave(&mut self, pass: &Pass) {
        if let Some(present) = self.hosts.get_mut(&pass.hostnqn) {
            present.retain(|presence| presence.number != pass.number);
            if present.is_empty() {
                self.hosts.remove(&pass.hostnqn);
            }
        }
    }

    /// What is left of connections that the host has lost.
    pub(super) fn remains(&self, hostnqn: &str) -> Remains {
        let Some(present) = self.hosts.get(hostnqn) else { return Remains::Nothing };
        if present.iter().any(|presence| presence.drains) {
            return Remains::Commands;
        }
        let hung_up = any_hung_up(present.iter().filter_map(|presence| presence.socket));
        if hung_up { Remains::Lanes } else { Remains::Nothing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn lost_connections_remain_until_they_leave() {
        let mut presences = Presences::default();
        let host: Arc<str> = "nqn.x:h".into();
        let (far, socket) = pair();
        let (_other_far, other) = pair();
        assert_eq!(presences.remains(&host), Remains::Nothing);
        let pass = presences.enter(&host, Some(socket.as_raw_fd()));
        let stays = presences.enter(&host, Some(other.as_raw_fd()));
        assert_eq!(presences.remains(&host), Remains::Nothing);
        drop(far);
        socket.peek(&mut [0]).unwrap(); // its end has arrived
        assert_eq!(presences.remains(&host), Remains::Lanes);
        assert_eq!(presences.remains("nqn.x:other"), Remains::Nothing);
        presences.drain(&pass);
        assert_eq!(presences.remains(&host), Remains::Commands);
        presences.leave(&pass);
        assert_eq!(presences.remains(&host), Remains::Nothing);
        presences.leave(&stays);
        assert!(presences.hosts.is_empty());
    }
}

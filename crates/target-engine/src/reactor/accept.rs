//! Accepting TCP connections.

use super::Peers;
use crate::handshakes::Secure;
use crate::listeners::ListenSocket;
use crate::meters::Meters;
use crate::order::{NewConnection, TargetReactorMessage};
use crate::tickets::Tickets;
use roadtrain_reactor::event::{self, mark};
use roadtrain_reactor::stream::ConnectionStream;
use roadtrain_reactor::tuning;
use roadtrain_system::platform::packets_core;
use roadtrain_system::ring::ReactorRing;
use roadtrain_target_proto::TlsUse;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use tracing::{debug, warn};

/// Most connections accepted before the lanes of this reactor have a turn, and before connections that lose their slot
/// are closed.
const ACCEPTS_MAX: u32 = 64;

/// Listening sockets. Each number is used once, so that late ring completions of a closed listener match no other one.
pub(super) struct Listeners {
    open: BTreeMap<u32, ListenSocket>,
    next: u32,
    /// Failed listeners, paused until the next check of keep-alive timers.
    pub(super) paused: Vec<u32>,
    tickets: Arc<Tickets>,
    handshakes: Option<Secure>,
    meters: Arc<Meters>,
}

impl Listeners {
    pub(super) fn new(
        tickets: Arc<Tickets>,
        handshakes: Option<Secure>,
        meters: Arc<Meters>,
    ) -> Self {
        let (open, paused) = (BTreeMap::new(), Vec::new());
        Listeners { open, next: 0, paused, tickets, handshakes, meters }
    }

    pub(super) fn close(&mut self) {
        self.open.clear();
        self.paused.clear();
    }

    pub(super) fn listen(&mut self, ring: &mut ReactorRing, peers: &Peers, socket: ListenSocket) {
        let number = self.next;
        self.next += 1;
        self.open.insert(number, socket);
        self.accept(ring, peers, number);
    }

    /// Closes the listener at `address`. Its connections stay.
    pub(super) fn unlisten(&mut self, ring: &mut ReactorRing, address: SocketAddr) {
        let closed = self.open.extract_if(.., |_, socket| socket.is_at(address));
        for (number, socket) in closed {
            event::forget(ring, mark(event::LISTENER, number, 0));
            socket.close();
        }
    }

    /// Clones the sockets for another process.
    pub(super) fn share(&self) -> Vec<TcpListener> {
        self.open.values().filter_map(|open| open.socket.try_clone().ok()).collect()
    }

    /// Stops accepting. New connections wait until another process accepts them.
    pub(super) fn stop(&mut self, ring: &mut ReactorRing) {
        for number in std::mem::take(&mut self.open).into_keys() {
            event::forget(ring, mark(event::LISTENER, number, 0));
        }
        self.paused.clear();
    }

    /// Sets the use of TLS from the next connection to `address` on.
    pub(super) fn set_tls(&mut self, address: SocketAddr, tls: TlsUse) {
        let there = self.open.values_mut().filter(|socket| socket.is_at(address));
        there.for_each(|socket| socket.tls = tls);
    }

    /// Accepts waiting connections. Each goes to the reactor on the core that processes its packets, if there is one.
    pub(super) fn accept(&mut self, ring: &mut ReactorRing, peers: &Peers, listener: u32) {
        for _ in 0..ACCEPTS_MAX {
            let Some(ListenSocket { socket, tls }) = self.open.get(&listener) else {
                return;
            };
            match socket.accept() {
                Ok((stream, peer)) => {
                    let tls = *tls;
                    self.dispatch(peers, stream, peer, tls);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if is_exhaustion(&e) => {
                    // An immediate retry would only spin.
                    warn!("accept: {e}");
                    return self.paused.push(listener);
                }
                // The connection was closed before it was accepted, or its network failed.
                Err(e) => debug!("accept: {e}"),
            }
        }
        if let Some(ListenSocket { socket, .. }) = self.open.get(&listener) {
            let mark = mark(event::LISTENER, listener, 0);
            event::poll(ring, socket.as_raw_fd(), libc::POLLIN, mark);
        }
    }

    fn dispatch(&mut self, peers: &Peers, stream: TcpStream, peer: SocketAddr, tls: TlsUse) {
        let transport = if tls == TlsUse::Off { "tcp" } else { "tls" };
        let Some((ticket, instead_of)) = self.tickets.take(peer) else {
            return self.meters.connection(transport, "refused");
        };
        self.meters.connection(transport, "accepted");
        if let Some(number) = instead_of {
            peers.all.iter().for_each(|peer| _ = peer.send(TargetReactorMessage::Evict(number)));
            self.handshakes.iter().for_each(|handshakes| handshakes.evict(number));
        }
        let Ok(local) = stream.local_addr() else { return };
        let reactor = &peers.all[peers.balance().choose(packets_core(&stream))];
        let stream = ConnectionStream::Plain(prepare(stream));
        let may_be_plain = tls == TlsUse::Allowed;
        let connection =
            Box::new(NewConnection { stream, secured_as: None, may_be_plain, peer, local, ticket });
        match (&self.handshakes, tls) {
            (_, TlsUse::Off) => _ = reactor.send(TargetReactorMessage::Adopt(connection)),
            (Some(handshakes), TlsUse::Allowed | TlsUse::Required) => {
                handshakes.begin(connection, reactor.clone());
            }
            // Without keys, no host can connect.
            (None, _) => debug_assert!(false, "a listener with TLS at a target without"),
        }
    }
}

/// True if the system lacks resources for a connection at the moment.
fn is_exhaustion(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM].iter().any(|&c| code == Some(c))
}

/// Sets the socket options of a connection. A failure is logged, but the connection stays.
fn prepare(stream: TcpStream) -> OwnedFd {
    let prepared = tuning::tune_socket(&stream)
        .and_then(|()| tuning::probe_silent_peer(&stream))
        .and_then(|()| stream.set_nonblocking(true));
    if let Err(error) = prepared {
        warn!("socket options: {error}");
    }
    stream.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exhaustion_pauses_a_listener() {
        for (code, pauses) in [
            (libc::EMFILE, true),
            (libc::ENFILE, true),
            (libc::ENOBUFS, true),
            (libc::ECONNABORTED, false),
            (libc::EINTR, false),
            (libc::ENETDOWN, false),
            (libc::EPERM, false),
        ] {
            assert_eq!(is_exhaustion(&io::Error::from_raw_os_error(code)), pauses, "{code}");
        }
    }
}

//! Connections over TCP: how they come, and which have to make room.

use super::Reactor;
use crate::reactor::event::{self, mark};
use crate::stream::Stream;
use crate::target::lane::{Ends, Lane, LaneError};
use crate::target::listeners::ListenSocket;
use crate::target::order::Order;
use crate::target::tickets::Ticket;
use crate::tuning;
use roadtrain_proto::target::session::Settings;
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use tracing::{debug, warn};

/// Connections accepted before the lanes of this reactor have a turn, and those that make room are ended.
const ACCEPTS_MAX: u32 = 64;

/// Where connections come. A number is used once, so that what the ring still says of a listener that is closed means
/// no other.
#[derive(Default)]
pub(super) struct Listeners {
    open: BTreeMap<u32, ListenSocket>,
    next: u32,
    /// Those that failed pause until the next look at keep-alive timers.
    pub(super) paused: Vec<u32>,
}

impl Reactor {
    pub(super) fn listen(&mut self, socket: ListenSocket) {
        let number = self.listeners.next;
        self.listeners.next += 1;
        self.listeners.open.insert(number, socket);
        self.accept(number);
    }

    /// Connections that have come at `address` stay.
    pub(super) fn unlisten(&mut self, address: SocketAddr) {
        let closed = self.listeners.open.extract_if(.., |_, socket| socket.is_at(address));
        for (number, socket) in closed {
            event::forget(&mut self.shared.ring, mark(event::LISTENER, number, 0));
            socket.close();
        }
    }

    /// Takes connections that wait, and deals them out.
    pub(super) fn accept(&mut self, listener: u32) {
        for _ in 0..ACCEPTS_MAX {
            let Some(ListenSocket { socket, settings }) = self.listeners.open.get(&listener) else {
                return;
            };
            match socket.accept() {
                Ok((stream, peer)) => self.deal(stream, peer, *settings),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if is_exhaustion(&e) => {
                    // Trying again at once would only spin.
                    warn!("accept: {e}");
                    return self.listeners.paused.push(listener);
                }
                // Of a connection that was gone before it was accepted, or of its network.
                Err(e) => debug!("accept: {e}"),
            }
        }
        if let Some(ListenSocket { socket, .. }) = self.listeners.open.get(&listener) {
            let mark = mark(event::LISTENER, listener, 0);
            event::poll(&mut self.shared.ring, socket.as_raw_fd(), libc::POLLIN, mark);
        }
    }

    fn deal(&mut self, stream: TcpStream, peer: SocketAddr, settings: Settings) {
        let Some((ticket, instead_of)) = self.tickets.take(peer) else { return };
        if let Some(number) = instead_of {
            self.peers.iter().for_each(|peer| _ = peer.send(Order::Evict(number)));
        }
        let outbox = &self.peers[self.next_peer % self.peers.len()];
        self.next_peer += 1;
        outbox.send(Order::Adopt { socket: prepare(stream), peer, ticket, settings });
    }

    pub(super) fn adopt(
        &mut self,
        socket: OwnedFd,
        peer: SocketAddr,
        ticket: Ticket,
        settings: Settings,
    ) {
        let stream = TcpStream::from(socket);
        let Ok(local) = stream.local_addr() else { return };
        let (index, generation) = self.lanes.reserve();
        let ends = Ends { peer, local };
        let lane = Lane::over_tcp(
            (index, generation),
            ends,
            Stream::Plain(stream.into()),
            self.qpair,
            (ticket, settings),
        );
        self.occupy(index, lane);
        self.set_ready(index);
    }

    /// Ends the connection that has this ticket, if it is here.
    pub(super) fn evict(&mut self, ticket: u64) {
        let has_it = |lane: &Lane| lane.ticket.as_ref().is_some_and(|own| own.number == ticket);
        for index in self.lanes.indices() {
            self.use_lane(index, |lane, _| match has_it(lane) {
                true => {
                    Err(LaneError::Ended("it has not connected a queue, and others need its room"))
                }
                false => Ok(()),
            });
        }
    }
}

/// Whether the system has no room for a connection: later it may.
fn is_exhaustion(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM].iter().any(|&c| code == Some(c))
}

/// A connection as lanes want it. What cannot be set is not worth losing the connection.
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

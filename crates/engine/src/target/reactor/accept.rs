//! Connections over TCP: how they come, and which have to make room.

use super::{Order, Reactor};
use crate::stream::Stream;
use crate::target::lane::{Ends, Lane, LaneError};
use crate::target::tickets::Ticket;
use crate::tuning;
use roadtrain_proto::target::session::Settings;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use tracing::{debug, warn};

/// Connections accepted before the lanes of this reactor have a turn, and those that make room are ended.
const ACCEPTS_MAX: u32 = 64;

/// Where connections come, and what is asked of them.
pub(in crate::target) struct ListenSocket {
    pub(in crate::target) socket: TcpListener,
    pub(in crate::target) settings: Settings,
}

impl Reactor {
    /// Takes connections that wait, and deals them out.
    pub(super) fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTS_MAX {
            match self.listeners[listener].socket.accept() {
                Ok((stream, peer)) => self.deal(listener, stream, peer),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if is_exhaustion(&e) => {
                    // Trying again at once would only spin.
                    warn!("accept: {e}");
                    return self.paused.push(listener);
                }
                // Of a connection that was gone before it was accepted, or of its network.
                Err(e) => debug!("accept: {e}"),
            }
        }
        self.poll_listener(listener);
    }

    fn deal(&mut self, listener: usize, stream: TcpStream, peer: SocketAddr) {
        let Some((ticket, instead_of)) = self.tickets.take(peer) else { return };
        if let Some(number) = instead_of {
            self.peers.iter().for_each(|peer| _ = peer.send(Order::Evict(number)));
        }
        let outbox = &self.peers[self.next_peer % self.peers.len()];
        self.next_peer += 1;
        let settings = self.listeners[listener].settings;
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

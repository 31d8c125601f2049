//! The connections of every host, until nothing of them is left.
//!
//! A host that has lost its connections tries its commands again over new ones, and then goes on. So nothing of the old
//! connections may be executed once the host is back: neither commands in a backend, nor octets that were received but
//! not looked at. A TCP connection that is lost has hung up; for a lane over Ethernet the host is asked when it
//! connects a new controller, and one that does not answer has lost it.

use crate::connection::any_hung_up;
use roadtrain_proto::time::Instant;
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
    side: Side,
    /// Its lane has ended, but commands are in a backend.
    drains: bool,
}

/// How it is known whether the host has lost the connection.
enum Side {
    /// By its socket.
    Socket(RawFd),
    /// By asking the host.
    Asked(Question),
    /// Nothing is executed that matters to its next connections.
    Harmless,
}

/// Whether the host still has a lane.
#[derive(Clone, Copy)]
struct Question {
    /// It was there when it was asked then.
    proven: Instant,
    /// It is being asked since then.
    asked: Option<Instant>,
}

/// What is left of connections that a host has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remains {
    Nothing,
    /// Lanes that have not noticed yet: they are to be ended without executing more.
    Lanes,
    /// Lanes that the host may have lost: it is to be asked, or is being asked.
    Doubtful,
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
    /// Queue `qid` of the host was connected; without a socket the host is asked.
    pub(super) fn enter(
        &mut self,
        now: Instant,
        hostnqn: &Arc<str>,
        qid: u16,
        socket: Option<RawFd>,
    ) -> Pass {
        self.last += 1;
        let side = match (socket, qid) {
            (Some(socket), _) => Side::Socket(socket),
            (None, 0) => Side::Harmless,
            (None, _) => Side::Asked(Question { proven: now, asked: None }),
        };
        let presence = Presence { number: self.last, side, drains: false };
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

    /// Asks the host for its lanes of which it has not said since then that it has them. Whether there are any that it
    /// is not being asked for.
    pub(super) fn ask(&mut self, now: Instant, hostnqn: &str, since: Instant) -> bool {
        let mut has_new = false;
        for presence in self.hosts.get_mut(hostnqn).into_iter().flatten() {
            if let Side::Asked(question) = &mut presence.side
                && question.proven < since
                && question.asked.is_none()
            {
                question.asked = Some(now);
                has_new = true;
            }
        }
        has_new
    }

    /// The host has the lane, as it was asked.
    pub(super) fn answered(&mut self, pass: &Pass) {
        let mut present = self.hosts.get_mut(&pass.hostnqn).into_iter().flatten();
        if let Some(presence) = present.find(|presence| presence.number == pass.number)
            && let Side::Asked(question) = &mut presence.side
            && let Some(asked) = question.asked.take()
        {
            question.proven = asked;
        }
    }

    /// What is left of connections that the host, which connects since then, has lost.
    pub(super) fn remains(&self, hostnqn: &str, since: Instant) -> Remains {
        let Some(present) = self.hosts.get(hostnqn) else { return Remains::Nothing };
        if present.iter().any(|presence| presence.drains) {
            return Remains::Commands;
        }
        let socket = |presence: &Presence| match presence.side {
            Side::Socket(socket) => Some(socket),
            _ => None,
        };
        let is_doubtful = |presence: &Presence| match presence.side {
            Side::Asked(question) => question.proven < since,
            _ => false,
        };
        match any_hung_up(present.iter().filter_map(socket)) {
            true => Remains::Lanes,
            false if present.iter().any(is_doubtful) => Remains::Doubtful,
            false => Remains::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    const NOW: Instant = Instant(1_000_000_000);

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
        assert_eq!(presences.remains(&host, NOW), Remains::Nothing);
        let pass = presences.enter(NOW, &host, 1, Some(socket.as_raw_fd()));
        let stays = presences.enter(NOW, &host, 1, Some(other.as_raw_fd()));
        assert_eq!(presences.remains(&host, NOW), Remains::Nothing);
        drop(far);
        socket.peek(&mut [0]).unwrap(); // its end has arrived
        assert_eq!(presences.remains(&host, NOW), Remains::Lanes);
        assert_eq!(presences.remains("nqn.x:other", NOW), Remains::Nothing);
        presences.drain(&pass);
        assert_eq!(presences.remains(&host, NOW), Remains::Commands);
        presences.leave(&pass);
        assert_eq!(presences.remains(&host, NOW), Remains::Nothing);
        presences.leave(&stays);
        assert!(presences.hosts.is_empty());
    }

    #[test]
    fn who_does_not_answer_has_lost_its_lane() {
        let mut presences = Presences::default();
        let host: Arc<str> = "nqn.x:h".into();
        let second = |n| NOW + Duration::from_secs(n);
        presences.enter(NOW, &host, 0, None);
        let pass = presences.enter(NOW, &host, 1, None);
        assert_eq!(presences.remains(&host, NOW), Remains::Nothing);
        assert_eq!(presences.remains(&host, second(1)), Remains::Doubtful);
        assert!(presences.ask(second(1), &host, second(1)));
        assert!(!presences.ask(second(2), &host, second(1)), "it is being asked");
        presences.answered(&pass);
        assert_eq!(presences.remains(&host, second(1)), Remains::Nothing);
        // That was no answer to a later question.
        assert_eq!(presences.remains(&host, second(2)), Remains::Doubtful);
        assert!(presences.ask(second(2), &host, second(2)));
        presences.drain(&pass);
        assert_eq!(presences.remains(&host, second(2)), Remains::Commands);
        presences.leave(&pass);
        assert_eq!(presences.remains(&host, second(2)), Remains::Nothing);
    }
}

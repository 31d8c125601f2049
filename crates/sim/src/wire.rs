//! A TCP connection as the queue pairs at its ends use it: bytes, with or without records of TLS below them.
//!
//! Bytes that an end receives are compared with those that its peer has sent: they have to be a prefix, under any
//! interference.

use crate::ends::{ConnEnd, ConnId};
use crate::network::Network;
use crate::plan::SimPlan;
use crate::secure::{TlsEnd, TlsEnds};
use roadtrain_proto::time::Instant;

/// An end of a connection.
pub struct TcpWire {
    conn: ConnId,
    end: ConnEnd,
    secured: Option<Box<TlsEnd>>,
    /// Received bytes that are not compared yet.
    uncompared: Vec<u8>,
    state: WireState,
    end_reason: TlsEnds,
}

/// State of a connection, which received bytes or used-up keys may end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WireState {
    Open,
    /// Ended at that time: no data is received or sent any more.
    Ended(Instant),
    /// Ended, and reported to its end.
    Reported,
}

impl TcpWire {
    /// Makes an end of a new connection.
    #[must_use]
    pub fn new(plan: &SimPlan, conn: ConnId, end: ConnEnd) -> Self {
        let secured = plan.tls.then(|| Box::new(TlsEnd::new(plan.security, conn, end)));
        TcpWire {
            conn,
            end,
            secured,
            uncompared: Vec::new(),
            state: WireState::Open,
            end_reason: TlsEnds::default(),
        }
    }

    /// Returns received bytes, opened if they were sealed.
    pub fn receive(&mut self, now: Instant, bytes: Vec<u8>) -> Vec<u8> {
        let Some(secured) = &mut self.secured else { return bytes };
        let mut data = Vec::new();
        if self.state == WireState::Open {
            let received = secured.receive(&bytes, &mut data);
            self.end_reason = TlsEnds::of(&received);
            if !received.unwrap_or(false) {
                self.state = WireState::Ended(now);
            }
        }
        self.uncompared.extend_from_slice(&data);
        data
    }

    /// True once if the connection has ended by itself.
    pub fn ends(&mut self) -> bool {
        let ends = matches!(self.state, WireState::Ended(_));
        if ends {
            self.state = WireState::Reported;
        }
        ends
    }

    /// Returns the time of its next event.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            WireState::Ended(at) => Some(at),
            WireState::Open | WireState::Reported => None,
        }
    }

    /// True if it holds bytes that the network has not taken.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.secured.as_ref().is_some_and(|secured| secured.is_blocked())
    }

    /// Sends as much of `bytes` as the network and the buffers take. Returns that number of bytes.
    pub fn send(&mut self, now: Instant, network: &mut Network, bytes: &[u8]) -> usize {
        self.compare(network);
        let Some(secured) = &mut self.secured else {
            return network.send(now, self.conn, self.end, bytes);
        };
        if self.state == WireState::Open && network.leaves(self.conn, self.end) {
            self.state = WireState::Ended(now);
        }
        let mut taken = 0;
        while self.state == WireState::Open {
            let sent = network.send(now, self.conn, self.end, secured.unsent());
            secured.unsent().drain(..sent);
            if !secured.unsent().is_empty() {
                break;
            }
            match secured.send(&bytes[taken..]) {
                Ok(Some(count)) => taken += count,
                Ok(None) => {}
                Err(error) => {
                    self.end_reason = TlsEnds::of(&Err(error));
                    self.state = WireState::Ended(now);
                }
            }
            if taken == bytes.len() && secured.unsent().is_empty() {
                break;
            }
        }
        network.record_sent(self.conn, self.end, &bytes[..taken]);
        taken
    }

    /// Closes the connection; with `orderly` all data sent arrives. A peer that caused an error is notified.
    pub fn close(&mut self, now: Instant, network: &mut Network, orderly: bool) {
        self.compare(network);
        if let Some(secured) = &mut self.secured {
            if orderly {
                secured.close_notify();
            }
            network.send(now, self.conn, self.end, secured.unsent());
        }
        network.tls += self.end_reason;
        network.close(now, self.conn, self.end, orderly || self.state != WireState::Open);
    }

    fn compare(&mut self, network: &mut Network) {
        let uncompared = std::mem::take(&mut self.uncompared);
        assert!(
            network.check_received(self.conn, self.end, &uncompared),
            "other bytes than those that were sent"
        );
    }
}

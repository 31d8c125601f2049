//! A TCP connection as the queue pairs at its ends see it: octets, whether or not there are records of TLS below them.
//!
//! What an end hears is compared with what its peer has said: it is the beginning of that, whatever happens between
//! them.

use crate::ends::{ConnId, End};
use crate::network::Network;
use crate::plan::Plan;
use crate::secure::{Secured, TlsEnds};
use roadtrain_proto::time::Instant;

/// An end of a connection.
pub struct Wire {
    conn: ConnId,
    end: End,
    secured: Option<Box<Secured>>,
    /// Heard and not compared.
    heard: Vec<u8>,
    life: Life,
    why: TlsEnds,
}

/// What becomes of a connection because of what came, or of keys that are used up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Going,
    /// Nothing more comes or goes since then.
    Over(Instant),
    /// Its end was told so.
    Told,
}

impl Wire {
    /// An end of a connection that is just made.
    #[must_use]
    pub fn new(plan: &Plan, conn: ConnId, end: End) -> Self {
        let secured = plan.tls.then(|| Box::new(Secured::new(plan.security, conn, end)));
        Wire { conn, end, secured, heard: Vec::new(), life: Life::Going, why: TlsEnds::default() }
    }

    /// The octets that have arrived, if they were not sealed; those that were are opened.
    pub fn receive(&mut self, now: Instant, octets: Vec<u8>) -> Vec<u8> {
        let Some(secured) = &mut self.secured else { return octets };
        let mut data = Vec::new();
        if self.life == Life::Going {
            let received = secured.receive(&octets, &mut data);
            self.why = TlsEnds::of(&received);
            if !received.unwrap_or(false) {
                self.life = Life::Over(now);
            }
        }
        self.heard.extend_from_slice(&data);
        data
    }

    /// Whether it has ended by itself; the first time it is asked.
    pub fn ends(&mut self) -> bool {
        let ends = matches!(self.life, Life::Over(_));
        if ends {
            self.life = Life::Told;
        }
        ends
    }

    /// When something is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.life {
            Life::Over(at) => Some(at),
            Life::Going | Life::Told => None,
        }
    }

    /// Whether it has taken octets that the network has not.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.secured.as_ref().is_some_and(|secured| secured.is_blocked())
    }

    /// Sends what the network and the buffers take of `octets`: how many they have taken.
    pub fn send(&mut self, now: Instant, network: &mut Network, octets: &[u8]) -> usize {
        self.compare(network);
        let Some(secured) = &mut self.secured else {
            return network.send(now, self.conn, self.end, octets);
        };
        if self.life == Life::Going && network.leaves(self.conn, self.end) {
            self.life = Life::Over(now);
        }
        let mut taken = 0;
        while self.life == Life::Going {
            let sent = network.send(now, self.conn, self.end, secured.unsent());
            secured.unsent().drain(..sent);
            if !secured.unsent().is_empty() {
                break;
            }
            match secured.send(&octets[taken..]) {
                Ok(Some(count)) => taken += count,
                Ok(None) => {}
                Err(error) => {
                    self.why = TlsEnds::of(&Err(error));
                    self.life = Life::Over(now);
                }
            }
            if taken == octets.len() && secured.unsent().is_empty() {
                break;
            }
        }
        network.said(self.conn, self.end, &octets[..taken]);
        taken
    }

    /// Ends the connection; with `orderly` what was sent arrives. A peer that did wrong hears of it.
    pub fn close(&mut self, now: Instant, network: &mut Network, orderly: bool) {
        self.compare(network);
        if let Some(secured) = &mut self.secured {
            if orderly {
                secured.close_notify();
            }
            network.send(now, self.conn, self.end, secured.unsent());
        }
        network.tls += self.why;
        network.close(now, self.conn, self.end, orderly || self.life != Life::Going);
    }

    fn compare(&mut self, network: &mut Network) {
        let heard = std::mem::take(&mut self.heard);
        assert!(
            network.heard(self.conn, self.end, &heard),
            "other octets than those that were sent"
        );
    }
}

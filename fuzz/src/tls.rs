//! Connections secured by TLS between two honest ends, with an attacker between them. Each end receives a prefix of
//! the data that its peer has sent.

mod end;

use crate::attacker::{AttackStep, Attacker, HonestEnd, InterceptedMessage, STEPS_MAX};
use crate::cursor::InputCursor;
use crate::reached::Reached;
use end::{TlsEnd, TlsPhase};
use roadtrain_proto::security::{Secret, Suite, TlsPsk};
use roadtrain_tls::{
    Acceptor, BLOCKS_MAX, CONTENT_TYPE_DATA, CONTENT_TYPE_HANDSHAKE, HANDSHAKE_BYTES_MAX,
    Handshake, IDLE_MAX, Opener, Sealer, TlsSessionKeys as Made, TrafficSecret,
};
use std::sync::LazyLock;

/// A ticket for another session: hosts receive some from OpenSSL and ignore them.
const TICKET: [u8; 9] = [4, 0, 0, 5, 1, 2, 3, 4, 5];
const SUITES: [Suite; 2] = [Suite::Aes128GcmSha256, Suite::Aes256GcmSha384];

/// Agreement of the two ends' keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TlsKeyAgreement {
    Agree,
    HostHasAnother,
    HostIsUnknown,
}

/// Parameters of a session.
struct TlsPlan {
    suite: Suite,
    keys: TlsKeyAgreement,
    /// Bytes that an end receives at once.
    part: usize,
}

fn psk(identity: &str, fill: u8, suite: Suite) -> TlsPsk {
    let psk = Secret::new(&vec![fill; suite.hash().bytes()]);
    TlsPsk { identity: identity.to_owned(), psk, suite }
}

fn identity(suite: Suite) -> &'static str {
    match suite {
        Suite::Aes128GcmSha256 => "NVMe1R01 host target digest",
        Suite::Aes256GcmSha384 => "NVMe1R02 host target digest",
    }
}

static ACCEPTOR: LazyLock<Acceptor> = LazyLock::new(|| {
    let known = SUITES.map(|suite| psk(identity(suite), 7, suite));
    let find_psk = move |name: &str| known.iter().find(|psk| psk.identity == name).cloned();
    Acceptor::new(find_psk).expect("TLS")
});

impl TlsPlan {
    fn read(shape: u8, part: u8) -> Self {
        TlsPlan {
            suite: SUITES[usize::from(shape >> 1 & 1)],
            keys: match shape >> 2 & 3 {
                0 | 1 => TlsKeyAgreement::Agree,
                2 => TlsKeyAgreement::HostHasAnother,
                _ => TlsKeyAgreement::HostIsUnknown,
            },
            part: (usize::from(part) + 1) * 16,
        }
    }

    /// Returns both ends before their handshake.
    fn handshaking(&self) -> [TlsPhase; 2] {
        let psk = match self.keys {
            TlsKeyAgreement::Agree => psk(identity(self.suite), 7, self.suite),
            TlsKeyAgreement::HostHasAnother => psk(identity(self.suite), 8, self.suite),
            TlsKeyAgreement::HostIsUnknown => psk("NVMe1R01 nobody", 7, self.suite),
        };
        let host = Handshake::connect(psk).expect("a host");
        let target = ACCEPTOR.accept().expect("a target");
        [host, target].map(|handshake| TlsPhase::Handshaking(Box::new(handshake)))
    }

    /// Returns both ends in the state after a handshake.
    fn established(&self) -> [TlsPhase; 2] {
        let secret = |fill| {
            let bytes = vec![fill; self.suite.hash().bytes()];
            TrafficSecret::new(self.suite, &bytes).expect("as long as the hash")
        };
        let other = if self.keys == TlsKeyAgreement::Agree { 0 } else { 2 };
        let made = |own: u8, peer: u8, is_host: bool| Made {
            sealer: Sealer::new(secret(own), BLOCKS_MAX).expect("a key"),
            opener: Opener::new(secret(peer), BLOCKS_MAX, is_host).expect("a key"),
            identity: String::new(),
            suite: self.suite,
            rest: Vec::new(),
            blocks_max: BLOCKS_MAX,
            is_host,
        };
        [made(1, 2, true), made(2 + other, 1 + other, false)].map(TlsPhase::established)
    }
}

struct TlsFuzzSession {
    plan: TlsPlan,
    attacker: Attacker,
    ends: [TlsEnd; 2],
    reached: Reached,
}

/// Runs the session of an input.
///
/// # Panics
/// If an end receives data that its peer has not sent, or a connection without interference fails.
pub fn run(input: &[u8]) -> Reached {
    let mut cursor = InputCursor(input);
    let shape = cursor.byte();
    let plan = TlsPlan::read(shape, cursor.byte());
    let phases = if shape & 1 != 0 { plan.handshaking() } else { plan.established() };
    let (attacker, ends) = (Attacker::default(), phases.map(TlsEnd::new));
    let mut session = TlsFuzzSession { plan, attacker, ends, reached: Reached::default() };
    session.flush(HonestEnd::Host);
    for _ in 0..STEPS_MAX {
        if cursor.is_empty() {
            break;
        }
        match session.attacker.step(&mut cursor) {
            AttackStep::Deliver(message) => session.deliver(&message),
            AttackStep::Act { side, kind, argument } => session.act(side, kind, argument),
            AttackStep::Nothing => {}
        }
    }
    session.finish();
    session.reached
}

impl TlsFuzzSession {
    fn end(&mut self, side: HonestEnd) -> &mut TlsEnd {
        &mut self.ends[side as usize]
    }

    /// Puts an end's outgoing bytes in flight, record by record.
    fn flush(&mut self, side: HonestEnd) {
        let peer_is_ready = matches!(self.end(side.peer()).phase, TlsPhase::Established { .. });
        let bytes = self.end(side).take_outgoing(peer_is_ready);
        for record in end::records(&bytes) {
            self.attacker.send(side.peer(), record.to_vec());
        }
    }

    fn deliver(&mut self, message: &InterceptedMessage) {
        let (to, bytes) = (message.to, &message.bytes);
        if let TlsPhase::Handshaking(_) = self.end(to).phase {
            self.continue_handshake(message);
        } else {
            let [host, target] = &mut self.ends;
            let (end, peer) = match to {
                HonestEnd::Host => (host, target),
                HonestEnd::Target => (target, host),
            };
            if let Some(state) = end.receive(bytes, &peer.stream, self.plan.part) {
                self.reached.note(state);
            }
        }
        self.check(to);
        self.flush(to);
    }

    fn continue_handshake(&mut self, message: &InterceptedMessage) {
        // The headers of records are not authenticated.
        let is_spoiled = message.altered.is_some_and(|at| at >= 5)
            && matches!(message.bytes[0], CONTENT_TYPE_HANDSHAKE | CONTENT_TYPE_DATA);
        let (to, part) = (message.to, self.plan.part);
        let end = self.end(to);
        end.is_spoiled |= is_spoiled;
        if let Some(state) = end.continue_handshake(&message.bytes, part) {
            self.reached.note(state);
        }
        let end = &self.ends[to as usize];
        assert!(
            end.received <= HANDSHAKE_BYTES_MAX || !matches!(end.phase, TlsPhase::Handshaking(_))
        );
        if let TlsPhase::Established { .. } = end.phase {
            assert!(!end.is_spoiled, "a message of the handshake was altered");
            assert!(self.plan.keys == TlsKeyAgreement::Agree, "the peer has another key");
            self.reached.note(match to {
                HonestEnd::Host => "host: the handshake is done",
                HonestEnd::Target => "target: the handshake is done",
            });
        }
    }

    /// Asserts that an end has received a prefix of its peer's data, and nothing without the key.
    fn check(&mut self, side: HonestEnd) {
        let (end, peer) = (&self.ends[side as usize], &self.ends[side.peer() as usize]);
        assert!(
            peer.data_sent.starts_with(&end.data_received),
            "data was received that was not sent"
        );
        assert!(end.data_received.is_empty() || self.plan.keys == TlsKeyAgreement::Agree);
        if !end.data_received.is_empty() {
            self.reached.note("data");
        }
    }

    /// Performs an action of an end.
    fn act(&mut self, side: HonestEnd, kind: u8, argument: u8) {
        let end = self.end(side);
        if !end.can_send() {
            return;
        }
        let count = usize::from(argument);
        let padding = vec![0; count];
        let idle = IDLE_MAX - 2; // minus the update of a key
        match (kind, argument & 3) {
            (0 | 1, _) => end.send_data(if argument == 0xff { 40_000 } else { count * 41 + 1 }),
            (2, _) => end.update(argument & 1 != 0),
            (3, 0) if end.idle < idle => end.send_other(CONTENT_TYPE_DATA, &[]),
            (3, 1) if end.idle < idle => {
                end.send_other(0, &[&[CONTENT_TYPE_DATA][..], &padding].concat());
            }
            (3, 2) if end.idle < idle && side == HonestEnd::Target => {
                end.send_other(CONTENT_TYPE_HANDSHAKE, &TICKET);
            }
            (3, 3) => end.send_padded(count, &padding),
            (4, 3) => end.close(),
            _ => {}
        }
        self.flush(side);
    }

    /// Delivers the records in flight. Without interference, all data must have arrived, and more can be sent.
    fn finish(&mut self) {
        self.pass_all();
        if self.attacker.is_touched() {
            return;
        }
        for side in HonestEnd::BOTH {
            self.act(side, 0, 2);
        }
        self.pass_all();
        for side in HonestEnd::BOTH {
            let (end, peer) = (&self.ends[side as usize], &self.ends[side.peer() as usize]);
            let has_said = !peer.data_sent.is_empty() || peer.is_closed;
            let is_whole = has_said && end.data_received == peer.data_sent;
            let has_keys = self.plan.keys == TlsKeyAgreement::Agree;
            assert!(is_whole || !has_keys, "{side:?} does not receive what was sent");
        }
    }

    fn pass_all(&mut self) {
        while let Some(message) = self.attacker.pass() {
            self.deliver(&message);
        }
    }
}

/// Runs the fixed inputs.
///
/// # Panics
/// If an input does not reach the states that it was made for.
pub fn assert_reached() {
    crate::reached::assert_reached(&crate::inputs::tls(), run);
}

#[cfg(test)]
mod tests {
    #[test]
    fn connections_get_as_far_as_they_are_made_for() {
        super::assert_reached();
    }
}

//! Sealed lanes between two honest ends, with an attacker between them who has no key. Each frame is delivered as it
//! was sent, at most once, and only new frames are signs of life.

mod ends;

use crate::attacker::{AttackStep, Attacker, HonestEnd, InterceptedMessage, STEPS_MAX};
use crate::cursor::InputCursor;
use crate::ether::{PEER_TOKEN, TOKEN, frame};
use crate::reached::Reached;
use ends::{SealedEnds, SendingParams};
use roadtrain_proto::seal::{KeyLimits, Seal};
use roadtrain_proto::security::{FrameSecret, Hash, Secret};
use roadtrain_tls::FrameCipher;
use roadtrain_wire::ether::setup::LeaveReason;
use roadtrain_wire::ether::{FRAME_HEADER_BYTES, FrameHeader, FrameType, flags, parse, set_hcrc};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};
use std::collections::{BTreeMap, BTreeSet};

/// Most turns until all requests complete without interference.
const TURNS_MAX: usize = 2000;
/// Duration of a step, and unit of waiting.
const STEP_NS: u64 = 5_000;
const WAIT_NS: u64 = 50_000;

/// A sealed frame as its sender built it.
struct SentFrame {
    header: FrameHeader,
    sealed: Vec<u8>,
    clear: Vec<u8>,
}

/// State of one direction, kept by its receiving end.
#[derive(Default)]
struct SealedDirection {
    /// Frames by NUMBER.
    sent: BTreeMap<u64, SentFrame>,
    /// Numbers that were signs of life.
    signs_of_life: BTreeSet<u64>,
    /// Newest sign of life, by LINK.
    newest: BTreeMap<u8, u64>,
    /// Numbers of the frames that were opened.
    opened: BTreeSet<u64>,
    /// Last SEQ of forged frames, by link.
    made_up: [u32; crate::ether::LINKS as usize],
}

struct SealedSession {
    ends: SealedEnds,
    seals: [Seal<FrameCipher>; 2],
    directions: [SealedDirection; 2],
    attacker: Attacker,
    has_keys: bool,
    /// True if the lane was sealed before the first step.
    was_begun: bool,
    /// True if an authorized end has ended the lane.
    is_left: bool,
    reached: Reached,
}

/// Runs the session of an input.
///
/// # Panics
/// If an end accepts a frame that was not sent so, or a sealed lane does not survive the interference.
pub fn run(input: &[u8]) -> Reached {
    let mut cursor = InputCursor(input);
    let shape = cursor.byte();
    let mut session = SealedSession::new(shape, cursor.byte());
    if shape & 2 != 0 && session.has_keys {
        session.submit(3);
        session.settle();
        session.was_begun = true;
    }
    for _ in 0..STEPS_MAX {
        if cursor.is_empty() {
            break;
        }
        session.step(&mut cursor);
    }
    session.finish();
    session.reached
}

impl SealedSession {
    fn new(shape: u8, policy: u8) -> Self {
        let hash = if shape & 1 != 0 { Hash::Sha384 } else { Hash::Sha256 };
        let has_keys = shape & 32 == 0;
        let keys = |fill| {
            let secret = FrameSecret::new(hash, &Secret::new(&[fill; 32]), None, b"said");
            secret.keys(TOKEN, PEER_TOKEN)
        };
        let (own, other) = (keys(1), keys(if has_keys { 1 } else { 2 }));
        let host = Seal::host(&own, KeyLimits::HOST).expect("a key");
        let target = Seal::target(&other, KeyLimits::TARGET).expect("a key");
        let shape = SendingParams {
            requests: shape & 4 != 0,
            pieces: shape & 8 != 0,
            body_crc: shape & 16 != 0,
            policy,
        };
        let mut ends = SealedEnds::new(shape);
        ends.host.set_sealed(host.proofs());
        ends.target.end.prove_leave(target.proofs());
        SealedSession {
            ends,
            seals: [host, target],
            directions: [SealedDirection::default(), SealedDirection::default()],
            attacker: Attacker::default(),
            has_keys,
            was_begun: false,
            is_left: false,
            reached: Reached::default(),
        }
    }

    fn step(&mut self, cursor: &mut InputCursor<'_>) {
        self.ends.now.0 += STEP_NS;
        match self.attacker.step(cursor) {
            AttackStep::Deliver(message) => self.deliver(&message),
            AttackStep::Act { kind: 0 | 1, argument, .. } => self.submit(argument),
            AttackStep::Act { kind: 2, argument, .. } => self.wait(u64::from(argument) * WAIT_NS),
            AttackStep::Act { kind: 3, side, argument } => self.make_up(side, argument, cursor),
            AttackStep::Act { side, argument: 0xff, .. } => self.leave(side),
            AttackStep::Act { .. } | AttackStep::Nothing => {}
        }
    }

    // ---- Actions of the ends ----

    fn submit(&mut self, kind: u8) {
        if self.ends.submit(kind) {
            self.reached.note("submitted");
        }
        self.send();
    }

    fn wait(&mut self, nanoseconds: u64) {
        self.ends.now.0 += nanoseconds;
        self.ends.expire();
        self.send();
    }

    fn leave(&mut self, side: HonestEnd) {
        self.is_left = true;
        self.ends.end(side).leave(LeaveReason::Done);
        self.send();
    }

    /// Puts the frames that may leave in flight.
    fn send(&mut self) {
        for side in HonestEnd::BOTH {
            for (mut header, clear) in self.ends.poll(side) {
                let mut sealed = clear.clone();
                let seal = &mut self.seals[side as usize];
                if seal.is_on() && header.kind != FrameType::Leave as u8 {
                    assert!(seal.seal(&mut header, &mut sealed), "a session uses no key up");
                    let sent = SentFrame { header, sealed: sealed.clone(), clear };
                    let direction = &mut self.directions[side.peer() as usize];
                    assert!(direction.sent.insert(header.number.get(), sent).is_none());
                }
                self.attacker.send(side.peer(), [header.as_bytes(), &sealed].concat());
            }
        }
    }

    // ---- Receiving ----

    /// Forges a clear frame, or one that only has the flag of a sealed one.
    fn make_up(&mut self, to: HonestEnd, bits: u8, cursor: &mut InputCursor<'_>) {
        let newest = &mut self.directions[to as usize].made_up;
        let (mut header, kind, mut body) = frame(cursor, newest);
        if kind == FrameType::Leave && !self.seals[to as usize].is_on() {
            return; // no protection against Leave before the lane is sealed
        }
        header.token = if to == HonestEnd::Host { TOKEN } else { PEER_TOKEN }.into();
        body.truncate(1400);
        header.body = (body.len() as u16).into();
        if bits & 1 != 0 {
            header.flags = (header.flags.get() & !flags::CRC | flags::SEALED).into();
            header.number = u64::from(cursor.number()).into();
        }
        set_hcrc(&mut header);
        self.attacker.touch();
        self.receive(to, &[header.as_bytes(), &body].concat());
    }

    fn deliver(&mut self, message: &InterceptedMessage) {
        if !message.is_mended {
            return self.receive(message.to, &message.bytes);
        }
        // Anyone can correct HCRC.
        let Ok((mut header, body)) = FrameHeader::read_from_prefix(&message.bytes) else { return };
        set_hcrc(&mut header);
        self.receive(message.to, &[header.as_bytes(), body].concat());
    }

    fn receive(&mut self, to: HonestEnd, bytes: &[u8]) {
        let Ok((header, kind, body)) = parse(bytes) else {
            self.reached.note("no frame");
            return;
        };
        let before = self.ends.end(to).rejected;
        self.process(to, (&header, kind, body), bytes);
        let after = self.ends.end(to).rejected;
        for ((what, then), (_, now)) in before.by_reason().into_iter().zip(after.by_reason()) {
            if now > then {
                self.reached.note(what);
            }
        }
        self.send();
    }

    fn process(&mut self, to: HonestEnd, frame: (&FrameHeader, FrameType, &[u8]), bytes: &[u8]) {
        let (header, kind, body) = frame;
        let was_on = self.seals[to as usize].is_on();
        let mut out = vec![0; body.len()];
        let opened = self.ends.open(to, &mut self.seals[to as usize], frame, &mut out);
        let Some(opened) = opened else { return };
        let is_sealed = header.flags.get() & flags::SEALED != 0;
        let (body, is_sign_of_life) = (opened.body, opened.is_sign_of_life);
        if is_sealed {
            self.check_sealed(to, header, bytes, body, is_sign_of_life);
        } else {
            assert!(!was_on || kind == FrameType::Leave, "a frame in the clear is taken");
            assert!(!was_on || !is_sign_of_life, "a frame in the clear is a sign of life");
        }
        if opened.is_first {
            self.reached.note("the lane is sealed");
        }
        let had_ended = self.ends.end(to).ended().is_some();
        self.ends.take(to, (header, kind, opened), is_sealed, &mut self.reached);
        if self.ends.end(to).ended().is_some() && !had_ended {
            assert!(self.is_left || !was_on, "the lane was ended without the proof");
            self.is_left = true;
            self.reached.note("left");
        }
    }

    /// Asserts that the frame is one that the other end has sealed, unchanged, and a sign of life at most once.
    fn check_sealed(
        &mut self,
        to: HonestEnd,
        header: &FrameHeader,
        bytes: &[u8],
        body: &[u8],
        is_sign_of_life: bool,
    ) {
        assert!(self.has_keys, "a frame is opened with another key");
        let direction = &mut self.directions[to as usize];
        let number = header.number.get();
        let sent = direction.sent.get(&number).expect("the other end has not sealed it");
        let without_sum = |header: &FrameHeader| FrameHeader { hcrc: 0.into(), ..*header };
        assert_eq!(without_sum(header), without_sum(&sent.header));
        let length = usize::from(header.body.get());
        assert_eq!(bytes[FRAME_HEADER_BYTES..][..length], sent.sealed);
        assert!(body == sent.clear, "it says what was not said");
        assert!(direction.opened.insert(number), "it is opened twice");
        if !is_sign_of_life {
            self.reached.note("overtaken");
            return;
        }
        assert!(
            direction.signs_of_life.insert(number),
            "a frame that was repeated is a sign of life"
        );
        let newest = direction.newest.insert(header.link, number);
        assert!(newest.is_none_or(|newest| newest < number), "an old frame is a sign of life");
    }

    // ---- End of the session ----

    /// Delivers all frames in flight, until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            while let Some(message) = self.attacker.pass() {
                self.deliver(&message);
            }
            if self.ends.are_idle() || self.is_left || !self.has_keys {
                return;
            }
            let Some(next) = self.ends.deadline() else { return };
            self.ends.now = self.ends.now.max(next);
            self.ends.expire();
            self.send();
        }
    }

    /// Asserts the result: without a key, the attacker can only lose frames of a sealed lane.
    fn finish(&mut self) {
        self.settle();
        let is_survived = self.was_begun || !self.attacker.is_touched();
        if self.has_keys && !self.is_left && is_survived {
            assert!(self.ends.are_idle(), "requests are not complete");
            self.reached.note("all is complete");
        }
        assert!(self.has_keys || self.ends.has_executed_nothing());
    }
}

/// Runs the fixed inputs.
///
/// # Panics
/// If an input does not reach the states that it was made for.
pub fn assert_reached() {
    crate::reached::assert_reached(&crate::inputs::sealed(), run);
}

#[cfg(test)]
mod tests {
    #[test]
    fn sealed_lanes_get_as_far_as_they_are_made_for() {
        super::assert_reached();
    }
}

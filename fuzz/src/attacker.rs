//! An attacker between two honest ends, who treats their messages as an input specifies.

use crate::cursor::InputCursor;
use std::collections::VecDeque;

/// Most steps of an input.
pub const STEPS_MAX: usize = 200;
/// Most messages kept for replay.
const SEEN_MAX: usize = 64;
/// Most messages in flight.
const IN_FLIGHT_MAX: usize = 4096;

/// An end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HonestEnd {
    Host,
    Target,
}

impl HonestEnd {
    /// Both ends.
    pub const BOTH: [HonestEnd; 2] = [HonestEnd::Host, HonestEnd::Target];

    /// Returns the other end.
    #[must_use]
    pub fn peer(self) -> Self {
        match self {
            HonestEnd::Host => HonestEnd::Target,
            HonestEnd::Target => HonestEnd::Host,
        }
    }
}

/// A message that arrives.
#[derive(Clone, Debug)]
pub struct InterceptedMessage {
    pub to: HonestEnd,
    pub bytes: Vec<u8>,
    /// Offset of the first altered byte, if any.
    pub altered: Option<usize>,
    /// True if checksums without a key are to be corrected.
    pub is_mended: bool,
}

/// Result of a step.
pub enum AttackStep {
    Deliver(InterceptedMessage),
    Nothing,
    /// An action of an end.
    Act {
        side: HonestEnd,
        kind: u8,
        argument: u8,
    },
}

/// Messages in flight, and the state of the attacker.
#[derive(Default)]
pub struct Attacker {
    in_flight: VecDeque<(HonestEnd, Vec<u8>)>,
    seen: Vec<Vec<u8>>,
    is_touched: bool,
}

impl Attacker {
    /// Puts a message for `to` in flight.
    pub fn send(&mut self, to: HonestEnd, bytes: Vec<u8>) {
        if self.seen.len() < SEEN_MAX {
            self.seen.push(bytes.clone());
        }
        self.in_flight.push_back((to, bytes));
        assert!(self.in_flight.len() <= IN_FLIGHT_MAX, "two ends talk without end");
    }

    /// True if the attacker has done something that the ends could notice.
    #[must_use]
    pub fn is_touched(&self) -> bool {
        self.is_touched
    }

    /// Records an intervention.
    pub fn touch(&mut self) {
        self.is_touched = true;
    }

    /// Takes the next message unchanged.
    pub fn pass(&mut self) -> Option<InterceptedMessage> {
        let (to, bytes) = self.in_flight.pop_front()?;
        Some(InterceptedMessage { to, bytes, altered: None, is_mended: false })
    }

    /// Performs a step of the input; see `inputs.rs`.
    pub fn step(&mut self, cursor: &mut InputCursor<'_>) -> AttackStep {
        let byte = cursor.byte();
        let side = if byte & 0x80 != 0 { HonestEnd::Target } else { HonestEnd::Host };
        let message = match byte & 15 {
            0..=3 => self.pass(),
            4 => self.alter(cursor.pair().into(), cursor.byte()),
            5 => self.cut(cursor.pair().into()),
            6 => self.repeat(),
            7 => self.delay(),
            8 => self.lose(),
            9 => {
                let length = cursor.pair().into();
                self.forge(side, cursor.bytes(length))
            }
            10 => self.replay(side, cursor.byte().into()),
            kind => return AttackStep::Act { side, kind: kind - 11, argument: cursor.byte() },
        };
        match message {
            Some(message) => {
                AttackStep::Deliver(InterceptedMessage { is_mended: byte & 0x40 != 0, ..message })
            }
            None => AttackStep::Nothing,
        }
    }

    fn alter(&mut self, at: usize, xor: u8) -> Option<InterceptedMessage> {
        let mut message = self.pass()?;
        let at = at % message.bytes.len().max(1);
        if let Some(byte) = message.bytes.get_mut(at).filter(|_| xor != 0) {
            *byte ^= xor;
            (message.altered, self.is_touched) = (Some(at), true);
        }
        Some(message)
    }

    fn cut(&mut self, length: usize) -> Option<InterceptedMessage> {
        let mut message = self.pass()?;
        self.is_touched |= length < message.bytes.len();
        message.bytes.truncate(length);
        Some(message)
    }

    fn repeat(&mut self) -> Option<InterceptedMessage> {
        let message = self.pass()?;
        self.in_flight.push_front((message.to, message.bytes.clone()));
        self.is_touched = true;
        Some(message)
    }

    fn delay(&mut self) -> Option<InterceptedMessage> {
        self.is_touched |= self.in_flight.len() > 1;
        self.in_flight.rotate_left(usize::from(!self.in_flight.is_empty()));
        None
    }

    fn lose(&mut self) -> Option<InterceptedMessage> {
        self.is_touched |= self.pass().is_some();
        None
    }

    fn forge(&mut self, to: HonestEnd, bytes: Vec<u8>) -> Option<InterceptedMessage> {
        self.is_touched = true;
        Some(InterceptedMessage { to, bytes, altered: None, is_mended: false })
    }

    fn replay(&mut self, to: HonestEnd, number: usize) -> Option<InterceptedMessage> {
        let bytes = self.seen.get(number % self.seen.len().max(1))?.clone();
        self.forge(to, bytes)
    }
}

//! Somebody between two honest ends, who does with their messages what an input says.

use crate::cursor::Cursor;
use std::collections::VecDeque;

/// Steps of an input at most.
pub const STEPS_MAX: usize = 200;
/// Messages that are kept, to be sent again.
const SEEN_MAX: usize = 64;
/// Messages under way at most.
const FLYING_MAX: usize = 4096;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Host,
    Target,
}

impl Side {
    /// Both of them.
    pub const BOTH: [Side; 2] = [Side::Host, Side::Target];

    /// The other one.
    #[must_use]
    pub fn peer(self) -> Self {
        match self {
            Side::Host => Side::Target,
            Side::Target => Side::Host,
        }
    }
}

/// A message that arrives.
#[derive(Clone, Debug)]
pub struct Message {
    pub to: Side,
    pub octets: Vec<u8>,
    /// The first octet that is not what was sent, if one was altered.
    pub altered: Option<usize>,
    /// Sums that need no key are to be made right.
    pub is_mended: bool,
}

/// What a step comes to.
pub enum Next {
    Deliver(Message),
    Nothing,
    /// The end does something by itself.
    Act {
        side: Side,
        kind: u8,
        argument: u8,
    },
}

/// Messages under way.
#[derive(Default)]
pub struct Between {
    flying: VecDeque<(Side, Vec<u8>)>,
    seen: Vec<Vec<u8>>,
    is_touched: bool,
}

impl Between {
    /// The other end has sent `octets` to `to`.
    pub fn say(&mut self, to: Side, octets: Vec<u8>) {
        if self.seen.len() < SEEN_MAX {
            self.seen.push(octets.clone());
        }
        self.flying.push_back((to, octets));
        assert!(self.flying.len() <= FLYING_MAX, "two ends talk without end");
    }

    /// Whether the ends could notice that somebody is there.
    #[must_use]
    pub fn is_touched(&self) -> bool {
        self.is_touched
    }

    /// Somebody has said something of his own.
    pub fn touch(&mut self) {
        self.is_touched = true;
    }

    /// The next message arrives as it is.
    pub fn pass(&mut self) -> Option<Message> {
        let (to, octets) = self.flying.pop_front()?;
        Some(Message { to, octets, altered: None, is_mended: false })
    }

    /// A step as the input says: see `inputs.rs`.
    pub fn step(&mut self, cursor: &mut Cursor<'_>) -> Next {
        let octet = cursor.octet();
        let side = if octet & 0x80 != 0 { Side::Target } else { Side::Host };
        let message = match octet & 15 {
            0..=3 => self.pass(),
            4 => self.alter(cursor.pair().into(), cursor.octet()),
            5 => self.cut(cursor.pair().into()),
            6 => self.repeat(),
            7 => self.later(),
            8 => self.lose(),
            9 => {
                let length = cursor.pair().into();
                self.make_up(side, cursor.octets(length))
            }
            10 => self.again(side, cursor.octet().into()),
            kind => return Next::Act { side, kind: kind - 11, argument: cursor.octet() },
        };
        match message {
            Some(message) => Next::Deliver(Message { is_mended: octet & 0x40 != 0, ..message }),
            None => Next::Nothing,
        }
    }

    fn alter(&mut self, at: usize, xor: u8) -> Option<Message> {
        let mut message = self.pass()?;
        let at = at % message.octets.len().max(1);
        if let Some(octet) = message.octets.get_mut(at).filter(|_| xor != 0) {
            *octet ^= xor;
            (message.altered, self.is_touched) = (Some(at), true);
        }
        Some(message)
    }

    fn cut(&mut self, length: usize) -> Option<Message> {
        let mut message = self.pass()?;
        self.is_touched |= length < message.octets.len();
        message.octets.truncate(length);
        Some(message)
    }

    fn repeat(&mut self) -> Option<Message> {
        let message = self.pass()?;
        self.flying.push_front((message.to, message.octets.clone()));
        self.is_touched = true;
        Some(message)
    }

    fn later(&mut self) -> Option<Message> {
        self.is_touched |= self.flying.len() > 1;
        self.flying.rotate_left(usize::from(!self.flying.is_empty()));
        None
    }

    fn lose(&mut self) -> Option<Message> {
        self.is_touched |= self.pass().is_some();
        None
    }

    fn make_up(&mut self, to: Side, octets: Vec<u8>) -> Option<Message> {
        self.is_touched = true;
        Some(Message { to, octets, altered: None, is_mended: false })
    }

    fn again(&mut self, to: Side, number: usize) -> Option<Message> {
        let octets = self.seen.get(number % self.seen.len().max(1))?.clone();
        self.make_up(to, octets)
    }
}

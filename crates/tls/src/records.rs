//! Both directions of a connection whose handshake is done: data becomes records that a socket takes in parts, and
//! what it brings, in parts as well, becomes data.
//!
//! Sealed and opened records lie in buffers of the caller, which connections can share: an idle one holds no memory.
//! What is kept here is a record that has not come as a whole, and what the socket had no room for.

use crate::record::RECORD_BYTES_MAX;
use crate::{CONTENT_TYPE_ALERT, Error, Keys, Opener, Sealer, alert_message};

/// What a receive call brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// So many octets.
    Octets(usize),
    /// Nothing now.
    Nothing,
    /// The peer has ended its half.
    Closed,
}

/// What records go over. No call waits.
pub trait Socket {
    /// Why it ends.
    type Error: From<Error>;

    /// How many of `octets`, which are some, it has taken; `None`: it has no room now.
    ///
    /// # Errors
    /// The connection is over.
    fn send(&mut self, octets: &[u8]) -> Result<Option<usize>, Self::Error>;

    /// What has come, at most as much as `place` has room for.
    ///
    /// # Errors
    /// The connection is over.
    fn receive(&mut self, place: &mut [u8]) -> Result<Incoming, Self::Error>;
}

/// A connection's records.
pub struct Records {
    sealer: Sealer,
    opener: Opener,
    /// Octets of a record that has not come as a whole.
    kept: Vec<u8>,
    /// Records for which the socket had no room, and how much of them has left.
    unsent: Vec<u8>,
    sent: usize,
    /// The last receive took as much as it could.
    is_full: bool,
    /// The peer has said that nothing more comes.
    is_closed: bool,
}

impl Records {
    /// A connection whose handshake has made `keys`.
    #[must_use]
    pub fn new(keys: Keys) -> Self {
        let Keys { sealer, opener, rest: kept, .. } = keys;
        let (unsent, sent) = (Vec::new(), 0);
        Records { sealer, opener, kept, unsent, sent, is_full: false, is_closed: false }
    }

    /// Whether there may be more at once: the last receive took as much as it could, or data and the peer's end.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full || self.is_closed
    }

    /// Receives into `buffer`, and opens what is whole into `places`, which have room for two records or more.
    ///
    /// # Errors
    /// The socket's, or a record that cannot be: the peer hears of it, and the connection has to end.
    pub fn receive<S: Socket>(
        &mut self,
        socket: &mut S,
        buffer: &mut [u8],
        places: &mut [&mut [u8]],
    ) -> Result<Incoming, S::Error> {
        loop {
            let incoming = self.receive_once(socket, buffer, places)?;
            // Records without data are no reason to wait; too many of them are an error.
            if incoming != Incoming::Nothing || !self.is_full {
                return Ok(incoming);
            }
        }
    }

    fn receive_once<S: Socket>(
        &mut self,
        socket: &mut S,
        buffer: &mut [u8],
        places: &mut [&mut [u8]],
    ) -> Result<Incoming, S::Error> {
        self.is_full = false;
        if self.is_closed {
            return Ok(Incoming::Closed);
        }
        // Never more than fits its places: what is opened is shorter than what is sealed.
        let room = places.iter().map(|place| place.len()).sum::<usize>().min(buffer.len());
        let kept = self.kept.len();
        debug_assert!(room >= 2 * RECORD_BYTES_MAX && room > kept);
        buffer[..kept].copy_from_slice(&self.kept);
        let free = &mut buffer[kept..room];
        let incoming = socket.receive(free)?;
        let got = match incoming {
            Incoming::Octets(got) => got,
            Incoming::Nothing if kept > 0 => 0,
            Incoming::Nothing | Incoming::Closed => return Ok(incoming),
        };
        self.is_full = got == free.len();
        let sealed = &buffer[..kept + got];
        let opened = match self.opener.open(sealed, places) {
            Ok(opened) => opened,
            Err(error) => {
                self.alert(socket, error.alert());
                return Err(error.into());
            }
        };
        self.kept.clear();
        self.kept.extend_from_slice(&sealed[opened.used..]);
        self.is_closed = opened.closed;
        if opened.update {
            self.sealer.update(false);
        }
        match opened {
            _ if opened.data > 0 => Ok(Incoming::Octets(opened.data)),
            _ if opened.closed => Ok(Incoming::Closed),
            _ => Ok(Incoming::Nothing),
        }
    }

    /// Sends the first `length` octets of `pieces`, or as many as fit into `buffer` as records: how many were taken.
    /// `None` when the socket has no room for what was taken before.
    ///
    /// # Errors
    /// The socket's, or the key is used up: the connection has to end.
    pub fn send<'a, S: Socket>(
        &mut self,
        socket: &mut S,
        pieces: impl Iterator<Item = &'a [u8]>,
        length: usize,
        buffer: &mut [u8],
    ) -> Result<Option<usize>, S::Error> {
        if !self.drain(socket)? {
            return Ok(None);
        }
        let length = length.min(self.sealer.capacity(buffer.len()));
        let sealed = self.sealer.seal(pieces, length, buffer)?;
        let mut sealed = &buffer[..sealed];
        while !sealed.is_empty() {
            match socket.send(sealed)? {
                Some(sent) => sealed = &sealed[sent..],
                None => {
                    self.unsent.extend_from_slice(sealed);
                    break;
                }
            }
        }
        Ok(Some(length))
    }

    /// Whether something was taken that the socket had no room for.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.sent < self.unsent.len()
    }

    /// Sends what was taken and the socket had no room for; `false` when it still has none.
    ///
    /// # Errors
    /// The socket's.
    pub fn drain<S: Socket>(&mut self, socket: &mut S) -> Result<bool, S::Error> {
        while self.sent < self.unsent.len() {
            match socket.send(&self.unsent[self.sent..])? {
                Some(sent) => self.sent += sent,
                None => return Ok(false),
            }
        }
        if !self.unsent.is_empty() {
            self.unsent = Vec::new(); // it is as long as a whole buffer, and seldom needed
            self.sent = 0;
        }
        Ok(true)
    }

    /// Says that nothing more comes.
    pub fn close_notify<S: Socket>(&mut self, socket: &mut S) {
        self.alert(socket, 0);
    }

    /// Our next data is sealed with another key; with `asks` the peer's is as well.
    pub fn update(&mut self, asks: bool) {
        self.sealer.update(asks);
    }

    /// Sends a record of type `kind` behind what was taken.
    ///
    /// # Errors
    /// The key is used up.
    pub fn say<S: Socket>(
        &mut self,
        socket: &mut S,
        kind: u8,
        content: &[u8],
    ) -> Result<(), S::Error> {
        self.unsent.extend(self.sealer.record(kind, content)?);
        self.drain(socket).map(drop)
    }

    /// Says why the connection ends. A socket without room for it is about to be closed, which says the same.
    fn alert<S: Socket>(&mut self, socket: &mut S, code: u8) {
        let _ = self.say(socket, CONTENT_TYPE_ALERT, &alert_message(code));
    }
}

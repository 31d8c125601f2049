//! Both directions of a connection after its handshake: data becomes records, which a socket takes in parts; received
//! parts of records become data.
//!
//! Sealed and opened records lie in buffers of the caller, which connections can share: an idle one holds no memory.
//! Only incomplete records, and records that the full socket has not taken, are kept here.

use crate::record::RECORD_BYTES_MAX;
use crate::{CONTENT_TYPE_ALERT, Opener, Sealer, TlsError, TlsSessionKeys, alert_message};

/// Result of a receive call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// Number of received bytes.
    Bytes(usize),
    /// Nothing available now.
    Nothing,
    /// The peer has ended its direction.
    Closed,
}

/// Non-blocking socket below the records.
pub trait RecordSocket {
    /// Error of the socket.
    type Error: From<TlsError>;

    /// Sends some of `bytes`, which are not empty; returns the bytes taken, or `None` when the socket is full.
    ///
    /// # Errors
    /// The connection is lost.
    fn send(&mut self, bytes: &[u8]) -> Result<Option<usize>, Self::Error>;

    /// Receives at most as many bytes as `place` holds.
    ///
    /// # Errors
    /// The connection is lost.
    fn receive(&mut self, place: &mut [u8]) -> Result<Incoming, Self::Error>;
}

/// Records of a connection.
pub struct TlsRecords {
    sealer: Sealer,
    opener: Opener,
    /// Bytes of an incomplete record.
    kept: Vec<u8>,
    /// Records that the full socket has not taken, and the bytes of them that are sent.
    unsent: Vec<u8>,
    sent: usize,
    /// True if the last receive filled its buffer.
    is_full: bool,
    /// True once the peer has sent close_notify.
    is_closed: bool,
}

impl TlsRecords {
    /// Records with the `keys` of a handshake.
    #[must_use]
    pub fn new(keys: TlsSessionKeys) -> Self {
        let TlsSessionKeys { sealer, opener, rest: kept, .. } = keys;
        let (unsent, sent) = (Vec::new(), 0);
        TlsRecords { sealer, opener, kept, unsent, sent, is_full: false, is_closed: false }
    }

    /// True if more may be available at once: the last receive filled its buffer, or returned data and the peer's end.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full || self.is_closed
    }

    /// Receives into `buffer`, and opens whole records into `places`, which hold two records or more.
    ///
    /// # Errors
    /// The socket's, or an invalid record: the peer receives an alert, and the connection has to end.
    pub fn receive<S: RecordSocket>(
        &mut self,
        socket: &mut S,
        buffer: &mut [u8],
        places: &mut [&mut [u8]],
    ) -> Result<Incoming, S::Error> {
        loop {
            let incoming = self.receive_once(socket, buffer, places)?;
            // Records without data do not end the receive; too many of them are an error.
            if incoming != Incoming::Nothing || !self.is_full {
                return Ok(incoming);
            }
        }
    }

    fn receive_once<S: RecordSocket>(
        &mut self,
        socket: &mut S,
        buffer: &mut [u8],
        places: &mut [&mut [u8]],
    ) -> Result<Incoming, S::Error> {
        self.is_full = false;
        if self.is_closed {
            return Ok(Incoming::Closed);
        }
        // Never more than fits the places: opened data is shorter than its records.
        let room = places.iter().map(|place| place.len()).sum::<usize>().min(buffer.len());
        let kept = self.kept.len();
        debug_assert!(room >= 2 * RECORD_BYTES_MAX && room > kept);
        buffer[..kept].copy_from_slice(&self.kept);
        let free = &mut buffer[kept..room];
        let incoming = socket.receive(free)?;
        let got = match incoming {
            Incoming::Bytes(got) => got,
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
            _ if opened.data > 0 => Ok(Incoming::Bytes(opened.data)),
            _ if opened.closed => Ok(Incoming::Closed),
            _ => Ok(Incoming::Nothing),
        }
    }

    /// Sends the first `length` bytes of `pieces`, or as many as fit into `buffer` as records; returns the bytes taken.
    /// `None` when the socket has no capacity for records taken before.
    ///
    /// # Errors
    /// The socket's, or the key is used up: the connection has to end.
    pub fn send<'a, S: RecordSocket>(
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

    /// True if taken records wait for capacity in the socket.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.sent < self.unsent.len()
    }

    /// Sends taken records. False if some still wait for capacity in the socket.
    ///
    /// # Errors
    /// The socket's.
    pub fn drain<S: RecordSocket>(&mut self, socket: &mut S) -> Result<bool, S::Error> {
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

    /// Sends close_notify: no more data follows.
    pub fn close_notify<S: RecordSocket>(&mut self, socket: &mut S) {
        self.alert(socket, 0);
    }

    /// Changes the key of our next data; with `requests_update` the peer is requested to change its own as well.
    pub fn update(&mut self, requests_update: bool) {
        self.sealer.update(requests_update);
    }

    /// Sends a record of type `kind` behind the records taken before.
    ///
    /// # Errors
    /// The key is used up.
    pub fn send_record<S: RecordSocket>(
        &mut self,
        socket: &mut S,
        kind: u8,
        content: &[u8],
    ) -> Result<(), S::Error> {
        self.unsent.extend(self.sealer.record(kind, content)?);
        self.drain(socket).map(drop)
    }

    /// Sends an alert with the reason why the connection ends. A full socket drops it: the connection is closed anyway.
    fn alert<S: RecordSocket>(&mut self, socket: &mut S, code: u8) {
        let _ = self.send_record(socket, CONTENT_TYPE_ALERT, &alert_message(code));
    }
}

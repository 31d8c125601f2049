//! An end of a connection secured by TLS.

use roadtrain_tls::{
    BLOCKS_MAX, CONTENT_TYPE_DATA, HANDSHAKE_BYTES_MAX, Handshake, Incoming, RECORD_BYTES_MAX,
    RecordSocket, TlsError, TlsRecords, TlsSessionKeys,
};

/// Bytes of the buffers for opened and for sealed records.
const ROOM_BYTES: usize = 3 * RECORD_BYTES_MAX;
/// Bytes of a record's header.
const HEADER_BYTES: usize = 5;

/// A socket's two buffers.
#[derive(Default)]
pub(super) struct BufferSocket {
    received: Vec<u8>,
    sent: Vec<u8>,
}

impl RecordSocket for BufferSocket {
    type Error = TlsError;

    fn send(&mut self, bytes: &[u8]) -> Result<Option<usize>, TlsError> {
        self.sent.extend_from_slice(bytes);
        Ok(Some(bytes.len()))
    }

    fn receive(&mut self, place: &mut [u8]) -> Result<Incoming, TlsError> {
        if self.received.is_empty() {
            return Ok(Incoming::Nothing);
        }
        let got = place.len().min(self.received.len());
        place[..got].copy_from_slice(&self.received[..got]);
        self.received.drain(..got);
        Ok(Incoming::Bytes(got))
    }
}

/// State of an end.
pub(super) enum TlsPhase {
    Handshaking(Box<Handshake>),
    Established {
        records: Box<TlsRecords>,
        pipe: BufferSocket,
    },
    /// Failed: the end has closed the connection.
    Over,
}

impl TlsPhase {
    pub(super) fn established(keys: TlsSessionKeys) -> Self {
        TlsPhase::Established {
            records: Box::new(TlsRecords::new(keys)),
            pipe: BufferSocket::default(),
        }
    }
}

/// An end, with the data that it has sent and received.
pub(super) struct TlsEnd {
    pub(super) phase: TlsPhase,
    /// Data sent and received.
    pub(super) data_sent: Vec<u8>,
    pub(super) data_received: Vec<u8>,
    /// Bytes sent to a peer whose handshake was done.
    pub(super) stream: Vec<u8>,
    /// Bytes received in the handshake.
    pub(super) received: usize,
    /// True if a received message of the handshake was altered.
    pub(super) is_spoiled: bool,
    /// Records without data sent since the last one with data.
    pub(super) idle: u32,
    /// Bytes of the peer's stream that have arrived, and true if other bytes have.
    arrived: usize,
    is_forged: bool,
    /// True if the end has announced the end of its data.
    pub(super) is_closed: bool,
    /// Outgoing bytes of the handshake, and records.
    flight: Vec<u8>,
    sealed: Vec<u8>,
    rooms: [Vec<u8>; 2],
}

/// Returns the records in `bytes`.
pub(super) fn records(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while let Some(&[_, _, _, high, low]) = bytes.first_chunk::<HEADER_BYTES>() {
        let length = HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
        let (record, rest) = bytes.split_at(length.min(bytes.len()));
        records.push(record);
        bytes = rest;
    }
    records
}

/// Returns byte `at` of an end's data.
fn pattern(at: usize) -> u8 {
    (at * 7 + (at >> 8) * 31) as u8
}

impl TlsEnd {
    pub(super) fn new(phase: TlsPhase) -> Self {
        TlsEnd {
            phase,
            data_sent: Vec::new(),
            data_received: Vec::new(),
            stream: Vec::new(),
            received: 0,
            is_spoiled: false,
            idle: 0,
            arrived: 0,
            is_forged: false,
            is_closed: false,
            flight: Vec::new(),
            sealed: Vec::new(),
            rooms: [vec![0; ROOM_BYTES], vec![0; ROOM_BYTES]],
        }
    }

    /// Takes the outgoing bytes; `peer_is_ready` is true if the peer's handshake is done.
    pub(super) fn take_outgoing(&mut self, peer_is_ready: bool) -> Vec<u8> {
        match &mut self.phase {
            TlsPhase::Handshaking(handshake) => self.flight.append(handshake.outgoing()),
            TlsPhase::Established { pipe, .. } => self.sealed.append(&mut pipe.sent),
            TlsPhase::Over => {}
        }
        if peer_is_ready {
            self.stream.extend_from_slice(&self.flight);
        }
        self.stream.extend_from_slice(&self.sealed);
        let mut bytes = std::mem::take(&mut self.flight);
        bytes.append(&mut self.sealed);
        bytes
    }

    // ---- The handshake ----

    /// Continues the handshake. Returns the state of its failure, if it fails.
    pub(super) fn continue_handshake(&mut self, bytes: &[u8], part: usize) -> Option<&'static str> {
        for part in bytes.chunks(part) {
            let TlsPhase::Handshaking(handshake) = &mut self.phase else {
                self.receive_part(part);
                continue;
            };
            self.received += part.len();
            let result = handshake.receive(part);
            self.flight.append(handshake.outgoing());
            assert!(self.flight.len() <= HANDSHAKE_BYTES_MAX);
            if let Err(error) = result {
                self.phase = TlsPhase::Over;
                return Some(handshake_state(&error));
            }
            if handshake.is_done() {
                self.begin_records();
            }
        }
        None
    }

    /// Begins to exchange records after the handshake.
    fn begin_records(&mut self) {
        let phase = std::mem::replace(&mut self.phase, TlsPhase::Over);
        if let TlsPhase::Handshaking(handshake) = phase
            && let Ok(keys) = handshake.keys(BLOCKS_MAX)
        {
            self.phase = TlsPhase::established(keys);
        }
    }

    // ---- Records ----

    /// True if the end may send data.
    pub(super) fn can_send(&self) -> bool {
        matches!(self.phase, TlsPhase::Established { .. }) && !self.is_closed
    }

    /// Receives bytes; `stream` is all that the peer has sent. Returns the state that this leads to, if any.
    pub(super) fn receive(
        &mut self,
        bytes: &[u8],
        stream: &[u8],
        part: usize,
    ) -> Option<&'static str> {
        if !matches!(self.phase, TlsPhase::Established { .. }) {
            return None;
        }
        let (was_forged, data_received) = (self.is_forged, self.data_received.len());
        let expected = &stream[self.arrived..];
        let same = bytes.iter().zip(expected).take_while(|(one, other)| one == other).count();
        self.arrived += same;
        self.is_forged |= same < bytes.len();
        let mut state = None;
        for part in bytes.chunks(part) {
            state = state.or(self.receive_part(part));
        }
        assert!(
            !was_forged || self.data_received.len() == data_received,
            "it goes on behind what was forged"
        );
        state
    }

    fn receive_part(&mut self, bytes: &[u8]) -> Option<&'static str> {
        let TlsEnd { phase, data_received, sealed, rooms: [buffer, place], .. } = self;
        let TlsPhase::Established { records, pipe } = phase else { return None };
        pipe.received.extend_from_slice(bytes);
        loop {
            let (first, second) = place.split_at_mut(bytes.len());
            let mut places = [first, second];
            match records.receive(pipe, buffer, &mut places) {
                Ok(Incoming::Bytes(got)) => data_received.extend_from_slice(&place[..got]),
                Ok(Incoming::Nothing) if pipe.received.is_empty() => return None,
                Ok(Incoming::Nothing) => {}
                Ok(Incoming::Closed) => {
                    pipe.received.clear();
                    return Some("closed");
                }
                Err(error) => {
                    sealed.append(&mut pipe.sent);
                    *phase = TlsPhase::Over;
                    return Some(record_state(&error));
                }
            }
        }
    }

    /// Sends `count` bytes of data.
    pub(super) fn send_data(&mut self, count: usize) {
        let data = self.next_data(count);
        let TlsPhase::Established { records, pipe } = &mut self.phase else { return };
        let [buffer, _] = &mut self.rooms;
        let mut rest = &data[..];
        while !rest.is_empty() {
            let pieces = rest.chunks(1000);
            let taken = records.send(pipe, pieces, rest.len(), buffer).expect("a fresh key");
            rest = &rest[taken.expect("the socket has room")..];
        }
        self.idle = 0;
    }

    fn next_data(&mut self, count: usize) -> Vec<u8> {
        let from = self.data_sent.len();
        self.data_sent.extend((from..from + count).map(pattern));
        self.data_sent[from..].to_vec()
    }

    /// Sends data in a padded record.
    pub(super) fn send_padded(&mut self, count: usize, padding: &[u8]) {
        let data = self.next_data(count);
        self.send_other(0, &[&data[..], &[CONTENT_TYPE_DATA], padding].concat());
        self.idle = if count > 0 { 0 } else { self.idle };
    }

    /// Sends a record without data.
    pub(super) fn send_other(&mut self, kind: u8, content: &[u8]) {
        let TlsPhase::Established { records, pipe } = &mut self.phase else { return };
        records.send_record(pipe, kind, content).expect("a fresh key");
        self.idle += 1;
    }

    /// Updates the key before the next data; `asks` requests the same of the peer.
    pub(super) fn update(&mut self, asks: bool) {
        let TlsPhase::Established { records, .. } = &mut self.phase else { return };
        records.update(asks);
    }

    /// Announces the end of the data.
    pub(super) fn close(&mut self) {
        let TlsPhase::Established { records, pipe } = &mut self.phase else { return };
        records.close_notify(pipe);
        self.is_closed = true;
    }
}

fn handshake_state(error: &TlsError) -> &'static str {
    match error {
        TlsError::Alert(_) => "handshake: alert",
        TlsError::Plain => "handshake: plain",
        TlsError::TooLong => "handshake: too long",
        TlsError::UnknownIdentity(_) => "handshake: unknown",
        TlsError::WrongKey(_) => "handshake: wrong key",
        _ => "handshake: refused",
    }
}

fn record_state(error: &TlsError) -> &'static str {
    match error {
        TlsError::Tag => "record: tag",
        TlsError::Record { .. } => "record: cannot be",
        TlsError::Idle => "record: idle",
        _ => "record: other",
    }
}

//! TLS between the ends of a connection: the real record layer over a socket with small buffers, between peers that
//! send more than data. The handshake is left out, as its library draws its own random numbers: both ends derive its
//! results from the connection's number.

use crate::ends::{ConnEnd, ConnId};
use crate::rng::SimRng;
use roadtrain_proto::security::Suite;
use roadtrain_tls::{
    CONTENT_TYPE_DATA, CONTENT_TYPE_HANDSHAKE, Incoming, Opener, RECORD_BYTES_MAX, RecordSocket,
    Sealer, TlsError, TlsRecords, TlsSessionKeys, TrafficSecret,
};
use std::cell::RefCell;

/// Most bytes that a receive has room for.
const RECEIVED_BYTES: usize = 80 << 10;
/// Most bytes sealed at once.
const SEALED_BYTES: usize = 48 << 10;
/// Ticket for a later session: hosts receive such tickets from OpenSSL and ignore them.
const TICKET: [u8; 9] = [4, 0, 0, 5, 1, 2, 3, 4, 5];
/// Most data bytes of a padded record, and most bytes of padding.
const PADDED_BYTES: usize = 200;

thread_local! {
    static SCRATCH: RefCell<[Vec<u8>; 3]> =
        RefCell::new([vec![0; SEALED_BYTES], vec![0; RECEIVED_BYTES], vec![0; RECEIVED_BYTES]]);
}

roadtrain_proto::counters! {
    /// Reasons why ends of connections have ended.
    pub struct TlsEnds {
        /// Invalid bytes arrived.
        refused,
        /// The peer has refused our bytes.
        alerted,
        /// Keys were used up.
        used_up,
        /// The peer has closed in order.
        closed,
    }
}

impl TlsEnds {
    pub(crate) fn of(received: &Result<bool, TlsError>) -> Self {
        let (refused, alerted, used_up, closed) = match received {
            Ok(goes_on) => (0, 0, 0, u64::from(!goes_on)),
            Err(TlsError::UsedUp) => (0, 0, 1, 0),
            Err(TlsError::Alert(_)) => (0, 1, 0, 0),
            Err(_) => (1, 0, 0, 0),
        };
        TlsEnds { refused, alerted, used_up, closed }
    }
}

/// Parameters of TLS.
#[derive(Clone, Copy, Debug)]
pub struct Security {
    /// Cipher suite.
    pub suite: Suite,
    /// Blocks of AES that a key of a host takes, and one of the target.
    pub blocks_max: [u64; 2],
    /// Sends of 1,000 before which an end sends more than data.
    pub other_sends_per_mille: u64,
    /// Bytes of a socket's buffer: records leave in parts of at most that size.
    pub buffer_bytes: usize,
    /// Most bytes sealed at once.
    pub sealed_bytes: usize,
}

impl Security {
    /// Draws the parameters of a seed.
    #[must_use]
    pub fn new(mut rng: SimRng) -> Self {
        Security {
            suite: rng.pick(&[Suite::Aes128GcmSha256, Suite::Aes256GcmSha384]),
            // More than all requests of a lane have.
            blocks_max: [rng.pick(&[100_000, 1 << 30]), rng.pick(&[100_000, 1 << 30])],
            other_sends_per_mille: rng.pick(&[0, 5, 100]),
            buffer_bytes: rng.pick(&[50, 2_000, 100_000]),
            sealed_bytes: rng.pick(&[100, 5_000, SEALED_BYTES]),
        }
    }

    /// Returns the keys that a handshake would have made.
    fn keys(&self, conn: ConnId, end: ConnEnd) -> Result<TlsSessionKeys, TlsError> {
        let secret = |sender: ConnEnd| {
            let mut bytes =
                SimRng::new(u64::from(conn.0) << 1 | u64::from(sender == ConnEnd::Host));
            let bytes: Vec<u8> =
                (0..self.suite.hash().bytes()).map(|_| bytes.bits() as u8).collect();
            TrafficSecret::new(self.suite, &bytes)
        };
        let is_host = end == ConnEnd::Host;
        let blocks_max = self.blocks_max[usize::from(!is_host)];
        Ok(TlsSessionKeys {
            sealer: Sealer::new(secret(end)?, blocks_max)?,
            opener: Opener::new(secret(end.peer())?, blocks_max, is_host)?,
            identity: String::new(),
            suite: self.suite,
            rest: Vec::new(),
            blocks_max,
            is_host,
        })
    }
}

/// Buffers of a socket.
struct SocketBuffers {
    received: Vec<u8>,
    /// Bytes that the network has not taken.
    unsent: Vec<u8>,
    /// Capacity in bytes.
    room: usize,
    rng: SimRng,
}

impl RecordSocket for SocketBuffers {
    type Error = TlsError;

    fn send(&mut self, bytes: &[u8]) -> Result<Option<usize>, TlsError> {
        let room = bytes.len().min(self.room - self.unsent.len());
        if room == 0 {
            return Ok(None);
        }
        let taken = self.rng.between(1, room as u64) as usize;
        self.unsent.extend_from_slice(&bytes[..taken]);
        Ok(Some(taken))
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

/// End of a connection with TLS.
pub(crate) struct TlsEnd {
    records: TlsRecords,
    socket: SocketBuffers,
    security: Security,
    end: ConnEnd,
    rng: SimRng,
}

impl TlsEnd {
    pub(crate) fn new(security: Security, conn: ConnId, end: ConnEnd) -> Self {
        let mut rng = SimRng::new(u64::from(conn.0) << 1 | u64::from(end == ConnEnd::Host)).fork();
        let keys = security.keys(conn, end).expect("the secrets are as long as the suite's hash");
        let (received, unsent, room) = (Vec::new(), Vec::new(), security.buffer_bytes);
        let socket = SocketBuffers { received, unsent, room, rng: rng.fork() };
        TlsEnd { records: TlsRecords::new(keys), socket, security, end, rng }
    }

    /// Returns the bytes for the network.
    pub(crate) fn unsent(&mut self) -> &mut Vec<u8> {
        &mut self.socket.unsent
    }

    pub(crate) fn is_blocked(&self) -> bool {
        !self.socket.unsent.is_empty()
    }

    /// Opens received bytes into `data`. True if more may come.
    pub(crate) fn receive(&mut self, bytes: &[u8], data: &mut Vec<u8>) -> Result<bool, TlsError> {
        self.socket.received.extend_from_slice(bytes);
        SCRATCH.with_borrow_mut(|[_, buffer, place]| {
            loop {
                let room = self.rng.between(2 * RECORD_BYTES_MAX as u64, RECEIVED_BYTES as u64);
                let place = &mut place[..room as usize];
                let (first, second) = place.split_at_mut(self.rng.below(room) as usize);
                let mut places = [first, second];
                match self.records.receive(&mut self.socket, buffer, &mut places)? {
                    Incoming::Bytes(got) => data.extend_from_slice(&place[..got]),
                    Incoming::Nothing if self.socket.received.is_empty() => return Ok(true),
                    Incoming::Nothing => {}
                    Incoming::Closed => return Ok(false),
                }
            }
        })
    }

    /// Seals a part of `bytes`. Returns the number of bytes taken; `None`: the network has to take earlier ones first.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<Option<usize>, TlsError> {
        if bytes.is_empty() || !self.records.drain(&mut self.socket)? {
            return Ok(self.records.drain(&mut self.socket)?.then_some(0));
        }
        if self.rng.below(1000) < self.security.other_sends_per_mille {
            let taken = self.send_other(bytes)?;
            if taken > 0 || !self.records.drain(&mut self.socket)? {
                return Ok(Some(taken));
            }
        }
        let mut pieces = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(self.rng.between(1, rest.len() as u64) as usize);
            pieces.push(piece);
            rest = later;
        }
        SCRATCH.with_borrow_mut(|[buffer, ..]| {
            let buffer = &mut buffer[..self.security.sealed_bytes];
            self.records.send(&mut self.socket, pieces.into_iter(), bytes.len(), buffer)
        })
    }

    /// Sends something other than plain data records. Returns how many of `bytes` it has taken.
    fn send_other(&mut self, bytes: &[u8]) -> Result<usize, TlsError> {
        let padding = vec![0; self.rng.below(PADDED_BYTES as u64) as usize];
        match self.rng.below(6) {
            0 => self.records.update(false),
            1 => self.records.update(true),
            2 if self.end == ConnEnd::Target => {
                self.records.send_record(&mut self.socket, CONTENT_TYPE_HANDSHAKE, &TICKET)?;
            }
            2 | 3 => self.records.send_record(&mut self.socket, CONTENT_TYPE_DATA, &[])?,
            4 => {
                let content = [&[CONTENT_TYPE_DATA][..], &padding].concat();
                self.records.send_record(&mut self.socket, 0, &content)?;
            }
            _ => {
                let taken = bytes.len().min(PADDED_BYTES);
                let content = [&bytes[..taken], &[CONTENT_TYPE_DATA], &padding].concat();
                self.records.send_record(&mut self.socket, 0, &content)?;
                return Ok(taken);
            }
        }
        Ok(0)
    }

    /// Sends close_notify.
    pub(crate) fn close_notify(&mut self) {
        self.records.close_notify(&mut self.socket);
    }
}

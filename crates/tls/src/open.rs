//! Opening: records become data.

use crate::TlsError;
use crate::cipher::CipherDirection;
use crate::control_record::{IDLE_MAX, parse_control_record};
use crate::record::{
    CONTENT_BYTES_MAX, CONTENT_TYPE_DATA, HEADER_BYTES, TAG_BYTES, blocks, record_bytes,
};
use crate::schedule::{RecordKey, TrafficSecret};

/// Result of [`Opener::open`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenedRecords {
    /// Bytes of whole records that were used.
    pub used: usize,
    /// Bytes of data in them.
    pub data: usize,
    /// True if the peer sends nothing more.
    pub closed: bool,
    /// True if the peer requests another key for our next data ([`crate::Sealer::update`]).
    pub update: bool,
}

/// Receive direction of a connection.
pub struct Opener {
    secret: TrafficSecret,
    key: RecordKey,
    blocks_left: u64,
    blocks_max: u64,
    /// Records without data since the last one with data.
    idle: u32,
    /// True at a host: tickets may arrive, which are ignored.
    is_host: bool,
}

/// Destination buffers of data, one after the other.
struct DataDestinations<'a, 'b> {
    places: &'a mut [&'b mut [u8]],
    /// Index of the first buffer that is not full, and bytes in it.
    at: (usize, usize),
}

impl DataDestinations<'_, '_> {
    fn room(&self) -> usize {
        let (place, filled) = self.at;
        self.places[place..].iter().map(|p| p.len()).sum::<usize>() - filled
    }

    /// Calls `each` with the next `length` bytes, buffer by buffer; [`advance`](Self::advance) makes them count.
    fn each(
        &mut self,
        mut length: usize,
        mut each: impl FnMut(&mut [u8]) -> Result<(), TlsError>,
    ) -> Result<(), TlsError> {
        let (mut place, mut filled) = self.at;
        while length > 0 {
            let rest = &mut self.places[place][filled..];
            let count = rest.len().min(length);
            if count > 0 {
                each(&mut rest[..count])?;
            }
            length -= count;
            (place, filled) = (place + 1, 0);
        }
        Ok(())
    }

    fn advance(&mut self, mut length: usize) {
        while length > 0 {
            let rest = self.places[self.at.0].len() - self.at.1;
            if length < rest {
                self.at.1 += length;
                return;
            }
            length -= rest;
            self.at = (self.at.0 + 1, 0);
        }
    }

    /// Copies the next `length` bytes.
    fn copy(&mut self, length: usize) -> Result<Vec<u8>, TlsError> {
        let mut all = Vec::with_capacity(length);
        self.each(length, |bytes| {
            all.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(all)
    }
}

impl Opener {
    /// An opener with the keys of `secret`, for at most `blocks_max` blocks of AES.
    ///
    /// # Errors
    /// The library's.
    pub fn new(secret: TrafficSecret, blocks_max: u64, is_host: bool) -> Result<Self, TlsError> {
        let key = secret.key(CipherDirection::Open)?;
        Ok(Opener { secret, key, blocks_left: blocks_max, blocks_max, idle: 0, is_host })
    }

    /// Returns the secret of the keys, for another record layer.
    #[must_use]
    pub fn secret(&self) -> &TrafficSecret {
        &self.secret
    }

    /// Opens the whole records at the start of `sealed`. Their data goes to `places`, which hold all of it if they are
    /// as long as `sealed`. Bytes after the data may be overwritten.
    ///
    /// The peer, or an attacker between the ends, has broken the protocol: the connection has to end. The record at
    /// fault is dropped.
    pub fn open(
        &mut self,
        sealed: &[u8],
        places: &mut [&mut [u8]],
    ) -> Result<OpenedRecords, TlsError> {
        let mut places = DataDestinations { places, at: (0, 0) };
        let mut opened = OpenedRecords::default();
        while let Some(length) = record_bytes(&sealed[opened.used..])? {
            let Some(record) = sealed.get(opened.used..opened.used + length) else { break };
            if opened.closed || places.room() < length {
                break;
            }
            opened.used += length;
            opened.data += self.record(record, &mut places, &mut opened)?;
        }
        Ok(opened)
    }

    /// Opens a record; returns the bytes of data.
    fn record(
        &mut self,
        record: &[u8],
        places: &mut DataDestinations<'_, '_>,
        opened: &mut OpenedRecords,
    ) -> Result<usize, TlsError> {
        let (header, rest) = record.split_at(HEADER_BYTES);
        let (body, tag) = rest.split_last_chunk::<TAG_BYTES>().expect("checked with the length");
        let (last, mut content) = body.split_last().expect("checked with the length");
        let used = blocks(content.len());
        self.blocks_left = self.blocks_left.checked_sub(used).ok_or(TlsError::UsedUp)?;
        let length = content.len();
        let nonce = self.key.next_nonce()?;
        let cipher = &mut self.key.cipher;
        cipher.begin(&nonce, header)?;
        places.each(length, |place| {
            let (bytes, rest) = content.split_at(place.len());
            content = rest;
            cipher.update(bytes, place)
        })?;
        let mut kind = [0];
        cipher.update(std::slice::from_ref(last), &mut kind)?;
        cipher.verify(tag)?;
        let length = match kind {
            [CONTENT_TYPE_DATA] => length,
            _ => self.other(kind[0], places.copy(length)?, opened)?,
        };
        if length > CONTENT_BYTES_MAX {
            return Err(TlsError::Record { what: "length", value: length as u32 });
        }
        self.idle = if length > 0 { 0 } else { self.idle + 1 };
        if self.idle > IDLE_MAX {
            return Err(TlsError::Idle);
        }
        places.advance(length);
        Ok(length)
    }

    /// Handles a record that is padded, or has no data; returns the bytes of data.
    fn other(
        &mut self,
        mut kind: u8,
        mut content: Vec<u8>,
        opened: &mut OpenedRecords,
    ) -> Result<usize, TlsError> {
        if kind == 0 {
            while content.pop_if(|byte| *byte == 0).is_some() {}
            kind = content.pop().ok_or(TlsError::Record { what: "type", value: 0 })?;
            if kind == CONTENT_TYPE_DATA {
                return Ok(content.len());
            }
        }
        let record = parse_control_record(kind, &content, self.is_host)?;
        if record.key_updated {
            self.secret = self.secret.next()?;
            self.key = self.secret.key(CipherDirection::Open)?;
            self.blocks_left = self.blocks_max;
        }
        opened.closed |= record.closed;
        opened.update |= record.key_requested;
        Ok(0)
    }
}

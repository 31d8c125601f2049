//! Sealing: data becomes records.

use crate::TlsError;
use crate::cipher::CipherDirection;
use crate::control_record::KEY_UPDATE_MESSAGE;
use crate::record::{
    CONTENT_BYTES_MAX, CONTENT_TYPE_DATA, CONTENT_TYPE_HANDSHAKE, HEADER_BYTES, OVERHEAD_BYTES,
    TAG_BYTES, blocks, header, sealed_bytes,
};
use crate::schedule::{RecordKey, TrafficSecret};

/// Send direction of a connection.
pub struct Sealer {
    secret: TrafficSecret,
    key: RecordKey,
    /// Blocks of AES that the key may still seal.
    blocks_left: u64,
    blocks_max: u64,
    /// Pending change of the key before our next data; `Some(true)`: with a request to the peer to change its own.
    update_due: Option<bool>,
}

impl Sealer {
    /// A sealer with the keys of `secret`, for at most `blocks_max` blocks of AES ([`crate::BLOCKS_MAX`]).
    ///
    /// # Errors
    /// The library's.
    pub fn new(secret: TrafficSecret, blocks_max: u64) -> Result<Self, TlsError> {
        let key = secret.key(CipherDirection::Seal)?;
        Ok(Sealer { secret, key, blocks_left: blocks_max, blocks_max, update_due: None })
    }

    /// Returns the secret of the keys, for another record layer.
    #[must_use]
    pub fn secret(&self) -> &TrafficSecret {
        &self.secret
    }

    /// Returns the bytes that [`Sealer::seal`] writes for `length` bytes of data.
    #[must_use]
    pub fn sealed_bytes(&self, length: usize) -> usize {
        let update = self.update_due.map_or(0, |_| KEY_UPDATE_MESSAGE.len() + OVERHEAD_BYTES);
        update + sealed_bytes(length)
    }

    /// Returns the bytes of data that can be sealed into `room` bytes.
    #[must_use]
    pub fn capacity(&self, room: usize) -> usize {
        let room = room.saturating_sub(self.sealed_bytes(0));
        let (whole, rest) = (
            room / (CONTENT_BYTES_MAX + OVERHEAD_BYTES),
            room % (CONTENT_BYTES_MAX + OVERHEAD_BYTES),
        );
        whole * CONTENT_BYTES_MAX + rest.saturating_sub(OVERHEAD_BYTES)
    }

    /// Seals the first `length` bytes of `pieces` as records into `out`; returns their bytes.
    ///
    /// # Errors
    /// The key is used up: the connection has to end.
    ///
    /// # Panics
    /// `pieces` or `out` are shorter.
    pub fn seal<'a>(
        &mut self,
        mut pieces: impl Iterator<Item = &'a [u8]>,
        mut length: usize,
        out: &mut [u8],
    ) -> Result<usize, TlsError> {
        let mut at = self.begin_update(out)?;
        let mut piece: &[u8] = &[];
        while length > 0 {
            let content = length.min(CONTENT_BYTES_MAX);
            length -= content;
            let record = &mut out[at..at + content + OVERHEAD_BYTES];
            at += record.len();
            let (body, tag) = self.begin(content, record)?;
            let mut body = &mut body[..];
            while body.len() > 1 {
                if piece.is_empty() {
                    piece = pieces.next().expect("as many bytes as were promised");
                    continue;
                }
                let count = piece.len().min(body.len() - 1);
                let (bytes, rest) = piece.split_at(count);
                let (place, more) = std::mem::take(&mut body).split_at_mut(count);
                self.key.cipher.update(bytes, place)?;
                (piece, body) = (rest, more);
            }
            self.key.cipher.update(&[CONTENT_TYPE_DATA], body)?;
            self.key.cipher.seal(tag)?;
        }
        Ok(at)
    }

    /// Returns a record of type `kind`: an alert, a message, or data that is empty or padded.
    ///
    /// # Errors
    /// The library's, or the key is used up.
    pub fn record(&mut self, kind: u8, content: &[u8]) -> Result<Vec<u8>, TlsError> {
        let mut out = vec![0; content.len() + OVERHEAD_BYTES];
        self.message(content, kind, &mut out)?;
        Ok(out)
    }

    /// Changes the key of our next data. With `requests_update` the peer is requested to change its own as well.
    pub fn update(&mut self, requests_update: bool) {
        self.update_due = Some(requests_update || self.update_due == Some(true));
    }

    fn begin_update(&mut self, out: &mut [u8]) -> Result<usize, TlsError> {
        let Some(requests_update) = self.update_due else { return Ok(0) };
        let mut message = KEY_UPDATE_MESSAGE;
        message[message.len() - 1] = requests_update.into();
        let record = &mut out[..message.len() + OVERHEAD_BYTES];
        let length = record.len();
        self.message(&message, CONTENT_TYPE_HANDSHAKE, record)?;
        self.secret = self.secret.next()?;
        self.key = self.secret.key(CipherDirection::Seal)?;
        (self.blocks_left, self.update_due) = (self.blocks_max, None);
        Ok(length)
    }

    /// Seals a whole message without data.
    fn message(&mut self, content: &[u8], kind: u8, record: &mut [u8]) -> Result<(), TlsError> {
        let (body, tag) = self.begin(content.len(), record)?;
        let (place, last) = body.split_at_mut(content.len());
        self.key.cipher.update(content, place)?;
        self.key.cipher.update(&[kind], last)?;
        self.key.cipher.seal(tag)
    }

    /// Begins a record; returns the space for its content and type, and for its tag.
    fn begin<'a>(
        &mut self,
        content: usize,
        record: &'a mut [u8],
    ) -> Result<(&'a mut [u8], &'a mut [u8; TAG_BYTES]), TlsError> {
        self.blocks_left = self.blocks_left.checked_sub(blocks(content)).ok_or(TlsError::UsedUp)?;
        let (head, rest) = record.split_at_mut(HEADER_BYTES);
        head.copy_from_slice(&header(content + 1));
        let nonce = self.key.next_nonce()?;
        self.key.cipher.begin(&nonce, head)?;
        let (body, tag) = rest.split_last_chunk_mut().expect("the record has room for its tag");
        Ok((body, tag))
    }
}

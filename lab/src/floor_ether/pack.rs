//! Records into frames and out of them. Only what both ends need is in them: slot, block, number of the piece.

use roadtrain_ether_port::port::Port;
use roadtrain_wire::ether::{
    self, COMMAND_RECORD_BYTES, COMPLETION_RECORD_BYTES, DATA_RECORD_BYTES, FrameHeader, FrameType,
    MacAddress, RECORDS_MAX,
};

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FloorRecordKind {
    Command,
    Data { index: usize },
    Completion,
}

/// A record without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FloorRecord {
    pub(super) what: FloorRecordKind,
    pub(super) slot: u16,
    pub(super) block: u32,
}

impl FloorRecord {
    /// Its bytes without payload.
    fn head(self) -> usize {
        match self.what {
            FloorRecordKind::Command => COMMAND_RECORD_BYTES,
            FloorRecordKind::Data { .. } => DATA_RECORD_BYTES,
            FloorRecordKind::Completion => COMPLETION_RECORD_BYTES,
        }
    }

    fn write(self, bytes: &mut [u8], payload: usize) {
        let (kind, index) = match self.what {
            FloorRecordKind::Command => (1, 0),
            FloorRecordKind::Data { index } => (2, index),
            FloorRecordKind::Completion => (3, 0),
        };
        let length = (bytes.len() + payload) as u16;
        bytes.fill(0);
        bytes[0] = kind;
        bytes[2..4].copy_from_slice(&length.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.slot.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.block.to_le_bytes());
        bytes[12..14].copy_from_slice(&(index as u16).to_le_bytes());
    }

    /// The first record of a body, its payload, and the bytes behind it.
    fn read(body: &[u8]) -> Option<(FloorRecord, &[u8], &[u8])> {
        let word = |at: usize| Some(u16::from_le_bytes(body.get(at..at + 2)?.try_into().ok()?));
        let block = u32::from_le_bytes(body.get(8..12)?.try_into().ok()?);
        let (length, slot, index) = (usize::from(word(2)?), word(4)?, usize::from(word(12)?));
        let what = match body[0] {
            1 => FloorRecordKind::Command,
            2 => FloorRecordKind::Data { index },
            3 => FloorRecordKind::Completion,
            _ => return None,
        };
        let record = FloorRecord { what, slot, block };
        let payload = body.get(record.head()..length)?;
        Some((record, payload, body.get(ether::padded(length)..).unwrap_or(&[])))
    }
}

/// Calls `each` for every record of a frame, as a port shows it; whether it is a frame.
pub(super) fn unpack(frame: &[u8], mut each: impl FnMut(FloorRecord, &[u8])) -> bool {
    let Ok((_, FrameType::Cargo, mut body)) = ether::parse(&frame[14..]) else { return false };
    while let Some((record, payload, rest)) = FloorRecord::read(body) {
        each(record, payload);
        body = rest;
    }
    true
}

/// How frames are filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct FloorPacker {
    /// Bytes of records that a frame has room for, and payloads.
    room: usize,
    payloads: usize,
    /// Room in the frame that is being built.
    left: usize,
    records_left: usize,
    payloads_left: usize,
    open: bool,
    peer: MacAddress,
    socket_number: u16,
}

impl FloorPacker {
    pub(super) fn new(room: usize, payloads: usize) -> FloorPacker {
        FloorPacker {
            room,
            payloads,
            left: 0,
            records_left: 0,
            payloads_left: 0,
            open: false,
            peer: MacAddress::default(),
            socket_number: 0,
        }
    }

    /// Where the frames go.
    pub(super) fn set_peer(&mut self, peer: MacAddress, socket_number: u16) {
        (self.peer, self.socket_number) = (peer, socket_number);
    }

    /// True if a record fits into the frame that is being built.
    fn fits(&self, bytes: usize, payloads: usize) -> bool {
        self.open && self.left >= bytes && self.records_left > 0 && self.payloads_left >= payloads
    }

    /// Appends a record, behind those before it if it fits, else in a new frame.
    ///
    /// # Safety
    /// The `length` bytes at `payload` stay readable until the next flush.
    pub(super) unsafe fn put(
        &mut self,
        port: &mut Port,
        record: FloorRecord,
        (payload, length): (*const u8, usize),
    ) -> std::io::Result<()> {
        let (bytes, payloads) = (ether::padded(record.head() + length), usize::from(length > 0));
        if !self.fits(bytes, payloads) {
            self.close(port);
            if !port.has_room() {
                port.flush()?;
            }
            port.begin();
            (self.left, self.records_left, self.payloads_left) =
                (self.room, RECORDS_MAX, self.payloads);
            self.open = true;
        }
        self.left -= bytes;
        self.records_left -= 1;
        self.payloads_left -= payloads;
        record.write(port.bytes(record.head()), length);
        if length > 0 {
            // SAFETY: the caller's promise.
            unsafe { port.payload(payload, length) };
            let padding = bytes - record.head() - length;
            if padding > 0 {
                port.bytes(padding).fill(0);
            }
        }
        Ok(())
    }

    /// Ends the frame that is being built.
    pub(super) fn close(&mut self, port: &mut Port) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        let mut header = FrameHeader {
            version: ether::VERSION,
            kind: FrameType::Cargo as u8,
            ..FrameHeader::default()
        };
        header.socket_number.set(self.socket_number);
        port.end(self.peer, header);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let records = [
            (FloorRecordKind::Command, 0),
            (FloorRecordKind::Data { index: 2 }, 13),
            (FloorRecordKind::Data { index: 0 }, 4096),
            (FloorRecordKind::Completion, 0),
        ];
        let mut body = Vec::new();
        for (n, (what, payload)) in records.into_iter().enumerate() {
            let record = FloorRecord { what, slot: n as u16 * 1000, block: 1 << 20 | n as u32 };
            let mut bytes = vec![9; record.head()];
            record.write(&mut bytes, payload);
            body.extend(bytes);
            body.extend(vec![n as u8; payload]);
            body.resize(ether::padded(body.len()), 0);
        }
        let mut rest = body.as_slice();
        for (n, (what, bytes)) in records.into_iter().enumerate() {
            let (record, payload, behind) = FloorRecord::read(rest).expect("written");
            let expected = FloorRecord { what, slot: n as u16 * 1000, block: 1 << 20 | n as u32 };
            assert_eq!(record, expected);
            assert_eq!(payload, vec![n as u8; bytes]);
            rest = behind;
        }
        assert!(rest.is_empty());
        assert!(FloorRecord::read(&body[..11]).is_none());
        assert!(FloorRecord::read(&body[80..100]).is_none(), "cut within its payload");
    }

    #[test]
    fn a_frame_is_full_by_bytes_records_or_payloads() {
        let open = |left, records_left, payloads_left| FloorPacker {
            open: true,
            left,
            records_left,
            payloads_left,
            ..FloorPacker::new(8936, 2)
        };
        assert!(!FloorPacker::new(8936, 2).fits(80, 0), "no frame");
        assert!(open(80, 1, 0).fits(80, 0));
        assert!(!open(79, 1, 0).fits(80, 0));
        assert!(!open(80, 0, 0).fits(80, 0));
        assert!(!open(8000, 9, 0).fits(4120, 1));
    }
}

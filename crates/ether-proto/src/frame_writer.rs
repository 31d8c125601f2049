//! The sink into which a queue pair writes its frames.

use roadtrain_wire::ether::{FrameHeader, flags, set_hcrc};

/// Outgoing frames, over the ports of a lane's links. The engine sends them.
///
/// The data that [`FrameWriter::payload`] names must not change until the frame has left (or been copied).
pub trait FrameWriter {
    /// True if the link's port has room for one more frame.
    fn has_room(&self, link: u8) -> bool;
    /// Begins a frame over `link`.
    fn begin(&mut self, link: u8);
    /// Appends `length` bytes to the body; the caller fills them.
    fn bytes(&mut self, length: usize) -> &mut [u8];
    /// Appends `length` bytes of the slot's data from `offset`.
    fn payload(&mut self, slot: u16, offset: u32, length: u32);
    /// Ends the frame: sets BODY, BCRC if FLAGS has CRC, and HCRC in `header`.
    fn end(&mut self, header: FrameHeader);
}

/// A frame kept in memory.
#[derive(Clone, Debug)]
pub struct MemoryFrame {
    /// LINK that the frame leaves over.
    pub link: u8,
    pub header: FrameHeader,
    pub body: Vec<u8>,
}

/// Frames kept in memory, for tests, the simulation and fuzzing.
pub struct MemoryWriter<F> {
    /// Frames so far.
    pub frames: Vec<MemoryFrame>,
    frames_max: usize,
    fetch: F,
}

impl<F: FnMut(u16, &mut [u8], u32)> MemoryWriter<F> {
    /// Creates a writer of at most `frames_max` frames; `fetch` copies a slot's data from an offset.
    pub fn new(frames_max: usize, fetch: F) -> Self {
        MemoryWriter { frames: Vec::new(), frames_max, fetch }
    }

    fn body(&mut self) -> &mut Vec<u8> {
        let frame = self.frames.last_mut().expect("a frame was begun");
        &mut frame.body
    }
}

impl<F: FnMut(u16, &mut [u8], u32)> FrameWriter for MemoryWriter<F> {
    fn has_room(&self, _: u8) -> bool {
        self.frames.len() < self.frames_max
    }

    fn begin(&mut self, link: u8) {
        let header = FrameHeader::default();
        self.frames.push(MemoryFrame { link, header, body: Vec::new() });
    }

    fn bytes(&mut self, length: usize) -> &mut [u8] {
        let body = self.body();
        let start = body.len();
        body.resize(start + length, 0);
        &mut body[start..]
    }

    fn payload(&mut self, slot: u16, offset: u32, length: u32) {
        let mut data = vec![0; length as usize];
        (self.fetch)(slot, &mut data, offset);
        self.body().extend_from_slice(&data);
    }

    fn end(&mut self, mut header: FrameHeader) {
        let body = self.body();
        header.body = u16::try_from(body.len()).expect("a frame is below 64 KiB").into();
        if header.flags.get() & flags::CRC != 0 {
            header.bcrc = crc_fast::crc32_iscsi(body).into();
        }
        set_hcrc(&mut header);
        self.frames.last_mut().expect("a frame was begun").header = header;
    }
}

//! The target's end: answers each request from a large memory.

use super::args::{DataDirection, FloorArgs};
use super::inbox::FloorInbox;
use super::link::FloorLink;
use super::memory::FloorMemory;
use super::send_buffer::{FloorMessage, SendBuffer};
use super::sizes::{ANSWER_BYTES, REQUEST_BYTES};
use roadtrain_reactor::tuning;
use std::io;
use std::net::TcpStream;

/// Counters of one end over the whole run, warm-up included.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FloorCounts {
    pub(crate) requests: u64,
    pub(crate) sends: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) syscalls: u64,
}

/// The target's end of the floor.
pub(crate) struct FloorTarget<'a> {
    args: &'a FloorArgs,
    memory: FloorMemory,
    inbox: FloorInbox,
    out: SendBuffer,
    requests: u64,
}

impl<'a> FloorTarget<'a> {
    /// Maps and touches the memory.
    pub(crate) fn new(args: &'a FloorArgs) -> io::Result<Self> {
        let (data_in, data_out) = match args.rw {
            DataDirection::Read => (0, args.bs),
            DataDirection::Write => (args.bs, 0),
        };
        Ok(Self {
            args,
            memory: FloorMemory::new(args.memory, !args.knobs.small_pages)?,
            inbox: FloorInbox::new(REQUEST_BYTES, data_in, args.no_copy, &args.knobs)?,
            out: SendBuffer::new(ANSWER_BYTES, data_out, args.gather, args.depth),
            requests: 0,
        })
    }

    /// Answers until the host closes.
    pub(crate) fn serve(&mut self, stream: TcpStream) -> anyhow::Result<FloorCounts> {
        let mut link = FloorLink::new(self.args, stream)?;
        while self.inbox.receive(&mut link, self.out.is_empty())? {
            self.dispatch();
            match self.out.flush(&mut link) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => break,
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => break,
                Err(e) => return Err(e.into()),
            }
            if !self.out.is_empty() {
                link.wait_either()?;
            }
        }
        Ok(FloorCounts {
            requests: self.requests,
            sends: self.out.sends,
            bytes_sent: self.out.bytes,
            syscalls: link.syscalls,
        })
    }

    fn dispatch(&mut self) {
        let Self { args, memory, inbox, out, requests } = self;
        let place = |message: FloorMessage| memory.at(message.block as usize * args.bs, args.bs);
        let answer = |message: FloorMessage| {
            *requests += 1;
            let data = place(message);
            if args.rw == DataDirection::Read {
                tuning::prefetch_read(data, args.knobs.prefetch);
            }
            // SAFETY: the block lies in the memory, which outlives the out's use of it.
            unsafe { out.push(message, data) };
        };
        // SAFETY: blocks lie in the memory; two writes to one block land in the order they came.
        unsafe { inbox.drain(place, answer) };
    }
}

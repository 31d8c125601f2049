//! The transmission phase: checks of requests, and replies.

use super::handshake::{ALLOCATION_CONTEXT, FIRST_BITMAP_CONTEXT};
use super::{NbdCloseReason, NbdEvent, NbdSession, ReplyQueue, unparsed};
use crate::disk::DiskFault;
use crate::nbd::translate::{disk_request, errno_of};
use roadtrain_wire::nbd::{
    CHUNK_FLAG_DONE, ChunkCode, Command, Errno, ErrorPayload, NbdChunk, NbdExtent, NbdRequest,
    PAYLOAD_BYTES_MAX, SimpleReply, command_flag, transmission_flag,
};

/// Most extents of a dirty bitmap in one reply.
const DIRTY_EXTENTS_MAX: usize = 1024;

/// Refusal of a request: its error and a message for people.
type RequestRefusal = (Errno, &'static str);

impl NbdSession {
    pub(super) fn handle_request(
        &mut self,
        input: &[u8],
        out: &mut ReplyQueue,
    ) -> (usize, NbdEvent) {
        let request = match NbdRequest::parse(input) {
            Ok(request) => request,
            Err(error) => return unparsed(error),
        };
        let event = match self.check(&request) {
            _ if request.command == Command::DISC => NbdEvent::Close(NbdCloseReason::Disconnect),
            Ok(()) if request.command == Command::BLOCK_STATUS => NbdEvent::BlockStatus(request),
            Ok(()) => NbdEvent::Request(request),
            Err((errno, message)) => {
                self.reply_error(request.cookie, errno, message, out);
                if request.command == Command::WRITE {
                    self.skip = request.length.into();
                }
                NbdEvent::Handled
            }
        };
        (NbdRequest::BYTES, event)
    }

    fn check(&self, request: &NbdRequest) -> Result<(), RequestRefusal> {
        self.check_command(request)?;
        if self.export.disk().is_removed() {
            return Err((Errno::ESHUTDOWN, "the namespace is gone"));
        }
        if request.command == Command::FLUSH {
            return match (request.offset, request.length) {
                (0, 0) => Ok(()),
                _ => Err((Errno::EINVAL, "FLUSH takes no range")),
            };
        }
        self.check_range(request)
    }

    /// Checks that the command and its flags were offered.
    fn check_command(&self, request: &NbdRequest) -> Result<(), RequestRefusal> {
        use command_flag::*;
        use transmission_flag::*;
        // FUA is valid, without effect, with every command once it was offered.
        let (writes, needed, mut flags) = match request.command {
            Command::READ => (false, 0, if self.structured { DF } else { 0 }),
            Command::WRITE => (true, 0, 0),
            Command::FLUSH => (false, SEND_FLUSH, 0),
            Command::TRIM => (true, SEND_TRIM, 0),
            Command::WRITE_ZEROES => (true, SEND_WRITE_ZEROES, NO_HOLE),
            Command::BLOCK_STATUS if self.allocation || self.bitmaps != 0 => (false, 0, REQ_ONE),
            Command::BLOCK_STATUS => return Err((Errno::EINVAL, "no meta context was chosen")),
            _ => return Err((Errno::EINVAL, "unknown command")),
        };
        if writes && self.transmission_flags & READ_ONLY != 0 {
            return Err((Errno::EPERM, "the export is read-only"));
        }
        if self.transmission_flags & needed != needed {
            return Err((Errno::EINVAL, "the command was not offered"));
        }
        if self.transmission_flags & SEND_FUA != 0 {
            flags |= FUA;
        }
        if request.flags & !flags != 0 {
            return Err((Errno::EINVAL, "a flag that the command does not take"));
        }
        Ok(())
    }

    fn check_range(&self, request: &NbdRequest) -> Result<(), RequestRefusal> {
        if request.length == 0 {
            return Err((Errno::EINVAL, "an empty range"));
        }
        let payload = matches!(request.command, Command::READ | Command::WRITE);
        if payload && request.length > PAYLOAD_BYTES_MAX {
            return Err((Errno::EINVAL, "more than 32 MiB"));
        }
        let end = request.offset.checked_add(request.length.into());
        if end.is_some_and(|end| end <= self.export.disk().bytes()) {
            return Ok(());
        }
        let fault = DiskFault::beyond_the_end(disk_request(request).op);
        Err((errno_of(fault), "beyond the end"))
    }

    /// Answers success of a request that returns no data.
    ///
    /// The simple form is allowed with structured replies too, and shorter.
    pub fn reply_done(&self, cookie: u64, out: &mut ReplyQueue) {
        out.push(&SimpleReply { errno: Errno::OK, cookie }.emit());
    }

    /// Answers failure; `message` reaches clients that agreed on structured replies.
    pub fn reply_error(&self, cookie: u64, errno: Errno, message: &str, out: &mut ReplyQueue) {
        if !self.structured {
            return out.push(&SimpleReply { errno, cookie }.emit());
        }
        let length = (ErrorPayload::BYTES + message.len()) as u32;
        out.push(
            &NbdChunk { flags: CHUNK_FLAG_DONE, code: ChunkCode::ERROR, cookie, length }.emit(),
        );
        let message_length = (message.len() as u16).into();
        out.push(ErrorPayload { errno: errno.0.into(), message_length }.as_bytes());
        out.push(message.as_bytes());
    }

    /// Queues the header of a Read's reply; its `length` bytes of data must follow.
    pub fn reply_data(&self, cookie: u64, offset: u64, length: u32, out: &mut ReplyQueue) {
        if !self.structured {
            return out.push(&SimpleReply { errno: Errno::OK, cookie }.emit());
        }
        let (code, length) = (ChunkCode::OFFSET_DATA, length + size_of::<u64>() as u32);
        out.push(&NbdChunk { flags: CHUNK_FLAG_DONE, code, cookie, length }.emit());
        out.push(&offset.to_be_bytes());
    }

    /// Answers a request for block status in each context that the client chose; `allocated` are the extents of
    /// base:allocation.
    pub(in crate::nbd) fn reply_block_status(
        &self,
        request: &NbdRequest,
        allocated: &[NbdExtent],
        out: &mut ReplyQueue,
    ) {
        let mut bitmaps = self.bitmaps;
        if self.allocation {
            reply_context(request.cookie, ALLOCATION_CONTEXT, allocated, bitmaps == 0, out);
        }
        while bitmaps != 0 {
            let number = bitmaps.trailing_zeros();
            bitmaps &= bitmaps - 1;
            let extents = self.dirty_extents(number as usize, request);
            reply_context(
                request.cookie,
                FIRST_BITMAP_CONTEXT + number,
                &extents,
                bitmaps == 0,
                out,
            );
        }
    }

    /// Returns the extents of a request in a dirty bitmap, perhaps not to its end.
    fn dirty_extents(&self, number: usize, request: &NbdRequest) -> Vec<NbdExtent> {
        let most = if request.has(command_flag::REQ_ONE) { 1 } else { DIRTY_EXTENTS_MAX };
        let range = (request.offset, request.length);
        let bitmaps = self.export.disk().bitmaps();
        let found =
            bitmaps.map_or(vec![(request.length, true)], |all| all.extents(number, range, most));
        let extent = |(length, is_dirty): (u32, bool)| NbdExtent {
            length: length.into(),
            state: u32::from(is_dirty).into(),
        };
        found.into_iter().map(extent).collect()
    }
}

/// Queues the extents of one context; with `is_last` the reply ends.
fn reply_context(
    cookie: u64,
    context: u32,
    extents: &[NbdExtent],
    is_last: bool,
    out: &mut ReplyQueue,
) {
    let flags = if is_last { CHUNK_FLAG_DONE } else { 0 };
    let length = (size_of::<u32>() + size_of_val(extents)) as u32;
    out.push(&NbdChunk { flags, code: ChunkCode::BLOCK_STATUS, cookie, length }.emit());
    out.push(&context.to_be_bytes());
    extents.iter().for_each(|extent| out.push(extent.as_bytes()));
}

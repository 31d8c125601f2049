//! Replies of one connection: the requests in flight, and the parser of what the server sends for them.
//!
//! Each field of the server is checked: magic, cookie, type, offset and length of each chunk, each byte of a read exactly
//! once.

use crate::NbdServerError;
use crate::server_error::server_text;
use roadtrain_system::slab::Slab;
use roadtrain_wire::nbd::{
    CHUNK_FLAG_DONE, ChunkCode, Command, Errno, ErrorPayload, HolePayload, MAGIC_CHUNK,
    MAGIC_SIMPLE_REPLY, NbdChunk, NbdExtent, NbdRequest, SimpleReply,
};
use std::ops::Range;

/// Maximum pieces of a read that wait for what is between them.
const GAPS_MAX: usize = 4096;
/// Maximum bytes of an error's text.
const TEXT_BYTES_MAX: u32 = 4096;
/// Bit of the types of chunks that are errors.
const ERROR_BIT: u16 = 1 << 15;

/// Request without its cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdClientRequest {
    /// Command.
    pub command: Command,
    /// [Flags](roadtrain_wire::nbd::command_flag).
    pub flags: u16,
    /// First byte.
    pub offset: u64,
    /// Bytes of the range.
    pub length: u32,
}

/// Received part of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdReplyEvent<'a> {
    /// Data of a read, at this offset in its range.
    Data {
        /// Operation of the request.
        operation: u32,
        /// Offset in the request's range.
        at: usize,
        /// The data.
        bytes: &'a [u8],
    },
    /// Zeroes of a read.
    Zeroes {
        /// Operation of the request.
        operation: u32,
        /// Range in the request's range.
        range: Range<usize>,
    },
    /// State of the next bytes of a block status request.
    Extent {
        /// Operation of the request.
        operation: u32,
        /// Bytes with this state, within the request's range.
        length: u32,
        /// [State](roadtrain_wire::nbd::allocation_state).
        state: u32,
    },
    /// Final result.
    Done {
        /// Operation of the request.
        operation: u32,
        /// Success, or the first error, with the server's text.
        result: Result<(), (Errno, String)>,
    },
}

/// Request in flight.
#[derive(Debug)]
struct RequestInFlight {
    operation: u32,
    request: NbdClientRequest,
    /// Received ranges of a read, in order, not adjacent.
    covered: Vec<Range<u64>>,
    /// Bytes whose state was received.
    stated: u64,
    error: Option<(Errno, String)>,
}

/// Next bytes of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserState {
    /// Magic of a reply.
    Magic,
    Simple,
    Chunk,
    /// Data of a read: offset in its range, and bytes left.
    Data {
        at: u64,
        left: u32,
    },
    Offset,
    Hole,
    Context,
    Extents {
        left: u32,
    },
    Error,
    ErrorText {
        text: u32,
        left: u32,
    },
    Skip {
        left: u32,
    },
}

/// Replies of one connection.
#[derive(Debug)]
pub struct NbdReplies {
    in_flight: Slab<RequestInFlight>,
    is_structured: bool,
    allocation: Option<u32>,
    state: ParserState,
    /// Received bytes of the next fixed-size part.
    part: Vec<u8>,
    /// Slot of the reply that is being received.
    current: u32,
    chunk: NbdChunk,
}

impl NbdReplies {
    /// Starts without requests. `allocation` is the number of the meta context for block allocation.
    #[must_use]
    pub fn new(is_structured: bool, allocation: Option<u32>) -> NbdReplies {
        NbdReplies {
            in_flight: Slab::default(),
            is_structured,
            allocation,
            state: ParserState::Magic,
            part: Vec::new(),
            current: 0,
            chunk: NbdChunk { flags: 0, code: ChunkCode::NONE, cookie: 0, length: 0 },
        }
    }

    /// Returns the request to send for `operation`, which is in flight from now on.
    pub fn begin(&mut self, operation: u32, request: NbdClientRequest) -> NbdRequest {
        let covered = Vec::new();
        let entry = RequestInFlight { operation, request, covered, stated: 0, error: None };
        let index = self.in_flight.insert(entry);
        let cookie = u64::from(self.in_flight.generation(index)) << 32 | u64::from(index);
        let NbdClientRequest { command, flags, offset, length } = request;
        NbdRequest { flags, command, cookie, offset, length }
    }

    /// Returns the operations of the requests in flight.
    pub fn operations(&self) -> impl Iterator<Item = u32> {
        self.in_flight.iter().map(|(_, request)| request.operation)
    }

    /// Number of requests in flight.
    #[must_use]
    pub fn count(&self) -> usize {
        self.in_flight.count()
    }

    /// Processes bytes of the server. Returns the bytes used, and an event if there is one; the caller continues with the
    /// rest.
    ///
    /// # Errors
    /// The server breaks the protocol: the connection has to end.
    pub fn receive<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<(usize, Option<NbdReplyEvent<'a>>), NbdServerError> {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            match self.state {
                ParserState::Data { left: 0, .. }
                | ParserState::Extents { left: 0 }
                | ParserState::Skip { left: 0 } => {
                    if let Some(event) = self.end_chunk()? {
                        return Ok((used, Some(event)));
                    }
                }
                _ if rest.is_empty() => return Ok((used, None)),
                ParserState::Data { at, left } => {
                    let count = rest.len().min(left as usize);
                    let left = left - count as u32;
                    self.state = ParserState::Data { at: at + count as u64, left };
                    let bytes = &rest[..count];
                    let operation = self.current()?.operation;
                    let event = NbdReplyEvent::Data { operation, at: at as usize, bytes };
                    return Ok((used + count, Some(event)));
                }
                ParserState::Skip { left } => {
                    let count = rest.len().min(left as usize);
                    self.state = ParserState::Skip { left: left - count as u32 };
                    used += count;
                }
                _ => {
                    let missing = self.part_bytes() - self.part.len();
                    let count = rest.len().min(missing);
                    self.part.extend_from_slice(&rest[..count]);
                    used += count;
                    if count < missing {
                        return Ok((used, None));
                    }
                    if let Some(event) = self.take_part()? {
                        return Ok((used, Some(event)));
                    }
                }
            }
        }
    }

    fn part_bytes(&self) -> usize {
        match self.state {
            ParserState::Magic | ParserState::Context => 4,
            ParserState::Simple => SimpleReply::BYTES,
            ParserState::Chunk => NbdChunk::BYTES,
            ParserState::Offset | ParserState::Extents { .. } => NbdExtent::BYTES,
            ParserState::Hole => HolePayload::BYTES,
            ParserState::Error => ErrorPayload::BYTES,
            ParserState::ErrorText { text, .. } => text as usize,
            ParserState::Data { .. } | ParserState::Skip { .. } => 0,
        }
    }

    /// Processes a complete part.
    fn take_part<'a>(&mut self) -> Result<Option<NbdReplyEvent<'a>>, NbdServerError> {
        let number = |bytes: &[u8]| bytes.iter().fold(0, |n, &byte| n << 8 | u64::from(byte));
        match self.state {
            ParserState::Magic => {
                self.state = match number(&self.part) as u32 {
                    MAGIC_SIMPLE_REPLY => ParserState::Simple,
                    MAGIC_CHUNK if self.is_structured => ParserState::Chunk,
                    magic => {
                        let problem = "it is none of a reply";
                        let value = format!("{magic:#x}");
                        return Err(NbdServerError::field(("reply", "magic"), value, problem));
                    }
                };
                return Ok(None); // the head continues
            }
            ParserState::Simple => {
                let reply = SimpleReply::parse(&self.part);
                self.part.clear();
                let reply = reply.map_err(|e| NbdServerError::format("reply", 0, e))?;
                return self.begin_simple(reply);
            }
            ParserState::Chunk => {
                let chunk = NbdChunk::parse(&self.part);
                self.part.clear();
                self.chunk = chunk.map_err(|e| NbdServerError::format("reply", 0, e))?;
                self.begin_chunk()?;
            }
            ParserState::Offset => {
                let (offset, left) = (number(&self.part), self.chunk.length - 8);
                self.part.clear();
                let at = self.cover(offset, left)?;
                self.state = ParserState::Data { at, left };
            }
            ParserState::Hole => {
                let hole = HolePayload::parse(&self.part);
                self.part.clear();
                let hole = hole.map_err(|e| NbdServerError::format("reply", 0, e))?;
                return self.hole(hole).map(Some);
            }
            ParserState::Context => {
                let context = number(&self.part) as u32;
                self.part.clear();
                if self.allocation != Some(context) {
                    let problem = "no such meta context was agreed on";
                    return Err(NbdServerError::field(("reply", "context"), context, problem));
                }
                self.state = ParserState::Extents { left: self.chunk.length - 4 };
            }
            ParserState::Extents { left } => {
                let extent = NbdExtent::parse(&self.part);
                self.part.clear();
                let extent = extent.map_err(|e| NbdServerError::format("reply", 0, e))?;
                self.state = ParserState::Extents { left: left - NbdExtent::BYTES as u32 };
                return self.extent(extent);
            }
            ParserState::Error => self.take_error()?,
            ParserState::ErrorText { left, .. } => {
                let text = server_text(&self.part);
                self.part.clear();
                if let Some((_, known)) = &mut self.current_mut()?.error {
                    *known = text;
                }
                self.state = ParserState::Skip { left };
            }
            ParserState::Data { .. } | ParserState::Skip { .. } => {}
        }
        Ok(None)
    }

    fn current(&self) -> Result<&RequestInFlight, NbdServerError> {
        let known = self.in_flight.get(self.current);
        known.ok_or_else(|| NbdServerError::Unusable("its reply is for no request".into()))
    }

    fn current_mut(&mut self) -> Result<&mut RequestInFlight, NbdServerError> {
        let known = self.in_flight.get_mut(self.current);
        known.ok_or_else(|| NbdServerError::Unusable("its reply is for no request".into()))
    }

    /// Finds the request of a cookie.
    fn find(&mut self, cookie: u64) -> Result<(), NbdServerError> {
        let (index, generation) = (cookie as u32, (cookie >> 32) as u32);
        let is_known =
            self.in_flight.get(index).is_some() && self.in_flight.is_current(index, generation);
        if !is_known {
            let problem = "no request in flight has it";
            let value = format!("{cookie:#x}");
            return Err(NbdServerError::field(("reply", "cookie"), value, problem));
        }
        self.current = index;
        Ok(())
    }

    fn begin_simple<'a>(
        &mut self,
        reply: SimpleReply,
    ) -> Result<Option<NbdReplyEvent<'a>>, NbdServerError> {
        self.find(reply.cookie)?;
        let has_chunks = !self.current()?.covered.is_empty() || self.current()?.stated > 0;
        let NbdClientRequest { command, length, .. } = self.current()?.request;
        let needs_chunks = self.is_structured && command == Command::READ
            || command == Command::BLOCK_STATUS && reply.errno == Errno::OK;
        if needs_chunks || has_chunks {
            let problem = "this request has a structured reply";
            return Err(NbdServerError::field(("simple reply", "command"), command, problem));
        }
        self.chunk = NbdChunk {
            flags: CHUNK_FLAG_DONE,
            code: ChunkCode::NONE,
            cookie: reply.cookie,
            length: 0,
        };
        self.state = ParserState::Skip { left: 0 };
        if reply.errno != Errno::OK {
            self.current_mut()?.error = Some((reply.errno, String::new()));
        } else if command == Command::READ {
            let at = self.cover(self.current()?.request.offset, length)?;
            self.state = ParserState::Data { at, left: length };
        }
        Ok(None)
    }

    fn begin_chunk(&mut self) -> Result<(), NbdServerError> {
        let NbdChunk { code, cookie, length, .. } = self.chunk;
        self.find(cookie)?;
        let NbdClientRequest { command, length: requested, .. } = self.current()?.request;
        let is_read = command == Command::READ;
        let (is_fitting, state) = match code {
            ChunkCode::NONE => (
                length == 0 && self.chunk.flags & CHUNK_FLAG_DONE != 0,
                ParserState::Skip { left: 0 },
            ),
            ChunkCode::OFFSET_DATA if is_read => {
                (length > 8 && length - 8 <= requested, ParserState::Offset)
            }
            ChunkCode::OFFSET_HOLE if is_read => {
                (length == HolePayload::BYTES as u32, ParserState::Hole)
            }
            ChunkCode::BLOCK_STATUS if command == Command::BLOCK_STATUS => (
                length > 4 && (length - 4).is_multiple_of(NbdExtent::BYTES as u32),
                ParserState::Context,
            ),
            ChunkCode(code) if code & ERROR_BIT != 0 => {
                let bytes = ErrorPayload::BYTES as u32;
                ((bytes..=bytes + TEXT_BYTES_MAX + 8).contains(&length), ParserState::Error)
            }
            code => {
                let problem = "it does not belong to this request";
                return Err(NbdServerError::field(("reply", "type"), code, problem));
            }
        };
        if !is_fitting {
            let problem = "it does not fit this type of chunk";
            return Err(NbdServerError::field(("reply", "length"), length, problem));
        }
        self.state = state;
        Ok(())
    }

    /// Notes that a range of a read is received. Returns its offset in the request's range.
    fn cover(&mut self, offset: u64, length: u32) -> Result<u64, NbdServerError> {
        let entry = self.current_mut()?;
        let NbdClientRequest { offset: start, length: requested, .. } = entry.request;
        let at = offset
            .checked_sub(start)
            .filter(|at| at.checked_add(length.into()).is_some_and(|end| end <= requested.into()));
        let wrong = |problem| Err(NbdServerError::field(("reply", "offset"), offset, problem));
        let Some(at) = at else { return wrong("its data lies outside of the requested range") };
        let end = at + u64::from(length);
        let next = entry.covered.partition_point(|range| range.end < at);
        let has_overlap = |range: &Range<u64>| range.start < end && at < range.end;
        let near = &entry.covered[next..(next + 2).min(entry.covered.len())];
        if near.iter().any(has_overlap) {
            return wrong("its data comes twice");
        }
        let joins_before = near.first().is_some_and(|range| range.end == at);
        let after = if joins_before { next + 1 } else { next };
        let joins_after = entry.covered.get(after).is_some_and(|range| range.start == end);
        match (joins_before, joins_after) {
            (true, true) => {
                entry.covered[next].end = entry.covered[after].end;
                entry.covered.remove(after);
            }
            (true, false) => entry.covered[next].end = end,
            (false, true) => entry.covered[after].start = at,
            (false, false) if entry.covered.len() >= GAPS_MAX => {
                return wrong("its data is in too many pieces");
            }
            (false, false) => entry.covered.insert(next, at..end),
        }
        Ok(at)
    }

    fn hole<'a>(&mut self, hole: HolePayload) -> Result<NbdReplyEvent<'a>, NbdServerError> {
        let length = hole.length.get();
        if length == 0 {
            let problem = "a hole has bytes";
            return Err(NbdServerError::field(("reply", "length"), length, problem));
        }
        let at = self.cover(hole.offset.get(), length)? as usize;
        self.state = ParserState::Skip { left: 0 };
        let operation = self.current()?.operation;
        Ok(NbdReplyEvent::Zeroes { operation, range: at..at + length as usize })
    }

    fn extent<'a>(
        &mut self,
        extent: NbdExtent,
    ) -> Result<Option<NbdReplyEvent<'a>>, NbdServerError> {
        let entry = self.current_mut()?;
        let left = u64::from(entry.request.length) - entry.stated;
        let length = extent.length.get();
        if length == 0 || left == 0 {
            let problem = "the extent has no byte of the requested range";
            return Err(NbdServerError::field(("reply", "extent"), length, problem));
        }
        // The last extent may reach beyond the range.
        let length = left.min(length.into()) as u32;
        entry.stated += u64::from(length);
        let operation = entry.operation;
        Ok(Some(NbdReplyEvent::Extent { operation, length, state: extent.state.get() }))
    }

    fn take_error(&mut self) -> Result<(), NbdServerError> {
        let payload = ErrorPayload::parse(&self.part);
        self.part.clear();
        let payload = payload.map_err(|e| NbdServerError::format("reply", 0, e))?;
        let (errno, text) = (Errno(payload.errno.get()), u32::from(payload.message_length.get()));
        let left = self.chunk.length - ErrorPayload::BYTES as u32;
        if errno == Errno::OK {
            return Err(NbdServerError::field(("reply", "error"), errno, "it is none"));
        }
        if text > left.min(TEXT_BYTES_MAX) {
            let problem = "it is longer than the chunk";
            return Err(NbdServerError::field(("reply", "message length"), text, problem));
        }
        let entry = self.current_mut()?;
        let is_first = entry.error.is_none();
        entry.error.get_or_insert((errno, String::new()));
        self.state = match is_first && text > 0 {
            true => ParserState::ErrorText { text, left: left - text },
            false => ParserState::Skip { left },
        };
        Ok(())
    }

    /// Ends a chunk, and with the last one its reply.
    fn end_chunk<'a>(&mut self) -> Result<Option<NbdReplyEvent<'a>>, NbdServerError> {
        self.state = ParserState::Magic;
        if self.chunk.flags & CHUNK_FLAG_DONE == 0 {
            return Ok(None);
        }
        self.current()?;
        let Some(entry) = self.in_flight.take(self.current) else { return Ok(None) };
        let RequestInFlight { operation, request, covered, stated, error } = entry;
        if error.is_none() {
            let received = covered.iter().map(|range| range.end - range.start).sum::<u64>();
            let problem = "the reply ends before all is received";
            match request.command {
                Command::READ if received < request.length.into() => {
                    return Err(NbdServerError::field(("reply", "data"), received, problem));
                }
                Command::BLOCK_STATUS if stated == 0 => {
                    return Err(NbdServerError::field(("reply", "extents"), stated, problem));
                }
                _ => {}
            }
        }
        Ok(Some(NbdReplyEvent::Done { operation, result: error.map_or(Ok(()), Err) }))
    }
}

#[cfg(test)]
mod tests;

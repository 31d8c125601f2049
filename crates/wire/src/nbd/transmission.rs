//! The transmission phase: requests, simple replies and structured chunks.

use super::handshake::check_magic;
use super::{ChunkCode, Command, Errno, MAGIC_CHUNK, MAGIC_REQUEST, MAGIC_SIMPLE_REPLY, NbdError};
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRequest {
    magic: U32,
    flags: U16,
    command: U16,
    cookie: U64,
    offset: U64,
    length: U32,
}

/// One request; a WRITE is followed by `length` bytes of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdRequest {
    /// [`command_flag`](super::command_flag)s.
    pub flags: u16,
    /// Command of the request.
    pub command: Command,
    /// Cookie of the client, repeated in every reply.
    pub cookie: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes of the range.
    pub length: u32,
}

impl NbdRequest {
    /// Bytes on the wire, without payload.
    pub const BYTES: usize = size_of::<RawRequest>();

    /// Parses the request at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, NbdError> {
        let (raw, _) = RawRequest::ref_from_prefix(bytes).map_err(|_| NbdError::Truncated)?;
        check_magic(raw.magic.get().into(), MAGIC_REQUEST.into())?;
        Ok(NbdRequest {
            flags: raw.flags.get(),
            command: Command(raw.command.get()),
            cookie: raw.cookie.get(),
            offset: raw.offset.get(),
            length: raw.length.get(),
        })
    }

    /// Returns the bytes to send.
    pub fn emit(&self) -> [u8; Self::BYTES] {
        zerocopy::transmute!(RawRequest {
            magic: MAGIC_REQUEST.into(),
            flags: self.flags.into(),
            command: self.command.0.into(),
            cookie: self.cookie.into(),
            offset: self.offset.into(),
            length: self.length.into(),
        })
    }

    /// True if all flags in `flags` are set.
    pub fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSimpleReply {
    magic: U32,
    errno: U32,
    cookie: U64,
}

/// A simple reply; a successful READ's is followed by the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleReply {
    /// Result of the request.
    pub errno: Errno,
    /// Cookie of the request.
    pub cookie: u64,
}

impl SimpleReply {
    /// Bytes on the wire, without data.
    pub const BYTES: usize = size_of::<RawSimpleReply>();

    /// Parses the reply at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, NbdError> {
        let (raw, _) = RawSimpleReply::ref_from_prefix(bytes).map_err(|_| NbdError::Truncated)?;
        check_magic(raw.magic.get().into(), MAGIC_SIMPLE_REPLY.into())?;
        Ok(SimpleReply { errno: Errno(raw.errno.get()), cookie: raw.cookie.get() })
    }

    /// Returns the bytes to send.
    pub fn emit(&self) -> [u8; Self::BYTES] {
        zerocopy::transmute!(RawSimpleReply {
            magic: MAGIC_SIMPLE_REPLY.into(),
            errno: self.errno.0.into(),
            cookie: self.cookie.into(),
        })
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawChunk {
    magic: U32,
    flags: U16,
    code: U16,
    cookie: U64,
    length: U32,
}

/// Header of one chunk of a structured reply, followed by `length` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdChunk {
    /// [`CHUNK_FLAG_DONE`](super::CHUNK_FLAG_DONE) or nothing.
    pub flags: u16,
    /// Type of the chunk.
    pub code: ChunkCode,
    /// Cookie of the request.
    pub cookie: u64,
    /// Bytes that follow.
    pub length: u32,
}

impl NbdChunk {
    /// Bytes on the wire, without what follows.
    pub const BYTES: usize = size_of::<RawChunk>();

    /// Parses the header at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, NbdError> {
        let (raw, _) = RawChunk::ref_from_prefix(bytes).map_err(|_| NbdError::Truncated)?;
        check_magic(raw.magic.get().into(), MAGIC_CHUNK.into())?;
        Ok(NbdChunk {
            flags: raw.flags.get(),
            code: ChunkCode(raw.code.get()),
            cookie: raw.cookie.get(),
            length: raw.length.get(),
        })
    }

    /// Returns the bytes to send.
    pub fn emit(&self) -> [u8; Self::BYTES] {
        zerocopy::transmute!(RawChunk {
            magic: MAGIC_CHUNK.into(),
            flags: self.flags.into(),
            code: self.code.0.into(),
            cookie: self.cookie.into(),
            length: self.length.into(),
        })
    }
}

/// Payload of an ERROR chunk before its message: error and the message's length, 6 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ErrorPayload {
    /// Error code.
    pub errno: U32,
    /// Bytes of the message that follows.
    pub message_length: U16,
}

impl ErrorPayload {
    /// Bytes on the wire.
    pub const BYTES: usize = size_of::<Self>();

    /// Parses the payload at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, NbdError> {
        let (payload, _) = Self::read_from_prefix(bytes).map_err(|_| NbdError::Truncated)?;
        Ok(payload)
    }

    /// Returns the bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }
}

/// Payload of an OFFSET_HOLE chunk: a range of zeroes, 12 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct HolePayload {
    /// First byte in the export.
    pub offset: U64,
    /// Bytes of the range.
    pub length: U32,
}

impl HolePayload {
    /// Bytes on the wire.
    pub const BYTES: usize = size_of::<Self>();

    /// Parses the payload at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, NbdError> {
        let (payload, _) = Self::read_from_prefix(bytes).map_err(|_| NbdError::Truncated)?;
        Ok(payload)
    }
}

/// One extent in a BLOCK_STATUS chunk, which begins with the meta context's 32-bit identifier.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NbdExtent {
    /// Bytes of the extent.
    pub length: U32,
    /// State of the extent; in base:allocation see [`allocation_state`](super::allocation_state).
    pub state: U32,
}

impl NbdExtent {
    /// Bytes on the wire.
    pub const BYTES: usize = size_of::<Self>();

    /// Parses the extent at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, NbdError> {
        let (extent, _) = Self::read_from_prefix(bytes).map_err(|_| NbdError::Truncated)?;
        Ok(extent)
    }

    /// Returns the bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        IntoBytes::as_bytes(self)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn sizes_are_the_protocols() {
        assert_eq!(NbdRequest::BYTES, 28);
        assert_eq!(SimpleReply::BYTES, 16);
        assert_eq!(NbdChunk::BYTES, 20);
        assert_eq!(ErrorPayload::BYTES, 6);
        assert_eq!(NbdExtent::BYTES, 8);
        assert_eq!(HolePayload::BYTES, 12);
    }

    #[test]
    fn a_request_in_bytes() {
        let request = NbdRequest {
            flags: 1,
            command: Command::WRITE,
            cookie: 0x0102_0304_0506_0708,
            offset: 512,
            length: 4096,
        };
        let bytes = request.emit();
        assert_eq!(
            bytes,
            [
                0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 2, 0,
                0, 0, 16, 0
            ]
        );
        for length in 0..bytes.len() {
            assert_eq!(NbdRequest::parse(&bytes[..length]), Err(NbdError::Truncated));
        }
        assert_eq!(NbdRequest::parse(&[0; 28]), Err(NbdError::Magic { found: 0 }));
    }

    proptest! {
        #[test]
        fn requests_round_trip(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) {
            let request = NbdRequest { flags, command: Command(command), cookie, offset, length };
            prop_assert_eq!(NbdRequest::parse(&request.emit()), Ok(request));
        }

        #[test]
        fn replies_round_trip(flags: u16, code: u16, cookie: u64, length: u32) {
            let chunk = NbdChunk { flags, code: ChunkCode(code), cookie, length };
            prop_assert_eq!(NbdChunk::parse(&chunk.emit()), Ok(chunk));
            let simple = SimpleReply { errno: Errno(length), cookie };
            prop_assert_eq!(SimpleReply::parse(&simple.emit()), Ok(simple));
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(bytes: Vec<u8>) {
            let _ = (NbdRequest::parse(&bytes), SimpleReply::parse(&bytes), NbdChunk::parse(&bytes));
            let _ = (ErrorPayload::parse(&bytes), HolePayload::parse(&bytes), NbdExtent::parse(&bytes));
        }
    }
}

//! Magic numbers, flags and codes.

/// First magic of the server's greeting: "NBDMAGIC".
pub const MAGIC_INIT: u64 = 0x4e42_444d_4147_4943;
/// Second magic of the greeting and magic of every option: "IHAVEOPT".
pub const MAGIC_OPTION: u64 = 0x4948_4156_454f_5054;
/// Magic of a reply to an option.
pub const MAGIC_OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// Magic of a request in the transmission phase.
pub const MAGIC_REQUEST: u32 = 0x2560_9513;
/// Magic of a simple reply.
pub const MAGIC_SIMPLE_REPLY: u32 = 0x6744_6698;
/// Magic of a structured reply's chunk.
pub const MAGIC_CHUNK: u32 = 0x668e_33ef;

/// Longest string (export name, query, message) that the protocol allows.
pub const STRING_BYTES_MAX: usize = 4096;
/// Longest payload of one request unless other limits were agreed.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Zeroes behind the answer to EXPORT_NAME, unless NO_ZEROES was agreed.
pub const EXPORT_NAME_ZEROES: usize = 124;
/// The meta context that tells data from holes.
pub const BASE_ALLOCATION: &str = "base:allocation";

/// Handshake flags of the server and (with the same bits) of the client.
pub mod handshake_flag {
    /// Options may be refused without ending the session.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// The zeroes behind the answer to EXPORT_NAME are left out.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Transmission flags: what an export can do.
pub mod transmission_flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused with EPERM.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH is served.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The FUA command flag is served.
    pub const SEND_FUA: u16 = 1 << 3;
    /// The export is a rotating disk.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// TRIM is served.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES is served.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The DF (do not fragment) command flag is served.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers writes completed on all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE is served.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// WRITE_ZEROES tells when it would be slow.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Flags of a request.
pub mod command_flag {
    /// Reply only when the data is on stable storage.
    pub const FUA: u16 = 1 << 0;
    /// WRITE_ZEROES may not deallocate.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The whole read comes in one chunk.
    pub const DF: u16 = 1 << 2;
    /// BLOCK_STATUS wants one extent only.
    pub const REQ_ONE: u16 = 1 << 3;
    /// WRITE_ZEROES fails rather than be slow.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Flag of a structured chunk: the last one of its reply.
pub const CHUNK_FLAG_DONE: u16 = 1 << 0;

macro_rules! codes {
    ($(#[$meta:meta])* $name:ident($int:ty) { $($(#[$doc:meta])* $code:ident = $value:expr,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub $int);

        impl $name {
            $($(#[$doc])* pub const $code: $name = $name($value);)*

            /// The specification's name of the code, if it is known.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $($name::$code => Some(stringify!($code)),)*
                    _ => None,
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{:#x}", self.0),
                }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    };
}

codes! {
    /// What an option of the handshake asks.
    OptionCode(u32) {
        /// Choose an export and enter transmission; no refusal possible.
        EXPORT_NAME = 1,
        /// End the session softly.
        ABORT = 2,
        /// Name the exports.
        LIST = 3,
        /// Withdrawn.
        PEEK_EXPORT = 4,
        /// Switch to TLS.
        STARTTLS = 5,
        /// Tell about an export.
        INFO = 6,
        /// Tell about an export and enter transmission.
        GO = 7,
        /// Agree on structured replies.
        STRUCTURED_REPLY = 8,
        /// Name the meta contexts of an export.
        LIST_META_CONTEXT = 9,
        /// Choose meta contexts for BLOCK_STATUS.
        SET_META_CONTEXT = 10,
        /// Agree on 64-bit lengths.
        EXTENDED_HEADERS = 11,
    }
}

codes! {
    /// What a reply to an option says.
    OptionReplyCode(u32) {
        /// Done.
        ACK = 1,
        /// One export of a list.
        SERVER = 2,
        /// One information about an export.
        INFO = 3,
        /// One meta context.
        META_CONTEXT = 4,
        /// The option is unknown or not served.
        ERR_UNSUP = (1 << 31) | 1,
        /// Refused by configuration.
        ERR_POLICY = (1 << 31) | 2,
        /// The option's data makes no sense.
        ERR_INVALID = (1 << 31) | 3,
        /// Not served on this platform.
        ERR_PLATFORM = (1 << 31) | 4,
        /// TLS first.
        ERR_TLS_REQD = (1 << 31) | 5,
        /// No such export.
        ERR_UNKNOWN = (1 << 31) | 6,
        /// The server is going away.
        ERR_SHUTDOWN = (1 << 31) | 7,
        /// The client must ask for block sizes.
        ERR_BLOCK_SIZE_REQD = (1 << 31) | 8,
        /// The option's data is too long.
        ERR_TOO_BIG = (1 << 31) | 9,
    }
}

codes! {
    /// Kinds of information about an export.
    InfoCode(u16) {
        /// Size and transmission flags.
        EXPORT = 0,
        /// Canonical name.
        NAME = 1,
        /// Human-readable description.
        DESCRIPTION = 2,
        /// Minimum, preferred and maximum block size.
        BLOCK_SIZE = 3,
    }
}

codes! {
    /// What a request of the transmission phase asks.
    Command(u16) {
        /// Read `length` octets.
        READ = 0,
        /// Write the payload.
        WRITE = 1,
        /// End the session; no reply.
        DISC = 2,
        /// Make completed writes durable.
        FLUSH = 3,
        /// The range's data is no longer needed.
        TRIM = 4,
        /// Prefetch.
        CACHE = 5,
        /// Write zeroes without a payload.
        WRITE_ZEROES = 6,
        /// Tell extents in the agreed meta contexts.
        BLOCK_STATUS = 7,
    }
}

codes! {
    /// What a structured chunk holds.
    ChunkCode(u16) {
        /// Nothing.
        NONE = 0,
        /// An offset and data.
        OFFSET_DATA = 1,
        /// An offset and a length of zeroes.
        OFFSET_HOLE = 2,
        /// Extents of one meta context.
        BLOCK_STATUS = 5,
        /// An error and a message.
        ERROR = (1 << 15) | 1,
        /// An error, a message and an offset.
        ERROR_OFFSET = (1 << 15) | 2,
    }
}

codes! {
    /// Errors of the transmission phase.
    Errno(u32) {
        /// No error.
        OK = 0,
        /// The export is read-only.
        EPERM = 1,
        /// The medium or the way to it failed.
        EIO = 5,
        /// Out of memory.
        ENOMEM = 12,
        /// The request makes no sense.
        EINVAL = 22,
        /// A write beyond the end, or no space.
        ENOSPC = 28,
        /// Too long for one unfragmented chunk.
        EOVERFLOW = 75,
        /// Not served.
        ENOTSUP = 95,
        /// The server or the export is going away.
        ESHUTDOWN = 108,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magics_spell_their_words() {
        assert_eq!(&MAGIC_INIT.to_be_bytes(), b"NBDMAGIC");
        assert_eq!(&MAGIC_OPTION.to_be_bytes(), b"IHAVEOPT");
    }

    #[test]
    fn unknown_codes_have_no_name() {
        assert_eq!(OptionCode::GO.name(), Some("GO"));
        assert_eq!(OptionCode(99).name(), None);
        assert_eq!(Errno(7).name(), None);
    }
}

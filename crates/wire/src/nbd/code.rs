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

/// Maximum bytes of a string (export name, query, message).
pub const STRING_BYTES_MAX: usize = 4096;
/// Maximum bytes of a request's payload unless other limits were negotiated.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Zeroes behind the reply to EXPORT_NAME, unless NO_ZEROES was negotiated.
pub const EXPORT_NAME_ZEROES: usize = 124;
/// Meta context that distinguishes data from holes.
pub const BASE_ALLOCATION: &str = "base:allocation";

/// Handshake flags of the server and (with the same bits) of the client.
pub mod handshake_flag {
    /// Options may be refused without ending the session.
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// The zeroes behind the reply to EXPORT_NAME are left out.
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Transmission flags: capabilities of an export.
pub mod transmission_flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused with EPERM.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH is served.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// The FUA command flag is served.
    pub const SEND_FUA: u16 = 1 << 3;
    /// TRIM is served.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES is served.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// The DF (do not fragment) command flag is served.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers writes completed on all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// WRITE_ZEROES with FAST_ZERO fails when it would be slow.
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
    /// BLOCK_STATUS returns one extent only.
    pub const REQ_ONE: u16 = 1 << 3;
    /// WRITE_ZEROES fails rather than be slow.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// State of an extent in [`BASE_ALLOCATION`]: bits.
pub mod allocation_state {
    /// Allocated data.
    pub const DATA: u32 = 0;
    /// Not allocated.
    pub const HOLE: u32 = 1 << 0;
    /// Reads as zeroes.
    pub const ZERO: u32 = 1 << 1;
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

            /// Returns the specification's name of the code, if it is known.
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
    /// Option of the handshake.
    OptionCode(u32) {
        EXPORT_NAME = 1,
        ABORT = 2,
        LIST = 3,
        PEEK_EXPORT = 4,
        STARTTLS = 5,
        INFO = 6,
        GO = 7,
        STRUCTURED_REPLY = 8,
        /// Name the meta contexts of an export.
        LIST_META_CONTEXT = 9,
        /// Choose meta contexts for BLOCK_STATUS.
        SET_META_CONTEXT = 10,
        /// Negotiate 64-bit lengths.
        EXTENDED_HEADERS = 11,
    }
}

codes! {
    /// Type of a reply to an option.
    OptionReplyCode(u32) {
        ACK = 1,
        /// One export of a list.
        SERVER = 2,
        INFO = 3,
        META_CONTEXT = 4,
        ERR_UNSUP = (1 << 31) | 1,
        ERR_POLICY = (1 << 31) | 2,
        ERR_INVALID = (1 << 31) | 3,
        ERR_PLATFORM = (1 << 31) | 4,
        ERR_TLS_REQD = (1 << 31) | 5,
        ERR_UNKNOWN = (1 << 31) | 6,
        ERR_SHUTDOWN = (1 << 31) | 7,
        ERR_BLOCK_SIZE_REQD = (1 << 31) | 8,
        ERR_TOO_BIG = (1 << 31) | 9,
    }
}

codes! {
    /// Kinds of information about an export.
    InfoCode(u16) {
        EXPORT = 0,
        NAME = 1,
        DESCRIPTION = 2,
        BLOCK_SIZE = 3,
    }
}

codes! {
    /// Command of the transmission phase.
    Command(u16) {
        /// Read `length` bytes.
        READ = 0,
        WRITE = 1,
        DISC = 2,
        FLUSH = 3,
        TRIM = 4,
        CACHE = 5,
        WRITE_ZEROES = 6,
        BLOCK_STATUS = 7,
    }
}

codes! {
    /// Type of a structured chunk.
    ChunkCode(u16) {
        NONE = 0,
        OFFSET_DATA = 1,
        OFFSET_HOLE = 2,
        BLOCK_STATUS = 5,
        ERROR = (1 << 15) | 1,
        ERROR_OFFSET = (1 << 15) | 2,
    }
}

codes! {
    /// Errors of the transmission phase.
    Errno(u32) {
        OK = 0,
        EPERM = 1,
        EIO = 5,
        ENOMEM = 12,
        EINVAL = 22,
        ENOSPC = 28,
        EOVERFLOW = 75,
        ENOTSUP = 95,
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

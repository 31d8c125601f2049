//! Storage directly on Ethernet: frames, their records, and setup (docs/reference/ethernet.md).
//!
//! | layer | type |
//! |---|---|
//! | Ethernet | destination, source, optional 802.1Q tag, EtherType: [`EthernetHeader`] |
//! | frame | [`FrameHeader`], then its body |
//! | Cargo body | records, each behind a [`RecordHead`]: [`CommandRecord`], [`DataRecord`], [`CompletionRecord`] |
//! | set-up bodies | [`setup::OfferBody`], [`setup::JoinBody`], [`setup::JoinedBody`], [`setup::QueryBody`], [`setup::LeaveBody`] |

mod frame;
mod record;
pub mod setup;

pub use frame::{
    ETHERTYPE, EthernetHeader, FRAME_HEADER_BYTES, FrameError, FrameHeader, FrameType, GROUP,
    MacAddress, VERSION, flags, parse, set_hcrc,
};
pub use record::{
    COMMAND_RECORD_BYTES, COMPLETION_RECORD_BYTES, CargoRecord, CargoRecords, CommandRecord,
    CompletionRecord, DATA_IN, DATA_RECORD_BYTES, DataRecord, GENERATION_MASK, RecordError,
    RecordHead, RecordKind, padded,
};

/// Bytes of a page of the damq.
pub const PAGE_BYTES: usize = 4096;
/// Maximum records of a frame.
pub const RECORDS_MAX: usize = 64;
/// Bytes of the tag behind a sealed body.
pub const TAG_BYTES: usize = 16;
/// Maximum pieces of a request's data.
pub const PIECES_MAX: usize = 1024;

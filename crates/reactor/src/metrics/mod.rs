//! What reactors count while they work, and how other threads read it.
//!
//! A counter is written by one thread, with plain loads and stores, and read by anybody: counting costs no lock and no
//! shared cache line. [`Snapshot`] is what all of them say at a moment.

mod cells;
mod latency;
mod reactor;
mod snapshot;

pub use cells::{BatchCells, Cells, Counter, Done, Ended, IoCells, Statuses};
pub use latency::{BUCKETS, Latency, bounds};
pub use reactor::{Counted, ReactorCells};
pub use snapshot::{
    AnaSample, AttachmentSample, AuthSample, Batching, ConnectionCount, DeviceSample, FrameCount,
    GatewaySample, HostSample, Io, Kind, LaneSample, LatencyOf, LinkSample, NamespaceSample,
    PathSample, ReactorSample, Snapshot, StatusCount, SubsystemSample, TransportSample,
    name_in_file,
};

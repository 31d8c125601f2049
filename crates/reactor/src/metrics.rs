//! Counters of reactors, and their readers on other threads.
//!
//! One thread writes a counter, with plain loads and stores, and any thread reads it: counting costs no lock and no
//! shared cache line. A [`MetricsSnapshot`] has the values of all of them at one time.

mod cells;
mod latency;
mod reactor;
mod snapshot;

pub use cells::{BatchCells, Cells, CommandKind, CommandOutcome, Counter, IoCells, Statuses};
pub use latency::{BUCKETS, Latency, bounds};
pub use reactor::{ReactorCells, WaitTotals};
pub use snapshot::{
    AnaSample, AttachmentSample, AuthSample, Batching, ConnectionCount, DeviceSample, FrameCount,
    GatewaySample, HostSample, IoCounters, LaneSample, LatencyOf, LinkSample, MetricsSnapshot,
    NamespaceSample, PathSample, ReactorSample, ReasonCount, SnapshotKind, StatusCount,
    SubsystemSample, TransportSample, name_in_file,
};

//! Records of completed requests.

use roadtrain_host_proto::qpair::{CommandTimestamps, Data};
use roadtrain_proto::recorder::{Asked, Record, Timeline, Why};
use roadtrain_proto::time::Instant;
use roadtrain_reactor::recorded::{Line, first_block};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::sync::Arc;

/// Creates the record of a request that has completed with `status` after `latency_ns`, with the timestamps of its
/// command.
#[cold]
pub(super) fn record(
    line: &Arc<Line>,
    (sqe, data): (&Sqe, Data),
    status: Status,
    timestamps: CommandTimestamps,
    (now, latency_ns): (Instant, u64),
) -> Record<Arc<Line>> {
    let bytes = match data {
        Data::None => 0,
        Data::In(bytes) | Data::Out(bytes) => bytes,
    };
    let code = sqe.opcode;
    let CommandTimestamps { submitted, sent, data } = timestamps;
    // Data that arrives all at once arrives at the end.
    let data = if data < sent { now } else { data };
    Record {
        who: line.clone(),
        asked: Asked {
            opcode: code,
            nsid: sqe.nsid.get(),
            slba: first_block(code, sqe.slba()),
            bytes,
        },
        cid: sqe.cid.get(),
        status,
        why: Why::Sampled,
        timeline: Timeline::at_host([
            Instant(now.0.saturating_sub(latency_ns)),
            submitted,
            sent,
            data,
            now,
        ]),
    }
}

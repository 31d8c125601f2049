//! Records of completed requests.

use roadtrain_host_proto::qpair::{CommandTimestamps, CommandTransfer};
use roadtrain_proto::recorder::{RecordReason, RecordedParams, RequestRecord, Timeline};
use roadtrain_proto::time::Instant;
use roadtrain_reactor::recorded::{ConnectionInfo, first_block};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::sync::Arc;

/// Creates the record of a request that has completed with `status` after `latency_ns`, with the timestamps of its
/// command.
#[cold]
pub(super) fn record(
    line: &Arc<ConnectionInfo>,
    (sqe, data): (&Sqe, CommandTransfer),
    status: Status,
    timestamps: CommandTimestamps,
    (now, latency_ns): (Instant, u64),
) -> RequestRecord<Arc<ConnectionInfo>> {
    let bytes = match data {
        CommandTransfer::None => 0,
        CommandTransfer::In(bytes) | CommandTransfer::Out(bytes) => bytes,
    };
    let code = sqe.opcode;
    let CommandTimestamps { submitted, sent, data } = timestamps;
    // Data that arrives all at once arrives at the end.
    let data = if data < sent { now } else { data };
    RequestRecord {
        connection: line.clone(),
        command: RecordedParams {
            opcode: code,
            nsid: sqe.nsid.get(),
            slba: first_block(code, sqe.slba()),
            bytes,
        },
        cid: sqe.cid.get(),
        status,
        reason: RecordReason::Sampled,
        timeline: Timeline::at_host([
            Instant(now.0.saturating_sub(latency_ns)),
            submitted,
            sent,
            data,
            now,
        ]),
    }
}

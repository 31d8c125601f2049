//! Results of an admin or fabrics command for its connection.

use crate::LbaStatusQuery;
use roadtrain_wire::status::Status;

/// Steps for a connection after an admin or fabrics command.
#[derive(Debug, Default)]
pub struct ServiceReply {
    /// Status and result of its completion; `None` for an asynchronous event request.
    pub completion: Option<(Status, u64)>,
    /// Query to a store, whose result completes the command.
    pub status_query: Option<LbaStatusQuery>,
    /// True if a queue was claimed.
    pub connected: bool,
    /// True if the host was granted the queue.
    pub granted: bool,
    /// True if the command waits: retry it when the driver has done the pending work.
    pub postponed: bool,
    /// True if the connection ends after the completion.
    pub ends: bool,
}

impl ServiceReply {
    /// Returns the reply for a completed command.
    pub(super) fn completed(status: Status, result: u64) -> Self {
        ServiceReply { completion: Some((status, result)), ..ServiceReply::default() }
    }

    /// Returns the reply for a waiting command.
    pub(super) fn postponed() -> Self {
        ServiceReply { postponed: true, ..ServiceReply::default() }
    }
}

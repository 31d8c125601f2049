//! Results of an admin or fabrics command for its connection.

use crate::LookUp;
use roadtrain_wire::status::Status;

/// Steps for a connection after an admin or fabrics command.
#[derive(Debug, Default)]
pub struct Reply {
    /// Status and result of its completion; `None` for an asynchronous event request.
    pub completion: Option<(Status, u64)>,
    /// Query to a store, whose result completes the command.
    pub look_up: Option<LookUp>,
    /// True if a queue was claimed.
    pub connected: bool,
    /// True if the host was granted the queue.
    pub granted: bool,
    /// True if the command waits: retry it when the driver has done the pending work.
    pub postponed: bool,
    /// True if the connection ends after the completion.
    pub ends: bool,
}

impl Reply {
    /// Returns the reply for a completed command.
    pub(super) fn completed(status: Status, result: u64) -> Self {
        Reply { completion: Some((status, result)), ..Reply::default() }
    }

    /// Returns the reply for a waiting command.
    pub(super) fn postponed() -> Self {
        Reply { postponed: true, ..Reply::default() }
    }
}

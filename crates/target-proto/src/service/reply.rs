//! Consequences of an admin or fabrics command for its connection.

use crate::LookUp;
use roadtrain_wire::status::Status;

/// Steps for a connection after an admin or fabrics command.
#[derive(Debug, Default)]
pub struct Reply {
    /// Its completion: status and result; `None` for an asynchronous event request.
    pub completion: Option<(Status, u64)>,
    /// A store is to be queried, and its answer completes the command.
    pub look_up: Option<LookUp>,
    /// A queue was claimed.
    pub connected: bool,
    /// The host was granted the queue.
    pub granted: bool,
    /// The command is to be tried again when the driver has done what it waits for.
    pub postponed: bool,
    /// The connection ends after the completion.
    pub ends: bool,
}

impl Reply {
    /// A command that is complete.
    pub(super) fn completed(status: Status, result: u64) -> Self {
        Reply { completion: Some((status, result)), ..Reply::default() }
    }

    /// A command that waits.
    pub(super) fn postponed() -> Self {
        Reply { postponed: true, ..Reply::default() }
    }
}

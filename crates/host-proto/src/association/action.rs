//! Configuration of an association, and the actions of its driver.

use super::allocation_queries::QueryOrigin;
use super::siblings::SiblingConstraints;
use crate::allocation::Allocation;
use crate::bringup::{Fencing, Wants};
use crate::namespace_identity::BarredNsids;
use crate::old_commands::{LaneGuard, OldCommands};
use crate::paths::AnaTable;
use crate::procedure::{DriverRequest, ProcedureFailure};
use crate::retry::RetryRules;
use crate::write_verifier::PathWrites;
use core::time::Duration;
use roadtrain_wire::cross_reset::ControllerInstance;
use roadtrain_wire::sqe::Sqe;

/// Configuration of an association.
#[derive(Clone, Debug)]
pub struct AssociationConfig {
    /// Parameters of each connection.
    pub wants: Wants,
    /// Number of I/O queues; a controller that grants fewer is not used.
    pub lanes: u32,
    /// Maximum number of express connections; a controller that grants fewer queues has fewer.
    pub expresses: u32,
    /// First pause before reconnecting; doubles up to `reconnect_delay_max`.
    pub reconnect_delay: Duration,
    /// Longest pause before reconnecting.
    pub reconnect_delay_max: Duration,
    /// Duration without a working path after which requests fail; `None`: requests wait for ever.
    pub controller_loss_timeout: Option<Duration>,
    /// Shorter duration after which requests fail fast; `None`: they wait for the controller-loss timeout.
    pub fast_io_fail_timeout: Option<Duration>,
    /// State of another association of the host that leads to the same namespaces ([`crate::paths`]). `None`: there is
    /// no other association.
    pub siblings: Option<SiblingConstraints>,
    /// Old commands, shared by all associations and lanes of the host.
    pub old_commands: OldCommands,
}

/// Reason for resetting a path.
#[derive(Clone, Debug)]
pub enum ResetReason<E> {
    /// A lane has lost its connection.
    Lane { lane: usize, error: E },
    /// The admin queue or an attempt to connect has failed.
    Path(ProcedureFailure<E>),
}

/// Action for the driver.
#[derive(Debug)]
pub enum AssociationAction<E> {
    /// Carry out an operation on a queue of the path; reply with [`super::HostAssociation::answer`].
    Request { ask: DriverRequest },
    /// Send an Asynchronous Event Request on the path's admin queue; [`super::HostAssociation::event`] may come at any time.
    Listen { sqe: Sqe },
    /// Send an Abort on the path's admin queue without waiting for its completion; report it with
    /// [`super::HostAssociation::aborted`].
    Abort { sqe: Sqe },
    /// Give a lane the express connection that was opened for it, as queue `number + 1`.
    AttachExpress {
        lane: usize,
        number: usize,
        rules: RetryRules,
        /// NSIDs whose requests are not submitted.
        barred: BarredNsids,
        /// Record of the path's acknowledged writes.
        writes: PathWrites,
        /// True if the controller supports Disconnect, which closes this connection alone.
        may_close: bool,
        guard: LaneGuard,
    },
    /// Refuse the lane an express connection, and close any that was opened for it.
    RefuseExpress { lane: usize, why: Option<ProcedureFailure<E>> },
    /// Give the lanes the connections that were opened for them.
    Attach {
        rules: RetryRules,
        /// NSIDs whose requests are not submitted.
        barred: BarredNsids,
        /// Record of the path's acknowledged writes.
        writes: PathWrites,
        /// Old commands for which writes wait.
        guard: LaneGuard,
    },
    /// The target's machine has failed after it acknowledged unflushed writes to these namespaces. The next Flush of
    /// each fails.
    WritesLost { nsids: Vec<u32> },
    /// Stop lanes from submitting requests for these NSIDs.
    SetBarred(BarredNsids),
    /// ANA states of the path's controller, if there are other paths.
    SetAna { ana: AnaTable },
    /// Namespaces that have been in ANA Change for longer than ANATT: they count as inaccessible on this path. Emitted
    /// once.
    LateTransition { nsids: Vec<u32> },
    /// Report that [`super::HostAssociation::info`] has changed.
    Changed,
    /// Have other associations end the controller that this path has lost: [`super::HostAssociation::end_for`].
    EndBySiblings { lost: ControllerInstance },
    /// Outcome for a controller that association `owner` has lost. If it has ended, call [`super::HostAssociation::fenced`]
    /// of that association.
    EndedFor { owner: usize, lost: ControllerInstance, fencing: Fencing },
    /// Outcome for the controller that the path has lost.
    Fenced { cntlid: u16, fencing: Fencing },
    /// Block allocation, for [`super::HostAssociation::query_allocation`]; `None`: unknown.
    AllocationFound { by: QueryOrigin, found: Option<Allocation> },
    /// Close all connections of the path abruptly, then call [`super::HostAssociation::reset`].
    Reset { why: ResetReason<E>, was_live: bool },
    /// A lost controller executes nothing any more: requests that waited for it may continue, on this or another path
    /// ([`crate::requests::RequestTable::release`]).
    Release,
    /// Close the connections of one lane or of all, and fail their requests, until [`AssociationAction::Attach`].
    Fail { lane: Option<usize> },
    /// Act as for [`AssociationAction::Fail`] of all lanes, because of the fast-io-fail timeout. Call
    /// [`super::HostAssociation::fail_later`] instead if another path works.
    FailFast,
    /// End all submitters of requests, then call [`super::HostAssociation::ended`].
    Finish,
    /// End the association. Connections close in order if the controller was shut down, else abruptly.
    End {
        /// Result of the shutdown, if there was one.
        shut_down: Option<Result<(), ProcedureFailure<E>>>,
    },
}

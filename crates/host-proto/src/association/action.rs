//! Configuration of an association, and the actions of its driver.

use super::beside::Beside;
use super::look_ups::AskedBy;
use crate::allocation::Allocation;
use crate::bringup::{Fencing, Wants};
use crate::old_commands::{LaneGuard, OldCommands};
use crate::paths::AnaTable;
use crate::pins::Barred;
use crate::procedure::{Ask, Failure};
use crate::retry::RetryRules;
use crate::write_verifier::PathWrites;
use core::time::Duration;
use roadtrain_wire::cross_reset::ControllerInstance;
use roadtrain_wire::sqe::Sqe;

/// Configuration of an association.
#[derive(Clone, Debug)]
pub struct Config {
    /// Parameters of each connection.
    pub wants: Wants,
    /// I/O queues; a controller that grants fewer is not used.
    pub lanes: u32,
    /// Express connections at most; a controller that grants fewer queues has fewer.
    pub expresses: u32,
    /// First pause before connecting again; doubles up to the longest.
    pub reconnect_delay: Duration,
    /// The longest.
    pub reconnect_delay_max: Duration,
    /// Requests fail when no path has worked for that long; `None`: they wait for ever.
    pub controller_loss_timeout: Option<Duration>,
    /// The same for requests, before that; `None`: they wait for the controller-loss timeout.
    pub fast_io_fail_timeout: Option<Duration>,
    /// State of another association of the host, where both lead to the same namespaces ([`crate::paths`]). `None`: there
    /// is no other association.
    pub beside: Option<Beside>,
    /// Shared by all associations and lanes of the host.
    pub old_commands: OldCommands,
}

/// Reason for giving a path up.
#[derive(Clone, Debug)]
pub enum Reason<E> {
    /// A lane has lost its connection.
    Lane { lane: usize, error: E },
    /// Its admin queue, or an attempt to connect it.
    Path(Failure<E>),
}

/// An action for the driver.
#[derive(Debug)]
pub enum Action<E> {
    /// Something on a queue of the path: [`super::Association::answer`].
    Ask { ask: Ask },
    /// Send an Asynchronous Event Request on the path's admin queue; [`super::Association::event`] may come at any time.
    Listen { sqe: Sqe },
    /// Send an Abort on the path's admin queue, and do not wait for its answer: [`super::Association::aborted`].
    Abort { sqe: Sqe },
    /// Give a lane the express connection that was opened for it, as queue `number + 1`.
    AttachExpress {
        lane: usize,
        number: usize,
        rules: RetryRules,
        /// Requests that are not to be submitted.
        barred: Barred,
        /// Record of the path's acknowledged writes.
        writes: PathWrites,
        /// The controller knows Disconnect, by which the connection ends without the others.
        may_close: bool,
        guard: LaneGuard,
    },
    /// The lane gets no express connection, for that reason; what was opened of it is to be ended.
    RefuseExpress { lane: usize, why: Option<Failure<E>> },
    /// Give the lanes the connections that were opened for them.
    Attach {
        rules: RetryRules,
        /// Requests that are not to be submitted.
        barred: Barred,
        /// Record of the path's acknowledged writes.
        writes: PathWrites,
        /// Old commands that writes have to wait for.
        guard: LaneGuard,
    },
    /// The target's machine has failed, with acknowledged writes to these namespaces that were not flushed: the next Flush
    /// of each fails.
    WritesLost { nsids: Vec<u32> },
    /// Lanes are not to submit requests for these.
    SetBarred(Barred),
    /// ANA states of the path's controller, where there are other paths.
    SetAna { ana: AnaTable },
    /// Namespaces have been between two ANA states for longer than the path's controller has said (ANATT): they count as
    /// inaccessible there. Emitted once.
    LateTransition { nsids: Vec<u32> },
    /// [`super::Association::info`] has changed.
    Changed,
    /// Have the controller that the path has lost ended by the other associations: [`super::Association::end_for`].
    EndElsewhere { lost: ControllerInstance },
    /// Fate of a controller that association `owner` has lost. If it has ended, call [`super::Association::fenced`] of
    /// that association.
    EndedFor { owner: usize, lost: ControllerInstance, fencing: Fencing },
    /// Fate of the controller that the path has lost.
    Fenced { cntlid: u16, fencing: Fencing },
    /// Allocation of blocks, for [`super::Association::look_up`]; `None`: not known.
    LookedUp { by: AskedBy, found: Option<Allocation> },
    /// End all connections of the path, abruptly, and answer [`super::Association::reset`] when they are gone.
    Reset { why: Reason<E>, was_live: bool },
    /// A controller that this host has lost executes nothing any more: requests of the path's lanes that waited for it
    /// may go on, or elsewhere ([`crate::requests::Requests::release`]).
    Release,
    /// End the lanes' connections and fail their requests, until [`Action::Attach`]: those of one lane, or all.
    Fail { lane: Option<usize> },
    /// As [`Action::Fail`] of all lanes, because of the fast-io-fail timeout; [`super::Association::fail_later`] if
    /// another path works.
    FailFast,
    /// Have those who submit requests come to an end: [`super::Association::ended`].
    Finish,
    /// It is over. The connections end in order if the controller was shut down, else abruptly.
    End {
        /// Result of the shutdown, where there was one.
        shut_down: Option<Result<(), Failure<E>>>,
    },
}

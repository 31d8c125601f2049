//! How an association is kept, and what its driver is to do.

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

/// How an association is kept.
#[derive(Clone, Debug)]
pub struct Config {
    /// What each path is connected with.
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
    /// What another association of the host has, where both lead to the same namespaces ([`crate::paths`]). `None`: there
    /// is no other association.
    pub beside: Option<Beside>,
    /// What all associations and lanes of the host share.
    pub old_commands: OldCommands,
}

/// Why a path is given up.
#[derive(Clone, Debug)]
pub enum Reason<E> {
    /// A lane has lost its connection.
    Lane { lane: usize, error: E },
    /// Its admin queue, or an attempt to connect it.
    Path(Failure<E>),
}

/// What the driver is to do.
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
        /// What is not to be submitted.
        barred: Barred,
        /// What the path's acknowledged writes are noted in.
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
        /// What is not to be submitted.
        barred: Barred,
        /// What the path's acknowledged writes are noted in.
        writes: PathWrites,
        /// What writes have to wait for.
        guard: LaneGuard,
    },
    /// The target's machine has failed, with acknowledged writes to these namespaces that were not flushed: the next Flush
    /// of each fails.
    WritesLost { nsids: Vec<u32> },
    /// Lanes are not to submit requests for these.
    SetBarred(Barred),
    /// What the path's controller can reach, where there are other paths.
    SetAna { ana: AnaTable },
    /// Namespaces have been between two ANA states for longer than the path's controller has said (ANATT): they count as
    /// inaccessible there. Told once.
    LateTransition { nsids: Vec<u32> },
    /// [`super::Association::info`] has changed.
    Changed,
    /// Have the controller that the path has lost ended by the other associations: [`super::Association::end_for`].
    EndElsewhere { lost: ControllerInstance },
    /// What has become of a controller that association `owner` has lost. If it has ended, that one is to be told:
    /// [`super::Association::fenced`].
    EndedFor { owner: usize, lost: ControllerInstance, fencing: Fencing },
    /// What has become of the controller that the path has lost.
    Fenced { cntlid: u16, fencing: Fencing },
    /// What blocks are allocated, as [`super::Association::look_up`] wanted to know; `None`: nobody says.
    LookedUp { by: AskedBy, found: Option<Allocation> },
    /// End all connections of the path, abruptly, and answer [`super::Association::reset`] when they are gone.
    Reset { why: Reason<E>, was_live: bool },
    /// A controller that this host has lost executes nothing any more: requests of the path's lanes that waited for it
    /// may go on, or elsewhere ([`crate::requests::Requests::release`]).
    Release,
    /// End the lanes' connections and fail their requests, until [`Action::Attach`]: those of one lane, or all.
    Fail { lane: Option<usize> },
    /// As [`Action::Fail`] of all lanes, because of the fast-io-fail timeout; [`super::Association::fail_later`] if another path
    /// works.
    FailFast,
    /// Tell those who submit requests to come to an end: [`super::Association::ended`].
    Finish,
    /// It is over. The connections end in order if the controller was shut down, else abruptly.
    End {
        /// What came of the shutdown, where there was one.
        shut_down: Option<Result<(), Failure<E>>>,
    },
}

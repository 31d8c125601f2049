//! Environment in which commands are executed.

use crate::LbaStatusQuery;
use crate::io::{BlockGeometry, TargetIoCommand};
use crate::reservations::CommandGroup;
use crate::session::TargetConnection;
use crate::stability::Epoch;
use core::ops::Deref;
use roadtrain_proto::op::ByteRange;
use roadtrain_proto::policy::Class;
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::rc::Rc;

/// Data from the host, as of the arrival of its command.
#[derive(Debug)]
pub enum CommandPayload<'a, B> {
    /// At the host, until an R2T requests it.
    OnRequest,
    /// In-capsule, this many bytes after the command.
    Follows(u32),
    /// Received, where the host has placed it.
    Here(B),
    /// In the same frame as the command.
    InFrame {
        /// The data.
        bytes: &'a [u8],
        /// Offset in the pages that the host writes to.
        place: u64,
    },
}

impl<B: Deref<Target = [u8]>> CommandPayload<'_, B> {
    /// Returns the part that outlives the frame with the command.
    pub fn without_frame(self) -> CommandPayload<'static, B> {
        match self {
            CommandPayload::Follows(bytes) => CommandPayload::Follows(bytes),
            CommandPayload::Here(buffer) => CommandPayload::Here(buffer),
            CommandPayload::OnRequest | CommandPayload::InFrame { .. } => CommandPayload::OnRequest,
        }
    }

    /// Returns the bytes transferred along with the command.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        match self {
            CommandPayload::OnRequest => 0,
            CommandPayload::Follows(bytes) => *bytes,
            CommandPayload::Here(buffer) => buffer.len() as u32,
            CommandPayload::InFrame { bytes, .. } => bytes.len() as u32,
        }
    }
}

/// Source of a Read or destination of a Write in the store's own memory.
pub trait InPlaceData: Copy {
    /// Returns the bytes of the command.
    fn length(&self) -> u32;
}

/// A namespace as a connection sees it. It lives as long as a command uses it.
pub trait LaneNamespace {
    /// Data in the store's own memory.
    type Place: InPlaceData;

    /// Returns the geometry against which commands are checked.
    fn geometry(&self) -> &BlockGeometry;
    /// Returns the class for commands without one of their own.
    fn class(&self) -> Option<Class>;
    /// Returns the memory for a Read or Write, if the store lends it.
    fn in_place(&self, command: &TargetIoCommand) -> Option<Self::Place>;
    /// True if a reservation of another host refuses commands of that group. One load for each command.
    fn refuses(&self, group: CommandGroup) -> bool;
    /// True if commands are rate-limited and may have to wait. One load for each command.
    fn is_limited(&self) -> bool;
    /// Returns the time at which a command that arrives now may begin, and charges it.
    fn begins(&self, now: Instant, command: &TargetIoCommand) -> Instant;
    /// Refunds the charge of a command that has waited and does not begin.
    fn give_back(&self, command: &TargetIoCommand);
    /// True if the rate limits of `other` apply to its commands as well.
    fn is_limited_as(&self, other: &Self) -> bool;
    /// True if the store has to be notified of a Read in place before its data is taken.
    fn is_announced(&self) -> bool;
    /// True if a Read or Write has blocks that are marked as uncorrectable and so is more than a transfer. One load
    /// while none is.
    fn is_marked(&self, command: &TargetIoCommand) -> bool;
    /// True if a place has bytes of a range.
    fn holds(&self, place: Self::Place, range: &ByteRange) -> bool;
    /// Copies `bytes` to the place, beginning at its byte `from`.
    fn put(&self, place: Self::Place, from: u32, bytes: &[u8]);
    /// Prefetches data that is about to be sent.
    fn prefetch(&self, _place: Self::Place) {}
    /// Returns the epoch of a write that starts now; `None`: nothing is lost without a flush.
    fn epoch(&self) -> Option<Epoch>;
    /// Records a write of that epoch that is about to complete successfully.
    fn wrote(&self, began: Epoch);
}

/// Work of a store for a command.
pub enum StoreJob<'a, N, B> {
    /// An I/O command, with its buffer if it moves data.
    Execute {
        /// The command.
        command: TargetIoCommand,
        /// Namespace of the command.
        namespace: &'a N,
        /// Buffer, filled unless the command is a Read.
        buffer: Option<B>,
    },
    /// Compares, and writes if the data is equal, with exclusive access to the blocks. The outcome says how far it
    /// came.
    CompareAndWrite {
        /// The first command.
        compare: TargetIoCommand,
        /// The second one, of the same blocks.
        write: TargetIoCommand,
        /// Their namespace.
        namespace: &'a N,
        /// Data of the first command and of the second one.
        buffers: (B, B),
    },
    /// Notifies the store of a Read in place; it completes when the data may be taken.
    Announce {
        /// The namespace.
        namespace: &'a N,
        /// Offset from the start of the namespace, in bytes.
        offset: u64,
        /// Length in bytes.
        length: u32,
    },
    /// Queries the block status of a namespace, whatever queue the command arrived on. It fails if the namespace is
    /// gone or replaced.
    QueryBlockStatus {
        /// The query.
        wanted: LbaStatusQuery,
        /// Buffer for the result.
        buffer: Option<B>,
    },
    /// Flushes every namespace of the queue.
    FlushQueue,
    /// Flushes every namespace of the controller, which shuts down.
    FlushController,
}

/// Result of a command at its store.
#[derive(Debug)]
pub struct StoreOutcome<B> {
    /// Success, or the status of the failure.
    pub result: Result<(), Status>,
    /// Buffer that the command was started with.
    pub buffer: Option<B>,
    /// Number of source ranges copied before a Copy failed.
    pub copied: u16,
    /// Result of a Compare and Write.
    pub fused: Option<Box<FusedOutcome<B>>>,
}

/// Further result of a Compare and Write.
#[derive(Debug)]
pub struct FusedOutcome<B> {
    /// The compared data was equal: a failure is one of the write.
    pub compared: bool,
    /// Buffer of the other command.
    pub buffer: Option<B>,
}

impl<B> StoreOutcome<B> {
    /// Returns the result of a command that is neither Copy nor fused.
    #[inline]
    #[must_use]
    pub fn new(result: Result<(), Status>, buffer: Option<B>) -> Self {
        StoreOutcome { result, buffer, copied: 0, fused: None }
    }
}

/// Environment of a connection's commands: its queue pair, the buffers, the stores, the control plane.
pub trait Environment<N: LaneNamespace, B: Deref<Target = [u8]>> {
    /// Size of the longest buffer in bytes.
    const BUFFER_BYTES_MAX: u32;

    /// Returns the time of this turn.
    fn now(&self) -> Instant;
    /// Returns the connection's state, which decides on the commands that it may execute.
    fn session(&mut self) -> &mut TargetConnection;
    /// True if commands arrive in the order of submission: only then can two be fused.
    fn keeps_order(&mut self) -> bool;
    /// True if an exclusive operation has locked a range of the namespace that satisfies `is_it`. One load while none
    /// has.
    fn is_closed(&self, namespace: &N, is_it: impl Fn(&ByteRange) -> bool) -> bool;
    /// Returns the namespace `nsid`, if commands for it are executed.
    fn namespace(&mut self, nsid: u32) -> Option<Rc<N>>;
    /// Returns the status for commands to a namespace (or to all) that exists but is not accessible on this path.
    fn refusal(&self, nsid: u32) -> Option<Status>;

    /// Takes a buffer from the pool; `None`: none is free.
    fn take(&mut self, bytes: u32) -> Option<B>;
    /// Takes a buffer from a small reserve, for data that blocks the data behind it.
    fn take_reserved(&mut self, bytes: u32) -> Option<B>;
    /// Allocates a buffer beside the pool: a connection has one at most.
    fn make(&mut self, bytes: u32) -> B;
    /// Takes back a buffer of any origin.
    fn give(&mut self, buffer: B);

    /// Completes a command that returns no data.
    fn respond(&mut self, slot: u16, status: Status, result: u64);
    /// Completes a command with that many bytes of data.
    fn respond_with_data(&mut self, slot: u16, bytes: u32, result: u64);
    /// Requests the command's data from the host.
    fn request_data(&mut self, slot: u16, bytes: u32);
    /// Sets the command's class to that of its namespace.
    fn set_class(&mut self, slot: u16, class: Class);
    /// Makes the command's data be delivered in whole blocks only.
    fn deliver_whole(&mut self, slot: u16, block_bytes: u32);
    /// Returns the slot of a command that is not completed, and whether its data is still to arrive.
    fn unanswered(&mut self, cid: u16) -> Option<(u16, bool)>;
    /// True if data of the command in a slot is still to arrive.
    fn awaits_data(&mut self, slot: u16) -> bool;
    /// True if data is sent and received with a digest.
    fn has_data_digest(&self) -> bool;
    /// Sets the number of commands in a slow store.
    fn set_in_store(&mut self, commands: u32);
    /// Moves data that is to outlive its frame to where the host wants it.
    fn place(&mut self, payload: CommandPayload<'_, B>) -> CommandPayload<'static, B> {
        payload.without_frame()
    }

    /// Starts a command at a store; `None`: it calls [`CommandExecution::finish`](super::CommandExecution::finish) at the end.
    fn start(&mut self, slot: u16, job: StoreJob<'_, N, B>) -> Option<StoreOutcome<B>>;
    /// Cancels a command at a store. Returns true if the store will end it, aborted or not.
    fn cancel(&mut self, slot: u16) -> bool;

    /// Passes a reservation command, with its data, to the control plane ([`TargetControl::reserve`](crate::TargetControl::reserve)).
    /// [`CommandExecution::reserved`](super::CommandExecution::reserved) is called at its end.
    fn reserve(&mut self, slot: u16, sqe: &Sqe, data: &[u8]);

    /// Prepares a shutdown of the controller. Returns true if no command of its queues is in a store, or will be.
    fn quiesce(&mut self) -> bool;
    /// Reports that the controller shuts down and no command of this queue is in a store.
    fn quiesced(&mut self);
    /// Reports the flush of a shutdown. On success the host waits for nothing more; otherwise its writes may be lost.
    fn shut_down(&mut self, flushed: Result<(), Status>);
    /// Reports a command that failed, perhaps because its namespace has no capacity for more marks.
    fn marks_refused(&mut self, _sqe: &Sqe, _status: Status) {}
    /// Reports the result of the Abort with number `id`.
    fn aborted(&mut self, id: u32, aborted: bool);
}

//! Interface of a lane to the front on its reactor: requests in, completions out.

pub use roadtrain_host_proto::allocation::{Allocation, AllocationQuery};
pub use roadtrain_proto::policy::Class;
use roadtrain_proto::time::Instant;
use roadtrain_system::buffer::Buffer;
pub use roadtrain_system::ring::UringCommand;
use roadtrain_wire::status::Status;
use std::os::fd::RawFd;

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoOp {
    /// Fill the buffer from the namespace.
    Read,
    /// Write the buffer.
    Write,
    /// Make all acknowledged writes stable.
    Flush,
    /// Deallocate the blocks (Dataset Management).
    Discard,
    /// Set the blocks to zero.
    WriteZeroes {
        /// The target may deallocate them.
        deallocate: bool,
    },
    /// Mark the blocks: they fail to be read with [`Status::UNRECOVERED_READ_ERROR`] until they are written.
    WriteUncorrectable,
    /// Read the blocks within the controller, without a transfer; succeeds if they are readable.
    Verify,
    /// Copy blocks within the namespace to `slba`. The buffer is a list of source ranges, each of 32 bytes (format 0);
    /// `blocks` is their number.
    Copy,
    /// Compare the blocks with the buffer.
    Compare,
    /// Compare the blocks with the first half of the buffer, and if they match write its second half to them,
    /// atomically. Needs TCP, and a controller that supports it (FUSES). It is never repeated: [`Status::HOST_ABORTED`]
    /// means that the connection was lost before the completion, and that the outcome is unknown. It is not executed
    /// later, unless it fails by the controller-loss timeout.
    CompareAndWrite,
}

/// Request. Its buffer moves with it and returns in the [`IoCompletion`].
#[derive(Debug)]
pub struct IoRequest {
    /// Operation.
    pub op: IoOp,
    /// Namespace.
    pub nsid: u32,
    /// Starting logical block.
    pub slba: u64,
    /// Logical blocks: 1 to 65,536 (Discard: any; Verify: up to the maximum of a read); 0 for Flush. Copy: number of
    /// source ranges.
    pub blocks: u32,
    /// Force unit access: completed once on stable storage.
    pub fua: bool,
    /// Sent without waiting for a doorbell.
    pub urgent: bool,
    /// Class of the request; [`Class::Normal`]: the lane's class.
    pub class: Class,
    /// Exactly the bytes of the blocks for Read, Write, Compare; twice as many for CompareAndWrite; the list of a Copy;
    /// else `None`.
    pub buffer: Option<Buffer>,
    /// Token of the caller, returned in the completion.
    pub token: u64,
}

/// Completion of a request. Each request that was taken has exactly one.
#[derive(Debug)]
pub struct IoCompletion {
    /// Token of the request.
    pub token: u64,
    /// Operation of the request.
    pub op: IoOp,
    /// Final status.
    pub status: Status,
    /// Buffer of the request.
    pub buffer: Option<Buffer>,
    /// Latency from submission to completion, in nanoseconds.
    pub latency_ns: u64,
}

/// Index of a lane of this reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneId(pub usize);

/// Event that a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Reading (or accepting).
    Readable,
    /// Writing.
    Writable,
}

/// One turn of the reactor, for its front.
pub trait FrontTurn {
    /// Returns the time of this turn.
    fn now(&self) -> Instant;
    /// Returns the next completion.
    fn next_completion(&mut self) -> Option<IoCompletion>;
    /// Returns the number of requests that the lane takes now.
    fn room(&self, lane: LaneId) -> u32;
    /// Submits a request to the lane.
    ///
    /// # Errors
    /// Returns the request if the lane has no room: retry in a later turn.
    fn submit(&mut self, lane: LaneId, request: IoRequest) -> Result<(), IoRequest>;
    /// Watches `fd`, once: when it is ready, [`FrontTurn::next_ready`] returns `key`. The caller keeps `fd` open until then,
    /// or calls [`FrontTurn::unwatch`] before it closes it.
    fn watch(&mut self, fd: RawFd, interest: Interest, key: u64);
    /// Removes all watches of `key`.
    fn unwatch(&mut self, key: u64);
    /// Returns the next key whose descriptor is ready.
    fn next_ready(&mut self) -> Option<u64>;
    /// Submits a command to its driver at the end of the turn. When the driver has completed it, [`FrontTurn::next_command`]
    /// returns `key`, of which 56 bits count.
    ///
    /// # Safety
    /// The memory that the command refers to, and all memory that the driver uses for it, stays valid until its
    /// completion. A front that still has commands when it calls [`FrontTurn::stop`] has made their driver end them; it is
    /// dropped when all have completed, or never.
    unsafe fn command(&mut self, command: &UringCommand, key: u64);
    /// Returns the next completed command: its key, and the driver's result (a negative errno for errors; `EOPNOTSUPP`
    /// also if the kernel's rings take no commands).
    fn next_command(&mut self) -> Option<(u64, i32)>;
    /// Queries the target for the allocation of blocks: [`FrontTurn::next_allocation`] returns the result with `key`, once. Not
    /// for the data path: the target replies on its admin queue, one query after the other. False if no path can be
    /// queried now.
    fn query_allocation(&mut self, _query: AllocationQuery, _key: u64) -> bool {
        false
    }
    /// Returns the next result of [`FrontTurn::query_allocation`]: its key, and the allocated ranges; `None`: unknown, so all blocks
    /// may be allocated.
    fn next_allocation(&mut self) -> Option<(u64, Option<Allocation>)> {
        None
    }
    /// Ends the reactor after this turn.
    fn stop(&mut self);
    /// True if the reactor is to end: finish all requests in flight, then call [`FrontTurn::stop`].
    fn stopping(&self) -> bool;
}

/// Program that runs on a lane's own reactor (inline mode): a load generator, an NBD server.
pub trait Front {
    /// Runs once a turn; takes completions and ready descriptors, submits requests; never blocks.
    fn turn(&mut self, turn: &mut dyn FrontTurn);
    /// Returns the time of the next call at the latest.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// True if it has requests since its last turn. Only a front of a reactor that is the guest of another one gets
    /// requests between its turns: that reactor sends them at the end of its own turn.
    fn has_requests(&self) -> bool {
        false
    }
}

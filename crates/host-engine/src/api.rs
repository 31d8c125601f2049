//! What a lane offers to whatever runs on its reactor: requests in, completions out.

pub use roadtrain_host_proto::allocation::{Allocation, AllocationQuery};
pub use roadtrain_proto::policy::Class;
use roadtrain_proto::time::Instant;
use roadtrain_system::buffer::Buffer;
pub use roadtrain_system::ring::RingCommand;
use roadtrain_wire::status::Status;
use std::os::fd::RawFd;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fill the buffer from the namespace.
    Read,
    /// Write the buffer.
    Write,
    /// Put everything acknowledged on stable storage.
    Flush,
    /// Tell that the blocks are not needed (Dataset Management, deallocate).
    Discard,
    /// Set the blocks to zero.
    WriteZeroes {
        /// The target may deallocate them.
        deallocate: bool,
    },
    /// Mark the blocks: they fail to be read with [`Status::UNRECOVERED_READ_ERROR`] until they are written.
    WriteUncorrectable,
    /// Read the blocks at the controller, and tell only whether that was possible.
    Verify,
    /// Copy blocks within the namespace to `slba`. The buffer is a list of source ranges, each of 32 octets (format 0);
    /// `blocks` is how many there are.
    Copy,
    /// Compare the blocks with the buffer.
    Compare,
    /// Compare the blocks with the first half of the buffer, and if they are so write its second half to them; nobody
    /// else changes them in between. Over TCP, to controllers that support it (FUSES). It is never carried out twice:
    /// [`Status::HOST_ABORTED`] says that a connection was lost before the answer, and that nobody knows whether the
    /// blocks were written; nothing of it is carried out any more, unless it fails by the controller-loss timeout.
    CompareAndWrite,
}

/// One request. Its buffer travels with it and comes back in the [`Completion`].
#[derive(Debug)]
pub struct Request {
    /// What to do.
    pub op: Op,
    /// Namespace.
    pub nsid: u32,
    /// Starting logical block.
    pub slba: u64,
    /// Logical blocks: 1 to 65,536 (Discard: any; Verify: as many as a read may have); 0 for Flush. Of Copy source ranges.
    pub blocks: u32,
    /// Force unit access: answered when on stable storage.
    pub fua: bool,
    /// Never wait for a doorbell.
    pub urgent: bool,
    /// How it is treated beside others; [`Class::Normal`]: as the lane is.
    pub class: Class,
    /// Exactly the octets of the blocks for Read, Write, Compare; twice as many for CompareAndWrite; the list of a Copy; else `None`.
    pub buffer: Option<Buffer>,
    /// The caller's own mark.
    pub token: u64,
}

/// A request's end. There is exactly one for every request taken.
#[derive(Debug)]
pub struct Completion {
    /// The request's.
    pub token: u64,
    /// What it did.
    pub op: Op,
    /// Success, or why not.
    pub status: Status,
    /// The request's buffer.
    pub buffer: Option<Buffer>,
    /// From submission to completion.
    pub latency_ns: u64,
}

/// A lane of this reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaneId(pub usize);

/// What a watched descriptor is to become ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Reading (or accepting).
    Readable,
    /// Writing.
    Writable,
}

/// One turn of the reactor, as its front sees it.
pub trait Turn {
    /// The time of this turn.
    fn now(&self) -> Instant;
    /// The next completion.
    fn next_completion(&mut self) -> Option<Completion>;
    /// Requests the lane takes right now.
    fn room(&self, lane: LaneId) -> u32;
    /// Hands a request to the lane.
    ///
    /// # Errors
    /// The request, when the lane has no room: try again in a later turn.
    fn submit(&mut self, lane: LaneId, request: Request) -> Result<(), Request>;
    /// Watches `fd`, once: when it is ready, `key` comes out of [`Turn::next_ready`]. The caller keeps
    /// `fd` open until then, or calls [`Turn::unwatch`] before closing it.
    fn watch(&mut self, fd: RawFd, interest: Interest, key: u64);
    /// Forgets every watch of `key`.
    fn unwatch(&mut self, key: u64);
    /// The next watch that fired.
    fn next_ready(&mut self) -> Option<u64>;
    /// Hands a command to its driver, with the turn's submission. When the driver has answered, `key`,
    /// of which 56 bits count, comes out of [`Turn::next_command`].
    ///
    /// # Safety
    /// What the command points to, and all memory that the driver uses because of it, stays valid until
    /// the answer has come. A front that still has commands when it calls [`Turn::stop`] has made their
    /// driver end them; it is dropped when all have come back, or never.
    unsafe fn command(&mut self, command: &RingCommand, key: u64);
    /// The next answer to a command: its key, and what the driver said (a negative errno for errors;
    /// `EOPNOTSUPP` also where the kernel's rings take no commands).
    fn next_command(&mut self) -> Option<(u64, i32)>;
    /// Asks the target which blocks are allocated: the answer comes out of [`Turn::next_look_up`] with `key`, once. Not
    /// for the data path: the target answers on its admin queue, one query after the other. `false`: nobody can be asked
    /// now.
    fn look_up(&mut self, _query: AllocationQuery, _key: u64) -> bool {
        false
    }
    /// The next answer to [`Turn::look_up`]: its key, and what is allocated; `None`: nobody says, so all may be.
    fn next_look_up(&mut self) -> Option<(u64, Option<Allocation>)> {
        None
    }
    /// Ends the reactor after this turn.
    fn stop(&mut self);
    /// Whether the reactor has been asked to end: finish what is in flight, then call [`Turn::stop`].
    fn stopping(&self) -> bool;
}

/// What runs on a lane's own reactor (inline mode): a load generator, an NBD server.
pub trait Front {
    /// Called once a turn; takes completions and ready descriptors, submits; never blocks.
    fn turn(&mut self, turn: &mut dyn Turn);
    /// When to be called at the latest.
    fn deadline(&self) -> Option<Instant> {
        None
    }
}

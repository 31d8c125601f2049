//! What commands are executed with.

use crate::LookUp;
use crate::io::{Geometry, IoCommand};
use crate::reservations::Group;
use crate::session::Session;
use crate::stability::Epoch;
use core::ops::Deref;
use roadtrain_proto::op::ByteRange;
use roadtrain_proto::policy::Class;
use roadtrain_proto::time::Instant;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::rc::Rc;

/// Data from the host, when its command has come.
#[derive(Debug)]
pub enum Payload<'a, B> {
    /// With the host, until it is asked for.
    Asked,
    /// Behind the command in its capsule: so many octets.
    Follows(u32),
    /// Here, where the host has placed it.
    Here(B),
    /// All of it in the frame that brought the command.
    InFrame {
        /// The data.
        octets: &'a [u8],
        /// Where it belongs in the pages that the host writes to.
        place: u64,
    },
}

impl<B: Deref<Target = [u8]>> Payload<'_, B> {
    /// What of it outlives the frame that brought it.
    pub fn without_frame(self) -> Payload<'static, B> {
        match self {
            Payload::Follows(bytes) => Payload::Follows(bytes),
            Payload::Here(buffer) => Payload::Here(buffer),
            Payload::Asked | Payload::InFrame { .. } => Payload::Asked,
        }
    }

    /// Octets that came, or come, along with the command.
    #[must_use]
    pub fn bytes(&self) -> u32 {
        match self {
            Payload::Asked => 0,
            Payload::Follows(bytes) => *bytes,
            Payload::Here(buffer) => buffer.len() as u32,
            Payload::InFrame { octets, .. } => octets.len() as u32,
        }
    }
}

/// Where a Read takes its data from, or a Write puts it, in the store's own memory.
pub trait Place: Copy {
    /// Octets of the command.
    fn length(&self) -> u32;
}

/// A namespace, as a connection sees it. It stays as long as a command uses it.
pub trait Namespace {
    /// A place in the store's own memory.
    type Place: Place;

    /// What commands are checked against.
    fn geometry(&self) -> &Geometry;
    /// Of commands that do not say theirs.
    fn class(&self) -> Option<Class>;
    /// The place of a Read or Write, if the store lends its memory for that.
    fn in_place(&self, command: &IoCommand) -> Option<Self::Place>;
    /// Whether a reservation of another host refuses commands of that group. One load for each command.
    fn refuses(&self, group: Group) -> bool;
    /// Whether its commands may have to wait, so that there are not too many. One load for each command.
    fn is_limited(&self) -> bool;
    /// When a command may begin that comes now. Its time is taken.
    fn begins(&self, now: Instant, command: &IoCommand) -> Instant;
    /// A command that has waited for its time does not begin: its time is given back.
    fn give_back(&self, command: &IoCommand);
    /// Whether its commands are limited by what limits those of `other`.
    fn is_limited_as(&self, other: &Self) -> bool;
    /// Whether the store hears of a Read in place before its data is taken.
    fn is_announced(&self) -> bool;
    /// Whether a Read or Write has blocks that are marked as uncorrectable, so that it is more than moving data. One load
    /// while none is.
    fn is_marked(&self, command: &IoCommand) -> bool;
    /// True if a place has bytes of a range.
    fn holds(&self, place: Self::Place, range: &ByteRange) -> bool;
    /// Copies `octets` to the place, from its octet `from` on.
    fn put(&self, place: Self::Place, from: u32, octets: &[u8]);
    /// What is there is about to be sent.
    fn prefetch(&self, _place: Self::Place) {}
    /// In which a write that starts now begins; `None`: nothing is lost without a flush.
    fn epoch(&self) -> Option<Epoch>;
    /// A write that began in that epoch is about to be answered with success.
    fn wrote(&self, began: Epoch);
}

/// What a store is to do for a command.
pub enum Job<'a, N, B> {
    /// An I/O command, with its buffer if it moves data.
    Execute {
        /// The command.
        command: IoCommand,
        /// Its namespace.
        namespace: &'a N,
        /// Filled, unless it is a Read.
        buffer: Option<B>,
    },
    /// Compares, and writes if that went well, alone with the blocks. Its outcome says how far it came.
    CompareAndWrite {
        /// The first command.
        compare: IoCommand,
        /// The second one, of the same blocks.
        write: IoCommand,
        /// Their namespace.
        namespace: &'a N,
        /// Data of the first command and of the second one.
        buffers: (B, B),
    },
    /// Says when the data of a Read may be taken from its place.
    Announce {
        /// The namespace.
        namespace: &'a N,
        /// Octets from its start.
        offset: u64,
        /// Octets.
        length: u32,
    },
    /// Has the store of a namespace looked at, whatever queue the command came by. It fails where the namespace is not
    /// there any more, or is another one.
    LookUp {
        /// What is to be known.
        wanted: LookUp,
        /// Filled then.
        buffer: Option<B>,
    },
    /// Flushes every namespace of the queue.
    FlushQueue,
    /// Flushes every namespace of the controller, which shuts down.
    FlushController,
}

/// What has become of a command at its store.
#[derive(Debug)]
pub struct Outcome<B> {
    /// Whether it went well.
    pub result: Result<(), Status>,
    /// The buffer that it was started with.
    pub buffer: Option<B>,
    /// Of a Copy that has failed: source ranges that were copied before.
    pub copied: u16,
    /// Of a Compare and Write.
    pub fused: Option<Box<FusedOutcome<B>>>,
}

/// What else there is to say of a Compare and Write.
#[derive(Debug)]
pub struct FusedOutcome<B> {
    /// The data was as expected: what has failed, if anything, is the write.
    pub compared: bool,
    /// The other command's buffer.
    pub buffer: Option<B>,
}

impl<B> Outcome<B> {
    /// Of one command.
    #[inline]
    #[must_use]
    pub fn new(result: Result<(), Status>, buffer: Option<B>) -> Self {
        Outcome { result, buffer, copied: 0, fused: None }
    }
}

/// What a connection's commands are executed with: its queue pair, the buffers, the stores, the control plane.
pub trait Environment<N: Namespace, B: Deref<Target = [u8]>> {
    /// The longest buffer.
    const BUFFER_BYTES_MAX: u32;

    /// The time of this turn.
    fn now(&self) -> Instant;
    /// What the connection may do.
    fn session(&mut self) -> &mut Session;
    /// Whether commands come in the order in which the host has submitted them: only then can two be fused.
    fn keeps_order(&mut self) -> bool;
    /// True if one operation has blocks of the namespace to itself, in a range that `is_it`. One load while none has.
    fn is_closed(&self, namespace: &N, is_it: impl Fn(&ByteRange) -> bool) -> bool;
    /// The namespace of that number, if commands for it are executed.
    fn namespace(&mut self, nsid: u32) -> Option<Rc<N>>;
    /// What commands for a namespace, or for all of them, are answered that is there but not in reach here.
    fn refusal(&self, nsid: u32) -> Option<Status>;

    /// A buffer; `None`: there is none until one was given back.
    fn take(&mut self, bytes: u32) -> Option<B>;
    /// A buffer of a small reserve, for data that has to make way for what comes behind it.
    fn take_reserved(&mut self, bytes: u32) -> Option<B>;
    /// A buffer beside those: a connection has one at most.
    fn make(&mut self, bytes: u32) -> B;
    /// Takes a buffer back, wherever it is from.
    fn give(&mut self, buffer: B);

    /// Answers a command that returns no data.
    fn respond(&mut self, slot: u16, status: Status, result: u64);
    /// Answers a command with that many octets of its data.
    fn respond_with_data(&mut self, slot: u16, bytes: u32, result: u64);
    /// Asks the host for the command's data.
    fn request_data(&mut self, slot: u16, bytes: u32);
    /// Class of the command's namespace.
    fn set_class(&mut self, slot: u16, class: Class);
    /// Data of the command is delivered in whole blocks only.
    fn deliver_whole(&mut self, slot: u16, block_bytes: u32);
    /// The slot of a command that was not answered, and whether its data is still to come.
    fn unanswered(&mut self, cid: u16) -> Option<(u16, bool)>;
    /// Whether data of the command in a slot is still to come.
    fn awaits_data(&mut self, slot: u16) -> bool;
    /// Whether data is sent and received with a digest.
    fn has_data_digest(&self) -> bool;
    /// So many commands are in a store that takes its time.
    fn set_in_store(&mut self, commands: u32);
    /// Data that is to stay longer than its frame goes where the host wants it.
    fn place(&mut self, payload: Payload<'_, B>) -> Payload<'static, B> {
        payload.without_frame()
    }

    /// Starts a command at a store; `None`: [`Execution::finish`](super::Execution::finish) is called when it has
    /// ended.
    fn start(&mut self, slot: u16, job: Job<'_, N, B>) -> Option<Outcome<B>>;
    /// Asks a store to end a command: `true` when it will, aborted or otherwise.
    fn cancel(&mut self, slot: u16) -> bool;

    /// Hands a command about reservations, with its data, to the control plane
    /// ([`Target::reserve`](crate::Target::reserve)); [`Execution::reserved`](super::Execution::reserved) is called
    /// when it has ended.
    fn reserve(&mut self, slot: u16, sqe: &Sqe, data: &[u8]);

    /// The controller is to shut down. Whether no command of its queues is in a store any more, nor will be.
    fn quiesce(&mut self) -> bool;
    /// The controller shuts down, and no command of this queue is in a store any more.
    fn quiesced(&mut self);
    /// Everything was flushed for a shutdown. If that went well the host waits for nothing any more; else what it has
    /// written may be lost.
    fn shut_down(&mut self, flushed: Result<(), Status>);
    /// A command was not carried out, perhaps because its namespace has no room for more marks.
    fn marks_refused(&mut self, _sqe: &Sqe, _status: Status) {}
    /// What has become of the command of an Abort, which has an `id`.
    fn aborted(&mut self, id: u32, aborted: bool);
}

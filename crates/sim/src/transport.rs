//! What carries lanes: TCP connections over [`crate::network`], or links of [`crate::ether`]. Hosts and the target are
//! the same over both.

use crate::commands::Ends;
use crate::disk::SimDisk;
use crate::ends::{Arrival, ConnId, End, Lost};
use crate::execution::Execution;
use crate::plan::Plan;
use crate::pool::{Buffer, Pool};
use crate::request::Request;
use crate::rng::Rng;
use crate::summary::Summary;
use roadtrain_ether_proto::target_queue::Asked;
use roadtrain_host_proto::qpair::Data;
use roadtrain_host_proto::requests::Queue;
use roadtrain_proto::policy::{Class, PolicyConfig};
use roadtrain_proto::security::{FrameSecret, SecuredAs};
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::execution::Payload;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;

/// A command that has completed.
pub struct Completed {
    /// Its slot.
    pub slot: u16,
    /// Its completion.
    pub cqe: Cqe,
    /// All its data has moved.
    pub data_intact: bool,
    /// Its buffer.
    pub data: Vec<u8>,
}

/// What a target's connection has received.
pub enum Event {
    /// It is set up.
    Initialized,
    /// From now on its frames are sealed.
    Sealed,
    /// A command.
    Command(u16, Sqe, Payload<'static, Buffer>),
    /// The host cuts its data inside of blocks, from that octet on.
    SplitBlock(u16, u32),
    /// All data of a command, as it was sent or not.
    DataDone(u16, bool),
}

/// A network.
pub trait Transport: Sized {
    /// A host's end of a connection.
    type Host: HostEnd<Network = Self>;
    /// The target's end.
    type Target: TargetEnd<Network = Self>;

    /// The plan of a seed.
    fn plan(rng: &mut Rng) -> Plan;
    /// The network of a run.
    fn new(plan: &Plan, rng: Rng) -> Self;
    /// When something is due at an end.
    fn next_at(&self, end: End) -> Option<Instant>;
    /// An end is about to have a turn: it takes what has arrived.
    fn begin_turn(&mut self, now: Instant, end: End);
    /// An end does nothing before.
    fn stalled_until(&self, _end: End) -> Instant {
        Instant(0)
    }
    /// From now on the network does no harm.
    fn behave(&mut self, _now: Instant) {}
    /// The target's process is another one, and not there before.
    fn silence(&mut self, _until: Instant) {}
    /// Whether the host still has the connection.
    fn has_host(&self, conn: ConnId) -> bool;
    /// What was sent, where silence can be told from it.
    fn count(&self, _summary: &mut Summary) {}
    /// The target that an address leads to now.
    fn route(&self, _address: u8) -> u8 {
        0
    }
    /// A target stands still until then: what is sent to it arrives, and is not taken.
    fn pause(&mut self, _target: u8, _until: Instant) {}
    /// A host connects a queue.
    fn open(&mut self, now: Instant, plan: &Plan, queue: Opening, rng: &mut Rng) -> Self::Host;
    /// The next connection that has come to a target.
    fn accept(&mut self, now: Instant, target: u8) -> Option<ConnId>;
    /// Its end at the target.
    fn target_end(&mut self, now: Instant, id: ConnId, plan: &Plan, rng: &mut Rng) -> Self::Target;
    /// Names that a connection's key stands for, if it has TLS.
    fn secured_as(&self, _id: ConnId) -> Option<SecuredAs> {
        None
    }
    /// What has arrived at `end`.
    fn receive(&mut self, now: Instant, id: ConnId, end: End) -> Option<Arrival>;
    /// `end` is done with it; with `orderly` all it has sent arrives.
    fn close(&mut self, now: Instant, id: ConnId, end: End, orderly: bool);
    /// Whether the end of the connection has arrived at `end`, maybe behind what was not read yet.
    fn is_closed(&self, now: Instant, id: ConnId, end: End) -> bool;
    /// Commands may come over a host's connection: what it leaves behind must end before the host makes others.
    fn keep(&mut self, _hostid: [u8; 16], _end: &Self::Host) {}
    /// A host's process is gone, and what it knew.
    fn forget(&mut self, _hostid: [u8; 16]) {}
    /// By what the target sees that the host has lost a connection; `None`: it asks.
    fn proof(conn: ConnId) -> Option<ConnId> {
        Some(conn)
    }
    /// From now on `end` reads what arrives, or does not.
    fn listen(&mut self, _id: ConnId, _end: End, _listens: bool) {}
}

impl<T: Transport> Ends for T {
    fn is_lost(&self, now: Instant, connection: ConnId) -> bool {
        self.is_closed(now, connection, End::Target)
    }
}

/// A queue that a host connects.
#[derive(Clone, Copy)]
pub struct Opening {
    /// Whose it is.
    pub hostid: [u8; 16],
    /// Its number.
    pub qid: u16,
    /// Its entries.
    pub entries: u16,
    /// The target that it leads to.
    pub target: u8,
}

/// A host's end of a connection. Its commands' buffers are its own while they are under way.
pub trait HostEnd: Queue<Request> {
    /// What it is a connection of.
    type Network;

    /// Most octets of a command's data, once the connection takes commands.
    fn opened(&self) -> Option<u32>;
    /// How its commands are batched from now on.
    fn set_policy(&mut self, policy: PolicyConfig);
    /// The identifier of a command.
    fn cid(&self, slot: u16) -> u16;
    /// When something is due.
    fn deadline(&mut self) -> Option<Instant>;
    /// Submits a command with its buffer; `None` when the queue is full.
    fn run(&mut self, now: Instant, sqe: &Sqe, data: Data, buffer: Vec<u8>) -> Option<u16>;
    /// The buffer of a slot whose command will not complete any more.
    fn take_buffer(&mut self, slot: u16) -> Vec<u8>;
    /// Adds to `completed` what has completed; `Err` when the connection is over.
    fn receive(
        &mut self,
        now: Instant,
        network: &mut Self::Network,
        completed: &mut Vec<Completed>,
    ) -> Result<(), Lost>;
    /// From now on its frames are sealed.
    fn seal(&mut self, _secret: &FrameSecret) {
        unreachable!("nobody is to");
    }
    /// The turn is over: sends what may be sent.
    fn end_turn(&mut self, now: Instant, network: &mut Self::Network);
    /// Ends the connection.
    fn close(&mut self, now: Instant, network: &mut Self::Network, orderly: bool);
    /// Its process dies.
    fn kill(&mut self, now: Instant, network: &mut Self::Network) {
        self.close(now, network, false);
    }
}

/// What data is sent from and given back to.
pub struct Hold<'a> {
    /// The commands.
    pub execution: &'a mut Execution,
    /// The buffers.
    pub pool: &'a mut Pool,
    /// Storage that may lend its memory.
    pub disk: &'a SimDisk,
}

/// The target's end of a connection.
pub trait TargetEnd {
    /// What it is a connection of.
    type Network;

    /// Takes what has arrived; `Err` when the connection is over.
    fn take(&mut self, now: Instant, arrival: Arrival, hold: &mut Hold<'_>) -> Result<(), Lost>;
    /// What that means, one after the other.
    fn poll(&mut self, now: Instant, hold: &mut Hold<'_>) -> Result<Option<Event>, Lost>;
    /// The turn is over: sends what may be sent.
    fn end_turn(
        &mut self,
        now: Instant,
        id: ConnId,
        network: &mut Self::Network,
        hold: &mut Hold<'_>,
    );
    /// The target ends it; with `orderly` a last word may leave.
    fn close(
        &mut self,
        now: Instant,
        id: ConnId,
        network: &mut Self::Network,
        hold: &mut Hold<'_>,
        orderly: bool,
    );
    /// Whether it has ended by itself: told once.
    fn ends(&mut self) -> bool {
        false
    }
    /// Nothing more is sent before the host takes something.
    fn is_blocked(&self) -> bool;
    /// When something is due.
    fn deadline(&mut self) -> Option<Instant>;
    /// The host connects again: does it still have this connection?
    fn ask_host(&mut self, _now: Instant) -> Asked {
        Asked::Harmless
    }
    /// Whether it has said so since it was asked: told once.
    fn has_host_answered(&mut self) -> bool {
        false
    }
    /// Whether it has not said so in time.
    fn is_host_gone(&self, _now: Instant) -> bool {
        false
    }
    /// Commands that were not answered.
    fn in_flight(&self) -> u32;
    /// The slot of a command that was not answered.
    fn slot_of(&mut self, cid: u16) -> Option<u16>;
    /// The slot of an Asynchronous Event Request that was not answered.
    fn event_request_of(&mut self, cid: u16) -> Option<u16>;
    /// Connect has succeeded.
    fn set_connected(&mut self, qid: u16, entries: u16, flow: bool, class: Class);
    /// Answers a command.
    fn respond(&mut self, now: Instant, slot: u16, status: Status, result: u64);
    /// Answers a command with data.
    fn respond_with_data(&mut self, now: Instant, slot: u16, bytes: u32, result: u64);
    /// Asks for a command's data.
    fn request_data(&mut self, now: Instant, slot: u16, bytes: u32);
    /// Class of a command's namespace.
    fn set_class(&mut self, slot: u16, class: Class);
    /// A command's data is delivered in whole blocks only.
    fn deliver_whole(&mut self, _slot: u16, _block_bytes: u32) {}
    /// The slot of a command that was not answered, and whether its data is still to come.
    fn unanswered(&mut self, cid: u16) -> Option<(u16, bool)>;
    /// Whether data of the command in a slot is still to come.
    fn awaits_data(&mut self, _slot: u16) -> bool {
        false
    }
    /// Whether commands come in the order in which they were submitted.
    fn keeps_order(&self) -> bool {
        false
    }
    /// Whether data is in place only when its digest is right.
    fn has_data_digest(&self) -> bool {
        false
    }
    /// From now on its frames may be sealed with this.
    fn seal(&mut self, _secret: &FrameSecret) {}
    /// So many commands are at the disk.
    fn set_in_store(&mut self, commands: u32);
}

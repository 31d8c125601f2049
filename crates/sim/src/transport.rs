//! Networks below lanes: TCP connections over [`crate::network`], or links of [`crate::ether`]. Hosts and the target
//! are the same over both.

use crate::commands::ConnectionLiveness;
use crate::disk::SimDisk;
use crate::ends::{ConnEnd, ConnId, ConnectionArrival, ConnectionLost};
use crate::execution::SimExecution;
use crate::plan::SimPlan;
use crate::pool::{SimBuffer, SimPool};
use crate::request::LoadRequest;
use crate::rng::SimRng;
use crate::summary::Summary;
use roadtrain_ether_proto::target_queue::HostProbe;
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_host_proto::requests::RequestQueue;
use roadtrain_proto::policy::{Class, PolicyConfig};
use roadtrain_proto::security::{FrameSecret, SecuredAs};
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::execution::CommandPayload;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;

/// A completed command.
pub struct CompletedCommand {
    /// Its slot.
    pub slot: u16,
    /// Its completion.
    pub cqe: Cqe,
    /// True if all its data was transferred intact.
    pub data_intact: bool,
    /// Its buffer.
    pub data: Vec<u8>,
}

/// Event of a target's connection.
pub enum TargetEndEvent {
    /// The connection is set up.
    Initialized,
    /// Frames are sealed from now on.
    Sealed,
    /// A command has arrived.
    Command(u16, Sqe, CommandPayload<'static, SimBuffer>),
    /// The host splits a block of its data at that byte.
    SplitBlock(u16, u32),
    /// All data of a command has arrived, intact or not.
    DataDone(u16, bool),
}

/// A network.
pub trait SimTransport: Sized {
    /// Host end of a connection.
    type Host: SimHostEnd<Network = Self>;
    /// Target end of a connection.
    type Target: SimTargetEnd<Network = Self>;

    /// Returns the plan of a seed.
    fn plan(rng: &mut SimRng) -> SimPlan;
    /// Makes the network of a run.
    fn new(plan: &SimPlan, rng: SimRng) -> Self;
    /// Returns the time of the next event at an end.
    fn next_at(&self, end: ConnEnd) -> Option<Instant>;
    /// Begins a turn of an end: it takes arrivals.
    fn begin_turn(&mut self, now: Instant, end: ConnEnd);
    /// Returns the time before which an end is stalled.
    fn stalled_until(&self, _end: ConnEnd) -> Instant {
        Instant(0)
    }
    /// Stops all impairments.
    fn behave(&mut self, _now: Instant) {}
    /// Replaces the target's process, which is silent until the given time.
    fn silence(&mut self, _until: Instant) {}
    /// True if the host still has the connection.
    fn has_host(&self, conn: ConnId) -> bool;
    /// Adds its counters to the summary.
    fn count(&self, _summary: &mut Summary) {}
    /// Returns the target of an address at present.
    fn route(&self, _address: u8) -> u8 {
        0
    }
    /// Pauses a target until the given time: data sent to it arrives, but is not taken.
    fn pause(&mut self, _target: u8, _until: Instant) {}
    /// Opens the connection of a host's queue.
    fn open(
        &mut self,
        now: Instant,
        plan: &SimPlan,
        queue: QueueOpening,
        rng: &mut SimRng,
    ) -> Self::Host;
    /// Accepts the next connection of a target.
    fn accept(&mut self, now: Instant, target: u8) -> Option<ConnId>;
    /// Makes the target end of a connection.
    fn target_end(
        &mut self,
        now: Instant,
        id: ConnId,
        plan: &SimPlan,
        rng: &mut SimRng,
    ) -> Self::Target;
    /// Returns the names that a connection's key stands for, if it has TLS.
    fn secured_as(&self, _id: ConnId) -> Option<SecuredAs> {
        None
    }
    /// Takes the next arrival at `end`.
    fn receive(&mut self, now: Instant, id: ConnId, end: ConnEnd) -> Option<ConnectionArrival>;
    /// Closes the connection at `end`; with `orderly` all data sent arrives.
    fn close(&mut self, now: Instant, id: ConnId, end: ConnEnd, orderly: bool);
    /// True if the end of the connection has arrived at `end`, maybe behind unread data.
    fn is_closed(&self, now: Instant, id: ConnId, end: ConnEnd) -> bool;
    /// Records a host's connection that may carry commands: it must be ended before the host makes new ones.
    fn keep(&mut self, _hostid: [u8; 16], _end: &Self::Host) {}
    /// Drops the state of a host process that has ended.
    fn forget(&mut self, _hostid: [u8; 16]) {}
    /// Returns the connection whose end proves to the target that the host has lost it; `None`: the target queries the
    /// host.
    fn proof(conn: ConnId) -> Option<ConnId> {
        Some(conn)
    }
    /// Starts or stops reading at `end`.
    fn listen(&mut self, _id: ConnId, _end: ConnEnd, _listens: bool) {}
}

impl<T: SimTransport> ConnectionLiveness for T {
    fn is_lost(&self, now: Instant, connection: ConnId) -> bool {
        self.is_closed(now, connection, ConnEnd::Target)
    }
}

/// Parameters of a queue that a host connects.
#[derive(Clone, Copy)]
pub struct QueueOpening {
    /// Host identifier.
    pub hostid: [u8; 16],
    /// Queue identifier.
    pub qid: u16,
    /// Number of entries.
    pub entries: u16,
    /// Target of the connection.
    pub target: u8,
}

/// Host end of a connection. It owns the buffers of its commands while they are in flight.
pub trait SimHostEnd: RequestQueue<LoadRequest> {
    /// Network of the connection.
    type Network;

    /// Returns the most data bytes of a command, once the connection takes commands.
    fn opened(&self) -> Option<u32>;
    /// Sets the batching policy of its commands.
    fn set_policy(&mut self, policy: PolicyConfig);
    /// Returns the identifier of a command.
    fn cid(&self, slot: u16) -> u16;
    /// Returns the time of its next event.
    fn deadline(&mut self) -> Option<Instant>;
    /// Submits a command with its buffer; `None` when the queue is full.
    fn run(
        &mut self,
        now: Instant,
        sqe: &Sqe,
        data: CommandTransfer,
        buffer: Vec<u8>,
    ) -> Option<u16>;
    /// Takes the buffer of a slot whose command will not complete any more.
    fn take_buffer(&mut self, slot: u16) -> Vec<u8>;
    /// Receives, and adds completed commands to `completed`; `Err` when the connection has ended.
    fn receive(
        &mut self,
        now: Instant,
        network: &mut Self::Network,
        completed: &mut Vec<CompletedCommand>,
    ) -> Result<(), ConnectionLost>;
    /// Seals its frames from now on.
    fn seal(&mut self, _secret: &FrameSecret) {
        unreachable!("this network never seals");
    }
    /// Ends the turn: sends what may be sent.
    fn end_turn(&mut self, now: Instant, network: &mut Self::Network);
    /// Closes the connection.
    fn close(&mut self, now: Instant, network: &mut Self::Network, orderly: bool);
    /// Ends the connection with its process.
    fn kill(&mut self, now: Instant, network: &mut Self::Network) {
        self.close(now, network, false);
    }
}

/// Data of commands in execution.
pub struct LaneData<'a> {
    /// Commands of the lane.
    pub execution: &'a mut SimExecution,
    /// Buffers of the reactor.
    pub pool: &'a mut SimPool,
    /// Storage that may lend its memory.
    pub disk: &'a SimDisk,
}

/// Target end of a connection.
pub trait SimTargetEnd {
    /// Network of the connection.
    type Network;

    /// Takes an arrival; `Err` when the connection has ended.
    fn take(
        &mut self,
        now: Instant,
        arrival: ConnectionArrival,
        hold: &mut LaneData<'_>,
    ) -> Result<(), ConnectionLost>;
    /// Returns the next event of the arrivals.
    fn poll(
        &mut self,
        now: Instant,
        hold: &mut LaneData<'_>,
    ) -> Result<Option<TargetEndEvent>, ConnectionLost>;
    /// Ends the turn: sends what may be sent.
    fn end_turn(
        &mut self,
        now: Instant,
        id: ConnId,
        network: &mut Self::Network,
        hold: &mut LaneData<'_>,
    );
    /// Closes the connection; with `orderly` a last PDU may be sent.
    fn close(
        &mut self,
        now: Instant,
        id: ConnId,
        network: &mut Self::Network,
        hold: &mut LaneData<'_>,
        orderly: bool,
    );
    /// True once if the connection has ended by itself.
    fn ends(&mut self) -> bool {
        false
    }
    /// True if nothing more is sent before the host reads something.
    fn is_blocked(&self) -> bool;
    /// Returns the time of its next event.
    fn deadline(&mut self) -> Option<Instant>;
    /// Queries a host that connects again whether it still has this connection.
    fn query_host(&mut self, _now: Instant) -> HostProbe {
        HostProbe::Harmless
    }
    /// True once if the host has confirmed the connection since the query.
    fn has_host_confirmed(&mut self) -> bool {
        false
    }
    /// True if the host has not confirmed it in time.
    fn is_host_gone(&self, _now: Instant) -> bool {
        false
    }
    /// Returns the number of commands without a response.
    fn in_flight(&self) -> u32;
    /// Returns the slot of a command without a response.
    fn slot_of(&mut self, cid: u16) -> Option<u16>;
    /// Returns the slot of an Asynchronous Event Request without a response.
    fn event_request_of(&mut self, cid: u16) -> Option<u16>;
    /// Sets the parameters of a successful Connect.
    fn set_connected(&mut self, qid: u16, entries: u16, flow: bool, class: Class);
    /// Responds to a command.
    fn respond(&mut self, now: Instant, slot: u16, status: Status, result: u64);
    /// Responds to a command with data.
    fn respond_with_data(&mut self, now: Instant, slot: u16, bytes: u32, result: u64);
    /// Requests a command's data.
    fn request_data(&mut self, now: Instant, slot: u16, bytes: u32);
    /// Sets the class of a command's namespace.
    fn set_class(&mut self, slot: u16, class: Class);
    /// Requests that a command's data is delivered in whole blocks only.
    fn deliver_whole(&mut self, _slot: u16, _block_bytes: u32) {}
    /// Returns the slot of a command without a response, and whether its data is pending.
    fn unanswered(&mut self, cid: u16) -> Option<(u16, bool)>;
    /// True if data of the command in a slot is pending.
    fn awaits_data(&mut self, _slot: u16) -> bool {
        false
    }
    /// True if commands arrive in the order of their submission.
    fn keeps_order(&self) -> bool {
        false
    }
    /// True if data reaches its destination only with a correct digest.
    fn has_data_digest(&self) -> bool {
        false
    }
    /// Provides the key for sealing its frames.
    fn seal(&mut self, _secret: &FrameSecret) {}
    /// Sets the number of commands on the disk.
    fn set_in_store(&mut self, commands: u32);
}

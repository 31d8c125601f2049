//! Connection of a lane: a queue pair and its transport.

mod error;
pub(crate) mod ether;
mod recording;
mod tcp;

pub use error::LinkError;
pub(crate) use tcp::TcpLink;

use super::api::{IoCompletion, IoOp, IoRequest};
use super::commands::LinkCommands;
use super::counters::MptcpSockets;
use super::ether::{FoundPath, HostFrame, Ports, Survey};
use super::requests::{command, compare_of, urgency};
use roadtrain_ether_proto::fence::EarlierLane;
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_host_proto::requests::RequestQueue;
use roadtrain_proto::policy::{Batcher, PolicyConfig, Urgency};
use roadtrain_proto::recorder::{FlightRecorder, SlowOver};
use roadtrain_proto::security::FrameSecret;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::connection::{ReceivedData, RemainingInput, RxBuffer};
use roadtrain_reactor::gather::Gather;
use roadtrain_reactor::metrics::{Batching, ReactorCells};
use roadtrain_reactor::recorded::ConnectionInfo;
use roadtrain_reactor::transports;
use roadtrain_system::clock;
use roadtrain_wire::sqe::Sqe;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;

/// State that the lanes of a reactor share in a turn.
pub(crate) struct LaneShared {
    pub(crate) gather: Box<Gather>,
    /// Ports for frames; empty if lanes have connections of their own.
    pub(crate) ports: Ports,
    pub(crate) now: Instant,
    /// Commands in flight over all lanes, counted at the end of a turn and updated in between.
    pub(crate) in_flight: u32,
    /// True if the reactor polls instead of blocking.
    pub(crate) polls: bool,
    pub(crate) completions: VecDeque<IoCompletion>,
    /// Counters of the reactor.
    pub(crate) cells: Arc<ReactorCells>,
    /// Recorder of slow requests and of samples.
    pub(crate) recorder: FlightRecorder<Arc<ConnectionInfo>>,
}

impl LaneShared {
    /// Creates the state with nothing in flight.
    pub(crate) fn new(ports: Ports, cells: Arc<ReactorCells>, slow_over: SlowOver) -> Self {
        LaneShared {
            gather: Box::default(),
            ports,
            now: clock::now(),
            in_flight: 0,
            polls: false,
            completions: VecDeque::new(),
            cells,
            recorder: FlightRecorder::new(slow_over),
        }
    }
}

/// Connected queue pair.
#[allow(clippy::large_enum_variant, reason = "a lane has one, which moves but once")]
pub(crate) enum QpairLink {
    /// TCP connection of its own.
    Tcp(TcpLink),
    /// Raw Ethernet.
    Ether(ether::EtherLink),
}

transports! {
    /// Operations of every transport.
    trait LinkTransport for QpairLink;
    required {
        /// Returns the number of commands that may be submitted now.
        fn room(self: &Self) -> u32;
        /// Returns the number of commands in flight.
        fn in_flight(self: &Self) -> u32;
        /// Queues a command and returns its slot. `None` if the queue is full.
        fn submit(self: &mut Self, now: Instant, sqe: &Sqe, data: CommandTransfer, urgency: Urgency) -> Option<u16>;
        /// Queues two fused commands, with this many bytes of data each, and returns their slot. `None` if the queue
        /// has no room for both.
        fn submit_fused(
            self: &mut Self, now: Instant, sqes: (&Sqe, &Sqe), bytes: u32, urgency: Urgency
        ) -> Option<u16>;
        /// Returns the command identifier of the command in a slot.
        fn cid(self: &Self, slot: u16) -> u16;
        /// Returns the batcher: doorbells and their timers.
        fn batcher(self: &mut Self) -> &mut Batcher;
        /// True if a released PDU waits and may be sent.
        fn is_due(self: &Self, now: Instant) -> bool;
        /// Ends the turn: rings doorbells as the policy permits.
        fn end_turn(self: &mut Self, shared: &mut LaneShared) -> Result<(), LinkError>;
        /// Sends PDUs that doorbells have released. Frames are sent when the reactor flushes its ports.
        fn flush(self: &mut Self, commands: &impl LinkCommands, shared: &mut LaneShared) -> Result<(), LinkError>;
        /// Closes the connection in order if it is idle.
        fn shut_down(self: &mut Self, shared: &mut LaneShared);
        /// Sets the connection info of its lane.
        fn set_line(self: &mut Self, line: ConnectionInfo);
        /// Lists its socket among those of its lane.
        fn list_socket(self: &mut Self, sockets: &Arc<MptcpSockets>);
        /// Returns its counters, including those that were [added](Self::count_on).
        fn batching(self: &Self) -> Batching;
        /// Adds the counters of the lane's earlier connections.
        fn count_on(self: &mut Self, earlier: Batching);
        /// Starts to carry requests on the idle connection, with the negotiated parameters.
        fn begin(self: &mut Self, in_capsule_bytes: u32, policy: PolicyConfig);
    }
    provided {
        /// Returns when [`QpairLink::end_turn`] is due at the latest.
        fn deadline(self: &mut Self) -> Option<Instant> {
            self.batcher().deadline()
        }

        // Transports whose lanes have a socket of their own:

        /// Returns its own socket, to be watched.
        fn fd(self: &Self) -> Option<RawFd> {
            None
        }
        /// True if it cannot send now; its socket becomes writable when it can again.
        fn is_blocked(self: &Self) -> bool {
            false
        }
        /// Receives once; [`QpairLink::parse`] processes the data.
        fn receive<'a>(
            self: &mut Self, commands: &mut impl LinkCommands, rx: &'a mut RxBuffer, limit: usize
        ) -> Result<(ReceivedData, Option<RemainingInput<'a>>), LinkError> {
            Ok((ReceivedData::default(), None)) // the reactor's ports receive
        }
        /// Parses received data until `batch` commands have ended or the input is used up; returns the remaining input.
        fn parse<'a>(
            self: &mut Self, commands: &mut impl LinkCommands, shared: &mut LaneShared, rest: RemainingInput<'a>, batch: usize
        ) -> Result<Option<RemainingInput<'a>>, LinkError> {
            Ok(None)
        }
        /// Resumes a blocked send, as the socket is writable again.
        fn resume(self: &mut Self) -> Result<(), LinkError> {
            Ok(())
        }

        /// True if it can carry fused commands.
        fn fuses(self: &Self) -> bool {
            true
        }
        /// True once the connection is initialised: commands are sent from then on.
        fn is_ready(self: &Self) -> bool {
            true
        }
        /// Marks the idle connection to close normally when it is dropped.
        fn close(self: &mut Self) {}

        // Transports whose lanes share the reactor's ports:

        /// Shifts port numbers: the reactor that will take it over has this many ports before its own.
        fn shift(self: &mut Self, ports: usize) {}
        /// Moves it to a reactor, with the reactor's ports.
        fn move_to(self: &mut Self, now: Instant, ports: &Ports, lanes: usize) {}
        /// Handles a frame from ports that only this link uses.
        fn receive_frame(
            self: &mut Self, now: Instant, received: &HostFrame<'_>, commands: &mut impl LinkCommands,
            completions: &mut VecDeque<IoCompletion>, recorder: &mut FlightRecorder<Arc<ConnectionInfo>>
        ) {}
        /// Updates links after a change of interfaces.
        fn check_carriers(self: &mut Self, shared: &LaneShared) {}
        /// Adds a path to this target as a link, if the lane needs one.
        fn offer(self: &mut Self, now: Instant, found: &FoundPath) {}
        /// True if [`QpairLink::take_survey`] has changes.
        fn has_news(self: &Self) -> bool {
            false
        }
        /// Takes the changes of the target's addresses and of links to them.
        fn take_survey(self: &mut Self) -> Option<Survey> {
            None
        }
        /// Seals its frames from now on, and drops frames that are not sealed.
        fn seal(self: &mut Self, secret: &FrameSecret) -> Result<(), LinkError> {
            Err(LinkError::Closed) // there are none
        }
        /// Returns the maximum bytes of a command's data, in whole pages.
        fn data_bytes_max(self: &Self) -> u32 {
            u32::MAX
        }
        /// Returns the identity that a fence needs to end the lane later, if it needs that.
        fn earlier(self: &Self) -> Option<EarlierLane> {
            None
        }
        /// True if it is better to delay sending, to add to it after the next frames. Over TCP one receive takes all
        /// data, so there is nothing to wait for.
        fn gathers(self: &mut Self) -> bool {
            false
        }
        /// Ends the connection abruptly: as far as possible, no sent data reaches the target any more.
        fn end(self: &mut Self, shared: &mut LaneShared) {} // a socket resets when it is closed
    }
}

impl RequestQueue<IoRequest> for QpairLink {
    #[inline]
    fn room(&self) -> u32 {
        QpairLink::room(self)
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        QpairLink::in_flight(self)
    }

    #[inline]
    fn submit(&mut self, now: Instant, request: &mut IoRequest) -> Option<u16> {
        let (sqe, data) = command(request);
        if request.op == IoOp::CompareAndWrite {
            let (compare, bytes) = (compare_of(request), request.bytes() / 2);
            return QpairLink::submit_fused(self, now, (&compare, &sqe), bytes, urgency(request));
        }
        QpairLink::submit(self, now, &sqe, data, urgency(request))
    }
}

//! What a lane is connected by: a queue pair and what carries it, of whichever transport.

mod error;
pub(crate) mod ether;
mod recording;
mod tcp;

pub use error::LinkError;
pub(crate) use tcp::TcpLink;

use super::api::{Completion, Op, Request};
use super::commands::Commands;
use super::ether::{Found, Heard as Frame, Ports, Survey};
use super::requests::{command, compare_of, urgency};
use roadtrain_ether_proto::fence::EarlierLane;
use roadtrain_host_proto::qpair::Data;
use roadtrain_host_proto::requests::Queue;
use roadtrain_proto::policy::{Batcher, PolicyConfig, Urgency};
use roadtrain_proto::recorder::{Recorder, SlowOver};
use roadtrain_proto::security::FrameSecret;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::connection::{Heard, Rest, RxBuffer};
use roadtrain_reactor::gather::Gather;
use roadtrain_reactor::metrics::{Batching, ReactorCells};
use roadtrain_reactor::recorded::Line;
use roadtrain_reactor::transports;
use roadtrain_system::clock;
use roadtrain_wire::sqe::Sqe;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;

/// What the lanes of a reactor share in a turn.
pub(crate) struct Shared {
    pub(crate) gather: Box<Gather>,
    /// Empty where lanes have connections of their own.
    pub(crate) ports: Ports,
    pub(crate) now: Instant,
    /// Commands in flight over all lanes: counted when a turn ends, and followed in between.
    pub(crate) in_flight: u32,
    /// The reactor polls instead of sleeping.
    pub(crate) polls: bool,
    pub(crate) completions: VecDeque<Completion>,
    /// The reactor's own numbers.
    pub(crate) cells: Arc<ReactorCells>,
    /// What was slow, and what other requests were like.
    pub(crate) recorder: Recorder<Arc<Line>>,
}

impl Shared {
    /// Nothing is in flight.
    pub(crate) fn new(ports: Ports, cells: Arc<ReactorCells>, slow_over: SlowOver) -> Self {
        Shared {
            gather: Box::default(),
            ports,
            now: clock::now(),
            in_flight: 0,
            polls: false,
            completions: VecDeque::new(),
            cells,
            recorder: Recorder::new(slow_over),
        }
    }
}

/// A connected queue pair.
#[allow(clippy::large_enum_variant, reason = "a lane has one, which moves but once")]
pub(crate) enum Link {
    /// Over a TCP connection of its own.
    Tcp(TcpLink),
    /// Straight on Ethernet.
    Ether(ether::EtherLink),
}

transports! {
    /// What every transport does for a lane.
    trait Transport for Link;
    required {
        /// Commands that may be submitted now.
        fn room(self: &Self) -> u32;
        /// Commands submitted and not completed.
        fn in_flight(self: &Self) -> u32;
        /// Queues a command: its slot. `None` when the queue is full.
        fn submit(self: &mut Self, now: Instant, sqe: &Sqe, data: Data, urgency: Urgency) -> Option<u16>;
        /// Queues two commands that are fused, with so many octets of data each: their slot. `None` when the queue has
        /// no room for both.
        fn submit_fused(
            self: &mut Self, now: Instant, sqes: (&Sqe, &Sqe), bytes: u32, urgency: Urgency
        ) -> Option<u16>;
        /// Command identifier of the command in a slot.
        fn cid(self: &Self, slot: u16) -> u16;
        /// When to send: doorbells and their timers.
        fn batcher(self: &mut Self) -> &mut Batcher;
        /// Whether something released waits, and may leave.
        fn is_due(self: &Self, now: Instant) -> bool;
        /// The turn is over: rings what the policy lets go.
        fn end_turn(self: &mut Self, shared: &mut Shared) -> Result<(), LinkError>;
        /// Sends what doorbells have released. Frames leave when the reactor flushes its ports.
        fn flush(self: &mut Self, commands: &impl Commands, shared: &mut Shared) -> Result<(), LinkError>;
        /// Nothing is left to be done: says good-bye.
        fn part(self: &mut Self, shared: &mut Shared);
        /// It is that lane's from now on.
        fn set_line(self: &mut Self, line: Line);
        /// Its counters, from those on with which it was [added to](Self::count_on).
        fn batching(self: &Self) -> Batching;
        /// Adds counters: those of the lane's earlier connections.
        fn count_on(self: &mut Self, earlier: Batching);
        /// Begins to carry requests, as agreed with the controller: it is idle.
        fn begin(self: &mut Self, in_capsule_bytes: u32, policy: PolicyConfig);
    }
    provided {
        /// When [`Link::end_turn`] is due at the latest.
        fn deadline(self: &mut Self) -> Option<Instant> {
            self.batcher().deadline()
        }

        // Of transports whose lanes have a socket of their own.

        /// A socket of its own, to be watched.
        fn fd(self: &Self) -> Option<RawFd> {
            None
        }
        /// Whether it takes nothing more to send now; its socket tells when that is over.
        fn is_blocked(self: &Self) -> bool {
            false
        }
        /// One receive; [`Link::parse`] handles what it brought.
        fn receive<'a>(
            self: &mut Self, commands: &mut impl Commands, rx: &'a mut RxBuffer, limit: usize
        ) -> Result<(Heard, Option<Rest<'a>>), LinkError> {
            Ok((Heard::default(), None)) // the reactor's ports do
        }
        /// Handles what was received until `batch` commands have ended or the input is used up; what is left then.
        fn parse<'a>(
            self: &mut Self, commands: &mut impl Commands, shared: &mut Shared, rest: Rest<'a>, batch: usize
        ) -> Result<Option<Rest<'a>>, LinkError> {
            Ok(None)
        }
        /// The socket is writable again: goes on with what it was too full for.
        fn resume(self: &mut Self) -> Result<(), LinkError> {
            Ok(())
        }

        /// Whether two commands can be one.
        fn fuses(self: &Self) -> bool {
            true
        }
        /// True once the peer has agreed: commands are sent from then on.
        fn is_ready(self: &Self) -> bool {
            true
        }
        /// Everything has been answered that matters: it ends in order when it is dropped.
        fn close(self: &mut Self) {}

        // Of transports whose lanes share the reactor's ports.

        /// The reactor that will take it over has so many ports before those that it was made with.
        fn shift(self: &mut Self, ports: usize) {}
        /// A reactor takes it over, with its ports.
        fn move_to(self: &mut Self, now: Instant, ports: &Ports, lanes: usize) {}
        /// Handles a frame that has come at ports which only this link has.
        fn receive_frame(
            self: &mut Self, now: Instant, heard: &Frame<'_>, commands: &mut impl Commands,
            completions: &mut VecDeque<Completion>, recorder: &mut Recorder<Arc<Line>>
        ) {}
        /// Interfaces may have come or gone.
        fn check_carriers(self: &mut Self, shared: &Shared) {}
        /// A path to that target was found: perhaps one more link.
        fn offer(self: &mut Self, now: Instant, found: &Found) {}
        /// True if there is something for [`Link::take_survey`].
        fn has_news(self: &Self) -> bool {
            false
        }
        /// Takes what has become of the target's addresses and of links to them.
        fn take_survey(self: &mut Self) -> Option<Survey> {
            None
        }
        /// From now on its frames are sealed, and others are dropped.
        fn seal(self: &mut Self, secret: &FrameSecret) -> Result<(), LinkError> {
            Err(LinkError::Closed) // there are none
        }
        /// Most bytes of a command's data, in whole pages.
        fn data_bytes_max(self: &Self) -> u32 {
            u32::MAX
        }
        /// What must be known to end it for good when it was given up; nothing if that needs nothing.
        fn earlier(self: &Self) -> Option<EarlierLane> {
            None
        }
        /// Whether what it could send had better wait for what the next frames will add. Over TCP one receive takes
        /// all that has come, so there is nothing to wait for.
        fn gathers(self: &mut Self) -> bool {
            false
        }
        /// The connection is given up: nothing of it is to reach the target any more, as far as that can be.
        fn end(self: &mut Self, shared: &mut Shared) {} // a socket resets when it is closed
    }
}

impl Queue<Request> for Link {
    #[inline]
    fn room(&self) -> u32 {
        Link::room(self)
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        Link::in_flight(self)
    }

    #[inline]
    fn submit(&mut self, now: Instant, request: &mut Request) -> Option<u16> {
        let (sqe, data) = command(request);
        if request.op == Op::CompareAndWrite {
            let (compare, bytes) = (compare_of(request), request.octets() / 2);
            return Link::submit_fused(self, now, (&compare, &sqe), bytes, urgency(request));
        }
        Link::submit(self, now, &sqe, data, urgency(request))
    }
}

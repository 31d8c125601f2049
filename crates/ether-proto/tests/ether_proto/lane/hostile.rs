//! Invalid records: late ones are dropped and counted. Others end the lane, because their frame was acknowledged and
//! is not sent again.

use super::world::{LaneSetup, LaneWorld};
use roadtrain_ether_proto::channel::ChannelConfig;
use roadtrain_ether_proto::frame_writer::MemoryWriter;
use roadtrain_ether_proto::links::LaneLinks;
use roadtrain_ether_proto::{Rejected, host_queue as host, target_queue as target};
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::policy::Urgency;
use roadtrain_proto::time::Instant;
use roadtrain_wire::cqe::Cqe;
use roadtrain_wire::ether::setup::{LeaveBody, LeaveReason};
use roadtrain_wire::ether::{
    self, CommandRecord, CompletionRecord, DATA_IN, FrameHeader, FrameType, RecordHead, RecordKind,
    flags,
};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;
use std::time::Duration;

const NOW: Instant = Instant(5_000_000);
const PIECE: u32 = 4096;

/// A peer that sends arbitrary records.
struct Forger {
    links: LaneLinks<u8>,
}

impl Forger {
    fn new(token: u64, peer_token: u64) -> Self {
        let mut links = LaneLinks::new(token, peer_token, 9);
        let config =
            ChannelConfig { link: 0, first_tx: 7, first_rx: 7, window: 1024, frame_bytes: 9000 };
        assert!(links.add(NOW, &config, 8));
        Forger { links }
    }

    fn header(&mut self) -> FrameHeader {
        self.links.send(NOW, 0, 100, &[0])
    }
}

/// A data record: piece `index` of a request of `bytes` bytes.
#[derive(Clone, Copy)]
struct ForgedPiece {
    slot: u16,
    generation: u32,
    position: u32,
    index: u16,
    bytes: u32,
}

const PIECE_0: ForgedPiece =
    ForgedPiece { slot: 0, generation: 1, position: 0, index: 0, bytes: 2 * PIECE };

impl ForgedPiece {
    fn record(self) -> ether::DataRecord {
        let offset = u32::from(self.index) * PIECE;
        let length = PIECE.min(self.bytes.saturating_sub(offset)) as usize;
        ether::DataRecord {
            head: RecordHead::new(RecordKind::Data, 24 + length, self.slot, self.generation),
            offset: offset.into(),
            position: self.position.into(),
            index: self.index.into(),
            pieces: (self.bytes.div_ceil(PIECE) as u16).into(),
            bytes: self.bytes.into(),
        }
    }

    fn bytes(self) -> Vec<u8> {
        with_data(&self.record())
    }
}

/// Returns the record with as much data as its head specifies.
fn with_data(record: &ether::DataRecord) -> Vec<u8> {
    let mut bytes = record.as_bytes().to_vec();
    bytes.resize(usize::from(record.head.length.get()).max(24), 0xd5);
    bytes
}

fn command(slot: u16, generation: u32, position: u32, bytes: u32) -> Vec<u8> {
    let mut sqe = Sqe::new(opcode::WRITE, 1);
    sqe.cid = slot.into();
    let head = RecordHead::new(RecordKind::Command, 80, slot, generation);
    let command = CommandRecord { head, sqe, position: position.into(), bytes: bytes.into() };
    command.as_bytes().to_vec()
}

fn completion(slot: u16, generation: u32, pieces: u16) -> Vec<u8> {
    let head = RecordHead::new(RecordKind::Completion, 32, slot, generation);
    let cqe = Cqe::new(slot, Status::SUCCESS);
    let completion = CompletionRecord { head, cqe, pieces: pieces.into(), reserved: [0; 6] };
    completion.as_bytes().to_vec()
}

/// Returns the one reason whose counter has grown, by one, since `before`.
fn reason(before: Rejected, after: Rejected) -> &'static str {
    let pairs = after.by_reason().zip(before.by_reason());
    let changed: Vec<_> = pairs.filter(|(after, before)| after.1 != before.1).collect();
    assert_eq!(changed.len(), 1, "{changed:?}");
    let (after, before) = changed[0];
    assert_eq!(after.1, before.1 + 1);
    after.0
}

struct TargetUnderTest {
    qpair: target::EtherTargetQpair,
    forger: Forger,
}

impl TargetUnderTest {
    fn new() -> Self {
        let qpair =
            LaneWorld::new(LaneSetup { entries: 8, pages: 16, ..LaneSetup::default() }).target;
        TargetUnderTest { qpair, forger: Forger::new(1, 2) }
    }

    fn receive(&mut self, body: &[u8]) -> Vec<target::EtherTargetEvent> {
        let header = self.forger.header();
        let mut events = Vec::new();
        self.qpair.receive(NOW, &header, FrameType::Cargo, body, &mut |event| events.push(event));
        events
    }

    /// Asserts that `body` is dropped for one reason and the lane continues. Returns the reason.
    fn drops(&mut self, body: &[u8]) -> &'static str {
        let before = self.qpair.end.rejected;
        assert_eq!(self.receive(body), []);
        assert_eq!(self.qpair.end.ended(), None);
        reason(before, self.qpair.end.rejected)
    }

    /// Asserts that `body` ends a lane that has received `before`. Returns the reason.
    fn breaks(before: &[&[u8]], body: &[u8]) -> &'static str {
        let mut target = TargetUnderTest::new();
        before.iter().for_each(|body| _ = target.receive(body));
        let rejected = target.qpair.end.rejected;
        assert_eq!(target.receive(body), []);
        assert_eq!(target.qpair.end.ended(), Some(LeaveReason::Broken));
        let reason = reason(rejected, target.qpair.end.rejected);
        assert_eq!(target.qpair.end.broken().map(|broken| broken.reason), Some(reason));
        assert_eq!(target.receive(&command(7, 1, 0, 0)), [], "nothing more is taken");
        reason
    }
}

/// Returns the commands received, with the bytes of data in both directions.
fn commands(events: &[target::EtherTargetEvent]) -> Vec<(u16, u32)> {
    let command = |event: &target::EtherTargetEvent| match *event {
        target::EtherTargetEvent::Command { slot, data_bytes, room_bytes, .. } => {
            Some((slot, data_bytes + room_bytes))
        }
        _ => None,
    };
    events.iter().filter_map(command).collect()
}

#[test]
fn a_command_of_more_than_mdts_is_executed_without_data() {
    const TOO_MUCH: u32 = (1 << 20) + 512;
    let mut target = TargetUnderTest::new();
    for (slot, bytes) in [(0, TOO_MUCH), (1, TOO_MUCH | DATA_IN), (2, 4 << 20), (3, u32::MAX)] {
        assert_eq!(commands(&target.receive(&command(slot, 1, 0, bytes))), [(slot, 0)]);
    }
    // Pieces of such a command, before and after it.
    let piece = ForgedPiece { bytes: TOO_MUCH, slot: 4, ..PIECE_0 };
    assert_eq!(target.drops(&piece.bytes()), "shapes");
    assert_eq!(commands(&target.receive(&command(4, 1, 0, TOO_MUCH))), [(4, 0)]);
    assert_eq!(target.drops(&piece.bytes()), "shapes");
    target.qpair.respond(NOW, 4, Status::INVALID_FIELD, 0);
    target.qpair.batcher().drained(NOW);
    let mut writer = MemoryWriter::new(9, |_, _, _| ());
    assert!(target.qpair.poll_tx(NOW, &mut writer));
    assert_eq!(commands(&target.receive(&command(4, 2, 0, 0))), [(4, 0)], "the slot is free again");
}

#[test]
fn all_commands_of_a_frame_are_executed_however_many() {
    let mut target = TargetUnderTest {
        forger: Forger::new(1, 2),
        qpair: LaneWorld::new(LaneSetup { entries: 101, pages: 16, ..LaneSetup::default() }).target,
    };
    let body: Vec<u8> = (0..100).flat_map(|slot| command(slot, 1, 0, 0)).collect();
    assert_eq!(commands(&target.receive(&body)).len(), 100);
}

#[test]
fn a_target_ends_with_records_that_make_no_sense_by_themselves() {
    let breaks = |body: &[u8]| TargetUnderTest::breaks(&[], body);
    assert_eq!(breaks(&ForgedPiece { slot: 8, ..PIECE_0 }.bytes()), "slots");
    assert_eq!(breaks(&command(8, 1, 0, 0)), "slots");
    assert_eq!(breaks(&ForgedPiece { position: 15, ..PIECE_0 }.bytes()), "places");
    assert_eq!(breaks(&ForgedPiece { position: u32::MAX, ..PIECE_0 }.bytes()), "places");
    assert_eq!(breaks(&command(0, 1, 15, 2 * PIECE)), "places");
    assert_eq!(breaks(&completion(0, 1, 0)), "records");
    assert_eq!(breaks(&[9; 40]), "records");
    assert_eq!(breaks(&command(0, 1, 0, 0)[..72]), "records");
    let mut other = command(0, 1, 0, 0);
    other[8 + 2] ^= 1; // CID
    assert_eq!(breaks(&other), "unexpected");
}

#[test]
fn the_reason_names_the_slot_the_field_and_the_value() {
    let mut target = TargetUnderTest::new();
    target.receive(&ForgedPiece { slot: 3, position: 77, ..PIECE_0 }.bytes());
    let broken = target.qpair.end.broken().expect("a place outside of the damq");
    assert_eq!(
        broken.to_string(),
        "POSITION 77 of a record in slot 3 breaks the protocol (places)"
    );
    let mut target = TargetUnderTest::new();
    target.receive(&[9; 40]);
    let broken = target.qpair.end.broken().expect("no such KIND");
    assert_eq!(broken.to_string(), "KIND 9 of a record breaks the protocol (records)");
}

#[test]
fn a_target_drops_records_of_other_generations() {
    let mut target = TargetUnderTest::new();
    for generation in [0, 2, 0xff_ffff] {
        assert_eq!(target.drops(&command(0, generation, 0, 0)), "late");
        assert_eq!(target.drops(&ForgedPiece { generation, ..PIECE_0 }.bytes()), "late");
    }
    assert_eq!(target.qpair.in_flight(), 0);
    assert_eq!(target.receive(&command(0, 1, 0, 0)).len(), 1, "the slot is as it was");
}

#[test]
fn a_target_ends_with_pieces_that_are_not_cut_as_agreed() {
    let right = PIECE_0.record();
    let wrong = [
        ether::DataRecord { offset: 8.into(), ..right },
        ether::DataRecord { index: 1.into(), ..right },
        ether::DataRecord { index: 2.into(), offset: (2 * PIECE).into(), ..right },
        ether::DataRecord { pieces: 1.into(), ..right },
        ether::DataRecord { pieces: 3.into(), ..right },
        ether::DataRecord { bytes: 0.into(), ..right },
        ether::DataRecord { bytes: PIECE.into(), ..right },
        ether::DataRecord { head: RecordHead::new(RecordKind::Data, 24 + 4088, 0, 1), ..right },
        ether::DataRecord { head: RecordHead::new(RecordKind::Data, 24, 0, 1), ..right },
    ];
    for record in wrong {
        assert_eq!(TargetUnderTest::breaks(&[], &with_data(&record)), "shapes", "{record:?}");
    }
}

#[test]
fn a_target_ends_with_records_that_contradict_their_request() {
    let piece = PIECE_0.bytes();
    let breaks = |body: &[u8]| TargetUnderTest::breaks(&[&piece], body);
    // The first record wins, even where it is the wrong one: the second ends the lane.
    assert_eq!(breaks(&command(0, 1, 1, 2 * PIECE)), "places");
    assert_eq!(breaks(&command(0, 1, 0, PIECE)), "shapes");
    assert_eq!(breaks(&command(0, 1, 0, (2 * PIECE) | DATA_IN)), "shapes");
    assert_eq!(breaks(&command(0, 1, 0, (1 << 20) + 512)), "shapes");
    assert_eq!(breaks(&ForgedPiece { index: 1, position: 1, ..PIECE_0 }.bytes()), "places");
    assert_eq!(breaks(&ForgedPiece { index: 1, bytes: PIECE + 8, ..PIECE_0 }.bytes()), "shapes");
    assert_eq!(breaks(&ForgedPiece { bytes: 4 << 20, ..PIECE_0 }.bytes()), "shapes");
    assert_eq!(breaks(&ForgedPiece { generation: 2, ..PIECE_0 }.bytes()), "busy");
    let flush = command(0, 1, 0, 0);
    assert_eq!(TargetUnderTest::breaks(&[&flush], &command(0, 2, 0, 0)), "busy");
}

#[test]
fn a_target_drops_records_that_came_before() {
    let mut target = TargetUnderTest::new();
    assert_eq!(target.receive(&PIECE_0.bytes()).len(), 1);
    assert_eq!(target.drops(&PIECE_0.bytes()), "repeated");
    assert_eq!(target.receive(&command(0, 1, 0, 2 * PIECE)), []);
    assert_eq!(target.drops(&command(0, 1, 0, 2 * PIECE)), "repeated");
    let events = target.receive(&ForgedPiece { index: 1, ..PIECE_0 }.bytes());
    assert!(
        matches!(events[1], target::EtherTargetEvent::Command { data_bytes: 8192, .. }),
        "{events:?}"
    );
    assert_eq!(target.drops(&ForgedPiece { index: 1, ..PIECE_0 }.bytes()), "late");
    // Data for a read.
    assert_eq!(target.receive(&command(1, 1, 0, PIECE | DATA_IN)).len(), 1);
    assert_eq!(target.drops(&ForgedPiece { slot: 1, ..PIECE_0 }.bytes()), "late");
}

/// A host does not send acknowledged data again, however long the rest is in flight: the memory must stay allocated
/// until then.
#[test]
fn data_that_has_arrived_is_kept_until_its_request_is_answered() {
    let mut target = TargetUnderTest::new();
    assert!(!target.qpair.keeps_data());
    target.receive(&command(1, 1, 0, PIECE | DATA_IN));
    assert!(!target.qpair.keeps_data(), "a read has none");
    target.receive(&PIECE_0.bytes());
    assert!(target.qpair.keeps_data(), "the rest may come late");
    target.receive(&command(0, 1, 0, 2 * PIECE));
    target.receive(&ForgedPiece { index: 1, ..PIECE_0 }.bytes());
    assert!(target.qpair.keeps_data(), "it is written from there");
    target.qpair.respond(NOW, 0, Status::SUCCESS, 0);
    assert!(!target.qpair.keeps_data());
}

#[test]
fn a_target_takes_the_next_request_when_the_last_is_answered() {
    let mut target = TargetUnderTest::new();
    assert_eq!(target.receive(&command(3, 1, 0, PIECE | DATA_IN)).len(), 1);
    target.qpair.respond_with_data(NOW, 3, PIECE, 0);
    target.qpair.batcher().drained(NOW);
    let mut writer = MemoryWriter::new(9, |_, _, _| ());
    assert!(target.qpair.poll_tx(NOW, &mut writer));
    let events = target.receive(&command(3, 2, 0, 0));
    assert_eq!(events[0], target::EtherTargetEvent::Released { slot: 3 });
    assert!(matches!(events[1], target::EtherTargetEvent::Command { slot: 3, .. }));
    assert_eq!(target.qpair.in_flight(), 1);
}

struct HostUnderTest {
    qpair: host::EtherHostQpair,
    forger: Forger,
}

impl HostUnderTest {
    /// Creates a host with a read of two pieces in slot 0, a write in slot 1, and in slot 2 a flush that has not
    /// left.
    fn new() -> Self {
        let mut qpair =
            LaneWorld::new(LaneSetup { entries: 9, pages: 16, ..LaneSetup::default() }).host;
        let mut submit = |code, data| {
            qpair.submit(NOW, &Sqe::new(code, 1), data, Urgency::Normal).expect("room");
        };
        submit(opcode::READ, CommandTransfer::In(2 * PIECE));
        submit(opcode::WRITE, CommandTransfer::Out(PIECE));
        qpair.batcher().drained(NOW);
        let mut writer = MemoryWriter::new(9, |_, _, _| ());
        assert!(qpair.poll_tx(NOW, &mut writer));
        qpair
            .submit(NOW, &Sqe::new(opcode::FLUSH, 1), CommandTransfer::None, Urgency::Normal)
            .expect("room");
        HostUnderTest { qpair, forger: Forger::new(2, 1) }
    }

    fn receive(&mut self, body: &[u8]) -> Vec<host::EtherHostEvent> {
        let header = self.forger.header();
        let mut events = Vec::new();
        self.qpair.receive(NOW, &header, FrameType::Cargo, body, &mut |event| events.push(event));
        events
    }

    fn drops(&mut self, body: &[u8]) -> &'static str {
        let before = self.qpair.end.rejected;
        assert_eq!(self.receive(body), []);
        assert_eq!(self.qpair.end.ended(), None);
        reason(before, self.qpair.end.rejected)
    }

    /// Asserts that `body` ends a lane that has received `before`. Returns the reason.
    fn breaks(before: &[&[u8]], body: &[u8]) -> &'static str {
        let mut host = HostUnderTest::new();
        before.iter().for_each(|body| _ = host.receive(body));
        let rejected = host.qpair.end.rejected;
        assert_eq!(host.receive(body), []);
        assert_eq!(host.qpair.end.ended(), Some(LeaveReason::Broken));
        reason(rejected, host.qpair.end.rejected)
    }
}

#[test]
fn a_host_ends_with_records_that_no_request_has() {
    let breaks = |body: &[u8]| HostUnderTest::breaks(&[], body);
    assert_eq!(breaks(&completion(8, 1, 0)), "slots");
    assert_eq!(breaks(&completion(u16::MAX, 1, 0)), "slots");
    assert_eq!(breaks(&ForgedPiece { slot: 8, ..PIECE_0 }.bytes()), "slots");
    assert_eq!(breaks(&completion(2, 1, 0)), "unexpected", "it has not left");
    assert_eq!(breaks(&command(0, 1, 0, 0)), "records");
    assert_eq!(breaks(&ForgedPiece { slot: 1, ..PIECE_0 }.bytes()), "directions");
    assert_eq!(breaks(&completion(1, 1, 1)), "shapes", "data that belongs to a write");
    let mut other = completion(1, 1, 0);
    other[8 + 12] ^= 1; // CID
    assert_eq!(breaks(&other), "unexpected");
}

#[test]
fn a_host_drops_records_of_other_generations() {
    let mut host = HostUnderTest::new();
    for generation in [0, 2] {
        assert_eq!(host.drops(&completion(0, generation, 0)), "late");
        assert_eq!(host.drops(&ForgedPiece { generation, ..PIECE_0 }.bytes()), "late");
    }
    assert_eq!(host.drops(&completion(3, 0, 0)), "late", "of a slot that was never used");
    assert_eq!(host.qpair.in_flight(), 3);
    assert!(matches!(
        host.receive(&completion(1, 1, 0))[..],
        [host::EtherHostEvent::Complete { .. }]
    ));
    assert_eq!(host.drops(&completion(1, 1, 0)), "late");
}

#[test]
fn a_host_ends_with_data_that_contradicts_its_request() {
    let (right, piece) = (PIECE_0.record(), PIECE_0.bytes());
    let breaks = |body: &[u8]| HostUnderTest::breaks(&[], body);
    assert_eq!(breaks(&ForgedPiece { bytes: 3 * PIECE, ..PIECE_0 }.bytes()), "shapes");
    assert_eq!(breaks(&with_data(&ether::DataRecord { offset: 8.into(), ..right })), "shapes");
    assert_eq!(breaks(&completion(0, 1, 3)), "shapes");
    let breaks = |body: &[u8]| HostUnderTest::breaks(&[&piece], body);
    assert_eq!(breaks(&ForgedPiece { index: 1, bytes: PIECE + 8, ..PIECE_0 }.bytes()), "shapes");
    assert_eq!(breaks(&completion(0, 1, 1)), "shapes");
}

#[test]
fn a_host_drops_records_that_came_before() {
    let mut host = HostUnderTest::new();
    assert_eq!(host.receive(&PIECE_0.bytes()).len(), 1);
    assert_eq!(host.drops(&PIECE_0.bytes()), "repeated");
    assert_eq!(host.receive(&completion(0, 1, 2)), []);
    assert_eq!(host.drops(&completion(0, 1, 2)), "repeated");
    let events = host.receive(&ForgedPiece { index: 1, ..PIECE_0 }.bytes());
    assert!(
        matches!(events[1], host::EtherHostEvent::Complete { data_intact: true, .. }),
        "{events:?}"
    );
}

#[test]
fn a_success_without_its_data_is_not_intact() {
    let mut host = HostUnderTest::new();
    let events = host.receive(&completion(0, 1, 0));
    assert!(matches!(events[..], [host::EtherHostEvent::Complete { data_intact: false, .. }]));
    let mut host = HostUnderTest::new();
    host.receive(&ForgedPiece { bytes: PIECE, ..PIECE_0 }.bytes());
    let events = host.receive(&completion(0, 1, 1));
    assert!(matches!(events[..], [host::EtherHostEvent::Complete { data_intact: false, .. }]));
}

#[test]
fn frames_that_no_lane_carries_are_refused() {
    let mut host = HostUnderTest::new();
    let header = host.forger.header();
    let receive = |host: &mut HostUnderTest, header: &FrameHeader, kind, body: &[u8]| {
        let before = host.qpair.end.rejected;
        host.qpair.receive(NOW, header, kind, body, &mut |event| panic!("{event:?}"));
        reason(before, host.qpair.end.rejected)
    };
    assert_eq!(receive(&mut host, &header, FrameType::Join, &[]), "types");
    let unnumbered = FrameHeader { flags: 0.into(), ..header };
    assert_eq!(
        receive(&mut host, &unnumbered, FrameType::Cargo, &completion(1, 1, 0)),
        "unnumbered"
    );
    let foreign = FrameHeader { token: 3.into(), ..header };
    assert_eq!(receive(&mut host, &foreign, FrameType::Cargo, &completion(1, 1, 0)), "foreign");
    let link = FrameHeader { link: 1, ..header };
    assert_eq!(receive(&mut host, &link, FrameType::Cargo, &completion(1, 1, 0)), "foreign");
    assert_eq!(receive(&mut host, &unnumbered, FrameType::Leave, &[2; 9]), "records");
    let forged = LeaveBody { token: 1.into(), reason: 3.into(), endpoint: [0; 6] };
    assert_eq!(receive(&mut host, &unnumbered, FrameType::Leave, forged.as_bytes()), "records");
    assert_eq!(host.qpair.end.ended(), None);
    assert_ne!(header.flags.get() & flags::SEQ, 0);
}

/// Leave is in clear text also in a sealed lane, so anyone may have forged its header.
#[test]
fn a_leave_that_ends_nothing_changes_nothing() {
    let mut host = HostUnderTest::new();
    let header = host.forger.header();
    for ahead in [1, 1000, 5000] {
        let base = (header.base.get() + ahead).into();
        let forged = FrameHeader { base, ack: 9.into(), sack: u64::MAX.into(), ..header };
        for numbered in [0, flags::SEQ | flags::ASK] {
            let forged = FrameHeader { flags: numbered.into(), seq: base, ..forged };
            let leave = LeaveBody { token: 7.into(), reason: 3.into(), endpoint: [0; 6] };
            let before = (host.qpair.end.links.stats(0), host.qpair.end.links.deadline());
            host.qpair.receive(NOW, &forged, FrameType::Leave, leave.as_bytes(), &mut |_| ());
            let after = (host.qpair.end.links.stats(0), host.qpair.end.links.deadline());
            assert_eq!(before, after);
            assert!(host.qpair.end.links.ack_due(NOW).is_none(), "no reply is due");
        }
    }
    assert_eq!((host.qpair.end.ended(), host.qpair.end.rejected.records), (None, 6));
    assert_eq!(host.receive(&completion(1, 1, 0)).len(), 1, "the link's numbers are as they were");
}

#[test]
fn an_end_that_leaves_says_so_and_nothing_else() {
    let mut world = LaneWorld::new(LaneSetup { links: 2, ..LaneSetup::default() });
    let read = super::request(CommandTransfer::In(4096));
    assert!(world.submit(0, &read));
    world.turn();
    assert!(world.submit(1, &read));
    world.target.end.leave(LeaveReason::Shutdown);
    world.turn();
    let leaves = world.log.iter().filter(|(_, frame)| frame.header.kind == FrameType::Leave as u8);
    assert_eq!(leaves.count(), 2, "one over each link");
    while world.host.end.ended().is_none() {
        world.turn();
    }
    assert_eq!(world.host.end.ended(), Some(LeaveReason::Shutdown));
    assert!(!world.submit(2, &read));
    assert!(!world.host.end.has_tx(world.now) && !world.target.end.has_tx(world.now));
    assert_eq!((world.host.end.deadline(), world.target.end.deadline()), (None, None));
    // Frames in flight are lost by now: their records are not sent again.
    let sent = world.log.len();
    world.now += Duration::from_secs(1);
    world.host.end.expire(world.now);
    world.target.end.expire(world.now);
    world.send();
    assert_eq!(world.log.len(), sent);
    assert!(world.completed.is_empty());
}

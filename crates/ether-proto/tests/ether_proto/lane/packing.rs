//! Contents of frames.

use super::request;
use super::world::{LaneRequest, LaneSetup, LaneSide, LaneWorld};
use roadtrain_ether_proto::Packing;
use roadtrain_ether_proto::frame_writer::MemoryFrame;
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::policy::{PolicyConfig, Urgency};
use roadtrain_wire::ether::{CargoRecord, CargoRecords, FRAME_HEADER_BYTES, FrameType};
use std::time::Duration;

/// Returns the kinds of a frame's records: c(ommand), d(ata), (completion) e(nd).
fn kinds(frame: &MemoryFrame) -> String {
    let kind = |record| match record {
        Ok(CargoRecord::Command(_)) => 'c',
        Ok(CargoRecord::Data { .. }) => 'd',
        Ok(CargoRecord::Completion(_)) => 'e',
        Err(error) => panic!("{error:?}"),
    };
    CargoRecords::new(&frame.body).map(kind).collect()
}

/// Returns the Cargo frames for `count` concurrent requests of `data`: to the target, and to the host.
fn cargo(setup: LaneSetup, count: u64, data: CommandTransfer) -> [Vec<String>; 2] {
    let mut world = LaneWorld::new(setup);
    world.run(&vec![request(data); count as usize], count as u32);
    [LaneSide::Target, LaneSide::Host].map(|side| {
        let is_cargo = |frame: &MemoryFrame| frame.header.kind == FrameType::Cargo as u8;
        let frames = world.log.iter().filter(|(to, frame)| *to == side && is_cargo(frame));
        frames.map(|(_, frame)| kinds(frame)).collect()
    })
}

#[test]
fn requests_share_frames() {
    let [to_target, to_host] = cargo(LaneSetup::default(), 8, CommandTransfer::In(4096));
    assert_eq!(to_target, ["cccccccc"]);
    assert_eq!(to_host, ["dede"; 4]);
    let [to_target, to_host] = cargo(LaneSetup::default(), 8, CommandTransfer::Out(4096));
    assert_eq!(to_target, ["dcdc"; 4]);
    assert_eq!(to_host, ["eeeeeeee"]);
}

#[test]
fn a_frame_has_64_records_at_most() {
    let [to_target, to_host] =
        cargo(LaneSetup { entries: 101, ..LaneSetup::default() }, 100, CommandTransfer::None);
    assert_eq!(to_target.iter().map(String::len).collect::<Vec<_>>(), [64, 36]);
    assert_eq!(to_host.iter().map(String::len).collect::<Vec<_>>(), [64, 36]);
}

#[test]
fn small_frames_carry_the_rest_together() {
    let setup = LaneSetup { frame_bytes: 1500, piece_bytes: 1408, ..LaneSetup::default() };
    let [to_target, to_host] = cargo(setup, 2, CommandTransfer::Out(4096));
    assert_eq!(to_target, ["d", "d", "dc", "d", "d", "dc"]);
    assert_eq!(to_host, ["ee"]);
    let [_, to_host] = cargo(setup, 2, CommandTransfer::In(512));
    assert_eq!(to_host, ["dede"]);
}

#[test]
fn requests_travel_alone_if_configured() {
    let packing = Packing { requests: false, pieces: true };
    let [to_target, to_host] =
        cargo(LaneSetup { packing, ..LaneSetup::default() }, 2, CommandTransfer::In(8192));
    assert_eq!(to_target, ["c", "c"]);
    assert_eq!(to_host, ["dde", "dde"]);
}

#[test]
fn pieces_travel_alone_if_configured() {
    let packing = Packing { requests: true, pieces: false };
    let [to_target, to_host] =
        cargo(LaneSetup { packing, ..LaneSetup::default() }, 2, CommandTransfer::In(8192));
    assert_eq!(to_target, ["cc"]);
    assert_eq!(to_host, ["d", "de", "d", "de"]);
    let packing = Packing { requests: false, pieces: false };
    let [to_target, _] =
        cargo(LaneSetup { packing, ..LaneSetup::default() }, 2, CommandTransfer::Out(4096));
    assert_eq!(to_target, ["dc", "dc"]);
}

#[test]
fn frames_are_no_longer_than_agreed() {
    for (frame_bytes, piece_bytes) in [(1500, 1408), (2000, 1024), (9000, 4096), (8424, 4096)] {
        let mut world =
            LaneWorld::new(LaneSetup { frame_bytes, piece_bytes, ..LaneSetup::default() });
        let data = [
            CommandTransfer::In(4096),
            CommandTransfer::Out(4096),
            CommandTransfer::In(20_000),
            CommandTransfer::Out(33_333),
        ];
        let requests: Vec<LaneRequest> = (0..200).map(|n| request(data[n % 4])).collect();
        world.run(&requests, 32);
        for (_, frame) in &world.log {
            assert!(FRAME_HEADER_BYTES + frame.body.len() <= usize::from(frame_bytes));
        }
    }
}

/// Returns the position of request `number` in the order of completions.
fn place(world: &LaneWorld, number: u64) -> usize {
    world.order.iter().position(|&n| n == number).expect("it is complete")
}

#[test]
fn a_latency_critical_request_passes_bulk() {
    let policy = PolicyConfig::auto();
    let mut world = LaneWorld::new(LaneSetup { policy, pages: 1024, ..LaneSetup::default() });
    let mut requests =
        vec![LaneRequest { data: CommandTransfer::Out(256 << 10), urgency: Urgency::Bulk }; 8];
    requests.push(LaneRequest { data: CommandTransfer::In(4096), urgency: Urgency::Critical });
    world.run(&requests, 9);
    assert_eq!(place(&world, 8), 0, "{:?}", world.order);
}

#[test]
fn large_writes_let_small_ones_through() {
    let policy = PolicyConfig::auto();
    let mut world = LaneWorld::new(LaneSetup { policy, pages: 1024, ..LaneSetup::default() });
    let mut requests = vec![request(CommandTransfer::Out(512 << 10)); 2];
    requests.extend([request(CommandTransfer::Out(4096)); 4]);
    world.run(&requests, 6);
    assert!((2..6).all(|number| place(&world, number) < 4), "{:?}", world.order);
}

#[test]
fn writes_wait_for_pages_in_order() {
    let mut world = LaneWorld::new(LaneSetup { pages: 8, ..LaneSetup::default() });
    assert_eq!(world.host.data_bytes_max(), 8 * 4096);
    let sizes = [6, 8, 1, 1, 1, 5, 1];
    let requests: Vec<LaneRequest> =
        sizes.iter().map(|pages| request(CommandTransfer::Out(pages * 4096))).collect();
    world.service = 0;
    world.run(&requests, 7);
    assert_eq!(world.order[..2], [0, 1], "the small ones that came later waited behind");
    assert!(!world.submit(100, &request(CommandTransfer::Out(8 * 4096 + 1))), "it would never fit");
}

#[test]
fn acknowledgements_leave_by_themselves() {
    let mut world = LaneWorld::new(LaneSetup::default());
    world.run(&[request(CommandTransfer::In(4096))], 1);
    let end = world.now + Duration::from_millis(1);
    while world.turn() && world.now < end {}
    assert_eq!(world.released, 1);
    let acks = world.log.iter().filter(|(_, frame)| frame.header.kind == FrameType::Ack as u8);
    assert_eq!(acks.count(), 1, "the host's; the target's went along with the data");
}

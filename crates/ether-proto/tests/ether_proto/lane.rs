//! Lanes over Ethernet: both ends' queue pairs over links in memory.
#![allow(dead_code, unreachable_pub, reason = "a test crate")]

mod hostile;
mod packing;
mod random;
mod sealed;
mod world;

use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::policy::Urgency;
use world::{LaneRequest, LaneSetup, LaneWorld};

fn request(data: CommandTransfer) -> LaneRequest {
    LaneRequest { data, urgency: Urgency::Normal }
}

#[test]
fn a_read_and_a_write_and_a_flush() {
    let mut world = LaneWorld::new(LaneSetup::default());
    world.run(
        &[CommandTransfer::In(4096), CommandTransfer::Out(4096), CommandTransfer::None]
            .map(request),
        3,
    );
    while world.released < 3 {
        assert!(world.turn());
    }
    assert_eq!(world.host.end.rejected, Default::default());
    assert_eq!(world.target.end.rejected, Default::default());
}

#[test]
fn many_requests_of_all_sizes() {
    let requests: Vec<LaneRequest> = (0..400)
        .map(|n| match n % 4 {
            0 => CommandTransfer::In(512 * (1 + n % 37)),
            1 => CommandTransfer::Out(512 * (1 + n % 41)),
            2 => CommandTransfer::In(4096),
            _ => CommandTransfer::Out(if n % 16 == 3 { 200 << 10 } else { 4096 }),
        })
        .map(request)
        .collect();
    for (frame_bytes, piece_bytes) in [(1500, 1408), (9000, 4096), (1500, 1024), (65000, 32768)] {
        for links in [1, 3] {
            let setup = LaneSetup { frame_bytes, piece_bytes, links, ..LaneSetup::default() };
            let mut world = LaneWorld::new(setup);
            world.run(&requests, 32);
        }
    }
}

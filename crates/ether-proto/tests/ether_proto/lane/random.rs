//! Random loads over random links: each request is executed once and completes once, with intact data.

use super::world::{LaneRequest, LaneSetup, LaneWire, LaneWorld};
use crate::cases::cases;
use proptest::prelude::*;
use roadtrain_ether_proto::Packing;
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_proto::policy::{PolicyConfig, PolicyKind, Urgency};

fn policies() -> impl Strategy<Value = PolicyConfig> {
    use PolicyKind::*;
    prop::sample::select(vec![None, I10, Pinof, Tyche, Auto]).prop_map(PolicyConfig::of)
}

fn wires() -> impl Strategy<Value = LaneWire> {
    (0u32..100, 0u32..100, 0u64..200, 0u64..300, any::<u64>()).prop_map(
        |(lost, repeated, delay, jitter, seed)| LaneWire { lost, repeated, delay, jitter, seed },
    )
}

fn requests() -> impl Strategy<Value = LaneRequest> {
    let urgency = prop::sample::select(vec![
        Urgency::Bulk,
        Urgency::Normal,
        Urgency::Normal,
        Urgency::Urgent,
        Urgency::Critical,
    ]);
    let bytes = prop_oneof![
        4 => (1u32..9).prop_map(|blocks| blocks * 512),
        2 => 1u32..9000,
        1 => (1u32..130).prop_map(|kib| kib << 10),
    ];
    (0..5, bytes, urgency).prop_map(|(kind, bytes, urgency)| {
        let data = match kind {
            0 => CommandTransfer::None,
            1 | 2 => CommandTransfer::In(bytes),
            _ => CommandTransfer::Out(bytes),
        };
        LaneRequest { data, urgency }
    })
}

prop_compose! {
    fn setups()(
        links in 1u8..4,
        (frame_bytes, piece_bytes) in prop::sample::select(vec![
            (1500, 1408), (1500, 1024), (4256, 4096), (9000, 4096), (9000, 8192), (65000, 32768),
        ]),
        entries in 2u16..70,
        pages in 33u32..200,
        packing in (any::<bool>(), any::<bool>()),
        policy in policies(),
        body_crc in any::<bool>(),
        wire in wires(),
    ) -> LaneSetup {
        let packing = Packing { requests: packing.0, pieces: packing.1 };
        LaneSetup { links, frame_bytes, piece_bytes, entries, pages, packing, policy, body_crc, wire }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(150)))]

    #[test]
    fn each_request_completes_exactly_once(
        setup in setups(),
        requests in prop::collection::vec(requests(), 1..80),
        depth in 1u32..70,
        service in 0u64..500,
    ) {
        let mut world = LaneWorld::new(setup);
        world.service = service;
        world.run(&requests, depth);
        let (host, target) = (world.host.end.rejected, world.target.end.rejected);
        for rejected in [host, target] {
            // Lost acknowledgements lead to late and repeated records.
            let lost = rejected.duplicates + rejected.beyond;
            let normal = rejected.late + rejected.repeated + lost;
            let all: u64 = rejected.by_reason().map(|(_, count)| count).sum();
            prop_assert_eq!(all, normal, "{:?}", rejected);
        }
        prop_assert_eq!(world.host.in_flight() + world.target.in_flight(), 0);
    }
}

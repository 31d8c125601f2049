//! Headers that no peer sends, and replayed headers.

use super::network::{Cable, NetworkFrame, NetworkRandom, NetworkWorld};
use proptest::prelude::*;
use roadtrain_ether_proto::channel::{ChannelConfig, FrameArrival, WINDOW};
use roadtrain_ether_proto::links::LaneLinks;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::{FrameHeader, FrameType, flags};
use roadtrain_wire::zerocopy::little_endian::{U16, U32, U64};
use std::time::Duration;

const FIRST: u32 = 0u32.wrapping_sub(5);

fn lane() -> LaneLinks<u32> {
    let mut links = LaneLinks::new(1, 2, 0);
    let window = WINDOW as u16;
    let config =
        ChannelConfig { link: 0, first_tx: FIRST, first_rx: FIRST, window, frame_bytes: 1500 };
    assert!(links.add(Instant(0), &config, 7));
    links
}

/// A plausible number, or any.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => (0..80u32).prop_map(|n| n.wrapping_add(FIRST).wrapping_sub(20)),
        2 => (0..3000u32).prop_map(|n| n.wrapping_add(FIRST)),
        1 => any::<u32>(),
    ]
}

fn header() -> impl Strategy<Value = FrameHeader> {
    let fields = (number(), number(), number(), any::<u16>(), any::<u16>(), any::<u64>());
    (fields, 0..16u16, 0..3u8).prop_map(|((seq, base, ack, delay, credits, sack), bits, link)| {
        FrameHeader {
            kind: FrameType::Ack as u8,
            flags: U16::new(bits),
            token: U64::new(1),
            link: link / 2,
            seq: U32::new(seq),
            base: U32::new(base),
            ack: U32::new(ack),
            delay_us: U16::new(delay),
            credits: U16::new(credits),
            sack: U64::new(sack),
            ..FrameHeader::default()
        }
    })
}

/// One action of an end.
#[derive(Clone, Debug)]
enum HostileStep {
    Send,
    Receive(FrameHeader, Vec<u8>),
    Wait(u64),
}

fn step() -> impl Strategy<Value = HostileStep> {
    let body = prop::collection::vec(any::<u8>(), 0..140);
    prop_oneof![
        4 => Just(HostileStep::Send),
        4 => (header(), body).prop_map(|(header, body)| HostileStep::Receive(header, body)),
        1 => (0..300_000_000u64).prop_map(HostileStep::Wait),
    ]
}

proptest! {
    #[test]
    fn forged_headers_free_nothing_twice_and_nothing_unsent(
        steps in prop::collection::vec(step(), 0..400)
    ) {
        let mut links = lane();
        let mut now = Instant(0);
        // Records in flight, each of them unique.
        let mut in_flight = std::collections::BTreeSet::new();
        let mut next = 0u32;
        for step in steps {
            match step {
                HostileStep::Send => {
                    if let Some(link) = links.choose(now, 100) {
                        let header = links.send(now, link, 100, &[next, next + 1]);
                        prop_assert_ne!(header.flags.get() & flags::SEQ, 0);
                        in_flight.extend([next, next + 1]);
                        next += 2;
                    }
                }
                HostileStep::Receive(header, body) => {
                    let acked = &mut |record| assert!(in_flight.remove(&record));
                    links.receive(now, &header, &body, acked);
                }
                HostileStep::Wait(ns) => {
                    now = Instant(now.0 + ns);
                    links.expire(now);
                    while let Some((link, requests_ack)) = links.ack_due(now) {
                        let mut body = [0; 120];
                        prop_assert!(links.ack_body(link, &mut body) <= 120);
                        links.send_ack(now, link, 64, requests_ack);
                    }
                }
            }
            while let Some(record) = links.next_lost() {
                prop_assert!(in_flight.remove(&record));
            }
            let stats = links.stats(0).unwrap();
            prop_assert!(stats.in_flight <= WINDOW && stats.window <= WINDOW);
            prop_assert!(in_flight.len() <= 2 * stats.in_flight as usize);
        }
        // Timers return the remaining records, whatever the end has received.
        for _ in 0..5000 {
            let Some(at) = links.deadline().filter(|_| !in_flight.is_empty()) else { break };
            now = now.max(at);
            links.expire(now);
            while let Some((link, requests_ack)) = links.ack_due(now) {
                links.send_ack(now, link, 64, requests_ack);
            }
            while let Some(record) = links.next_lost() {
                in_flight.remove(&record);
            }
        }
        prop_assert!(in_flight.is_empty(), "{} records are stuck", in_flight.len());
    }

    #[test]
    fn frames_of_others_and_headers_that_cannot_be_change_nothing(
        header in header(),
        token in any::<u64>(),
        ahead in 1..1u32 << 31,
    ) {
        let mut links = lane();
        let now = Instant(1000);
        for record in 0..8 {
            links.send(now, 0, 100, &[record]);
        }
        let before = (links.deadline(), links.ack_due(now), links.peer_socket_number(0));
        let acked = &mut |_| panic!("nothing is acknowledged");
        let mut foreign = FrameHeader { token: U64::new(token), ..header };
        if token == 1 {
            foreign.link = 1;
        }
        prop_assert_eq!(links.receive(now, &foreign, &[255; 120], acked), FrameArrival::Foreign);
        let never_sent = FrameHeader {
            link: 0,
            flags: U16::new(0),
            base: U32::new(FIRST),
            ack: U32::new(FIRST.wrapping_add(8).wrapping_add(ahead)),
            ..header
        };
        prop_assert_eq!(links.receive(now, &never_sent, &[255; 120], acked), FrameArrival::Unnumbered);
        let base_after_seq = FrameHeader {
            link: 0,
            flags: U16::new(flags::SEQ | flags::ASK),
            base: U32::new(header.seq.get().wrapping_add(ahead)),
            ..header
        };
        prop_assert_eq!(links.receive(now, &base_after_seq, &[255; 120], acked), FrameArrival::Absurd);
        prop_assert_eq!(before, (links.deadline(), links.ack_due(now), links.peer_socket_number(0)));
        prop_assert_eq!(links.stats(0).unwrap().absurd, 2);
        prop_assert!(links.has_room(now));
    }

    #[test]
    fn replayed_frames_do_no_harm(
        seed in any::<u64>(),
        loss_percent in 0..10u64,
        percent in 1..60u64,
    ) {
        let cable = Cable { loss_percent, byte_ns: 1, ..Cable::perfect() };
        let mut world = NetworkWorld::new(seed, [1500, 1500], &[cable.clone(), cable]);
        world.set_depth(2, 100);
        let mut random = NetworkRandom(seed ^ 1);
        let mut seen: Vec<(usize, NetworkFrame)> = Vec::new();
        while !world.is_done() {
            prop_assert!(world.step());
            prop_assert!(world.now < Instant(0) + Duration::from_secs(100), "takes too long");
            seen.extend(world.delivered());
            if !seen.is_empty() && random.is(percent) {
                let (to, frame) = &seen[random.below(seen.len() as u64) as usize];
                let arrival = world.ends[*to].receive(world.now, frame);
                prop_assert_ne!(arrival, FrameArrival::New);
            }
        }
    }
}

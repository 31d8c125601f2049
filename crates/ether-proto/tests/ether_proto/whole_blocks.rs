//! Data that a command needs in whole blocks is delivered so, whatever PDUs the host forms and however the network
//! splits them.

use crate::common::raw::{self, PLAIN};
use crate::common::{BLOCK, ConnectionPair, Delivery, PairSetup, pattern};
use proptest::prelude::*;
use roadtrain_proto::time::Instant;

const NOW: Instant = Instant(0);
const BLOCKS: u32 = 5;
const LEN: u32 = BLOCKS * BLOCK;

/// Returns offset and length of a `Data` event, as the target end formats them.
fn range(event: &str) -> Option<(u32, u32)> {
    let (offset, length) = event.strip_prefix("data ")?.split_once('+')?;
    Some((offset.parse().ok()?, length.parse().ok()?))
}

/// Asserts that each piece begins where the last one ended, and ends with a block until one is split.
fn assert_whole(events: &[String], is_split: bool) {
    let (mut at, mut split) = (0, None);
    for event in events {
        if let Some((offset, length)) = range(event) {
            assert_eq!(offset, at, "{events:?}");
            at += length;
            assert!(split.is_some() || at.is_multiple_of(BLOCK), "{events:?}");
        }
        if let Some(from) = event.strip_prefix("split from ") {
            assert_eq!((split.replace(from), from.parse()), (None, Ok(at)), "{events:?}");
            assert!(at.is_multiple_of(BLOCK), "{events:?}");
        }
    }
    assert_eq!((at, split.is_some()), (LEN, is_split), "{events:?}");
}

fn deliveries() -> impl Strategy<Value = Delivery> {
    prop_oneof![
        Just(Delivery::Whole),
        (1..1500usize).prop_map(Delivery::Pieces),
        (1..1500usize).prop_map(Delivery::Placed),
    ]
}

proptest! {
    #[test]
    fn blocks_come_whole_unless_the_host_splits_them(
        cuts in prop::collection::btree_set(1..LEN / 4, 0..6),
        in_capsule: bool,
        delivery in deliveries(),
    ) {
        let data = pattern(LEN, 1);
        let mut pair = ConnectionPair::connected(PairSetup::default());
        let target = &mut pair.target;
        target.whole_blocks = true;
        target.take_events();
        let cuts: Vec<u32> = if in_capsule { vec![] } else { cuts.iter().map(|c| c * 4).collect() };
        let mut stream = Vec::new();
        if in_capsule {
            stream = raw::write_in_capsule(2, &data, PLAIN);
        } else {
            target.receive(NOW, &raw::write(2, BLOCKS), Delivery::Whole).unwrap();
            let r2t = target.send(NOW);
            let ttag = u16::from_le_bytes([r2t[10], r2t[11]]);
            let mut at = 0;
            for end in cuts.iter().copied().chain([LEN]) {
                let part = &data[at as usize..end as usize];
                stream.extend(raw::h2c_data(2, ttag, at, part, end == LEN));
                at = end;
            }
        }
        target.receive(NOW, &stream, delivery).unwrap();
        let is_split = cuts.iter().any(|cut| !cut.is_multiple_of(BLOCK));
        assert_whole(&target.take_events(), is_split);
        prop_assert!(target.disk[..LEN as usize] == data[..]);
    }
}

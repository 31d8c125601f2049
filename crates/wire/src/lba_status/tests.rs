extern crate std;

use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

#[test]
fn get_lba_status_has_the_bytes_of_the_specification() {
    let get = GetLbaStatus {
        slba: 0x1122_3344_5566_7788,
        blocks: Some(0x1234),
        bytes: 4096,
        action: action::ALLOCATED,
    };
    let sqe = get.emit(7);
    let bytes = sqe.as_bytes();
    assert_eq!((bytes[0], &bytes[4..8]), (0x86, &[7, 0, 0, 0][..]));
    assert_eq!(bytes[40..48], 0x1122_3344_5566_7788_u64.to_le_bytes());
    assert_eq!(bytes[48..52], [0xff, 0x03, 0, 0], "MNDW counts from 0");
    assert_eq!(bytes[52..56], [0x34, 0x12, 0, 0x02], "RL and ATYPE");
    assert_eq!(sqe.sgl.length.get(), 4096);
    let all = GetLbaStatus { blocks: None, ..get }.emit(7);
    assert_eq!(all.as_bytes()[52..56], [0, 0, 0, 0x02]);
}

#[test]
fn lists_have_the_bytes_of_the_specification() {
    let mut place = vec![0xee; list_bytes(2) + 3];
    let mut list = LbaStatusList::new(&mut place);
    assert!(list.add(0x0102_0304_0506_0708, 0x11) && list.add(0x1102_0304_0506_0708, 1));
    list.end(condition::COMPLETE);
    let expected = [
        [2, 0, 0, 0, 2, 0, 0, 0].to_vec(),
        [8, 7, 6, 5, 4, 3, 2, 1, 0x10, 0, 0, 0, 0, 0, 0, 0].to_vec(),
        [8, 7, 6, 5, 4, 3, 2, 0x11, 0, 0, 0, 0, 0, 0, 0, 0].to_vec(),
        [0; 3].to_vec(),
    ];
    assert_eq!(place, expected.concat());
}

/// Returns the list as a host reads it: first block and number of blocks of each entry; and the reason of its end.
fn read(bytes: &[u8]) -> (Vec<(u64, u64)>, u8) {
    let (head, descriptors) = parse_list(bytes).unwrap();
    assert_eq!(head.count.get() as usize, descriptors.len());
    let blocks = |d: &LbaStatusDescriptor| (d.dslba.get(), u64::from(d.nlb.get()) + 1);
    (descriptors.iter().map(blocks).collect(), head.condition)
}

#[test]
fn neighbours_share_a_descriptor_as_far_as_it_reaches() {
    let mut place = vec![0; list_bytes(4)];
    let mut list = LbaStatusList::new(&mut place);
    let most = DESCRIPTOR_BLOCKS_MAX;
    assert!(list.add(8, 8) && list.add(16, 4) && list.add(21, 1) && list.add(22, most));
    list.end(condition::UNSPECIFIED);
    let expected = vec![(8, 12), (21, most), (21 + most, 1)];
    assert_eq!(read(&place), (expected, condition::UNSPECIFIED));
}

#[test]
fn blocks_beyond_the_buffer_are_left_out() {
    for bytes in 0..list_bytes(2) {
        let mut place = vec![0xee; bytes];
        let mut list = LbaStatusList::new(&mut place);
        let first = list.add(1, 1);
        assert_eq!(first, bytes >= list_bytes(1));
        assert!(!list.add(3, 1));
        list.end(condition::NO_ROOM);
        match bytes {
            0..8 => assert!(parse_list(&place).is_none() && place.iter().all(|&byte| byte < 2)),
            _ => assert_eq!(read(&place).0.len(), usize::from(first)),
        }
    }
}

proptest! {
    #[test]
    fn get_lba_status_round_trips(
        slba: u64, blocks in 0u16.., dwords in 1u64..1 << 30, action: u8, nsid: u32,
    ) {
        let blocks = Some(blocks).filter(|&blocks| blocks > 0);
        let get = GetLbaStatus { slba, blocks, bytes: dwords * 4, action };
        prop_assert_eq!(GetLbaStatus::parse(&get.emit(nsid)), get);
    }

    #[test]
    fn any_bytes_are_parsed_as_a_list_without_panic(bytes: Vec<u8>) {
        if let Some((head, descriptors)) = parse_list(&bytes) {
            prop_assert!(descriptors.len() <= head.count.get() as usize);
            prop_assert!(list_bytes(descriptors.len()) <= bytes.len());
        }
    }

    /// Blocks of a list are those that were added, as far as it reaches.
    #[test]
    fn lists_round_trip(
        parts in prop::collection::vec((0u64..4, 1u64..5), 0..12),
        room in 0usize..12,
    ) {
        let mut place = vec![0; list_bytes(room)];
        let mut list = LbaStatusList::new(&mut place);
        let (mut at, mut added, mut fits) = (0, Vec::new(), true);
        for (gap, blocks) in parts {
            at += gap;
            fits = fits && list.add(at, blocks);
            if fits {
                added.extend(at..at + blocks);
            }
            at += blocks;
        }
        list.end(condition::COMPLETE);
        let (ranges, _) = read(&place);
        prop_assert!(ranges.windows(2).all(|two| two[0].0 + two[0].1 < two[1].0), "{:?}", ranges);
        let told: Vec<u64> = ranges.iter().flat_map(|&(slba, blocks)| slba..slba + blocks).collect();
        prop_assert_eq!(told, added);
        prop_assert!(fits || ranges.len() == room);
    }
}

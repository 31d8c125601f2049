use super::super::guest::{ChainPart, Guest, MEMORY_BYTES};
use super::*;
use proptest::prelude::*;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const SIZE: u16 = 8;
const TABLE: u64 = 0x40_0000;

fn take(guest: &Guest, head: u16) -> Result<Chain, BadChain> {
    let mut chain = Chain::default();
    chain.take(guest.memory(), guest.table(), guest.size(), head).map(|()| chain)
}

fn put(guest: &Guest, index: u16, address: u64, length: u32, flags: u16, next: u16) {
    guest.put(guest.table(), index, Descriptor::new(address, length, flags, next));
}

#[test]
fn chains_are_taken_in_order_directly_and_from_a_table() {
    let parts = [
        ChainPart::Read(vec![1; 3]),
        ChainPart::Read(vec![2; 5]),
        ChainPart::Write(7),
        ChainPart::Write(1),
    ];
    for indirect in [false, true] {
        let mut guest = Guest::new(SIZE);
        let head =
            if indirect { guest.lay_indirect_chain(&parts) } else { guest.lay_chain(&parts) };
        let chain = take(&guest, head).unwrap();
        assert_eq!((chain.readable.bytes(), chain.writable.bytes()), (8, 8));
        let (mut cursor, mut bytes) = (SegmentCursor::default(), [0; 4]);
        chain.readable.read(&mut cursor, guest.memory(), &mut bytes).unwrap();
        assert_eq!(bytes, [1, 1, 1, 2]);
        chain.readable.read(&mut cursor, guest.memory(), &mut bytes).unwrap();
        assert_eq!(bytes, [2; 4]);
        assert!(chain.readable.read(&mut cursor, guest.memory(), &mut bytes).is_err());
        let mut cursor = SegmentCursor::default();
        chain.writable.write(&mut cursor, guest.memory(), b"12345678").unwrap();
        guest.memory().write_obj(*b"!", chain.writable.last().unwrap()).unwrap();
        assert!(chain.writable.write(&mut cursor, guest.memory(), b"9").is_err());
    }
}

#[test]
fn loops_end() {
    let guest = Guest::new(SIZE);
    put(&guest, 0, 0x1000, 1, NEXT, 1);
    put(&guest, 1, 0x1000, 1, NEXT, 0);
    assert_eq!(take(&guest, 0).unwrap_err(), BadChain::TooLong);
    put(&guest, 2, 0x1000, 1, NEXT, 2);
    assert_eq!(take(&guest, 2).unwrap_err(), BadChain::TooLong);
    // In a table of its own, too.
    put(&guest, 3, TABLE, 32, INDIRECT, 0);
    guest.put(GuestAddress(TABLE), 0, Descriptor::new(0x1000, 1, NEXT, 1));
    guest.put(GuestAddress(TABLE), 1, Descriptor::new(0x1000, 1, NEXT, 0));
    assert_eq!(take(&guest, 3).unwrap_err(), BadChain::TooLong);
}

#[test]
fn a_chain_of_all_descriptors_is_whole() {
    let mut guest = Guest::new(SIZE);
    let parts = vec![ChainPart::Read(vec![0]); usize::from(SIZE)];
    let head = guest.lay_chain(&parts);
    assert_eq!(take(&guest, head).unwrap().readable.bytes(), u32::from(SIZE));
}

#[test]
fn memory_outside_is_not_touched() {
    let guest = Guest::new(SIZE);
    let outside = |address, length| {
        put(&guest, 0, address, length, 0, 0);
        assert_eq!(take(&guest, 0).unwrap_err(), BadChain::OutsideMemory { address, length });
    };
    outside(MEMORY_BYTES, 1);
    outside(MEMORY_BYTES - 1, 2);
    outside(u64::MAX, 1);
    outside(u64::MAX - 1, u32::MAX);
    outside(0, u32::MAX);
    let no_such = |index| Err(BadChain::NoSuchDescriptor { index, size: SIZE });
    assert_eq!(take(&guest, SIZE).map(drop), no_such(SIZE));
    put(&guest, 0, 0x1000, 1, NEXT, u16::MAX);
    assert_eq!(take(&guest, 0).map(drop), no_such(u16::MAX));
    put(&guest, 0, 0x1000, 0, 0, 0);
    assert_eq!(take(&guest, 0).unwrap_err(), BadChain::Empty);
}

#[test]
fn tables_are_checked() {
    let guest = Guest::new(SIZE);
    for length in [0, 8, 17, 16 << 16] {
        put(&guest, 0, TABLE, length, INDIRECT, 0);
        assert_eq!(take(&guest, 0).unwrap_err(), BadChain::BadTable(length));
    }
    put(&guest, 0, TABLE, 16, INDIRECT | NEXT, 1);
    assert_eq!(take(&guest, 0).unwrap_err(), BadChain::NestedTable);
    put(&guest, 0, TABLE, 16, INDIRECT, 0);
    guest.put(GuestAddress(TABLE), 0, Descriptor::new(TABLE, 16, INDIRECT, 0));
    assert_eq!(take(&guest, 0).unwrap_err(), BadChain::NestedTable);
    put(&guest, 0, MEMORY_BYTES - 8, 16, INDIRECT, 0);
    assert!(matches!(take(&guest, 0).unwrap_err(), BadChain::OutsideMemory { .. }));
    put(&guest, 0, u64::MAX - 7, 32, INDIRECT, 0);
    assert!(matches!(take(&guest, 0).unwrap_err(), BadChain::OutsideMemory { .. }));
}

#[test]
fn writable_descriptors_come_last() {
    let guest = Guest::new(SIZE);
    put(&guest, 0, 0x1000, 1, NEXT | WRITE, 1);
    put(&guest, 1, 0x1000, 1, 0, 0);
    assert_eq!(take(&guest, 0).unwrap_err(), BadChain::OutOfOrder);
}

/// Addresses at the memory's borders and elsewhere.
fn addresses() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..MEMORY_BYTES,
        1 => MEMORY_BYTES - 64..MEMORY_BYTES + 64,
        1 => u64::MAX - 64..=u64::MAX,
        1 => any::<u64>(),
        2 => (0u64..16).prop_map(|index| TABLE + 16 * index),
    ]
}

fn lengths() -> impl Strategy<Value = u32> {
    let tables = (0u32..20).prop_map(|n| 16 * n);
    prop_oneof![4 => 0u32..5000, 2 => tables, 1 => any::<u32>(), 1 => u32::MAX - 64..=u32::MAX]
}

type Raw = (u64, u32, u16, u16);

fn descriptors() -> impl Strategy<Value = Vec<Raw>> {
    let flags = prop_oneof![8 => 0u16..8, 1 => any::<u16>()];
    let next = prop_oneof![8 => 0u16..SIZE, 1 => any::<u16>()];
    proptest::collection::vec((addresses(), lengths(), flags, next), 24)
}

proptest! {
    /// For any content of the table: taking terminates, its ranges are inside the memory, and have the declared length.
    #[test]
    fn no_chain_leads_outside(raw in descriptors(), head in 0..SIZE + 2) {
        let guest = Guest::new(SIZE);
        for (index, &(address, length, flags, next)) in raw.iter().enumerate() {
            let descriptor = Descriptor::new(address, length, flags, next);
            let (table, index) = match (index as u16).checked_sub(SIZE) {
                None => (guest.table(), index as u16),
                Some(index) => (GuestAddress(TABLE), index),
            };
            guest.put(table, index, descriptor);
        }
        let Ok(chain) = take(&guest, head) else { return Ok(()) };
        for segments in [&chain.readable, &chain.writable] {
            prop_assert!(segments.list.len() <= usize::from(CHAIN_MAX));
            let inside = |s: &ChainSegment| {
                s.length > 0 && s.address.0 + u64::from(s.length) <= MEMORY_BYTES
            };
            prop_assert!(segments.list.iter().all(inside));
            let bytes: u64 = segments.list.iter().map(|s| u64::from(s.length)).sum();
            prop_assert_eq!(bytes, u64::from(segments.bytes()));
        }
        // All bytes can be read, and no more.
        let (mut cursor, mut left) = (SegmentCursor::default(), chain.readable.bytes() as usize);
        let mut bytes = vec![0; 4096];
        while left > 0 {
            let now = left.min(bytes.len());
            chain.readable.read(&mut cursor, guest.memory(), &mut bytes[..now]).unwrap();
            left -= now;
        }
        prop_assert!(chain.readable.read(&mut cursor, guest.memory(), &mut [0]).is_err());
    }
}

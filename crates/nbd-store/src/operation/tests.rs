use super::*;
use roadtrain_wire::lba_status::{list_bytes, parse_list};

const ALL: u16 = transmission_flag::SEND_FLUSH
    | transmission_flag::SEND_FUA
    | transmission_flag::SEND_TRIM
    | transmission_flag::SEND_WRITE_ZEROES;

fn terms(flags: u16) -> NbdTerms {
    NbdTerms { bytes: 1 << 40, flags, bytes_max: 8192, ..NbdTerms::default() }
}

fn range(offset: u64, len: u64) -> ByteRange {
    ByteRange { offset, len }
}

/// Requests of an operation whose requests succeed.
fn requests(operation: &mut NbdOperation, terms: &NbdTerms) -> Vec<(Command, u16, u64, u32)> {
    let mut requests = Vec::new();
    while let OperationStep::Request(request) = operation.step(terms, 512) {
        let NbdClientRequest { command, flags, offset, length } = request;
        requests.push((command, flags, offset, length));
        operation.replied(Ok(())).unwrap();
    }
    requests
}

fn of(op: StoreOperation, bytes: usize, flags: u16) -> Vec<(Command, u16, u64, u32)> {
    let buffer = (bytes > 0).then(|| Buffer::alloc(bytes));
    requests(&mut NbdOperation::new(op, buffer), &terms(flags))
}

#[test]
fn operations_become_requests() {
    let fua = command_flag::FUA;
    let write = |fua| StoreOperation::Write { offset: 512, fua };
    assert_eq!(
        of(StoreOperation::Read { offset: 512 }, 8704, ALL),
        [(Command::READ, 0, 512, 8192), (Command::READ, 0, 8704, 512)]
    );
    assert_eq!(of(write(false), 512, ALL), [(Command::WRITE, 0, 512, 512)]);
    assert_eq!(
        of(write(true), 8704, ALL),
        [(Command::WRITE, fua, 512, 8192), (Command::WRITE, fua, 8704, 512)]
    );
    assert_eq!(of(StoreOperation::Flush, 0, ALL), [(Command::FLUSH, 0, 0, 0)]);
    assert_eq!(of(StoreOperation::Flush, 0, 0), []);
    let discard = StoreOperation::Discard { range: range(512, 1 << 31) };
    assert_eq!(
        of(discard, 0, ALL),
        [(Command::TRIM, 0, 512, 1 << 30), (Command::TRIM, 0, 512 + (1 << 30), 1 << 30)]
    );
    assert_eq!(of(discard, 0, 0), [], "advice that the server does not know");
}

/// Zeroes are written in any case; only one that may deallocate lets the server do so.
#[test]
fn zeroes_are_exact() {
    let zero = |deallocate| StoreOperation::WriteZeroes { range: range(0, 16384), deallocate };
    let no_hole = command_flag::NO_HOLE;
    assert_eq!(of(zero(false), 0, ALL), [(Command::WRITE_ZEROES, no_hole, 0, 16384)]);
    assert_eq!(of(zero(true), 0, ALL), [(Command::WRITE_ZEROES, 0, 0, 16384)]);
    let written = [(Command::WRITE, 0, 0, 8192), (Command::WRITE, 0, 8192, 8192)];
    assert_eq!(of(zero(true), 0, 0), written);
    let mut refused = NbdOperation::new(zero(true), None);
    refused.step(&terms(ALL), 512);
    refused.replied(Err(Errno::ENOTSUP)).unwrap();
    assert_eq!(requests(&mut refused, &terms(ALL)), written);
}

#[test]
fn a_forced_write_without_fua_needs_a_flush() {
    for (flags, is_unforced) in [(ALL, false), (transmission_flag::SEND_FLUSH, true)] {
        let op = StoreOperation::Write { offset: 0, fua: true };
        let mut write = NbdOperation::new(op, Some(Buffer::alloc(512)));
        requests(&mut write, &terms(flags));
        assert_eq!(write.is_unforced, is_unforced);
    }
}

#[test]
fn a_lost_request_is_the_same_again() {
    let op = StoreOperation::Write { offset: 512, fua: false };
    let mut write = NbdOperation::new(op, Some(Buffer::alloc(16384)));
    let terms = terms(ALL);
    write.step(&terms, 512);
    write.replied(Ok(())).unwrap();
    let second = write.step(&terms, 512);
    assert_eq!(write.step(&terms, 512), second);
    assert_eq!(write.payload().unwrap().len(), 8192);
}

#[test]
fn data_goes_where_it_belongs() {
    let buffer = Buffer::alloc(8704);
    let mut read = NbdOperation::new(StoreOperation::Read { offset: 0 }, Some(buffer));
    read.step(&terms(ALL), 512);
    read.receive_data(512, &[1; 512]);
    read.replied(Ok(())).unwrap();
    read.step(&terms(ALL), 512);
    read.receive_data(0, &[2; 256]);
    read.receive_data(256, &[3; 256]);
    read.receive_zeroes(256..300);
    let buffer = read.buffer.unwrap();
    assert!(buffer[512..1024] == [1; 512] && buffer[8192..8448] == [2; 256]);
    assert!(buffer[8448..8492] == [0; 44] && buffer[8492..] == [3; 212]);
}

#[test]
fn compares_end_at_the_first_difference() {
    for (found, differs) in [(5u8, false), (6, true)] {
        let mut buffer = Buffer::alloc(16384);
        buffer.fill(5);
        let mut compare = NbdOperation::new(StoreOperation::Compare { offset: 0 }, Some(buffer));
        compare.step(&terms(0), 512);
        compare.receive_data(0, &[found; 8192]);
        compare.replied(Ok(())).unwrap();
        let has_ended = compare.step(&terms(0), 512) == OperationStep::Done;
        assert_eq!(has_ended, differs);
        let expected = if differs { Err(Status::COMPARE_FAILURE.dnr()) } else { Ok(()) };
        assert_eq!(compare.finish(9), expected);
    }
    let mut zeroes =
        NbdOperation::new(StoreOperation::Compare { offset: 0 }, Some(Buffer::alloc(512)));
    zeroes.step(&terms(0), 512);
    zeroes.receive_zeroes(0..512);
    assert_eq!(zeroes.finish(9), Ok(()));
}

/// Runs a query of 100 blocks with these extents, each a reply; returns the ranges and the condition.
fn query(replies: &[&[(u32, u32)]], descriptors: usize) -> (Vec<(u64, u64)>, u8) {
    let op = StoreOperation::QueryAllocation { range: range(51200, 51200) };
    let buffer = Buffer::alloc(list_bytes(descriptors));
    let mut query = NbdOperation::new(op, Some(buffer));
    let terms = NbdTerms { allocation: Some(0), ..terms(ALL) };
    for extents in replies {
        let step = query.step(&terms, 512);
        assert!(matches!(step, OperationStep::Request(_)), "a query too few");
        match extents {
            [] => query.replied(Err(Errno::EIO)).unwrap(),
            _ => {
                extents.iter().for_each(|(length, state)| query.receive_extent(*length, *state));
                query.replied(Ok(())).unwrap();
            }
        }
    }
    assert_eq!(query.step(&terms, 512), OperationStep::Done);
    query.finish(9).unwrap();
    let buffer = query.buffer.unwrap();
    let (head, descriptors) = parse_list(&buffer).unwrap();
    let ranges = descriptors.iter().map(|d| (d.dslba.get(), u64::from(d.nlb.get()) + 1)).collect();
    (ranges, head.condition)
}

#[test]
fn only_holes_of_zeroes_are_not_allocated() {
    let (data, hole, zero) = (0, allocation_state::HOLE, allocation_state::ZERO);
    let complete = condition::COMPLETE;
    assert_eq!(query(&[&[(51200, hole | zero)]], 4), (vec![], complete));
    assert_eq!(
        query(&[&[(51200, hole)]], 4),
        (vec![(100, 100)], complete),
        "what it reads as is open"
    );
    assert_eq!(query(&[&[(51200, zero)]], 4), (vec![(100, 100)], complete), "zeroes on disk");
    assert_eq!(query(&[&[(51200, data)]], 4), (vec![(100, 100)], complete));
    let halves: &[&[(u32, u32)]] = &[&[(512, data)], &[(50688, hole | zero)]];
    assert_eq!(query(halves, 4), (vec![(100, 1)], complete));
    assert_eq!(query(&[&[]], 4), (vec![(100, 100)], complete), "an error");
    // Parts of a block make it allocated, once.
    let parts: &[&[(u32, u32)]] = &[&[(100, data), (100, 3), (100, data), (50900, 3)]];
    assert_eq!(query(parts, 4), (vec![(100, 1)], complete));
    let many: &[&[(u32, u32)]] = &[&[(512, data), (512, 3), (512, data), (49664, 3)]];
    assert_eq!(query(many, 1), (vec![(100, 1)], condition::NO_ROOM));
    assert_eq!(query(many, 2), (vec![(100, 1), (102, 1)], complete));
}

#[test]
fn errors_have_their_statuses() {
    for (errno, read, write) in [
        (Errno::EIO, Status::UNRECOVERED_READ_ERROR, Status::WRITE_FAULT),
        (Errno::EPERM, Status::ACCESS_DENIED, Status::NAMESPACE_WRITE_PROTECTED),
        (Errno::ENOSPC, Status::CAPACITY_EXCEEDED, Status::CAPACITY_EXCEEDED),
        (Errno::ENOMEM, Status::COMMAND_INTERRUPTED, Status::COMMAND_INTERRUPTED),
        (Errno::EINVAL, Status::INTERNAL_ERROR, Status::INTERNAL_ERROR),
        (Errno::EOVERFLOW, Status::INTERNAL_ERROR, Status::INTERNAL_ERROR),
        (Errno(999), Status::UNRECOVERED_READ_ERROR, Status::WRITE_FAULT),
    ] {
        assert!(status(errno, false).is(read), "{errno}");
        assert!(status(errno, true).is(write), "{errno}");
    }
}

use super::*;
use proptest::prelude::*;

fn read(offset: u64, length: u32) -> NbdClientRequest {
    NbdClientRequest { command: Command::READ, flags: 0, offset, length }
}

fn of(command: Command) -> NbdClientRequest {
    NbdClientRequest { command, flags: 0, offset: 0, length: 4096 }
}

fn chunk(request: &NbdRequest, code: ChunkCode, is_last: bool, payload: &[u8]) -> Vec<u8> {
    let flags = if is_last { CHUNK_FLAG_DONE } else { 0 };
    let length = payload.len() as u32;
    let head = NbdChunk { flags, code, cookie: request.cookie, length };
    [&head.emit()[..], payload].concat()
}

fn data(request: &NbdRequest, offset: u64, bytes: &[u8], is_last: bool) -> Vec<u8> {
    let payload = [&offset.to_be_bytes()[..], bytes].concat();
    chunk(request, ChunkCode::OFFSET_DATA, is_last, &payload)
}

fn hole(request: &NbdRequest, offset: u64, length: u32, is_last: bool) -> Vec<u8> {
    let payload = [&offset.to_be_bytes()[..], &length.to_be_bytes()].concat();
    chunk(request, ChunkCode::OFFSET_HOLE, is_last, &payload)
}

fn error(request: &NbdRequest, errno: Errno, text: &str) -> Vec<u8> {
    let length = (text.len() as u16).to_be_bytes();
    let payload = [&errno.0.to_be_bytes()[..], &length, text.as_bytes()].concat();
    chunk(request, ChunkCode::ERROR, true, &payload)
}

fn extents(request: &NbdRequest, context: u32, extents: &[(u32, u32)]) -> Vec<u8> {
    let mut payload = context.to_be_bytes().to_vec();
    for (length, state) in extents {
        payload.extend(length.to_be_bytes());
        payload.extend(state.to_be_bytes());
    }
    chunk(request, ChunkCode::BLOCK_STATUS, true, &payload)
}

type RequestResult = Result<(), (Errno, String)>;

/// Result of replies: what a read of `length` bytes contains, the extents, and the results in order.
#[derive(Debug, Default, PartialEq)]
struct ReceivedReplies {
    data: Vec<u8>,
    extents: Vec<(u32, u32)>,
    done: Vec<(u32, RequestResult)>,
}

/// Feeds bytes in portions of `step`.
fn feed(
    replies: &mut NbdReplies,
    bytes: &[u8],
    step: usize,
) -> Result<ReceivedReplies, NbdServerError> {
    let mut received = ReceivedReplies { data: vec![0xee; 64], ..ReceivedReplies::default() };
    for mut portion in bytes.chunks(step) {
        loop {
            let (used, event) = replies.receive(portion)?;
            portion = &portion[used..];
            match event {
                None => break,
                Some(NbdReplyEvent::Data { at, bytes, .. }) => {
                    received.data[at..at + bytes.len()].copy_from_slice(bytes);
                }
                Some(NbdReplyEvent::Zeroes { range, .. }) => received.data[range].fill(0),
                Some(NbdReplyEvent::Extent { length, state, .. }) => {
                    received.extents.push((length, state));
                }
                Some(NbdReplyEvent::Done { operation, result }) => {
                    received.done.push((operation, result));
                }
            }
        }
    }
    Ok(received)
}

#[test]
fn simple_replies_in_any_portions() {
    for step in 1..80 {
        let mut replies = NbdReplies::new(false, None);
        let first = replies.begin(1, read(512, 64));
        let second = replies.begin(2, of(Command::WRITE));
        assert_ne!(first.cookie, second.cookie);
        let failed = SimpleReply { errno: Errno::ENOSPC, cookie: second.cookie }.emit();
        let read = SimpleReply { errno: Errno::OK, cookie: first.cookie }.emit();
        let bytes = [&failed[..], &read, &[7; 64]].concat();
        let received = feed(&mut replies, &bytes, step).unwrap();
        assert_eq!(received.data, [7; 64]);
        let none = String::new();
        assert_eq!(received.done, [(2, Err((Errno::ENOSPC, none))), (1, Ok(()))], "step {step}");
        assert_eq!(replies.count(), 0);
    }
}

#[test]
fn structured_replies_in_any_order_and_portions() {
    for step in 1..120 {
        let mut replies = NbdReplies::new(true, Some(3));
        let one = replies.begin(1, read(1000, 64));
        let status = replies.begin(2, of(Command::BLOCK_STATUS));
        let write = replies.begin(3, of(Command::WRITE));
        let bytes = [
            data(&one, 1032, &[2; 16], false),
            extents(&status, 3, &[(512, 0), (100_000, 3)]),
            hole(&one, 1048, 16, false),
            error(&write, Errno::EIO, "bad\n"),
            data(&one, 1000, &[1; 32], false),
            chunk(&one, ChunkCode::NONE, true, &[]),
        ]
        .concat();
        let received = feed(&mut replies, &bytes, step).unwrap();
        assert_eq!(received.data, [vec![1; 32], vec![2; 16], vec![0; 16]].concat());
        assert_eq!(received.extents, [(512, 0), (3584, 3)], "no more than the range");
        let why = Err((Errno::EIO, "bad\\n".to_owned()));
        assert_eq!(received.done, [(2, Ok(())), (3, why), (1, Ok(()))]);
    }
}

#[test]
fn an_error_of_an_unknown_type_is_one() {
    let mut replies = NbdReplies::new(true, None);
    let one = replies.begin(1, read(0, 64));
    let payload = [&Errno::EIO.0.to_be_bytes()[..], &[0, 0], &[9; 8]].concat();
    let bytes = chunk(&one, ChunkCode(ERROR_BIT | 99), false, &payload);
    let end = chunk(&one, ChunkCode::NONE, true, &[]);
    let received = feed(&mut replies, &[bytes, end].concat(), 7).unwrap();
    assert_eq!(received.done, [(1, Err((Errno::EIO, String::new())))]);
}

#[test]
fn a_cookie_is_valid_once() {
    let mut replies = NbdReplies::new(false, None);
    let first = replies.begin(1, of(Command::FLUSH));
    let reply = SimpleReply { errno: Errno::OK, cookie: first.cookie }.emit();
    feed(&mut replies, &reply, 99).unwrap();
    replies.begin(2, of(Command::FLUSH));
    let error = feed(&mut replies, &reply, 99).unwrap_err().to_string();
    assert!(error.contains("cookie") && error.contains("no request in flight"), "{error}");
}

type MakeReply = fn(&NbdRequest) -> Vec<u8>;

#[test]
fn what_breaks_the_protocol_is_named() {
    let cases: [(Command, MakeReply, &str); 17] = [
        (Command::READ, |_| vec![0; 4], "magic 0x0"),
        (
            Command::READ,
            |r| SimpleReply { errno: Errno::OK, cookie: r.cookie }.emit().into(),
            "structured",
        ),
        (Command::READ, |r| chunk(r, ChunkCode::NONE, true, &[]), "data 0"),
        (Command::READ, |r| data(r, 0, &[1; 63], true), "data 63"),
        (Command::READ, |r| data(r, 1, &[1; 64], true), "offset 1"),
        (Command::READ, |r| data(r, u64::MAX, &[1; 64], true), "offset 18446744073709551615"),
        (Command::READ, |r| data(r, 0, &[1; 65], true), "length 73"),
        (
            Command::READ,
            |r| [data(r, 0, &[1; 32], false), data(r, 31, &[1; 8], false)].concat(),
            "comes twice",
        ),
        (
            Command::READ,
            |r| [data(r, 8, &[1; 8], false), hole(r, 0, 9, false)].concat(),
            "comes twice",
        ),
        (Command::READ, |r| hole(r, 0, 0, true), "a hole has bytes"),
        (Command::READ, |r| chunk(r, ChunkCode::OFFSET_DATA, true, &[0; 8]), "length 8"),
        (Command::READ, |r| chunk(r, ChunkCode(4), true, &[]), "type 0x4"),
        (Command::READ, |r| error(r, Errno::OK, ""), "error OK"),
        (
            Command::READ,
            |r| chunk(r, ChunkCode::ERROR, true, &[0, 0, 0, 5, 0, 9]),
            "message length 9",
        ),
        (Command::WRITE, |r| data(r, 0, &[1; 8], true), "type OFFSET_DATA"),
        (Command::BLOCK_STATUS, |r| extents(r, 4, &[(512, 0)]), "context 4"),
        (Command::BLOCK_STATUS, |r| extents(r, 3, &[(4096, 0), (512, 0)]), "extent 512"),
    ];
    for (command, make, why) in cases {
        let mut replies = NbdReplies::new(true, Some(3));
        let request = if command == Command::READ { read(0, 64) } else { of(command) };
        let request = replies.begin(1, request);
        let error = feed(&mut replies, &make(&request), 99).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
    let mut plain = NbdReplies::new(false, None);
    let request = plain.begin(1, read(0, 64));
    let error = feed(&mut plain, &chunk(&request, ChunkCode::NONE, true, &[]), 99).unwrap_err();
    assert!(error.to_string().contains("magic 0x668e33ef"), "not agreed on: {error}");
}

proptest! {
    /// Any pieces of a read, in any order: each byte is received once, and no portion changes the result.
    #[test]
    fn a_read_in_any_pieces(cuts in prop::collection::btree_set(1u64..64, 0..12), seed: u64,
                            step in 1usize..200) {
        let edges: Vec<u64> = [0].into_iter().chain(cuts).chain([64]).collect();
        let mut pieces: Vec<(u64, u64)> =
            edges.windows(2).map(|pair| (pair[0], pair[1])).collect();
        let length = pieces.len();
        (0..length).for_each(|i| pieces.swap(i, (seed.rotate_left(i as u32) % length as u64) as usize));
        let mut replies = NbdReplies::new(true, None);
        let request = replies.begin(5, read(4096, 64));
        let mut bytes = Vec::new();
        for (index, (from, to)) in pieces.iter().enumerate() {
            let is_last = index + 1 == length;
            let content: Vec<u8> = (*from..*to).map(|byte| byte as u8).collect();
            bytes.extend(match seed >> index & 1 {
                0 => data(&request, 4096 + from, &content, is_last),
                _ => hole(&request, 4096 + from, (to - from) as u32, is_last),
            });
        }
        let received = feed(&mut replies, &bytes, step).unwrap();
        let mut expected: Vec<u8> = (0..64).collect();
        for (index, (from, to)) in pieces.iter().enumerate() {
            if seed >> index & 1 == 1 {
                expected[*from as usize..*to as usize].fill(0);
            }
        }
        prop_assert_eq!(received.data, expected);
        prop_assert_eq!(received.done, vec![(5, Ok(()))]);
    }

    #[test]
    fn any_bytes_are_processed_without_panic(bytes: Vec<u8>, is_structured: bool) {
        let mut replies = NbdReplies::new(is_structured, Some(0));
        replies.begin(1, read(0, 64));
        replies.begin(2, of(Command::BLOCK_STATUS));
        let _ = feed(&mut replies, &bytes, 3);
    }
}

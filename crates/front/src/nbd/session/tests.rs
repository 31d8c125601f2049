use super::super::export::{NbdExport, test_info};
use super::*;
use crate::bitmaps::{BitmapSpec, DirtyBitmaps, GRANULARITY_BYTES};
use proptest::prelude::*;
use roadtrain_wire::nbd::{
    BASE_ALLOCATION, ChunkCode, Command, Errno, InfoCode, NbdChunk, NbdExtent, OptionCode,
    OptionHeader, OptionReplyCode, OptionReplyHeader, PAYLOAD_BYTES_MAX, SimpleReply, command_flag,
    transmission_flag,
};

struct SessionPair {
    session: NbdSession,
    export: Arc<NbdExport>,
    out: ReplyQueue,
}

/// A reply to an option: its code, and its data.
type OptionReply = (OptionReplyCode, Vec<u8>);

impl SessionPair {
    /// Makes a session whose client flags were `flags`.
    fn new(flags: u32) -> Self {
        let mut pair = SessionPair::greeted();
        assert_eq!(pair.feed(&flags.to_be_bytes()), NbdEvent::Handled);
        pair
    }

    fn greeted() -> Self {
        SessionPair::greeted_with(false)
    }

    /// Makes a session that requires TLS, whose client has sent its flags.
    fn requiring_tls() -> Self {
        let mut pair = SessionPair::greeted_with(true);
        assert_eq!(pair.feed(&3u32.to_be_bytes()), NbdEvent::Handled);
        pair
    }

    fn greeted_with(requires_tls: bool) -> Self {
        let export = Arc::new(NbdExport::new(test_info()).unwrap());
        let mut out = ReplyQueue::default();
        let session = NbdSession::new(export.clone(), requires_tls, &mut out);
        assert_eq!(Greeting::parse(&out.take()).unwrap().flags(), 3);
        SessionPair { session, export, out }
    }

    /// Makes a session in transmission.
    fn ready(structured: bool) -> Self {
        let mut pair = SessionPair::new(3);
        if structured {
            assert_eq!(pair.option(OptionCode::STRUCTURED_REPLY, &[])[0].0, OptionReplyCode::ACK);
            let context = [&[0; 4], &1u32.to_be_bytes()[..], &string(BASE_ALLOCATION)].concat();
            let replies = pair.option(OptionCode::SET_META_CONTEXT, &context);
            assert_eq!(replies[0].1, [&[0, 0, 0, 1], BASE_ALLOCATION.as_bytes()].concat());
        }
        let replies = pair.option(OptionCode::GO, &info_query(&[]));
        assert_eq!(replies.last().unwrap().0, OptionReplyCode::ACK);
        assert!(pair.session.in_transmission());
        pair
    }

    /// Feeds one whole message.
    fn feed(&mut self, bytes: &[u8]) -> NbdEvent {
        let (used, event) = self.session.handle(bytes, &mut self.out);
        assert_eq!(used, bytes.len());
        event
    }

    fn option(&mut self, option: OptionCode, data: &[u8]) -> Vec<OptionReply> {
        let event = self.feed(&option_bytes(option, data));
        assert_eq!(event, NbdEvent::Handled);
        self.replies(option)
    }

    fn replies(&mut self, option: OptionCode) -> Vec<OptionReply> {
        let bytes = self.out.take();
        let (mut rest, mut replies) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let header = OptionReplyHeader::parse(rest).unwrap();
            assert_eq!(header.option(), option);
            let end = OptionReplyHeader::BYTES + header.length() as usize;
            replies.push((header.reply(), rest[OptionReplyHeader::BYTES..end].to_vec()));
            rest = &rest[end..];
        }
        replies
    }

    fn refusal(&mut self, option: OptionCode, data: &[u8]) -> OptionReplyCode {
        let replies = self.option(option, data);
        assert_eq!(replies.len(), 1, "{replies:?}");
        replies[0].0
    }

    /// Returns the error with which a request is refused.
    fn refused(&mut self, command: Command, flags: u16, offset: u64, length: u32) -> Errno {
        let request = request(command, flags, offset, length);
        assert_eq!(self.feed(&request.emit()), NbdEvent::Handled, "{request:?}");
        let bytes = self.out.take();
        match NbdChunk::parse(&bytes) {
            Ok(chunk) => {
                assert_eq!((chunk.code, chunk.flags, chunk.cookie), (ChunkCode::ERROR, 1, 7));
                assert_eq!(bytes.len(), NbdChunk::BYTES + chunk.length as usize);
                let message = usize::from(bytes[24]) << 8 | usize::from(bytes[25]);
                assert_eq!(chunk.length as usize, 6 + message);
                Errno(u32::from_be_bytes(bytes[20..24].try_into().unwrap()))
            }
            Err(_) => SimpleReply::parse(&bytes).unwrap().errno,
        }
    }

    fn accepted(&mut self, command: Command, flags: u16, offset: u64, length: u32) {
        let request = request(command, flags, offset, length);
        assert_eq!(self.feed(&request.emit()), NbdEvent::Request(request));
    }
}

fn request(command: Command, flags: u16, offset: u64, length: u32) -> NbdRequest {
    NbdRequest { flags, command, cookie: 7, offset, length }
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn option_bytes(option: OptionCode, data: &[u8]) -> Vec<u8> {
    [OptionHeader::new(option, data.len() as u32).as_bytes(), data].concat()
}

fn info_query(infos: &[InfoCode]) -> Vec<u8> {
    let mut data = string("any");
    data.extend((infos.len() as u16).to_be_bytes());
    infos.iter().for_each(|info| data.extend(info.0.to_be_bytes()));
    data
}

#[test]
fn unknown_client_flags_end_the_session() {
    let mut pair = SessionPair::greeted();
    let misbehaved = NbdViolation::ClientFlags(4);
    assert_eq!(
        pair.feed(&[0, 0, 0, 4]),
        NbdEvent::Close(NbdCloseReason::PeerMisbehaved(misbehaved))
    );
    assert_eq!(pair.feed(b"more"), NbdEvent::More, "nothing is handled after the end");
}

#[test]
fn export_name_answers_with_or_without_zeroes() {
    for (flags, bytes) in [(3, 10), (1, 134), (0, 134)] {
        let mut pair = SessionPair::new(flags);
        assert_eq!(pair.feed(&option_bytes(OptionCode::EXPORT_NAME, b"x")), NbdEvent::Handled);
        let answer = pair.out.take();
        assert_eq!(answer.len(), bytes);
        assert_eq!(answer[..8], (1u64 << 20).to_be_bytes());
        assert!(pair.session.in_transmission());
    }
}

#[test]
fn export_name_hangs_up_where_it_cannot_serve() {
    let mut pair = SessionPair::new(3);
    pair.export.disk().remove();
    let event = pair.feed(&option_bytes(OptionCode::EXPORT_NAME, b""));
    assert_eq!(event, NbdEvent::Close(NbdCloseReason::Removed));
    for name in [&b"\xff"[..], &[b'a'; 5000]] {
        let event = SessionPair::new(3).feed(&option_bytes(OptionCode::EXPORT_NAME, name));
        assert!(matches!(event, NbdEvent::Close(NbdCloseReason::PeerMisbehaved(_))));
    }
}

#[test]
fn abort_is_acknowledged() {
    let mut pair = SessionPair::new(3);
    let event = pair.feed(&option_bytes(OptionCode::ABORT, &[]));
    assert_eq!(event, NbdEvent::Close(NbdCloseReason::Abort));
    assert_eq!(pair.replies(OptionCode::ABORT), [(OptionReplyCode::ACK, vec![])]);
}

#[test]
fn list_names_the_export_while_it_is_there() {
    let mut pair = SessionPair::new(3);
    let server = [string("disk"), b"a test disk".to_vec()].concat();
    assert_eq!(
        pair.option(OptionCode::LIST, &[]),
        [(OptionReplyCode::SERVER, server), (OptionReplyCode::ACK, vec![])]
    );
    assert_eq!(pair.refusal(OptionCode::LIST, &[0]), OptionReplyCode::ERR_INVALID);
    pair.export.disk().remove();
    assert_eq!(pair.option(OptionCode::LIST, &[]), [(OptionReplyCode::ACK, vec![])]);
}

#[test]
fn info_returns_each_requested_item_once() {
    let mut pair = SessionPair::new(3);
    let infos = [InfoCode::BLOCK_SIZE, InfoCode(77), InfoCode::NAME, InfoCode::NAME];
    let replies = pair.option(OptionCode::INFO, &info_query(&infos));
    let kinds: Vec<_> =
        replies.iter().map(|(reply, data)| (*reply, data.get(1).copied())).collect();
    use OptionReplyCode as Code;
    let wanted =
        [(Code::INFO, Some(0)), (Code::INFO, Some(3)), (Code::INFO, Some(1)), (Code::ACK, None)];
    assert_eq!(kinds, wanted);
    let flags = u16::from_be_bytes(replies[0].1[10..].try_into().unwrap());
    assert_eq!(flags & transmission_flag::SEND_DF, 0, "not without structured replies");
    assert_eq!(replies[1].1[2..], [0, 0, 2, 0, 0, 0, 16, 0, 2, 0, 0, 0]);
    assert_eq!(replies[2].1[2..], *b"disk");
    assert!(!pair.session.in_transmission());
    assert_eq!(pair.refusal(OptionCode::INFO, &[0; 5]), Code::ERR_INVALID);
}

#[test]
fn go_is_refused_when_malformed_or_gone_and_sees_the_present_size() {
    let mut pair = SessionPair::new(3);
    assert_eq!(pair.refusal(OptionCode::GO, &[]), OptionReplyCode::ERR_INVALID);
    pair.export.disk().remove();
    let gone = pair.refusal(OptionCode::GO, &info_query(&[]));
    assert_eq!(gone, OptionReplyCode::ERR_UNKNOWN);
    assert!(!pair.session.in_transmission());
    pair.export.disk().restore();
    pair.export.disk().resize(1);
    let replies = pair.option(OptionCode::GO, &info_query(&[]));
    assert_eq!(replies[0].1[2..10], 512u64.to_be_bytes());
    assert!(pair.session.in_transmission());
}

#[test]
fn meta_contexts_need_structured_replies() {
    let mut pair = SessionPair::new(3);
    let all = [&[0; 4], &[0; 4][..]].concat();
    for option in [OptionCode::LIST_META_CONTEXT, OptionCode::SET_META_CONTEXT] {
        assert_eq!(pair.refusal(option, &all), OptionReplyCode::ERR_INVALID);
    }
    let refused = pair.refusal(OptionCode::STRUCTURED_REPLY, &[1]);
    assert_eq!(refused, OptionReplyCode::ERR_INVALID);
    pair.option(OptionCode::STRUCTURED_REPLY, &[]);
    assert_eq!(pair.option(OptionCode::LIST_META_CONTEXT, &all).len(), 2);
    assert_eq!(pair.option(OptionCode::SET_META_CONTEXT, &all).len(), 1);
    let query = |text: &str| [&[0; 4], &1u32.to_be_bytes()[..], &string(text)].concat();
    assert_eq!(pair.option(OptionCode::LIST_META_CONTEXT, &query("base:")).len(), 2);
    assert_eq!(pair.option(OptionCode::LIST_META_CONTEXT, &query("x-dirty:")).len(), 1);
    assert_eq!(pair.option(OptionCode::SET_META_CONTEXT, &query("base:")).len(), 1);
    assert_eq!(pair.option(OptionCode::SET_META_CONTEXT, &query(BASE_ALLOCATION)).len(), 2);
    let refused = pair.refusal(OptionCode::SET_META_CONTEXT, &all[..7]);
    assert_eq!(refused, OptionReplyCode::ERR_INVALID);
    // The failed choice left none chosen.
    pair.option(OptionCode::GO, &info_query(&[]));
    assert_eq!(pair.refused(Command::BLOCK_STATUS, 0, 0, 512), Errno::EINVAL);
}

#[test]
fn other_options_are_refused_politely() {
    let mut pair = SessionPair::new(3);
    let mut refusal = |option, data: &[u8]| pair.refusal(option, data);
    assert_eq!(refusal(OptionCode::STARTTLS, &[]), OptionReplyCode::ERR_POLICY);
    assert_eq!(refusal(OptionCode::PEEK_EXPORT, b"x"), OptionReplyCode::ERR_UNSUP);
    assert_eq!(refusal(OptionCode::EXTENDED_HEADERS, &[]), OptionReplyCode::ERR_UNSUP);
    assert_eq!(refusal(OptionCode(4711), &[1, 2, 3]), OptionReplyCode::ERR_UNSUP);
    assert_eq!(pair.option(OptionCode::LIST, &[]).len(), 2, "and the session goes on");
}

#[test]
fn long_options_are_skipped_and_absurd_ones_end_the_session() {
    let mut pair = SessionPair::new(3);
    let long = option_bytes(OptionCode::INFO, &vec![0; OPTION_BYTES_MAX as usize + 1]);
    let (used, event) = pair.session.handle(&long, &mut pair.out);
    assert_eq!((used, event), (16, NbdEvent::Handled));
    assert_eq!(pair.replies(OptionCode::INFO)[0].0, OptionReplyCode::ERR_TOO_BIG);
    assert_eq!(pair.feed(&long[16..1000]), NbdEvent::More);
    assert_eq!(pair.feed(&long[1000..]), NbdEvent::Handled);
    assert_eq!(pair.option(OptionCode::LIST, &[]).len(), 2);
    let header = OptionHeader::new(OptionCode::INFO, u32::MAX);
    let misbehaved = NbdViolation::OptionLength(u32::MAX);
    assert_eq!(
        pair.feed(header.as_bytes()),
        NbdEvent::Close(NbdCloseReason::PeerMisbehaved(misbehaved))
    );
}

#[test]
fn wrong_magics_end_the_session() {
    let misbehaved = |event| matches!(event, NbdEvent::Close(NbdCloseReason::PeerMisbehaved(_)));
    let (_, event) = SessionPair::new(3).session.handle(&[0; 16], &mut ReplyQueue::default());
    assert!(misbehaved(event));
    let (_, event) = SessionPair::ready(true).session.handle(&[0; 28], &mut ReplyQueue::default());
    assert!(misbehaved(event));
}

#[test]
fn valid_requests_are_handed_out() {
    use command_flag::{FUA, NO_HOLE};
    for structured in [false, true] {
        let mut pair = SessionPair::ready(structured);
        pair.accepted(Command::READ, 0, 0, 1 << 20);
        pair.accepted(Command::WRITE, FUA, 1, 1);
        pair.accepted(Command::FLUSH, 0, 0, 0);
        pair.accepted(Command::TRIM, FUA, 512, 512);
        pair.accepted(Command::WRITE_ZEROES, FUA | NO_HOLE, 0, 512);
        assert_eq!(
            pair.feed(&request(Command::DISC, 0, 0, 0).emit()),
            NbdEvent::Close(NbdCloseReason::Disconnect)
        );
    }
}

#[test]
fn invalid_requests_are_refused_with_their_error() {
    use command_flag::{DF, FAST_ZERO, REQ_ONE};
    for structured in [false, true] {
        let mut pair = SessionPair::ready(structured);
        let mut refused =
            |command, flags, offset, length| pair.refused(command, flags, offset, length);
        assert_eq!(refused(Command::READ, 0, 1 << 20, 1), Errno::EINVAL);
        assert_eq!(refused(Command::READ, 0, u64::MAX, 2), Errno::EINVAL);
        assert_eq!(refused(Command::READ, 0, 0, PAYLOAD_BYTES_MAX + 1), Errno::EINVAL);
        assert_eq!(refused(Command::READ, 0, 0, 0), Errno::EINVAL);
        assert_eq!(refused(Command::READ, REQ_ONE, 0, 1), Errno::EINVAL);
        assert_eq!(refused(Command::WRITE_ZEROES, 0, 1 << 20, 1), Errno::ENOSPC);
        assert_eq!(refused(Command::WRITE_ZEROES, FAST_ZERO, 0, 1), Errno::EINVAL);
        assert_eq!(refused(Command::TRIM, 0, 1 << 20, 1), Errno::EINVAL);
        assert_eq!(refused(Command::FLUSH, 0, 0, 1), Errno::EINVAL);
        assert_eq!(refused(Command::CACHE, 0, 0, 1), Errno::EINVAL);
        assert_eq!(refused(Command(99), 0, 0, 1), Errno::EINVAL);
        if structured {
            pair.accepted(Command::READ, DF, 0, 1);
        } else {
            assert_eq!(refused(Command::READ, DF, 0, 1), Errno::EINVAL);
            assert_eq!(refused(Command::BLOCK_STATUS, 0, 0, 1), Errno::EINVAL);
        }
        pair.export.disk().remove();
        assert_eq!(pair.refused(Command::READ, 0, 0, 1), Errno::ESHUTDOWN);
    }
}

#[test]
fn a_refused_writes_payload_is_skipped() {
    let mut pair = SessionPair::ready(false);
    assert_eq!(pair.refused(Command::WRITE, 0, 1 << 20, 100), Errno::ENOSPC);
    assert_eq!(pair.feed(&[0x25; 99]), NbdEvent::More);
    assert_eq!(pair.feed(&[0x25; 1]), NbdEvent::Handled);
    pair.accepted(Command::READ, 0, 0, 1);
}

#[test]
fn read_only_and_missing_commands_are_refused() {
    let mut info = test_info();
    let disk = &mut info.disk;
    (disk.read_only, disk.trim, disk.write_zeroes) = (true, false, false);
    let export = Arc::new(NbdExport::new(info.clone()).unwrap());
    let enter = |export: Arc<NbdExport>| {
        let mut out = ReplyQueue::default();
        let session = NbdSession::new(export.clone(), false, &mut out);
        out.take();
        let mut pair = SessionPair { session, export, out };
        pair.feed(&[0, 0, 0, 3]);
        pair.option(OptionCode::GO, &info_query(&[]));
        pair
    };
    let mut pair = enter(export);
    assert_eq!(pair.refused(Command::WRITE_ZEROES, 0, 0, 1), Errno::EPERM);
    assert_eq!(pair.refused(Command::TRIM, 0, 0, 1), Errno::EPERM);
    assert_eq!(pair.refused(Command::FLUSH, 0, 0, 0), Errno::EINVAL);
    assert_eq!(pair.refused(Command::READ, command_flag::FUA, 0, 1), Errno::EINVAL);
    assert_eq!(pair.refused(Command::WRITE, 0, 0, 1), Errno::EPERM);
    pair.feed(&[0]);
    pair.accepted(Command::READ, 0, 0, 1);
    info.disk.read_only = false;
    let mut pair = enter(Arc::new(NbdExport::new(info).unwrap()));
    assert_eq!(pair.refused(Command::WRITE_ZEROES, 0, 0, 1), Errno::EINVAL);
    assert_eq!(pair.refused(Command::TRIM, 0, 0, 1), Errno::EINVAL);
    pair.accepted(Command::WRITE, 0, 0, 1);
}

#[test]
fn block_status_is_handed_out_and_answered_in_extents() {
    let mut pair = SessionPair::ready(true);
    let request = request(Command::BLOCK_STATUS, command_flag::REQ_ONE, 512, 4096);
    assert_eq!(pair.feed(&request.emit()), NbdEvent::BlockStatus(request));
    assert!(pair.out.is_empty());
    let extents = [(4096, 0), (512, 3)].map(|(length, state): (u32, u32)| NbdExtent {
        length: length.into(),
        state: state.into(),
    });
    pair.session.reply_block_status(&request, &extents, &mut pair.out);
    let answer = pair.out.take();
    let chunk = NbdChunk::parse(&answer).unwrap();
    assert_eq!((chunk.code, chunk.length, chunk.flags), (ChunkCode::BLOCK_STATUS, 20, 1));
    assert_eq!(chunk.cookie, request.cookie);
    let expected = [0, 0, 0, 1, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3];
    assert_eq!(answer[20..], expected);
}

#[test]
fn dirty_bitmaps_are_contexts_beside_the_allocation() {
    let mut pair = SessionPair::new(3);
    let disk = pair.export.disk();
    let spec = |name: &str| BitmapSpec {
        name: name.into(),
        file: None,
        granularity_bytes: GRANULARITY_BYTES,
    };
    let identity = disk.info().bitmap_identity();
    let bitmaps = DirtyBitmaps::open(&[spec("a"), spec("b")], identity, disk.bytes()).unwrap();
    let bitmaps = Arc::new(bitmaps);
    disk.keep_bitmaps(bitmaps.clone());
    let full = bitmaps.start("b", disk.bytes()).unwrap();
    bitmaps.finish("b", full.number).unwrap();
    drop(bitmaps.begin(100_000, 1));
    pair.option(OptionCode::STRUCTURED_REPLY, &[]);
    let of = |names: &[&str]| {
        let queries: Vec<u8> = names.iter().flat_map(|name| string(name)).collect();
        [&[0; 4], &(names.len() as u32).to_be_bytes()[..], &queries].concat()
    };
    let list = OptionCode::LIST_META_CONTEXT;
    assert_eq!(pair.option(list, &of(&[])).len(), 4, "all, and the end");
    assert_eq!(pair.option(list, &of(&["qemu:"])).len(), 3);
    assert_eq!(pair.option(list, &of(&["qemu:dirty-bitmap:"])).len(), 3);
    assert_eq!(pair.option(list, &of(&["qemu:dirty-bitmap:b"])).len(), 2);
    assert_eq!(pair.option(list, &of(&["qemu:dirty-bitmap:c"])).len(), 1);
    let set = OptionCode::SET_META_CONTEXT;
    assert_eq!(pair.option(set, &of(&["qemu:"])).len(), 1, "a choice names contexts");
    let replies = pair.option(set, &of(&["qemu:dirty-bitmap:b", BASE_ALLOCATION]));
    assert_eq!(replies[0].1, [&[0, 0, 0, 1], BASE_ALLOCATION.as_bytes()].concat());
    assert_eq!(replies[1].1, [&[0, 0, 0, 3], &b"qemu:dirty-bitmap:b"[..]].concat());
    pair.option(OptionCode::GO, &info_query(&[]));
    let mut status = |flags| {
        let request = request(Command::BLOCK_STATUS, flags, 512, 1 << 19);
        assert_eq!(pair.feed(&request.emit()), NbdEvent::BlockStatus(request));
        pair.session.reply_block_status(&request, &[], &mut pair.out);
        pair.out.take()
    };
    let answer = status(0);
    let first = NbdChunk::parse(&answer).unwrap();
    assert_eq!((first.code, first.length, first.flags), (ChunkCode::BLOCK_STATUS, 4, 0));
    let second = NbdChunk::parse(&answer[24..]).unwrap();
    assert_eq!((second.length, second.flags), (4 + 3 * 8, 1), "the last one ends the reply");
    let numbers = answer[44..].chunks_exact(4).map(|b| u32::from_be_bytes(b.try_into().unwrap()));
    let clean = 65_536 - 512;
    let rest = (1 << 19) - 2 * 65_536 + 512;
    assert_eq!(numbers.collect::<Vec<_>>(), [3, clean, 0, 65_536, 1, rest, 0]);
    let one = status(command_flag::REQ_ONE);
    assert_eq!(NbdChunk::parse(&one[24..]).unwrap().length, 12);
    // An invalid one is dirty from its beginning to its end.
    bitmaps.invalidate("a test");
    let answer = status(0);
    let state = u32::from_be_bytes(answer[52..56].try_into().unwrap());
    assert_eq!((NbdChunk::parse(&answer[24..]).unwrap().length, state), (12, 1));
}

#[test]
fn replies_to_reads_are_headed_as_agreed() {
    let mut pair = SessionPair::ready(true);
    pair.session.reply_data(7, 512, 100, &mut pair.out);
    let bytes = pair.out.take();
    let chunk = NbdChunk::parse(&bytes).unwrap();
    assert_eq!((chunk.code, chunk.length), (ChunkCode::OFFSET_DATA, 108));
    assert_eq!(bytes[20..], 512u64.to_be_bytes());
    let mut pair = SessionPair::ready(false);
    pair.session.reply_data(7, 512, 100, &mut pair.out);
    assert_eq!(
        SimpleReply::parse(&pair.out.take()),
        Ok(SimpleReply { errno: Errno::OK, cookie: 7 })
    );
}

/// Messages of a whole session, to be cut anywhere.
fn script() -> Vec<u8> {
    let mut bytes = 3u32.to_be_bytes().to_vec();
    bytes.extend(option_bytes(OptionCode::LIST, &[]));
    bytes.extend(option_bytes(OptionCode::STRUCTURED_REPLY, &[]));
    let context = [&[0; 4], &1u32.to_be_bytes()[..], &string(BASE_ALLOCATION)].concat();
    bytes.extend(option_bytes(OptionCode::SET_META_CONTEXT, &context));
    bytes.extend(option_bytes(OptionCode::GO, &info_query(&[InfoCode::BLOCK_SIZE])));
    bytes.extend(request(Command::READ, 0, 0, 512).emit());
    bytes.extend(request(Command::WRITE, 0, 1 << 30, 64).emit());
    bytes.extend([0xaa; 64]);
    bytes.extend(request(Command::BLOCK_STATUS, 0, 0, 512).emit());
    bytes.extend(request(Command::DISC, 0, 0, 0).emit());
    bytes
}

/// Feeds `bytes` in portions that end at `cuts`; returns the events other than More, and the replies.
fn play(bytes: &[u8], cuts: &[usize]) -> (Vec<NbdEvent>, Vec<u8>) {
    let mut pair = SessionPair::greeted();
    let (mut from, mut events) = (0, Vec::new());
    for end in cuts.iter().copied().chain([bytes.len()]) {
        while from < end {
            let (used, event) = pair.session.handle(&bytes[from..end], &mut pair.out);
            from += used;
            match event {
                NbdEvent::More => break,
                event => events.push(event),
            }
        }
    }
    (events, pair.out.take())
}

#[test]
fn truncation_at_every_byte_only_waits() {
    let bytes = script();
    let (events, answer) = play(&bytes, &[]);
    assert_eq!(events.last(), Some(&NbdEvent::Close(NbdCloseReason::Disconnect)));
    for cut in 0..bytes.len() {
        let (some, _) = play(&bytes[..cut], &[]);
        assert!(events.starts_with(&some) || some.len() <= events.len(), "cut at {cut}");
        assert!(!some.iter().any(|event| matches!(event, NbdEvent::Close(_))), "cut at {cut}");
        // A skipped payload counts once, however it is cut.
        let (all, same) = play(&bytes, &[cut]);
        assert_eq!((all, same), (events.clone(), answer.clone()), "cut at {cut}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, structured: bool, transmission: bool) {
        let mut pair = if transmission { SessionPair::ready(structured) } else { SessionPair::new(3) };
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (used, event) = pair.session.handle(rest, &mut pair.out);
            rest = &rest[used..];
            if matches!(event, NbdEvent::More | NbdEvent::Close(_)) {
                break;
            }
        }
    }

    #[test]
    fn arbitrary_options_are_answered(option: u32, data: Vec<u8>, flags in 0u32..4) {
        let mut pair = SessionPair::new(flags);
        pair.session.structured = flags & 1 == 0;
        let bytes = option_bytes(OptionCode(option % 13), &data);
        let (used, event) = pair.session.handle(&bytes, &mut pair.out);
        prop_assert!(used == bytes.len() || matches!(event, NbdEvent::Close(_)));
        prop_assert!(!pair.out.is_empty() || matches!(event, NbdEvent::Close(_)));
    }

    #[test]
    fn arbitrary_requests_are_handed_out_or_answered(
        flags in 0u16..32, command in 0u16..9, cookie: u64, offset in 0u64..1 << 21, length in 0u32..1 << 21,
        structured: bool,
    ) {
        let mut pair = SessionPair::ready(structured);
        let request = NbdRequest { flags, command: Command(command), cookie, offset, length };
        match pair.feed(&request.emit()) {
            NbdEvent::Request(same) | NbdEvent::BlockStatus(same) => {
                prop_assert_eq!(same, request);
                prop_assert!(pair.out.is_empty());
                prop_assert!(offset + u64::from(length) <= 1 << 20);
            }
            NbdEvent::Handled => prop_assert!(!pair.out.is_empty()),
            event => prop_assert_eq!(event, NbdEvent::Close(NbdCloseReason::Disconnect)),
        }
    }
}

fn closes(event: &NbdEvent, misbehaved: NbdViolation) -> bool {
    *event == NbdEvent::Close(NbdCloseReason::PeerMisbehaved(misbehaved))
}

const OPTIONS: [OptionCode; 9] = [
    OptionCode::LIST,
    OptionCode::PEEK_EXPORT,
    OptionCode::INFO,
    OptionCode::GO,
    OptionCode::STRUCTURED_REPLY,
    OptionCode::LIST_META_CONTEXT,
    OptionCode::SET_META_CONTEXT,
    OptionCode::EXTENDED_HEADERS,
    OptionCode(99),
];

/// Before TLS no option is served, in whatever form and however often it is requested.
#[test]
fn without_tls_every_option_is_refused() {
    let mut pair = SessionPair::requiring_tls();
    for option in OPTIONS.into_iter().chain(OPTIONS) {
        for data in [&[][..], &info_query(&[InfoCode::NAME]), &[0; 100]] {
            assert_eq!(pair.refusal(option, data), OptionReplyCode::ERR_TLS_REQD, "{option}");
        }
        assert!(!pair.session.in_transmission());
    }
    // A message that is too long to be parsed gets the same reply, and does not hide a STARTTLS.
    let long = OptionHeader::new(OptionCode::GO, 40_000);
    assert_eq!(pair.feed(long.as_bytes()), NbdEvent::Handled);
    assert_eq!(pair.replies(OptionCode::GO)[0].0, OptionReplyCode::ERR_TLS_REQD);
    let inside = option_bytes(OptionCode::STARTTLS, &[]);
    let bytes = [&inside[..], &[0; 40_000][inside.len()..]].concat();
    assert_eq!(pair.feed(&bytes), NbdEvent::Handled, "skipped");
    assert_eq!(pair.refusal(OptionCode::GO, &[]), OptionReplyCode::ERR_TLS_REQD);
    let event = pair.feed(&option_bytes(OptionCode::ABORT, &[]));
    assert_eq!(event, NbdEvent::Close(NbdCloseReason::Abort));
    assert_eq!(pair.replies(OptionCode::ABORT)[0].0, OptionReplyCode::ACK);
}

#[test]
fn export_name_without_tls_ends_the_session() {
    let mut pair = SessionPair::requiring_tls();
    let event = pair.feed(&option_bytes(OptionCode::EXPORT_NAME, b"disk"));
    assert_eq!(event, NbdEvent::Close(NbdCloseReason::NotSecured));
    assert!(pair.out.is_empty(), "it says nothing of the export");
}

#[test]
fn tls_begins_once_and_without_data() {
    let mut pair = SessionPair::requiring_tls();
    assert_eq!(pair.refusal(OptionCode::STARTTLS, &[1]), OptionReplyCode::ERR_INVALID);
    assert_eq!(pair.feed(&option_bytes(OptionCode::STARTTLS, &[])), NbdEvent::StartTls);
    assert_eq!(pair.replies(OptionCode::STARTTLS), [(OptionReplyCode::ACK, vec![])]);
    pair.session.secured();
    assert_eq!(pair.refusal(OptionCode::STARTTLS, &[]), OptionReplyCode::ERR_INVALID);
    assert_eq!(pair.option(OptionCode::STRUCTURED_REPLY, &[])[0].0, OptionReplyCode::ACK);
    assert_eq!(
        pair.option(OptionCode::GO, &info_query(&[])).last().unwrap().0,
        OptionReplyCode::ACK
    );
    pair.accepted(Command::READ, 0, 0, 512);
}

/// A session becomes secured only after STARTTLS.
#[test]
fn only_a_session_that_waits_for_tls_becomes_secured() {
    let mut pair = SessionPair::requiring_tls();
    pair.session.secured();
    assert_eq!(pair.refusal(OptionCode::LIST, &[]), OptionReplyCode::ERR_TLS_REQD);
    let mut plain = SessionPair::new(3);
    plain.session.secured();
    assert_eq!(plain.refusal(OptionCode::STARTTLS, &[]), OptionReplyCode::ERR_POLICY);
}

/// Bytes between STARTTLS and the TLS handshake may be an attacker's, inserted to count as the client's after the
/// handshake.
#[test]
fn bytes_behind_starttls_end_the_session() {
    let go = option_bytes(OptionCode::GO, &info_query(&[]));
    for injected in [&go[..], &go[..1], &[22, 3, 1], &[0; 4000]] {
        let mut pair = SessionPair::requiring_tls();
        let bytes = [&option_bytes(OptionCode::STARTTLS, &[])[..], injected].concat();
        let (_, event) = pair.session.handle(&bytes, &mut pair.out);
        assert!(closes(&event, NbdViolation::BeforeTls(injected.len())), "{event:?}");
        pair.session.secured();
        assert_eq!(pair.session.handle(&go, &mut pair.out).1, NbdEvent::More, "it has ended");
        // The same when they arrive later, but before the caller has secured the connection.
        let mut pair = SessionPair::requiring_tls();
        assert_eq!(pair.feed(&option_bytes(OptionCode::STARTTLS, &[])), NbdEvent::StartTls);
        let (_, event) = pair.session.handle(injected, &mut pair.out);
        assert!(closes(&event, NbdViolation::BeforeTls(injected.len())), "{event:?}");
    }
}

proptest! {
    /// For any messages in any order: without TLS no request is handed out, and no reply contains the export.
    #[test]
    fn no_order_of_options_gets_past_tls(
        options in prop::collection::vec((0u32..12, prop::collection::vec(any::<u8>(), 0..40)), 1..30),
    ) {
        let mut pair = SessionPair::requiring_tls();
        for (code, data) in options {
            let bytes = option_bytes(OptionCode(code), &data);
            let (_, event) = pair.session.handle(&bytes, &mut pair.out);
            prop_assert!(!matches!(event, NbdEvent::Request(_) | NbdEvent::More));
            let said = pair.out.take();
            prop_assert!(!said.windows(11).any(|part| part == b"a test disk"));
            if event != NbdEvent::Handled {
                break;
            }
            prop_assert!(!pair.session.in_transmission());
        }
    }
}

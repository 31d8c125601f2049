//! The record layer: vectors, properties, and forbidden actions of peers.

use crate::cases::cases;
use proptest::prelude::*;
use roadtrain_proto::security::Suite;
use roadtrain_tls::{
    BLOCKS_MAX, CONTENT_TYPE_ALERT, CONTENT_TYPE_DATA, CONTENT_TYPE_HANDSHAKE, Incoming,
    OpenedRecords, Opener, RECORD_BYTES_MAX, RecordSocket, Sealer, TlsError, TlsRecords,
    TlsSessionKeys, TrafficSecret, alert_message, sealed_bytes,
};

const SUITES: [Suite; 2] = [Suite::Aes128GcmSha256, Suite::Aes256GcmSha384];

fn secret(suite: Suite) -> TrafficSecret {
    TrafficSecret::new(suite, &vec![3; suite.hash().bytes()]).unwrap()
}

fn sealer(suite: Suite, blocks: u64) -> Sealer {
    Sealer::new(secret(suite), blocks).unwrap()
}

fn opener(suite: Suite) -> Opener {
    Opener::new(secret(suite), BLOCKS_MAX, true).unwrap()
}

fn seal(sealer: &mut Sealer, data: &[u8]) -> Vec<u8> {
    let mut sealed = vec![0; sealer.sealed_bytes(data.len())];
    let length = sealer.seal([data].into_iter(), data.len(), &mut sealed).unwrap();
    assert_eq!(length, sealed.len());
    sealed
}

fn alert(sealer: &mut Sealer, code: u8) -> Vec<u8> {
    sealer.record(CONTENT_TYPE_ALERT, &alert_message(code)).unwrap()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// RFC 8448, 3: the client's application data, from its traffic secret.
#[test]
fn a_record_of_rfc_8448() {
    let client = hex("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5");
    let secret = TrafficSecret::new(Suite::Aes128GcmSha256, &client).unwrap();
    let mut sealer = Sealer::new(secret.clone(), BLOCKS_MAX).unwrap();
    let data: Vec<u8> = (0..50).collect();
    let sealed = hex(
        "17 03 03 00 43 a2 3f 70 54 b6 2c 94 d0 af fa fe 82 28 ba 55 cb ef ac ea 42 f9 14 aa 66 bc ab 3f 2b 98 19 a8
         a5 b4 6b 39 5b d5 4a 9a 20 44 1e 2b 62 97 4e 1f 5a 62 92 a2 97 70 14 bd 1e 3d ea e6 3a ee bb 21 69 49 15 e4",
    );
    assert_eq!(seal(&mut sealer, &data), sealed);
    // The next record in that session is the alert of its end.
    assert_eq!(
        alert(&mut sealer, 0),
        hex("17 03 03 00 13 c9 87 27 60 65 56 66 b7 4d 7f f1 15 3e fd 6d b6 d0 b0 e3")
    );
    let mut opener = Opener::new(secret, BLOCKS_MAX, false).unwrap();
    let mut out = vec![0; sealed.len()];
    let opened = opener.open(&sealed, &mut [&mut out]).unwrap();
    assert_eq!((opened.used, opened.data), (sealed.len(), 50));
    assert_eq!(out[..50], data);
}

/// Splits `data` into pieces whose lengths are the numbers in turn.
fn pieces<'a>(mut data: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for &length in lengths.iter().cycle() {
        if data.is_empty() {
            return pieces;
        }
        let (piece, rest) = data.split_at(length.min(data.len()));
        pieces.push(piece);
        data = rest;
    }
    pieces
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    /// Any pieces become records, which arrive in any parts and go to any buffers, and are the same data.
    #[test]
    fn data_passes(
        aes_256: bool,
        length in 0usize..70_000,
        lengths in prop::collection::vec(1usize..9_000, 1..8),
        parts in prop::collection::vec(1usize..40_000, 1..8),
        place in 0usize..30_000,
    ) {
        let suite = SUITES[usize::from(aes_256)];
        let data: Vec<u8> = (0..length).map(|i| (i * 7 + i / 251) as u8).collect();
        let mut sealer = sealer(suite, BLOCKS_MAX);
        let mut sealed = vec![0; sealed_bytes(length)];
        let count = sealer.seal(pieces(&data, &lengths).into_iter(), length, &mut sealed).unwrap();
        prop_assert_eq!(count, sealed.len());
        prop_assert!(sealer.capacity(sealed.len()) >= length.saturating_sub(22));
        let mut opener = opener(suite);
        let (mut waiting, mut got) = (Vec::new(), Vec::new());
        for part in pieces(&sealed, &parts) {
            waiting.extend_from_slice(part);
            let (mut first, mut rest) = (vec![0; place], vec![0; waiting.len() + RECORD_BYTES_MAX]);
            let opened = opener.open(&waiting, &mut [&mut first, &mut rest]).unwrap();
            waiting.drain(..opened.used);
            first.extend(rest);
            got.extend_from_slice(&first[..opened.data]);
        }
        prop_assert!(waiting.is_empty());
        prop_assert_eq!(got, data);
    }

    /// A record with any bit changed is invalid, and all of it is dropped.
    #[test]
    fn an_altered_record_is_refused(at in 0usize..122, bit in 0u8..8, aes_256: bool) {
        let suite = SUITES[usize::from(aes_256)];
        let mut sealed = seal(&mut sealer(suite, BLOCKS_MAX), &[5; 100]);
        sealed[at] ^= 1 << bit;
        let mut out = vec![0; 20_000];
        match opener(suite).open(&sealed, &mut [&mut out]) {
            // The end of the record is missing.
            Ok(opened) => prop_assert!(opened.used == 0 && (3..5).contains(&at)),
            Err(TlsError::Tag | TlsError::Record { .. }) => {}
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    /// Any bytes cause neither a panic nor data.
    #[test]
    fn noise_is_no_data(bytes in prop::collection::vec(any::<u8>(), 0..200), framed: bool) {
        let mut record = Vec::new();
        if framed {
            record.extend([23, 3, 3]);
            record.extend((bytes.len() as u16).to_be_bytes());
        }
        record.extend(&bytes);
        let mut out = vec![0; 1000];
        let opened = opener(SUITES[0]).open(&record, &mut [&mut out]);
        prop_assert!(opened.is_err() || opened.unwrap().data == 0);
    }

    /// Checks that [`Sealer::capacity`] is exact.
    #[test]
    fn capacity_is_exact(room in 0usize..100_000) {
        let capacity = sealer(SUITES[0], BLOCKS_MAX).capacity(room);
        prop_assert!(capacity == 0 || sealed_bytes(capacity) <= room);
        prop_assert!(sealed_bytes(capacity + 1) > room);
    }
}

#[test]
fn records_come_once_and_in_order() {
    let mut sealer = sealer(SUITES[0], BLOCKS_MAX);
    let (first, second) = (seal(&mut sealer, b"first"), seal(&mut sealer, b"second"));
    let mut out = vec![0; 100];
    assert!(
        matches!(opener(SUITES[0]).open(&second, &mut [&mut out]), Err(TlsError::Tag)),
        "swapped"
    );
    let mut opener = opener(SUITES[0]);
    opener.open(&first, &mut [&mut out]).unwrap();
    assert!(matches!(opener.open(&first, &mut [&mut out]), Err(TlsError::Tag)), "repeated");
}

#[test]
fn headers_are_checked_before_anything_is_waited_for() {
    let wrong: [(&[u8], &str); 6] = [
        (&[22, 3, 3, 0, 40], "type"),
        (&[20, 3, 3, 0, 1], "type"),
        (&[23, 3, 1, 0, 40], "version"),
        (&[23, 3, 3, 0, 16], "length"),
        (&[23, 3, 3, 0x41, 1], "length"),
        (&[23, 3, 3, 0xff, 0xff], "length"),
    ];
    for (header, field) in wrong {
        let error = opener(SUITES[0]).open(header, &mut [&mut [0; 64]]).unwrap_err();
        assert!(
            matches!(error, TlsError::Record { what, .. } if what == field),
            "{header:?}: {error}"
        );
        assert_ne!(error.alert(), 0);
    }
    for cut in [&[23u8][..], &[23, 3, 3, 0], &[23, 3, 3, 0x41, 0, 1, 2, 3]] {
        assert_eq!(opener(SUITES[0]).open(cut, &mut [&mut [0; 64]]).unwrap().used, 0);
    }
}

#[test]
fn empty_records_are_few() {
    // A sealer of ours never makes one: these are records of alerts with nothing but a zero byte of padding.
    let mut sealer = sealer(SUITES[0], BLOCKS_MAX);
    let mut opener = opener(SUITES[0]);
    let mut refused = false;
    for _ in 0..40 {
        sealer.update(false);
        let mut record = vec![0; sealer.sealed_bytes(0)];
        sealer.seal(std::iter::empty(), 0, &mut record).unwrap();
        refused = matches!(opener.open(&record, &mut [&mut [0; 64]]), Err(TlsError::Idle));
        if refused {
            break;
        }
    }
    assert!(refused, "KeyUpdates without end");
}

/// After a KeyUpdate both ends continue with the next key, in both suites, and again.
#[test]
fn keys_are_updated() {
    for suite in SUITES {
        let (mut sealer, mut opener) = (sealer(suite, BLOCKS_MAX), opener(suite));
        let mut out = vec![0; 1000];
        for round in 0u8..5 {
            sealer.update(false);
            let sealed = seal(&mut sealer, &[round; 100]);
            assert_eq!(sealed.len(), 27 + 122);
            let opened = opener.open(&sealed, &mut [&mut out]).unwrap();
            assert_eq!((opened.used, opened.data, opened.update), (sealed.len(), 100, false));
            assert_eq!(out[..100], [round; 100]);
        }
    }
}

#[test]
fn alerts_end_a_connection() {
    let mut out = vec![0; 100];
    let closed = alert(&mut sealer(SUITES[0], BLOCKS_MAX), 0);
    let opened = opener(SUITES[0]).open(&closed, &mut [&mut out]).unwrap();
    assert!(opened.closed && opened.data == 0);
    let fatal = alert(&mut sealer(SUITES[0], BLOCKS_MAX), 20);
    let error = opener(SUITES[0]).open(&fatal, &mut [&mut out]).unwrap_err();
    assert!(matches!(error, TlsError::Alert(20)));
    assert_eq!(error.to_string(), "the peer sent the TLS alert bad_record_mac (20)");
}

/// A key seals and opens as many blocks as it may, and no more.
#[test]
fn keys_are_used_up() {
    let full = 16_384 / 16 + 2;
    let mut sealer = sealer(SUITES[0], 3 * full);
    let mut opener = Opener::new(secret(SUITES[0]), 2 * full, true).unwrap();
    let mut out = vec![0; 20_000];
    for _ in 0..2 {
        let sealed = seal(&mut sealer, &[1; 16_384]);
        opener.open(&sealed, &mut [&mut out]).unwrap();
    }
    let third = seal(&mut sealer, &[1; 16_384]);
    assert!(matches!(opener.open(&third, &mut [&mut out]), Err(TlsError::UsedUp)));
    let mut room = vec![0; 20_000];
    let fourth = sealer.seal([&[1; 16_384][..]].into_iter(), 16_384, &mut room);
    assert!(matches!(fourth, Err(TlsError::UsedUp)));
    // A new key may seal all blocks again.
    sealer.update(false);
    assert!(
        matches!(sealer.seal(std::iter::empty(), 0, &mut room), Err(TlsError::UsedUp)),
        "not even that"
    );
}

/// Records go where there is capacity, and wait where there is none.
#[test]
fn records_wait_for_room() {
    let sealed = seal(&mut sealer(SUITES[0], BLOCKS_MAX), &[1; 20_000]);
    let mut opener = opener(SUITES[0]);
    let (mut small, mut rest) = (vec![0; 10], vec![0; 16_400]);
    assert_eq!(opener.open(&sealed, &mut [&mut small]).unwrap().used, 0);
    let opened = opener.open(&sealed, &mut [&mut small, &mut rest]).unwrap();
    assert_eq!((opened.used, opened.data), (16_406, 16_384));
    let opened = opener.open(&sealed[opened.used..], &mut [&mut rest]).unwrap();
    assert_eq!((opened.used, opened.data), (3638, 3616));
}

/// Opens a message after the handshake, in a record of its own.
fn says(
    sealer: &mut Sealer,
    kind: u8,
    content: &[u8],
    is_host: bool,
) -> Result<OpenedRecords, TlsError> {
    let record = sealer.record(kind, content).unwrap();
    let mut opener = Opener::new(secret(SUITES[0]), BLOCKS_MAX, is_host).unwrap();
    opener.open(&record, &mut [&mut [0; 20_000]])
}

#[test]
fn messages_after_the_handshake_are_few_and_whole() {
    let sealed = |content: &[u8], is_host| {
        says(&mut sealer(SUITES[0], BLOCKS_MAX), CONTENT_TYPE_HANDSHAKE, content, is_host)
    };
    assert!(sealed(&[4, 0, 0, 1, 9], true).is_ok(), "a ticket");
    assert!(sealed(&[4, 0, 0, 1, 9], false).is_err(), "hosts have none to give");
    assert!(sealed(&[24, 0, 0, 1, 0], true).is_ok_and(|opened| !opened.update));
    assert!(sealed(&[24, 0, 0, 1, 1], true).is_ok_and(|opened| opened.update));
    for wrong in [
        &[24, 0, 0, 1, 2][..],
        &[24, 0, 0, 1],
        &[24, 0, 0, 0],
        &[24, 0, 0, 1, 0, 4, 0, 0, 1, 9],
        &[1, 0, 0, 0],
        &[],
    ] {
        assert!(sealed(wrong, true).is_err(), "{wrong:?}");
    }
}

#[test]
fn records_hold_no_more_than_they_may() {
    let mut content = vec![7; 16_385];
    let open = |content: &[u8]| {
        let mut sealer = sealer(SUITES[0], BLOCKS_MAX);
        says(&mut sealer, CONTENT_TYPE_DATA, content, true)
    };
    assert!(open(&content[..16_384]).is_ok());
    assert!(matches!(open(&content), Err(TlsError::Record { what: "length", .. })));
    content.clear();
    assert_eq!(open(&content).unwrap().data, 0);
}

/// Two ends of a connection without a network between them: the test takes sent bytes itself.
#[derive(Default)]
struct Hands {
    comes: Vec<u8>,
    goes: Vec<u8>,
}

impl RecordSocket for Hands {
    type Error = TlsError;

    fn send(&mut self, bytes: &[u8]) -> Result<Option<usize>, TlsError> {
        self.goes.extend_from_slice(bytes);
        Ok(Some(bytes.len()))
    }

    fn receive(&mut self, place: &mut [u8]) -> Result<Incoming, TlsError> {
        let got = self.comes.len().min(place.len());
        place[..got].copy_from_slice(&self.comes[..got]);
        self.comes.drain(..got);
        Ok(if got > 0 { Incoming::Bytes(got) } else { Incoming::Nothing })
    }
}

fn records() -> TlsRecords {
    TlsRecords::new(TlsSessionKeys {
        sealer: sealer(SUITES[0], BLOCKS_MAX),
        opener: opener(SUITES[0]),
        identity: String::new(),
        suite: SUITES[0],
        rest: Vec::new(),
        blocks_max: BLOCKS_MAX,
        is_host: true,
    })
}

/// Data and the end after it arrive together: first the one, then the other, and nothing behind it.
#[test]
fn nothing_comes_after_a_peer_has_closed() {
    let (mut near, mut hands, mut peer) =
        (records(), Hands::default(), sealer(SUITES[0], BLOCKS_MAX));
    let parts = [seal(&mut peer, b"last"), alert(&mut peer, 0), seal(&mut peer, b"more")];
    hands.comes = parts.concat();
    let (mut buffer, mut place) = (vec![0; 40_000], vec![0; 40_000]);
    let mut receive =
        |near: &mut TlsRecords| near.receive(&mut hands, &mut buffer, &mut [&mut place]);
    assert_eq!(receive(&mut near).unwrap(), Incoming::Bytes(4));
    assert!(near.is_full(), "there is more to receive");
    assert_eq!(receive(&mut near).unwrap(), Incoming::Closed);
    assert_eq!(receive(&mut near).unwrap(), Incoming::Closed);
}

/// A peer that requests another key gets it with the next data.
#[test]
fn a_requested_key_update_is_sent() {
    let (mut near, mut hands, mut peer) =
        (records(), Hands::default(), sealer(SUITES[0], BLOCKS_MAX));
    peer.update(true);
    hands.comes = seal(&mut peer, b"hello");
    let (mut buffer, mut place) = (vec![0; 40_000], vec![0; 40_000]);
    near.receive(&mut hands, &mut buffer, &mut [&mut place]).unwrap();
    let taken = near.send(&mut hands, [&b"data"[..]].into_iter(), 4, &mut buffer).unwrap();
    assert_eq!((taken, hands.goes.len()), (Some(4), 27 + 26), "a KeyUpdate and the data");
    let opened = opener(SUITES[0]).open(&hands.goes, &mut [&mut place]).unwrap();
    assert!(opened.data == 4 && !opened.update && place[..4] == *b"data");
}

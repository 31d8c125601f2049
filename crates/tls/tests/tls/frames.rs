//! Sealed frames with the real cipher. Another program has made the bytes from the page (docs/reference/ethernet.md).

use proptest::prelude::*;
use roadtrain_proto::seal::{FrameRefusal, KeyLimits, OpenedFrame, Seal, open};
use roadtrain_proto::security::{FrameKeys, FrameSecret, Hash, Secret};
use roadtrain_tls::FrameCipher;
use roadtrain_wire::ether::{FrameHeader, FrameType, VERSION, flags, parse};
use roadtrain_wire::zerocopy::IntoBytes;

const HOST_TOKEN: u64 = 0x1122_3344_5566_7788;
const TARGET_TOKEN: u64 = 0x99aa_bbcc_ddee_ff00;

type SealedEnd = Seal<FrameCipher>;

fn keys(hash: Hash) -> FrameKeys {
    let bytes = |first: u8, count| (first..first + count as u8).collect::<Vec<u8>>();
    let host = Secret::new(&bytes(0, 32));
    let exchanged = Secret::new(&bytes(64, hash.bytes()));
    let said = b"context, Negotiate, Challenge, Reply";
    FrameSecret::new(hash, &host, Some(&exchanged), said).keys(HOST_TOKEN, TARGET_TOKEN)
}

fn ends() -> (SealedEnd, SealedEnd) {
    let keys = keys(Hash::Sha256);
    (Seal::host(&keys, KeyLimits::HOST).unwrap(), Seal::target(&keys, KeyLimits::TARGET).unwrap())
}

/// A Cargo or an Ack from the host.
fn header(kind: FrameType, bits: u16) -> FrameHeader {
    FrameHeader {
        version: VERSION,
        kind: kind as u8,
        flags: bits.into(),
        token: TARGET_TOKEN.into(),
        socket_number: 0x0815.into(),
        reply: 0x4711.into(),
        link: 1,
        seq: 0x1000_0001.into(),
        base: 0x1000_0000.into(),
        ack: 0x2000_0005.into(),
        delay_us: 7.into(),
        credits: 300.into(),
        sack: 5.into(),
        ..FrameHeader::default()
    }
}

/// A frame that the end has sealed.
fn sealed(end: &mut SealedEnd, kind: FrameType, bits: u16, body: &[u8]) -> Vec<u8> {
    let (mut header, mut body) = (header(kind, bits), body.to_vec());
    assert!(end.seal(&mut header, &mut body));
    [header.as_bytes(), &body].concat()
}

/// Opens a frame at the other end.
fn take(end: &mut SealedEnd, frame: &[u8]) -> Result<Option<Vec<u8>>, FrameRefusal> {
    let (header, kind, body) = parse(frame).expect("a frame");
    let mut out = vec![0; 1 << 16];
    Ok(match end.open(&header, kind, body, &mut out)? {
        OpenedFrame::Clear => None,
        OpenedFrame::Sealed { bytes, .. } => Some(out[..bytes].to_vec()),
    })
}

fn bytes(lines: &[&str]) -> Vec<u8> {
    let byte = |text| u8::from_str_radix(text, 16).expect("two digits");
    lines.iter().flat_map(|line| line.split_whitespace()).map(byte).collect()
}

#[test]
fn a_frame_byte_for_byte() {
    let heads = [
        "01 08 0c 00 ba 68 18 c3 00 ff ee dd cc bb aa 99",
        "15 08 11 47 01 00 28 00 01 00 00 10 00 00 00 10",
        "05 00 00 20 07 00 2c 01 05 00 00 00 00 00 00 00",
        "00 00 00 00 00 00 00 00 02 01 00 00 00 00 00 00",
    ];
    for (hash, proof, body) in [
        (
            Hash::Sha256,
            "61 5e 29 f5 11 4e e7 aa 71 f9 bf 8f cc bd 8c c4",
            [
                "9c 43 fa c9 07 4a 12 82 ef 94 32 a2 d4 72 62 a2",
                "a0 6a d8 b0 02 28 e8 a1 c6 f7 e9 a8 8a 75 57 a7",
                "9e 4b a4 27 62 d1 ea 5e",
            ],
        ),
        (
            Hash::Sha384,
            "65 e9 94 89 e8 72 80 a2 e5 d0 f7 2a 33 b5 9f 62",
            [
                "8f b1 c1 6a 5a 13 9e 34 29 6f e4 f8 84 d8 82 e2",
                "eb 0b 69 90 2d 56 e6 63 be 85 e5 89 3e f1 1a 26",
                "91 cd c3 23 f2 0d d0 e2",
            ],
        ),
    ] {
        let mut host = SealedEnd::host(&keys(hash), KeyLimits::HOST).unwrap();
        let mut target = SealedEnd::target(&keys(hash), KeyLimits::TARGET).unwrap();
        assert_eq!(host.proofs().own[..], bytes(&[proof]));
        assert_eq!(target.proofs().peer[..], bytes(&[proof]));
        for _ in 0..0x102 {
            sealed(&mut host, FrameType::Ack, 0, &[]);
        }
        let plain: Vec<u8> = (0xa0..0xb8).collect();
        // A checksum in addition to the tag would be of no use.
        let frame = sealed(&mut host, FrameType::Cargo, flags::SEQ | flags::CRC, &plain);
        let expected = bytes(&[&heads[..], &body[..]].concat());
        assert_eq!(format!("{frame:02x?}"), format!("{expected:02x?}"));
        assert_eq!(take(&mut target, &expected), Ok(Some(plain)));
    }
}

#[test]
fn both_directions_and_both_lanes_have_their_own_keys() {
    let (mut host, mut target) = ends();
    let frame = sealed(&mut host, FrameType::Cargo, flags::SEQ, b"to the target");
    assert_eq!(take(&mut host, &frame), Err(FrameRefusal::Forged), "its own");
    let other = FrameSecret::new(Hash::Sha256, &Secret::new(&[1]), None, b"").keys(1, 2);
    let mut other = SealedEnd::target(&other, KeyLimits::TARGET).unwrap();
    assert_eq!(take(&mut other, &frame), Err(FrameRefusal::Forged), "another lane's");
    assert!(take(&mut target, &frame).is_ok());
    let back = sealed(&mut target, FrameType::Cargo, flags::SEQ, b"to the host");
    assert_eq!(take(&mut host, &back), Ok(Some(b"to the host".to_vec())));
}

#[test]
fn a_target_is_sealed_from_the_hosts_first_sealed_frame_on() {
    let (mut host, mut target) = ends();
    let clear = [header(FrameType::Ack, 0)].map(|mut header| {
        roadtrain_wire::ether::set_hcrc(&mut header);
        header.as_bytes().to_vec()
    });
    let [clear] = &clear;
    assert!(host.is_on() && !target.is_on());
    assert_eq!(take(&mut host, clear), Err(FrameRefusal::Clear), "the target has agreed before");
    assert_eq!(take(&mut target, clear), Ok(None));
    let mut forged = sealed(&mut host, FrameType::Ack, 0, &[]);
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(take(&mut target, &forged), Err(FrameRefusal::Forged));
    assert!(!target.is_on(), "forged frames change nothing");
    let frame = sealed(&mut host, FrameType::Ack, 0, &[]);
    assert_eq!(take(&mut target, &frame), Ok(Some(vec![])));
    assert!(target.is_on());
    assert_eq!(take(&mut target, clear), Err(FrameRefusal::Clear));
    let mut leave = header(FrameType::Leave, 0);
    roadtrain_wire::ether::set_hcrc(&mut leave);
    assert_eq!(take(&mut target, leave.as_bytes()), Ok(None), "that has a proof");
}

#[test]
fn acknowledgements_are_taken_once_and_in_order() {
    let (mut host, mut target) = ends();
    let [first, second, third] = [0; 3].map(|_| sealed(&mut host, FrameType::Ack, 0, &[1; 8]));
    assert!(take(&mut target, &second).is_ok());
    for old in [&first, &second] {
        assert_eq!(take(&mut target, old), Err(FrameRefusal::Replayed));
    }
    assert!(take(&mut target, &third).is_ok());
}

/// Each SEQ counts once in the channel; overtaken frames are accepted.
#[test]
fn numbered_frames_may_overtake_each_other() {
    let (mut host, mut target) = ends();
    let frames: Vec<_> =
        (0..100u8).map(|n| sealed(&mut host, FrameType::Cargo, flags::SEQ, &[n])).collect();
    for (n, frame) in frames.iter().enumerate().rev() {
        assert_eq!(take(&mut target, frame), Ok(Some(vec![n as u8])));
    }
}

#[test]
fn keys_end() {
    let limits = KeyLimits { blocks: 60, frames: 100 };
    for (limits, count) in [(limits, 10), (KeyLimits { blocks: u64::MAX, frames: 3 }, 3)] {
        let keys = keys(Hash::Sha256);
        let mut host = SealedEnd::host(&keys, limits).unwrap();
        let mut target = SealedEnd::target(&keys, limits).unwrap();
        for n in 0..count {
            assert!(!host.is_used_up() && !target.is_used_up(), "{n}");
            let frame = sealed(&mut host, FrameType::Cargo, flags::SEQ, &[0; 16]);
            assert!(take(&mut target, &frame).is_ok());
        }
        assert!(host.is_used_up() && target.is_used_up());
        let (mut header, mut body) = (header(FrameType::Cargo, flags::SEQ), vec![0; 16]);
        assert!(!host.seal(&mut header, &mut body), "it must not leave");
    }
}

#[test]
fn a_lane_without_keys_takes_no_sealed_frames() {
    let (mut host, _) = ends();
    let frame = sealed(&mut host, FrameType::Cargo, flags::SEQ, b"sealed");
    let (header, kind, body) = parse(&frame).unwrap();
    let opened = open::<FrameCipher>(None, &header, kind, body, &mut []);
    assert_eq!(opened, Err(FrameRefusal::Forged));
}

proptest! {
    #[test]
    fn a_frame_of_which_a_bit_was_altered_is_refused(
        body in prop::collection::vec(any::<u8>(), 0..200),
        kind in prop_oneof![Just((FrameType::Cargo, flags::SEQ)), Just((FrameType::Ack, 0))],
        bit in any::<prop::sample::Index>(),
    ) {
        let (mut host, mut target) = ends();
        let first = sealed(&mut host, FrameType::Ack, 0, &[]);
        prop_assert!(take(&mut target, &first).is_ok());
        let frame = sealed(&mut host, kind.0, kind.1, &body);
        let mut altered = frame.clone();
        let bit = bit.index(8 * frame.len());
        altered[bit / 8] ^= 1 << (bit % 8);
        let (mut header, rest) = roadtrain_wire::zerocopy::FromBytes::read_from_prefix(&altered)
            .map(|(header, rest): (FrameHeader, &[u8])| (header, rest.to_vec()))
            .unwrap();
        // An attacker who alters frames can compute checksums.
        let is_hcrc = (4..8).contains(&(bit / 8));
        roadtrain_wire::ether::set_hcrc(&mut header);
        let altered = [header.as_bytes(), &rest].concat();
        if !is_hcrc && let Ok((header, kind, body)) = parse(&altered) {
            let mut out = vec![0; 1 << 16];
            let refused = target.open(&header, kind, body, &mut out);
            let is_leave = kind == FrameType::Leave && header.flags.get() & flags::SEALED == 0;
            prop_assert!(refused.is_err() || is_leave, "bit {bit}: {refused:?}");
        }
        prop_assert_eq!(take(&mut target, &frame), Ok(Some(body)), "it was not lost by that");
    }

    #[test]
    fn cut_frames_and_random_ones_are_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        bits in 0..16u16,
        link in 0..32u8,
        number in any::<u64>(),
    ) {
        let (_, mut target) = ends();
        let header = FrameHeader {
            flags: (bits | flags::SEALED).into(),
            link,
            number: number.into(),
            ..header(FrameType::Cargo, 0)
        };
        let mut out = vec![0; 100];
        prop_assert!(target.open(&header, FrameType::Cargo, &bytes, &mut out).is_err());
        prop_assert!(!target.is_on());
    }
}

//! Any bytes as a frame, also with correct checksums, and as every body: refused or consistent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_wire::ether::setup::{JoinBody, OfferBody, QueryBody, with_nqn};
use roadtrain_wire::ether::{
    CargoRecord, CargoRecords, FRAME_HEADER_BYTES, FrameHeader, VERSION, flags, parse, set_hcrc,
};
use roadtrain_wire::zerocopy::{FromBytes, IntoBytes};

fuzz_target!(|input: &[u8]| {
    check(input);
    // A fuzzer cannot guess a CRC: the same bytes with the checksum that an attacker would add.
    let Ok((mut header, body)) = FrameHeader::read_from_prefix(input) else { return };
    header.version = VERSION;
    header.kind = header.kind % 10 + 1;
    header.flags = (header.flags.get() & !flags::CRC).into();
    set_hcrc(&mut header);
    check(&[header.as_bytes(), body].concat());
    check_body(body);
});

fn check(frame: &[u8]) {
    let Ok((header, _, body)) = parse(frame) else { return };
    assert_eq!(body.len(), usize::from(header.body.get()));
    assert!(FRAME_HEADER_BYTES + body.len() <= frame.len());
    check_body(body);
}

fn check_body(body: &[u8]) {
    let mut count = 0;
    for record in CargoRecords::new(body) {
        count += 1;
        if let Ok(CargoRecord::Data { start, bytes, .. }) = record {
            assert_eq!(&body[start..start + bytes.len()], bytes);
        }
    }
    assert!(count <= body.len() / 8 + 1);
    let _ = with_nqn(body, |offer: &OfferBody| offer.nqn_length.get());
    let _ = with_nqn(body, |join: &JoinBody| join.nqn_length.get());
    let _ = with_nqn(body, |query: &QueryBody| query.nqn_length.get());
}

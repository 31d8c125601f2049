//! Any octets as what a host sends to a listener with TLS: its handshake, and records after one. Nothing is agreed on
//! and nothing is opened without the key, however the octets arrive.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_proto::security::{Secret, Suite, TlsPsk};
use roadtrain_tls::{Acceptor, BLOCKS_MAX, Opener, TrafficSecret};
use std::sync::LazyLock;

static ACCEPTOR: LazyLock<Acceptor> = LazyLock::new(|| {
    let identity = "NVMe1R01 host target digest".to_owned();
    let key = TlsPsk { identity, psk: Secret::new(&[7; 32]), suite: Suite::Aes128GcmSha256 };
    Acceptor::new(move |identity| (identity == key.identity).then(|| key.clone())).expect("TLS")
});

fn shake(input: &[u8], step: usize) {
    let mut handshake = ACCEPTOR.accept().expect("a handshake");
    for part in input.chunks(step) {
        if handshake.receive(part).is_err() {
            break;
        }
    }
    assert!(!handshake.is_done());
}

fn open(input: &[u8], step: usize) {
    let secret = TrafficSecret::new(Suite::Aes128GcmSha256, &[9; 32]).expect("a valid secret");
    let mut opener = Opener::new(secret, BLOCKS_MAX, false).expect("a key");
    let (mut kept, mut out) = (Vec::new(), vec![0; 1 << 16]);
    for part in input.chunks(step) {
        kept.extend_from_slice(part);
        let (first, rest) = out.split_at_mut(step);
        match opener.open(&kept, &mut [first, rest]) {
            Ok(opened) => assert_eq!((opened.used, opened.data), (0, 0)),
            Err(_) => return,
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((first, input)) = input.split_first() else { return };
    let step = usize::from(first >> 1) + 1;
    match first & 1 {
        0 => shake(input, step),
        _ => open(input, step),
    }
});

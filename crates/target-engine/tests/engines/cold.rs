//! Namespace larger than the CPU caches: small writes bypass the caches, and reads are prefetched.

use crate::harness::*;
use roadtrain_host_engine::{HostClient, IoOp};
use std::sync::mpsc::channel;

const LBA_BYTES: u32 = 512;
/// Larger than any cache. The system allocates memory only where data is written.
const BYTES: u64 = 1 << 30;
/// Requests at once, far apart, so that a receive has many and ends within one.
const REQUESTS: u64 = 200;

fn slba(number: u64) -> u64 {
    number * (BYTES / u64::from(LBA_BYTES) / REQUESTS)
}

/// Submits `op` on `bytes` for each number, and passes the returned data on.
fn all(client: &HostClient, op: IoOp, bytes: usize, mut done: impl FnMut(u64, &[u8])) {
    let (sender, completions) = channel();
    for number in 0..REQUESTS {
        let seed = if op == IoOp::Write { number + bytes as u64 } else { 0 };
        let blocks = bytes as u32 / LBA_BYTES;
        let buffer = Some(pattern(bytes, seed));
        client.submit_to(request(op, slba(number), blocks, buffer, number), &sender);
    }
    for _ in 0..REQUESTS {
        let completion = completions.recv_timeout(LONG).expect("it is answered");
        assert!(completion.status.is_success(), "{}", completion.status);
        done(completion.token, &completion.buffer.expect("it comes back"));
    }
}

#[test]
fn what_is_written_there_is_read_over_another_connection() {
    let server = serve(vec![memory(1, BYTES, LBA_BYTES)]);
    let (writer, reader) = (connect(&server), connect(&server));
    for bytes in [512, 1024, 1536, 4096, 4608, 8192] {
        all(&writer, IoOp::Write, bytes, |_, _| {});
        all(&reader, IoOp::Read, bytes, |number, read| {
            let wanted = pattern(bytes, number + bytes as u64);
            assert!(read == &wanted[..], "{bytes} bytes at block {}", slba(number));
        });
    }
}

//! Blocks of memory namespaces change completely or not at all, wherever a connection ends and however data is split.

use crate::harness::*;
use crate::peer::*;
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::sqe::{Sqe, opcode};
use std::net::Shutdown;
use std::time::Duration;

const LEN: usize = 2 * BLOCK as usize;

fn harness(lba_bytes: u32) -> EngineHarness {
    EngineHarness::with(server_config(vec![memory(1, MIB, lba_bytes)]))
}

fn read(harness: &EngineHarness, len: usize) -> Buffer {
    harness.client.read(1, 0, Buffer::alloc(len)).unwrap()
}

/// Sends `pdu` up to `cut`, in two parts, closes the connection, and waits until the target has closed it, too.
fn send_and_end(mut peer: RawPeer, pdu: &[u8], cut: usize) {
    let (first, second) = pdu[..cut].split_at(cut / 2);
    peer.send(first);
    peer.send(second);
    peer.socket.shutdown(Shutdown::Write).unwrap();
    peer.assert_ends();
}

/// Checks that each block of `now` is that of `before` or of `written`. Returns the number of written blocks.
fn assert_whole(now: &[u8], before: &[u8], written: &[u8], block: usize, cut: usize) -> usize {
    let mut count = 0;
    for (number, now) in now.chunks(block).enumerate() {
        let at = number * block..number * block + now.len();
        assert!(
            *now == before[at.clone()] || *now == written[at.clone()],
            "block {number} is torn by a cut at {cut}"
        );
        count += usize::from(*now == written[at]);
    }
    count
}

/// Returns every offset up to `end`, or one of thirteen, and the end.
fn cuts(end: usize) -> impl Iterator<Item = usize> {
    (0..end).step_by(effort(13, 1) as usize).chain([end])
}

#[test]
fn a_connection_cut_at_any_byte_of_a_capsule_leaves_blocks_whole() {
    let harness = harness(BLOCK);
    let (old, new) = (pattern(LEN, 1), pattern(LEN, 2));
    let capsule = raw::write_in_capsule(2, &new, raw::PLAIN);
    for cut in cuts(capsule.len()) {
        harness.client.write(1, 0, pattern(LEN, 1), false).unwrap();
        send_and_end(harness.queue(raw::PLAIN), &capsule, cut);
        let written = assert_whole(&read(&harness, LEN), &old, &new, BLOCK as usize, cut);
        assert!(cut < capsule.len() || written == 2, "a whole write that was received is executed");
    }
    harness.assert_healthy();
}

#[test]
fn a_connection_cut_at_any_byte_of_r2t_data_leaves_blocks_whole() {
    let harness = harness(BLOCK);
    let (old, new) = (pattern(LEN, 1), pattern(LEN, 2));
    let pdu_bytes = raw::h2c_data(2, 0, 0, &new, true).len();
    for cut in cuts(pdu_bytes) {
        harness.client.write(1, 0, pattern(LEN, 1), false).unwrap();
        let mut peer = harness.queue(raw::PLAIN);
        peer.send(&write(2, LEN as u32, raw::PLAIN));
        let data = raw::h2c_data(2, peer.r2t(2), 0, &new, true);
        send_and_end(peer, &data, cut);
        assert_whole(&read(&harness, LEN), &old, &new, BLOCK as usize, cut);
    }
    harness.assert_healthy();
}

/// Data that arrives in several receives, with blocks of 4 KiB.
#[test]
fn a_large_write_cut_anywhere_leaves_blocks_whole() {
    const LARGE: usize = 128 << 10;
    let harness = harness(4096);
    let (old, new) = (pattern(LARGE, 1), pattern(LARGE, 2));
    for cut in (0..LARGE + 24).step_by(LARGE / 41) {
        harness.client.write(1, 0, pattern(LARGE, 1), false).unwrap();
        let mut peer = harness.queue(raw::PLAIN);
        let mut sqe = Sqe::rw(opcode::WRITE, 1, 0, LARGE as u32 / 4096);
        sqe.set_transport(LARGE as u32);
        peer.send(&raw::command(2, sqe, &[], raw::PLAIN));
        let data = raw::h2c_data(2, peer.r2t(2), 0, &new, true);
        for part in data[..cut].chunks(cut / 5 + 1) {
            peer.send(part);
            std::thread::sleep(Duration::from_millis(1)); // so that each part is received separately
        }
        peer.socket.shutdown(Shutdown::Write).unwrap();
        peer.assert_ends();
        assert_whole(&read(&harness, LARGE), &old, &new, 4096, cut);
    }
    harness.assert_healthy();
}

/// Writes of `LEN` to two places, whose data arrives in alternating pieces that end within blocks.
struct SplitWrites {
    peer: RawPeer,
    ttags: [u16; 2],
}

impl SplitWrites {
    fn begin(harness: &EngineHarness) -> Self {
        let mut peer = harness.queue(raw::PLAIN);
        let mut begin_write = |cid: u16| {
            let mut sqe = Sqe::rw(opcode::WRITE, 1, u64::from(cid - 2) * 2, 2);
            sqe.set_transport(LEN as u32);
            peer.send(&raw::command(cid, sqe, &[], raw::PLAIN));
            peer.r2t(cid)
        };
        let ttags = [begin_write(2), begin_write(3)];
        SplitWrites { peer, ttags }
    }

    /// Sends bytes `at` to `end` of both writes.
    fn send(&mut self, data: &[u8], at: usize, end: usize) {
        for (number, data) in data.chunks(LEN).enumerate() {
            let (cid, ttag) = (number as u16 + 2, self.ttags[number]);
            let pdu = raw::h2c_data(cid, ttag, at as u32, &data[at..end], end == LEN);
            self.peer.send(&pdu);
        }
    }
}

#[test]
fn data_may_be_cut_inside_of_blocks() {
    let harness = harness(BLOCK);
    let new = pattern(2 * LEN, 2);
    for cuts in [&[4, 8, 512, 516][..], &[512, 1000], &[100, 600, 1020], &[512]] {
        harness.client.write(1, 0, pattern(2 * LEN, 1), false).unwrap();
        let mut split = SplitWrites::begin(&harness);
        let mut at = 0;
        for &end in cuts.iter().chain(&[LEN]) {
            split.send(&new, at, end);
            at = end;
        }
        assert!(split.peer.completion(2).is_success() && split.peer.completion(3).is_success());
        assert!(*read(&harness, 2 * LEN) == *new, "cut at {cuts:?}");
    }
    harness.assert_healthy();
}

#[test]
fn a_connection_cut_between_parts_of_a_block_leaves_it_whole() {
    let harness = harness(BLOCK);
    let (old, new) = (pattern(2 * LEN, 1), pattern(2 * LEN, 2));
    for end in cuts(LEN / 4).map(|end| end * 4).filter(|end| (4..LEN).contains(end)) {
        harness.client.write(1, 0, pattern(2 * LEN, 1), false).unwrap();
        let mut split = SplitWrites::begin(&harness);
        split.send(&new, 0, end);
        split.peer.socket.shutdown(Shutdown::Write).unwrap();
        split.peer.assert_ends();
        assert_whole(&read(&harness, 2 * LEN), &old, &new, BLOCK as usize, end);
    }
    harness.assert_healthy();
}

/// Parts of blocks wait in buffers, which are few.
#[test]
fn parts_of_blocks_wait_for_buffers() {
    const WRITES: u16 = 7;
    let directory = tempfile::tempdir().unwrap();
    let (slow, fifo) = slow();
    let exports = vec![memory(1, MIB, BLOCK), file(2, &directory, 4 * MIB, BLOCK), slow];
    let mut config = server_config(exports);
    config.pool_bytes = SCARCE_BYTES;
    let harness = EngineHarness::with(config);
    let mut holder = harness.queue_of(1, 8);
    let mut sqe = Sqe::rw(opcode::WRITE, 2, 0, LARGE / BLOCK);
    sqe.set_transport(LARGE);
    holder.send(&raw::command(2, sqe, &[], raw::PLAIN));
    let held = holder.r2t(2);
    holder.send(&slow_read(3, LARGE));
    eventually("all buffers are out", || harness.server.usage().buffer_bytes == SCARCE_BYTES);
    let mut peers: Vec<RawPeer> = (2..5).map(|qid| harness.queue_of(qid, 8)).collect();
    // Three times seven: more than the reserve.
    let data = |lane: u16, cid: u16| pattern(LEN, u64::from(lane * WRITES + cid - 2));
    let mut tags = Vec::new();
    for (peer, lane) in peers.iter_mut().zip(0..) {
        for cid in 2..2 + WRITES {
            let mut sqe = Sqe::rw(opcode::WRITE, 1, u64::from(lane * WRITES + cid - 2) * 2, 2);
            sqe.set_transport(LEN as u32);
            peer.send(&raw::command(cid, sqe, &[], raw::PLAIN));
            tags.push((lane, cid, peer.r2t(cid)));
        }
    }
    for &(lane, cid, ttag) in &tags {
        let first = raw::h2c_data(cid, ttag, 0, &data(lane, cid)[..100], false);
        peers[usize::from(lane)].send(&first);
    }
    for at in (0..LARGE).step_by(128 << 10) {
        let is_last = at + (128 << 10) == LARGE;
        holder.send(&raw::h2c_data(2, held, at, &vec![1; 128 << 10], is_last));
    }
    assert!(holder.completion(2).is_success());
    for &(lane, cid, ttag) in &tags {
        let rest = raw::h2c_data(cid, ttag, 100, &data(lane, cid)[100..], true);
        peers[usize::from(lane)].send(&rest);
    }
    for peer in &mut peers {
        (0..WRITES).for_each(|_| assert!(peer.any_completion().1.is_success()));
    }
    for number in 0..u64::from(3 * WRITES) {
        let now = harness.client.read(1, number * 2, Buffer::alloc(LEN)).unwrap();
        assert!(*now == *pattern(LEN, number), "write {number}");
    }
    eventually("the slow read is over", || {
        feed(&fifo);
        harness.server.usage().buffer_bytes == 0
    });
}

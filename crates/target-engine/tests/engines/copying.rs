//! Copy: the target copies blocks within a namespace.

use crate::harness::*;
use crate::peer::*;
use roadtrain_host_engine::{HostClient, RequestError};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Server, ServerConfig};
use roadtrain_wire::pdu::PduType;
use roadtrain_wire::sqe::{Sqe, cdw12, opcode};
use roadtrain_wire::status::Status;
use std::time::Duration;

const BLOCK_BYTES: usize = BLOCK as usize;
/// Number of blocks of each namespace.
const BLOCKS: u64 = 64 * MIB / BLOCK as u64;

fn refused(result: Result<(), RequestError>) -> Status {
    let status = result.expect_err("it cannot be").status;
    Status::new((status.code() >> 8) as u8, status.code() as u8)
}

/// Fills blocks, and returns their content.
fn fill(client: &HostClient, nsid: u32, slba: u64, blocks: u32, seed: u64) -> Buffer {
    let data = pattern(blocks as usize * BLOCK_BYTES, seed);
    let mut buffer = Buffer::alloc(data.len());
    buffer.copy_from_slice(&data);
    client.write(nsid, slba, buffer, false).unwrap();
    data
}

fn read(client: &HostClient, nsid: u32, slba: u64, bytes: usize) -> Buffer {
    client.read(nsid, slba, Buffer::alloc(bytes)).unwrap()
}

#[test]
fn ranges_are_copied_side_by_side_in_every_store() {
    let directory = tempfile::tempdir().unwrap();
    let exports = vec![
        memory(1, 64 * MIB, BLOCK),
        file(2, &directory, 64 * MIB, BLOCK),
        ssd(3, 64 * MIB, BLOCK, Duration::from_micros(20), 4),
    ];
    let config = ServerConfig { cores: reactors(2), ..server_config(exports) };
    let server = Server::start(config).unwrap();
    let client = connect(&server);
    for nsid in 1..=3 {
        for (fua, to) in [(false, 10_000), (true, 30_001)] {
            // Less than a piece, more than one, and a short last piece.
            let sources = [(7, 1), (100, 300), (2000, 128), (3000, 129)];
            let parts = sources.iter().zip(1..);
            let parts =
                parts.map(|(&(slba, blocks), seed)| fill(&client, nsid, slba, blocks, seed));
            let expected = parts.map(|part| part.to_vec()).collect::<Vec<_>>().concat();
            let after = fill(&client, nsid, to + expected.len() as u64 / u64::from(BLOCK), 1, 9);
            client.copy(nsid, &sources, to, fua).unwrap();
            let copied = read(&client, nsid, to, expected.len());
            assert!(copied[..] == expected[..], "nsid {nsid}");
            let behind = to + expected.len() as u64 / u64::from(BLOCK);
            assert!(read(&client, nsid, behind, BLOCK_BYTES)[..] == after[..], "too much");
        }
    }
    drop(client);
    assert_nothing_left(&server);
}

#[test]
fn limits_of_copies_are_those_that_are_announced() {
    let server = serve(vec![memory(1, 64 * MIB, BLOCK)]);
    let client = connect(&server);
    // MSSRL, MCL and MSRC, in blocks of 512 bytes.
    let (range, all, ranges) = (8192, 32_768, 128);
    let to = BLOCKS / 2;
    client.copy(1, &[(0, range); 4], to, false).unwrap();
    client.copy(1, &vec![(0, 1); ranges], to, false).unwrap();
    assert_eq!(u64::from(range) * 4, all);
    let limit = Status::COMMAND_SIZE_LIMIT_EXCEEDED;
    assert_eq!(refused(client.copy(1, &[(0, range + 1)], to, false)), limit);
    let more = [(0, range), (0, range), (0, range), (0, range), (0, 1)];
    assert_eq!(refused(client.copy(1, &more, to, false)), limit);
    assert_eq!(refused(client.copy(1, &vec![(0, 1); ranges + 1], to, false)), limit);
    assert_eq!(refused(client.copy(1, &[(BLOCKS - 1, 2)], 0, false)), Status::LBA_OUT_OF_RANGE);
    assert_eq!(refused(client.copy(1, &[(0, 2)], BLOCKS - 1, false)), Status::LBA_OUT_OF_RANGE);
    assert_eq!(refused(client.copy(1, &[(0, 9)], 8, false)), Status::OVERLAPPING_IO_RANGE);
    drop(client);
    assert_nothing_left(&server);
}

/// Returns the capsule of a Copy (NVM Command Set 1.1, section 3.3.2).
fn copy(cid: u16, to: u64, flags: u32, sources: &[(u64, u16)]) -> Vec<u8> {
    let mut sqe = Sqe::new(opcode::COPY, 1);
    sqe.set_slba(to);
    sqe.cdw12 = ((sources.len() as u32 - 1) | flags).into();
    let mut list = vec![0; sources.len() * 32];
    for (entry, (slba, blocks)) in list.chunks_exact_mut(32).zip(sources) {
        entry[8..16].copy_from_slice(&slba.to_le_bytes());
        entry[16..18].copy_from_slice(&(blocks - 1).to_le_bytes());
    }
    sqe.set_in_capsule(list.len() as u32);
    raw::command(cid, sqe, &list, raw::PLAIN)
}

/// Returns CDW0 and status of a completion.
fn answer(peer: &mut RawPeer) -> (u32, Status) {
    let (kind, pdu) = peer.next().expect("a completion");
    assert_eq!(kind, PduType::CapsuleResp as u8);
    let status = Status::from_field(u16::from_le_bytes([pdu[22], pdu[23]]));
    (u32::from_le_bytes([pdu[8], pdu[9], pdu[10], pdu[11]]), status)
}

/// CDW0 is the first range that was not copied completely.
#[test]
fn a_partial_copy_reports_the_first_range_not_copied() {
    let directory = tempfile::tempdir().unwrap();
    let harness = EngineHarness::with(server_config(vec![file(1, &directory, MIB, BLOCK)]));
    let path = directory.path().join("1.img");
    let data = fill(&harness.client, 1, 0, 8, 3);
    std::fs::File::options().write(true).open(path).unwrap().set_len(MIB / 2).unwrap();
    let gone = MIB / u64::from(BLOCK) - 8;
    let mut peer = harness.queue(raw::PLAIN);
    peer.send(&copy(2, 100, 0, &[(0, 8), (0, 4), (gone, 4), (0, 1)]));
    let (range, status) = answer(&mut peer);
    assert!(status.is(Status::UNRECOVERED_READ_ERROR), "{status}");
    assert_eq!(range, 2);
    assert!(read(&harness.client, 1, 100, data.len())[..] == data[..], "what came before is done");
    peer.send(&copy(3, 100, 0, &[(0, 8), (4, 4)]));
    assert_eq!(answer(&mut peer), (0, Status::SUCCESS));
    // Unsupported formats of ranges, and protection information.
    for flags in [1 << 8, 4 << 8, 1 << 12, cdw12::PRINFO] {
        peer.send(&copy(4, 100, flags, &[(0, 8)]));
        assert!(answer(&mut peer).1.is(Status::INVALID_FIELD), "{flags:#x}");
    }
    drop(peer);
    harness.assert_healthy();
}

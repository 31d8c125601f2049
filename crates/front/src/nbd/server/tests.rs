use super::harness::{self, Mock, MockOptions, NbdHarness, NbdTestClient};
use crate::disk::{DiskInfo, test_info};
use crate::nbd::{NbdAddress, NbdClients, NbdEndpoint, NbdServer, NbdTls};
use roadtrain_host_engine::{IoOp, LaneId};
use roadtrain_wire::nbd::{Command, Errno, NbdRequest, OptionCode, OptionReplyCode, command_flag};
use roadtrain_wire::status::Status;
use std::io::{ErrorKind, Read, Write};
use std::iter;
use std::net::TcpStream;
use std::time::Duration;

fn patterned(offset: u64, length: u32) -> Vec<u8> {
    harness::patterned(offset as usize..offset as usize + length as usize)
}

fn request(cookie: u64, command: Command, offset: u64, length: u32) -> NbdRequest {
    NbdRequest { flags: 0, command, cookie, offset, length }
}

#[test]
fn reads_return_what_is_there_aligned_or_not() {
    for structured in [false, true] {
        let harness = NbdHarness::start(MockOptions::default());
        let mut client = harness.client(structured);
        for (offset, length) in [(0, 512), (0, 1 << 20), (511, 2), (700, 1), (1, 300_000)] {
            assert!(client.read(offset, length) == patterned(offset, length), "{offset} {length}");
        }
        harness.stop();
    }
}

#[test]
fn writes_change_exactly_their_range() {
    let harness = NbdHarness::start(MockOptions::default());
    let mut client = harness.client(true);
    let mut model = patterned(0, 1 << 20);
    let ranges =
        [(0, 512), (4096, 4096), (511, 2), (10_000, 300), (99_999, 400_001), (1_048_575, 1)];
    for (turn, (offset, length)) in ranges.into_iter().enumerate() {
        let data = vec![turn as u8 + 1; length];
        assert_eq!(client.write(0, offset as u64, &data), Errno::OK);
        model[offset..offset + length].copy_from_slice(&data);
        assert!(client.read(0, 1 << 20) == model, "{offset} {length}");
    }
    harness.stop();
}

#[test]
fn zeroes_are_exact_and_trims_keep_the_edges() {
    let harness = NbdHarness::start(MockOptions::default());
    let mut client = harness.client(true);
    let mut model = patterned(0, 1 << 20);
    let zeroes = |flags| (Command::WRITE_ZEROES, flags);
    for ((command, flags), offset, length) in [
        (zeroes(0), 1024, 2048),
        (zeroes(command_flag::NO_HOLE), 4000, 5000),
        (zeroes(command_flag::FUA), 20_001, 3),
        ((Command::TRIM, 0), 30_000, 5000),
        ((Command::TRIM, 0), 40_000, 10),
    ] {
        assert_eq!(client.call(command, flags, offset as u64, &[], length as u32).0, Errno::OK);
        if command == Command::WRITE_ZEROES {
            model[offset..offset + length].fill(0);
        } else {
            let (start, end) = (offset.next_multiple_of(512), (offset + length) / 512 * 512);
            model[start.min(end)..end].fill(0xdd);
        }
        assert!(client.read(0, 1 << 20) == model, "{command} {offset} {length}");
    }
    let submitted = harness.stop();
    let deallocates: Vec<bool> = submitted
        .iter()
        .filter_map(|(op, ..)| match op {
            IoOp::WriteZeroes { deallocate } => Some(*deallocate),
            _ => None,
        })
        .collect();
    assert_eq!(deallocates, [true, false], "NO_HOLE keeps blocks allocated; the last was patched");
}

#[test]
fn neighbours_in_a_block_do_not_undo_each_other() {
    for lanes in [1, 2] {
        let harness = NbdHarness::start(MockOptions { lanes, room: 64, ..MockOptions::default() });
        let mut clients: Vec<_> = (0..4).map(|_| harness.client(true)).collect();
        // Each write is 96 bytes long or so; neighbours belong to different clients.
        let mut model = patterned(0, 1 << 20);
        let mut requests = vec![Vec::new(); clients.len()];
        let mut offset = 0;
        for cookie in 0..600 {
            let length = [96, 512, 1000, 7][cookie % 4];
            let id = cookie % clients.len();
            let data = vec![cookie as u8; length];
            model[offset..offset + length].copy_from_slice(&data);
            let request = request(cookie as u64, Command::WRITE, offset as u64, length as u32);
            clients[id].send(request, &data);
            requests[id].push(request);
            offset += length;
        }
        for (client, requests) in clients.iter_mut().zip(&requests) {
            for _ in requests {
                assert_eq!(client.answer(requests).1, Errno::OK);
            }
        }
        assert!(*harness.disk.lock().unwrap() == model, "{lanes} lanes");
        harness.stop();
    }
}

#[test]
fn a_deep_queue_of_everything_is_answered_once_each() {
    let harness = NbdHarness::start(MockOptions { room: 3, ..MockOptions::default() });
    let mut client = harness.client(true);
    let mut requests = Vec::new();
    for cookie in 0..500u64 {
        let command =
            [Command::READ, Command::WRITE, Command::FLUSH, Command::TRIM][cookie as usize % 4];
        // Writes repeat the existing data, so reads may come before or after.
        let (offset, length) = (cookie * 1000, if command == Command::FLUSH { 0 } else { 3000 });
        let offset = if command == Command::FLUSH { 0 } else { offset };
        let length = if command == Command::TRIM { 100 } else { length };
        let request = request(cookie, command, offset, length);
        let data = if command == Command::WRITE { patterned(offset, length) } else { vec![] };
        client.send(request, &data);
        requests.push(request);
    }
    let mut seen = vec![false; requests.len()];
    for _ in &requests {
        let (cookie, errno, data) = client.answer(&requests);
        assert_eq!(errno, Errno::OK);
        assert!(!std::mem::replace(&mut seen[cookie as usize], true), "answered twice");
        let request = requests[cookie as usize];
        if request.command == Command::READ {
            assert!(data == patterned(request.offset, request.length));
        }
    }
    harness.stop();
}

#[test]
fn large_requests_are_split_and_joined() {
    let mut info = test_info();
    (info.blocks, info.lba_bytes) = (10_000, 4096);
    let harness = NbdHarness::start(MockOptions { info, ..MockOptions::default() });
    for structured in [false, true] {
        let mut client = harness.client(structured);
        let length = 32 << 20;
        assert!(client.read(4097, length) == patterned(4097, length));
        let data = vec![u8::from(structured); length as usize];
        assert_eq!(client.write(0, 5, &data), Errno::OK);
        assert!(client.read(5, length) == data);
        client.send(request(9, Command::WRITE, 0, (32 << 20) + 1), &vec![0; (32 << 20) + 1]);
        assert_eq!(client.answer(&[request(9, Command::WRITE, 0, 0)]).1, Errno::EINVAL);
        assert_eq!(client.read(0, 5), patterned(0, 5));
        client.write(0, 5, &patterned(5, length));
    }
    harness.stop();
}

#[test]
fn a_client_that_does_not_read_is_bounded_and_loses_nothing() {
    let mut info = test_info();
    info.blocks = 32 << 10;
    let harness = NbdHarness::start(MockOptions { info, room: 64, ..MockOptions::default() });
    let mut client = harness.client(true);
    // 200 MiB of data for a client that does not read: more than the server may hold.
    let requests: Vec<_> =
        (0..200).map(|cookie| request(cookie, Command::READ, cookie << 10, 1 << 20)).collect();
    requests.iter().for_each(|request| client.send(*request, &[]));
    std::thread::sleep(std::time::Duration::from_millis(300));
    // Other clients are served meanwhile.
    assert!(harness.client(true).read(3, 1 << 20) == patterned(3, 1 << 20));
    for _ in &requests {
        let (cookie, errno, data) = client.answer(&requests);
        assert_eq!(errno, Errno::OK);
        assert!(data == patterned(cookie << 10, 1 << 20));
    }
    harness.stop();
}

#[test]
fn failures_of_the_lane_reach_the_client() {
    let fails = Some((4, Status::UNRECOVERED_READ_ERROR.dnr()));
    let harness = NbdHarness::start(MockOptions { fails, ..MockOptions::default() });
    for structured in [false, true] {
        let mut client = harness.client(structured);
        let (errno, message) = client.call(Command::READ, 0, 2048, &[], 512);
        assert_eq!(errno, Errno::EIO);
        let message = String::from_utf8(message).unwrap();
        assert_eq!(message.contains("Unrecovered Read Error"), structured, "{message}");
        assert_eq!(client.write(0, 2050, &[1, 2, 3]), Errno::EIO, "a patch whose read fails");
        // One part of several fails: the whole request does.
        assert_eq!(client.write(0, 2047, &[0; 513 + 512]), Errno::EIO);
        assert_eq!(client.read(0, 512), patterned(0, 512));
    }
    harness.stop();
}

#[test]
fn a_client_that_breaks_the_protocol_is_dropped_and_others_are_not() {
    let harness = NbdHarness::start(MockOptions::default());
    let mut good = harness.client(true);
    let mut bad = harness.connect();
    bad.take(18);
    bad.stream.write_all(&[0xff; 4]).unwrap();
    assert!(bad.is_closed());
    let mut bad = harness.client(false);
    bad.stream.write_all(&[0; 28]).unwrap();
    assert!(bad.is_closed());
    assert_eq!(good.read(0, 1), patterned(0, 1));
    harness.stop();
}

#[test]
fn a_client_may_vanish_at_any_byte() {
    let harness = NbdHarness::start(MockOptions::default());
    let write =
        [&request(1, Command::WRITE, 100, 200_000).emit()[..], &patterned(100, 200_000)].concat();
    for cut in [0, 1, 27, 28, 29, 1000, 150_000, 200_000, write.len()] {
        let mut client = harness.client(true);
        client.send(request(2, Command::READ, 0, 100_000), &[]);
        client.stream.write_all(&write[..cut]).unwrap();
    }
    assert!(harness.client(false).read(0, 1 << 20) == patterned(0, 1 << 20));
    harness.stop();
}

#[test]
fn disconnect_answers_what_is_under_way_first() {
    let harness = NbdHarness::start(MockOptions { room: 1, ..MockOptions::default() });
    let mut client = harness.client(true);
    let requests: Vec<_> = (0..20).map(|c| request(c, Command::READ, c * 512, 512)).collect();
    requests.iter().for_each(|request| client.send(*request, &[]));
    client.send(request(99, Command::DISC, 0, 0), &[]);
    requests.iter().for_each(|_| assert_eq!(client.answer(&requests).1, Errno::OK));
    assert!(client.is_closed());
    harness.stop();
}

#[test]
fn a_half_closed_client_gets_its_answers() {
    let harness = NbdHarness::start(MockOptions::default());
    let mut client = harness.client(true);
    let requests: Vec<_> = (0..20).map(|c| request(c, Command::READ, c * 512, 512)).collect();
    requests.iter().for_each(|request| client.send(*request, &[]));
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    requests.iter().for_each(|_| assert_eq!(client.answer(&requests).1, Errno::OK));
    assert!(client.is_closed());
    harness.stop();
}

#[test]
fn resize_and_removal_are_seen() {
    let harness = NbdHarness::start(MockOptions::default());
    let mut client = harness.client(true);
    harness.export.disk().resize(1);
    assert_eq!(client.call(Command::READ, 0, 512, &[], 1).0, Errno::EINVAL);
    assert_eq!(client.write(0, 512, &[1]), Errno::ENOSPC);
    harness.export.disk().update(None);
    assert_eq!(client.call(Command::READ, 0, 0, &[], 1).0, Errno::ESHUTDOWN);
    let mut late = harness.connect();
    late.take(18);
    late.stream.write_all(&3u32.to_be_bytes()).unwrap();
    assert_eq!(late.option(OptionCode::GO, &[0; 6]), OptionReplyCode::ERR_UNKNOWN);
    harness.export.disk().update(Some(2048));
    assert_eq!(late.option(OptionCode::GO, &[0; 6]), OptionReplyCode::ACK);
    assert_eq!(client.read(0, 1), patterned(0, 1));
    harness.stop();
}

#[test]
fn lone_and_forced_requests_are_urgent() {
    let harness = NbdHarness::start(MockOptions { room: 64, ..MockOptions::default() });
    let mut client = harness.client(false);
    client.read(0, 512);
    client.write(command_flag::FUA, 0, &patterned(0, 512));
    assert_eq!(client.call(Command::FLUSH, 0, 0, &[], 0).0, Errno::OK);
    let requests: Vec<_> = (0..32).map(|c| request(c, Command::READ, c * 512, 512)).collect();
    let bytes: Vec<u8> = requests.iter().flat_map(NbdRequest::emit).collect();
    client.stream.write_all(&bytes).unwrap();
    requests.iter().for_each(|_| assert_eq!(client.answer(&requests).1, Errno::OK));
    let submitted = harness.stop();
    assert_eq!(submitted[0], (IoOp::Read, 0, 1, false, true), "a lone request");
    assert_eq!(submitted[1], (IoOp::Write, 0, 1, true, true));
    assert_eq!(submitted[2], (IoOp::Flush, 0, 0, false, true));
    assert!(submitted[3..].iter().any(|submitted| !submitted.4), "in company there is time");
}

#[test]
fn clients_are_spread_over_the_lanes() {
    let (address, mut servers) = two_servers();
    let mut mocks = [0, 1].map(|seed| Mock::new(MockOptions::default(), seed));
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(TcpStream::connect(&address).unwrap());
        for _ in 0..4 {
            mocks.iter_mut().zip(&mut servers).for_each(|(mock, server)| mock.turn(server));
        }
    }
    assert_eq!(servers.each_ref().map(|server| server.connections.len()), [4, 4]);
    // If the other servers do not accept, the busy one does.
    clients.push(TcpStream::connect(&address).unwrap());
    (0..20).for_each(|_| mocks[0].turn(&mut servers[0]));
    clients.push(TcpStream::connect(&address).unwrap());
    (0..20).for_each(|_| mocks[0].turn(&mut servers[0]));
    assert_eq!(servers[0].connections.len(), 6);
}

/// Two lanes' servers at one TCP address.
fn two_servers() -> (String, [NbdServer; 2]) {
    let address: NbdAddress = "nbd:tcp:127.0.0.1:0".parse().unwrap();
    let server = NbdServer::bind(&address, test_info().into(), LaneId(0)).unwrap();
    let NbdAddress::Tcp { host, port } = server.address() else { panic!("not TCP") };
    let address = format!("{host}:{port}");
    let other = server.for_lane(LaneId(0)).unwrap();
    (address, [server, other])
}

#[test]
fn tcp_serves_as_well() {
    let (address, [mut server, _]) = two_servers();
    let mut stream = TcpStream::connect(address).unwrap();
    let mut mock = Mock::new(MockOptions::default(), 0);
    (0..20).for_each(|_| mock.turn(&mut server));
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
}

#[test]
fn several_lanes_of_a_reactor_are_used_by_client() {
    let (address, [server, _]) = two_servers();
    let mut server = server.with_lanes(3);
    let mut mock = Mock::new(MockOptions::default(), 0);
    let read = request(1, Command::READ, 0, 512).emit();
    let handshake = [&[0, 0, 0, 3], &b"IHAVEOPT\0\0\0\x01\0\0\0\0"[..]].concat();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(&[&handshake, &read[..], &read[..]].concat()).unwrap();
        (0..40).for_each(|_| mock.turn(&mut server));
        clients.push(stream);
    }
    let lanes: Vec<usize> = mock.lanes.iter().map(|lane| lane.0).collect();
    assert_eq!(lanes, [1, 1, 2, 2, 0, 0]);
}

#[test]
fn a_client_that_never_ends_the_handshake_is_disconnected() {
    let harness = NbdHarness::start_with(MockOptions::default(), |server| {
        server.with_handshake_timeout(std::time::Duration::from_secs(1))
    });
    let mut silent = harness.connect();
    let mut client = harness.client(true);
    let mut greeting = Vec::new();
    silent.stream.read_to_end(&mut greeting).expect("the server hangs up");
    assert!(!greeting.is_empty());
    // A client that has finished its handshake may be idle for any time.
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(client.read(0, 512), patterned(0, 512));
    harness.stop();
}

#[test]
fn the_oldest_in_its_handshake_makes_room() {
    let harness = NbdHarness::start(MockOptions::default());
    let mut client = harness.client(true);
    let silent: Vec<_> = (0..256).map(|_| harness.connect()).collect();
    let mut last = harness.client(true);
    assert_eq!(last.read(0, 512), patterned(0, 512));
    assert_eq!(client.read(0, 512), patterned(0, 512), "it is through its handshake");
    let mut greeting = Vec::new();
    (&silent[0].stream).read_to_end(&mut greeting).expect("the server hangs up");
    drop(silent);
    harness.stop();
}

/// Makes a server with TLS with the handshake limit `timeout`; returns its address, too.
fn secured_server(timeout: Duration) -> (String, NbdServer, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let keys = directory.path().join("keys.psk");
    std::fs::write(&keys, format!("alice:{}\n", "5a".repeat(32))).unwrap();
    let address: NbdAddress = "nbd:tcp:127.0.0.1:0".parse().unwrap();
    let tls = NbdTls::Keys(keys);
    let endpoint = NbdEndpoint::bind(&address, NbdClients::Local, Some(&tls), test_info().into());
    let server = NbdServer::new(endpoint.unwrap(), LaneId(0)).unwrap();
    let server = server.with_handshake_timeout(timeout);
    let NbdAddress::Tcp { host, port } = server.address() else { panic!("not TCP") };
    (format!("{host}:{port}"), server, directory)
}

/// Connects a client that requests TLS and then sends nothing; returns its stream when the server waits for it.
fn silent_after_starttls(address: &str, mock: &mut Mock, server: &mut NbdServer) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&[0, 0, 0, 3]).unwrap();
    stream.write_all(b"IHAVEOPT\0\0\0\x05\0\0\0\0").unwrap();
    (0..20).for_each(|_| mock.turn(server));
    let mut received = [0; 18 + 20];
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.read_exact(&mut received).unwrap();
    let accepted = [&b"\0\x03\xe8\x89\x04\x55\x65\xa9"[..], &[0, 0, 0, 5, 0, 0, 0, 1]].concat();
    assert_eq!(received[18..34], accepted);
    stream
}

/// Nothing, or a part of a TLS record: in both cases the server's limit ends it, before that of the TLS handshake.
#[test]
fn a_client_that_is_silent_after_starttls_is_disconnected() {
    let (address, mut server, _keys) = secured_server(Duration::from_millis(50));
    let mut mock = Mock::new(MockOptions::default(), 0);
    for begun in [&b""[..], &[0x16, 3, 1], &[0x16, 3, 1, 1, 0, 1]] {
        let mut stream = silent_after_starttls(&address, &mut mock, &mut server);
        stream.write_all(begun).unwrap();
        stream.set_nonblocking(true).unwrap();
        let waits = stream.read(&mut [0; 64]).map_err(|error| error.kind());
        assert_eq!(waits, Err(ErrorKind::WouldBlock));
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        (0..600).for_each(|_| mock.turn(&mut server)); // 60 ms by its clock
        let ended = stream.read(&mut [0; 64]).map_err(|error| error.kind());
        assert!(matches!(ended, Ok(0) | Err(ErrorKind::ConnectionReset)), "{ended:?}");
    }
}

/// The maximum of clients is half open: the oldest makes room, so a flood keeps no client out.
#[test]
fn the_oldest_behind_starttls_makes_room() {
    let (address, mut server, _keys) = secured_server(Duration::from_secs(3600));
    let mut mock = Mock::new(MockOptions::default(), 0);
    let mut silent: Vec<_> =
        (0..257).map(|_| silent_after_starttls(&address, &mut mock, &mut server)).collect();
    (0..20).for_each(|_| mock.turn(&mut server));
    let oldest = silent[0].read(&mut [0; 64]);
    assert!(matches!(&oldest, Ok(0)) || oldest.is_err_and(|e| e.kind() != ErrorKind::WouldBlock));
    for which in [1, 256] {
        let stream = &mut silent[which];
        stream.set_nonblocking(true).unwrap();
        let waits = stream.read(&mut [0; 64]).map_err(|error| error.kind());
        assert_eq!(waits, Err(ErrorKind::WouldBlock));
    }
}

/// Sends requests for block status: (cookie, flags, offset, length).
fn request_status(client: &mut NbdTestClient, submitted: &[(u64, u16, u64, u32)]) {
    for &(cookie, flags, offset, length) in submitted {
        let command = Command::BLOCK_STATUS;
        client.send(NbdRequest { flags, command, cookie, offset, length }, &[]);
    }
}

#[test]
fn block_status_is_what_the_target_says() {
    let allocated = Some(vec![8..16, 100..101, 2000..2048]);
    let harness = NbdHarness::start(MockOptions { allocated, ..MockOptions::default() });
    let mut client = NbdTestClient::with_block_status(&harness);
    let (one, data, hole) = (command_flag::REQ_ONE, 0, 3);
    for (flags, offset, length, expected) in [
        (0, 0, 4096, vec![(4096, hole)]),
        (0, 4096, 4096, vec![(4096, data)]),
        (
            0,
            0,
            1 << 20,
            vec![
                (4096, hole),
                (4096, data),
                (84 * 512, hole),
                (512, data),
                (1899 * 512, hole),
                (48 * 512, data),
            ],
        ),
        (one, 0, 1 << 20, vec![(4096, hole)]),
        (one, 4096, 1 << 20 >> 1, vec![(4096, data)]),
        (0, 700, 100, vec![(100, hole)]),
    ] {
        request_status(&mut client, &[(5, flags, offset, length)]);
        assert_eq!(client.block_status(), (5, expected), "{flags} {offset} {length}");
    }
    harness.stop();
}

#[test]
fn block_status_of_many_is_answered_in_order_beside_reads() {
    let allocated = Some(iter::once(8..16).collect());
    let harness = NbdHarness::start(MockOptions { allocated, ..MockOptions::default() });
    let mut clients = [(); 3].map(|()| NbdTestClient::with_block_status(&harness));
    for client in &mut clients {
        let submitted: Vec<_> =
            (0..40).map(|cookie| (cookie, 0, 4096 * (cookie % 2), 4096)).collect();
        request_status(client, &submitted);
    }
    for client in &mut clients {
        for cookie in 0..40 {
            let state = if cookie % 2 == 0 { 3 } else { 0 };
            assert_eq!(client.block_status(), (cookie, vec![(4096, state)]));
        }
        assert!(client.read(0, 512) == patterned(0, 512));
    }
    harness.stop();
}

#[test]
fn unreported_block_status_is_data() {
    let info = |tells_allocation| DiskInfo { reports_allocation: tells_allocation, ..test_info() };
    let fails = Some((3, Status::INTERNAL_ERROR));
    for options in [
        // Not offered, not supported, and no reply.
        MockOptions { info: info(false), allocated: Some(vec![]), ..MockOptions::default() },
        MockOptions { info: info(true), allocated: None, ..MockOptions::default() },
        MockOptions { info: info(true), allocated: Some(vec![]), fails, ..MockOptions::default() },
    ] {
        let harness = NbdHarness::start(options);
        let mut client = NbdTestClient::with_block_status(&harness);
        request_status(&mut client, &[(7, 0, 0, 1 << 20)]);
        assert_eq!(client.block_status(), (7, vec![(1 << 20, 0)]));
        harness.stop();
    }
}

#[test]
fn no_query_is_sent_for_a_client_that_left() {
    let allocated = Some(iter::once(8..16).collect());
    let harness = NbdHarness::start(MockOptions { allocated, ..MockOptions::default() });
    for _ in 0..20 {
        let mut client = NbdTestClient::with_block_status(&harness);
        request_status(&mut client, &(0..20).map(|cookie| (cookie, 0, 0, 512)).collect::<Vec<_>>());
    }
    let mut client = NbdTestClient::with_block_status(&harness);
    request_status(&mut client, &[(9, 0, 4096, 512)]);
    assert_eq!(client.block_status(), (9, vec![(512, 0)]));
    request_status(&mut client, &[(10, 0, 0, 512)]);
    harness.stop();
}

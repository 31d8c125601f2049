use super::*;
use roadtrain_ether_port::port::{Port, PortConfig, is_socket_number_taken};
use roadtrain_wire::ether::{FRAME_HEADER_BYTES, FrameType, VERSION, flags, parse};
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A port with a free socket number.
fn port() -> Port {
    port_at(TCP_PORT, |number| number as u16 | 1)
}

fn port_at(tcp_port: u16, socket_number: impl Fn(u64) -> u16) -> Port {
    medium::provide(open);
    loop {
        let random = RandomState::new().hash_one(0);
        let name = format!("{HERE}:{tcp_port}");
        match Port::open(&name, socket_number(random), &PortConfig::default()) {
            Err(error) if is_socket_number_taken(&error) => {}
            port => return port.unwrap(),
        }
    }
}

fn header(from: &Port, socket_number: u16) -> FrameHeader {
    FrameHeader {
        version: VERSION,
        kind: FrameType::Cargo as u8,
        flags: flags::CRC.into(),
        socket_number: socket_number.into(),
        reply: from.socket_number().into(),
        ..FrameHeader::default()
    }
}

/// Sends a frame of our own bytes and payload.
fn put(from: &mut Port, to: MacAddress, socket_number: u16, bytes: &[u8], payload: &[u8]) {
    from.begin();
    from.bytes(bytes.len()).copy_from_slice(bytes);
    // SAFETY: flushed before the payload goes.
    unsafe { from.payload(payload.as_ptr(), payload.len()) };
    let header = header(from, socket_number);
    from.end(to, header);
    let sent = from.flush().unwrap();
    assert_eq!((sent.frames, sent.refused), (1, 0));
}

/// Returns the bodies of `count` frames for `to`, in order; the ports of `others` are polled meanwhile.
fn bodies(to: &mut Port, others: &mut [&mut Port], count: usize) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while got.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} frames", got.len());
        let shown = to.receive(7, |bytes| {
            assert_eq!(bytes[6..12], mac(HERE).0, "the source");
            let (_, kind, body) = parse(&bytes[ETHERNET_HEADER_BYTES..]).unwrap();
            assert_eq!(kind, FrameType::Cargo);
            got.push(body.to_vec());
        });
        for other in &mut *others {
            other.receive(7, |_| panic!("nothing was sent there"));
        }
        if shown == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    got
}

#[test]
fn frames_go_both_ways_over_one_connection() {
    let (mut a, mut b) = (port(), port());
    let (from_a, from_b) = (a.socket_number(), b.socket_number());
    put(&mut a, mac(HERE), from_b, b"abc", b"defgh");
    assert_eq!(bodies(&mut b, &mut [&mut a], 1), [b"abcdefgh"]);
    put(&mut b, mac(HERE), from_a, b"", b"back");
    put(&mut b, mac(HERE), from_a, b"again", b"");
    assert_eq!(bodies(&mut a, &mut [&mut b], 2), [&b"back"[..], b"again"]);
    assert_eq!(connections_of(from_a) + connections_of(from_b), 2, "both ends of one");
}

/// Connections of this process that are established and have an end of their own at that TCP port.
fn connections_of(socket_number: u16) -> usize {
    const ESTABLISHED: &str = "01";
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ends = table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, remote, state) = (fields.next()?, fields.next()?, fields.next()?);
        let is_ours = |end: &str| end.ends_with(&format!(":{socket_number:04X}"));
        Some(state == ESTABLISHED && (is_ours(local) || is_ours(remote)))
    });
    ends.filter(|is_one| *is_one).count()
}

#[test]
fn discovery_finds_the_socket_number_of_a_target() {
    // A free TCP port, most likely.
    let tcp_port = port().socket_number();
    let (mut host, mut target) = (port_at(tcp_port, |n| n as u16 | 1), port_at(tcp_port, |_| 0));
    put(&mut host, GROUP, 0, b"where", b"");
    assert_eq!(bodies(&mut target, &mut [&mut host], 1), [b"where"]);
    let socket_number = host.socket_number();
    put(&mut target, mac(HERE), socket_number, b"here", b"");
    assert_eq!(bodies(&mut host, &mut [&mut target], 1), [b"here"]);
}

#[test]
fn what_tcp_does_not_take_at_once_follows_in_order() {
    const COUNT: usize = 3000;
    let (mut a, mut b) = (port(), port());
    let body = |number: usize| (number as u64).to_le_bytes().repeat(1000);
    for number in 0..COUNT {
        put(&mut a, mac(HERE), b.socket_number(), &body(number)[..4000], &body(number)[4000..]);
    }
    let got = bodies(&mut b, &mut [&mut a], COUNT);
    assert!(got.iter().enumerate().all(|(number, got)| *got == body(number)));
}

#[test]
fn an_absent_peer_is_a_loss_and_no_more() {
    let (mut a, mut b) = (port(), port());
    let socket_number = b.socket_number();
    put(&mut a, mac(HERE), socket_number, b"one", b"");
    assert_eq!(bodies(&mut b, &mut [&mut a], 1), [b"one"]);
    drop(b);
    for _ in 0..50 {
        a.begin();
        a.bytes(8).fill(1);
        let header = header(&a, socket_number);
        a.end(mac(HERE), header);
        let _ = a.flush().unwrap(); // taken or refused, as it comes
        a.receive(7, |_| panic!("no sender is left"));
    }
}

#[test]
fn connections_with_nonsense_are_ended_and_the_others_are_not() {
    let (mut a, mut b) = (port(), port());
    let socket_number = b.socket_number();
    put(&mut a, mac(HERE), socket_number, b"one", b"");
    assert_eq!(bodies(&mut b, &mut [&mut a], 1), [b"one"]);
    let mut stranger = TcpStream::connect((HERE, socket_number)).unwrap();
    stranger.write_all(&[0xff; 200_000]).unwrap();
    stranger.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        b.receive(7, |_| panic!("that is no frame"));
        match stranger.read(&mut [0]) {
            Err(error) if is_timeout(&error) => assert!(Instant::now() < deadline),
            _ => break, // closed, or reset
        }
    }
    // Half a frame is ignored.
    let mut stranger = TcpStream::connect((HERE, socket_number)).unwrap();
    stranger.write_all(&[1; FRAME_HEADER_BYTES]).unwrap();
    put(&mut a, mac(HERE), socket_number, b"two", b"");
    assert_eq!(bodies(&mut b, &mut [&mut a], 1), [b"two"]);
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

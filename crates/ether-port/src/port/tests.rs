//! Ports at both ends of a veth pair, in a network namespace that a test makes for itself.

mod lab;

use super::*;
use lab::{VethLab, frame_of, in_lab};
use roadtrain_wire::ether::{self, FrameType, GROUP, flags};

const SOCKET: u16 = 0xd00f;
const BROADCAST: MacAddress = MacAddress([0xff; 6]);

fn config(kind: PortKind) -> PortConfig {
    PortConfig { kind, ..PortConfig::default() }
}

const BOTH: [PortKind; 2] = [PortKind::Packet, PortKind::Xdp];

fn open(interface: &str, kind: PortKind) -> Port {
    Port::open(interface, SOCKET, &config(kind)).expect("as root, in a lab")
}

/// Runs a test once with each kind of port.
fn with_both(mtu: usize, test: impl Fn(&VethLab, PortKind) + Copy + Send + Sync) {
    for kind in BOTH {
        in_lab(mtu, |lab| test(lab, kind));
    }
}

fn header(flags: u16) -> FrameHeader {
    let mut header =
        FrameHeader { version: ether::VERSION, kind: FrameType::Cargo as u8, ..Default::default() };
    header.flags.set(flags);
    header.socket_number.set(SOCKET);
    header
}

/// Sends one frame: a copy of `head`, then `payload` without a copy.
fn send(port: &mut Port, to: MacAddress, head: &[u8], payload: &[u8], flags: u16) -> FlushResult {
    assert!(port.has_room());
    port.begin();
    port.bytes(head.len()).copy_from_slice(head);
    // SAFETY: `payload` outlives the flush below.
    unsafe { port.payload(payload.as_ptr(), payload.len()) };
    port.end(to, header(flags));
    port.flush().expect("the port works")
}

fn received(port: &mut Port) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while port.receive(3, |frame| frames.push(frame.to_vec())) > 0 {}
    frames
}

#[test]
fn frames_arrive_as_they_were_built() {
    with_both(9000, |lab, kind| {
        let (mut a, mut b) = (open(VethLab::A, kind), open(VethLab::B, kind));
        assert!(a.has_carrier() && a.is_empty());
        assert_eq!((a.frame_bytes(), a.mtu()), (9000, 9000));
        let payload: Vec<u8> = (0..8192).map(|n| (n * 7 % 251) as u8).collect();
        let sent = send(&mut a, b.mac(), b"head", &payload, flags::CRC);
        assert_eq!((sent.frames, sent.refused), (1, 0));
        assert_eq!(sent.bytes, 14 + 64 + 4 + 8192);
        lab.wait(&b);
        let frames = received(&mut b);
        assert_eq!(frames.len(), 1);
        assert_eq!(frames[0][..6], b.mac().0);
        assert_eq!(frames[0][6..12], a.mac().0);
        assert_eq!(frames[0][12..14], ether::ETHERTYPE.to_be_bytes());
        let (header, kind, body) = ether::parse(&frames[0][14..]).expect("sealed");
        assert_eq!((kind, header.socket_number.get()), (FrameType::Cargo, SOCKET));
        assert_eq!(body, [b"head".as_slice(), &payload].concat());
        assert!(!lab.is_ready(&b), "nothing waits any more");
        assert_eq!(b.counts().received_bytes, a.counts().sent_bytes);
    });
}

#[test]
fn a_send_carries_many_frames_in_order() {
    with_both(1500, |lab, kind| {
        let (mut a, mut b) = (open(VethLab::A, kind), open(VethLab::B, kind));
        let mut built = 0u32;
        while a.has_room() {
            a.begin();
            a.bytes(4).copy_from_slice(&built.to_le_bytes());
            a.end(b.mac(), header(0));
            built += 1;
        }
        assert!(built >= 64, "{built}");
        let sent = a.flush().unwrap();
        assert_eq!(sent.frames as u32, built);
        assert!(kind == PortKind::Xdp || sent.calls == 1);
        assert!(a.has_room());
        lab.wait(&b);
        let numbers = received(&mut b);
        let numbers = numbers.iter().map(|f| u32::from_le_bytes(f[78..82].try_into().unwrap()));
        assert!(numbers.eq(0..built));
    });
}

#[test]
fn the_largest_frames_fit() {
    for mtu in [576, 1500, 9000, 65535] {
        with_both(mtu, |lab, kind| {
            let (mut a, mut b) = (open(VethLab::A, kind), open(VethLab::B, kind));
            assert_eq!(a.frame_bytes(), mtu);
            let payload = vec![7; mtu - FRAME_HEADER_BYTES];
            assert_eq!(send(&mut a, b.mac(), &[], &payload, 0).frames, 1, "MTU {mtu}");
            lab.wait(&b);
            let frames = received(&mut b);
            assert_eq!(frames.len(), 1, "MTU {mtu}");
            assert_eq!(frames[0][78..], payload);
        });
    }
}

#[test]
fn only_its_own_frames_reach_a_port() {
    with_both(1500, |lab, kind| {
        let mut b = open(VethLab::B, kind);
        let to = b.mac();
        let good = frame_of(to, None, ether::ETHERTYPE, SOCKET, 100);
        lab.send_raw(&frame_of(to, None, ether::ETHERTYPE, SOCKET + 1, 100));
        lab.send_raw(&frame_of(to, None, ether::ETHERTYPE, SOCKET.swap_bytes(), 100));
        lab.send_raw(&frame_of(to, None, 0x88b6, SOCKET, 100));
        lab.send_raw(&frame_of(to, Some(5), ether::ETHERTYPE, SOCKET, 100));
        lab.send_raw(&frame_of(
            MacAddress([2, 0, 0, 0, 0, 9]),
            None,
            ether::ETHERTYPE,
            SOCKET,
            100,
        ));
        lab.send_raw(&good[..31]); // ends within SOCKET
        lab.send_raw(&good[..14]);
        lab.send_raw(&frame_of(BROADCAST, None, ether::ETHERTYPE, SOCKET, 100));
        lab.send_raw(&frame_of(GROUP, None, ether::ETHERTYPE, SOCKET, 100));
        lab.send_raw(&good);
        lab.wait(&b);
        assert!(received(&mut b) == [good]);
        assert_eq!(b.counts().malformed, 0);
    });
}

#[test]
fn short_and_oversized_frames_are_counted() {
    with_both(1500, |lab, kind| {
        let mut b = open(VethLab::B, kind);
        let good = frame_of(b.mac(), None, ether::ETHERTYPE, SOCKET, 100);
        lab.send_raw(&good[..32]);
        lab.send_raw(&good[..77]);
        lab.set_mtu(4000);
        lab.send_raw(&frame_of(b.mac(), None, ether::ETHERTYPE, SOCKET, 3000));
        lab.send_raw(&good);
        lab.wait(&b);
        assert!(received(&mut b) == [good]);
        let counts = b.counts();
        assert_eq!(counts.malformed + counts.dropped, 3, "{counts:?}");
    });
}

#[test]
fn a_port_of_a_vlan_takes_its_frames_only() {
    in_lab(1500, |lab| {
        let of = |vlan| PortConfig { vlan: Some(vlan), ..config(PortKind::Packet) };
        let mut a = Port::open(VethLab::A, SOCKET, &of(5)).unwrap();
        let mut b = Port::open(VethLab::B, SOCKET, &of(5)).unwrap();
        lab.send_raw(&frame_of(b.mac(), None, ether::ETHERTYPE, SOCKET, 100));
        lab.send_raw(&frame_of(b.mac(), Some(6), ether::ETHERTYPE, SOCKET, 100));
        lab.send_raw(&frame_of(b.mac(), Some(5), 0x88b6, SOCKET, 100));
        let body = vec![3; a.frame_bytes() - FRAME_HEADER_BYTES];
        assert_eq!(send(&mut a, b.mac(), &body, &[], 0).frames, 1);
        lab.wait(&b);
        let frames = received(&mut b);
        assert_eq!(frames.len(), 1);
        assert_eq!(frames[0][12..14], ether::ETHERTYPE.to_be_bytes(), "without the tag");
        assert_eq!(frames[0][78..], body);
        assert!(received(&mut a).is_empty(), "not what it sent itself");
    });
}

#[test]
fn a_full_ring_drops_and_goes_on() {
    with_both(1500, |lab, kind| {
        let mut a = open(VethLab::A, kind);
        let small = PortConfig { receive_bytes: Some(0), ..config(kind) };
        let mut b = Port::open(VethLab::B, SOCKET, &small).unwrap();
        let room = b.ring_frames();
        for number in 0..room as u32 + 10 {
            send(&mut a, b.mac(), &number.to_le_bytes(), &[], 0);
        }
        lab.wait(&b);
        assert_eq!(received(&mut b).len(), room);
        assert_eq!(b.counts().dropped, 10);
        send(&mut a, b.mac(), b"more", &[], 0);
        lab.wait(&b);
        assert_eq!(received(&mut b).len(), 1);
    });
}

#[test]
fn a_port_survives_its_interface_going_down() {
    with_both(1500, |lab, kind| {
        let (mut a, mut b) = (open(VethLab::A, kind), open(VethLab::B, kind));
        lab.set_up(false);
        assert!(!a.has_carrier() && !b.has_carrier());
        assert_eq!(b.take_error().is_some(), kind == PortKind::Packet);
        assert!(b.take_error().is_none());
        let sent = send(&mut a, b.mac(), b"lost", &[], 0);
        // AF_XDP keeps it until the interface is back.
        assert_eq!(sent.refused, usize::from(kind == PortKind::Packet));
        assert_eq!(sent.frames + sent.refused, 1);
        lab.set_up(true);
        lab.until(|| a.has_carrier() && b.has_carrier());
        send(&mut a, b.mac(), b"back", &[], 0);
        lab.wait(&b);
        assert!(received(&mut b).iter().any(|frame| frame.ends_with(b"back")));
    });
}

#[test]
fn auto_takes_the_interface_only_without_copies() {
    in_lab(1500, |_| {
        let port = Port::open(VethLab::B, SOCKET, &PortConfig::default()).unwrap();
        // A veth pair copies.
        assert_eq!((port.kind(), port.is_zero_copy()), (PortKind::Packet, false));
    });
}

#[test]
fn one_port_over_xdp_has_the_interface() {
    in_lab(1500, |lab| {
        let first = open(VethLab::B, PortKind::Xdp);
        assert_eq!(first.kind(), PortKind::Xdp);
        let second = Port::open(VethLab::B, SOCKET + 1, &config(PortKind::Xdp));
        assert!(second.is_err(), "the interface has a program already");
        // Other frames go on to the network stack.
        let mut other = Port::open(VethLab::B, SOCKET + 1, &config(PortKind::Packet)).unwrap();
        lab.send_raw(&frame_of(other.mac(), None, ether::ETHERTYPE, SOCKET + 1, 100));
        lab.wait(&other);
        assert_eq!(received(&mut other).len(), 1);
        drop(first);
        open(VethLab::B, PortKind::Xdp);
    });
}

#[test]
fn an_interface_that_is_just_given_back_is_waited_for() {
    in_lab(1500, |lab| {
        let held = open(VethLab::B, PortKind::Xdp);
        let give_back = || {
            thread::sleep(Duration::from_millis(50));
            drop(held);
        };
        let mut b = thread::scope(|scope| {
            scope.spawn(give_back);
            open(VethLab::B, PortKind::Xdp)
        });
        lab.send_raw(&frame_of(b.mac(), None, ether::ETHERTYPE, SOCKET, 100));
        lab.wait(&b);
        assert_eq!(received(&mut b).len(), 1);
    });
}

#[test]
fn frames_of_all_queues_are_received() {
    in_lab(1500, |lab| {
        lab.set_queues(2);
        let mut b = open(VethLab::B, PortKind::Xdp);
        assert_eq!(b.interface().queues, 2);
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for number in 0..64 {
            let mut frame = frame_of(b.mac(), None, ether::ETHERTYPE, SOCKET, 100);
            frame[11] = number; // the sender's address decides on the queue
            lab.send_raw(&frame);
            frames.push(frame);
        }
        let mut arrived = Vec::new();
        while arrived.len() < frames.len() {
            lab.wait(&b);
            arrived.extend(received(&mut b));
        }
        arrived.sort();
        assert!(arrived == frames);
    });
}

#[test]
fn frames_go_round_the_rings_many_times() {
    with_both(9000, |lab, kind| {
        let small = PortConfig { receive_bytes: Some(0), ..config(kind) };
        let mut a = Port::open(VethLab::A, SOCKET, &small).unwrap();
        let mut b = Port::open(VethLab::B, SOCKET, &small).unwrap();
        let payload: Vec<u8> = (0..8900).map(|n| (n % 253) as u8).collect();
        for number in 0..600u32 {
            let length = number as usize * 7919 % payload.len();
            let sent = send(&mut a, b.mac(), &number.to_le_bytes(), &payload[..length], flags::CRC);
            assert_eq!(sent.refused, 0, "{number}");
            lab.wait(&b);
            let frames = received(&mut b);
            assert_eq!(frames.len(), 1);
            let (_, _, body) = ether::parse(&frames[0][14..]).expect("whole");
            assert_eq!(body[..4], number.to_le_bytes());
            assert_eq!(body.len(), 4 + length);
        }
        let counts = b.counts();
        assert_eq!((counts.dropped, counts.malformed, counts.joined), (0, 0, 0));
    });
}

#[test]
fn socket_number_0_receives_the_group() {
    in_lab(1500, |lab| {
        let mut listener = Port::open(VethLab::B, 0, &config(PortKind::Auto)).unwrap();
        assert_eq!(listener.kind(), PortKind::Packet);
        lab.send_raw(&frame_of(GROUP, None, ether::ETHERTYPE, 0, 40));
        lab.wait(&listener);
        assert_eq!(received(&mut listener).len(), 1);
    });
}

#[test]
fn errors_of_opening_are_explained() {
    in_lab(1500, |_| {
        let refused = |name: &str, config: &PortConfig| {
            Port::open(name, SOCKET, config).err().expect("refused").to_string()
        };
        let plain = PortConfig::default();
        assert!(refused("lo", &plain).contains("lo is no Ethernet interface"));
        refused("absent", &plain);
        refused("a name that is much too long for an interface", &plain);
        refused("", &plain);
        refused(VethLab::A, &PortConfig { vlan: Some(0), ..plain.clone() });
        refused(VethLab::A, &PortConfig { vlan: Some(4095), ..plain.clone() });
        refused(VethLab::A, &PortConfig { ethertype: 1500, ..plain.clone() });
        refused(VethLab::A, &PortConfig { ethertype: TAG_ETHERTYPE, ..plain });
    });
}

/// Without an interface nothing is sent or received, and nothing breaks; later it works like any other.
#[test]
fn a_port_follows_its_interface() {
    with_both(1500, |lab, kind| {
        let mut a = open(VethLab::A, kind);
        assert!(!a.follow(), "nothing has changed");
        lab.remove();
        assert!(a.follow() && a.is_absent());
        assert!(!a.follow() && !a.has_carrier() && a.frame_bytes() == 0);
        let sent = send(&mut a, BROADCAST, b"void", &[7; 9000], flags::CRC);
        assert_eq!((sent.frames, sent.refused, a.receive(1, |_| ())), (0, 1, 0));
        assert!(a.is_empty());

        let mut b = Port::absent(VethLab::B, SOCKET, &config(kind)).unwrap();
        lab.make(9000);
        for port in [&mut a, &mut b] {
            while port.is_absent() {
                port.follow(); // the kernel may still be releasing AF_XDP's resources
            }
            assert!(port.has_carrier() && port.frame_bytes() == 9000 && !port.follow());
        }
        assert_eq!(send(&mut a, b.mac(), &[], &[7; 8000], 0).frames, 1);
        lab.wait(&b);
        assert_eq!(received(&mut b).len(), 1);
    });
}

/// Lanes may still build frames of the earlier MTU.
#[test]
fn frames_that_have_become_too_large_are_dropped() {
    with_both(9000, |lab, kind| {
        let mut a = open(VethLab::A, kind);
        lab.set_mtu(1500);
        while a.frame_bytes() != 1500 {
            assert!(a.follow() || kind == PortKind::Xdp);
        }
        let b = open(VethLab::B, kind);
        for _ in 0..1000 {
            let sent = send(&mut a, b.mac(), &[7; 1500], &[7; 7400], flags::CRC);
            assert_eq!((sent.frames, sent.refused), (0, 1));
        }
        assert_eq!(send(&mut a, b.mac(), &[], &[7; 1400], 0).frames, 1);
        lab.wait(&b);
    });
}

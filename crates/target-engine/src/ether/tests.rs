//! Tests of a target at one end of a veth pair. The test sends arbitrary frames from the other end.

use crate::skipped::{skipped_test, this_test};
use crate::{Drop, EtherConfig, Export, Server, ServerConfig, Subsystem};
use roadtrain_ether_port::port::{ETHERNET_HEADER_BYTES, Port, PortConfig};
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_wire::ether::setup::{
    JoinBody, JoinedBody, LeaveBody, LeaveReason, OfferBody, QueryBody, addresses, with_nqn,
};
use roadtrain_wire::ether::{
    self, FRAME_HEADER_BYTES, FrameHeader, FrameType, GROUP, MacAddress, VERSION, flags,
};
use roadtrain_wire::fabrics::DISCOVERY_NQN;
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const NQN: &str = "nqn.2024-01.test:disk";
pub(super) const HOST: &str = "rt-tlane-h";
pub(super) const TARGET: &str = "rt-tlane-t";
const LATER_HOST: &str = "rt-later-h";
const LATER: &str = "rt-later-t";
const SOCKET: u16 = 0x7e57;
const LONG: Duration = Duration::from_secs(20);
/// Time to wait for a reply that must not come.
const SHORT: Duration = Duration::from_millis(100);

/// Sender of arbitrary frames.
struct TestFrameSender {
    port: Port,
    target: MacAddress,
    endpoint: [u8; 16],
}

pub(super) fn ip(words: &[&str]) -> bool {
    Command::new("ip").args(words).status().is_ok_and(|status| status.success())
}

/// Runs a test in its own network namespace with a veth pair.
pub(super) fn in_namespace(test: impl FnOnce() + Send) {
    let name = this_test();
    let in_namespace = || {
        // SAFETY: takes a number; affects only this thread and those that it starts.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return skipped_test(&name, "no network namespace of our own");
        }
        if !ip(&["link", "add", HOST, "mtu", "9000", "type", "veth", "peer", "name", TARGET]) {
            return skipped_test(&name, "no veth pairs here");
        }
        for end in [HOST, TARGET] {
            assert!(ip(&["link", "set", end, "mtu", "9000", "up"]));
        }
        test();
    };
    thread::scope(|scope| {
        if let Err(panic) = scope.spawn(in_namespace).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn in_lab(test: impl FnOnce(&Server, &mut TestFrameSender) + Send) {
    in_namespace(|| {
        let server = serve();
        let port = Port::open(HOST, SOCKET, &PortConfig::default()).unwrap();
        let mut sender = TestFrameSender { port, target: GROUP, endpoint: [0; 16] };
        sender.find();
        test(&server, &mut sender);
    });
}

fn serve() -> Server {
    serve_at(&[TARGET])
}

fn serve_at(interfaces: &[&str]) -> Server {
    Server::start(server_config(interfaces)).unwrap()
}

fn server_config(interfaces: &[&str]) -> ServerConfig {
    let store =
        StoreSpec { kind: StoreKind::Memory { size: 1 << 20 }, lba_bytes: 512, read_only: false };
    let exports = vec![Export::new(1, store)];
    let subsystem = Subsystem { namespaces: exports, ..Subsystem::new(NQN) };
    let mut config = ServerConfig::new(Vec::new(), vec![subsystem]);
    let port = PortConfig::default();
    let interfaces = interfaces.iter().map(|name| (*name).to_owned()).collect();
    config.ether = Some(EtherConfig { port, ..EtherConfig::new(interfaces) });
    config.cores = vec![0, 0];
    config
}

impl TestFrameSender {
    fn send(&mut self, header: FrameHeader, body: &[u8]) {
        self.port.begin();
        self.port.bytes(body.len()).copy_from_slice(body);
        self.port.end(self.target, header);
        assert_eq!(self.port.flush().unwrap().frames, 1);
    }

    fn send_setup(&mut self, kind: FrameType, token: u64, body: &[u8]) {
        self.send(header(kind, token, 0), body);
    }

    /// Returns the next frame of that type, if it arrives in time: its source, header and body.
    fn receive_frame(
        &mut self,
        wanted: FrameType,
        within: Duration,
    ) -> Option<(MacAddress, FrameHeader, Vec<u8>)> {
        let deadline = Instant::now() + within;
        let mut found = None;
        while found.is_none() && Instant::now() < deadline {
            let mut poll =
                libc::pollfd { fd: self.port.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid entry.
            unsafe { libc::poll(&mut poll, 1, 10) };
            self.port.receive(1, |bytes| {
                let (outside, inside) = bytes.split_at(ETHERNET_HEADER_BYTES);
                let (header, kind, body) = ether::parse(inside).unwrap();
                if kind == wanted {
                    let source = MacAddress(outside[6..12].try_into().unwrap());
                    found = Some((source, header, body.to_vec()));
                }
            });
        }
        found
    }

    fn receive_reply(&mut self, wanted: FrameType) -> (MacAddress, FrameHeader, Vec<u8>) {
        self.receive_frame(wanted, LONG).unwrap_or_else(|| panic!("no {wanted:?}"))
    }

    fn is_silent(&mut self, wanted: FrameType) -> bool {
        self.receive_frame(wanted, SHORT).is_none()
    }

    fn find(&mut self) {
        let (mut discoveries, mut reply) = (0, None);
        // Frames that arrive before the target's reactor has its port are lost.
        eventually("Offer", || {
            self.send_setup(FrameType::Discover, 0, NQN.as_bytes());
            discoveries += 1;
            reply = self.receive_frame(FrameType::Offer, Duration::from_secs(2));
            reply.is_some()
        });
        while discoveries > 1 && !self.is_silent(FrameType::Offer) {}
        self.endpoint = view::<OfferBody>(&reply.expect("an answer").2).endpoint;
    }

    fn send_join(&mut self, token: u64, join: &JoinBody, nqn: &str) {
        let join = JoinBody { endpoint: self.endpoint, ..*join };
        self.send_setup(FrameType::Join, token, &[join.as_bytes(), nqn.as_bytes()].concat());
    }

    /// Joins. Returns the header, the reply and the target's addresses in it.
    fn join_with_addresses(
        &mut self,
        token: u64,
        join: &JoinBody,
    ) -> (FrameHeader, JoinedBody, Vec<MacAddress>) {
        self.send_join(token, join, NQN);
        let (_, header, body) = self.receive_reply(FrameType::Joined);
        (header, view(&body), addresses(&body[size_of::<JoinedBody>()..]).collect())
    }

    /// Joins at an interface that the lane's reactor may not have seen yet.
    fn join_until_reply(&mut self, token: u64, join: &JoinBody) -> JoinedBody {
        let mut reply = None;
        eventually("Joined", || {
            self.send_join(token, join, NQN);
            reply = self.receive_frame(FrameType::Joined, SHORT);
            reply.is_some()
        });
        view(&reply.expect("an answer").2)
    }

    fn join(&mut self, token: u64, join: &JoinBody, nqn: &str) -> (FrameHeader, JoinedBody) {
        self.send_join(token, join, nqn);
        let (_, header, body) = self.receive_reply(FrameType::Joined);
        (header, view(&body))
    }
}

fn header(kind: FrameType, token: u64, socket_number: u16) -> FrameHeader {
    FrameHeader {
        version: VERSION,
        kind: kind as u8,
        token: token.into(),
        socket_number: socket_number.into(),
        reply: SOCKET.into(),
        ..FrameHeader::default()
    }
}

fn view<T: FromBytes + KnownLayout + Immutable>(body: &[u8]) -> T {
    T::read_from_prefix(body).unwrap().0
}

fn join(token: u64) -> JoinBody {
    JoinBody {
        token: token.into(),
        first: 100.into(),
        frame: 9000.into(),
        piece: 4096.into(),
        link: 0,
        links: 1,
        slots: 32.into(),
        flags: 0.into(),
        nqn_length: (NQN.len() as u16).into(),
        endpoint: [0; 16],
    }
}

fn leave(token: u64) -> LeaveBody {
    LeaveBody { token: token.into(), reason: (LeaveReason::Done as u16).into(), endpoint: [0; 6] }
}

fn query(token: u64, host_token: u64, nqn: &str) -> Vec<u8> {
    let query = QueryBody {
        token: token.into(),
        host_token: host_token.into(),
        nqn_length: (nqn.len() as u16).into(),
        reserved: [0; 6],
    };
    [query.as_bytes(), nqn.as_bytes()].concat()
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within {LONG:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Finds the target, so that later requests go to its address.
fn discover(sender: &mut TestFrameSender) {
    sender.send_setup(FrameType::Discover, 0, &[]);
    sender.target = sender.receive_reply(FrameType::Offer).0;
}

#[test]
fn a_target_offers_what_it_has() {
    in_lab(|_, sender| {
        let mut endpoints = Vec::new();
        for (wanted, offered) in
            [("", &[NQN, DISCOVERY_NQN][..]), (NQN, &[NQN]), (DISCOVERY_NQN, &[DISCOVERY_NQN])]
        {
            sender.send_setup(FrameType::Discover, 0, wanted.as_bytes());
            for expected in offered {
                let (_, header, body) = sender.receive_reply(FrameType::Offer);
                assert_eq!((header.socket_number.get(), header.token.get()), (SOCKET, 0));
                let (offer, nqn) =
                    with_nqn(&body, |offer: &OfferBody| offer.nqn_length.get()).unwrap();
                assert_eq!((nqn, offer.frame.get()), (*expected, 9000));
                endpoints.push(offer.endpoint);
            }
        }
        assert!(endpoints.iter().all(|endpoint| *endpoint == endpoints[0]));
        sender.send_setup(FrameType::Discover, 0, b"nqn.2024-01.test:other");
        assert!(sender.is_silent(FrameType::Offer));
        discover(sender);
        for bytes in [FRAME_HEADER_BYTES, 1500, 9000] {
            sender.send_setup(FrameType::Probe, 0, &vec![0; bytes - FRAME_HEADER_BYTES]);
            let (_, _, body) = sender.receive_reply(FrameType::Probed);
            assert_eq!(body, (bytes as u16).to_le_bytes());
        }
    });
}

#[test]
fn a_join_that_means_another_target_is_dropped() {
    in_lab(|server, sender| {
        discover(sender);
        let other = JoinBody { endpoint: [7; 16], ..join(0x11_0000) };
        sender.send_setup(FrameType::Join, 0, &[other.as_bytes(), NQN.as_bytes()].concat());
        assert!(sender.is_silent(FrameType::Joined));
        assert_eq!((server.usage().connections, server.drops().of(Drop::Setup)), (0, 1));
        let (_, joined) = sender.join(0, &join(0x11_0000), NQN);
        assert_eq!(joined.status.get(), 0);
    });
}

#[test]
fn a_repeated_join_finds_what_the_first_one_made() {
    in_lab(|server, sender| {
        discover(sender);
        for host_token in [0x11_0000u64, 0x11_0001] {
            let (header, first) = sender.join(0, &join(host_token), NQN);
            assert_eq!((first.status.get(), first.slots.get()), (0, 32));
            assert_eq!((header.token.get(), header.socket_number.get()), (host_token, SOCKET));
            assert_ne!(header.reply.get(), 0);
            assert!(first.pages.get() >= 256 && first.window.get() > 0);
            let (_, second) = sender.join(0, &join(host_token), NQN);
            assert_eq!(second, first);
            // Same token, but another first sequence number: no Join of that lane.
            let other = JoinBody { first: 101.into(), ..join(host_token) };
            sender.send_join(0, &other, NQN);
            assert!(sender.is_silent(FrameType::Joined));
        }
        assert_eq!(server.usage().connections, 2);
        assert_eq!(server.drops().of(Drop::Source), 2);
    });
}

#[test]
fn a_lane_ends_when_its_host_says_so_and_is_unknown_then() {
    in_lab(|server, sender| {
        discover(sender);
        for host_token in [0x22_0000u64, 0x22_0001] {
            let (at, joined) = sender.join(0, &join(host_token), NQN);
            let (token, socket_number) = (joined.token.get(), at.reply.get());
            sender.send_setup(FrameType::Query, token, &query(token, host_token, NQN));
            let (_, ack, _) = sender.receive_reply(FrameType::Ack);
            assert_eq!((ack.token.get(), ack.ack.get()), (host_token, 100));
            // The lane survives a Leave with another lane's token, and a Leave for another lane.
            let forged = leave(host_token + 2);
            sender.send(header(FrameType::Leave, token, socket_number), forged.as_bytes());
            sender.send(
                header(FrameType::Leave, token ^ 1 << 40, socket_number),
                leave(7).as_bytes(),
            );
            let (_, answer, body) = sender.receive_reply(FrameType::Leave);
            assert_eq!(answer.token.get(), 7);
            assert_eq!(view::<LeaveBody>(&body).token.get(), token ^ 1 << 40);
            assert_eq!(server.usage().connections, 1);

            let done = header(FrameType::Leave, token, socket_number);
            sender.send(done, leave(host_token).as_bytes());
            let (_, answer, body) = sender.receive_reply(FrameType::Leave);
            assert_eq!(answer.token.get(), host_token);
            assert_eq!(view::<LeaveBody>(&body).token.get(), token);
            eventually("the lane is gone", || server.usage().connections == 0);
            // Every further request gets the same reply.
            sender.send(done, leave(host_token).as_bytes());
            let unknown = LeaveReason::UnknownToken as u16;
            assert_eq!(
                view::<LeaveBody>(&sender.receive_reply(FrameType::Leave).2).reason.get(),
                unknown
            );
            sender.send_setup(FrameType::Query, token, &query(token, host_token, NQN));
            let (_, answer, body) = sender.receive_reply(FrameType::Leave);
            assert_eq!(answer.token.get(), host_token);
            let reply: LeaveBody = view(&body);
            assert_eq!((reply.token.get(), reply.reason.get()), (token, unknown));
            // The target does not reply for lanes of another target.
            sender.send_setup(FrameType::Query, 5, &query(5, host_token, "nqn.2024-01.test:other"));
            assert!(sender.is_silent(FrameType::Leave));
        }
    });
}

/// Its links may lead to an interface that the target no longer has, or that has another address now.
#[test]
fn a_host_ends_a_lane_from_wherever_it_reaches_the_target() {
    in_namespace(|| {
        let server = serve_at(&[TARGET, LATER]);
        let port = Port::open(HOST, SOCKET, &PortConfig::default()).unwrap();
        let mut first = TestFrameSender { port, target: GROUP, endpoint: [0; 16] };
        first.find();
        discover(&mut first);
        for host_token in [0x55_0000u64, 0x55_0001] {
            let (at, joined) = first.join(0, &join(host_token), NQN);
            let (token, socket_number) = (joined.token.get(), at.reply.get());
            let mut second = later(first.endpoint);
            second
                .send(header(FrameType::Leave, token, socket_number), leave(host_token).as_bytes());
            second.send_setup(FrameType::Leave, token, leave(host_token + 2).as_bytes());
            assert!(second.is_silent(FrameType::Leave));
            assert_eq!(server.usage().connections, 1, "who does not know both tokens ends nothing");
            second.send_setup(FrameType::Leave, token, leave(host_token).as_bytes());
            eventually("the lane is gone", || server.usage().connections == 0);
            eventually("an answer", || {
                second.send_setup(FrameType::Leave, token, leave(host_token).as_bytes());
                let answer = second.receive_frame(FrameType::Leave, SHORT);
                answer.is_some_and(|(_, header, body)| {
                    let reply: LeaveBody = view(&body);
                    (header.token.get(), reply.token.get()) == (host_token, token)
                })
            });
            assert!(ip(&["link", "del", LATER]));
        }
    });
}

/// A repeated Join queries the largest frame size.
#[test]
fn a_target_says_when_its_interface_takes_smaller_frames() {
    in_lab(|server, sender| {
        discover(sender);
        let (_, joined) = sender.join(0, &join(9), NQN);
        let token = joined.token.get();
        for (mtu, status) in [(5000, 0), (1500, Status::INVALID_FIELD.code())] {
            assert!(ip(&["link", "set", TARGET, "mtu", &mtu.to_string()]));
            eventually("smaller frames", || {
                sender.send_join(token, &join(9), NQN);
                let joined = sender.receive_frame(FrameType::Joined, SHORT);
                joined.is_some_and(|(_, _, body)| {
                    let reply: JoinedBody = view(&body);
                    (reply.frame.get(), reply.status.get()) == (mtu, status)
                })
            });
        }
        assert_eq!(server.usage().connections, 1);
    });
}

#[test]
fn a_stopped_target_ends_its_lanes() {
    in_lab(|server, sender| {
        discover(sender);
        let (_, joined) = sender.join(0, &join(9), NQN);
        server.stop_reactors();
        let (_, header, body) = sender.receive_reply(FrameType::Leave);
        let reply: LeaveBody = view(&body);
        assert_eq!((header.token.get(), reply.token), (9, joined.token));
        assert_eq!(reply.reason.get(), LeaveReason::Shutdown as u16);
    });
}

/// Creates another veth pair and returns a sender at its host end, once the target answers.
fn later(endpoint: [u8; 16]) -> TestFrameSender {
    assert!(ip(&["link", "add", LATER_HOST, "type", "veth", "peer", "name", LATER]));
    for end in [LATER_HOST, LATER] {
        assert!(ip(&["link", "set", end, "up"]));
    }
    let port = Port::open(LATER_HOST, SOCKET, &PortConfig::default()).unwrap();
    let mut sender = TestFrameSender { port, target: GROUP, endpoint };
    eventually("an offer", || {
        sender.send_setup(FrameType::Discover, 0, NQN.as_bytes());
        let offer = sender.receive_frame(FrameType::Offer, SHORT);
        offer.is_some_and(|(source, ..)| {
            sender.target = source;
            true
        })
    });
    sender
}

#[test]
fn an_interface_may_come_later() {
    in_namespace(|| {
        let missing = Server::start(server_config(&[LATER])).err().expect("no interface at all");
        assert!(missing.to_string().contains(LATER), "{missing}");
        let server = serve_at(&[LATER, TARGET]);
        let port = Port::open(HOST, SOCKET, &PortConfig::default()).unwrap();
        let mut first = TestFrameSender { port, target: GROUP, endpoint: [0; 16] };
        first.find();
        discover(&mut first);
        // One lane of each reactor.
        for host_token in [0x44_0000u64, 0x44_0001] {
            let one = JoinBody { links: 2, piece: 1024.into(), ..join(host_token) };
            let (_, joined, at) = first.join_with_addresses(0, &one);
            assert_eq!(at, [first.target], "where the target can be reached");

            let mut second = later(first.endpoint);
            let token = joined.token.get();
            let two = JoinBody { link: 1, first: 7.into(), frame: 1500.into(), ..one };
            second.send_join(token ^ 1 << 50, &two, NQN);
            assert!(second.is_silent(FrameType::Joined), "another host's lane");
            let again = second.join_until_reply(token, &two);
            assert_eq!((again.token, again.frame.get()), (joined.token, 1500));
            let (_, _, at) = first.join_with_addresses(token, &one);
            assert_eq!(at, [second.target, first.target]);

            assert!(ip(&["link", "del", LATER]));
            let old = second.target;
            let mut third = later(first.endpoint);
            assert_ne!(third.target, old);
            third.send_join(token, &JoinBody { first: 8.into(), ..two }, NQN);
            assert!(third.is_silent(FrameType::Joined), "another link of that number");
            third.send_join(0, &two, NQN);
            assert!(third.is_silent(FrameType::Joined), "who moves a link knows the lane");
            let moved = third.join_until_reply(token, &two);
            assert_eq!(moved.first, again.first, "the same channel");
            assert!(ip(&["link", "del", LATER]));
        }
        assert_eq!(server.usage().connections, 2);
    });
}

#[test]
fn nonsense_is_dropped_and_counted() {
    in_lab(|server, sender| {
        discover(sender);
        let (at, joined) = sender.join(0, &join(0x33), NQN);
        let (token, socket_number) = (joined.token.get(), at.reply.get());
        let cargo = |token: u64| {
            let mut header = header(FrameType::Cargo, token, socket_number);
            (header.flags, header.seq) = (flags::SEQ.into(), 100.into());
            header
        };
        let bad = [
            (Drop::Token, cargo(token ^ 1 << 33)),
            (Drop::Token, cargo(token + 1)),
            (Drop::Link, FrameHeader { link: 1, ..cargo(token) }),
            (Drop::Version, FrameHeader { version: 2, ..cargo(token) }),
            (Drop::Type, FrameHeader { kind: 77, ..cargo(token) }),
            (Drop::Type, header(FrameType::Cargo, 0, 0)),
            (Drop::Setup, header(FrameType::Join, 0, 0)),
            (Drop::Setup, header(FrameType::Query, 0, 0)),
        ];
        for (drop, header) in bad {
            let before = server.drops().of(drop);
            sender.send(header, &[0; 8]);
            eventually("a drop", || server.drops().of(drop) == before + 1);
        }
        assert_eq!(server.usage().connections, 1);
    });
}

#[test]
fn unconnected_lanes_are_bounded() {
    in_lab(|server, sender| {
        discover(sender);
        let mut refused = 0;
        for host_token in (2..1000).step_by(2) {
            let (_, joined) = sender.join(0, &join(host_token), NQN);
            let busy = Status::CONNECT_CONTROLLER_BUSY.code();
            assert!([0, busy].contains(&joined.status.get()));
            refused += u32::from(joined.status.get() == busy);
            if refused > 0 {
                break;
            }
        }
        assert!(refused > 0, "any number of lanes");
        assert!(server.usage().connections <= 128);
        for link in [join(0), JoinBody { links: 0, ..join(4) }, JoinBody { link: 1, ..join(6) }] {
            sender.send_join(0, &link, NQN);
        }
        let (_, large) = sender.join(0, &JoinBody { piece: 16384.into(), ..join(8001) }, NQN);
        assert_eq!(large.status.get(), Status::INVALID_FIELD.code());
    });
}

//! Servers whose turns are taken one by one, and clients that are in no hurry.

use super::harness::{Mock, Options};
use crate::disk::test_info;
use crate::nbd::{BUFFER_BYTES_MIN, NbdAddress, NbdServer};
use roadtrain_engine::host::{Front, LaneId, Turn};
use roadtrain_proto::time::Instant;
use roadtrain_wire::nbd::{Command, Request};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Largest request.
const LARGEST: u32 = 32 << 20;

/// A server over one lane, and its reactor.
struct Scene {
    server: NbdServer,
    mock: Mock,
}

impl Scene {
    /// With the fewest buffers, and a disk of two of the largest requests.
    fn new(adapt: impl FnOnce(NbdServer) -> NbdServer) -> Self {
        let mut info = test_info();
        info.blocks = u64::from(2 * LARGEST / info.lba_bytes);
        let address: NbdAddress = "nbd:tcp:127.0.0.1:0".parse().unwrap();
        let server = NbdServer::bind(&address, info.clone().into(), LaneId(0)).unwrap();
        let server = adapt(server.with_buffer_bytes_max(BUFFER_BYTES_MIN));
        Scene { server, mock: Mock::new(Options { info, room: 64, ..Options::default() }, 1) }
    }

    fn turn(&mut self) {
        self.mock.turn(&mut self.server);
    }

    /// Turns until something is so.
    fn turn_until(&mut self, what: impl Fn(&Scene) -> bool) {
        for _ in 0..100_000 {
            if what(self) {
                return;
            }
            self.turn();
        }
        panic!("it never comes so far");
    }

    /// A client in transmission.
    fn client(&mut self) -> TcpStream {
        let NbdAddress::Tcp { host, port } = self.server.address() else { panic!("not TCP") };
        let mut stream = TcpStream::connect(format!("{host}:{port}")).unwrap();
        let handshake = [&[0, 0, 0, 3], &b"IHAVEOPT\0\0\0\x01\0\0\0\0"[..]].concat();
        stream.write_all(&handshake).unwrap();
        (0..20).for_each(|_| self.turn());
        stream.read_exact(&mut [0; 18 + 10]).unwrap();
        stream
    }

    /// Whether the server wants another turn, whatever happens.
    fn goes_on(&self) -> bool {
        self.server.deadline().is_some_and(|at| at <= self.mock.now())
    }
}

fn header(command: Command, offset: u64, length: u32) -> [u8; Request::OCTETS] {
    Request { flags: 0, command, cookie: 1, offset, length }.emit()
}

/// Whoever had the buffers leaves: nobody else would wake the server for those that wait for them.
#[test]
fn buffers_of_a_client_that_leaves_go_to_those_that_wait() {
    for command in [Command::WRITE, Command::READ] {
        let mut scene = Scene::new(|server| server);
        let (mut holder, mut other) = (scene.client(), scene.client());
        // A Write whose payload does not come, or a Read whose data is not taken.
        holder.write_all(&header(command, 0, LARGEST)).unwrap();
        let begun = |scene: &Scene| !scene.server.jobs.is_clean();
        scene.turn_until(begun);
        scene.turn_until(|scene| command == Command::WRITE || scene.server.jobs.is_idle());
        other.write_all(&header(Command::WRITE, 0, LARGEST)).unwrap();
        scene.turn_until(|scene| !scene.server.starved.is_empty());
        scene.turn();
        assert!(!scene.goes_on(), "nothing has come back");
        drop(holder);
        scene.turn_until(|scene| scene.server.connections.len() == 1);
        assert!(!scene.server.starved.is_empty(), "{command}: the case that is meant");
        assert!(scene.goes_on(), "{command}: buffers are free, and somebody waits for them");
        scene.turn();
        assert!(scene.server.starved.is_empty());
    }
}

/// A server that has nothing to do, to be compared with the above.
#[test]
fn an_idle_server_asks_for_no_turn() {
    let mut scene = Scene::new(|server| server);
    let _client = scene.client();
    scene.turn();
    assert!(scene.server.deadline().is_none_or(|at| at > Instant(0)));
}

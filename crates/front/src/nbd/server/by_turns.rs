//! Tests of servers that run turn by turn, with slow clients.

use super::harness::{Mock, MockOptions};
use crate::disk::test_info;
use crate::nbd::{BUFFER_BYTES_MIN, NbdAddress, NbdServer};
use roadtrain_host_engine::{Front, FrontTurn, IoOp, LaneId};
use roadtrain_proto::time::Instant;
use roadtrain_wire::nbd::{Command, NbdRequest};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Bytes of the largest request.
const LARGEST: u32 = 32 << 20;

/// A server over one lane, and its reactor.
struct Scene {
    server: NbdServer,
    mock: Mock,
    directory: Arc<TempDir>,
}

impl Scene {
    /// Makes a scene with the fewest buffers, and a disk of two of the largest requests.
    fn new(adapt: impl FnOnce(NbdServer) -> NbdServer) -> Self {
        let mut info = test_info();
        info.blocks = u64::from(2 * LARGEST / info.lba_bytes);
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let address = NbdAddress::Unix(directory.path().join("nbd.sock"));
        let server = NbdServer::bind(&address, info.clone().into(), LaneId(0)).unwrap();
        let server = adapt(server.with_buffer_bytes_max(BUFFER_BYTES_MIN));
        let mock = Mock::new(MockOptions { info, room: 64, ..MockOptions::default() }, 1);
        Scene { server, mock, directory }
    }

    /// Makes another server of the same disk, on a reactor of its own.
    fn neighbour(&self) -> Self {
        let options = self.mock.options().clone();
        let server = self.server.for_lane(LaneId(0)).unwrap();
        let mut mock = Mock::new(options, 2);
        mock.disk = self.mock.disk.clone();
        Scene { server, mock, directory: self.directory.clone() }
    }

    fn turn(&mut self) {
        self.mock.turn(&mut self.server);
    }

    /// Runs turns until `what` holds.
    fn turn_until(&mut self, what: impl Fn(&Scene) -> bool) {
        for _ in 0..100_000 {
            if what(self) {
                return;
            }
            self.turn();
        }
        panic!("it never comes so far");
    }

    /// Connects a client and brings it to transmission.
    fn client(&mut self) -> UnixStream {
        let mut stream = UnixStream::connect(self.directory.path().join("nbd.sock")).unwrap();
        let handshake = [&[0, 0, 0, 3], &b"IHAVEOPT\0\0\0\x01\0\0\0\0"[..]].concat();
        stream.write_all(&handshake).unwrap();
        (0..20).for_each(|_| self.turn());
        stream.read_exact(&mut [0; 18 + 10]).unwrap();
        stream
    }

    /// True if the server wants another turn without an event.
    fn wants_turn(&self) -> bool {
        self.server.deadline().is_some_and(|at| at <= self.mock.now())
    }
}

fn header(command: Command, offset: u64, length: u32) -> [u8; NbdRequest::BYTES] {
    NbdRequest { flags: 0, command, cookie: 1, offset, length }.emit()
}

/// A client that held the buffers leaves: no other event would wake the server for those that wait for them.
#[test]
fn buffers_of_a_client_that_leaves_go_to_those_that_wait() {
    for command in [Command::WRITE, Command::READ] {
        let mut scene = Scene::new(|server| server);
        let (mut holder, mut other) = (scene.client(), scene.client());
        // A Write whose payload does not arrive, or a Read whose data is not received.
        holder.write_all(&header(command, 0, LARGEST)).unwrap();
        let begun = |scene: &Scene| !scene.server.jobs.is_clean();
        scene.turn_until(begun);
        scene.turn_until(|scene| command == Command::WRITE || scene.server.jobs.is_idle());
        other.write_all(&header(Command::WRITE, 0, LARGEST)).unwrap();
        scene.turn_until(|scene| !scene.server.waiting_for_buffers.is_empty());
        scene.turn();
        assert!(!scene.wants_turn(), "nothing has come back");
        drop(holder);
        scene.turn_until(|scene| scene.server.connections.len() == 1);
        assert!(!scene.server.waiting_for_buffers.is_empty(), "{command}: the case that is meant");
        assert!(scene.wants_turn(), "{command}: buffers are free, and a client waits for them");
        scene.turn();
        assert!(scene.server.waiting_for_buffers.is_empty());
    }
}

/// Starts a client that holds all buffers until it sends or receives data, and one that waits for buffers.
fn stuck(command: Command, patience: Duration) -> (Scene, UnixStream, UnixStream) {
    let mut scene = Scene::new(|server| server.with_patience(patience));
    let (mut holder, mut other) = (scene.client(), scene.client());
    holder.write_all(&header(command, 0, LARGEST)).unwrap();
    scene.turn_until(|scene| !scene.server.jobs.is_clean());
    scene.turn_until(|scene| command == Command::WRITE || scene.server.jobs.is_idle());
    (0..10_000).for_each(|_| scene.turn());
    assert_eq!(scene.server.connections.len(), 2, "no client needs the buffers");
    other.write_all(&header(Command::READ, 0, LARGEST)).unwrap();
    scene.turn_until(|scene| !scene.server.waiting_for_buffers.is_empty());
    (scene, holder, other)
}

#[test]
fn a_client_that_holds_buffers_without_progress_is_abandoned_when_others_need_them() {
    let patience = Duration::from_millis(100);
    for command in [Command::WRITE, Command::READ] {
        let (mut scene, _holder, _other) = stuck(command, patience);
        let due = scene.server.deadline().unwrap();
        assert!(due <= scene.mock.now() + patience, "{command}: the server wakes for it");
        scene.turn_until(|scene| scene.mock.now() >= due);
        assert_eq!(scene.server.connections.len(), 1, "{command}");
        scene.turn();
        assert!(
            scene.server.waiting_for_buffers.is_empty(),
            "{command}: the buffers are another's"
        );
    }
}

#[test]
fn a_client_that_is_slow_or_waits_for_the_target_is_not_abandoned() {
    let patience = Duration::from_millis(100);
    for command in [Command::WRITE, Command::READ] {
        let (mut scene, mut holder, _other) = stuck(command, patience);
        for _ in 0..10 {
            match command {
                Command::WRITE => holder.write_all(&[0]).unwrap(),
                // The system reports room only when some of it is free.
                _ => holder.read_exact(&mut [0; 128 << 10]).unwrap(),
            }
            (0..900).for_each(|_| scene.turn());
        }
        assert_eq!(scene.server.connections.len(), 2, "{command}");
    }
    let mut scene = Scene::new(|server| server.with_patience(patience));
    scene.mock.silent = true;
    let mut clients = [scene.client(), scene.client()];
    for client in &mut clients {
        client.write_all(&header(Command::READ, 0, LARGEST)).unwrap();
    }
    (0..10_000).for_each(|_| scene.turn());
    assert!(!scene.server.waiting_for_buffers.is_empty());
    assert_eq!(scene.server.connections.len(), 2);
}

/// Returns a Write of one block filled with `fill`.
fn write(fill: u8) -> Vec<u8> {
    [&header(Command::WRITE, 0, 512)[..], &[fill; 512]].concat()
}

/// Waits for the reply to a Write.
fn take_answer(client: &mut UnixStream) {
    client.read_exact(&mut [0; 16]).unwrap();
}

/// Hangs up at once, even while a process that another test spawns still has the client's descriptors.
fn hang_up(client: UnixStream) {
    client.shutdown(Shutdown::Both).unwrap();
}

/// Covers a write in a lane when its client leaves, and one of the next client, on the same server or another.
#[test]
fn a_write_of_a_client_that_is_gone_does_not_follow_one_of_a_new_client() {
    for (is_other_server, is_reset) in [(false, false), (false, true), (true, false), (true, true)]
    {
        let mut scene = Scene::new(|server| server);
        let (mut old, mut witness) = (scene.client(), scene.client());
        if is_reset {
            // A reply that is not received makes the system reset the connection.
            old.write_all(&header(Command::READ, 0, 512)).unwrap();
            scene
                .turn_until(|scene| scene.mock.submitted.len() == 1 && scene.server.jobs.is_idle());
        }
        scene.mock.silent = true;
        old.write_all(&write(1)).unwrap();
        scene.turn_until(|scene| scene.mock.in_flight.len() == 1);
        let mut other_server = is_other_server.then(|| scene.neighbour());
        hang_up(old);
        let mut new = other_server.as_mut().unwrap_or(&mut scene).client();
        new.write_all(&write(2)).unwrap();
        witness.write_all(&header(Command::READ, 4096, 512)).unwrap();
        for _ in 0..100 {
            scene.turn();
            other_server.iter_mut().for_each(Scene::turn);
        }
        let submitted =
            |scene: &Scene| scene.mock.submitted.iter().filter(|a| a.0 == IoOp::Write).count();
        assert_eq!(submitted(&scene), 1, "the new one waits");
        assert_eq!(other_server.as_ref().map_or(0, submitted), 0, "the new one waits elsewhere");
        assert_eq!(scene.mock.in_flight.len(), 2, "who was there does not wait");
        scene.mock.silent = false;
        for _ in 0..1000 {
            scene.turn();
            other_server.iter_mut().for_each(Scene::turn);
        }
        take_answer(&mut new);
        assert_eq!(scene.mock.disk.lock().unwrap()[..512], [2; 512]);
    }
}

/// The lane is full, so the client's data was not read to its end when it left: the rest never starts later.
#[test]
fn unread_requests_of_a_client_that_is_gone_do_not_start_after_a_new_client() {
    let mut scene = Scene::new(|server| server);
    let mut old = scene.client();
    scene.mock.silent = true;
    for count in [100, 200] {
        old.write_all(&write(1).repeat(count)).unwrap();
        scene.turn_until(|scene| scene.server.jobs.is_congested());
        (0..10).for_each(|_| scene.turn());
    }
    hang_up(old);
    let mut new = scene.client();
    new.write_all(&write(2)).unwrap();
    (0..100).for_each(|_| scene.turn());
    scene.mock.silent = false;
    scene.turn_until(|scene| scene.server.connections.len() == 1 && scene.server.jobs.is_idle());
    (0..10).for_each(|_| scene.turn());
    take_answer(&mut new);
    assert_eq!(scene.mock.disk.lock().unwrap()[..512], [2; 512]);
    let last = scene.mock.submitted.len();
    (0..100).for_each(|_| scene.turn());
    assert_eq!(scene.mock.submitted.len(), last);
}

/// Half closed, with more requests than it takes replies of: no other client waits for such a client.
#[test]
fn a_client_that_hangs_up_and_takes_no_answers_is_not_waited_for() {
    let mut scene = Scene::new(|server| server);
    let mut old = scene.client();
    old.write_all(&header(Command::READ, 0, LARGEST).repeat(2)).unwrap();
    old.write_all(&write(1)).unwrap();
    scene.turn_until(|scene| !scene.server.jobs.is_clean());
    scene.turn_until(|scene| scene.server.jobs.is_idle());
    old.shutdown(std::net::Shutdown::Write).unwrap();
    let mut new = scene.client();
    new.write_all(&write(2)).unwrap();
    (0..1000).for_each(|_| scene.turn());
    new.set_nonblocking(true).unwrap();
    take_answer(&mut new);
}

/// An idle server, for comparison.
#[test]
fn an_idle_server_wants_no_turn() {
    let mut scene = Scene::new(|server| server);
    let _client = scene.client();
    scene.turn();
    assert!(scene.server.deadline().is_none_or(|at| at > Instant(0)));
}

//! Tests of a target whose store completes commands on request.

use super::flaky::{self, DeadStore, SlowIdentityStore};
use super::{Export, Server, ServerConfig, Subsystem};
use roadtrain_host_engine::{
    AdminConnection, Class, HostClient, HostConfig, HostControlError, IoOp, IoRequest,
};
use roadtrain_store::{StoreKind, StoreSpec};
use roadtrain_system::buffer::Buffer;
use roadtrain_wire::fabrics::{CNTLID_DYNAMIC, Connect, ConnectData, Property, property};
use roadtrain_wire::sqe::{Sqe, cdw12, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;
use std::ffi::CString;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

#[allow(dead_code, unreachable_pub, reason = "shared with the tests of the state machines")]
#[path = "../../ether-proto/tests/ether_proto/common/raw.rs"]
mod raw;

/// Bytes of a block, for `raw`.
const BLOCK: u32 = 512;

pub(super) const NQN: &str = "nqn.2024-01.test:disk";
pub(super) const LONG: Duration = Duration::from_secs(60);

pub(super) fn make_fifo(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name is a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

fn serve(fifo: &Path, reactors: usize) -> Server {
    let exports = vec![Export::with_store(1, flaky::fifo(fifo))];
    let subsystem = Subsystem { namespaces: exports, ..Subsystem::new(NQN) };
    let mut config = ServerConfig::new(vec!["127.0.0.1:0".parse().unwrap()], vec![subsystem]);
    config.cores = vec![0; reactors];
    Server::start(config).unwrap()
}

pub(super) fn host_config(server: &Server, host_nqn: &str) -> HostConfig {
    let mut config = HostConfig::new(server.addresses()[0], NQN, host_nqn, [7; 16]);
    config.timeout = Duration::from_secs(2);
    config.connect_timeout = Duration::ZERO;
    config
}

fn connect(server: &Server, host_nqn: &str) -> Result<HostClient, HostControlError> {
    HostClient::connect(host_config(server, host_nqn))
}

pub(super) fn read() -> IoRequest {
    IoRequest {
        op: IoOp::Read,
        nsid: 1,
        slba: 0,
        blocks: 8,
        fua: false,
        urgent: false,
        class: Class::Normal,
        buffer: Some(Buffer::alloc(4096)),
        token: 0,
    }
}

pub(super) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < deadline, "{what}: not within {LONG:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Otherwise an old write could overtake its retry, or a newer write.
#[test]
fn a_host_cannot_connect_again_while_its_old_commands_are_in_a_store() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    make_fifo(&fifo);
    for reactors in [1, 2] {
        let server = serve(&fifo, reactors);
        let client = connect(&server, "nqn.x:host").unwrap();
        let (done, ended) = channel();
        client.submit_to(read(), &done);
        eventually("the read is in the store", || server.usage().store_commands == 1);
        drop(client); // gives up after its timeout
        assert!(ended.recv_timeout(LONG).unwrap().status.is(Status::HOST_PATH_ERROR));

        for _ in 0..3 {
            let refused = connect(&server, "nqn.x:host").err().expect("its read is not over");
            let HostControlError::Refused { status, .. } = refused else { panic!("{refused}") };
            assert!(status.is(Status::CONNECT_CONTROLLER_BUSY) && !status.is_dnr(), "{status}");
        }
        drop(connect(&server, "nqn.x:other").expect("others are not concerned"));
        assert_eq!(server.usage().store_commands, 1);

        std::fs::write(&fifo, [0; 4096]).unwrap();
        eventually("the read is over", || server.usage().store_commands == 0);
        drop(connect(&server, "nqn.x:host").unwrap());
        eventually("everything is given back", || server.usage().connections == 0);
    }
}

/// A restarted host does not fail because of its former commands.
#[test]
fn a_first_connection_waits_while_the_controller_is_busy() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    make_fifo(&fifo);
    let server = serve(&fifo, 1);
    let client = connect(&server, "nqn.x:host").unwrap();
    let (done, _ended) = channel();
    client.submit_to(read(), &done);
    eventually("the read is in the store", || server.usage().store_commands == 1);
    drop(client);
    let mut config = host_config(&server, "nqn.x:host");
    config.connect_timeout = LONG;
    let waiting = std::thread::spawn(move || HostClient::connect(config).map(drop));
    std::thread::sleep(Duration::from_millis(200)); // so that it is refused at first
    std::fs::write(&fifo, [0; 4096]).unwrap();
    waiting.join().unwrap().expect("the controller is busy no more");
}

/// A host whose commands fail does not block the control plane.
#[test]
fn commands_that_fail_do_not_need_the_control_plane() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    make_fifo(&fifo);
    // The first reactor has the admin queue, the second the lane.
    let server = serve(&fifo, 2);
    let client = connect(&server, "nqn.x:host").unwrap();
    let (done, ended) = channel();
    let held = server.control.hold();
    let beyond = || IoRequest { slba: 1 << 40, ..read() };
    let unknown = || IoRequest { nsid: 9, ..read() };
    let cases = [(beyond(), Status::LBA_OUT_OF_RANGE), (unknown(), Status::INVALID_NAMESPACE)];
    for (request, status) in cases {
        client.submit_to(request, &done);
        let completion = ended.recv_timeout(LONG).expect("an answer without the lock");
        assert!(completion.status.is(status), "{}", completion.status);
    }
    drop(held);
}

/// Queue that a test connects by hand.
pub(super) struct ManualQueue(TcpStream);

impl ManualQueue {
    /// Connects I/O queue 1 of `admin`.
    pub(super) fn connect(server: &Server, admin: &AdminConnection, host_nqn: &str) -> ManualQueue {
        ManualQueue::connect_as(server, (1, admin.cntlid), host_nqn)
    }

    /// Connects the admin queue of a new controller.
    pub(super) fn connect_admin(server: &Server, host_nqn: &str) -> ManualQueue {
        ManualQueue::connect_as(server, (0, CNTLID_DYNAMIC), host_nqn)
    }

    fn connect_as(server: &Server, (qid, cntlid): (u16, u16), host_nqn: &str) -> ManualQueue {
        let mut socket = TcpStream::connect(server.addresses()[0]).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket.write_all(&raw::icreq()).unwrap();
        socket.read_exact(&mut [0; 128]).unwrap();
        let connect = Connect { recfmt: 0, qid, sqsize: 31, cattr: 0, kato_ms: 0 };
        let data = ConnectData::new([7; 16], cntlid, NQN, host_nqn);
        let mut queue = ManualQueue(socket);
        queue.send(&raw::command(1, connect.emit(), data.as_bytes(), raw::PLAIN));
        assert_eq!(queue.completion(), (1, Status::SUCCESS));
        queue
    }

    pub(super) fn flush(cid: u16) -> Vec<u8> {
        raw::flush(cid)
    }

    /// True if the target closes the connection without sending anything.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.0.read(&mut [0; 8]), Ok(1..))
    }

    pub(super) fn send(&mut self, pdu: &[u8]) {
        self.0.write_all(pdu).unwrap();
    }

    pub(super) fn command(&mut self, cid: u16, sqe: Sqe, data: &[u8]) {
        self.send(&raw::command(cid, sqe, data, raw::PLAIN));
    }

    /// True if a flush succeeds.
    pub(super) fn flushes(&mut self) -> bool {
        self.send(&raw::flush(8));
        self.completion() == (8, Status::SUCCESS)
    }

    /// Returns all data of a command that succeeds. It may arrive in several PDUs.
    pub(super) fn data(&mut self, length: u32) -> Vec<u8> {
        let mut data = Vec::new();
        loop {
            let mut head = [0; 24];
            self.0.read_exact(&mut head).unwrap();
            if head[0] == 5 {
                assert_eq!(data.len(), length as usize);
                return data;
            }
            assert_eq!(head[0], 7, "C2HData");
            let plen = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
            let mut rest = vec![0; plen - head.len()];
            self.0.read_exact(&mut rest).unwrap();
            data.extend(&rest[usize::from(head[3]) - head.len()..]);
            if head[1] & 8 != 0 {
                return data; // SUCCESS
            }
        }
    }

    fn read(&mut self, cid: u16, flags: u32) {
        let mut sqe = Sqe::rw(opcode::READ, 1, 0, 8);
        sqe.cdw12 = (sqe.cdw12.get() | flags).into();
        sqe.set_transport(4096);
        self.send(&raw::command(cid, sqe, &[], raw::PLAIN));
    }

    /// Reads the next PDU, which is as short as a completion.
    fn head(&mut self) -> [u8; 24] {
        let mut pdu = [0; 24];
        self.0.read_exact(&mut pdu).unwrap();
        pdu
    }

    /// Reads the next PDU, which must be a completion. Returns its CID and status.
    pub(super) fn completion(&mut self) -> (u16, Status) {
        let pdu = self.head();
        assert_eq!(pdu[0], 5, "a response capsule");
        let field = |at: usize| u16::from_le_bytes([pdu[at], pdu[at + 1]]);
        (field(20), Status::from_field(field(22)))
    }
}

/// Connects an admin queue and an I/O queue.
pub(super) fn queues(server: &Server) -> (AdminConnection, ManualQueue) {
    let mut config = host_config(server, "nqn.x:host");
    config.timeout = LONG;
    let admin = AdminConnection::connect(&config).unwrap();
    let queue = ManualQueue::connect(server, &admin, "nqn.x:host");
    (admin, queue)
}

/// The kernel cancels operations that have not begun.
#[test]
fn an_abort_ends_a_command_in_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    make_fifo(&fifo);
    for reactors in [1, 2] {
        let server = serve(&fifo, reactors);
        let (mut admin, mut queue) = queues(&server);
        queue.read(2, 0);
        eventually("the read is in the store", || server.usage().store_commands == 1);
        let mut abort = Sqe::new(opcode::ABORT, 0);
        abort.cdw10 = (1 | 2 << 16).into();
        let cqe = admin.run("Abort", &abort, &[], &mut []).unwrap();
        assert_eq!(cqe.dw0.get(), 0, "it was aborted");
        assert_eq!(queue.completion(), (2, Status::ABORT_REQUESTED));
        assert_eq!(server.usage().store_commands, 0);
    }
}

/// The target does not wait for a store that keeps a command: its host needs the admin queue for other commands.
#[test]
fn an_abort_of_what_a_store_keeps_is_answered_all_the_same() {
    let stuck = Arc::new(DeadStore::default());
    let exports = vec![Export::with_store(1, stuck.clone())];
    let subsystem = Subsystem { namespaces: exports, ..Subsystem::new(NQN) };
    let any = vec!["127.0.0.1:0".parse().unwrap()];
    let server = Server::start(ServerConfig::new(any, vec![subsystem])).unwrap();
    let (mut admin, mut queue) = queues(&server);
    queue.read(2, 0);
    eventually("the read is in the store", || server.usage().store_commands == 1);
    let mut abort = Sqe::new(opcode::ABORT, 0);
    abort.cdw10 = (1 | 2 << 16).into();
    for _ in 0..2 {
        let cqe = admin.run("Abort", &abort, &[], &mut []).unwrap();
        assert_eq!(cqe.dw0.get(), 1, "it was not aborted");
        assert_eq!(server.usage().store_commands, 1);
    }
    stuck.release();
    assert_eq!(queue.completion(), (2, Status::INTERNAL_ERROR.dnr()));
}

/// A host whose writes all wait for data gets only a part of the buffers, however many lanes it has.
#[test]
fn a_host_that_sends_no_data_leaves_buffers_for_others() {
    let directory = tempfile::tempdir().unwrap();
    let kind =
        StoreKind::File { path: directory.path().join("disk"), size: Some(8 << 20), create: true };
    let export = Export::new(1, StoreSpec { kind, lba_bytes: 512, read_only: false });
    let subsystem = Subsystem { namespaces: vec![export], ..Subsystem::new(NQN) };
    let mut config = ServerConfig::new(vec!["127.0.0.1:0".parse().unwrap()], vec![subsystem]);
    (config.pool_bytes, config.transfer_timeout) = (16 << 20, LONG);
    let server = Server::start(config).unwrap();
    let (admin, first) = queues(&server);
    let second = ManualQueue::connect_as(&server, (2, admin.cntlid), "nqn.x:host");
    let mut lanes = [first, second];
    for lane in &mut lanes {
        (1..=20).for_each(|cid| lane.send(&raw::write(cid, 2048)));
    }
    let is_bounded = || server.usage().buffer_bytes == 8 << 20;
    eventually("half of the pool waits for the host", is_bounded);
    let client = connect(&server, "nqn.x:other").unwrap();
    let (done, ended) = channel();
    client.submit_to(read(), &done);
    assert!(ended.recv_timeout(LONG / 4).expect("a buffer is there").status.is_success());
    eventually("its buffer is given back", is_bounded);
    // When a write has ended, a deferred one follows.
    let r2t = lanes[0].head();
    let field = |at: usize| u16::from_le_bytes([r2t[at], r2t[at + 1]]);
    assert_eq!(r2t[0], 9, "R2T");
    lanes[0].send(&raw::h2c_data(field(8), field(10), 0, &vec![7; 1 << 20], true));
    let mut others = (0..20).map(|_| lanes[0].head()[0]);
    assert!(others.any(|kind| kind == 5), "the write was answered");
    eventually("the next one waits", is_bounded);
}

/// A read with Force Unit Access needs its data on stable storage: a pipe cannot be flushed, and has no data.
#[test]
fn a_read_with_fua_is_synced_first() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    make_fifo(&fifo);
    let server = serve(&fifo, 1);
    let (_admin, mut queue) = queues(&server);
    queue.read(2, cdw12::FUA);
    let (cid, status) = queue.completion();
    assert!(cid == 2 && !status.is_success(), "{status}");
}

/// The shutdown is complete only when no command of the host is in a store.
#[test]
fn a_shutdown_waits_for_commands_in_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    make_fifo(&fifo);
    for reactors in [1, 2] {
        let server = serve(&fifo, reactors);
        let (mut admin, mut queue) = queues(&server);
        queue.read(2, 0);
        eventually("the read is in the store", || server.usage().store_commands == 1);
        let shutdown = Property::set(property::CC, 0x0046_4001);
        std::thread::scope(|scope| {
            let shutting = scope.spawn(|| {
                let _ = admin.run("shutdown", &shutdown, &[], &mut []); // a pipe cannot be flushed
            });
            eventually("nothing more is executed", || {
                queue.send(&raw::flush(3));
                let (cid, status) = queue.completion();
                assert_eq!(cid, 3);
                status.is(Status::COMMAND_SEQUENCE_ERROR)
            });
            assert!(!shutting.is_finished(), "the read is in the store");
            std::fs::write(&fifo, [0; 4096]).unwrap();
            shutting.join().unwrap();
        });
        assert_eq!(server.usage().store_commands, 0);
    }
}

/// Opening may take long, for example on a network file system; a reactor takes the lock before every sleep.
#[test]
fn a_reload_that_waits_for_a_file_delays_no_host() {
    let kind = StoreKind::Memory { size: 1 << 20 };
    let memory = Export::new(1, StoreSpec { kind, lba_bytes: 512, read_only: false });
    let slow = Arc::new(SlowIdentityStore::default());
    let late = Export::with_store(2, slow.clone());
    let subsystem = |exports| vec![Subsystem { namespaces: exports, ..Subsystem::new(NQN) }];
    let any = vec!["127.0.0.1:0".parse().unwrap()];
    let server = Server::start(ServerConfig::new(any, subsystem(vec![memory.clone()]))).unwrap();
    let (target, wanted) = (&server, subsystem(vec![memory, late]));
    std::thread::scope(|scope| {
        let reloading = scope.spawn(move || target.reload(&wanted));
        eventually("the reload opens the store", || slow.is_queried());
        for _ in 0..3 {
            let client =
                connect(&server, "nqn.x:host").expect("Connect and Identify need the lock");
            assert!(client.view().namespace(2).is_none(), "nothing has changed yet");
            assert!(!reloading.is_finished());
        }
        slow.answer();
        assert_eq!(reloading.join().unwrap().unwrap().len(), 1);
    });
    assert!(connect(&server, "nqn.x:host").unwrap().view().namespace(2).is_some());
}

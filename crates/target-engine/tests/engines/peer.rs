//! Peers that tests control byte by byte, next to a well-behaved host.

use crate::harness::*;
use roadtrain_host_engine::{AdminConnection, Class, HostClient};
use roadtrain_store::DiskStore;
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Export, Server, ServerConfig};
use roadtrain_wire::fabrics::{Connect, ConnectData, cattr};
use roadtrain_wire::pdu::{Digests, Fes, IcReq, PduType};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::IntoBytes;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;

#[allow(dead_code, reason = "shared with the tests of the state machines")]
#[path = "../../../ether-proto/tests/ether_proto/common/raw.rs"]
pub mod raw;

/// Bytes of a block, for `raw`.
pub const BLOCK: u32 = 512;
pub const ENTRIES: u16 = 8;
/// Namespace of [`EngineHarness::scarce`] whose reads wait for data from the test.
pub const SLOW_NSID: u32 = 3;
/// Size of the largest buffer. A pool of [`EngineHarness::scarce`] has two of them.
pub const LARGE: u32 = 1 << 20;
pub const SCARCE_BYTES: usize = 2 << 20;

/// A target with a well-behaved client, and an admin queue for the I/O queues of hostile ones.
pub struct EngineHarness {
    pub server: Server,
    pub client: HostClient,
    pub admin: AdminConnection,
    pub connections: usize,
    /// Controller ID of the client: another one would mean that its connection was lost.
    cntlid: u16,
    /// Writing end for data of the slow namespace.
    fifo: Option<File>,
    /// Directory of the namespace's file.
    _directory: Option<tempfile::TempDir>,
}

impl EngineHarness {
    pub fn new() -> Self {
        EngineHarness::with_file(|config| config.pool_bytes = 8 << 20)
    }

    /// Starts a target with a file of 4 MiB as namespace 1 and memory as namespace 2.
    pub fn with_file(adapt: impl FnOnce(&mut ServerConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let exports = vec![file(1, &directory, 4 * MIB, BLOCK), memory(2, MIB, BLOCK)];
        let mut config = server_config(exports);
        adapt(&mut config);
        EngineHarness { _directory: Some(directory), ..EngineHarness::with(config) }
    }

    /// Starts a target with few buffers and a [`slow`] namespace.
    pub fn scarce(adapt: impl FnOnce(&mut ServerConfig)) -> Self {
        let (export, fifo) = slow();
        let harness = EngineHarness::with_file(|config| {
            config.pool_bytes = SCARCE_BYTES;
            config.subsystems[0].namespaces.push(export);
            adapt(config);
        });
        EngineHarness { fifo: Some(fifo), ..harness }
    }

    /// Takes all buffers of a scarce target: one waits for data of `holder`'s write 2, whose TTAG is returned, and one
    /// for the slow namespace.
    pub fn hold_buffers(&self, holder: &mut RawPeer) -> u16 {
        holder.send(&write(2, LARGE, raw::PLAIN));
        let ttag = holder.r2t(2);
        holder.send(&slow_read(3, LARGE));
        eventually("all buffers are out", || self.server.usage().buffer_bytes == SCARCE_BYTES);
        ttag
    }

    pub fn with(config: ServerConfig) -> Self {
        let server = Server::start(config).unwrap();
        let client = connect(&server);
        let mut config = host_config(address(&server));
        config.keep_alive = std::time::Duration::ZERO;
        let admin = AdminConnection::connect(&config).unwrap();
        let connections = server.usage().connections;
        assert_eq!(connections, 3);
        let cntlid = client.view().info().cntlid;
        EngineHarness { server, client, admin, connections, cntlid, fifo: None, _directory: None }
    }

    pub fn peer(&self) -> RawPeer {
        let socket = TcpStream::connect(address(&self.server)).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket.set_nodelay(true).unwrap();
        RawPeer { socket, digests: raw::PLAIN }
    }

    /// Connects a peer up to ICResp.
    pub fn ready(&self, digests: Digests) -> RawPeer {
        let mut peer = self.peer();
        peer.send(IcReq::new(digests, 0, 0).as_bytes());
        let (kind, _) = peer.next().unwrap();
        assert_eq!(kind, PduType::IcResp as u8);
        peer.digests = digests;
        peer
    }

    pub fn connect_capsule(&self, digests: Digests) -> Vec<u8> {
        self.connect_capsule_of(1, ENTRIES, Class::Normal, digests)
    }

    fn connect_capsule_of(
        &self,
        qid: u16,
        entries: u16,
        class: Class,
        digests: Digests,
    ) -> Vec<u8> {
        let cattr = cattr::DISABLE_SQ_FLOW_CONTROL | class.to_cattr();
        let connect = Connect { recfmt: 0, qid, sqsize: entries - 1, cattr, kato_ms: 0 };
        let data = ConnectData::new([7; 16], self.admin.cntlid, NQN, HOST_NQN);
        raw::command(1, connect.emit(), data.as_bytes(), digests)
    }

    /// Connects a peer with an I/O queue of [`ENTRIES`].
    pub fn queue(&self, digests: Digests) -> RawPeer {
        let mut peer = self.ready(digests);
        peer.send(&self.connect_capsule(digests));
        assert!(peer.completion(1).is_success());
        peer
    }

    /// Connects a peer with I/O queue `qid`.
    pub fn queue_of(&self, qid: u16, entries: u16) -> RawPeer {
        self.queue_of_class(qid, entries, Class::Normal)
    }

    /// Connects a peer with I/O queue `qid` and digests.
    pub fn queue_with(&self, qid: u16, entries: u16, digests: Digests) -> RawPeer {
        let mut peer = self.ready(digests);
        peer.send(&self.connect_capsule_of(qid, entries, Class::Normal, digests));
        assert!(peer.completion(1).is_success());
        peer
    }

    /// Connects a peer with I/O queue `qid` and a class.
    pub fn queue_of_class(&self, qid: u16, entries: u16, class: Class) -> RawPeer {
        let mut peer = self.ready(raw::PLAIN);
        peer.send(&self.connect_capsule_of(qid, entries, class, raw::PLAIN));
        assert!(peer.completion(1).is_success());
        peer
    }

    /// Checks that the target still serves others and has released everything of hostile peers.
    pub fn assert_healthy(&self) {
        eventually("the hostile connection is gone", || {
            self.fifo.iter().for_each(feed);
            let usage = self.server.usage();
            usage.connections == self.connections && usage.buffer_bytes == 0
        });
        self.client.write(1, 0, pattern(65536, 1), false).unwrap();
        assert!(*self.client.read(1, 0, Buffer::alloc(65536)).unwrap() == *pattern(65536, 1));
        assert_eq!(self.client.view().info().cntlid, self.cntlid, "the client had to reconnect");
    }
}

pub struct RawPeer {
    pub socket: TcpStream,
    pub digests: Digests,
}

impl RawPeer {
    /// Sends bytes. Ignores errors, as the target may have closed the connection.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.socket.write_all(bytes);
    }

    /// Reads the next PDU; `None` if the target has closed the connection.
    pub fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut pdu = vec![0; 8];
        match self.socket.read_exact(&mut pdu) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => panic!("no answer: {e}"),
            Err(_) => return None,
        }
        let plen = u32::from_le_bytes([pdu[4], pdu[5], pdu[6], pdu[7]]) as usize;
        pdu.resize(plen, 0);
        self.socket.read_exact(&mut pdu[8..]).unwrap();
        Some((pdu[0], pdu))
    }

    /// Reads the next PDU, which must be a completion. Returns its CID and status.
    pub fn any_completion(&mut self) -> (u16, Status) {
        let (kind, pdu) = self.next().expect("a completion");
        assert_eq!(kind, PduType::CapsuleResp as u8);
        let field = |at: usize| u16::from_le_bytes([pdu[at], pdu[at + 1]]);
        (field(20), Status::from_field(field(22)))
    }

    /// Reads the next PDU, which must be the completion of `cid`.
    pub fn completion(&mut self, cid: u16) -> Status {
        let (completed, status) = self.any_completion();
        assert_eq!(completed, cid);
        status
    }

    /// Reads the next PDU, which must be the R2T for `cid`. Returns its TTAG.
    pub fn r2t(&mut self, cid: u16) -> u16 {
        let (kind, pdu) = self.next().expect("an R2T");
        assert_eq!(kind, PduType::R2t as u8);
        assert_eq!(u16::from_le_bytes([pdu[8], pdu[9]]), cid);
        u16::from_le_bytes([pdu[10], pdu[11]])
    }

    /// Checks that the target sends a C2HTermReq with `fes`, and then closes.
    pub fn assert_terminated(mut self, fes: Fes) {
        loop {
            let (kind, pdu) = self.next().expect("a C2HTermReq before the end");
            if kind == PduType::C2hTermReq as u8 {
                assert_eq!(u16::from_le_bytes([pdu[8], pdu[9]]), fes as u16, "{fes:?} expected");
                break;
            }
        }
        assert_eq!(self.next(), None, "nothing after a C2HTermReq");
    }

    /// Checks that the target closes the connection, whatever it sends before.
    pub fn assert_ends(mut self) {
        while self.next().is_some() {}
    }
}

pub fn write(cid: u16, len: u32, digests: Digests) -> Vec<u8> {
    let mut sqe = Sqe::rw(opcode::WRITE, 1, 0, len / BLOCK);
    sqe.set_transport(len);
    raw::command(cid, sqe, &[], digests)
}

/// Exports a FIFO as a namespace. Its reads complete as the test writes data.
pub fn slow() -> (Export, File) {
    let (fifo, data) = std::io::pipe().unwrap();
    let store = DiskStore::from_file(File::from(OwnedFd::from(fifo)), 2 * MIB, BLOCK).unwrap();
    rustix::fs::fcntl_setfl(&data, OFlags::NONBLOCK).unwrap();
    let export = Export::with_store(SLOW_NSID, Arc::new(store));
    (export, File::from(OwnedFd::from(data)))
}

/// Writes as much as the FIFO accepts.
pub fn feed(mut fifo: &File) {
    while fifo.write(&[0; 65536]).is_ok() {}
}

/// Returns the capsule of a read that keeps its buffer until the namespace gets data.
pub fn slow_read(cid: u16, len: u32) -> Vec<u8> {
    let mut sqe = Sqe::rw(opcode::READ, SLOW_NSID, 0, len / BLOCK);
    sqe.set_transport(len);
    raw::command(cid, sqe, &[], raw::PLAIN)
}

pub fn read(cid: u16, len: u32) -> Vec<u8> {
    let mut sqe = Sqe::rw(opcode::READ, 1, 0, len / BLOCK);
    sqe.set_transport(len);
    raw::command(cid, sqe, &[], raw::PLAIN)
}

//! Classes on the wire: order of completions by command, namespace and connection, and the class in Connect and
//! commands.

use crate::harness::*;
use crate::peer::{EngineHarness, RawPeer, raw};
use roadtrain_host_engine::{Class, HostClient};
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::Export;
use roadtrain_wire::fabrics::{Connect, cattr, fctype};
use roadtrain_wire::pdu::{CapsuleCmd, CommonHeader, PduType};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::zerocopy::FromBytes;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

const ENTRIES: u16 = 64;
/// High command identifier: it indicates a deep queue, so the target sends only at the end of a turn.
const CID: u16 = 500;
const BLOCK: u32 = 512;

fn of_class(export: Export, class: Class) -> Export {
    Export { class: Some(class), ..export }
}

/// Namespace 1 without a class, and namespaces 2 and 3 with these classes.
fn exports(second: Class, third: Class) -> Vec<Export> {
    let memory = |nsid| memory(nsid, MIB, BLOCK);
    vec![memory(1), of_class(memory(2), second), of_class(memory(3), third)]
}

/// Sends reads of (NSID, CDW13) at once. Returns the order of the completions.
fn answers(peer: &mut RawPeer, reads: &[(u32, u32)]) -> Vec<u16> {
    let mut capsules = Vec::new();
    for (cid, &(nsid, cdw13)) in (CID..).zip(reads) {
        let mut sqe = Sqe::rw(opcode::READ, nsid, 0, 1);
        sqe.set_transport(BLOCK);
        sqe.cdw13 = cdw13.into();
        capsules.extend(raw::command(cid, sqe, &[], raw::PLAIN));
    }
    peer.send(&capsules);
    let answer = |_| {
        let (kind, pdu) = peer.next().expect("data");
        assert_eq!(kind, PduType::C2hData as u8);
        u16::from_le_bytes([pdu[8], pdu[9]]) - CID
    };
    reads.iter().map(answer).collect()
}

#[test]
fn answers_pass_others_by_the_class_of_their_namespace() {
    let harness = EngineHarness::with(server_config(exports(Class::Bulk, Class::Latency)));
    let mut peer = harness.queue_of(1, ENTRIES);
    let reads = [(2, 0), (2, 0), (1, 0), (2, 0), (3, 0)];
    assert_eq!(answers(&mut peer, &reads), [4, 2, 0, 1, 3]);
    // The order also changes on connected lanes.
    let swapped = harness.server.reload(&[subsystem(exports(Class::Latency, Class::Bulk))]);
    assert_eq!(swapped.unwrap().len(), 2, "changes");
    assert_eq!(answers(&mut peer, &reads), [0, 1, 3, 2, 4]);
    assert_eq!(answers(&mut peer, &[(3, 0), (3, Class::Latency.to_dsm())]), [1, 0]);
}

#[test]
fn answers_on_a_bulk_connection_let_others_pass() {
    let harness = EngineHarness::with(server_config(exports(Class::Normal, Class::Latency)));
    let mut peer = harness.queue_of_class(1, ENTRIES, Class::Bulk);
    assert_eq!(answers(&mut peer, &[(1, 0), (2, 0), (3, 0)]), [2, 1, 0]);
    assert_eq!(answers(&mut peer, &[(1, 0), (1, Class::Latency.to_dsm())]), [1, 0]);
}

/// Records the data that hosts send to `target` through the returned address, one element for each connection.
fn recorder(target: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let record = Arc::new(Mutex::new(Vec::<Vec<u8>>::new()));
    let sink = record.clone();
    thread::spawn(move || {
        for (number, host) in listener.incoming().flatten().enumerate() {
            let target = TcpStream::connect(target).unwrap();
            let (mut from, mut to) = (target.try_clone().unwrap(), host.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            sink.lock().unwrap().push(Vec::new());
            let sink = sink.clone();
            thread::spawn(move || {
                forward(host, target, |bytes| {
                    sink.lock().unwrap()[number].extend_from_slice(bytes);
                })
            });
        }
    });
    (address, record)
}

fn forward(mut from: TcpStream, mut to: TcpStream, note: impl Fn(&[u8])) {
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        note(&bytes[..length]); // before the target can respond
        if to.write_all(&bytes[..length]).is_err() {
            return;
        }
    }
}

/// Returns the commands in the data that a host has sent.
fn commands(mut bytes: &[u8]) -> Vec<Sqe> {
    let mut commands = Vec::new();
    while let Ok((ch, _)) = CommonHeader::ref_from_prefix(bytes) {
        if ch.pdu_type == PduType::CapsuleCmd as u8 {
            commands.push(CapsuleCmd::ref_from_prefix(bytes).unwrap().0.sqe);
        }
        bytes = bytes.get(ch.plen.get() as usize..).unwrap_or_default();
    }
    commands
}

#[test]
fn a_host_says_its_class_in_connect_and_in_each_command() {
    for (class, priority) in [(Class::Normal, 0), (Class::Latency, 0), (Class::Bulk, 3)] {
        let server = serve(vec![memory(1, MIB, BLOCK)]);
        let (address, record) = recorder(address(&server));
        let mut config = host_config(address);
        config.class = class;
        let client = HostClient::connect(config).unwrap();
        client.read(1, 0, Buffer::alloc(4096)).unwrap();
        let record = record.lock().unwrap();
        let [admin, lane] = &record[..] else { panic!("two connections") };
        for (bytes, priority) in [(admin, 0), (lane, priority)] {
            let first = commands(bytes)[0];
            assert_eq!((first.opcode, first.fctype()), (opcode::FABRICS, fctype::CONNECT));
            assert_eq!(Connect::parse(&first).cattr & cattr::PRIORITY_CLASS, priority, "{class:?}");
        }
        let read = commands(lane)[1];
        assert_eq!((read.opcode, read.cdw13.get()), (opcode::READ, class.to_dsm()), "{class:?}");
    }
}

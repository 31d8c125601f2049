//! Keep-alive: every command of a host restarts the timer.

use crate::harness::{MIB, address, host_config, memory, serve};
use crate::peer::*;
use roadtrain_host_engine::{Front, FrontTurn, HostConfig, HostController};
use roadtrain_wire::feature::{SetFeatures, fid};
use roadtrain_wire::sqe::{Sqe, opcode};
use roadtrain_wire::status::Status;
use std::thread;
use std::time::{Duration, Instant};

/// Keep-alive timeout of these hosts, and the time for which they send only one kind of command.
const KATO: Duration = Duration::from_secs(2);
const BUSY: Duration = Duration::from_secs(5);

/// Name, capsule and status of an I/O command.
type KeepAliveCase = (&'static str, fn(u16) -> Vec<u8>, Status);

fn flush_all(cid: u16) -> Vec<u8> {
    let mut sqe = Sqe::new(opcode::FLUSH, 1);
    sqe.nsid = u32::MAX.into();
    raw::command(cid, sqe, &[], raw::PLAIN)
}

fn deallocate(cid: u16) -> Vec<u8> {
    let mut sqe = Sqe::new(opcode::DATASET_MANAGEMENT, 1);
    sqe.cdw11 = 4.into();
    let mut range = [0; 16];
    range[4] = 8; // blocks
    sqe.set_in_capsule(range.len() as u32);
    raw::command(cid, sqe, &range, raw::PLAIN)
}

const KINDS: [KeepAliveCase; 6] = [
    ("Flush", raw::flush, Status::SUCCESS),
    ("Flush of every namespace", flush_all, Status::SUCCESS),
    (
        "Write Zeroes",
        |cid| raw::command(cid, Sqe::rw(opcode::WRITE_ZEROES, 1, 0, 8), &[], raw::PLAIN),
        Status::SUCCESS,
    ),
    ("Dataset Management", deallocate, Status::SUCCESS),
    (
        "a command that fails",
        |cid| raw::command(cid, Sqe::rw(opcode::WRITE_ZEROES, 1, 1 << 40, 8), &[], raw::PLAIN),
        Status::LBA_OUT_OF_RANGE,
    ),
    (
        "a command of no namespace",
        |cid| raw::command(cid, Sqe::new(opcode::FLUSH, 99), &[], raw::PLAIN),
        Status::INVALID_NAMESPACE,
    ),
];

/// Sends one kind of command for longer than the timeout, and nothing on the admin queue meanwhile.
fn keeps_alive(&(name, capsule, status): &KeepAliveCase) {
    let mut harness = EngineHarness::new();
    let kato = SetFeatures::emit(fid::KEEP_ALIVE_TIMER, KATO.as_millis() as u32);
    harness.admin.run("Set Features", &kato, &[], &mut []).unwrap();
    let mut peer = harness.queue(raw::PLAIN);
    let end = Instant::now() + BUSY;
    while Instant::now() < end {
        peer.send(&capsule(7));
        let (kind, pdu) = peer.next().unwrap_or_else(|| panic!("{name}: the host was dropped"));
        assert_eq!(kind, roadtrain_wire::pdu::PduType::CapsuleResp as u8, "{name}");
        let answer = Status::from_field(u16::from_le_bytes([pdu[22], pdu[23]]));
        assert!(answer.is(status), "{name}: {answer}");
        thread::sleep(Duration::from_millis(20));
    }
    let keep_alive = Sqe::new(opcode::KEEP_ALIVE, 0);
    harness.admin.run("Keep Alive", &keep_alive, &[], &mut []).expect(name);
}

/// Traffic based keep-alive is supported: a host with completed commands sends no Keep Alive.
#[test]
fn every_command_keeps_its_controller_alive() {
    thread::scope(|scope| {
        for kind in &KINDS {
            scope.spawn(move || keeps_alive(kind));
        }
    });
}

/// Front that ends when it must stop.
struct KeepAliveFront;

impl Front for KeepAliveFront {
    fn turn(&mut self, turn: &mut dyn FrontTurn) {
        if turn.stopping() {
            turn.stop();
        }
    }
}

/// Creating a front may take longer than the keep-alive timeout of the controller.
#[test]
fn a_controller_is_kept_alive_while_its_fronts_are_made() {
    let server = serve(vec![memory(1, MIB, 512)]);
    let config = HostConfig { keep_alive: KATO, ..host_config(address(&server)) };
    let controller = HostController::connect(config, |_, _| {
        thread::sleep(BUSY);
        Box::new(KeepAliveFront)
    });
    let controller = controller.unwrap();
    controller.stop();
    controller.join();
}

//! The program that passes our frames to AF_XDP sockets: generated, loaded and attached through bpf(2).

use crate::port::bpf;
use crate::port::frame::SOCKET_OFFSET;
use roadtrain_wire::ether::MacAddress;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Selection of the frames for a port.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameSelection {
    pub(super) mac: MacAddress,
    pub(super) ethertype: u16,
    pub(super) socket_number: u16,
}

/// An attached program. It is detached when this is dropped or the process ends for any reason.
#[derive(Debug)]
pub(super) struct AttachedProgram {
    sockets: OwnedFd,
    _link: OwnedFd,
}

impl AttachedProgram {
    /// Attaches it to the interface; `queues` of it may get a socket.
    pub(super) fn new(
        index: i32,
        queues: u32,
        wanted: &FrameSelection,
    ) -> io::Result<AttachedProgram> {
        let sockets = bpf::socket_map(queues)?;
        let program = bpf::load(&instructions(wanted, sockets.as_raw_fd()))?;
        // In the driver if possible, else before the network stack.
        let link = bpf::attach(&program, index, bpf::IN_DRIVER)
            .or_else(|_| bpf::attach(&program, index, bpf::BEFORE_STACK))?;
        Ok(AttachedProgram { sockets, _link: link })
    }

    /// Passes frames of the queue to the socket.
    pub(super) fn set_socket(&self, queue: u32, socket: &OwnedFd) -> io::Result<()> {
        bpf::set_socket(&self.sockets, queue, socket)
    }
}

// Registers: arguments of calls, and the one that calls preserve.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;

// Fields of `xdp_md`.
const DATA: usize = 0;
const DATA_END: usize = 4;
const RX_QUEUE: usize = 16;

const PASS: i32 = 2;
const REDIRECT_MAP: i32 = 51;

/// Bytes of loads.
#[derive(Clone, Copy)]
enum Width {
    Two = 0x08,
    Four = 0x00,
}

/// Encodes an instruction: operation, registers, offset, number.
fn instruction(operation: u8, to: u8, from: u8, offset: i16, number: i32) -> u64 {
    u64::from(operation)
        | u64::from(to | from << 4) << 8
        | u64::from(offset as u16) << 16
        | u64::from(number as u32) << 32
}

fn load(width: Width, to: u8, from: u8, offset: usize) -> u64 {
    instruction(0x61 | width as u8, to, from, offset as i16, 0)
}

fn set(to: u8, number: i32) -> u64 {
    instruction(0xb7, to, 0, 0, number)
}

/// Generates the program. Frames for the port's address with its EtherType and SOCKET go to the socket of their queue,
/// all others on to the network stack. So do ours if a queue has no socket.
fn instructions(wanted: &FrameSelection, sockets: i32) -> Vec<u64> {
    let mac = wanted.mac.0;
    let [m0, m1, m2, m3, m4, m5] = mac;
    // In the processor's byte order: bytes in sequence.
    let tests = [
        (Width::Four, 0, i32::from_ne_bytes([m0, m1, m2, m3])),
        (Width::Two, 4, i32::from(u16::from_ne_bytes([m4, m5]))),
        (Width::Two, 12, i32::from(wanted.ethertype.to_be())),
        (Width::Two, SOCKET_OFFSET, i32::from(wanted.socket_number.to_le())),
    ];
    let mut program = vec![
        load(Width::Four, R3, R1, DATA_END),
        load(Width::Four, R2, R1, DATA),
        // r4 = data + bytes of a frame that are read; beyond the end: pass it on
        instruction(0xbf, R4, R2, 0, 0),
        instruction(0x07, R4, 0, 0, SOCKET_OFFSET as i32 + 2),
    ];
    let mut to_pass = vec![program.len()];
    program.push(instruction(0x2d, R4, R3, 0, 0));
    for (width, offset, number) in tests {
        program.push(load(width, R4, R2, offset));
        to_pass.push(program.len());
        program.push(instruction(0x56, R4, 0, 0, number)); // 32 bits: not equal
    }
    program.push(load(Width::Four, R2, R1, RX_QUEUE));
    program.push(instruction(0x18, R1, 1, 0, sockets)); // the map with that descriptor
    program.push(0);
    program.push(set(R3, PASS));
    program.push(instruction(0x85, 0, 0, 0, REDIRECT_MAP));
    program.push(instruction(0x95, 0, 0, 0, 0));
    let pass = program.len();
    program.push(set(R0, PASS));
    program.push(instruction(0x95, 0, 0, 0, 0));
    for jump in to_pass {
        program[jump] |= u64::from((pass - jump - 1) as u16) << 16;
    }
    program
}

//! Filter of a packet socket's frames: a classic BPF program that the kernel runs before it copies anything.

use crate::port::frame::SOCKET_OFFSET;
use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET};
use libc::{SKF_AD_OFF, SKF_AD_PKTTYPE, SKF_AD_VLAN_TAG, SKF_AD_VLAN_TAG_PRESENT};
use socket2::SockFilter;

/// Offset of the EtherType; the kernel has removed a tag before.
const ETHERTYPE_OFFSET: u32 = 12;
/// Mask of a tag's bits that name the VLAN.
const VLAN_MASK: u32 = 0xfff;
/// `PACKET_HOST`: for the interface's address. Frames that came with a tag have this type only at a socket for all
/// protocols.
const THIS_HOST: u32 = 0;
/// `PACKET_MULTICAST`: for a group.
const GROUP: u32 = 2;
/// Result: take the whole frame.
const WHOLE: u32 = u32::MAX;

/// Returns a program that takes frames of `ethertype` and `socket_number` for the interface, from the VLAN or without
/// one. Number 0 also takes frames for a group.
///
/// A load beyond a frame's end ends the program and drops the frame.
pub(super) fn program(ethertype: u16, socket_number: u16, vlan: Option<u16>) -> Vec<SockFilter> {
    let but_group = if socket_number == 0 { !GROUP } else { u32::MAX };
    let socket_number = u32::from(socket_number.swap_bytes()); // little-endian on the wire, read as big-endian
    let mut tests = vec![(BPF_B, ancillary(SKF_AD_PKTTYPE), but_group, THIS_HOST)];
    if let Some(vlan) = vlan {
        let vlan = u32::from(vlan) & VLAN_MASK;
        tests.push((BPF_B, ancillary(SKF_AD_VLAN_TAG_PRESENT), u32::MAX, 1));
        tests.push((BPF_H, ancillary(SKF_AD_VLAN_TAG), VLAN_MASK, vlan));
    }
    tests.push((BPF_H, ETHERTYPE_OFFSET, u32::MAX, u32::from(ethertype)));
    tests.push((BPF_H, SOCKET_OFFSET as u32, u32::MAX, socket_number));
    let mut program = Vec::new();
    for (width, offset, mask, value) in tests {
        program.push(statement(BPF_LD | width | BPF_ABS, offset));
        if mask != u32::MAX {
            program.push(statement(BPF_ALU | BPF_AND | BPF_K, mask));
        }
        // A failed test continues with the next instruction, which drops the frame.
        let equal = (BPF_JMP | BPF_JEQ | BPF_K) as u16;
        program.push(SockFilter::new(equal, 1, 0, value));
        program.push(statement(BPF_RET | BPF_K, 0));
    }
    program.push(statement(BPF_RET | BPF_K, WHOLE));
    program
}

/// Returns the offset at which the kernel provides metadata of a frame.
fn ancillary(what: i32) -> u32 {
    SKF_AD_OFF.wrapping_add(what) as u32
}

fn statement(code: u32, k: u32) -> SockFilter {
    SockFilter::new(code as u16, 0, 0, k)
}

//! Which frames a packet socket takes: a classic BPF program that the kernel runs before it copies anything.

use super::DOOR_OFFSET;
use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET};
use libc::{SKF_AD_OFF, SKF_AD_PKTTYPE, SKF_AD_VLAN_TAG, SKF_AD_VLAN_TAG_PRESENT, sock_filter};

/// Offset of the EtherType; the kernel has taken a tag out before.
const ETHERTYPE_OFFSET: u32 = 12;
/// The bits of a tag that name the VLAN.
const VLAN_MASK: u32 = 0xfff;
/// `PACKET_OTHERHOST`: for another address, or of a VLAN that no interface of this machine is a member of.
const OTHER_HOST: u32 = 3;
/// Take the whole frame.
const WHOLE: u32 = u32::MAX;

/// Takes frames of `ethertype` and `door` that are for this machine, from the VLAN or without one.
///
/// A load beyond a frame's end ends the program and drops the frame.
pub(super) fn program(ethertype: u16, door: u16, vlan: Option<u16>) -> Vec<sock_filter> {
    let door = u32::from(door.swap_bytes()); // little-endian on the wire, read as big-endian
    let mut tests = vec![(BPF_B, ancillary(SKF_AD_PKTTYPE), None, Equal::Not(OTHER_HOST))];
    if let Some(vlan) = vlan {
        let vlan = u32::from(vlan) & VLAN_MASK;
        tests.push((BPF_B, ancillary(SKF_AD_VLAN_TAG_PRESENT), None, Equal::To(1)));
        tests.push((BPF_H, ancillary(SKF_AD_VLAN_TAG), Some(VLAN_MASK), Equal::To(vlan)));
    }
    tests.push((BPF_H, ETHERTYPE_OFFSET, None, Equal::To(u32::from(ethertype))));
    tests.push((BPF_H, DOOR_OFFSET as u32, None, Equal::To(door)));
    let mut program = Vec::new();
    for (width, offset, mask, equal) in tests {
        program.push(statement(BPF_LD | width | BPF_ABS, offset));
        if let Some(mask) = mask {
            program.push(statement(BPF_ALU | BPF_AND | BPF_K, mask));
        }
        // What fails goes on to the next instruction, which drops it.
        let (value, jt, jf) = match equal {
            Equal::To(value) => (value, 1, 0),
            Equal::Not(value) => (value, 0, 1),
        };
        program.push(sock_filter { code: (BPF_JMP | BPF_JEQ | BPF_K) as u16, jt, jf, k: value });
        program.push(statement(BPF_RET | BPF_K, 0));
    }
    program.push(statement(BPF_RET | BPF_K, WHOLE));
    program
}

enum Equal {
    To(u32),
    Not(u32),
}

/// Where the kernel shows what it knows about a frame beside its octets.
fn ancillary(what: i32) -> u32 {
    SKF_AD_OFF.wrapping_add(what) as u32
}

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

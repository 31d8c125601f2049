//! An eBPF program at an interface's ingress: every frame goes to another interface, but for those that
//! are lost; some go twice. It is gone with the process that made it.

use super::Impairment;
use crate::packet::index;
use anyhow::Context;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const LINK_UPDATE: libc::c_long = 29;
const PROG_TYPE_SCHED_CLS: u32 = 3;
const TCX_INGRESS: u32 = 46;
/// The program's verdict on a frame that is lost, or was forwarded as a copy.
const DROP: i32 = 2;

const GET_PRANDOM_U32: i32 = 7;
const CLONE_REDIRECT: i32 = 13;

/// The way from an interface to another one.
#[derive(Debug)]
pub(super) struct ForwardingPath {
    link: OwnedFd,
    out: u32,
}

impl ForwardingPath {
    /// Opens it, in the calling thread's network namespace.
    pub(super) fn new(from: &str, to: &str, impairment: Impairment) -> anyhow::Result<Self> {
        let (from, out) = (index(from)?, index(to)?);
        let program = load(&instructions(out, impairment))?;
        let attributes = XdpLinkCreate {
            program: fd(&program),
            interface: from,
            kind: TCX_INGRESS,
            rest: [0; 10],
        };
        let link = bpf(LINK_CREATE, &attributes).context("attach an eBPF program")?;
        // SAFETY: the call has just made this descriptor for us.
        let link = unsafe { OwnedFd::from_raw_fd(link) };
        Ok(Self { link, out })
    }

    /// From now on it treats frames so.
    pub(super) fn set(&self, impairment: Impairment) -> anyhow::Result<()> {
        let program = load(&instructions(self.out, impairment))?;
        let attributes = LinkUpdate { link: fd(&self.link), program: fd(&program), rest: [0; 2] };
        bpf(LINK_UPDATE, &attributes).context("replace an eBPF program")?;
        Ok(())
    }
}

/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Instruction {
    code: u8,
    /// Destination in the low half, source in the high one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Attributes of bpf(2); the tail is zero.
#[repr(C)]
struct XdpProgLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    rest: [u32; 12],
}

#[repr(C)]
struct XdpLinkCreate {
    program: u32,
    interface: u32,
    kind: u32,
    rest: [u32; 10],
}

#[repr(C)]
struct LinkUpdate {
    link: u32,
    program: u32,
    rest: [u32; 2],
}

/// Register 6 keeps the frame; calls take 1 to 3 and give 0. What goes on is a copy (of the description, not of
/// the bytes), and the frame itself ends here: it belongs to the socket that sent it, and a TCP that finds its own
/// frames in the queue of what plays the switch believes them in its own machine and holds back (small queues).
fn instructions(out: u32, impairment: Impairment) -> Vec<Instruction> {
    let of =
        |code, registers, offset, immediate| Instruction { code, registers, offset, immediate };
    let move_register = |to: u8, from: u8| of(0xbf, from << 4 | to, 0, 0);
    let set = |to: u8, value: i32| of(0xb7, to, 0, value);
    let call = |function| of(0x85, 0, 0, function);
    // 32 bits, without sign.
    let if_less = |bound: u32, skip| of(0xa6, 0, skip, bound as i32);
    let if_not_less = |bound: u32, skip| of(0x36, 0, skip, bound as i32);
    let exit = of(0x95, 0, 0, 0);
    let out = out as i32;
    vec![
        move_register(6, 1),
        call(GET_PRANDOM_U32),
        if_less(bound(impairment.loss), 10),
        call(GET_PRANDOM_U32),
        if_not_less(bound(impairment.duplicate), 4),
        move_register(1, 6),
        set(2, out),
        set(3, 0),
        call(CLONE_REDIRECT),
        move_register(1, 6),
        set(2, out),
        set(3, 0),
        call(CLONE_REDIRECT),
        set(0, DROP),
        exit,
    ]
}

/// Random numbers below this are so many percent of all.
fn bound(percent: f64) -> u32 {
    (percent / 100.0 * f64::from(u32::MAX)).round() as u32
}

fn load(instructions: &[Instruction]) -> anyhow::Result<OwnedFd> {
    let attributes = XdpProgLoad {
        kind: PROG_TYPE_SCHED_CLS,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"".as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        rest: [0; 12],
    };
    let program = bpf(PROG_LOAD, &attributes).context("load an eBPF program")?;
    // SAFETY: the call has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(program) })
}

fn fd(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd() as u32
}

fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<libc::c_int> {
    // SAFETY: the attributes are the kernel's structure for this command, of the size that is given; what
    // they point to lives as long as the call.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), mem::size_of::<T>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_reach_their_places() {
        let program = instructions(7, Impairment { loss: 50.0, ..Impairment::NONE });
        let at = |place: usize| place + 1 + program[place].offset as usize;
        assert_eq!(
            program[at(2)],
            Instruction { code: 0xb7, registers: 0, offset: 0, immediate: DROP }
        );
        assert_eq!(
            program[at(4)],
            Instruction { code: 0xbf, registers: 6 << 4 | 1, offset: 0, immediate: 0 }
        );
        assert_eq!(program[2].immediate as u32, bound(50.0));
    }

    #[test]
    fn shares_cover_the_whole_range() {
        assert_eq!(bound(0.0), 0);
        assert_eq!(bound(100.0), u32::MAX);
        assert_eq!(bound(50.0), 1 << 31);
    }
}

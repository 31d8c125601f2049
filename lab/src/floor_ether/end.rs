//! One end: a port, how it waits, what it has counted.

use super::args::FloorEtherArgs;
use super::case::FloorEtherCase;
use super::pack::{FloorPacker, FloorRecord, unpack};
use crate::floor::FloorMemory;
use anyhow::Context;
use roadtrain_ether_port::port::{Port, PortConfig};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::{Duration, Instant};

pub(super) const HOST_SOCKET: u16 = 0x0101;
pub(super) const TARGET_SOCKET: u16 = 0x0202;
/// Frames taken before answers leave.
const FRAMES_PER_TURN: usize = 64;
/// Longest sleep of an end before it checks for the end of the run, in milliseconds.
const SLEEP_MS: i32 = 100;

/// Counters of one end over the whole run, warm-up included.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FloorEtherCounts {
    pub(super) requests: u64,
    pub(super) frames: u64,
    pub(super) bytes: u64,
    pub(super) sends: u64,
    /// Frames that did not arrive, at whichever side they were dropped.
    pub(super) lost: u64,
}

pub(super) struct FloorEtherEnd {
    port: Port,
    packer: FloorPacker,
    spin: Duration,
    pub(super) zero_copy: bool,
}

impl FloorEtherEnd {
    pub(super) fn open(
        args: &FloorEtherArgs,
        case: &FloorEtherCase,
        interface: &str,
        socket_number: u16,
    ) -> anyhow::Result<FloorEtherEnd> {
        let config = PortConfig {
            kind: case.kind.port(),
            receive_bytes: args.receive,
            ..PortConfig::default()
        };
        let port = Port::open(interface, socket_number, &config)
            .with_context(|| format!("open a port at {interface}"))?;
        let packer = FloorPacker::new(case.room(), case.payloads);
        let spin = Duration::from_micros(args.spin_us);
        let zero_copy = port.is_zero_copy();
        Ok(FloorEtherEnd { port, packer, spin, zero_copy })
    }

    pub(super) fn meet(&mut self, peer: &FloorEtherEnd, socket_number: u16) {
        self.packer.set_peer(peer.port.mac(), socket_number);
    }

    /// Appends a record with payload.
    ///
    /// # Safety
    /// The payload's bytes stay readable until the next [`flush`](Self::flush).
    pub(super) unsafe fn put(
        &mut self,
        record: FloorRecord,
        payload: (*const u8, usize),
    ) -> io::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.packer.put(&mut self.port, record, payload) }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.packer.close(&mut self.port);
        self.port.flush().map(drop)
    }

    /// Shows the records of frames that have arrived, or waits for some; whether there were any.
    pub(super) fn receive(&mut self, mut each: impl FnMut(FloorRecord, &[u8])) -> io::Result<bool> {
        let mut show = |frame: &[u8]| {
            unpack(frame, &mut each);
        };
        if self.port.receive(FRAMES_PER_TURN, &mut show) > 0 {
            return Ok(true);
        }
        let begin = Instant::now();
        while !self.spin.is_zero() && begin.elapsed() < self.spin {
            if self.port.receive(FRAMES_PER_TURN, &mut show) > 0 {
                return Ok(true);
            }
        }
        self.sleep()?;
        Ok(false)
    }

    fn sleep(&self) -> io::Result<()> {
        let mut poll =
            libc::pollfd { fd: self.port.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        if unsafe { libc::poll(&mut poll, 1, SLEEP_MS) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    pub(super) fn counts(&mut self, requests: u64) -> FloorEtherCounts {
        let counts = self.port.counts();
        FloorEtherCounts {
            requests,
            frames: counts.sent,
            bytes: counts.sent_bytes,
            sends: counts.send_calls,
            lost: counts.refused + counts.dropped,
        }
    }
}

/// Moves a piece of a request to its place, the block or the buffer of that number.
pub(super) fn place(
    case: &FloorEtherCase,
    memory: &FloorMemory,
    number: usize,
    index: usize,
    payload: &[u8],
) {
    let (at, bytes) = case.span(index);
    let place = memory.at(number * case.bs + at, bytes);
    assert_eq!(payload.len(), bytes, "the piece is whole");
    // SAFETY: within the memory (`at` panics otherwise); a block is the target's, and a slot in flight has its own.
    unsafe { ptr::copy_nonoverlapping(payload.as_ptr(), place, bytes) };
}

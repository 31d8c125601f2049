//! A reactor whose lane is memory: requests are complete when they are submitted.

use super::contestant::MIB;
use crate::interrupt;
use anyhow::Context;
use roadtrain_front::disk::DiskInfo;
use roadtrain_front::fuse::{FuseService, FuseUring};
use roadtrain_host_engine::{
    Front, FrontTurn, Interest, IoCompletion, IoOp, IoRequest, LaneId, ReactorInfo, UringCommand,
};
use roadtrain_proto::time::Instant;
use roadtrain_system::ring::ReactorRing;
use roadtrain_wire::status::Status;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BLOCK_BYTES: u32 = 512;
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
const RING_ENTRIES: u32 = 256;
/// How soon the end is noticed.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Upper byte of an entry's user data: its kind.
const WATCH: u64 = 1 << 56;
const COMMAND: u64 = 2 << 56;
const FORGET: u64 = 3 << 56;
const KEY_MASK: u64 = WATCH - 1;

/// Serves memory as a file at `mountpoint` until a signal ends it.
pub(super) fn serve(mountpoint: &Path, uring: FuseUring) -> anyhow::Result<()> {
    interrupt::watch();
    let service = FuseService::new(vec![disk()], &[])?;
    let reactor = ReactorInfo { index: 0, count: 1, lanes: 1, core: None };
    let mut server = service.server(reactor, None)?;
    let stopping = Arc::new(AtomicBool::new(false));
    let thread = std::thread::spawn({
        let stopping = Arc::clone(&stopping);
        move || FuseReactor::new(stopping)?.run(&mut server)
    });
    let mount = service.mount(mountpoint, uring).context("mount")?;
    println!("ready {}", mount.path().display());
    while interrupt::check().is_ok() {
        std::thread::sleep(CHECK_INTERVAL);
    }
    drop(mount);
    stopping.store(true, Ordering::Relaxed);
    thread.join().expect("the reactor does not panic")?;
    Ok(())
}

fn disk() -> DiskInfo {
    DiskInfo {
        nsid: 1,
        nguid: [0; 16],
        uuid: [0; 16],
        eui64: [0; 8],
        model: "memory".into(),
        serial: "1".into(),
        blocks: (MIB << 20) / u64::from(BLOCK_BYTES),
        lba_bytes: BLOCK_BYTES,
        physical_block_bytes: 4096,
        optimal_io_bytes: 4096,
        discard_granularity_bytes: 4096,
        max_transfer_bytes: TRANSFER_BYTES_MAX,
        read_only: false,
        trim: false,
        write_zeroes: false,
        reports_allocation: false,
    }
}

struct FuseReactor {
    ring: ReactorRing,
    memory: Vec<u8>,
    completions: VecDeque<IoCompletion>,
    ready: VecDeque<u64>,
    answers: VecDeque<(u64, i32)>,
    stopping: Arc<AtomicBool>,
    stopped: bool,
}

impl FuseReactor {
    fn new(stopping: Arc<AtomicBool>) -> io::Result<Self> {
        Ok(FuseReactor {
            ring: ReactorRing::wide(RING_ENTRIES)?,
            memory: vec![0x5a; (MIB << 20) as usize],
            completions: VecDeque::new(),
            ready: VecDeque::new(),
            answers: VecDeque::new(),
            stopping,
            stopped: false,
        })
    }

    fn run(&mut self, front: &mut impl Front) -> io::Result<()> {
        while !self.stopped {
            let idle = self.completions.is_empty();
            self.ring.submit_and_wait(usize::from(idle), Some(CHECK_INTERVAL))?;
            while let Some(cqe) = self.ring.next_completion() {
                let key = cqe.user_data & KEY_MASK;
                match cqe.user_data & !KEY_MASK {
                    WATCH => self.ready.push_back(key),
                    COMMAND => self.answers.push_back((key, cqe.result)),
                    _ => {}
                }
            }
            front.turn(self);
        }
        Ok(())
    }
}

impl FrontTurn for FuseReactor {
    fn now(&self) -> Instant {
        roadtrain_system::clock::now()
    }

    fn next_completion(&mut self) -> Option<IoCompletion> {
        self.completions.pop_front()
    }

    fn room(&self, _: LaneId) -> u32 {
        u32::MAX
    }

    fn submit(&mut self, _: LaneId, mut request: IoRequest) -> Result<(), IoRequest> {
        let start = request.slba as usize * BLOCK_BYTES as usize;
        let range = start..start + request.blocks as usize * BLOCK_BYTES as usize;
        match (request.op, &mut request.buffer) {
            (IoOp::Read, Some(buffer)) => buffer.copy_from_slice(&self.memory[range]),
            (IoOp::Write, Some(buffer)) => self.memory[range].copy_from_slice(buffer),
            _ => {}
        }
        let IoRequest { token, op, buffer, .. } = request;
        let status = Status::SUCCESS;
        self.completions.push_back(IoCompletion { token, op, status, buffer, latency_ns: 0 });
        Ok(())
    }

    fn watch(&mut self, fd: RawFd, interest: Interest, key: u64) {
        let events = match interest {
            Interest::Readable => libc::POLLIN,
            Interest::Writable => libc::POLLOUT,
        };
        // SAFETY: the front keeps it open until it fires or is unwatched.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        self.ring.poll_add(fd, events, WATCH | key);
    }

    fn unwatch(&mut self, key: u64) {
        self.ring.poll_remove(WATCH | key, FORGET);
    }

    fn next_ready(&mut self) -> Option<u64> {
        self.ready.pop_front()
    }

    unsafe fn command(&mut self, command: &UringCommand, key: u64) {
        // SAFETY: passed on to the front, which ends only when its commands have come back: the mount is
        // gone before it is stopped.
        if !unsafe { self.ring.command(command, COMMAND | key) } {
            self.answers.push_back((key, -libc::EOPNOTSUPP));
        }
    }

    fn next_command(&mut self) -> Option<(u64, i32)> {
        self.answers.pop_front()
    }

    fn stop(&mut self) {
        self.stopped = true;
    }

    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

//! A backend on a memory disk, driven by mock reactors, and a virtual machine that uses it.

use super::super::attach::{ControlThread, VhostSetup};
use super::super::guest::{ChainPart, Guest, MEMORY_BYTES, USER_BASE};
use super::*;
use crate::disk::harness::{Mock, MockOptions, SubmittedRequest};
use crate::disk::{DiskInfo, NamespaceWatch};
use roadtrain_host_engine::ReactorInfo;
use roadtrain_wire::virtio_blk::operation;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

impl VhostServer {
    /// True if nothing is left of any request.
    pub(crate) fn is_clean(&self) -> bool {
        self.units.iter().all(|unit| unit.jobs.is_clean()) && self.pending.is_empty()
    }
}

/// Size of each queue.
pub(crate) const QUEUE_SIZE: u16 = 16;

/// Servers that run, and the control threads.
pub(crate) struct Backend {
    pub(crate) path: PathBuf,
    /// A second namespace: the same memory disk with other limits.
    pub(crate) other_path: PathBuf,
    pub(crate) disk: Arc<LiveDisk>,
    pub(crate) data: Arc<Mutex<Vec<u8>>>,
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<(Mock, VhostServer)>>,
    controls: Vec<ControlThread>,
    _directory: tempfile::TempDir,
}

impl Backend {
    pub(crate) fn start(options: MockOptions, reactors: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vhost.sock");
        let other_path = directory.path().join("other.sock");
        let mut shared = VhostSetup::default();
        let disk =
            shared.add(&path, options.info.clone(), NamespaceWatch::default()).unwrap().clone();
        let other = DiskInfo { read_only: true, ..options.info.clone() };
        shared.add(&other_path, other, NamespaceWatch::default()).unwrap();
        let model = Mock::new(options.clone(), 0);
        let (data, stopping) = (model.disk, model.stopping);
        let threads = (0..reactors).map(|index| {
            let reactor = ReactorInfo { index, count: reactors, lanes: options.lanes, core: None };
            let server = shared.server(reactor).unwrap();
            let mut mock = Mock::new(options.clone(), index as u64);
            (mock.disk, mock.stopping) = (data.clone(), stopping.clone());
            std::thread::spawn(move || mock.run(server))
        });
        let threads = threads.collect();
        let controls = shared.listen().unwrap();
        Backend { path, other_path, disk, data, stopping, threads, controls, _directory: directory }
    }

    /// Stops everything in order, and checks that nothing is left of any request. Returns the requests at the lanes.
    pub(crate) fn stop(self) -> Vec<SubmittedRequest> {
        let mut submitted = Vec::new();
        self.stopping.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let (mock, server) = thread.join().unwrap();
            assert!(mock.in_flight.is_empty() && mock.watches.is_empty());
            assert!(server.is_clean());
            submitted.extend(mock.submitted);
        }
        drop(self.controls);
        assert!(!self.path.exists() && !self.other_path.exists());
        submitted
    }
}

/// A queue of the machine, and its events.
pub(crate) struct MachineQueue {
    pub(crate) guest: Guest,
    pub(crate) kick: EventFd,
    call: EventFd,
    error: EventFd,
    /// Index at which the backend begins.
    base: u16,
}

/// A virtual machine with nothing but a disk.
pub(crate) struct VirtualMachine {
    pub(crate) frontend: Frontend,
    pub(crate) lines: Vec<MachineQueue>,
    inflight: (VhostUserInflight, File),
}

/// Negotiates features like a monitor.
fn negotiate(path: &Path, declined: u64) -> Frontend {
    let mut frontend = Frontend::connect(path, 256).unwrap();
    frontend.set_owner().unwrap();
    let features = frontend.get_features().unwrap();
    frontend.set_features(features & !declined).unwrap();
    let protocol = frontend.get_protocol_features().unwrap();
    frontend.set_protocol_features(protocol).unwrap();
    frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    frontend
}

impl VirtualMachine {
    /// Starts a machine with `queues` queues.
    pub(crate) fn start(path: &Path, queues: usize) -> Self {
        Self::declining(path, queues, 0)
    }

    /// Starts a machine whose guest declines the features `declined`.
    pub(crate) fn declining(path: &Path, queues: usize, declined: u64) -> Self {
        let mut frontend = negotiate(path, declined);
        let wanted = VhostUserInflight::new(0, 0, queues as u16, QUEUE_SIZE);
        let inflight = frontend.get_inflight_fd(&wanted).unwrap();
        let first = Guest::new(QUEUE_SIZE);
        let guests: Vec<Guest> = (1..queues as u64).map(|index| first.queue(index)).collect();
        let line = |guest| MachineQueue {
            guest,
            kick: EventFd::new(EFD_NONBLOCK).unwrap(),
            call: EventFd::new(EFD_NONBLOCK).unwrap(),
            error: EventFd::new(EFD_NONBLOCK).unwrap(),
            base: 0,
        };
        let lines = std::iter::once(first).chain(guests).map(line).collect();
        let mut machine = VirtualMachine { frontend, lines, inflight };
        machine.set_up();
        machine
    }

    /// Moves the machine to a new connection.
    pub(crate) fn reconnect(self, path: &Path) -> Self {
        let VirtualMachine { frontend, mut lines, inflight } = self;
        drop(frontend);
        // As monitors do that did not receive another base.
        lines.iter_mut().for_each(|line| line.base = line.guest.used_index());
        let mut machine = VirtualMachine { frontend: negotiate(path, 0), lines, inflight };
        machine.set_up();
        machine
    }

    /// Resets the driver of a queue and the record of requests in flight.
    pub(crate) fn reset_queue(&mut self, queue: usize) {
        self.stop_queue(queue);
        let line = &mut self.lines[queue];
        line.guest.reset();
        line.base = 0;
        let wanted = VhostUserInflight::new(0, 0, self.lines.len() as u16, QUEUE_SIZE);
        self.inflight = self.frontend.get_inflight_fd(&wanted).unwrap();
        self.start_queue(queue);
    }

    fn set_up(&mut self) {
        let (kept, file) = &self.inflight;
        self.frontend.set_inflight_fd(kept, file.as_raw_fd()).unwrap();
        self.share_memory();
        (0..self.lines.len()).for_each(|queue| self.start_queue(queue));
    }

    /// Shares the guest's memory.
    pub(crate) fn share_memory(&self) {
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: MEMORY_BYTES,
            userspace_addr: USER_BASE,
            mmap_offset: 0,
            mmap_handle: self.lines[0].guest.file.as_raw_fd(),
        };
        self.frontend.set_mem_table(&[region]).unwrap();
    }

    pub(crate) fn start_queue(&mut self, queue: usize) {
        let (line, frontend) = (&self.lines[queue], &mut self.frontend);
        let guest = &line.guest;
        let addresses = VringConfigData {
            queue_max_size: guest.size(),
            queue_size: guest.size(),
            flags: 0,
            desc_table_addr: USER_BASE + guest.table().0,
            used_ring_addr: USER_BASE + guest.used_ring().0,
            avail_ring_addr: USER_BASE + guest.avail_ring().0,
            log_addr: None,
        };
        frontend.set_vring_num(queue, guest.size()).unwrap();
        frontend.set_vring_base(queue, line.base).unwrap();
        frontend.set_vring_addr(queue, &addresses).unwrap();
        frontend.set_vring_call(queue, &line.call).unwrap();
        frontend.set_vring_err(queue, &line.error).unwrap();
        frontend.set_vring_kick(queue, &line.kick).unwrap();
        frontend.set_vring_enable(queue, true).unwrap();
    }

    pub(crate) fn stop_queue(&mut self, queue: usize) -> u16 {
        self.lines[queue].base = self.frontend.get_vring_base(queue).unwrap() as u16;
        self.lines[queue].base
    }

    /// Reads the configuration space.
    pub(crate) fn config(&mut self) -> Vec<u8> {
        let bytes = [0; 60];
        let flags = VhostUserConfigFlags::WRITABLE;
        self.frontend.get_config(0, 60, flags, &bytes).unwrap().1
    }

    /// Submits a request to the device.
    pub(crate) fn submit(&mut self, queue: usize, parts: &[ChainPart]) -> u16 {
        let line = &mut self.lines[queue];
        let direct = parts.len() < 3;
        let head =
            if direct { line.guest.lay_chain(parts) } else { line.guest.lay_indirect_chain(parts) };
        line.guest.offer(head);
        line.kick.write(1).unwrap();
        head
    }

    /// Waits for the next finished request; returns head, written bytes, and reported length.
    pub(crate) fn wait(&mut self, queue: usize) -> (u16, Vec<u8>, u32) {
        let line = &mut self.lines[queue];
        loop {
            if let Some(used) = line.guest.next_used() {
                return used;
            }
            line.guest.arm();
            if line.guest.has_used() {
                continue;
            }
            assert!(is_signalled(&line.call), "the guest is not signalled");
        }
    }

    /// Waits for the signal that the queue is no longer served.
    pub(crate) fn await_error(&self, queue: usize) {
        assert!(is_signalled(&self.lines[queue].error), "the queue is served");
    }

    /// Carries out one request; returns the written bytes.
    pub(crate) fn call(&mut self, queue: usize, parts: &[ChainPart]) -> Vec<u8> {
        let head = self.submit(queue, parts);
        let (done, bytes, written) = self.wait(queue);
        assert_eq!(done, head);
        assert!(written as usize <= bytes.len());
        bytes
    }

    /// Reads; the last byte is the status.
    pub(crate) fn read(&mut self, queue: usize, sector: u64, bytes: u32) -> Vec<u8> {
        let header = ChainPart::Read(Guest::header(operation::IN, sector));
        self.call(queue, &[header, ChainPart::Write(bytes), ChainPart::Write(1)])
    }

    /// Writes; returns the status.
    pub(crate) fn write(&mut self, queue: usize, sector: u64, bytes: &[u8]) -> u8 {
        self.call(queue, &write_parts(sector, bytes))[0]
    }
}

/// Returns the chain of a Write.
pub(crate) fn write_parts(sector: u64, bytes: &[u8]) -> [ChainPart; 3] {
    let header = ChainPart::Read(Guest::header(operation::OUT, sector));
    [header, ChainPart::Read(bytes.to_vec()), ChainPart::Write(1)]
}

/// Waits for `event`, long enough for any test.
fn is_signalled(event: &EventFd) -> bool {
    (0..200_000).any(|_| {
        let signalled = event.read().is_ok();
        if !signalled {
            std::thread::sleep(Duration::from_micros(100));
        }
        signalled
    })
}

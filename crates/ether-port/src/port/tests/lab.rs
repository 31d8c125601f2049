//! A network namespace with a veth pair, for as long as a test's thread lives.

use crate::port::Port;
use crate::port::sys;
use crate::skipped::{skipped_test, this_test};
use roadtrain_wire::ether::MacAddress;
use rustix::net::AddressFamily;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

pub(super) struct VethLab {
    /// Raw socket that sends any bytes to end B.
    raw_sender: OwnedFd,
}

/// Runs `test` in a new namespace, on a thread of its own; prints SKIPPED if that is not allowed.
pub(super) fn in_lab(mtu: usize, test: impl FnOnce(&VethLab) + Send) {
    let name = this_test();
    let in_namespace = || {
        // SAFETY: takes a number; moves this thread alone.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            let error = std::io::Error::last_os_error();
            skipped_test(&name, format!("no network namespace of our own: {error}"));
            return;
        }
        if !ip(&["link", "add", VethLab::A, "type", "veth", "peer", "name", VethLab::B]) {
            skipped_test(&name, "no veth pairs here");
            return;
        }
        let mut lab = VethLab { raw_sender: sys::socket(AddressFamily::PACKET).expect("root") };
        lab.set_mtu(mtu);
        lab.set_up(true);
        lab.raw_sender = raw_sender();
        test(&lab);
    };
    thread::scope(|scope| {
        if let Err(panic) = scope.spawn(in_namespace).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn ip(words: &[&str]) -> bool {
    Command::new("ip").args(words).status().is_ok_and(|status| status.success())
}

/// True once frames sent by the interface leave it. The kernel gives it a queue some time after both ends are up, and
/// silently drops earlier frames.
fn is_active(interface: &str) -> bool {
    let shown = Command::new("ip").args(["-o", "link", "show", "dev", interface]).output();
    let line = shown.map(|shown| String::from_utf8_lossy(&shown.stdout).into_owned());
    line.is_ok_and(|line| line.contains("state UP") && !line.contains("qdisc noop "))
}

fn raw_sender() -> OwnedFd {
    let socket = sys::socket(AddressFamily::PACKET).expect("root");
    // SAFETY: an all-zero address is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = sys::index(&socket, VethLab::A).expect("made");
    sys::bind(&socket, &address).expect("up");
    socket
}

impl VethLab {
    pub(super) const A: &'static str = "rt-port-a";
    pub(super) const B: &'static str = "rt-port-b";

    pub(super) fn set_mtu(&self, mtu: usize) {
        for end in [Self::A, Self::B] {
            assert!(ip(&["link", "set", end, "mtu", &mtu.to_string()]));
        }
    }

    pub(super) fn remove(&self) {
        assert!(ip(&["link", "del", Self::A]));
    }

    /// Makes the pair again, with other addresses.
    pub(super) fn make(&self, mtu: usize) {
        assert!(ip(&["link", "add", Self::A, "type", "veth", "peer", "name", Self::B]));
        self.set_mtu(mtu);
        self.set_up(true);
    }

    /// Sets the number of queues with which end B receives, and end A sends.
    pub(super) fn set_queues(&self, queues: u32) {
        self.set_up(false);
        assert!(sys::set_queues(&self.raw_sender, Self::A, queues));
        assert!(sys::set_queues(&self.raw_sender, Self::B, queues));
        self.set_up(true);
    }

    pub(super) fn set_up(&self, up: bool) {
        for end in [Self::A, Self::B] {
            assert!(ip(&["link", "set", end, if up { "up" } else { "down" }]));
        }
        self.until(|| !up || [Self::A, Self::B].into_iter().all(is_active));
    }

    /// Sends these bytes from end A to end B.
    pub(super) fn send_raw(&self, bytes: &[u8]) {
        // SAFETY: the pointer and the length describe `bytes`.
        let sent = unsafe {
            libc::send(self.raw_sender.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0)
        };
        assert_eq!(sent, bytes.len() as isize, "{}", std::io::Error::last_os_error());
    }

    /// Waits until a frame has arrived.
    pub(super) fn wait(&self, port: &Port) {
        assert!(poll(port, 60_000), "nothing arrived");
    }

    /// Waits until `so` holds.
    pub(super) fn until(&self, so: impl Fn() -> bool) {
        let begin = Instant::now();
        while !so() {
            assert!(begin.elapsed().as_secs() < 60, "never");
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(super) fn is_ready(&self, port: &Port) -> bool {
        poll(port, 0)
    }
}

fn poll(port: &Port, timeout_ms: i32) -> bool {
    let mut wanted = libc::pollfd { fd: port.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&mut wanted, 1, timeout_ms) == 1 }
}

/// Makes a frame with a header in which only SOCKET is set, and `body` bytes behind it.
pub(super) fn frame_of(
    to: MacAddress,
    vlan: Option<u16>,
    ethertype: u16,
    socket_number: u16,
    body: usize,
) -> Vec<u8> {
    let mut frame = [to.0, [2, 0, 0, 0, 0, 1]].concat();
    if let Some(vlan) = vlan {
        frame.extend(0x8100u16.to_be_bytes());
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend([0x5a; 16]);
    frame.extend(socket_number.to_le_bytes());
    frame.extend(vec![0xa5; 46 + body]);
    frame
}

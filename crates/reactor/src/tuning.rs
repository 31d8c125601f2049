//! Settings that the data path and the benchmark's floor share: sockets, buffer sizes, pinning, and the cost of
//! threads.
//!
//! The floor (`roadtrain-lab floor`) is the physical limit that the product is measured against. So each choice here
//! applies to both, and each constant names the measurement behind it. The figures are 4 KiB random transfers at depth
//! 128 over loopback, one core a side, alternating runs.

pub use roadtrain_system::memory::{CACHE_LINE_BYTES, prefetch as prefetch_read};
use roadtrain_system::platform::{Cpus, mptcp, numa};
use rustix::net::sockopt::{set_tcp_congestion, set_tcp_nodelay};
use rustix::thread::set_current_timer_slack;
use rustix::time::{ClockId, clock_gettime};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::mem;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::time::Duration;

/// Size of a lane's receive buffer, hence the maximum that one receive returns.
///
/// 64 KiB loses 20 to 40 % everywhere, 256 KiB loses 25 % on 128 KiB writes, 2 and 4 MiB gain nothing. Copying out of
/// one large buffer also beats receiving 128 KiB payloads directly into their destination: 8.0 against 7.2 GB/s for
/// writes, equal for reads. That was the floor; the target's 128 KiB writes to memory had 0.85 of the IOPS when all
/// were copied (12 alternating pairs).
pub const RX_BUFFER_BYTES: usize = 1 << 20;

/// Maximum segments of one gather send: Linux refuses more than `IOV_MAX` (1024).
///
/// A read's response has two (header, data), so 1024 lets 512 responses leave in one call. Gathering 128 responses
/// instead of 16 gains 35 to 50 %.
pub const GATHER_IOV_MAX: usize = 1024;

/// Cache lines of a data block to prefetch when its request is parsed, long before it is copied.
///
/// The copy of cold data is more than half of a target's time. Touching the first lines early gains 15 %: the hardware
/// prefetcher follows. 1, 2, 4 and 8 lines are alike, 64 gain nothing.
pub const PREFETCH_LINES: usize = 4;

/// Congestion control of a data connection, set per socket.
///
/// Pacing (bbr, a common system default) splits caravans with timers that a storage network does not need. cubic is up
/// to 8 % faster and steadier.
pub const CONGESTION_CONTROL: &str = "cubic";

/// Nice value of threads that compute for long.
const NICENESS: i32 = 10;

/// Scheduler slice that such a thread requests, in nanoseconds; the maximum of Linux.
///
/// The scheduler lets a thread that wakes go before one with a longer slice (since 6.12). A reactor that wakes on the
/// core of a computing thread waits for up to 3 ms with the usual slice. With this one it waits for 0.1 ms (99.9 %).
const SLICE_NS: u64 = 100_000_000;

/// Sets up an established TCP connection (or a listener whose connections inherit it) for data.
///
/// Switches off Nagle's delay (with it: 34 k IOPS instead of a million), and sets [`CONGESTION_CONTROL`] where the
/// system offers it. The kernel still sizes the socket buffers; setting `SO_RCVBUF` or `SO_SNDBUF` would switch that
/// off. No size from 512 KiB to 4 MiB of either did better.
///
/// # Errors
/// The descriptor is not a TCP socket.
pub fn tune_socket(socket: &impl AsFd) -> io::Result<()> {
    set_tcp_nodelay(socket, true)?;
    // An absent or forbidden algorithm costs speed, not function.
    let _ = set_tcp_congestion(socket, CONGESTION_CONTROL);
    Ok(())
}

/// Silence after which a connection is probed, the interval of probes, and the number of unanswered ones that ends it.
/// It ends two minutes after the last received packet.
const PROBE_AFTER: Duration = Duration::from_secs(60);
const PROBE_INTERVAL: Duration = Duration::from_secs(15);
const PROBES: u32 = 4;

/// Has the kernel probe a silent connection and end it when its peer is gone: a host may have switched off NVMe's own
/// Keep Alive (KATO 0).
///
/// `TCP_USER_TIMEOUT` is left alone: it would also end peers that are alive and answer probes, but do not read. Where
/// responses are unacknowledged, the kernel ends the connection after its usual quarter of an hour.
///
/// # Errors
/// The descriptor is not a TCP socket.
pub fn probe_silent_peer(socket: &impl AsFd) -> io::Result<()> {
    let probes = TcpKeepalive::new()
        .with_time(PROBE_AFTER)
        .with_interval(PROBE_INTERVAL)
        .with_retries(PROBES);
    optional_over_mptcp(socket, SockRef::from(socket).set_tcp_keepalive(&probes))
}

/// Ignores that sockets of MPTCP lack an option of TCP: the user timeout in Linux 6.18, the probes' times before 6.10.
fn optional_over_mptcp(socket: &impl AsFd, set: io::Result<()>) -> io::Result<()> {
    let lacks = |error: &io::Error| {
        matches!(error.raw_os_error(), Some(libc::ENOPROTOOPT | libc::EOPNOTSUPP))
    };
    match set {
        Err(error) if lacks(&error) && mptcp::is_mptcp(socket) => Ok(()),
        done => done,
    }
}

/// Has the kernel end a connection whose peer has not acknowledged anything for `end_after`: data, or probes after half
/// of `timeout` in silence. A live peer that takes no data counts as well.
///
/// # Errors
/// The descriptor is not a TCP socket.
pub fn watch_peer(socket: &impl AsFd, timeout: Duration, end_after: Duration) -> io::Result<()> {
    let seconds =
        |time: Duration| Duration::from_secs(time.as_secs().clamp(1, PROBE_AFTER.as_secs()));
    let probes = TcpKeepalive::new()
        .with_time(seconds(timeout / 2))
        .with_interval(seconds(timeout / 8))
        .with_retries(PROBES);
    let options = SockRef::from(socket);
    optional_over_mptcp(socket, options.set_tcp_keepalive(&probes))?;
    let end_after = end_after.min(Duration::from_millis(i32::MAX as u64));
    optional_over_mptcp(socket, options.set_tcp_user_timeout(Some(end_after)))
}

/// Lowers the priority of the calling thread, which computes for long, below that of reactors. A thread with an even
/// lower priority keeps it.
pub fn lower_priority() {
    let mut attributes = scheduling();
    if attributes.sched_policy == libc::SCHED_IDLE as u32 {
        return;
    }
    attributes.sched_policy = libc::SCHED_BATCH as u32;
    attributes.sched_nice = attributes.sched_nice.max(NICENESS);
    attributes.sched_runtime = SLICE_NS;
    // SAFETY: the call reads `attributes`, whose size they hold; 0 is the calling thread.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if set != 0 {
        let _ = rustix::process::setpriority_process(None, NICENESS);
    }
}

/// Returns the scheduling attributes of the calling thread.
fn scheduling() -> libc::sched_attr {
    // SAFETY: all zeroes are a valid value, and the call writes at most `size` bytes.
    unsafe {
        let mut attributes: libc::sched_attr = mem::zeroed();
        let size = mem::size_of::<libc::sched_attr>();
        attributes.size = size as u32;
        libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0);
        attributes
    }
}

/// Makes the calling thread's timers exact. Otherwise the kernel may fire them 50 us late to save wake-ups (the default
/// of `PR_SET_TIMERSLACK`), as long as i10's whole doorbell delay.
pub fn set_exact_timers() {
    let _ = set_current_timer_slack(Some(NonZeroU64::MIN)); // it cannot fail for the calling thread
}

/// Pins the calling thread to one core.
///
/// # Errors
/// The core does not exist, or this process may not run on it.
pub fn pin_to_core(core: usize) -> io::Result<()> {
    numa::run_on(&Cpus::from_iter([core]))
}

/// Returns the CPU time of the calling thread in nanoseconds.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Cost of a thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadCost {
    /// CPU time in nanoseconds, user and system together.
    pub cpu_ns: u64,
    /// Context switches because the thread waited.
    pub switches_voluntary: u64,
    /// Context switches because another thread wanted the core.
    pub switches_involuntary: u64,
}

impl ThreadCost {
    /// Reads the calling thread's cost.
    #[must_use]
    pub fn read() -> Self {
        // SAFETY: an all-zero rusage is valid, and the call only fills it.
        let usage = unsafe {
            let mut usage: libc::rusage = mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
            usage
        };
        Self {
            cpu_ns: thread_cpu_ns(),
            switches_voluntary: usage.ru_nvcsw as u64,
            switches_involuntary: usage.ru_nivcsw as u64,
        }
    }

    /// Returns the cost since `earlier`, read on the same thread.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            switches_voluntary: self.switches_voluntary.saturating_sub(earlier.switches_voluntary),
            switches_involuntary: self
                .switches_involuntary
                .saturating_sub(earlier.switches_involuntary),
        }
    }

    /// Context switches of both kinds.
    #[must_use]
    pub fn switches(&self) -> u64 {
        self.switches_voluntary + self.switches_involuntary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::Domain;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn a_tcp_connection_is_set_up() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("listening");
        assert!(!stream.nodelay().expect("an option of TCP"));
        tune_socket(&stream).expect("a TCP socket");
        assert!(stream.nodelay().expect("an option of TCP"));
    }

    #[test]
    fn silent_peers_are_probed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        probe_silent_peer(&listener).expect("a TCP socket");
        let socket = SockRef::from(&listener);
        assert!(socket.keepalive().expect("an option of every socket"));
        assert_eq!(socket.tcp_keepalive_time().expect("an option of TCP"), PROBE_AFTER);
        assert_eq!(socket.tcp_keepalive_interval().expect("an option of TCP"), PROBE_INTERVAL);
        assert_eq!(socket.tcp_keepalive_retries().expect("an option of TCP"), PROBES);
    }

    #[test]
    fn a_peer_that_is_gone_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let (timeout, end) = (Duration::from_secs(30), Duration::from_secs(40));
        for (timeout, probed_after) in
            [(timeout, 15), (Duration::from_millis(20), 1), (end * 1000, 60)]
        {
            watch_peer(&listener, timeout, end).expect("a TCP socket");
            let socket = SockRef::from(&listener);
            let silence = socket.tcp_keepalive_time().expect("an option of TCP");
            assert_eq!(silence, Duration::from_secs(probed_after));
            assert_eq!(socket.tcp_user_timeout().expect("an option of TCP"), Some(end));
            assert!(socket.keepalive().expect("an option of sockets"));
        }
        watch_peer(&listener, Duration::MAX / 2, Duration::MAX / 2).expect("as long as can be");
    }

    #[test]
    fn sockets_of_mptcp_are_set_up() {
        let socket = mptcp::stream_socket(Domain::IPV4, true).expect("a socket");
        tune_socket(&socket).expect("options of both protocols");
        probe_silent_peer(&socket).expect("options of both protocols");
        watch_peer(&socket, Duration::from_secs(30), Duration::from_secs(40))
            .expect("one is missing");
        assert!(SockRef::from(&socket).tcp_nodelay().expect("an option of both protocols"));
    }

    #[test]
    fn a_thread_gives_way() {
        std::thread::spawn(|| {
            lower_priority();
            let now = scheduling();
            assert_eq!((now.sched_policy, now.sched_nice), (libc::SCHED_BATCH as u32, NICENESS));
            // SAFETY: all zeroes are a valid value.
            let idle = unsafe { mem::zeroed::<libc::sched_param>() };
            // SAFETY: the call reads `idle`; 0 is the calling thread.
            let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const idle) };
            assert_eq!(set, 0);
            lower_priority();
            assert_eq!(scheduling().sched_policy, libc::SCHED_IDLE as u32);
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn another_kind_of_socket_is_refused() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        assert!(tune_socket(&socket).is_err());
        assert!(probe_silent_peer(&socket).is_err());
    }

    #[test]
    fn a_core_that_does_not_exist_is_refused() {
        assert!(pin_to_core(usize::MAX).is_err());
        assert!(pin_to_core(libc::CPU_SETSIZE as usize - 1).is_err());
    }

    #[test]
    fn a_thread_counts_its_own_waits_and_work() {
        std::thread::spawn(|| {
            let before = ThreadCost::read();
            std::thread::sleep(Duration::from_millis(1));
            let mut x = 1u64;
            while ThreadCost::read().since(before).cpu_ns < 100_000 {
                x = std::hint::black_box(x.wrapping_mul(3));
            }
            assert!(ThreadCost::read().since(before).switches_voluntary >= 1);
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn a_prefetch_of_nowhere_is_harmless() {
        prefetch_read(std::ptr::null(), PREFETCH_LINES);
        prefetch_read(usize::MAX as *const u8, PREFETCH_LINES);
    }
}

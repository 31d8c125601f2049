//! Data in flight of a host that was killed.

use crate::harness::{LONG, NQN, PROGRAM, TargetProcess, eventually};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Receive buffer of the relay's sockets: much less than the host has to send.
const RECEIVE_BYTES: usize = 32 << 10;

/// A relay between host and target, which can stop reading from hosts.
struct HostRelay {
    port: u16,
    has_stopped: Arc<AtomicBool>,
    /// Relay's sockets of the hosts' connections.
    host_sockets: Arc<Mutex<Vec<TcpStream>>>,
    /// Bytes relayed from hosts.
    passed: Arc<AtomicUsize>,
    /// Receives a message from each thread that has stopped reading.
    stopped: Receiver<()>,
}

impl HostRelay {
    fn new(target: u16) -> HostRelay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_receive_buffer(&listener);
        let port = listener.local_addr().unwrap().port();
        let (has_stopped, host_sockets) =
            (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<_>>>::default());
        let (stops, stopped) = channel();
        let passed = Arc::new(AtomicUsize::new(0));
        let (flag, all, count) = (has_stopped.clone(), host_sockets.clone(), passed.clone());
        thread::spawn(move || {
            for host in listener.incoming().flatten() {
                let far = TcpStream::connect(("127.0.0.1", target)).unwrap();
                all.lock().unwrap().push(host.try_clone().unwrap());
                let (from, to) = (host.try_clone().unwrap(), far.try_clone().unwrap());
                let reader = HostReader {
                    has_stopped: flag.clone(),
                    passed: count.clone(),
                    stops: stops.clone(),
                };
                thread::spawn(move || pump(&from, &to, Some(&reader)));
                thread::spawn(move || pump(&far, &host, None));
            }
        });
        HostRelay { port, has_stopped, host_sockets, passed, stopped }
    }

    /// Stops reading from hosts; received data stays in the sockets.
    fn stop_reading(&self) {
        self.has_stopped.store(true, SeqCst);
        for _ in 0..self.host_sockets.lock().unwrap().len() {
            self.stopped.recv_timeout(LONG).expect("a connection stops");
        }
    }
}

fn set_receive_buffer(listener: &TcpListener) {
    use std::os::fd::AsRawFd;
    let bytes = RECEIVE_BYTES as libc::c_int;
    // SAFETY: the pointer and the length describe `bytes`, which the kernel only reads.
    let done = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    assert_eq!(done, 0);
}

/// State of a thread that reads from a host.
struct HostReader {
    has_stopped: Arc<AtomicBool>,
    passed: Arc<AtomicUsize>,
    stops: Sender<()>,
}

fn pump(mut from: &TcpStream, mut to: &TcpStream, reader: Option<&HostReader>) {
    let mut buffer = [0; 4096];
    from.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    loop {
        if let Some(reader) = reader
            && reader.has_stopped.load(SeqCst)
        {
            let _ = reader.stops.send(());
            return;
        }
        match from.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(got) if got > 0 && to.write_all(&buffer[..got]).is_ok() => {
                let _ = reader.map(|reader| reader.passed.fetch_add(got, SeqCst));
            }
            _ => break,
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Returns the unread bytes in a socket.
fn unread(socket: &TcpStream) -> usize {
    use std::os::fd::AsRawFd;
    let mut bytes: libc::c_int = 0;
    // SAFETY: FIONREAD writes an int there.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
    assert_eq!(done, 0);
    bytes as usize
}

/// Returns the bytes that the host's socket of a connection has not sent yet.
fn unsent(socket: &TcpStream) -> usize {
    let port = |address: std::net::SocketAddr| format!(":{:04X}", address.port());
    let (here, there) = (port(socket.local_addr().unwrap()), port(socket.peer_addr().unwrap()));
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ends = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut of_host = ends.filter(|end| end[1].ends_with(&there) && end[2].ends_with(&here));
    let queues = of_host.next().expect("the host is connected")[4];
    usize::from_str_radix(queues.split(':').next().unwrap(), 16).unwrap()
}

/// Waits until no data moves although the host has data to send. The number of unread bytes is no criterion: a window
/// closes by the memory in use, which may be one large segment with few unread bytes.
fn await_standstill(sockets: &[TcpStream]) {
    let count = || -> Vec<_> { sockets.iter().map(|end| (unread(end), unsent(end))).collect() };
    let begin = Instant::now();
    let mut last = count();
    loop {
        thread::sleep(Duration::from_millis(300));
        let now = count();
        if now == last && now.iter().any(|&(_, unsent)| unsent > RECEIVE_BYTES) {
            return;
        }
        assert!(begin.elapsed() < LONG, "(unread, unsent): {now:?}");
        last = now;
    }
}

/// Waits until a connection has ended, without reading. A connection that is closed in order ends only after its data
/// in flight.
fn await_end(socket: &TcpStream) {
    use std::os::fd::AsRawFd;
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: `poll` is an array of one.
    let ended = unsafe { libc::poll(&raw mut poll, 1, LONG.as_millis() as libc::c_int) };
    assert_eq!(
        ended, 1,
        "the connection does not end: what the host had to send is still on its way"
    );
}

fn bench(port: u16) -> Child {
    let line = format!(
        "bench -t tcp -a 127.0.0.1 -s {port} -n {NQN} --rw randwrite --bs 4KiB --depth 255 \
         --seconds 60 --keep-alive-tmo 0"
    );
    let mut command = Command::new(PROGRAM);
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Unsent data of a killed host is dropped: none of its writes arrives after its end, when a successor has repeated
/// them and written newer data.
#[test]
fn a_killed_host_sends_nothing_any_more() {
    let target = TargetProcess::memory();
    let relay = HostRelay::new(target.port);
    let mut host = bench(relay.port);
    eventually("the host writes", || relay.passed.load(SeqCst) >= 4 << 20);
    relay.stop_reading();
    let sockets = std::mem::take(&mut *relay.host_sockets.lock().unwrap());
    await_standstill(&sockets);
    host.kill().unwrap();
    host.wait().unwrap();
    for mut socket in sockets {
        await_end(&socket);
        let had = unread(&socket);
        socket.set_read_timeout(Some(LONG)).unwrap();
        let (mut got, mut buffer) = (0, [0; 4096]);
        let end = loop {
            match socket.read(&mut buffer) {
                Ok(0) => break None,
                Ok(count) => got += count,
                Err(error) => break Some(error.kind()),
            }
        };
        assert_eq!(end, Some(ErrorKind::ConnectionReset), "closed in order, after {got} bytes");
        assert!(got <= had, "{got} bytes have come, of which only {had} were there");
    }
}

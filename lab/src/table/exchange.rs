//! A bare exchange over many connections: requests in one direction, replies in the other, without a protocol. What
//! is in flight on a connection leaves in one send, and the data is never read. It measures the cost of sockets when
//! each of many carries little.

use crate::epoll::{Epoll, Readiness};
use crate::measure::Measure;
use anyhow::Context;
use roadtrain_reactor::tuning;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// A command capsule; and the header of its answer with 4 KiB.
const REQUEST_BYTES: usize = 72;
const ANSWER_BYTES: usize = 24 + 4096;
const WARM_UP: Duration = Duration::from_millis(500);
/// Most sockets that one wait reports.
const EVENTS: usize = 1024;
/// Longest wait, in milliseconds; then the end of the run is noticed.
const WAIT_MS: i32 = 10;

/// One end of a connection.
struct ExchangeSocket {
    stream: TcpStream,
    /// Bytes of a message that has not come as a whole.
    got: usize,
    /// Bytes that are still to be sent.
    owed: usize,
    /// Watched until it is writable.
    waits: bool,
}

/// All connections at one side.
struct ExchangeSide {
    epoll: Epoll,
    sockets: Vec<ExchangeSocket>,
    buffer: Vec<u8>,
    /// Bytes of a message that comes, and of the one that answers it.
    comes: usize,
    goes: usize,
}

impl ExchangeSide {
    fn new(streams: Vec<TcpStream>, comes: usize, goes: usize) -> anyhow::Result<Self> {
        let epoll = Epoll::new().context("epoll")?;
        for (index, stream) in streams.iter().enumerate() {
            epoll.watch(stream, index, false)?;
        }
        let socket = |stream| ExchangeSocket { stream, got: 0, owed: 0, waits: false };
        let sockets = streams.into_iter().map(socket).collect();
        Ok(ExchangeSide { epoll, sockets, buffer: vec![7; tuning::RX_BUFFER_BYTES], comes, goes })
    }

    /// Sends what is owed, as far as the socket takes it.
    fn send(&mut self, index: usize) -> io::Result<()> {
        let socket = &mut self.sockets[index];
        while socket.owed > 0 {
            let most = socket.owed.min(self.buffer.len());
            match socket.stream.write(&self.buffer[..most]) {
                Ok(sent) => socket.owed -= sent,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        let blocked = socket.owed > 0;
        if socket.waits != blocked {
            socket.waits = blocked;
            self.epoll.change(&socket.stream, index, blocked)?;
        }
        Ok(())
    }

    /// Receives once: messages that are whole now.
    fn receive(&mut self, index: usize) -> io::Result<usize> {
        let socket = &mut self.sockets[index];
        match socket.stream.read(&mut self.buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(got) => {
                let bytes = socket.got + got;
                socket.got = bytes % self.comes;
                Ok(bytes / self.comes)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(e) => Err(e),
        }
    }

    /// Answers what comes until it is over; each socket begins with `first` messages.
    fn run(&mut self, first: usize, over: &AtomicBool, done: &AtomicU64) -> io::Result<()> {
        for index in 0..self.sockets.len() {
            self.sockets[index].owed = first * self.goes;
            self.send(index)?;
        }
        let mut ready = Readiness::<EVENTS>::default();
        let mut replies = Vec::with_capacity(EVENTS);
        while !over.load(Relaxed) {
            for (index, _) in self.epoll.ready(&mut ready, WAIT_MS) {
                let came = self.receive(index)?;
                self.sockets[index].owed += came * self.goes;
                done.fetch_add(came as u64, Relaxed);
                replies.push(index);
            }
            for index in replies.drain(..) {
                self.send(index)?;
            }
        }
        Ok(())
    }
}

/// Connects, exchanges for a while, and returns the rate: the host on core 0, the target on core 1.
pub(super) fn run(connections: usize, depth: usize, seconds: f64) -> anyhow::Result<Measure> {
    let listener = TcpListener::bind("127.0.0.1:0").context("listen on loopback")?;
    let (mut hosts, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..connections {
        hosts.push(TcpStream::connect(listener.local_addr()?)?);
        targets.push(listener.accept()?.0);
    }
    for stream in hosts.iter().chain(&targets) {
        tuning::tune_socket(stream)?;
        stream.set_nonblocking(true)?;
    }
    let (over, requests, replies) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let on_core = |core, streams, (comes, goes), first, done| -> anyhow::Result<()> {
        tuning::pin_to_core(core)?;
        let ended = ExchangeSide::new(streams, comes, goes).and_then(|mut side| {
            // The other side may be gone first.
            side.run(first, &over, done)
                .or_else(|e| if over.load(Relaxed) { Ok(()) } else { Err(e.into()) })
        });
        over.store(true, Relaxed);
        ended
    };
    let iops = thread::scope(|scope| {
        let target =
            scope.spawn(|| on_core(1, targets, (REQUEST_BYTES, ANSWER_BYTES), 0, &requests));
        let host =
            scope.spawn(|| on_core(0, hosts, (ANSWER_BYTES, REQUEST_BYTES), depth, &replies));
        thread::sleep(WARM_UP);
        let (before, began) = (replies.load(Relaxed), Instant::now());
        thread::sleep(Duration::from_secs_f64(seconds));
        let iops = (replies.load(Relaxed) - before) as f64 / began.elapsed().as_secs_f64();
        over.store(true, Relaxed);
        target.join().expect("it does not panic")?;
        host.join().expect("it does not panic")?;
        anyhow::Ok(iops)
    })?;
    Ok(Measure { iops, bytes_per_second: iops * 4096.0, ..Measure::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_and_fro_over_all_connections() {
        for (connections, depth) in [(1, 1023), (8, 4)] {
            assert!(run(connections, depth, 0.05).unwrap().iops > 0.0);
        }
    }
}

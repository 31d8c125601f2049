//! Beside a TCP stream on the same link: does each get its share?

use super::{ETHER, TCP, direction};
use crate::checks::CheckBench;
use crate::judge::Judged;
use crate::measure::{fairness, median};
use crate::product::{self, LoadTiming};
use crate::wired::Wired;
use crate::workload::{KIB, LabLoad, LoadLinks, ProductSetup};
use crate::{command, interrupt, links};
use anyhow::Context;
use socket2::SockRef;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Both have found their rate by then: CUBIC's windows grow by time, some frames a second.
const RAMP_SECONDS: f64 = 5.0;
const SECONDS: f64 = 10.0;
/// Time between two samples of the stream, in seconds.
const EVERY_SECONDS: f64 = 0.25;
const LIMIT: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_millis(200);

/// Shares of one link of 1 Gbit/s, against streams of both common congestion controls.
pub(super) fn beside_stream(bench: &CheckBench) -> anyhow::Result<Vec<Judged>> {
    let mut rows = Vec::new();
    let pairs = [(ETHER, "cubic", true), (TCP, "cubic", false), (ETHER, "bbr", false)];
    for (setup, control, is_judged) in pairs {
        for share in [100, 0] {
            let mut pairs = Vec::new();
            // Pairs without a bound are measured once: each takes 15 s.
            for _ in 0..if is_judged { bench.rounds } else { 1 } {
                interrupt::check()?;
                pairs.push(pair(bench, setup, share, control)?);
            }
            let jain = median(pairs.iter().filter_map(|pair| fairness([pair.ours, pair.theirs])));
            let middle = |f: fn(&Shares) -> f64| median(pairs.iter().map(f)).unwrap_or(0.0);
            let rates = [middle(|pair| pair.ours), middle(|pair| pair.theirs)].map(|r| r / 1e6);
            let settled = middle(|pair| pair.settled_seconds);
            let name = setup.over.name();
            let what = format!("{name}: 128 KiB {} beside TCP {control}", direction(share));
            let row = Judged::new("fair", what, "Jain", jain.context("nothing was measured")?)
                .note(format!(
                    "{:.0} and {:.0} MB/s; near that after {settled:.1} s",
                    rates[0], rates[1]
                ));
            rows.push(if is_judged { row.at_least(0.9) } else { row });
        }
    }
    Ok(rows)
}

/// Bytes of the stream that have arrived, by time since the product's start.
#[derive(Clone, Copy)]
struct StreamMark {
    seconds: f64,
    bytes: u64,
}

impl StreamMark {
    /// Bytes a second since another one.
    fn rate_since(self, earlier: StreamMark) -> f64 {
        (self.bytes - earlier.bytes) as f64 / (self.seconds - earlier.seconds)
    }
}

/// Rates of the two, in bytes a second.
struct Shares {
    ours: f64,
    theirs: f64,
    /// When the stream, which was alone at first, had come down to two thirds of both (an index of 0.9).
    settled_seconds: f64,
}

impl Shares {
    /// The product's data while it was measured, and marks over all of its run.
    fn new(ours: f64, marks: &[StreamMark]) -> Option<Shares> {
        let first = marks.iter().find(|mark| mark.seconds >= RAMP_SECONDS + 0.3)?;
        let last = marks.iter().rfind(|mark| mark.seconds <= RAMP_SECONDS + SECONDS)?;
        if last.seconds - first.seconds < SECONDS / 2.0 {
            return None;
        }
        let theirs = last.rate_since(*first);
        let limit = (ours + theirs) * 2.0 / 3.0;
        let settled = marks.windows(2).find(|pair| pair[1].rate_since(pair[0]) <= limit);
        let settled_seconds = settled.map_or(f64::INFINITY, |pair| pair[1].seconds);
        Some(Shares { ours, theirs, settled_seconds })
    }
}

/// The product's data, and a stream in the same direction at the same time.
fn pair(
    bench: &CheckBench,
    setup: ProductSetup,
    share: u8,
    control: &str,
) -> anyhow::Result<Shares> {
    let wire = LoadLinks::gigabit(1);
    let wired = Wired::new(&bench.program, wire)?;
    let load = LabLoad::new(share, 128 * KIB, 32).over(wire);
    let timing = LoadTiming { mib: 64, seconds: SECONDS, ramp_seconds: RAMP_SECONDS, rate: None };
    let target = wired.serve(&load, &setup, &timing)?;
    let (over, received) = (AtomicBool::new(false), AtomicU64::new(0));
    let outcome = thread::scope(|scope| {
        let [host_at, target_at] = links::addresses(0);
        let (from, to, at) = match share {
            100 => (&wired.links.target, &wired.links.host, host_at),
            _ => (&wired.links.host, &wired.links.target, target_at),
        };
        let listener = to.run(|| Ok(TcpListener::bind((at, 0))?))?;
        let address = listener.local_addr()?;
        let stream = from.run(|| Ok(TcpStream::connect(address)?))?;
        SockRef::from(&stream)
            .set_tcp_congestion(control.as_bytes())
            .with_context(|| format!("congestion control {control}"))?;
        let (peer, _) = listener.accept()?;
        let (over, received) = (&over, &received);
        scope.spawn(move || send(stream, over));
        scope.spawn(move || receive(peer, over, received));
        let mut command = wired.loads(&load, &setup, &timing)?.pop().context("a command")?;
        let began = Instant::now();
        let mut marks: Vec<StreamMark> = Vec::new();
        let said = command::watched(&mut command, LIMIT, Duration::from_millis(10), |_| {
            let now = began.elapsed().as_secs_f64();
            if marks.last().is_none_or(|mark| now >= mark.seconds + EVERY_SECONDS) {
                marks.push(StreamMark { seconds: now, bytes: received.load(Ordering::Relaxed) });
            }
            interrupt::check()
        });
        over.store(true, Ordering::Relaxed);
        let ours = product::measure(said?.as_bytes())?.bytes_per_second;
        Shares::new(ours, &marks).context("it was too short")
    });
    over.store(true, Ordering::Relaxed);
    drop(target);
    outcome
}

/// Sends until it is over.
fn send(mut stream: TcpStream, over: &AtomicBool) {
    let bytes = vec![0x5a; 64 * KIB];
    let _ = stream.set_write_timeout(Some(WAIT));
    while !over.load(Ordering::Relaxed) {
        match stream.write(&bytes) {
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// Counts what arrives until it is over.
fn receive(mut stream: TcpStream, over: &AtomicBool, received: &AtomicU64) {
    let mut bytes = vec![0; 256 * KIB];
    let _ = stream.set_read_timeout(Some(WAIT));
    while !over.load(Ordering::Relaxed) {
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(n) => _ = received.fetch_add(n as u64, Ordering::Relaxed),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_after_the_ramp() {
        let bytes = |n: u64| if n < 8 { n * 20 } else { 160 + (n - 8) * 10 };
        let mark = |n: u64| StreamMark { seconds: n as f64 / 4.0, bytes: bytes(n) };
        let marks: Vec<StreamMark> = (0..60).map(mark).collect();
        let shares = Shares::new(40.0, &marks).expect("long enough");
        assert_eq!((shares.theirs, shares.settled_seconds), (40.0, 2.25));
        assert!(Shares::new(40.0, &marks[..30]).is_none());
    }
}

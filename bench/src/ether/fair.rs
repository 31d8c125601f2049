//! Beside a TCP stream on the same link: does each get its share?

use super::report::{Bound, Row};
use super::{Bench, ETHER, TCP, direction};
use crate::measure::median;
use crate::product::{self, Timing};
use crate::wired::Wired;
use crate::workload::{KIB, Load, Setup, Wire};
use crate::{command, interrupt, lab};
use anyhow::{Context, anyhow};
use std::ffi::CStr;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Both have found their rate by then: CUBIC's windows grow by time, some frames a second.
const RAMP_SECONDS: f64 = 5.0;
const SECONDS: f64 = 10.0;
const LIMIT: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_millis(200);

/// Shares of one link of 1 Gbit/s, against streams of both common congestion controls.
pub(super) fn beside_stream(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let pairs = [(ETHER, c"cubic", true), (TCP, c"cubic", false), (ETHER, c"bbr", false)];
    for (setup, control, is_asked) in pairs {
        for share in [100, 0] {
            let mut pairs = Vec::new();
            for _ in 0..bench.rounds {
                interrupt::check()?;
                pairs.push(pair(bench, setup, share, control)?);
            }
            let jain = median(pairs.iter().map(|&(ours, theirs)| jain(ours, theirs)));
            let mean = |f: fn(&(f64, f64)) -> f64| median(pairs.iter().map(f)).unwrap_or(0.0) / 1e6;
            let (name, control) = (setup.over.name(), control.to_string_lossy());
            let what = format!("{name}: 128 KiB {} beside TCP {control}", direction(share));
            let row = Row::new("fair", what, "Jain", jain.context("nothing was measured")?)
                .note(format!("{:.0} and {:.0} MB/s", mean(|p| p.0), mean(|p| p.1)));
            rows.push(if is_asked { row.bound(Bound::AtLeast(0.9)) } else { row });
        }
    }
    Ok(rows)
}

/// Jain's index of two.
fn jain(one: f64, other: f64) -> f64 {
    (one + other).powi(2) / (2.0 * (one * one + other * other)).max(f64::MIN_POSITIVE)
}

/// Octets a second of the product's data, and of a stream in the same direction at the same time.
fn pair(bench: &Bench, setup: Setup, share: u8, control: &CStr) -> anyhow::Result<(f64, f64)> {
    let wire = Wire::gigabit(1);
    let wired = Wired::new(&bench.program, wire)?;
    let load = Load::new(share, 128 * KIB, 32).over(wire);
    let timing = Timing { mib: 64, seconds: SECONDS, ramp_seconds: RAMP_SECONDS, rate: None };
    let target = wired.serve(&load, &setup, &timing)?;
    let (over, received) = (AtomicBool::new(false), AtomicU64::new(0));
    let outcome = thread::scope(|scope| {
        let [host_at, target_at] = lab::addresses(0);
        let (from, to, at) = match share {
            100 => (&wired.lab.target, &wired.lab.host, host_at),
            _ => (&wired.lab.host, &wired.lab.target, target_at),
        };
        let listener = to.run(|| Ok(TcpListener::bind((at, 0))?))?;
        let address = listener.local_addr()?;
        let stream = from.run(|| Ok(TcpStream::connect(address)?))?;
        set_control(&stream, control)?;
        let (peer, _) = listener.accept()?;
        let (over, received) = (&over, &received);
        scope.spawn(move || send(stream, over));
        scope.spawn(move || receive(peer, over, received));
        let mut command = wired.loads(&load, &setup, &timing).pop().context("a command")?;
        let began = Instant::now();
        let mut marks: Vec<(f64, u64)> = Vec::new();
        let said = command::watched(&mut command, LIMIT, Duration::from_millis(10), |_| {
            let moments = [RAMP_SECONDS + 0.3, RAMP_SECONDS + SECONDS - 0.1];
            let now = began.elapsed().as_secs_f64();
            if moments.get(marks.len()).is_some_and(|&moment| now >= moment) {
                marks.push((now, received.load(Ordering::Relaxed)));
            }
            interrupt::check()
        });
        over.store(true, Ordering::Relaxed);
        let ours = product::measure(said?.as_bytes())?.bytes_per_second;
        let [(t0, b0), (t1, b1)] = marks[..] else { return Err(anyhow!("it was too short")) };
        Ok((ours, (b1 - b0) as f64 / (t1 - t0)))
    });
    over.store(true, Ordering::Relaxed);
    drop(target);
    outcome
}

/// Sends until it is over.
fn send(mut stream: TcpStream, over: &AtomicBool) {
    let octets = vec![0x5a; 64 * KIB];
    let _ = stream.set_write_timeout(Some(WAIT));
    while !over.load(Ordering::Relaxed) {
        match stream.write(&octets) {
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// Counts what arrives until it is over.
fn receive(mut stream: TcpStream, over: &AtomicBool, received: &AtomicU64) {
    let mut octets = vec![0; 256 * KIB];
    let _ = stream.set_read_timeout(Some(WAIT));
    while !over.load(Ordering::Relaxed) {
        match stream.read(&mut octets) {
            Ok(0) => return,
            Ok(n) => _ = received.fetch_add(n as u64, Ordering::Relaxed),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

fn set_control(stream: &TcpStream, name: &CStr) -> anyhow::Result<()> {
    let length = name.to_bytes().len() as libc::socklen_t;
    // SAFETY: the name is as long as is said.
    let result = unsafe {
        let (level, option) = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
        libc::setsockopt(stream.as_raw_fd(), level, option, name.as_ptr().cast(), length)
    };
    match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error())
            .with_context(|| format!("congestion control {}", name.to_string_lossy())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equals_and_a_half_for_one_alone() {
        assert_eq!(jain(5.0, 5.0), 1.0);
        assert_eq!(jain(5.0, 0.0), 0.5);
        assert!((jain(2.0, 1.0) - 0.9).abs() < 1e-9);
    }
}

//! Moves frames between two interfaces by this process.

use super::Impairment;
use super::line::{Counts, ImpairedLine};
use crate::packet::{FRAME_BYTES_MAX, InterfaceSocket, NOTES_BYTES, wait};
use std::time::{Duration, Instant};

/// With the notes: addresses and type are never damaged.
const KEPT_BYTES: usize = NOTES_BYTES + 14;
/// Frames taken from one side at a time.
const BATCH: usize = 64;
/// Interval of checks for the end.
const POLL: Duration = Duration::from_millis(20);

/// Both ways between two interfaces.
#[derive(Debug)]
pub(super) struct Bridge {
    sockets: [InterfaceSocket; 2],
    impairment: Impairment,
}

impl Bridge {
    /// Opens it, in the calling thread's network namespace.
    pub(super) fn new(one: &str, other: &str, impairment: Impairment) -> anyhow::Result<Self> {
        Ok(Self {
            sockets: [InterfaceSocket::open(one)?, InterfaceSocket::open(other)?],
            impairment,
        })
    }

    /// Passes frames until `ended`; gives what has become of them, by the side they came from.
    pub(super) fn run(&self, ended: impl Fn() -> bool) -> anyhow::Result<[Counts; 2]> {
        let mut lines =
            [ImpairedLine::new(self.impairment, 1), ImpairedLine::new(self.impairment.back(), 2)];
        while !ended() {
            self.turn(&mut lines)?;
        }
        Ok(lines.map(|line| line.counts))
    }

    fn turn(&self, lines: &mut [ImpairedLine; 2]) -> anyhow::Result<()> {
        let sockets = &self.sockets;
        let due = lines.iter().filter_map(ImpairedLine::due).min();
        let now = Instant::now();
        wait(sockets, due.map_or(POLL, |due| due.saturating_duration_since(now).min(POLL)))?;
        let mut frame = [0; FRAME_BYTES_MAX];
        for side in 0..2 {
            for _ in 0..BATCH {
                let Some(length) = sockets[side].receive(&mut frame)? else { break };
                lines[side].put(Instant::now(), &frame[..length], KEPT_BYTES);
            }
            let now = Instant::now();
            while let Some(frame) = lines[side].take(now) {
                sockets[1 - side].send(&frame);
            }
        }
        Ok(())
    }
}

//! A question, repeated until it is answered: frames get lost.

use super::ports::{Heard, Ports};
use std::io;
use std::time::{Duration, Instant};

/// Most frames looked at before it is looked at the time.
const FRAMES: usize = 64;

/// How often a question is put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// First wait for an answer; it doubles.
    pub(super) first: Duration,
    /// Longest such wait.
    pub(super) longest: Duration,
    /// All of them.
    pub(super) total: Duration,
}

/// What is asked, and what was heard.
pub(super) trait Question {
    /// Puts it: builds frames.
    fn put(&mut self, ports: &mut Ports);
    /// A frame has come.
    fn hear(&mut self, heard: &Heard<'_>);
    /// Whether no more is to be heard; asked after frames have come, and when a wait is over.
    fn is_answered(&self) -> bool;
}

/// Asks; `false` when there was no answer in time.
pub(super) fn ask(ports: &mut Ports, pace: Pace, question: &mut impl Question) -> io::Result<bool> {
    let end = Instant::now() + pace.total;
    let mut pause = pace.first;
    loop {
        question.put(ports);
        ports.flush();
        let again = (Instant::now() + pause).min(end);
        while let Some(left) = left(again) {
            if question.is_answered() {
                return Ok(true);
            }
            ports.wait(None, left)?;
            for port in 0..ports.len() {
                ports.receive(port, FRAMES, |heard| question.hear(heard));
            }
        }
        if question.is_answered() || Instant::now() >= end {
            return Ok(question.is_answered());
        }
        pause = (pause * 2).min(pace.longest);
    }
}

/// Time until `until`, if there is any.
fn left(until: Instant) -> Option<Duration> {
    Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}

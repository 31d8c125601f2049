//! Query that is repeated until it is answered.

use super::ports::{Heard, Ports};
use roadtrain_ether_proto::asking::{Asking, Pace};
use roadtrain_system::clock;
use std::io;

/// Maximum frames handled between two reads of the clock.
const FRAMES: usize = 64;

/// Query with its replies.
pub(super) trait Question {
    /// Builds the frames of the query.
    fn put(&mut self, ports: &mut Ports);
    /// Handles a received frame.
    fn hear(&mut self, heard: &Heard<'_>);
    /// True if no more replies are awaited; called after frames were received, and at the end of a wait.
    fn is_answered(&self) -> bool;
}

/// Runs a query. False if there was no reply in time.
pub(super) fn ask(ports: &mut Ports, pace: Pace, question: &mut impl Question) -> io::Result<bool> {
    let mut asking = Asking::new(clock::now(), pace);
    loop {
        if asking.is_due(clock::now()) {
            question.put(ports);
            ports.flush();
        }
        ports.wait(None, asking.deadline().since(clock::now()))?;
        for port in 0..ports.len() {
            ports.receive(port, FRAMES, |heard| question.hear(heard));
        }
        if question.is_answered() || asking.is_over(clock::now()) {
            return Ok(question.is_answered());
        }
    }
}

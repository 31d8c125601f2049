//! A question, repeated until it is answered.

use super::ports::{Heard, Ports};
use roadtrain_ether_proto::asking::{Asking, Pace};
use roadtrain_system::clock;
use std::io;

/// Most frames looked at before it is looked at the time.
const FRAMES: usize = 64;

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

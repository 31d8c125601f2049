//! Health check of reactors: each receives a probe in its mailbox, and replies from its own loop.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Sends a probe to one reactor; `false` when it has ended.
type ProbeFn = Box<dyn Fn(SyncSender<()>) -> bool + Send>;

/// Reactors of a target or an attachment, for health checks from any other thread; none by default.
#[derive(Default)]
pub struct ReactorProbes {
    reactors: Vec<ProbeFn>,
}

/// A reactor that does not make turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReactorUnresponsive {
    /// The reactor has not replied within the limit.
    #[error("reactor {0} has not answered for {1:?}")]
    Hangs(usize, Duration),
    /// Its thread has ended.
    #[error("reactor {0} has ended")]
    Ended(usize),
}

impl ReactorProbes {
    /// A check of one reactor for each function.
    pub fn new(reactors: impl Iterator<Item = ProbeFn>) -> Self {
        ReactorProbes { reactors: reactors.collect() }
    }

    /// Sends a probe to all reactors, and waits for the replies.
    ///
    /// # Errors
    /// The first reactor that does not reply within `limit`.
    pub fn check(&self, limit: Duration) -> Result<(), ReactorUnresponsive> {
        let send = |probe: &ProbeFn| {
            let (reply, answer) = sync_channel(1);
            probe(reply).then_some(answer)
        };
        let answers: Vec<_> = self.reactors.iter().map(send).collect();
        let last = Instant::now() + limit;
        for (number, answer) in answers.into_iter().enumerate() {
            let answer = answer.ok_or(ReactorUnresponsive::Ended(number))?;
            let left = last.saturating_duration_since(Instant::now());
            answer.recv_timeout(left).map_err(|error| match error {
                RecvTimeoutError::Timeout => ReactorUnresponsive::Hangs(number, limit),
                RecvTimeoutError::Disconnected => ReactorUnresponsive::Ended(number),
            })?;
        }
        Ok(())
    }
}

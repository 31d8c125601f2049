//! Whether reactors still make turns: each is asked by its mailbox, and answers from its own loop.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Asks one reactor to answer; `false` when it has ended.
type Ask = Box<dyn Fn(SyncSender<()>) -> bool + Send>;

/// The reactors of a server or a controller, to be asked from any other thread; by default none.
#[derive(Default)]
pub struct Pulse {
    reactors: Vec<Ask>,
}

/// A reactor does not make turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Silent {
    /// It has not answered in time.
    #[error("reactor {0} has not answered for {1:?}")]
    Hangs(usize, Duration),
    /// Its thread has ended.
    #[error("reactor {0} has ended")]
    Ended(usize),
}

impl Pulse {
    /// One function for each reactor.
    pub fn new(reactors: impl Iterator<Item = Ask>) -> Self {
        Pulse { reactors: reactors.collect() }
    }

    /// Asks all of them, and waits for the answers.
    ///
    /// # Errors
    /// The first that does not answer within `limit`.
    pub fn check(&self, limit: Duration) -> Result<(), Silent> {
        let ask = |ask: &Ask| {
            let (reply, answer) = sync_channel(1);
            ask(reply).then_some(answer)
        };
        let answers: Vec<_> = self.reactors.iter().map(ask).collect();
        let last = Instant::now() + limit;
        for (number, answer) in answers.into_iter().enumerate() {
            let answer = answer.ok_or(Silent::Ended(number))?;
            let left = last.saturating_duration_since(Instant::now());
            answer.recv_timeout(left).map_err(|error| match error {
                RecvTimeoutError::Timeout => Silent::Hangs(number, limit),
                RecvTimeoutError::Disconnected => Silent::Ended(number),
            })?;
        }
        Ok(())
    }
}

//! A clean departure: hosts are told that the ways here end, what they have asked for is finished, and only then the
//! target ends. Discovery controllers tell that the target's entries are gone.
//!
//! ```text
//! no new connections -> ANA inaccessible, with an event -> hosts read the log   -> nobody asks any more -> end
//!                       I/O that comes now is refused      I/O that was there
//!                                                          is finished
//! ```

use super::control::Control;
use super::order::Order;
use super::server::Server;
use roadtrain_target_proto::{ControllerKind, ControllerView};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How often is looked whether the hosts have gone elsewhere.
const LOOK: Duration = Duration::from_millis(5);
/// Without a new command for so long hosts are taken to have gone elsewhere.
const QUIET: Duration = Duration::from_millis(20);
/// Longest wait for hosts that do not read the log, or go on asking because they have no other way.
const MOMENT: Duration = Duration::from_millis(500);
/// The same when another process goes on.
const HAND_OVER_MOMENT: Duration = Duration::from_millis(100);

/// Who serves afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// Nobody at these addresses.
    ForGood,
    /// Another process, soon. Hosts without another way wait for that, so this target does not wait for them for long.
    ToAnother,
}

impl Leave {
    fn moment(self) -> Duration {
        match self {
            Leave::ForGood => MOMENT,
            Leave::ToAnother => HAND_OVER_MOMENT,
        }
    }
}

/// How it stands at a look.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// Since it began.
    elapsed: Duration,
    /// Every host that wanted to hear of it has read the logs.
    is_known: bool,
    /// I/O commands that hosts wait for.
    outstanding: usize,
    /// Commands answered in all.
    answered: u64,
}

/// Decides when the wait is over.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Longest wait for hosts that do not go elsewhere.
    moment: Duration,
    answered: u64,
    /// When that had changed last.
    since: Duration,
}

impl Patience {
    fn new(moment: Duration) -> Patience {
        Patience { moment, answered: 0, since: Duration::ZERO }
    }

    /// Whether nothing is to be waited for any more.
    fn is_over(&mut self, look: Look) -> bool {
        if look.answered != self.answered {
            (self.answered, self.since) = (look.answered, look.elapsed);
        }
        let is_quiet = look.is_known && look.elapsed >= self.since + QUIET;
        look.outstanding == 0 && (is_quiet || look.elapsed >= self.moment)
    }
}

impl Server {
    /// Tells hosts that no namespace is in reach here any more, and waits until what they have asked for is finished:
    /// no longer than [`ServerConfig::drain_timeout`](super::ServerConfig::drain_timeout), and not for hosts that have
    /// no other way. `pause` waits for the time that it is given; `false` ends the wait. No new connections are taken,
    /// and there is no way back: what is left to do is [`Server::shut_down`].
    pub fn drain(&self, mut pause: impl FnMut(Duration) -> bool) {
        for address in self.addresses() {
            self.control.broadcast(|| Order::Unlisten(address));
        }
        self.take_leave(Leave::ForGood, &mut pause);
    }

    /// Tells hosts to go elsewhere, and waits for those that do so.
    pub(super) fn take_leave(&self, leave: Leave, pause: &mut dyn FnMut(Duration) -> bool) {
        let (begun, limit) = (Instant::now(), self.drain_timeout);
        if limit.is_zero() || !self.control.depart(leave) {
            return;
        }
        self.control.broadcast(|| Order::Depart);
        info!("hosts are told to go elsewhere");
        let mut patience = Patience::new(leave.moment());
        loop {
            let look = self.look(begun);
            if patience.is_over(look) {
                return info!(milliseconds = look.elapsed.as_millis(), "nothing is outstanding");
            }
            if look.elapsed >= limit {
                let commands = look.outstanding;
                return warn!(commands, "--drain-timeout is over: hosts wait for commands");
            }
            if !pause(LOOK.min(limit - look.elapsed)) {
                return info!("not waited for: {} commands", look.outstanding);
            }
        }
    }

    fn look(&self, begun: Instant) -> Look {
        let is_known = self.control.is_departure_known();
        let (outstanding, answered) = (self.usage().io_commands, self.control.meters.requests());
        Look { elapsed: begun.elapsed(), is_known, outstanding, answered }
    }
}

impl Control {
    /// No namespace is in reach here from now on; whether there is a host that this concerns.
    fn depart(&self, leave: Leave) -> bool {
        let mut state = self.lock();
        match leave {
            Leave::ForGood => state.target.depart(),
            Leave::ToAnother => state.target.hand_over(),
        }
        let is_concerned = |controller: ControllerView| {
            controller.io_queues > 0 || controller.kind == ControllerKind::Discovery
        };
        let has_hosts = state.target.controllers().any(is_concerned);
        self.publish(state);
        has_hosts
    }

    fn is_departure_known(&self) -> bool {
        self.lock().target.is_departure_known()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When the wait is over, looking every 5 ms; `None`: within 2 s it is not.
    fn ends(look: impl Fn(u64) -> (bool, usize, u64)) -> Option<u64> {
        let mut patience = Patience::new(MOMENT);
        (0..2000).step_by(5).find(|&ms| {
            let (is_known, outstanding, answered) = look(ms);
            let elapsed = Duration::from_millis(ms);
            patience.is_over(Look { elapsed, is_known, outstanding, answered })
        })
    }

    #[test]
    fn the_end_comes_as_soon_as_nobody_waits() {
        assert_eq!(ends(|_| (true, 0, 0)), Some(20), "a short moment");
        assert_eq!(ends(|ms| (ms >= 100, 0, 0)), Some(100), "the log is read");
        assert_eq!(ends(|ms| (true, 0, ms.min(60))), Some(80), "and commands come no more");
        assert_eq!(ends(|ms| (true, usize::from(ms < 700), 7)), Some(700), "and all is done");
    }

    #[test]
    fn hosts_without_another_way_are_not_waited_for() {
        assert_eq!(ends(|_| (false, 0, 0)), Some(500), "does not read the log");
        assert_eq!(ends(|ms| (true, 0, ms)), Some(500), "asks again and again");
        assert_eq!(ends(|_| (true, 1, 0)), None, "what was begun is finished");
    }
}

//! Clean shutdown: the target reports its paths as inaccessible, completes the commands of hosts, and then ends.
//! Discovery controllers report that the entries of the target are gone.
//!
//! ```text
//! no new connections -> ANA inaccessible, with an event -> hosts read the log -> no more commands -> end
//!                       new I/O is refused               I/O in flight completes
//! ```

use super::control::Control;
use super::order::Order;
use super::server::Server;
use roadtrain_target_proto::{ControllerKind, ControllerView};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Interval of checks whether the hosts have switched to other paths.
const LOOK: Duration = Duration::from_millis(5);
/// Time without a new command after which hosts count as switched.
const QUIET: Duration = Duration::from_millis(20);
/// Longest wait for hosts that do not read the log, or that continue to send commands because they have no other path.
const MOMENT: Duration = Duration::from_millis(500);
/// Longest wait for such hosts when another process takes over.
const HAND_OVER_MOMENT: Duration = Duration::from_millis(100);

/// Service after this target has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// No target at these addresses.
    ForGood,
    /// Another process, soon. Hosts without another path wait for it, so this target waits for them only briefly.
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

/// State at one check.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// Time since the drain began.
    elapsed: Duration,
    /// True if every host that enabled the event has read the logs.
    is_known: bool,
    /// I/O commands in flight.
    outstanding: usize,
    /// Total number of completed commands.
    answered: u64,
}

/// End condition of the drain.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Longest wait for hosts that do not switch to other paths.
    moment: Duration,
    answered: u64,
    /// Time of the last change of `answered`.
    since: Duration,
}

impl Patience {
    fn new(moment: Duration) -> Patience {
        Patience { moment, answered: 0, since: Duration::ZERO }
    }

    /// True if the drain is done.
    fn is_over(&mut self, look: Look) -> bool {
        if look.answered != self.answered {
            (self.answered, self.since) = (look.answered, look.elapsed);
        }
        let is_quiet = look.is_known && look.elapsed >= self.since + QUIET;
        look.outstanding == 0 && (is_quiet || look.elapsed >= self.moment)
    }
}

impl Server {
    /// Reports all namespaces as inaccessible, and waits until the commands of hosts are completed: at most
    /// [`ServerConfig::drain_timeout`](super::ServerConfig::drain_timeout), and not for hosts that have no other path.
    ///
    /// `pause` waits for the duration that it receives; `false` ends the drain. The target accepts no new connections
    /// and cannot resume: the only step left is [`Server::shut_down`].
    pub fn drain(&self, mut pause: impl FnMut(Duration) -> bool) {
        for address in self.addresses() {
            self.control.broadcast(|| Order::Unlisten(address));
        }
        self.take_leave(Leave::ForGood, &mut pause);
    }

    /// Reports all paths as inaccessible, and waits for the hosts that switch to other paths.
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
    /// Makes all namespaces inaccessible. Returns true if a host is connected.
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

    /// Returns the time in ms at which the drain is done, with a check every 5 ms; `None` if it is not done within 2 s.
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

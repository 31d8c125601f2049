//! Clean shutdown: the target reports its paths as inaccessible, completes the commands of hosts, and then ends.
//! Discovery controllers report that the entries of the target are gone.
//!
//! ```text
//! no new connections -> ANA inaccessible, with an event -> hosts read the log -> no more commands -> end
//!                       new I/O is refused               I/O in flight completes
//! ```

use super::control::TargetControlPlane;
use super::order::TargetReactorMessage;
use super::server::Server;
use roadtrain_target_proto::{ControllerKind, ControllerSummary};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Interval of checks whether the hosts have switched to other paths.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
/// Time without a new command after which hosts count as switched.
const QUIET: Duration = Duration::from_millis(20);
/// Longest wait for hosts that do not read the log, or that continue to send commands because they have no other path.
const MOMENT: Duration = Duration::from_millis(500);
/// Longest wait for such hosts when another process takes over.
const HAND_OVER_MOMENT: Duration = Duration::from_millis(100);

/// Service after this target has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DepartureKind {
    /// No target at these addresses.
    ForGood,
    /// Another process, soon. Hosts without another path wait for it, so this target waits for them only briefly.
    ToAnother,
}

impl DepartureKind {
    fn moment(self) -> Duration {
        match self {
            DepartureKind::ForGood => MOMENT,
            DepartureKind::ToAnother => HAND_OVER_MOMENT,
        }
    }
}

/// State at one check.
#[derive(Clone, Copy, Debug)]
struct DrainStatus {
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
struct DrainCondition {
    /// Longest wait for hosts that do not switch to other paths.
    moment: Duration,
    answered: u64,
    /// Time of the last change of `answered`.
    since: Duration,
}

impl DrainCondition {
    fn new(moment: Duration) -> DrainCondition {
        DrainCondition { moment, answered: 0, since: Duration::ZERO }
    }

    /// True if the drain is done.
    fn is_over(&mut self, status: DrainStatus) -> bool {
        if status.answered != self.answered {
            (self.answered, self.since) = (status.answered, status.elapsed);
        }
        let is_quiet = status.is_known && status.elapsed >= self.since + QUIET;
        status.outstanding == 0 && (is_quiet || status.elapsed >= self.moment)
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
            self.control.broadcast(|| TargetReactorMessage::Unlisten(address));
        }
        self.drain_paths(DepartureKind::ForGood, &mut pause);
    }

    /// Reports all paths as inaccessible, and waits for the hosts that switch to other paths.
    pub(super) fn drain_paths(
        &self,
        leave: DepartureKind,
        pause: &mut dyn FnMut(Duration) -> bool,
    ) {
        let (begun, limit) = (Instant::now(), self.drain_timeout);
        if limit.is_zero() || !self.control.depart(leave) {
            return;
        }
        self.control.broadcast(|| TargetReactorMessage::Depart);
        info!("hosts are notified to use other paths");
        let mut condition = DrainCondition::new(leave.moment());
        loop {
            let status = self.drain_status(begun);
            if condition.is_over(status) {
                return info!(milliseconds = status.elapsed.as_millis(), "nothing is outstanding");
            }
            if status.elapsed >= limit {
                let commands = status.outstanding;
                return warn!(commands, "--drain-timeout is over: commands are still in flight");
            }
            if !pause(CHECK_INTERVAL.min(limit - status.elapsed)) {
                return info!("not waited for: {} commands", status.outstanding);
            }
        }
    }

    fn drain_status(&self, begun: Instant) -> DrainStatus {
        let is_known = self.control.is_departure_known();
        let (outstanding, answered) = (self.usage().io_commands, self.control.meters.requests());
        DrainStatus { elapsed: begun.elapsed(), is_known, outstanding, answered }
    }
}

impl TargetControlPlane {
    /// Makes all namespaces inaccessible. Returns true if a host is connected.
    fn depart(&self, leave: DepartureKind) -> bool {
        let mut state = self.lock();
        match leave {
            DepartureKind::ForGood => state.target.depart(),
            DepartureKind::ToAnother => state.target.hand_over(),
        }
        let is_concerned = |controller: ControllerSummary| {
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
    fn ends(status_at: impl Fn(u64) -> (bool, usize, u64)) -> Option<u64> {
        let mut condition = DrainCondition::new(MOMENT);
        (0..2000).step_by(5).find(|&ms| {
            let (is_known, outstanding, answered) = status_at(ms);
            let elapsed = Duration::from_millis(ms);
            condition.is_over(DrainStatus { elapsed, is_known, outstanding, answered })
        })
    }

    #[test]
    fn the_drain_ends_once_no_host_waits() {
        assert_eq!(ends(|_| (true, 0, 0)), Some(20), "a short moment");
        assert_eq!(ends(|ms| (ms >= 100, 0, 0)), Some(100), "the log is read");
        assert_eq!(ends(|ms| (true, 0, ms.min(60))), Some(80), "and commands come no more");
        assert_eq!(ends(|ms| (true, usize::from(ms < 700), 7)), Some(700), "and all is done");
    }

    #[test]
    fn hosts_without_another_path_are_not_waited_for() {
        assert_eq!(ends(|_| (false, 0, 0)), Some(500), "does not read the log");
        assert_eq!(ends(|ms| (true, 0, ms)), Some(500), "sends commands again and again");
        assert_eq!(ends(|_| (true, 1, 0)), None, "what was begun is finished");
    }
}

//! Retry of failed commands.
//!
//! A status without Do Not Retry is no error yet, but an immediate retry would only fail again. Each retry waits for
//! the time that the controller requests (Command Retry Delay, NVMe Base 2.1, section 4.2.3) or for one that doubles.

use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;

/// Maximum number of retries after a transient error.
pub const TRIES_MAX: u8 = 5;
/// First delay if the controller requests none; it doubles.
pub const BACK_OFF: Duration = Duration::from_millis(20);
/// Maximum of such a delay.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(2);
/// Maximum delay that a controller may request.
pub const DELAY_MAX: Duration = Duration::from_secs(60);
/// Unit of CRDT1 to CRDT3.
const DELAY_UNIT: Duration = Duration::from_millis(100);

/// Retry parameters of the controller and of the user.
#[derive(Clone, Copy, Debug, Default)]
pub struct RetryRules {
    /// Command Retry Delay Times 1 to 3; zero: not reported.
    delays: [Duration; 3],
    /// Duration of retries while the namespace is inaccessible; `None`: for ever.
    patience: Option<Duration>,
}

impl RetryRules {
    /// Creates the rules from CRDT1 to CRDT3 of Identify Controller and the controller-loss timeout.
    #[must_use]
    pub fn new(crdt: [u16; 3], patience: Option<Duration>) -> Self {
        let delays = crdt.map(|units| (DELAY_UNIT * u32::from(units)).min(DELAY_MAX));
        RetryRules { delays, patience }
    }

    /// Returns the duration of retries while the namespace is inaccessible; `None`: for ever.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        self.patience
    }
}

/// Advice of a status on retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Advice {
    /// No retry.
    Never,
    /// Transient error: a few retries.
    Passing,
    /// Namespace inaccessible now: retries until the controller-loss timeout.
    Unreachable,
}

fn advice(status: Status) -> Advice {
    let passing = [
        Status::TRANSIENT_TRANSPORT_ERROR,
        Status::COMMAND_INTERRUPTED,
        Status::ABORTED_SQ_DELETION,
        Status::ABORT_REQUESTED,
        Status::HOST_ABORTED,
    ];
    if status.is_success() || status.is_dnr() {
        Advice::Never
    } else if passing.iter().any(|&other| status.is(other)) {
        Advice::Passing
    } else if status.is_path_related() || status.is(Status::NAMESPACE_NOT_READY) {
        Advice::Unreachable
    } else if status.retry_delay() > 0 {
        Advice::Passing // the status has a retry delay
    } else {
        Advice::Never
    }
}

/// True if the status means that another path may carry the request.
#[must_use]
pub fn is_of_path(status: Status) -> bool {
    status.is_path_related() && !status.is_dnr()
}

/// Retry state of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tries {
    passing: u8,
    waits: u8,
    is_unreachable: bool,
    /// Start of the time without an accessible path, if it is unreachable.
    unreachable_since: Instant,
}

impl Tries {
    /// Returns when a request that ended with `status` is retried. `None`: it is not.
    pub fn next(&mut self, now: Instant, status: Status, rules: &RetryRules) -> Option<Instant> {
        let limit = match advice(status) {
            Advice::Never => return None,
            Advice::Passing => {
                self.may_pass().then_some(())?;
                None
            }
            Advice::Unreachable => {
                if !std::mem::replace(&mut self.is_unreachable, true) {
                    self.unreachable_since = now;
                }
                rules.patience.map(|patience| self.unreachable_since + patience)
            }
        };
        if limit.is_some_and(|limit| limit <= now) {
            return None;
        }
        let at = now + self.wait(status, rules);
        Some(limit.map_or(at, |limit| at.min(limit))) // the last retry is at the limit
    }

    /// Counts a retry after a timeout. True if the request may be submitted again, over a new connection.
    pub fn may_pass(&mut self) -> bool {
        let may = self.passing < TRIES_MAX;
        self.passing += u8::from(may);
        may
    }

    fn wait(&mut self, status: Status, rules: &RetryRules) -> Duration {
        let requested = status.retry_delay().checked_sub(1).map(|n| rules.delays[usize::from(n)]);
        if let Some(requested) = requested.filter(|requested| !requested.is_zero()) {
            return requested;
        }
        let wait = BACK_OFF.saturating_mul(1 << self.waits.min(16)).min(BACK_OFF_MAX);
        self.waits = self.waits.saturating_add(1);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const NOW: Instant = Instant(5_000_000_000);

    fn rules(patience: Option<Duration>) -> RetryRules {
        RetryRules::new([1, 50, u16::MAX], patience)
    }

    /// Returns the delays of all retries of a request that always ends with `status`.
    fn waits(status: Status, rules: &RetryRules) -> Vec<Duration> {
        let (mut tries, mut now) = (Tries::default(), NOW);
        let mut waits = Vec::new();
        while let Some(at) = tries.next(now, status, rules) {
            waits.push(at - now);
            now = at;
            assert!(waits.len() < 10_000, "{status}: for ever");
        }
        waits
    }

    #[test]
    fn what_would_fail_again_is_not_tried_again() {
        let never = [
            Status::SUCCESS,
            Status::INTERNAL_ERROR,
            Status::LBA_OUT_OF_RANGE,
            Status::WRITE_FAULT,
            Status::UNRECOVERED_READ_ERROR,
            Status::NAMESPACE_NOT_READY.dnr(),
            Status::ANA_PERSISTENT_LOSS.dnr(),
            Status::COMMAND_INTERRUPTED.retry_after(1).dnr(),
            Status::TRANSIENT_TRANSPORT_ERROR.dnr(),
        ];
        for status in never {
            assert!(waits(status, &rules(Some(SECOND))).is_empty(), "{status}");
        }
    }

    #[test]
    fn what_passes_gets_a_few_tries_never_back_to_back() {
        let passing = [
            Status::TRANSIENT_TRANSPORT_ERROR,
            Status::COMMAND_INTERRUPTED,
            Status::ABORT_REQUESTED,
            Status::ABORTED_SQ_DELETION,
            Status::HOST_ABORTED,
        ];
        for status in passing {
            let waits = waits(status, &rules(None));
            let expected: Vec<_> = (0..5).map(|n| BACK_OFF * (1 << n)).collect();
            assert_eq!(waits, expected, "{status}");
        }
    }

    #[test]
    fn a_controller_says_how_long_to_wait() {
        let requested = |status: Status| waits(status, &rules(Some(SECOND * 3600)));
        for status in [Status::COMMAND_INTERRUPTED, Status::INTERNAL_ERROR, Status::WRITE_FAULT] {
            assert_eq!(requested(status.retry_after(1)), [DELAY_UNIT; 5], "{status}");
            assert_eq!(requested(status.retry_after(2)), [SECOND * 5; 5], "{status}");
            assert_eq!(requested(status.retry_after(3)), [DELAY_MAX; 5], "{status}");
        }
        assert_eq!(requested(Status::NAMESPACE_NOT_READY.retry_after(2)), [SECOND * 5; 720]);
        // CRD of a controller that reports no times.
        let silent = RetryRules::new([0; 3], None);
        assert_eq!(waits(Status::COMMAND_INTERRUPTED.retry_after(2), &silent)[0], BACK_OFF);
    }

    #[test]
    fn what_cannot_be_reached_is_tried_until_the_controller_would_be_lost() {
        let unreachable = [
            Status::NAMESPACE_NOT_READY,
            Status::INTERNAL_PATH_ERROR,
            Status::ANA_PERSISTENT_LOSS,
            Status::ANA_INACCESSIBLE,
            Status::ANA_TRANSITION,
            Status::CONTROLLER_PATH_ERROR,
            Status::HOST_PATH_ERROR,
        ];
        for status in unreachable {
            let patience = SECOND * 20;
            let waits = waits(status, &rules(Some(patience)));
            assert_eq!(waits.iter().sum::<Duration>(), patience, "{status}");
            assert_eq!(waits[0], BACK_OFF);
            assert!(waits.iter().all(|wait| *wait <= BACK_OFF_MAX), "{status}: {waits:?}");
        }
        assert!(waits(Status::ANA_INACCESSIBLE, &rules(Some(Duration::ZERO))).is_empty());
        let (mut tries, mut now) = (Tries::default(), NOW);
        for _ in 0..1000 {
            now = tries.next(now, Status::ANA_TRANSITION, &rules(None)).expect("for ever");
        }
    }

    #[test]
    fn a_timed_out_request_is_not_retried_for_ever() {
        let mut tries = Tries::default();
        assert!((0..TRIES_MAX).all(|_| tries.may_pass()));
        assert!(!tries.may_pass());
        assert_eq!(tries.next(NOW, Status::ABORT_REQUESTED, &rules(None)), None);
    }
}

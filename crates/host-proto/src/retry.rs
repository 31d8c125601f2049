//! Which commands are tried again, and when.
//!
//! A status that says nothing against another try is not an error yet, but another try at once would only be the
//! same again: each waits, for the time that the controller names (Command Retry Delay, NVMe Base 2.1, section
//! 4.2.3) or for one that doubles.

use core::time::Duration;
use roadtrain_proto::time::Instant;
use roadtrain_wire::status::Status;

/// Times a request is tried again after something that passes.
pub const TRIES_MAX: u8 = 5;
/// First wait where the controller names none; it doubles.
pub const BACK_OFF: Duration = Duration::from_millis(20);
/// Longest such wait.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(2);
/// Longest wait that a controller is granted.
pub const DELAY_MAX: Duration = Duration::from_secs(60);
/// Unit of CRDT1 to CRDT3.
const DELAY_UNIT: Duration = Duration::from_millis(100);

/// What the controller and the user have said about trying again.
#[derive(Clone, Copy, Debug, Default)]
pub struct RetryRules {
    /// The controller's Command Retry Delay Times 1 to 3; zero: not told.
    delays: [Duration; 3],
    /// How long a request is tried while its namespace cannot be reached; `None`: for ever.
    patience: Option<Duration>,
}

impl RetryRules {
    /// From CRDT1 to CRDT3 of Identify Controller, and the controller-loss timeout.
    #[must_use]
    pub fn new(crdt: [u16; 3], patience: Option<Duration>) -> Self {
        let delays = crdt.map(|units| (DELAY_UNIT * u32::from(units)).min(DELAY_MAX));
        RetryRules { delays, patience }
    }

    /// How long a request is tried while its namespace cannot be reached; `None`: for ever.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        self.patience
    }
}

/// What a status says about another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Advice {
    /// It would fail again, or nobody knows better.
    Never,
    /// Something that passes: a few tries.
    Passing,
    /// The namespace cannot be reached now: as long as a lost controller is waited for.
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
        Advice::Passing // it says when
    } else {
        Advice::Never
    }
}

/// Whether a status says that another path may carry the request, though this one does not.
#[must_use]
pub fn is_of_path(status: Status) -> bool {
    status.is_path_related() && !status.is_dnr()
}

/// How often a request has been tried, and since when it has not been possible.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tries {
    passing: u8,
    waits: u8,
    is_unreachable: bool,
    /// Beginning of the time in which no path could carry it, if it is unreachable.
    unreachable_since: Instant,
}

impl Tries {
    /// The request has ended with `status`: when it is to be submitted again. `None`: it has ended.
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
        Some(limit.map_or(at, |limit| at.min(limit))) // the last try is at the end of the time
    }

    /// It was given up because nobody answered: whether it may be submitted again, over a new connection.
    pub fn may_pass(&mut self) -> bool {
        let may = self.passing < TRIES_MAX;
        self.passing += u8::from(may);
        may
    }

    fn wait(&mut self, status: Status, rules: &RetryRules) -> Duration {
        let told = status.retry_delay().checked_sub(1).map(|n| rules.delays[usize::from(n)]);
        if let Some(told) = told.filter(|told| !told.is_zero()) {
            return told;
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

    /// The waits before all tries that a request gets when it always ends with `status`.
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
        let told = |status: Status| waits(status, &rules(Some(SECOND * 3600)));
        for status in [Status::COMMAND_INTERRUPTED, Status::INTERNAL_ERROR, Status::WRITE_FAULT] {
            assert_eq!(told(status.retry_after(1)), [DELAY_UNIT; 5], "{status}");
            assert_eq!(told(status.retry_after(2)), [SECOND * 5; 5], "{status}");
            assert_eq!(told(status.retry_after(3)), [DELAY_MAX; 5], "{status}");
        }
        assert_eq!(told(Status::NAMESPACE_NOT_READY.retry_after(2)), [SECOND * 5; 720]);
        // CRD of a controller that has told no times.
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
    fn what_nobody_answers_is_given_up_in_the_end() {
        let mut tries = Tries::default();
        assert!((0..TRIES_MAX).all(|_| tries.may_pass()));
        assert!(!tries.may_pass());
        assert_eq!(tries.next(NOW, Status::ABORT_REQUESTED, &rules(None)), None);
    }
}

//! Parallel attempts: the first success counts, and the others end. A silent one delays none.

use super::stopping::{self, StopSignal};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time after which the next attempt starts while none has an outcome (RFC 8305, section 5).
const NEXT_ATTEMPT_AFTER: Duration = Duration::from_millis(250);
/// Interval of checks for the end of the controller.
const STEP: Duration = Duration::from_millis(50);

/// Returns the number and the value of the first of the `attempts` that succeeds. Each starts when the ones before it
/// have failed, or after [`NEXT_ATTEMPT_AFTER`]. Each runs in a thread of its own, and ends early when another one succeeds.
///
/// # Errors
/// All attempts have failed: returns their errors, in the order of the attempts.
pub(super) fn first_of<I, T, E>(
    attempts: &[I],
    attempt: impl Fn(&I) -> Result<T, E> + Sync,
) -> Result<(usize, T), Vec<E>>
where
    I: Sync,
    T: Send,
    E: Send,
{
    // A controller at the limit of its descriptors tries them one by one.
    let signal = match StopSignal::new() {
        Ok(signal) if attempts.len() > 1 => signal,
        _ => return one_by_one(attempts, attempt),
    };
    thread::scope(|scope| {
        let (results, outcomes) = channel();
        let (mut begun, mut failed, mut next_attempt_at) = (0, Vec::new(), Instant::now());
        loop {
            let now = Instant::now();
            if begun < attempts.len() && (now >= next_attempt_at || failed.len() == begun) {
                let (number, results, signal, attempt) =
                    (begun, results.clone(), signal.clone(), &attempt);
                scope.spawn(move || {
                    stopping::limit_waits_by(&signal);
                    let _ = results.send((number, attempt(&attempts[number])));
                });
                (begun, next_attempt_at) = (begun + 1, now + NEXT_ATTEMPT_AFTER);
                continue;
            }
            let next = if begun < attempts.len() { next_attempt_at - now } else { STEP };
            match outcomes.recv_timeout(next.min(STEP)) {
                Ok((number, Ok(value))) => {
                    signal.raise_for(Duration::ZERO);
                    return Ok((number, value));
                }
                Ok((number, Err(error))) => failed.push((number, error)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    if stopping::limit(STEP).is_zero() {
                        signal.raise_for(Duration::ZERO);
                    }
                }
            }
            if failed.len() == attempts.len() {
                failed.sort_by_key(|(number, _)| *number);
                return Err(failed.into_iter().map(|(_, error)| error).collect());
            }
        }
    })
}

fn one_by_one<I, T, E>(
    attempts: &[I],
    attempt: impl Fn(&I) -> Result<T, E>,
) -> Result<(usize, T), Vec<E>> {
    let mut errors = Vec::new();
    for (number, item) in attempts.iter().enumerate() {
        match attempt(item) {
            Ok(value) => return Ok((number, value)),
            Err(error) => errors.push(error),
        }
    }
    Err(errors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stopping::wait_readable;
    use roadtrain_system::mailbox::WakeEvent;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const LONG: Duration = Duration::from_secs(600);

    /// Waits like an attempt to connect to a silent address.
    fn silent() -> Result<u8, String> {
        let never = WakeEvent::new().unwrap();
        let is_readable = wait_readable(&[never.fd()], LONG).unwrap();
        assert!(!is_readable);
        Err("silent".into())
    }

    #[test]
    fn one_that_answers_does_not_wait_for_those_that_are_silent() {
        let attempt = |number: &u8| if *number < 3 { silent() } else { Ok(*number) };
        assert_eq!(first_of(&[0, 1, 2, 3, 4], attempt), Ok((3, 3)));
    }

    #[test]
    fn what_fails_is_followed_at_once_and_one_that_answers_has_no_company() {
        let begun = AtomicUsize::new(0);
        let attempt = |number: &u8| {
            begun.fetch_add(1, Ordering::Relaxed);
            if *number < 2 { Err(number.to_string()) } else { Ok(*number) }
        };
        assert_eq!(first_of(&[0, 1, 2, 3], attempt), Ok((2, 2)));
        assert_eq!(begun.load(Ordering::Relaxed), 3);
        let all_fail = |number: &u8| Err::<u8, _>(number.to_string());
        assert_eq!(first_of(&[7, 8], all_fail), Err(vec!["7".to_owned(), "8".to_owned()]));
        assert_eq!(first_of(&[7], all_fail), Err(vec!["7".to_owned()]));
    }

    #[test]
    fn attempts_end_with_the_controller() {
        let signal = StopSignal::new().unwrap();
        stopping::limit_waits_by(&signal);
        signal.raise_for(Duration::ZERO);
        let errors = first_of(&[0, 1], |_: &u8| silent()).unwrap_err();
        assert_eq!(errors.len(), 2);
    }
}

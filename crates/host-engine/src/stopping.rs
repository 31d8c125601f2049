//! Limits the waits of control threads once their controller is to end, so that a silent target does not delay the end.

use roadtrain_system::mailbox::WakeEvent;
use std::cell::RefCell;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait at the end for a silent target.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest wait at the end for a target that has replied since: its last flush may take that long.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Signal that a controller is to end.
pub(super) struct StopSignal {
    /// End of all waits, once it is raised.
    until: Mutex<Option<Instant>>,
    /// Event that wakes waiting threads.
    wake_event: WakeEvent,
}

thread_local! {
    /// Signal that limits the waits of this thread.
    static STOP_SIGNAL: RefCell<Option<Arc<StopSignal>>> = const { RefCell::new(None) };
}

impl StopSignal {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(StopSignal { until: Mutex::default(), wake_event: WakeEvent::new()? }))
    }

    /// Raises the signal: threads that heed it wait for [`STOP_TIMEOUT`] at most, in total.
    pub(super) fn raise(&self) {
        self.raise_for(STOP_TIMEOUT);
    }

    /// Raises the signal with another limit.
    pub(super) fn raise_for(&self, within: Duration) {
        self.until().get_or_insert_with(|| Instant::now() + within);
        self.wake_event.wake();
    }

    fn until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Limits the waits of this thread by `signal`.
pub(super) fn limit_waits_by(signal: &Arc<StopSignal>) {
    STOP_SIGNAL.set(Some(signal.clone()));
}

/// Restarts the limit, as the target replies: it has time for the last commands.
pub(super) fn restart_limit() {
    STOP_SIGNAL.with_borrow(|signal| {
        if let Some(signal) = signal
            && let Some(until) = &mut *signal.until()
        {
            *until = Instant::now() + SHUTDOWN_TIMEOUT;
        }
    });
}

/// Returns how much of `timeout` this thread may wait.
pub(super) fn limit(timeout: Duration) -> Duration {
    STOP_SIGNAL.with_borrow(|signal| {
        let until = signal.as_ref().and_then(|signal| *signal.until());
        until.map_or(timeout, |until| timeout.min(until.saturating_duration_since(Instant::now())))
    })
}

/// Returns a descriptor that becomes readable when this thread is to stop; `None` if it is stopping already, or never
/// has to.
pub(super) fn descriptor() -> Option<RawFd> {
    STOP_SIGNAL.with_borrow(|signal| {
        signal
            .as_ref()
            .filter(|signal| signal.until().is_none())
            .map(|signal| signal.wake_event.fd())
    })
}

/// Waits until one of `fds` is readable. False if the timeout passes or the controller is to end (`stopping`).
///
/// # Errors
/// The system call fails, except for interruption, which counts as a timeout.
pub(super) fn wait_readable(fds: &[RawFd], timeout: Duration) -> io::Result<bool> {
    let mut polls: Vec<libc::pollfd> =
        fds.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    poll(&mut polls, timeout)
}

/// Waits until `fd` is readable; the signal does not limit the wait.
///
/// # Errors
/// As [`wait_readable`].
pub(super) fn wait_unlimited(fd: RawFd, timeout: Duration) -> io::Result<bool> {
    poll_unlimited(&mut [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }], timeout)
}

/// Waits until one of `polls` is ready. False if the timeout passes or the controller is to end (`stopping`).
pub(super) fn poll(polls: &mut [libc::pollfd], timeout: Duration) -> io::Result<bool> {
    let end = Instant::now() + timeout;
    if let Some(fd) = descriptor() {
        let mut all = polls.to_vec();
        all.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        let ready = poll_unlimited(&mut all, timeout)?;
        let (mine, signal) = all.split_at(polls.len());
        polls.copy_from_slice(mine);
        if !ready || signal[0].revents == 0 || mine.iter().any(|poll| poll.revents != 0) {
            return Ok(ready);
        }
    }
    poll_unlimited(polls, limit(end.saturating_duration_since(Instant::now())))
}

/// Waits as [`poll`] does; the signal does not limit the wait.
pub(super) fn poll_unlimited(polls: &mut [libc::pollfd], timeout: Duration) -> io::Result<bool> {
    let ms = i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    // SAFETY: `polls` is a valid array of that length.
    let ready = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, ms) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::Interrupted => Ok(false),
            _ => Err(error),
        };
    }
    Ok(ready > 0)
}

//! Signals as events: blocked everywhere, taken one at a time by the main thread.

use crate::terminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, process, thread};

/// Meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM or SIGINT; SIGHUP after the terminal has hung up, or for a command that ends with its terminal.
    Stop,
    /// SIGHUP in other cases.
    Reload,
    /// SIGUSR1, which a thread of `serve` sends when another process wants to take over.
    TakeOver,
}

/// The right to wait for signals. Threads started after it exists inherit the blocked signals.
pub(crate) struct BlockedSignals {
    set: libc::sigset_t,
    /// Meaning of SIGHUP.
    hangup: Signal,
    /// SIGTERM or SIGINT arrived when no thread could handle it any more.
    missed: AtomicBool,
}

/// Sets the flag on drop, also after a panic.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Interval at which [`BlockedSignals::guard`] checks whether the work has ended.
const GUARD_POLL: Duration = Duration::from_millis(10);

impl BlockedSignals {
    /// Blocks SIGTERM, SIGINT and SIGHUP. Call before starting threads.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn block() -> io::Result<BlockedSignals> {
        BlockedSignals::block_all(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP])
    }

    /// Blocks the same signals, and SIGUSR1.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn block_of_target() -> io::Result<BlockedSignals> {
        BlockedSignals::block_all(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1])
    }

    fn block_all(signals: &[libc::c_int]) -> io::Result<BlockedSignals> {
        // SAFETY: `set` is a plain C struct that `sigemptyset` initialises before use.
        let set = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            set
        };
        // SAFETY: `set` is initialised; the old mask is not requested.
        match unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
        } {
            0 => Ok(BlockedSignals { set, hangup: Signal::Reload, missed: AtomicBool::new(false) }),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Makes SIGHUP stop the command, unless `nohup` has made it ignored.
    #[must_use]
    pub(crate) fn of_terminal(self) -> BlockedSignals {
        if is_ignored(libc::SIGHUP) {
            self
        } else {
            BlockedSignals { hangup: Signal::Stop, ..self }
        }
    }

    /// Runs `begin`, which may block; meanwhile SIGTERM or SIGINT end the program without a cleanup.
    pub(crate) fn guard<T>(&self, begin: impl FnOnce() -> T) -> T {
        self.guard_with(Duration::ZERO, || terminal::say("roadtrain: interrupted"), begin)
    }

    /// Runs `work`, which may block. If it does not end within `grace` after SIGTERM or SIGINT, `abandon` runs and the
    /// program ends.
    pub(crate) fn guard_with<T>(
        &self,
        grace: Duration,
        abandon: impl FnOnce() + Send,
        work: impl FnOnce() -> T,
    ) -> T {
        let over = AtomicBool::new(false);
        let is_over = || over.load(Ordering::Acquire);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over() {
                    if self.wait_for(GUARD_POLL) != Some(Signal::Stop) {
                        continue;
                    }
                    let last = Instant::now() + grace;
                    while !is_over() && Instant::now() < last {
                        thread::sleep(GUARD_POLL);
                    }
                    if !is_over() {
                        abandon();
                        process::exit(1);
                    }
                    return self.missed.store(true, Ordering::Release);
                }
            });
            let _over = SetOnDrop(&over);
            work()
        })
    }

    /// Waits for a signal.
    #[must_use]
    pub(crate) fn wait(&self) -> Signal {
        loop {
            if let Some(signal) = self.wait_for(Duration::from_secs(3600)) {
                return signal;
            }
        }
    }

    /// Waits for a signal, but not longer than `limit`.
    #[must_use]
    pub(crate) fn wait_for(&self, limit: Duration) -> Option<Signal> {
        if self.missed.swap(false, Ordering::AcqRel) {
            return Some(Signal::Stop);
        }
        let timeout = libc::timespec {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_nsec: limit.subsec_nanos().into(),
        };
        // SAFETY: `set` and `timeout` are initialised; no information on the signal is requested.
        let number = unsafe {
            libc::sigtimedwait(&raw const self.set, std::ptr::null_mut(), &raw const timeout)
        };
        match number {
            libc::SIGHUP if terminal::is_gone() => Some(Signal::Stop),
            libc::SIGHUP => Some(self.hangup),
            libc::SIGUSR1 => Some(Signal::TakeOver),
            number if number > 0 => Some(Signal::Stop),
            _ => None,
        }
    }
}

/// True if the parent process has set `signal` to be ignored.
fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: `action` is a plain C struct that is only written to; no new action is given.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Sends this process SIGTERM, from any of its threads.
pub(crate) fn stop_self() {
    // SAFETY: a plain system call on this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
}

/// Sends this process SIGUSR1, from any of its threads.
pub(crate) fn take_over_self() {
    // SAFETY: a plain system call on this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
}

/// Requests a child process to stop.
pub(crate) fn stop_child(child: &std::process::Child) {
    // SAFETY: a child that was not waited for keeps its process ID.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
}

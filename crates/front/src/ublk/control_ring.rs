//! A ring for commands to the control device, which accepts them only over io_uring.

#![allow(unsafe_code, reason = "the driver reads and writes memory of commands")]

use super::abi::ControlCommand;
use roadtrain_system::ring::{ReactorRing, UringCommand};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Entries of the ring; one command at a time is usual.
const ENTRIES: u32 = 4;

/// The control device and its ring; for one thread.
pub(crate) struct ControlRing {
    ring: ReactorRing,
    device: File,
    begun: u64,
    /// Results of commands that have ended, until [`ControlRing::wait`] takes them.
    results: HashMap<u64, i32>,
}

/// A command in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingControl(u64);

impl ControlRing {
    /// Opens the control device at `path`.
    ///
    /// # Errors
    /// Returns the system's error: no such device, no permission, no io_uring.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let device = File::options().read(true).write(true).open(path)?;
        let ring = ReactorRing::wide(ENTRIES)?;
        Ok(ControlRing { ring, device, begun: 0, results: HashMap::new() })
    }

    /// Begins a command that uses no memory of ours; [`ControlRing::wait`] returns its result.
    pub(crate) fn begin(&mut self, code: u32, command: ControlCommand) -> PendingControl {
        // SAFETY: the command points to no memory.
        unsafe { self.push(code, ControlCommand { len: 0, addr: 0, ..command }) }
    }

    /// # Safety
    /// The memory that `command` points to stays valid until the command has ended.
    unsafe fn push(&mut self, code: u32, command: ControlCommand) -> PendingControl {
        self.begun += 1;
        let mut payload = [0; 80];
        payload[..size_of::<ControlCommand>()].copy_from_slice(command.as_bytes());
        let fd = self.device.as_raw_fd();
        let command = UringCommand { fd, op: code, address: 0, length: 0, payload };
        // SAFETY: the caller keeps the memory valid.
        if !unsafe { self.ring.command(&command, self.begun) } {
            self.results.insert(self.begun, -libc::EOPNOTSUPP);
        }
        PendingControl(self.begun)
    }

    /// Waits for a command's end, at most `limit`. Returns `None` if it is still in flight.
    ///
    /// # Errors
    /// Returns the ring's error; the command's own error is in the result.
    pub(crate) fn wait(
        &mut self,
        pending: PendingControl,
        limit: Option<Duration>,
    ) -> io::Result<Option<i32>> {
        let end = limit.map(|limit| Instant::now() + limit);
        let mut is_last_check = false;
        loop {
            while let Some(cqe) = self.ring.next_completion() {
                self.results.insert(cqe.user_data, cqe.result);
            }
            if let Some(result) = self.results.remove(&pending.0) {
                return Ok(Some(result));
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if is_last_check {
                return Ok(None);
            }
            is_last_check = left == Some(Duration::ZERO);
            self.ring.submit_and_wait(usize::from(!is_last_check), left)?;
        }
    }

    /// Carries out a command on `bytes`, which the driver reads or writes, and waits for its end.
    ///
    /// # Errors
    /// Returns the ring's or the driver's error.
    pub(crate) fn call(
        &mut self,
        code: u32,
        command: ControlCommand,
        bytes: &mut [u8],
    ) -> io::Result<()> {
        let mut shared = bytes.to_vec();
        let (len, addr) = (bytes.len() as u16, shared.as_mut_ptr() as u64);
        // SAFETY: `shared` keeps its address until the command has ended, or for ever.
        let pending = unsafe { self.push(code, ControlCommand { len, addr, ..command }) };
        match self.wait(pending, None) {
            Ok(result) => {
                bytes.copy_from_slice(&shared);
                done(result.unwrap_or(0))
            }
            Err(error) => {
                #[expect(clippy::mem_forget, reason = "the driver may still write there")]
                mem::forget(shared);
                Err(error)
            }
        }
    }
}

/// Converts a command's result into an `io::Result`.
pub(crate) fn done(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NULL: &str = "/dev/null"; // takes every command

    fn ring() -> Option<ControlRing> {
        let mut ring = ControlRing::open(Path::new(NULL)).unwrap();
        let pending = ring.begin(1, ControlCommand::default());
        if ring.wait(pending, None).unwrap() == Some(-libc::EOPNOTSUPP) {
            crate::skipped::skipped("no ring commands before Linux 5.19");
            return None;
        }
        Some(ring)
    }

    #[test]
    fn commands_end_each_with_its_own_result() {
        let Some(mut ring) = ring() else { return };
        let first = ring.begin(1, ControlCommand::default());
        let second = ring.begin(2, ControlCommand::default());
        assert_eq!(ring.wait(second, None).unwrap(), Some(0));
        assert_eq!(ring.wait(first, Some(Duration::ZERO)).unwrap(), Some(0));
        let mut bytes = [1, 2, 3];
        ring.call(1, ControlCommand::default(), &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3]);
    }

    #[test]
    fn a_command_that_was_never_begun_does_not_end() {
        let Some(mut ring) = ring() else { return };
        let never = PendingControl(99);
        assert_eq!(ring.wait(never, Some(Duration::from_millis(1))).unwrap(), None);
    }
}

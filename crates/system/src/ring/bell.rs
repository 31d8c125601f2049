//! Signals a shared eventfd without ever blocking.
//!
//! Another holder of an eventfd can fill its counter and make writes block, as both ends share O_NONBLOCK. A write
//! could block for any time, whatever was checked before. The kernel's own signal cannot block. So a ring of its own,
//! whose completions the eventfd announces, makes the kernel signal it, with one system call.

use io_uring::{IoUring, opcode};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Signaller of an eventfd.
pub struct EventfdSignaller(Box<IoUring>);

impl EventfdSignaller {
    /// Takes a reference to `event`, which may be closed then.
    ///
    /// # Errors
    /// `InvalidInput` if it is not an eventfd; the system's.
    pub fn new(event: BorrowedFd<'_>) -> io::Result<EventfdSignaller> {
        let ring = IoUring::new(1)?;
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        Ok(EventfdSignaller(Box::new(ring)))
    }

    /// Signals the event. A full counter stays full, and its reader is woken.
    ///
    /// # Errors
    /// The system's: it has no memory.
    pub fn signal(&mut self) -> io::Result<()> {
        // SAFETY: points to nothing. When the queue is full, the entry before was not taken: it serves as well.
        let _ = unsafe { self.0.submission().push(&opcode::Nop::new().build()) };
        self.0.submit()?;
        self.0.completion().for_each(drop);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::{read, write};
    use std::os::fd::{AsFd, OwnedFd};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    fn count(event: &OwnedFd) -> u64 {
        let mut bytes = [0; 8];
        read(event, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn each_ring_is_counted() {
        let event = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let mut bell = EventfdSignaller::new(event.as_fd()).unwrap();
        for times in [1, 2, 100] {
            (0..times).for_each(|_| bell.signal().unwrap());
            assert_eq!(count(&event), times);
        }
        assert!(read(&event, &mut [0; 8]).is_err());
    }

    /// A full counter, where a write would block for ever.
    #[test]
    fn a_full_counter_does_not_block() {
        let event = eventfd(0, EventfdFlags::empty()).unwrap();
        write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        let mut bell = EventfdSignaller::new(event.as_fd()).unwrap();
        let (done, answer) = channel();
        std::thread::spawn(move || {
            (0..3).for_each(|_| bell.signal().unwrap());
            done.send(()).unwrap();
        });
        answer.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(count(&event), u64::MAX);
    }

    #[test]
    fn another_descriptor_is_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = EventfdSignaller::new(file.as_fd()).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}

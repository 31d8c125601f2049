//! Sealed frames: their cipher, and the log of dropped frames.

use roadtrain_ether_proto::Rejected;
use roadtrain_proto::seal::Seal;
use roadtrain_proto::time::Instant;
use roadtrain_tls::FrameCipher;
use roadtrain_wire::ether::{FrameHeader, FrameType};
use std::cell::RefCell;
use std::time::Duration;

/// Seal of one end of a lane whose frames are sealed.
pub type FrameSeal = Seal<FrameCipher>;

/// True if a frame of a sealed lane is sealed. A LEAVE frame is not: its receiver may not know the lane any more.
#[inline]
pub fn seals(header: &FrameHeader) -> bool {
    header.kind != FrameType::Leave as u8
}

thread_local! {
    static OPENED: RefCell<Box<[u8]>> =
        RefCell::new(vec![0; usize::from(u16::MAX)].into_boxed_slice());
}

/// Lends the buffer for opened bodies, if frames are sealed: one for all lanes of the calling thread, which handles one
/// frame at a time.
#[inline]
pub fn opening<R>(is_sealed: bool, take: impl FnOnce(&mut [u8]) -> R) -> R {
    if is_sealed { OPENED.with_borrow_mut(|out| take(out)) } else { take(&mut []) }
}

/// Interval between two log lines about a lane.
const EVERY: Duration = Duration::from_secs(10);

/// State of the log of frames that were dropped because the other end had not sealed them.
#[derive(Clone, Copy, Debug, Default)]
pub struct RefusalLog {
    at: Option<Instant>,
    logged: u64,
}

impl RefusalLog {
    /// Returns the number of dropped frames, if it is time to log it.
    pub fn due(&mut self, now: Instant, rejected: &Rejected) -> Option<u64> {
        let count = rejected.clear + rejected.forged;
        if count == self.logged || self.at.is_some_and(|at| now.since(at) < EVERY) {
            return None;
        }
        (self.at, self.logged) = (Some(now), count);
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_frames_are_logged_rarely() {
        let (mut log, mut rejected) = (RefusalLog::default(), Rejected::default());
        let second = |n: u64| Instant(0) + Duration::from_secs(n);
        assert_eq!(log.due(second(1), &rejected), None);
        rejected.forged = 3;
        assert_eq!(log.due(second(1), &rejected), Some(3));
        rejected.clear = 1;
        assert_eq!(log.due(second(10), &rejected), None);
        assert_eq!(log.due(second(11), &rejected), Some(4));
        assert_eq!(log.due(second(30), &rejected), None, "nothing new");
    }
}

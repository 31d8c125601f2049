//! Reservation Notifications that a controller's host has not read (NVMe Base 2.1, section 5.1.12.1.32).

use roadtrain_wire::reservation::{Notification, NotificationLog};
use roadtrain_wire::zerocopy::FromZeros;
use std::collections::{BTreeMap, VecDeque};

/// Pending notifications at most: further ones are lost, as the count shows.
const WAITING_MAX: usize = 256;

/// Notifications of a controller.
#[derive(Debug, Default)]
pub(crate) struct ReservationNotices {
    /// Number of the last notification.
    count: u64,
    waiting: VecDeque<(u64, Notification, u32)>,
    /// Reservation Notification Mask by NSID.
    masks: BTreeMap<u32, u32>,
}

impl ReservationNotices {
    /// Adds a notification for a namespace. Returns false if the host has masked it.
    pub(crate) fn push(&mut self, nsid: u32, kind: Notification) -> bool {
        if self.mask(nsid) & kind.mask_bit() != 0 {
            return false;
        }
        self.count = self.count.checked_add(1).unwrap_or(1);
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((self.count, kind, nsid));
        }
        true
    }

    /// Returns the log page with the oldest notification.
    pub(crate) fn log(&self) -> NotificationLog {
        let mut log = NotificationLog::new_zeroed();
        if let Some(&(count, kind, nsid)) = self.waiting.front() {
            (log.count, log.kind, log.nsid) = (count.into(), kind as u8, nsid.into());
            log.available = u8::try_from(self.waiting.len() - 1).unwrap_or(u8::MAX);
        }
        log
    }

    /// Removes the oldest notification, which the host has read. Returns true if there are others.
    pub(crate) fn note_read(&mut self) -> bool {
        self.waiting.pop_front();
        !self.waiting.is_empty()
    }

    /// Returns the Reservation Notification Mask of a namespace.
    pub(crate) fn mask(&self, nsid: u32) -> u32 {
        self.masks.get(&nsid).copied().unwrap_or(0)
    }

    /// Sets the Reservation Notification Mask of a namespace.
    pub(crate) fn set_mask(&mut self, nsid: u32, mask: u32) {
        self.masks.insert(nsid, mask);
    }

    /// Removes the mask and notifications of a namespace that is gone.
    pub(crate) fn forget(&mut self, nsid: u32) {
        self.masks.remove(&nsid);
        self.waiting.retain(|(.., of)| *of != nsid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_read_one_by_one_in_their_order() {
        let mut notices = ReservationNotices::default();
        assert_eq!(notices.log().count.get(), 0);
        assert!(notices.push(3, Notification::ReservationReleased));
        assert!(notices.push(4, Notification::RegistrationPreempted));
        let log = notices.log();
        assert_eq!((log.count.get(), log.kind, log.available, log.nsid.get()), (1, 2, 1, 3));
        assert!(notices.note_read());
        let log = notices.log();
        assert_eq!((log.count.get(), log.kind, log.available, log.nsid.get()), (2, 1, 0, 4));
        assert!(!notices.note_read());
        assert_eq!(notices.log().kind, 0);
    }

    #[test]
    fn masked_notifications_are_dropped_and_lost_ones_counted() {
        let mut notices = ReservationNotices::default();
        notices.set_mask(1, Notification::ReservationReleased.mask_bit());
        assert!(!notices.push(1, Notification::ReservationReleased));
        assert!(notices.push(2, Notification::ReservationReleased));
        for _ in 0..300 {
            notices.push(1, Notification::ReservationPreempted);
        }
        assert_eq!((notices.log().count.get(), notices.log().available), (1, 255));
        while notices.note_read() {}
        notices.push(1, Notification::ReservationPreempted);
        assert_eq!(notices.log().count.get(), 302, "a gap shows that some were lost");
        notices.forget(1);
        assert_eq!((notices.log().kind, notices.mask(1)), (0, 0));
    }
}

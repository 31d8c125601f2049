//! Writes that may be lost with the server's cache, and their report.
//!
//! A server that was lost may have crashed, and with it what it had not flushed. NBD has no number that shows it. So a
//! flush fails, once, if writes had completed and were not flushed when the connection was lost.

/// Account of completed and flushed writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NbdDurability {
    /// Number of completed writes that need a flush.
    completed: u64,
    /// Number of those that are flushed, or reported as lost.
    settled: u64,
    /// True if a loss is not reported yet.
    is_lost: bool,
}

impl NbdDurability {
    /// Counts a completed write that needs a flush.
    pub(crate) fn completed(&mut self) {
        self.completed += 1;
    }

    /// Returns the mark of a flush that is sent now.
    pub(crate) fn mark(&self) -> u64 {
        self.completed
    }

    /// Ends the flush of `mark`, whose result is reported.
    pub(crate) fn flushed(&mut self, mark: u64) {
        self.settled = self.settled.max(mark);
    }

    /// Notes the loss of the connection. True if writes may be lost.
    pub(crate) fn disconnected(&mut self) -> bool {
        let has_unflushed = self.completed > self.settled;
        self.settled = self.completed;
        self.is_lost |= has_unflushed;
        has_unflushed
    }

    /// Notes that the failure of a forced write may have been the report of other writes' loss, which a server makes once.
    pub(crate) fn forced_write_failed(&mut self) {
        self.is_lost |= self.completed > self.settled;
    }

    /// Takes the report of a loss: the flush fails.
    pub(crate) fn take_loss(&mut self) -> bool {
        std::mem::take(&mut self.is_lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_reported_once() {
        let mut durability = NbdDurability::default();
        assert!(!durability.disconnected() && !durability.take_loss(), "nothing was written");
        durability.completed();
        assert!(durability.disconnected());
        assert!(durability.take_loss() && !durability.take_loss());
        assert!(!durability.disconnected(), "it is reported");
    }

    #[test]
    fn flushed_writes_are_not_lost() {
        let mut durability = NbdDurability::default();
        durability.completed();
        let mark = durability.mark();
        durability.completed();
        durability.flushed(mark);
        assert!(durability.disconnected(), "one has completed after the flush was sent");
        durability.take_loss();
        durability.completed();
        durability.flushed(durability.mark());
        durability.forced_write_failed();
        assert!(!durability.disconnected() && !durability.take_loss());
    }

    #[test]
    fn a_failed_forced_write_keeps_the_report_of_others() {
        let mut durability = NbdDurability::default();
        durability.completed();
        durability.forced_write_failed();
        assert!(durability.take_loss());
    }
}

//! Follows a namespace's changes of size, its removal and its return.

use super::LiveDisk;
use roadtrain_host_engine::HostControllerView;
use roadtrain_proto::time::Instant;
use std::time::Duration;

/// Interval of checks.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// One front's watch on its namespace in the controller's view.
#[derive(Default)]
pub(crate) struct NamespaceWatch {
    view: Option<HostControllerView>,
    check_at: Instant,
    /// Result of the last check: size in bytes, or that the namespace is gone.
    known: Option<Option<u64>>,
}

impl NamespaceWatch {
    /// Watches the namespace in `view`; a default watch has no view.
    pub(crate) fn new(view: HostControllerView) -> Self {
        NamespaceWatch { view: Some(view), ..NamespaceWatch::default() }
    }

    /// Checks now. True if the disk has changed since this front's last check, whichever front updated it: the front
    /// may have to notify its clients.
    pub(crate) fn check(&mut self, now: Instant, disk: &LiveDisk) -> bool {
        self.check_at = now + CHECK_INTERVAL;
        if let Some(view) = &self.view {
            let info = disk.info();
            let same = view.namespace(info.nsid).filter(|namespace| info.is_of(namespace));
            disk.update(same.map(|namespace| namespace.blocks));
        }
        let found = (!disk.is_removed()).then(|| disk.bytes());
        let first = disk.info().blocks * u64::from(disk.info().lba_bytes);
        found != self.known.replace(found).unwrap_or(Some(first))
    }

    /// Checks if the interval is over.
    pub(crate) fn check_if_due(&mut self, now: Instant, disk: &LiveDisk) -> bool {
        now >= self.check_at && self.check(now, disk)
    }
}

#[cfg(test)]
mod tests {
    use super::super::DiskInfo;
    use super::super::info::test_info;
    use super::*;

    #[test]
    fn each_watch_reports_each_change_once() {
        let disk = LiveDisk::new(DiskInfo { blocks: 10, ..test_info() }).unwrap();
        let (mut one, mut other) = (NamespaceWatch::default(), NamespaceWatch::default());
        let mut check_both = |at| [one.check(Instant(at), &disk), other.check(Instant(at), &disk)];
        assert_eq!(check_both(0), [false, false], "nothing has changed since the disk was made");
        disk.resize(20);
        assert_eq!(check_both(1), [true, true]);
        assert_eq!(check_both(2), [false, false]);
        disk.remove();
        assert_eq!(check_both(3), [true, true]);
        disk.update(Some(20));
        assert_eq!(check_both(4), [true, true]);
    }

    #[test]
    fn checks_are_rationed() {
        let disk = LiveDisk::new(test_info()).unwrap();
        let mut watch = NamespaceWatch::default();
        watch.check(Instant(0), &disk);
        disk.resize(1);
        assert!(!watch.check_if_due(Instant(1), &disk));
        assert!(watch.check_if_due(Instant(0) + CHECK_INTERVAL, &disk));
    }
}

//! Follows the namespace's size.

use super::control::UblkControl;
use super::params::sectors;
use crate::disk::{LiveDisk, NamespaceWatch, Poller};
use roadtrain_host_engine::HostControllerView;
use roadtrain_system::clock;
use std::io;
use std::sync::Arc;
use tracing::{info, warn};

/// Follows the changes that `view` shows of `disk`, which device `id` shows.
///
/// # Errors
/// Fails if no thread can be started.
pub(crate) fn follow(id: u32, disk: Arc<LiveDisk>, view: HostControllerView) -> io::Result<Poller> {
    let mut watch = NamespaceWatch::new(view);
    watch.check(clock::now(), &disk);
    Poller::start("roadtrain-ublk", move || {
        if watch.check(clock::now(), &disk) {
            update_size(id, &disk);
        }
    })
}

/// Sets the device's size to that of the disk, if the driver can; warns if the disk is gone.
pub(crate) fn update_size(id: u32, disk: &LiveDisk) {
    if disk.is_removed() {
        return warn!(id, "the namespace is gone: requests fail until it is back");
    }
    let blocks = disk.bytes() / u64::from(disk.info().lba_bytes);
    let sectors = sectors(disk.info(), blocks);
    let resized = UblkControl::open().and_then(|mut control| {
        if !control.can_resize() {
            return Err(io::Error::other("this kernel cannot, Linux 6.16 can; attach again"));
        }
        control.update_size(id, sectors)
    });
    match resized {
        Ok(()) => info!(id, sectors, "the device has another size now"),
        Err(error) => warn!(id, sectors, "cannot change the device's size: {error}"),
    }
}

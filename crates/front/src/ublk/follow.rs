//! Follows the namespace's size.

use super::control::Control;
use super::params::sectors;
use crate::disk::{Disk, Poller, Watch};
use roadtrain_host_engine::ControllerView;
use roadtrain_system::clock;
use std::io;
use std::sync::Arc;
use tracing::{info, warn};

/// Follows the changes that `view` shows of `disk`, which device `id` shows.
///
/// # Errors
/// Fails if no thread can be started.
pub(crate) fn follow(id: u32, disk: Arc<Disk>, view: ControllerView) -> io::Result<Poller> {
    let mut watch = Watch::new(view);
    watch.check(clock::now(), &disk);
    Poller::start("roadtrain-ublk", move || {
        if watch.check(clock::now(), &disk) {
            tell(id, &disk);
        }
    })
}

/// Sets the device's size to that of the disk, if the driver can; warns if the disk is gone.
pub(crate) fn tell(id: u32, disk: &Disk) {
    if disk.is_removed() {
        return warn!(id, "the namespace is gone: requests fail until it is back");
    }
    let blocks = disk.bytes() / u64::from(disk.info().lba_bytes);
    let sectors = sectors(disk.info(), blocks);
    let told = Control::open().and_then(|mut control| {
        if !control.can_resize() {
            return Err(io::Error::other("this kernel cannot, Linux 6.16 can; attach again"));
        }
        control.update_size(id, sectors)
    });
    match told {
        Ok(()) => info!(id, sectors, "the device has another size now"),
        Err(error) => warn!(id, sectors, "cannot change the device's size: {error}"),
    }
}

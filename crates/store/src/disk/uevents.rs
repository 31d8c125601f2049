//! Block devices that change their size: a thread of the process receives the kernel's uevents.

use crate::SizeWatcher;
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{LazyLock, Mutex, PoisonError, Weak};
use std::thread;
use tracing::warn;

/// Buffer for a uevent in bytes; the kernel's own has 2 KiB.
const EVENT_BYTES: usize = 8 << 10;
/// Multicast group of the kernel's own events.
const KERNEL_GROUP: u32 = 1;

type WatchedDevice = (u64, Weak<SizeWatcher>);

/// Watched device numbers with their watchers. The thread that notifies them starts with the first, and never ends.
static WATCHED: LazyLock<Mutex<Vec<WatchedDevice>>> = LazyLock::new(|| {
    let start_thread =
        |socket| thread::Builder::new().name("roadtrain-uevent".into()).spawn(|| run(socket));
    if let Err(error) = open().and_then(start_thread) {
        warn!(%error, "block devices that grow are seen at a reload only: no uevents");
    }
    Mutex::default()
});

/// Calls `watcher` when the kernel reports a change of the device.
pub(super) fn watch(device: u64, watcher: Weak<SizeWatcher>) {
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    watched.retain(|(_, watcher)| watcher.strong_count() > 0);
    watched.push((device, watcher));
}

fn open() -> io::Result<OwnedFd> {
    let (kind, protocol) = (SocketType::DGRAM, Some(netlink::KOBJECT_UEVENT));
    let socket = socket_with(AddressFamily::NETLINK, kind, SocketFlags::CLOEXEC, protocol)?;
    bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
    Ok(socket)
}

fn run(socket: OwnedFd) {
    let mut event = [0u8; EVENT_BYTES];
    loop {
        match recv(&socket, &mut event, RecvFlags::empty()) {
            Ok((len, _)) => notify(device_of(&event[..len])),
            Err(Errno::INTR) => {}
            // Events were lost: any device may have changed.
            Err(Errno::NOBUFS) => notify(Some(None)),
            Err(error) => return warn!(%error, "block devices that grow are seen at a reload only"),
        }
    }
}

/// Notifies the watchers of a device, or all of them. The event's sender is not checked: watchers query the device
/// itself.
fn notify(device: Option<Option<u64>>) {
    let Some(changed) = device else { return };
    let watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let concerned = watched.iter().filter(|(device, _)| changed.is_none_or(|one| one == *device));
    concerned.filter_map(|(_, watcher)| watcher.upgrade()).for_each(|watcher| watcher());
}

/// Returns the block device of a change event. Not every driver sends RESIZE=1 as well (device mapper does not).
fn device_of(event: &[u8]) -> Option<Option<u64>> {
    let fields = || event.split(|&byte| byte == 0).filter_map(|field| str::from_utf8(field).ok());
    let value = |name: &str| fields().find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    if value("ACTION") != Some("change") || value("SUBSYSTEM") != Some("block") {
        return None;
    }
    let number = |name| value(name)?.parse().ok();
    Some(Some(libc::makedev(number("MAJOR")?, number("MINOR")?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_block_device_names_it() {
        let event = "change@/devices/virtual/block/loop0\0ACTION=change\0DEVPATH=/devices/virtual/block/loop0\0\
                     SUBSYSTEM=block\0RESIZE=1\0MAJOR=7\0MINOR=0\0DEVNAME=loop0\0";
        let of = |event: &str| device_of(event.as_bytes());
        assert_eq!(of(event), Some(Some(libc::makedev(7, 0))));
        for (field, other) in [
            ("ACTION=change", "ACTION=add"),
            ("SUBSYSTEM=block", "SUBSYSTEM=net"),
            ("MINOR=0", "MINOR=x"),
            ("MAJOR=7\0", ""),
        ] {
            assert_eq!(of(&event.replace(field, other)), None, "{other}");
        }
        assert_eq!(device_of(&[0xff; 100]), None);
        assert_eq!(device_of(&[]), None);
    }
}

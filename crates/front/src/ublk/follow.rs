//! Follows the namespace's size.

use super::control::Control;
use super::params::sectors;
use crate::disk::{Disk, Watch};
use roadtrain_engine::clock;
use roadtrain_engine::host::ControllerView;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tracing::{info, warn};

/// How often it looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// A thread that follows the namespace, until this is dropped.
pub(crate) struct Follower {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Follows what `view` says of `disk`, which device `id` shows.
    ///
    /// # Errors
    /// No thread to be had.
    pub(crate) fn start(id: u32, disk: Arc<Disk>, view: ControllerView) -> io::Result<Self> {
        let (end, ending) = channel();
        let body = move || {
            let mut watch = Watch::new(view);
            watch.look(clock::now(), &disk);
            while ending.recv_timeout(LOOK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if watch.look(clock::now(), &disk) {
                    tell(id, &disk);
                }
            }
        };
        let thread = thread::Builder::new().name("roadtrain-ublk".into()).spawn(body)?;
        Ok(Follower { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Tells the system that the disk has another size, or that it is gone, if it can be told.
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

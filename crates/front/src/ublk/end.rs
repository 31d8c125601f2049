//! Removes a device. Its target answers the requests in flight; if it does not in time, they fail. Never hangs.

use super::control::UblkControl;
use super::device;
use super::shared::UblkShared;
use crate::writeback::write_back_all;
use roadtrain_host_engine::HostController;
use roadtrain_system::clock;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// Longest time without progress of the write-back and of the stop before requests are failed.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest wait for the stop after requests were failed.
const FAILING_PATIENCE: Duration = Duration::from_secs(30);
/// Longest wait for the queues of a stopped device to notice the stop.
const QUEUES_PATIENCE: Duration = Duration::from_secs(5);

/// Handling of a device that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceEnd {
    /// It is written back, stopped and deleted.
    InUse,
    /// No program could use it yet: it is deleted.
    NotStarted,
    /// It stays and waits for a process that can serve it.
    LeftAgain,
}

/// Removes device `id`; `file` leads to its queues.
pub(crate) fn end(
    id: u32,
    how: DeviceEnd,
    controller: HostController,
    shared: &UblkShared,
    file: Option<Arc<File>>,
) {
    let path = device::block_path(id);
    if how == DeviceEnd::InUse
        && let Err(error) = write_back_all(&path, PATIENCE)
    {
        let text = format!("what was cached of {} and not written back: {error}", path.display());
        warn!("lost: {text}");
        controller.view().lose(text);
    }
    let stopped = (how != DeviceEnd::LeftAgain).then(|| stop(id, &controller));
    let in_order = matches!(stopped, Some(Ok(_)));
    let patience = if in_order { QUEUES_PATIENCE } else { Duration::ZERO };
    shared.end_at(clock::now() + patience);
    controller.stop();
    controller.join();
    drop(file); // or the driver would keep the device
    let gone =
        stopped.map(|stopped| stopped.and_then(|mut control| device::delete(&mut control, id)));
    match gone {
        // Another process has deleted it.
        Some(Err(error)) if error.raw_os_error() == Some(libc::ENODEV) => {}
        Some(Err(error)) => warn!("{} stays: {error}", path.display()),
        Some(Ok(())) | None => {}
    }
}

/// Stops the device: its queues answer their requests, and the driver aborts all tags.
fn stop(id: u32, controller: &HostController) -> io::Result<UblkControl> {
    let mut control = UblkControl::open()?;
    let pending = control.begin_stop(id);
    let mut ended = control.wait(pending, PATIENCE)?;
    if ended.is_none() {
        info!("the device does not stop: failing its requests in flight");
        controller.stop();
        ended = control.wait(pending, FAILING_PATIENCE)?;
    }
    ended.unwrap_or_else(|| Err(ErrorKind::TimedOut.into()))?;
    Ok(control)
}

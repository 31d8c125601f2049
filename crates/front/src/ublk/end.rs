//! A device is taken away. What is under way is answered, by its target or, when that does not come, with an
//! error. Never hangs.

use super::control::Control;
use super::device;
use super::shared::Shared;
use crate::writeback::write_back_all;
use roadtrain_host_engine::Controller;
use roadtrain_system::clock;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// How long nothing may move while the device is written back and stopped before requests are failed.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long stopping may take then.
const FAILING_PATIENCE: Duration = Duration::from_secs(30);
/// How long the queues of a device that is stopped may take to hear of it.
const QUEUES_PATIENCE: Duration = Duration::from_secs(5);

/// What becomes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HowItGoes {
    /// It is written back, stopped and deleted.
    InUse,
    /// Nobody could use it yet: it is deleted.
    NotStarted,
    /// It goes on waiting for a process that can serve it.
    LeftAgain,
}

/// Takes device `id` away; `file` leads to its queues.
pub(crate) fn end(
    id: u32,
    how: HowItGoes,
    controller: Controller,
    shared: &Shared,
    file: Option<Arc<File>>,
) {
    let path = device::block_path(id);
    if how == HowItGoes::InUse
        && let Err(error) = write_back_all(&path, PATIENCE)
    {
        let text = format!("what was cached of {} and not written back: {error}", path.display());
        warn!("lost: {text}");
        controller.view().lose(text);
    }
    let stopped = (how != HowItGoes::LeftAgain).then(|| stop(id, &controller));
    let in_order = matches!(stopped, Some(Ok(_)));
    let patience = if in_order { QUEUES_PATIENCE } else { Duration::ZERO };
    shared.end_at(clock::now() + patience);
    controller.stop();
    controller.join();
    drop(file); // or the device would not go
    let gone =
        stopped.map(|stopped| stopped.and_then(|mut control| device::delete(&mut control, id)));
    match gone {
        // Somebody else has deleted it.
        Some(Err(error)) if error.raw_os_error() == Some(libc::ENODEV) => {}
        Some(Err(error)) => warn!("{} stays: {error}", path.display()),
        Some(Ok(())) | None => {}
    }
}

/// Stops the device: its queues answer what they have, and hear that nothing more comes.
fn stop(id: u32, controller: &Controller) -> io::Result<Control> {
    let mut control = Control::open()?;
    let pending = control.begin_stop(id);
    let mut ended = control.wait(pending, PATIENCE)?;
    if ended.is_none() {
        info!("the device does not stop: failing what is under way");
        controller.stop();
        ended = control.wait(pending, FAILING_PATIENCE)?;
    }
    ended.unwrap_or_else(|| Err(ErrorKind::TimedOut.into()))?;
    Ok(control)
}

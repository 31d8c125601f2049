//! The driver's control device: one method for each command.

use super::abi::{
    ANY_DEVICE, ControlCommand, ControlOp, DeviceInfo, F_UPDATE_SIZE, NO_QUEUE, UblkParams,
};
use super::control_ring::{ControlRing, PendingControl, done};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Path of the control device.
pub(crate) const CONTROL_PATH: &str = "/dev/ublk-control";

/// The open control device, for one thread.
pub(crate) struct UblkControl {
    ring: ControlRing,
    /// True if the driver knows encoded command numbers.
    encoded: bool,
    features: u64,
}

impl UblkControl {
    /// Opens the control device and queries the driver's features.
    ///
    /// # Errors
    /// Returns the system's error, with advice.
    pub(crate) fn open() -> io::Result<Self> {
        let ring = ControlRing::open(Path::new(CONTROL_PATH)).map_err(advise)?;
        let mut control = UblkControl { ring, encoded: true, features: 0 };
        let mut features = 0u64;
        match control.call(ControlOp::GET_FEATURES, 0, features.as_mut_bytes()) {
            Ok(()) => control.features = features,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(advise(error)),
            // Before Linux 6.5 the driver has none of the later commands that we use.
            Err(_) => control.encoded = false,
        }
        Ok(control)
    }

    /// True if the driver takes encoded command numbers.
    pub(crate) fn is_encoded(&self) -> bool {
        self.encoded
    }

    /// True if the size of a device in use can change.
    pub(crate) fn can_resize(&self) -> bool {
        self.features & F_UPDATE_SIZE != 0
    }

    /// Adds a device; returns `info` as the driver changed it.
    pub(crate) fn add(&mut self, mut info: DeviceInfo) -> io::Result<DeviceInfo> {
        let id = info.dev_id;
        self.call(ControlOp::ADD_DEV, id, info.as_mut_bytes()).map_err(advise)?;
        debug_assert_ne!(info.dev_id, ANY_DEVICE);
        Ok(info)
    }

    /// Returns the driver's record of device `id`, or `None` if there is no such device.
    pub(crate) fn info(&mut self, id: u32) -> io::Result<Option<DeviceInfo>> {
        let mut info = DeviceInfo::default();
        match self.call(ControlOp::GET_DEV_INFO, id, info.as_mut_bytes()) {
            Ok(()) => Ok(Some(info)),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENODEV | libc::EINVAL | libc::ENOENT) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Sets the parameters of device `id`, before it is started.
    pub(crate) fn set_params(&mut self, id: u32, mut params: UblkParams) -> io::Result<()> {
        self.call(ControlOp::SET_PARAMS, id, params.as_mut_bytes())
    }

    /// Returns the parameters of device `id`.
    pub(crate) fn params(&mut self, id: u32) -> io::Result<UblkParams> {
        let mut params =
            UblkParams { len: size_of::<UblkParams>() as u32, ..UblkParams::default() };
        self.call(ControlOp::GET_PARAMS, id, params.as_mut_bytes())?;
        Ok(params)
    }

    /// Lets this process take device `id` over from one that is gone.
    pub(crate) fn start_recovery(&mut self, id: u32) -> io::Result<()> {
        self.finish(ControlOp::START_USER_RECOVERY, id, 0)
    }

    /// Sets the size of device `id` in use.
    pub(crate) fn update_size(&mut self, id: u32, sectors: u64) -> io::Result<()> {
        self.finish(ControlOp::UPDATE_SIZE, id, sectors)
    }

    /// Begins to start device `id`. The command ends once the queues have fetched all their tags.
    pub(crate) fn begin_start(&mut self, id: u32, recovery: bool) -> PendingControl {
        let op = if recovery { ControlOp::END_USER_RECOVERY } else { ControlOp::START_DEV };
        self.begin(op, id, std::process::id().into())
    }

    /// Begins to stop device `id`. The command ends once its requests are answered.
    pub(crate) fn begin_stop(&mut self, id: u32) -> PendingControl {
        self.begin(ControlOp::STOP_DEV, id, 0)
    }

    /// Begins to delete device `id`. The command ends once no process has it open.
    pub(crate) fn begin_delete(&mut self, id: u32) -> PendingControl {
        self.begin(ControlOp::DEL_DEV, id, 0)
    }

    /// Waits for the end of `pending`, at most `limit`. Returns `None` if it is still in flight. A device that is gone
    /// is an error (`ENODEV`).
    pub(crate) fn wait(
        &mut self,
        pending: PendingControl,
        limit: Duration,
    ) -> io::Result<Option<io::Result<()>>> {
        Ok(self.ring.wait(pending, Some(limit))?.map(done))
    }

    fn begin(&mut self, op: ControlOp, id: u32, data: u64) -> PendingControl {
        let command = ControlCommand { dev_id: id, queue_id: NO_QUEUE, data, ..Default::default() };
        self.ring.begin(op.code(self.encoded), command)
    }

    fn finish(&mut self, op: ControlOp, id: u32, data: u64) -> io::Result<()> {
        let pending = self.begin(op, id, data);
        self.ring.wait(pending, None).and_then(|result| done(result.unwrap_or(0)))
    }

    fn call(&mut self, op: ControlOp, id: u32, bytes: &mut [u8]) -> io::Result<()> {
        let command = ControlCommand { dev_id: id, queue_id: NO_QUEUE, ..Default::default() };
        self.ring.call(op.code(self.encoded), command, bytes)
    }
}

/// Adds advice to an error.
fn advise(error: io::Error) -> io::Error {
    let advice = match error.kind() {
        ErrorKind::NotFound => {
            "this kernel has no ublk, or its driver is not loaded: run `modprobe ublk_drv` as root \
             (a kernel with CONFIG_BLK_DEV_UBLK)"
        }
        ErrorKind::PermissionDenied => "ublk devices are made by root (CAP_SYS_ADMIN)",
        ErrorKind::Unsupported => "ublk needs io_uring commands (Linux 6.0)",
        _ => return error,
    };
    io::Error::other(format!("{CONTROL_PATH}: {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let advice = |errno| advise(io::Error::from_raw_os_error(errno)).to_string();
        assert!(advice(libc::ENOENT).contains("modprobe ublk_drv"));
        assert!(advice(libc::EPERM).contains("root"));
        assert!(advice(libc::EACCES).contains("root"));
        assert!(!advice(libc::EEXIST).contains(CONTROL_PATH));
    }
}

//! A ublk device: made, taken over from a process that is gone, deleted.

use super::abi::{
    ANY_DEVICE, DeviceInfo, F_CMD_IOCTL_ENCODE, F_USER_RECOVERY, F_USER_RECOVERY_REISSUE,
    STATE_LIVE, STATE_QUIESCED, UblkParams, attr,
};
use super::control::{CONTROL_PATH, UblkControl};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Longest wait for the driver to notice that a device's process is gone; the first drivers check every 5 s.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of checks for that.
const SETTLE_INTERVAL: Duration = Duration::from_millis(50);
/// Longest wait for a stopped device to be deleted; it stays longer only while a process has it open.
const DELETE_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest wait for a device without a process to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Desired device.
#[derive(Clone, Debug)]
pub(crate) struct DesiredDevice {
    /// Number; `None` lets the driver choose.
    pub(crate) id: Option<u32>,
    /// True to accept only a device that another process has left.
    pub(crate) recover: bool,
    pub(crate) queues: u16,
    pub(crate) queue_depth: u16,
    /// Bytes of the largest read or write.
    pub(crate) io_bytes: u32,
    pub(crate) params: UblkParams,
    /// Hash of the identity of the namespace that it shows.
    pub(crate) identity: u64,
}

/// A device that exists, but is not started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreparedDevice {
    pub(crate) info: DeviceInfo,
    /// True if another process had left it.
    pub(crate) recovered: bool,
}

/// State of a device with regard to its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeviceStatus {
    Absent,
    /// Its process is gone, its requests wait.
    Left,
    /// It was never started, or is stopped.
    Dead,
    /// Its process is gone, but the driver has not noticed.
    Dying,
    /// A process of this id serves it.
    Used(i32),
}

/// Makes the desired device, or takes it over.
///
/// # Errors
/// Fails if another process serves it, if it shows another namespace, or if the driver refuses.
pub(crate) fn prepare(
    control: &mut UblkControl,
    wanted: &DesiredDevice,
) -> io::Result<PreparedDevice> {
    let Some(id) = wanted.id else {
        if wanted.recover {
            return Err(failure("which device is to be recovered? Write `--as ublk:ID`"));
        }
        return add(control, wanted);
    };
    let (found, info) = settled(control, id)?;
    match found {
        DeviceStatus::Left => take_over(control, wanted, info),
        DeviceStatus::Used(pid) => Err(failure(format!("process {pid} serves it"))),
        DeviceStatus::Dying => {
            Err(failure("its process is gone, but the driver does not let it go"))
        }
        DeviceStatus::Absent | DeviceStatus::Dead if wanted.recover => {
            Err(failure("no process has left it in use: attach it without --recover"))
        }
        DeviceStatus::Dead => {
            delete(control, id)?;
            add(control, wanted)
        }
        DeviceStatus::Absent => add(control, wanted),
    }
}

fn failure(what: impl Into<String>) -> io::Error {
    io::Error::other(what.into())
}

fn add(control: &mut UblkControl, wanted: &DesiredDevice) -> io::Result<PreparedDevice> {
    let info = control.add(DeviceInfo {
        nr_hw_queues: wanted.queues,
        queue_depth: wanted.queue_depth,
        max_io_buf_bytes: wanted.io_bytes,
        dev_id: wanted.id.unwrap_or(ANY_DEVICE),
        ublksrv_pid: std::process::id().cast_signed(),
        flags: F_USER_RECOVERY | F_USER_RECOVERY_REISSUE | F_CMD_IOCTL_ENCODE,
        ublksrv_flags: wanted.identity,
        ..DeviceInfo::default()
    })?;
    if let Err(error) = control.set_params(info.dev_id, wanted.params) {
        delete(control, info.dev_id)?;
        return Err(error);
    }
    Ok(PreparedDevice { info, recovered: false })
}

fn take_over(
    control: &mut UblkControl,
    wanted: &DesiredDevice,
    info: DeviceInfo,
) -> io::Result<PreparedDevice> {
    let id = info.dev_id;
    if info.ublksrv_flags != wanted.identity {
        return Err(failure("it was left in use, but shows another namespace"));
    }
    let current = control.params(id)?.basic;
    if lacks_cache(current.attrs, wanted.params.basic.attrs) {
        return Err(failure(
            "it was made without a volatile write cache, so the system would not flush it. Remove the device (detach) \
             and attach anew",
        ));
    }
    if current.dev_sectors != wanted.params.basic.dev_sectors && !control.can_resize() {
        warn!(id, "the namespace's size has changed; the device keeps its own");
    }
    let end = Instant::now() + SETTLE_TIMEOUT;
    loop {
        match control.start_recovery(id) {
            // Its process is still exiting.
            Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < end => {
                thread::sleep(SETTLE_INTERVAL);
            }
            Err(error) => return Err(error),
            Ok(()) => break,
        }
    }
    info!(id, "taking the device over");
    Ok(PreparedDevice { info, recovered: true })
}

/// True if a device with attributes `has` never flushes although one with `wanted` must: the attributes are fixed when
/// the device is made.
fn lacks_cache(has: u32, wanted: u32) -> bool {
    wanted & !has & (attr::VOLATILE_CACHE | attr::FUA) != 0
}

/// Returns the state of device `id`, once it is settled.
fn settled(control: &mut UblkControl, id: u32) -> io::Result<(DeviceStatus, DeviceInfo)> {
    let end = Instant::now() + SETTLE_TIMEOUT;
    loop {
        let info = control.info(id)?;
        let found = info.as_ref().map_or(DeviceStatus::Absent, |info| judge(info, is_running));
        if found != DeviceStatus::Dying || Instant::now() >= end {
            return Ok((found, info.unwrap_or_default()));
        }
        thread::sleep(SETTLE_INTERVAL);
    }
}

fn judge(info: &DeviceInfo, is_running: impl FnOnce(i32) -> bool) -> DeviceStatus {
    match info.state {
        STATE_QUIESCED => DeviceStatus::Left,
        STATE_LIVE if is_running(info.ublksrv_pid) => DeviceStatus::Used(info.ublksrv_pid),
        STATE_LIVE => DeviceStatus::Dying,
        _ => DeviceStatus::Dead,
    }
}

/// True if the process exists and is no zombie.
fn is_running(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    // The name, in parentheses, may contain any character.
    stat.is_ok_and(|stat| {
        let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        !rest.starts_with(['Z', 'X'])
    })
}

/// Deletes a device that is stopped. The driver keeps it until no process has it open.
///
/// # Errors
/// Returns the driver's error.
pub(crate) fn delete(control: &mut UblkControl, id: u32) -> io::Result<()> {
    let pending = control.begin_delete(id);
    match control.wait(pending, DELETE_TIMEOUT)? {
        Some(result) => result,
        None => {
            info!(id, "a process has the device open: it is deleted when that closes it");
            Ok(())
        }
    }
}

/// Stops and deletes a device whose process is gone. Returns `false` if it does not exist or has a process.
///
/// # Errors
/// Returns the driver's error.
pub fn remove(id: u32) -> io::Result<bool> {
    if !Path::new(CONTROL_PATH).exists() {
        return Ok(false); // without a driver there is no device
    }
    let mut control = UblkControl::open()?;
    if let (DeviceStatus::Absent | DeviceStatus::Used(_), _) = settled(&mut control, id)? {
        return Ok(false);
    }
    let pending = control.begin_stop(id);
    match control.wait(pending, STOP_TIMEOUT)? {
        Some(result) => result?,
        None => return Err(failure("the device does not stop")),
    }
    delete(&mut control, id).map(|()| true)
}

/// Opens the character device of device `id`, which leads to its queues.
///
/// # Errors
/// Returns the system's error, with the path.
pub(crate) fn open(id: u32) -> io::Result<File> {
    let path = format!("/dev/ublkc{id}");
    let opened = File::options().read(true).write(true).open(&path);
    opened.map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
}

/// Returns the path of the block device.
pub(crate) fn block_path(id: u32) -> PathBuf {
    format!("/dev/ublkb{id}").into()
}

/// Returns a hash of a namespace's identity (FNV-1a), which the driver keeps with the device.
pub(crate) fn identity(nqn: &str, nsid: u32, nguid: [u8; 16], lba_bytes: u32) -> u64 {
    let numbers = [nsid.to_le_bytes(), lba_bytes.to_le_bytes()];
    let bytes = numbers.iter().flatten().chain(&nguid).chain(nqn.as_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_taken_only_from_a_process_that_is_gone() {
        let device = |state| DeviceInfo { state, ublksrv_pid: 7, ..DeviceInfo::default() };
        assert_eq!(judge(&device(STATE_QUIESCED), |_| true), DeviceStatus::Left);
        assert_eq!(judge(&device(STATE_LIVE), |_| true), DeviceStatus::Used(7));
        assert_eq!(judge(&device(STATE_LIVE), |_| false), DeviceStatus::Dying);
        assert_eq!(judge(&device(0), |_| true), DeviceStatus::Dead);
    }

    #[test]
    fn a_device_that_never_flushes_is_not_taken_for_a_namespace_with_a_cache() {
        let cached = attr::VOLATILE_CACHE | attr::FUA;
        assert!(lacks_cache(0, cached) && lacks_cache(attr::READ_ONLY, cached));
        assert!(!lacks_cache(cached, cached) && !lacks_cache(cached, 0) && !lacks_cache(0, 0));
    }

    #[test]
    fn zombies_do_not_run() {
        assert!(is_running(std::process::id().cast_signed()));
        assert!(!is_running(-1));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id().cast_signed();
        let end = Instant::now() + Duration::from_secs(10);
        while is_running(pid) {
            assert!(Instant::now() < end, "a zombie counts as running");
            thread::sleep(Duration::from_millis(1));
        }
        child.wait().unwrap();
        assert!(!is_running(pid));
    }

    #[test]
    fn namespaces_have_different_identities() {
        let one = identity("nqn.a", 1, [0; 16], 512);
        assert_eq!(one, identity("nqn.a", 1, [0; 16], 512));
        for other in [
            identity("nqn.b", 1, [0; 16], 512),
            identity("nqn.a", 2, [0; 16], 512),
            identity("nqn.a", 1, [1; 16], 512),
            identity("nqn.a", 1, [0; 16], 4096),
        ] {
            assert_ne!(one, other);
        }
    }
}

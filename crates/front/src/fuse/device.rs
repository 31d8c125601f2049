//! The kernel's end of a mount: `/dev/fuse`, opened.

use super::sys;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

const PATH: &str = "/dev/fuse";

/// An opened `/dev/fuse`; reading never blocks.
#[derive(Debug)]
pub(super) struct FuseDevice(File);

impl FuseDevice {
    /// Opens a device that serves no mount yet.
    pub(super) fn open() -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        options.open(PATH).map(FuseDevice).map_err(|e| sys::driver_is_missing(PATH, "fuse", e))
    }

    /// Opens another device for the same mount, with requests of its own.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        let device = FuseDevice::open()?;
        sys::clone_device(&device.0, &self.0)?;
        Ok(device)
    }

    /// Duplicates the descriptor: both share their requests.
    pub(super) fn try_share(&self) -> io::Result<Self> {
        self.0.try_clone().map(FuseDevice)
    }

    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Waits until a request can be read, at most `longest`. True if one can.
    pub(super) fn wait(&self, longest: Duration) -> io::Result<bool> {
        sys::wait_readable(&self.0, longest)
    }

    /// Reads one request into `pieces`. Returns its bytes, or 0 if no request is pending.
    pub(super) fn receive(&self, mut pieces: [IoSliceMut<'_>; 3]) -> io::Result<usize> {
        loop {
            match (&self.0).read_vectored(&mut pieces) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
                // ENOENT: the request was withdrawn while it was read. EINTR: a signal.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {}
                result => return result,
            }
        }
    }

    /// Writes one reply.
    pub(super) fn send(&self, pieces: [IoSlice<'_>; 2]) -> io::Result<()> {
        (&self.0).write_vectored(&pieces).map(drop)
    }
}

/// Kernel side of a device, for tests: a socket that preserves message boundaries.
#[cfg(test)]
pub(super) struct Kernel(socket2::Socket);

#[cfg(test)]
impl Kernel {
    pub(super) fn new() -> (Self, FuseDevice) {
        use socket2::{Domain, Socket, Type};
        let (near, far) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None).unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        (Kernel(near), FuseDevice(std::os::fd::OwnedFd::from(far).into()))
    }

    /// Sends a request.
    pub(super) fn send_request(&self, pieces: &[&[u8]]) {
        let bytes = pieces.concat();
        assert_eq!((&self.0).write(&bytes).unwrap(), bytes.len());
    }

    /// Returns the next reply if there is one: its header and its data.
    pub(super) fn try_answer(&self) -> Option<(roadtrain_wire::fuse::OutHeader, Vec<u8>)> {
        use roadtrain_wire::zerocopy::FromBytes;
        let mut bytes = vec![0; 256 << 10];
        let count = (&self.0).read(&mut bytes).ok()?;
        bytes.truncate(count);
        let (header, data) = roadtrain_wire::fuse::OutHeader::read_from_prefix(&bytes).ok()?;
        Some((header, data.to_vec()))
    }

    /// Returns the next reply.
    pub(super) fn answer(&self) -> (roadtrain_wire::fuse::OutHeader, Vec<u8>) {
        self.try_answer().unwrap()
    }
}

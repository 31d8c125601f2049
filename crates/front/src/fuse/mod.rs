//! Namespaces as files of a mounted file system: a FUSE server for a directory with one file each.
//!
//! | file | purpose |
//! |---|---|
//! | `attach` | connects, mounts, makes loop devices, and ends all of it |
//! | `service` | disks that are files of a mount, and who serves them |
//! | `mount` | the mount itself; what a killed process left of it |
//! | `handshake` | what is agreed on with the kernel |
//! | `uring` | the kernel's switch for requests over io_uring |
//! | `queues` | which reactor serves which of the kernel's queues |
//! | `session` | what the reactors share |
//! | `server` | the front of a reactor |
//! | `slots` | memory of requests, shared with the kernel |
//! | `tree` | answers about files; what the disk is to do |
//! | `device` | `/dev/fuse` |
//! | `ring` | commands on the reactor's ring |
//! | `loop_device` | block devices over files |
//! | `sys` | system calls |
//!
//! **Over io_uring** a slot's memory is registered with the kernel, which puts a request in, payload and all.
//! A Read or Write of whole blocks goes to the lane with exactly that payload, and the answer is committed
//! when it comes back: nothing is copied here, and all commands of a turn are one `io_uring_enter`, that of
//! the reactor. **Over the device** a request is read so that its payload lies where it would over io_uring,
//! and the rest is the same.

mod attach;
mod device;
mod handshake;
mod loop_device;
mod mount;
mod queues;
mod ring;
mod server;
mod service;
mod session;
mod slots;
mod sys;
mod tree;
mod uring;

pub use attach::{FuseAttachment, FuseConfig};
pub use server::FuseServer;
pub use service::{FuseMount, FuseService};
pub use uring::Uring;

use std::io;
use std::path::Path;

/// Ends a mount that a killed process has left; `false`: it is not there.
pub(crate) fn remove_mount(path: &Path) -> io::Result<bool> {
    mount::remove_leftover(path)
}

/// Ends a loop device that a killed process has left over a file of its mount, which is still there;
/// `false`: it is not there.
pub(crate) fn remove_loop_device(path: &Path) -> io::Result<bool> {
    loop_device::remove_leftover(path, mount::is_mounted)
}

/// Who uses the loop device `path`, for people to read.
pub(crate) fn users_of_loop_device(path: &Path) -> Vec<String> {
    loop_device::users(path)
}

/// Whether somebody still uses a loop device of ours whose mount is gone.
pub(crate) fn is_loop_device_in_use(path: &Path) -> bool {
    loop_device::outlives_its_mount(path)
}

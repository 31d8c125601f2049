//! Namespaces as files of a mounted file system: a FUSE server for a directory with one file each.
//!
//! | file | purpose |
//! |---|---|
//! | `attach` | connects, mounts, makes loop devices, and ends all of them |
//! | `service` | the disks of a mount, and a server for each reactor |
//! | `mount` | the mount itself; removal of a killed process's mount |
//! | `handshake` | FUSE INIT: features agreed on with the kernel |
//! | `uring` | the kernel's switch for requests over io_uring |
//! | `queues` | assignment of the kernel's queues to reactors |
//! | `mount_state` | state that the reactors of a mount share |
//! | `server` | the front of a reactor |
//! | `slots` | memory of requests, shared with the kernel |
//! | `tree` | replies about files; the disk requests for the others |
//! | `device` | `/dev/fuse` |
//! | `ring` | commands on the reactor's ring |
//! | `loop_device` | block devices over files |
//! | `sys` | system calls |
//!
//! **Over io_uring** a slot's memory is registered with the kernel, which puts a request in, payload and all. A Read or
//! Write of whole blocks goes to the lane with exactly that payload, and the reply is committed when it comes back.
//! Nothing is copied here, and all commands of a turn are one `io_uring_enter`, that of the reactor. **Over the
//! device** a request is read so that its payload lies where io_uring would put it; the rest is the same.

mod attach;
mod device;
mod handshake;
mod loop_device;
mod mount;
mod mount_state;
mod queues;
mod ring;
mod server;
mod service;
mod slots;
mod sys;
mod tree;
mod uring;

pub use attach::{FuseAttachment, FuseConfig};
pub use server::FuseServer;
pub use service::{FuseMount, FuseService};
pub use uring::FuseUring;

use std::io;
use std::path::Path;

/// Removes the mount of a killed process, and loop devices over its files that the process had made and not yet noted.
/// Returns `false` if there is none.
pub(crate) fn remove_mount(path: &Path) -> io::Result<bool> {
    mount::remove_leftover(path, || loop_device::remove_all_over(path))
}

/// Detaches a loop device that a killed process has left over a file of its mount, which still exists. Returns `false`
/// if there is none.
pub(crate) fn remove_loop_device(path: &Path) -> io::Result<bool> {
    loop_device::remove_leftover(path, mount::is_mounted)
}

/// Returns the users of the loop device `path` as text for people.
pub(crate) fn users_of_loop_device(path: &Path) -> Vec<String> {
    loop_device::users(path)
}

/// True if a loop device of ours whose mount is gone is still in use.
pub(crate) fn is_loop_device_in_use(path: &Path) -> bool {
    loop_device::outlives_its_mount(path)
}

//! Devices of this machine's kernel, served by a process of the same machine. When memory is short the kernel writes to
//! such a device, and the process must not wait for that itself (deadlock).

use roadtrain_system::memory;
use tracing::warn;

/// Prepares the calling thread, and threads that it starts later, to serve such a device: they get memory without
/// waiting for writes, and their memory stays resident.
pub(crate) fn prepare() {
    let refused = |what: &str, needs: &str, error: std::io::Error| {
        warn!(
            "{what}: {error}; when memory is short the device may hang: give the process {needs}"
        );
    };
    if let Err(error) = memory::never_write_to_allocate() {
        refused("threads may wait for writes to their own device", "CAP_SYS_RESOURCE", error);
    }
    if let Err(error) = memory::lock() {
        let needs = "CAP_IPC_LOCK, or LimitMEMLOCK=infinity";
        refused("memory is not locked", needs, error);
    }
}

//! Objects for tests of the model.

use super::{DeviceKind, ManagedDevice, SavedNamespace, new_uuid};
use std::sync::Arc;

/// Opens a null device of 1 MiB.
pub(super) fn device(name: &str) -> Arc<ManagedDevice> {
    let names = (name.to_owned(), new_uuid().expect("the system has random numbers"));
    let opened = ManagedDevice::open(names, DeviceKind::Null, (512, 1 << 20, false));
    Arc::new(opened.expect("a null device opens"))
}

/// Returns a namespace with that device, seen by all hosts.
pub(super) fn namespace(nsid: u32, device: &str) -> SavedNamespace {
    SavedNamespace::new(nsid, device)
}

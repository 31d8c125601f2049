//! State that the reactors of a mount share.

use super::device::FuseDevice;
use super::tree::Tree;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A mount, from before it is made.
#[derive(Debug)]
pub(super) struct MountState {
    pub(super) tree: Tree,
    mounted: OnceLock<MountedDevice>,
    /// True once the kernel has refused io_uring after all.
    refused: AtomicBool,
}

/// Device and features of a mount that exists.
#[derive(Debug)]
pub(super) struct MountedDevice {
    pub(super) device: FuseDevice,
    /// True if requests come over io_uring.
    pub(super) uring: bool,
}

impl MountState {
    pub(super) fn new(tree: Tree) -> Self {
        MountState { tree, mounted: OnceLock::new(), refused: AtomicBool::new(false) }
    }

    /// Publishes the mount: the reactors may start.
    pub(super) fn begin(&self, mounted: MountedDevice) {
        let again = self.mounted.set(mounted);
        debug_assert!(again.is_ok(), "mounted twice");
    }

    pub(super) fn mounted(&self) -> Option<&MountedDevice> {
        self.mounted.get()
    }

    /// Records that the kernel refused io_uring. True the first time.
    pub(super) fn refuse(&self) -> bool {
        !self.refused.swap(true, Ordering::Relaxed)
    }
}

//! State that the reactors of a mount share.

use super::device::Device;
use super::tree::Tree;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A mount, from before it is made.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) tree: Tree,
    mounted: OnceLock<Mounted>,
    /// True once the kernel has refused io_uring after all.
    refused: AtomicBool,
}

/// Device and features of a mount that exists.
#[derive(Debug)]
pub(super) struct Mounted {
    pub(super) device: Device,
    /// True if requests come over io_uring.
    pub(super) uring: bool,
}

impl Session {
    pub(super) fn new(tree: Tree) -> Self {
        Session { tree, mounted: OnceLock::new(), refused: AtomicBool::new(false) }
    }

    /// Publishes the mount: the reactors may start.
    pub(super) fn begin(&self, mounted: Mounted) {
        let again = self.mounted.set(mounted);
        debug_assert!(again.is_ok(), "mounted twice");
    }

    pub(super) fn mounted(&self) -> Option<&Mounted> {
        self.mounted.get()
    }

    /// Records that the kernel refused io_uring. True the first time.
    pub(super) fn refuse(&self) -> bool {
        !self.refused.swap(true, Ordering::Relaxed)
    }
}

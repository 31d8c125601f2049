//! What the reactors of a mount share.

use super::device::Device;
use super::tree::Tree;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// A mount, from before it is made.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) tree: Tree,
    mounted: OnceLock<Mounted>,
    /// The kernel does not take the ring after all.
    refused: AtomicBool,
}

/// What is known once it is mounted.
#[derive(Debug)]
pub(super) struct Mounted {
    pub(super) device: Device,
    /// Requests come over io_uring.
    pub(super) uring: bool,
}

impl Session {
    pub(super) fn new(tree: Tree) -> Self {
        Session { tree, mounted: OnceLock::new(), refused: AtomicBool::new(false) }
    }

    /// It is mounted: the reactors may begin.
    pub(super) fn begin(&self, mounted: Mounted) {
        let again = self.mounted.set(mounted);
        debug_assert!(again.is_ok(), "mounted twice");
    }

    pub(super) fn mounted(&self) -> Option<&Mounted> {
        self.mounted.get()
    }

    /// Notes that the kernel refused the ring; whether that is news.
    pub(super) fn refuse(&self) -> bool {
        !self.refused.swap(true, Ordering::Relaxed)
    }
}

//! Images of a Ceph cluster, by librbd.
//!
//! ```text
//! rbd        the store: capacity, limits, submission
//! ownership  ownership of an image that several targets reach: heartbeats of the owner, checks by the standbys
//! allocated  allocated parts of an image
//! operation  one operation: buffer and token until librbd's thread completes it
//! snapshots  snapshots of an image, and clones
//! in_flight  operations that may be completed before librbd completes them
//! encryption encryption of images by librbd
//! passphrase passphrases of encrypted images
//! image      an open image: its lock, its size, conversion of its errors
//! cluster    connections to clusters, and pools
//! objects    an object that processes share: its map, and notifications
//! library    librados and librbd, loaded at run time
//! ```
//!
//! librbd has threads of its own, which may run on the cores of the thread that has connected: none of them is a
//! reactor's. All calls that may block (connecting, opening, closing) run on threads of their own.

mod allocated;
mod closing;
mod cluster;
mod conf;
mod differences;
mod encryption;
mod image;
mod image_name;
mod in_flight;
mod library;
mod objects;
mod operation;
mod ownership;
mod passphrase;
mod snapshots;

use crate::allocation_queries::StoreAllocationQueries;
use crate::block_access;
use crate::resize::Size;
use crate::{
    BlockLimits, BlockOwnership, OpenError, Resize, SizeWatcher, Snapshots, Store, StoreGeometry,
    StoreIo, StoreOperation, StoreToken,
};
pub use closing::end_process;
use cluster::CephPool;
use image::OpenImage;
pub use image_name::RbdImage;
pub use objects::{
    NotifyHandler, NotifyReplies, ObjectError, ObjectMap, ObjectMapChange, ObjectWatch, RadosObject,
};
use operation::RbdOperation;
use ownership::{ObservedImage, OwnedImage};
pub use passphrase::RbdPassphrase;
use roadtrain_proto::ownership::OwnershipTiming;
use roadtrain_system::buffer::Buffer;
use roadtrain_system::clock;
use roadtrain_wire::status::Status;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::{fmt, io};
use tracing::warn;

/// Default granularity of librbd's discards (`rbd_discard_granularity_bytes`); the kernel's client reports it as the
/// minimum and the optimal I/O size, too.
const GRANULARITY: u32 = 64 << 10;

/// A failed action with its cause.
#[derive(Debug)]
struct RbdFailure {
    action: String,
    /// Errno; `None` if the action's text is complete.
    errno: Option<c_int>,
    /// Client that has the image.
    owner: Option<String>,
}

impl RbdFailure {
    fn text(text: impl Into<String>) -> RbdFailure {
        RbdFailure { action: text.into(), errno: None, owner: None }
    }

    fn errno(action: &str, errno: c_int) -> RbdFailure {
        RbdFailure { errno: Some(errno), ..RbdFailure::text(action) }
    }

    fn taken(owner: String) -> RbdFailure {
        RbdFailure { owner: Some(owner), ..RbdFailure::text("take its exclusive lock") }
    }

    fn of(self, image: &RbdImage) -> OpenError {
        let problem = self.to_string();
        let image = image.to_string();
        match self.owner {
            Some(owner) => OpenError::Taken { image, owner },
            None => OpenError::Rbd { image, problem },
        }
    }
}

impl fmt::Display for RbdFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errno {
            None => f.write_str(&self.action),
            Some(errno) => {
                write!(f, "cannot {}: {}", self.action, io::Error::from_raw_os_error(errno))
            }
        }
    }
}

/// A store in an image of a Ceph cluster.
#[derive(Debug)]
pub struct RbdStore {
    spec: RbdImage,
    image: Arc<OpenImage>,
    size: Size,
    limits: BlockLimits,
    identity: u128,
    /// True if the image was created when it was opened.
    is_new: bool,
    access: ImageAccess,
    /// True while the image is rolled back.
    is_resting: AtomicBool,
    queries: StoreAllocationQueries,
}

/// Ownership of the image by the store.
#[derive(Debug)]
enum ImageAccess {
    /// The store owns it for life.
    Alone,
    /// The store owns it, and may lose it.
    Owned(OwnedImage),
    /// Another target owns it.
    Observed(ObservedImage),
}

impl RbdStore {
    /// Opens an image, and creates it before if that is wanted. Waits for the cluster.
    ///
    /// # Errors
    /// Fails if librbd, the cluster, its pool or the image is missing, if another client has the image, or without
    /// permission.
    pub fn open(spec: &RbdImage, lba_bytes: u32, read_only: bool) -> Result<RbdStore, OpenError> {
        let failed = |failure: RbdFailure| failure.of(spec);
        let connect = if spec.shared { CephPool::connect_alone } else { CephPool::connect };
        let pool = connect(spec).map_err(failed)?;
        let is_new = match spec.create {
            Some(bytes) => OpenImage::create(&pool, &spec.image, bytes).map_err(failed)?,
            None => false,
        };
        // From here on the image is closed when it is dropped.
        let image = Arc::new(OpenImage::open(pool, spec, read_only).map_err(failed)?);
        let access = match (spec.shared, image.read_only()) {
            (true, false) => ImageAccess::Owned(
                OwnedImage::take(&image, OwnershipTiming::default()).map_err(failed)?,
            ),
            (_, read_only) => {
                if !read_only {
                    image.lock().map_err(failed)?;
                }
                ImageAccess::Alone
            }
        };
        RbdStore::new(spec, image, lba_bytes, (access, is_new))
    }

    /// Observes an image that another target has, until it can be opened.
    ///
    /// # Errors
    /// Fails if the image does not exist, or cannot be opened.
    pub(crate) fn observe(spec: &RbdImage, lba_bytes: u32) -> Result<RbdStore, OpenError> {
        let failed = |failure: RbdFailure| failure.of(spec);
        let pool = CephPool::connect_to_break(spec).map_err(failed)?;
        let image = Arc::new(OpenImage::open(pool, spec, false).map_err(failed)?);
        let watched =
            ObservedImage::begin(image.clone(), OwnershipTiming::default()).map_err(failed)?;
        RbdStore::new(spec, image, lba_bytes, (ImageAccess::Observed(watched), false))
    }

    fn new(
        spec: &RbdImage,
        image: Arc<OpenImage>,
        lba_bytes: u32,
        (access, is_new): (ImageAccess, bool),
    ) -> Result<RbdStore, OpenError> {
        let failed = |failure: RbdFailure| failure.of(spec);
        let bytes = image.bytes().map_err(failed)?;
        let size = Size::whole("rbd", bytes, lba_bytes, image.read_only())?;
        let limits = limits(image.stripe_bytes().map_err(failed)?, size.geometry().lba_shift);
        let identity = image.identity(spec.snapshot.as_deref()).map_err(failed)?;
        Ok(RbdStore {
            spec: spec.clone(),
            image,
            size,
            limits,
            identity,
            is_new,
            access,
            is_resting: AtomicBool::new(false),
            queries: StoreAllocationQueries::default(),
        })
    }

    /// Returns the current size, if the cluster is reachable; a query would block otherwise.
    fn bytes_now(&self) -> Result<u64, RbdFailure> {
        match self.ownership() {
            BlockOwnership::Ours | BlockOwnership::Theirs => self.image.bytes(),
            _ => Ok(self.geometry().bytes()),
        }
    }
}

impl Store for RbdStore {
    fn geometry(&self) -> StoreGeometry {
        self.size.geometry()
    }

    fn identity(&self) -> Result<u128, OpenError> {
        Ok(self.identity)
    }

    fn submit(
        &self,
        op: StoreOperation,
        buffer: Option<Buffer>,
        token: StoreToken,
        io: &mut StoreIo<'_>,
    ) {
        match self.geometry().check(&op, buffer.as_ref()) {
            _ if self.is_resting.load(Ordering::Relaxed) => {
                io.complete(crate::StoreCompletion::new(
                    token,
                    Err(Status::ANA_INACCESSIBLE),
                    buffer,
                ));
            }
            Ok(()) if let StoreOperation::QueryAllocation { range } = op => {
                let (image, lba_shift) = (self.image.clone(), self.geometry().lba_shift);
                self.queries.begin((range, lba_shift), buffer, token, io, move |found| {
                    allocated::find(&image, found)
                });
            }
            Ok(()) => {
                let image = self.image.clone();
                RbdOperation::new((op, buffer), token, io.completions(), image).begin();
            }
            Err(status) => io.complete(crate::StoreCompletion::new(token, Err(status), buffer)),
        }
    }

    fn limits(&self) -> BlockLimits {
        self.limits
    }

    /// librbd reports extents of an encrypted image as it is stored, at other offsets.
    fn reports_allocation(&self) -> bool {
        !self.image.is_encrypted()
    }

    fn sync(&self) -> io::Result<()> {
        self.image.flush().map_err(|failure| io::Error::other(failure.to_string()))
    }

    fn ownership(&self) -> BlockOwnership {
        match &self.access {
            ImageAccess::Alone => BlockOwnership::Ours,
            ImageAccess::Owned(held) => held.ownership(&self.image, clock::now()),
            ImageAccess::Observed(watched) => watched.ownership(),
        }
    }

    fn take_over(&self) -> Result<(), OpenError> {
        match &self.access {
            ImageAccess::Observed(watched) => {
                watched.seize();
                Ok(())
            }
            _ => Err(OpenError::Unfenceable),
        }
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        self.spec.snapshot.is_none().then_some(self)
    }

    fn release(&self) {
        if let ImageAccess::Owned(held) = &self.access {
            held.end();
        }
        if self.ownership() != BlockOwnership::Ours {
            return;
        }
        if let Err(failure) = self.image.unlock() {
            warn!(image = %self.spec, "others have to wait until its lock is released: {failure}");
        }
    }

    fn plan(&self, bytes: Option<u64>) -> Result<Resize, OpenError> {
        let from = self.geometry().bytes();
        let failed = |failure: RbdFailure| failure.of(&self.spec);
        let now = self.bytes_now().map_err(failed)?;
        if matches!(self.access, ImageAccess::Owned(_)) && self.ownership() == BlockOwnership::Ours
        {
            // Others may have enabled it again, which changes the header, like a new size.
            self.image.drop_object_map().map_err(failed)?;
        }
        let to = now >> self.geometry().lba_shift << self.geometry().lba_shift;
        let refused = |why: &str| Err(RbdFailure::text(why).of(&self.spec));
        match bytes {
            Some(bytes) if bytes < to => {
                refused("is not made smaller from here: use `rbd resize`, the target follows it")
            }
            Some(bytes) if bytes > to && self.ownership() != BlockOwnership::Ours => {
                refused("is another gateway's: resize it there, or use `rbd resize`")
            }
            Some(bytes) => {
                block_access::whole_blocks("rbd", bytes, 1 << self.geometry().lba_shift)?;
                Ok(Resize::to(from, bytes))
            }
            None => Ok(Resize::to(from, to)),
        }
    }

    /// Grows the image. It stays grown even if the resize fails: other gateways have seen the size, and their hosts may
    /// use it.
    fn stage(&self, resize: &mut Resize) -> Result<(), OpenError> {
        let failed = |failure: RbdFailure| failure.of(&self.spec);
        if resize.to > resize.from && resize.to > self.bytes_now().map_err(failed)? {
            self.image.grow(resize.to).map_err(failed)?;
        }
        Ok(())
    }

    fn watch_size(&self, watcher: Weak<SizeWatcher>) {
        if let Err(failure) = self.image.watch(watcher) {
            warn!(image = %self.spec, "another size is seen at a reload only: {failure}");
        }
    }

    fn switch(&self, resize: &Resize) {
        self.size.switch(resize);
    }

    fn undo_opening(&self) {
        if self.is_new {
            self.image.remove_on_close();
        }
    }
}

/// Returns the limits of an image with stripes of `stripe` bytes.
fn limits(stripe: u64, lba_shift: u8) -> BlockLimits {
    let limits = BlockLimits {
        write_bytes: GRANULARITY,
        optimal_bytes: GRANULARITY,
        discard_bytes: GRANULARITY,
        boundary_bytes: u32::try_from(stripe).unwrap_or(0),
        ..BlockLimits::default()
    };
    if limits.check(lba_shift).is_ok() { limits } else { BlockLimits::default() }
}

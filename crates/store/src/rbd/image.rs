//! An open image.

use super::closing::ClosingImage;
use super::cluster::{CephPool, LIBRBD_FENCES, SPARSE_READS, c_text, check};
use super::encryption;
use super::in_flight::InFlightOperations;
use super::library::{
    CephHandle, ConfigOption, EXCLUSIVE, FEATURE_EXCLUSIVE_LOCK, FEATURES_OBJECT_MAP, FROM_IMAGE,
    FROM_POOL, ImageWatcher, Rbd, text,
};
use super::{RbdFailure, RbdImage};
use crate::{SizeWatcher, StoreOperation};
use roadtrain_proto::digest::digest;
use roadtrain_wire::status::Status;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use tracing::{error, warn};

/// Buffer for an image's identifier, in bytes; larger than any.
const ID_BYTES: usize = 256;
/// Advice for a missing permission.
const RIGHTS: &str =
    "the cluster does not let us: the user needs mon 'profile rbd' osd 'profile rbd pool=POOL'";
/// Initial room for options of an image: more than librbd has.
const OPTIONS: c_int = 256;
/// Most owners of a lock that are queried.
const OWNERS_MAX: usize = 8;
/// Initial room for watchers of an image.
const WATCHERS: usize = 64;

/// An open image, closed when the last operation has ended.
#[derive(Debug)]
pub(super) struct OpenImage {
    open: ImageHandles,
    /// Name for people.
    name: String,
    read_only: bool,
    /// Bytes of the header of an encrypted image, which are no blocks of it.
    encrypted_header_bytes: Option<u64>,
    /// True once an error of the image was logged.
    is_logged: AtomicBool,
    /// True once another client has taken it, and the cluster refuses all operations of this one.
    is_lost: AtomicBool,
    /// Operations in flight of an image that several targets reach.
    in_flight: Option<InFlightOperations>,
    /// True if the image was created for an opening that is not used: it is removed when it is closed.
    removes_on_close: AtomicBool,
}

/// Handles to be closed.
#[derive(Debug)]
struct ImageHandles {
    /// Pool; `None` once the closing thread has it.
    pool: Option<Arc<CephPool>>,
    rbd: &'static Rbd,
    image: CephHandle,
    watch: Mutex<Option<UpdateWatch>>,
}

/// Callback of librbd for a changed image.
#[derive(Debug)]
struct UpdateWatch {
    handle: u64,
    /// Freed when librbd does not call it any more.
    watcher: *mut Weak<SizeWatcher>,
}

// SAFETY: librbd serialises all uses of its handles; the pointer in `watch` is only freed, once.
unsafe impl Send for ImageHandles {}
// SAFETY: as above.
unsafe impl Sync for ImageHandles {}

impl OpenImage {
    /// Opens it. A writer has to [lock](OpenImage::lock) it. Blocks the thread.
    pub(super) fn open(
        pool: CephPool,
        spec: &RbdImage,
        read_only: bool,
    ) -> Result<OpenImage, RbdFailure> {
        let (rbd, name): (&'static Rbd, _) = (&pool.ceph().rbd, c_text(&spec.image)?);
        let snapshot = spec.snapshot.as_deref().map(c_text).transpose()?;
        let snapshot = snapshot.as_ref().map_or(null(), |snapshot| snapshot.as_ptr());
        let read_only = read_only || spec.snapshot.is_some();
        let open = if read_only { rbd.rbd_open_read_only } else { rbd.rbd_open };
        let mut image = null_mut();
        // SAFETY: the pool is open, the place is ours, the names end with NUL.
        let result = unsafe { open(pool.io(), name.as_ptr(), &mut image, snapshot) };
        match (-result, &spec.snapshot) {
            (libc::ENOENT, Some(snapshot)) => {
                return Err(RbdFailure::text(format!(
                    "there is no such image or snapshot @{snapshot}"
                )));
            }
            (libc::ENOENT, None) => {
                return Err(RbdFailure::text(
                    "there is no such image: give create=SIZE to have it made, or see `rbd ls`",
                ));
            }
            (libc::EPERM | libc::EACCES, _) => {
                return Err(RbdFailure::text(format!("cannot open it: {RIGHTS}")));
            }
            _ => check(result, "open it")?,
        }
        let mut image = OpenImage {
            open: ImageHandles { pool: Some(Arc::new(pool)), rbd, image, watch: Mutex::default() },
            name: spec.to_string(),
            read_only,
            encrypted_header_bytes: None,
            is_logged: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            in_flight: spec.shared.then(InFlightOperations::default),
            removes_on_close: AtomicBool::new(false),
        };
        image.check_configuration(spec)?;
        if let Some(passphrase) = &spec.passphrase {
            let raw_bytes = image.bytes()?;
            encryption::functions().open(image.handle(), passphrase)?;
            image.encrypted_header_bytes = Some(raw_bytes.saturating_sub(image.bytes()?));
        }
        Ok(image)
    }

    /// True if librbd decrypts it.
    pub(super) fn is_encrypted(&self) -> bool {
        self.encrypted_header_bytes.is_some()
    }

    /// Checks the options of image and pool, which have precedence over ours. With a cache, completed writes would be
    /// lost in a crash, though hosts read that there is none. A single owner gets the image from a dead owner by
    /// librbd, which has to fence that one. Of a snapshot only the options of an encrypted image matter.
    fn check_configuration(&self, spec: &RbdImage) -> Result<(), RbdFailure> {
        let is_alone = !self.read_only && self.in_flight.is_none();
        let (is_snapshot, is_encrypted) = (spec.snapshot.is_some(), spec.passphrase.is_some());
        if is_snapshot && !is_encrypted {
            return Ok(());
        }
        for (option, value, source) in self.configuration()? {
            let is_on = || matches!(value.to_lowercase().as_str(), "true" | "1");
            let is_off = || matches!(value.to_lowercase().as_str(), "false" | "0");
            let cached = ("a cache is configured for it", "a crash would lose what was written");
            let unfenced = ("owners are not fenced", "one that is gone could write it later");
            let dense = ("small reads are not sparse", "unwritten blocks would not be zeroes");
            let (problem, harm) = match option.as_str() {
                SPARSE_READS if is_encrypted && value != "1" => dense,
                _ if is_snapshot => continue,
                "rbd_cache" if !is_off() => cached,
                "rbd_persistent_cache_mode" if value != "disabled" => cached,
                LIBRBD_FENCES if is_alone && !is_on() => unfenced,
                _ => continue,
            };
            let remedy = match source {
                FROM_IMAGE => format!("image remove {}", self.name),
                FROM_POOL => {
                    format!("pool remove {}", self.name.split('/').next().unwrap_or_default())
                }
                _ => "global remove client".to_owned(),
            };
            return Err(RbdFailure::text(format!(
                "{problem} ({option} = {value}), so that {harm}: `rbd config {remedy} {option}`"
            )));
        }
        Ok(())
    }

    /// Returns the options in force: name, value, and source.
    fn configuration(&self) -> Result<Vec<(String, String, c_int)>, RbdFailure> {
        let (rbd, mut count) = (self.rbd(), OPTIONS);
        let mut options = Vec::new();
        loop {
            options.resize(count as usize, ConfigOption::default());
            // SAFETY: the image is open, and there is room for that many.
            let result = unsafe {
                (rbd.rbd_config_image_list)(self.handle(), options.as_mut_ptr(), &mut count)
            };
            match -result {
                libc::ERANGE if count as usize > options.len() => {}
                _ => break check(result, "read its configuration")?,
            }
        }
        // SAFETY: librbd has made the texts for us.
        let text =
            |text: *mut c_char| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        options.truncate(count as usize);
        let read =
            options.iter().map(|one| (text(one.name), text(one.value), one.source)).collect();
        // SAFETY: as many as librbd has made.
        unsafe { (rbd.rbd_config_image_list_cleanup)(options.as_mut_ptr(), count) };
        Ok(read)
    }

    /// Creates it, if it does not exist. True if it was created.
    pub(super) fn create(pool: &CephPool, name: &str, bytes: u64) -> Result<bool, RbdFailure> {
        let (rbd, name) = (&pool.ceph().rbd, c_text(name)?);
        let mut options = null_mut();
        // SAFETY: the place is ours.
        unsafe { (rbd.rbd_image_options_create)(&mut options) };
        // SAFETY: the pool is open, the name ends with NUL, the options were just made.
        let result = unsafe { (rbd.rbd_create4)(pool.io(), name.as_ptr(), bytes, options) };
        // SAFETY: the options have no other user any more.
        unsafe { (rbd.rbd_image_options_destroy)(options) };
        match -result {
            libc::EEXIST => Ok(false),
            libc::EPERM | libc::EACCES => {
                Err(RbdFailure::text(format!("cannot make it: {RIGHTS}")))
            }
            _ => check(result, "make it").map(|()| true),
        }
    }

    /// Marks a new image that is not used: it is removed when it is closed.
    pub(super) fn remove_on_close(&self) {
        self.removes_on_close.store(true, Ordering::Relaxed);
    }

    pub(super) fn rbd(&self) -> &'static Rbd {
        self.open.rbd
    }

    pub(super) fn handle(&self) -> CephHandle {
        self.open.image
    }

    pub(super) fn read_only(&self) -> bool {
        self.read_only
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn pool(&self) -> &Arc<CephPool> {
        self.open.pool.as_ref().expect("there until it is closed")
    }

    pub(super) fn in_flight(&self) -> Option<&InFlightOperations> {
        self.in_flight.as_ref()
    }

    /// True if another client has taken it.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Records that another client has taken it.
    pub(super) fn set_lost(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
        self.pool().is_refused();
    }

    /// Takes the exclusive lock: another client that wants to write sees it, and waits or fails.
    pub(super) fn lock(&self) -> Result<(), RbdFailure> {
        if self.features()? & FEATURE_EXCLUSIVE_LOCK == 0 {
            warn!(image = %self.name, "has no exclusive lock, so that nothing keeps others from writing it: \
                `rbd feature enable {} exclusive-lock`", self.name);
            return Ok(());
        }
        // SAFETY: the image is open.
        let result = unsafe { (self.rbd().rbd_lock_acquire)(self.handle(), EXCLUSIVE) };
        match -result {
            libc::EROFS | libc::EBUSY | libc::ETIMEDOUT => {
                let owner = self.owner().ok().flatten();
                Err(RbdFailure::taken(owner.unwrap_or_else(|| "another client".into())))
            }
            _ => check(result, "take its exclusive lock"),
        }
    }

    /// Takes the lock away from `owner`. When this returns the cluster refuses all operations of that client, including
    /// those in flight.
    pub(super) fn break_lock(&self, owner: &str) -> Result<(), RbdFailure> {
        self.pool().fence(owner)?;
        let owner = c_text(owner)?;
        // SAFETY: the image is open, the name ends with NUL.
        let result =
            unsafe { (self.rbd().rbd_lock_break)(self.handle(), EXCLUSIVE, owner.as_ptr()) };
        match -result {
            // The owner has released it itself.
            libc::ENOENT => Ok(()),
            _ => check(result, "break its lock"),
        }
    }

    /// Disables the object map. By that map a fenced owner that does not know it would answer without the cluster.
    /// Reads of parts that were unwritten at its last check would return zeroes, and Write Zeroes there would succeed.
    pub(super) fn drop_object_map(&self) -> Result<(), RbdFailure> {
        let there = self.features()? & FEATURES_OBJECT_MAP;
        if there == 0 {
            return Ok(());
        }
        warn!(image = %self.name, "its features object-map and fast-diff are switched off: what several targets reach \
            must not be answered from a map");
        // SAFETY: the image is open, and we have the lock.
        let result = unsafe { (self.rbd().rbd_update_features)(self.handle(), there, 0) };
        check(result, "switch its object map off")
    }

    /// Checks that the image can have a lock, which an image for several targets needs.
    pub(super) fn check_lockable(&self) -> Result<(), RbdFailure> {
        match self.features()? & FEATURE_EXCLUSIVE_LOCK {
            0 => Err(RbdFailure::text(format!(
                "cannot be shared without a lock: `rbd feature enable {} exclusive-lock`",
                self.name
            ))),
            _ => Ok(()),
        }
    }

    /// Releases the lock: others may write it from now on.
    pub(super) fn unlock(&self) -> Result<(), RbdFailure> {
        if self.read_only || self.features()? & FEATURE_EXCLUSIVE_LOCK == 0 {
            return Ok(());
        }
        // SAFETY: the image is open.
        check(unsafe { (self.rbd().rbd_lock_release)(self.handle()) }, "give its lock up")
    }

    /// Returns the owner of its lock.
    pub(super) fn owner(&self) -> Result<Option<String>, RbdFailure> {
        let (mut mode, mut owners, mut count) = (0, [null_mut::<c_char>(); OWNERS_MAX], OWNERS_MAX);
        let rbd = self.rbd();
        // SAFETY: the image is open, and there is room for that many.
        let result = unsafe {
            (rbd.rbd_lock_get_owners)(self.handle(), &mut mode, owners.as_mut_ptr(), &mut count)
        };
        match -result {
            libc::ENOENT => return Ok(None),
            _ => check(result, "query the owner of its lock")?,
        }
        let first = owners.first().filter(|owner| count > 0 && !owner.is_null());
        // SAFETY: librbd has made the text for us.
        let name =
            first.map(|&owner| unsafe { CStr::from_ptr(owner) }.to_string_lossy().into_owned());
        // SAFETY: as many as librbd has made.
        unsafe { (rbd.rbd_lock_get_owners_cleanup)(owners.as_mut_ptr(), count) };
        Ok(name)
    }

    /// True if the client at `address` has it open, according to its watch of the last half minute.
    pub(super) fn is_watched_by(&self, address: &str) -> Result<bool, RbdFailure> {
        let (rbd, mut count) = (self.rbd(), WATCHERS);
        let mut watchers = Vec::new();
        loop {
            watchers.resize_with(count, ImageWatcher::default);
            // SAFETY: the image is open, and there is room for that many.
            let result = unsafe {
                (rbd.rbd_watchers_list)(self.handle(), watchers.as_mut_ptr(), &mut count)
            };
            match -result {
                libc::ERANGE if count > watchers.len() => {}
                _ => break check(result, "query its watchers")?,
            }
        }
        let is_it = |watcher: &ImageWatcher| {
            // SAFETY: librbd has made the text for us.
            unsafe { CStr::from_ptr(watcher.address) }.to_bytes() == address.as_bytes()
        };
        let is_there = watchers.iter().take(count).any(is_it);
        // SAFETY: as many as librbd has made.
        unsafe { (rbd.rbd_watchers_list_cleanup)(watchers.as_mut_ptr(), count) };
        Ok(is_there)
    }

    fn number(
        &self,
        read: unsafe extern "C" fn(CephHandle, *mut u64) -> c_int,
        what: &str,
    ) -> Result<u64, RbdFailure> {
        let mut number = 0;
        // SAFETY: the image is open, the place is ours.
        check(unsafe { read(self.handle(), &mut number) }, what).map(|()| number)
    }

    /// Returns the size in bytes. Blocks the thread, if others have changed it.
    pub(super) fn bytes(&self) -> Result<u64, RbdFailure> {
        self.number(self.rbd().rbd_get_size, "read its size")
    }

    /// Grows it to `bytes`, and never shrinks it. Blocks the thread.
    pub(super) fn grow(&self, bytes: u64) -> Result<(), RbdFailure> {
        let resize = |bytes| {
            // SAFETY: the image is open.
            let result = unsafe {
                (self.rbd().rbd_resize2)(self.handle(), bytes, false, progressed, null_mut())
            };
            check(result, "make it larger")
        };
        match self.encrypted_header_bytes {
            // librbd of Ceph 16 and 17 counts the header, later ones do not.
            Some(header_bytes) => match resize(bytes) {
                Ok(()) if self.bytes()? >= bytes => Ok(()),
                _ => resize(bytes + header_bytes),
            },
            None => resize(bytes),
        }
    }

    fn features(&self) -> Result<u64, RbdFailure> {
        self.number(self.rbd().rbd_get_features, "read its features")
    }

    /// Returns the bytes in one object, or in one part of one if it is striped.
    pub(super) fn stripe_bytes(&self) -> Result<u64, RbdFailure> {
        self.number(self.rbd().rbd_get_stripe_unit, "read its layout")
    }

    /// True if it lies in its objects in order, without striping.
    pub(super) fn has_plain_layout(&self) -> bool {
        let count = self.number(self.rbd().rbd_get_stripe_count, "read its layout");
        count.is_ok_and(|count| count == 1)
    }

    /// Returns a number that is unique among the images of all clusters.
    pub(super) fn identity(&self, snapshot: Option<&str>) -> Result<u128, RbdFailure> {
        let (cluster, pool) = self.pool().identity()?;
        let place = format!("{cluster} {pool} {}", self.id()?);
        // Hosts must not take ciphertext and plain text of one image for the same blocks.
        let form: &[u8] = if self.is_encrypted() { b"\0decrypted" } else { b"" };
        let snapshot = snapshot.unwrap_or_default().as_bytes();
        Ok(digest(&[b"rbd\0", place.as_bytes(), b"@", snapshot, form]))
    }

    /// Returns its identifier in the pool, independent of its name.
    pub(super) fn id(&self) -> Result<String, RbdFailure> {
        let mut bytes = [0; ID_BYTES];
        // SAFETY: the image is open, and at most that many bytes are written.
        let result = unsafe {
            (self.rbd().rbd_get_id)(self.handle(), bytes.as_mut_ptr().cast(), bytes.len())
        };
        check(result, "identify it").map(|()| text(&bytes))
    }

    /// Writes all completed data to stable storage. Blocks the thread.
    pub(super) fn flush(&self) -> Result<(), RbdFailure> {
        // SAFETY: the image is open.
        check(unsafe { (self.rbd().rbd_flush)(self.handle()) }, "flush it")
    }

    /// Calls `watcher` when its header has changed, perhaps its size. To be called once.
    pub(super) fn watch(&self, watcher: Weak<SizeWatcher>) -> Result<(), RbdFailure> {
        let mut watch = self.open.watch.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut handle, watcher) = (0, Box::into_raw(Box::new(watcher)));
        // SAFETY: the image is open, and the watcher stays until the watch has ended.
        let result = unsafe {
            (self.rbd().rbd_update_watch)(self.handle(), &mut handle, changed, watcher.cast())
        };
        check(result, "watch it").inspect_err(|_| {
            // SAFETY: librbd has not taken it.
            drop(unsafe { Box::from_raw(watcher) });
        })?;
        *watch = Some(UpdateWatch { handle, watcher });
        Ok(())
    }

    /// Converts an error to the status for hosts.
    pub(super) fn status(&self, errno: c_int, op: &StoreOperation) -> Status {
        match errno {
            // Another client has taken it over, and the cluster refuses all operations of this one: another target may
            // serve.
            libc::ESHUTDOWN => {
                self.log_once("another client has taken it over: the cluster has blocklisted us");
                self.set_lost();
                Status::ANA_INACCESSIBLE
            }
            libc::EROFS if !self.read_only => {
                self.log_once("another client has its exclusive lock");
                self.set_lost();
                Status::ANA_INACCESSIBLE
            }
            libc::EROFS => Status::NAMESPACE_WRITE_PROTECTED.dnr(),
            libc::ENOSPC | libc::EDQUOT => {
                self.log_once("the cluster, its pool or a quota is full: make room");
                Status::CAPACITY_EXCEEDED.dnr()
            }
            libc::EPERM | libc::EACCES => {
                self.log_once("the cluster denies the operation: check the user's capabilities");
                Status::ACCESS_DENIED.dnr()
            }
            libc::EINVAL => Status::LBA_OUT_OF_RANGE.dnr(),
            _ => {
                let why = std::io::Error::from_raw_os_error(errno);
                error!(image = %self.name, ?op, "{why}");
                // The result of a write is unknown, so hosts must not retry it on other paths.
                match op.changes() {
                    true => Status::WRITE_FAULT.dnr(),
                    false => Status::UNRECOVERED_READ_ERROR.dnr(),
                }
            }
        }
    }

    fn log_once(&self, what: &str) {
        if !self.is_logged.swap(true, Ordering::Relaxed) {
            error!(image = %self.name, "{what}");
        }
    }
}

impl Drop for OpenImage {
    /// Releases the lock. That blocks, and this may be librbd's own thread: so another one does it.
    fn drop(&mut self) {
        let pool = self.open.pool.take();
        let watch = self.open.watch.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let ImageHandles { rbd, image, .. } = self.open;
        let open = ImageHandles { pool, rbd, image, watch: Mutex::new(watch) };
        let name = std::mem::take(&mut self.name);
        let removes_on_close = *self.removes_on_close.get_mut();
        let closing = ClosingImage::begin();
        let close = move || {
            open.close(&name, removes_on_close);
            drop(closing);
        };
        if let Err(error) = thread::Builder::new().name("roadtrain-rbd".into()).spawn(close) {
            error!("an image is not closed: {error}");
        }
    }
}

impl ImageHandles {
    fn close(self, name: &str, removes_on_close: bool) {
        let ImageHandles { pool, rbd, image, watch } = self;
        if let Some(UpdateWatch { handle, watcher }) = watch.into_inner().ok().flatten() {
            // SAFETY: the image is open, and has returned the handle.
            unsafe { (rbd.rbd_update_unwatch)(image, handle) };
            // SAFETY: librbd does not call it any more.
            drop(unsafe { Box::from_raw(watcher) });
        }
        // SAFETY: the image is open, and not used after this.
        unsafe { (rbd.rbd_close)(image) };
        let Some(pool) = pool.filter(|_| removes_on_close) else { return };
        let short = name.rsplit('/').next().unwrap_or_default();
        let removed = c_text(short).and_then(|short| {
            // SAFETY: the pool is open, the name ends with NUL.
            check(unsafe { (rbd.rbd_remove)(pool.io(), short.as_ptr()) }, "remove it")
        });
        if let Err(failure) = removed {
            warn!(image = name, "was made, and stays: {failure}");
        }
    }
}

/// Ignores the progress of an operation; librbd calls this.
unsafe extern "C" fn progressed(_: u64, _: u64, _: *mut c_void) -> c_int {
    0
}

/// Handles a change of an image's header; librbd calls this on one of its threads.
unsafe extern "C" fn changed(watcher: *mut c_void) {
    // SAFETY: `watch` has passed the pointer, which is valid until the watch has ended.
    let watcher = unsafe { &*watcher.cast::<Weak<SizeWatcher>>() };
    if let Some(watcher) = watcher.upgrade() {
        watcher();
    }
}

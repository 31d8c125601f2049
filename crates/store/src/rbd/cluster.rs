//! Connections to Ceph clusters, which images share, and their pools.

use super::conf::CheckedConf;
use super::library::{Ceph, CephHandle, ceph, text};
use super::{RbdFailure, RbdImage};
use std::collections::HashMap;
use std::ffi::{CString, c_int};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

/// Longest attempt to reach a monitor, in seconds: librados would take five minutes.
const CONNECT_SECONDS: &str = "10";
/// Duration of a fence, in seconds: a year. When it ends no write of that client may be in flight any more. A machine
/// that was cut off or suspended sends old writes when it resumes.
const FENCE_SECONDS: u32 = 365 * 24 * 3600;
/// Option: librbd fences the owner of a lock that it breaks.
pub(super) const LIBRBD_FENCES: &str = "rbd_blocklist_on_break_lock";
/// Option: least bytes of a read that distinguishes written parts of an object from others. librbd decrypts what other
/// reads return, also of parts that were never written. (0 stands for a whole object.)
pub(super) const SPARSE_READS: &str = "rbd_sparse_read_threshold_bytes";
/// Bytes of the cluster's identifier, a UUID as text.
const FSID_BYTES: usize = 37;

/// Options that are set before connecting. Without the caches in memory and on a local disk a completed write is on all
/// replicas. Options of image or pool have precedence ([`OpenImage::open`](super::image::OpenImage::open)). One network
/// thread is enough for a reactor, and costs least. librbd needs two others: with one of them `rbd snap unprotect` of
/// any client deadlocks. A client that takes over the lock of a dead owner fences it. Data is copied when it is
/// submitted, so a buffer may be reused before librbd is done.
const SETTINGS: [(&str, &str); 8] = [
    ("client_mount_timeout", CONNECT_SECONDS),
    ("rbd_cache", "false"),
    ("rbd_plugins", ""),
    ("rbd_persistent_cache_mode", "disabled"),
    ("ms_async_op_threads", "1"),
    ("librados_thread_count", "2"),
    (LIBRBD_FENCES, "true"),
    ("rbd_disable_zero_copy_writes", "true"),
];

/// Configuration of a client: file, user, keyring, and the flags for a file named by RPC and for encrypted images.
type CephClient = (Option<PathBuf>, Option<String>, Option<PathBuf>, [bool; 2]);

/// Connections of this process that images share.
static SHARED: Mutex<Option<HashMap<CephClient, Vec<Weak<ClusterConnection>>>>> = Mutex::new(None);

/// A connection to a cluster, as a client of its own.
pub(super) struct ClusterConnection {
    ceph: &'static Ceph,
    cluster: CephHandle,
    /// True once the cluster refuses this client for ever.
    is_refused: AtomicBool,
}

// SAFETY: librados serialises all uses of its handles.
unsafe impl Send for ClusterConnection {}
// SAFETY: as above.
unsafe impl Sync for ClusterConnection {}

impl fmt::Debug for ClusterConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl ClusterConnection {
    /// Returns a connection that others use, too: at most as many of the same user as there are cores, the one with the
    /// fewest images.
    fn shared(image: &RbdImage) -> Result<Arc<ClusterConnection>, RbdFailure> {
        let flags = [image.conf_by_rpc, image.passphrase.is_some()];
        let client = (image.conf.clone(), image.id.clone(), image.keyring.clone(), flags);
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = shared.get_or_insert_default().entry(client).or_default();
        known.retain(|one| one.upgrade().is_some_and(|one| !one.is_refused()));
        let most = thread::available_parallelism().map_or(1, usize::from);
        let fewest = known.iter().min_by_key(|one| one.strong_count()).and_then(Weak::upgrade);
        if let Some(connection) = fewest.filter(|_| known.len() >= most) {
            return Ok(connection);
        }
        let connection = Arc::new(ClusterConnection::new(image)?);
        known.push(Arc::downgrade(&connection));
        Ok(connection)
    }

    /// Connects, which starts threads of librados. Called on a thread that may run on all cores. Blocks it.
    fn new(image: &RbdImage) -> Result<ClusterConnection, RbdFailure> {
        let ceph = ceph().map_err(RbdFailure::text)?;
        let id = image.id.as_deref().map(c_text).transpose()?;
        let mut cluster = null_mut();
        // SAFETY: the place for the handle is ours, the name ends with NUL or is null.
        let result = unsafe {
            (ceph.rados.rados_create)(&mut cluster, id.as_ref().map_or(null(), |id| id.as_ptr()))
        };
        check(result, "make a client")?;
        let connection = ClusterConnection { ceph, cluster, is_refused: AtomicBool::new(false) };
        connection.configure(image)?;
        // SAFETY: the handle was made above.
        let result = unsafe { (ceph.rados.rados_connect)(connection.cluster) };
        match result {
            0.. => Ok(connection),
            _ => Err(RbdFailure::text(unreachable(-result, image))),
        }
    }

    fn configure(&self, image: &RbdImage) -> Result<(), RbdFailure> {
        let checks = image.conf.as_deref().filter(|_| image.conf_by_rpc);
        let checked = checks.map(CheckedConf::read).transpose().map_err(RbdFailure::text)?;
        let path = checked.as_ref().map(CheckedConf::path).or_else(|| image.conf.clone());
        let file = path.as_deref().map(c_path).transpose()?;
        let place = file.as_ref().map_or(null(), |file| file.as_ptr());
        // SAFETY: handle and name are valid; without a name librados reads the usual files ($CEPH_CONF, /etc/ceph).
        let result = unsafe { (self.ceph.rados.rados_conf_read_file)(self.cluster, place) };
        if result < 0 {
            let file = match &image.conf {
                Some(file) => file.display().to_string(),
                None => "$CEPH_CONF or /etc/ceph/ceph.conf".into(),
            };
            let why = std::io::Error::from_raw_os_error(-result);
            return Err(RbdFailure::text(format!(
                "cannot read its configuration from {file}: {why}: name the file with conf=FILE"
            )));
        }
        for (name, value) in SETTINGS {
            self.set(name, value)?;
        }
        if image.passphrase.is_some() {
            self.set(SPARSE_READS, "1")?;
        }
        match image.keyring.as_deref() {
            Some(keyring) => self.set("keyring", &keyring.display().to_string()),
            None => Ok(()),
        }
    }

    fn set(&self, name: &str, value: &str) -> Result<(), RbdFailure> {
        let (option, text) = (c_text(name)?, c_text(value)?);
        // SAFETY: the handle is valid, both texts end with NUL.
        let set = unsafe {
            (self.ceph.rados.rados_conf_set)(self.cluster, option.as_ptr(), text.as_ptr())
        };
        check(set, &format!("set {name}"))
    }

    fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }
}

impl Drop for ClusterConnection {
    fn drop(&mut self) {
        // SAFETY: the handle is ours, and has no other user any more.
        unsafe { (self.ceph.rados.rados_shutdown)(self.cluster) };
    }
}

/// A pool, or a namespace of one.
#[derive(Debug)]
pub(super) struct CephPool {
    connection: Arc<ClusterConnection>,
    io: CephHandle,
}

// SAFETY: librados serialises all uses of its handles.
unsafe impl Send for CephPool {}
// SAFETY: as above.
unsafe impl Sync for CephPool {}

impl CephPool {
    /// Opens the pool over a connection that other images use, too: a fence of one affects all. Blocks the thread.
    pub(super) fn connect(image: &RbdImage) -> Result<CephPool, RbdFailure> {
        CephPool::open(ClusterConnection::shared(image)?, image)
    }

    /// Opens the pool over a connection of its own, which has the newest state of the cluster: its fences. Blocks the
    /// thread.
    pub(super) fn connect_alone(image: &RbdImage) -> Result<CephPool, RbdFailure> {
        let connection = ClusterConnection::new(image)?;
        // SAFETY: the handle is connected.
        let result =
            unsafe { (connection.ceph.rados.rados_wait_for_latest_osdmap)(connection.cluster) };
        check(result, "learn the state of its cluster")?;
        CephPool::open(Arc::new(connection), image)
    }

    /// Opens the pool of `image` over the connection of another one.
    pub(super) fn over_same_connection(
        pool: &CephPool,
        image: &RbdImage,
    ) -> Result<CephPool, RbdFailure> {
        CephPool::open(pool.connection.clone(), image)
    }

    fn open(connection: Arc<ClusterConnection>, image: &RbdImage) -> Result<CephPool, RbdFailure> {
        let name = c_text(&image.pool)?;
        let mut pool = CephPool { connection, io: null_mut() };
        let ClusterConnection { ceph, cluster, .. } = *pool.connection;
        let rados = &ceph.rados;
        // SAFETY: the handle is connected, the place is ours, the name ends with NUL.
        let result = unsafe { (rados.rados_ioctx_create)(cluster, name.as_ptr(), &mut pool.io) };
        match -result {
            libc::ENOENT => {
                let pool = &image.pool;
                return Err(RbdFailure::text(format!(
                    "there is no pool {pool}: see `ceph osd pool ls`"
                )));
            }
            _ => check(result, "open its pool")?,
        }
        // Without this a write to a full cluster waits for space, without any message.
        // SAFETY: the handle is valid.
        unsafe { (rados.rados_set_pool_full_try)(pool.io) };
        if let Some(namespace) = &image.namespace {
            let namespace = c_text(namespace)?;
            // SAFETY: the handle is valid, the name ends with NUL.
            unsafe { (rados.rados_ioctx_set_namespace)(pool.io, namespace.as_ptr()) };
        }
        Ok(pool)
    }

    pub(super) fn ceph(&self) -> &'static Ceph {
        self.connection.ceph
    }

    pub(super) fn io(&self) -> CephHandle {
        self.io
    }

    /// Records that the cluster refuses this client for ever: later images get another connection.
    pub(super) fn is_refused(&self) {
        self.connection.is_refused.store(true, Ordering::Relaxed);
    }

    pub(super) fn cluster(&self) -> CephHandle {
        self.connection.cluster
    }

    /// Sets an option of its connection, which must not be shared.
    pub(super) fn set(&self, name: &str, value: &str) -> Result<(), RbdFailure> {
        self.connection.set(name, value)
    }

    /// Opens the pool over a connection of its own for breaking locks: only [`CephPool::fence`] fences there. Blocks
    /// the thread.
    pub(super) fn connect_to_break(image: &RbdImage) -> Result<CephPool, RbdFailure> {
        let pool = CephPool::connect_alone(image)?;
        // librbd would fence a second time, which takes the cluster a second.
        pool.set(LIBRBD_FENCES, "false")?;
        Ok(pool)
    }

    /// Makes the cluster refuse all operations of the client at `address`, including those in flight. When it returns,
    /// this connection knows the fence. librbd also fences the owner of a broken lock, but as options of the image, the
    /// pool and the monitor say: for an hour, or not at all. Its duration is not set: the monitor does not understand
    /// the value of librbd 16. Of two fences of one client the first one decides when it ends.
    pub(super) fn fence(&self, address: &str) -> Result<(), RbdFailure> {
        let (rados, cluster) = (&self.ceph().rados, self.cluster());
        let address = c_text(address)?.into_raw();
        // SAFETY: the handle is connected, the text ends with NUL, and is not shared.
        let result = unsafe { (rados.rados_blocklist_add)(cluster, address, FENCE_SECONDS) };
        // SAFETY: the pointer was made above.
        drop(unsafe { CString::from_raw(address) });
        check(result, "have its owner fenced")?;
        // SAFETY: the handle is connected.
        let result = unsafe { (rados.rados_wait_for_latest_osdmap)(cluster) };
        check(result, "learn that its owner is fenced")
    }

    /// Returns the cluster's identifier and the pool's number: neither changes.
    pub(super) fn identity(&self) -> Result<(String, i64), RbdFailure> {
        let (mut bytes, ceph) = ([0; FSID_BYTES], self.ceph());
        // SAFETY: the handle is connected, and at most that many bytes are written.
        let result = unsafe {
            (ceph.rados.rados_cluster_fsid)(
                self.connection.cluster,
                bytes.as_mut_ptr().cast(),
                bytes.len(),
            )
        };
        check(result, "identify its cluster")?;
        // SAFETY: the handle is valid.
        Ok((text(&bytes), unsafe { (ceph.rados.rados_ioctx_get_id)(self.io) }))
    }
}

impl Drop for CephPool {
    fn drop(&mut self) {
        if !self.io.is_null() {
            // SAFETY: the handle is ours, and has no other user any more.
            unsafe { (self.ceph().rados.rados_ioctx_destroy)(self.io) };
        }
    }
}

fn unreachable(errno: c_int, image: &RbdImage) -> String {
    let user = image.id.as_deref().unwrap_or("admin");
    let why = std::io::Error::from_raw_os_error(errno);
    match errno {
        libc::ETIMEDOUT => format!(
            "no monitor answers within {CONNECT_SECONDS} s: does the cluster run, and are its addresses right (mon_host)?"
        ),
        libc::ENOENT | libc::EACCES | libc::EPERM | libc::EINVAL => format!(
            "the cluster does not let client.{user} in ({why}): is its key in the keyring (id=NAME, keyring=FILE)?"
        ),
        _ => format!("cannot reach the cluster as client.{user}: {why}"),
    }
}

/// Converts a negative result to an error.
pub(super) fn check(result: c_int, action: &str) -> Result<(), RbdFailure> {
    match result {
        0.. => Ok(()),
        _ => Err(RbdFailure::errno(action, -result)),
    }
}

pub(super) fn c_text(text: &str) -> Result<CString, RbdFailure> {
    CString::new(text).map_err(|_| RbdFailure::text("a name contains NUL"))
}

fn c_path(path: &Path) -> Result<CString, RbdFailure> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).map_err(|_| RbdFailure::text("a path contains NUL"))
}

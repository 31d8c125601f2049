//! A connection to a Ceph cluster, and a pool of it.

use super::library::{Ceph, Handle, ceph, text};
use super::{Failure, RbdImage};
use std::ffi::{CString, c_int};
use std::fmt;
use std::path::Path;
use std::ptr::{null, null_mut};

/// How long is tried to reach a monitor, in seconds: librados would take five minutes.
const CONNECT_SECONDS: &str = "10";
/// Of the cluster's identifier, a UUID as text.
const FSID_BYTES: usize = 37;

/// What is set before connecting. Without the cache a write that was answered is on all replicas. One thread of each
/// kind is enough for a reactor, and costs least.
const SETTINGS: [(&str, &str); 4] = [
    ("client_mount_timeout", CONNECT_SECONDS),
    ("rbd_cache", "false"),
    ("ms_async_op_threads", "1"),
    ("librados_thread_count", "1"),
];

/// A pool, or a namespace of one, over a connection of its own.
pub(super) struct Pool {
    ceph: &'static Ceph,
    cluster: Handle,
    io: Handle,
}

// SAFETY: librados serialises what its handles are used for.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool")
    }
}

impl Pool {
    /// Connects, which starts threads of librados: on a thread that may run on all cores. Waits for that.
    pub(super) fn connect(image: &RbdImage) -> Result<Pool, Failure> {
        let ceph = ceph().map_err(Failure::text)?;
        let id = image.id.as_deref().map(c_text).transpose()?;
        let mut cluster = null_mut();
        // SAFETY: the place for the handle is ours, the name ends with NUL or is none.
        let result = unsafe {
            (ceph.rados.rados_create)(&mut cluster, id.as_ref().map_or(null(), |id| id.as_ptr()))
        };
        check(result, "make a client")?;
        let mut pool = Pool { ceph, cluster, io: null_mut() };
        pool.configure(image)?;
        // SAFETY: the handle is the one that was made.
        let result = unsafe { (ceph.rados.rados_connect)(pool.cluster) };
        if result < 0 {
            return Err(Failure::text(unreachable(-result, image)));
        }
        pool.open(image)?;
        Ok(pool)
    }

    fn configure(&self, image: &RbdImage) -> Result<(), Failure> {
        let file = image.conf.as_deref().map(c_path).transpose()?;
        let place = file.as_ref().map_or(null(), |file| file.as_ptr());
        // SAFETY: handle and name are valid; without a name the usual files are read ($CEPH_CONF, /etc/ceph).
        let result = unsafe { (self.ceph.rados.rados_conf_read_file)(self.cluster, place) };
        if result < 0 {
            let file = match &image.conf {
                Some(file) => file.display().to_string(),
                None => "$CEPH_CONF or /etc/ceph/ceph.conf".into(),
            };
            let why = std::io::Error::from_raw_os_error(-result);
            return Err(Failure::text(format!(
                "cannot read its configuration from {file}: {why}: name the file with conf=FILE"
            )));
        }
        for (name, value) in SETTINGS {
            self.set(name, value)?;
        }
        match image.keyring.as_deref() {
            Some(keyring) => self.set("keyring", &keyring.display().to_string()),
            None => Ok(()),
        }
    }

    fn set(&self, name: &str, value: &str) -> Result<(), Failure> {
        let (option, text) = (c_text(name)?, c_text(value)?);
        // SAFETY: the handle is valid, both end with NUL.
        let set = unsafe {
            (self.ceph.rados.rados_conf_set)(self.cluster, option.as_ptr(), text.as_ptr())
        };
        check(set, &format!("set {name}"))
    }

    fn open(&mut self, image: &RbdImage) -> Result<(), Failure> {
        let name = c_text(&image.pool)?;
        let rados = &self.ceph.rados;
        // SAFETY: the handle is connected, the place is ours, the name ends with NUL.
        let result =
            unsafe { (rados.rados_ioctx_create)(self.cluster, name.as_ptr(), &mut self.io) };
        match -result {
            libc::ENOENT => {
                let pool = &image.pool;
                return Err(Failure::text(format!(
                    "there is no pool {pool}: see `ceph osd pool ls`"
                )));
            }
            _ => check(result, "open its pool")?,
        }
        // Without this a write to a full cluster waits for room, without a word to anybody.
        // SAFETY: the handle is valid.
        unsafe { (rados.rados_set_pool_full_try)(self.io) };
        if let Some(namespace) = &image.namespace {
            let namespace = c_text(namespace)?;
            // SAFETY: the handle is valid, the name ends with NUL.
            unsafe { (rados.rados_ioctx_set_namespace)(self.io, namespace.as_ptr()) };
        }
        Ok(())
    }

    pub(super) fn ceph(&self) -> &'static Ceph {
        self.ceph
    }

    pub(super) fn io(&self) -> Handle {
        self.io
    }

    /// The cluster's identifier and the pool's number: neither changes.
    pub(super) fn identity(&self) -> Result<(String, i64), Failure> {
        let mut octets = [0; FSID_BYTES];
        // SAFETY: the handle is connected, and at most that many octets are written.
        let result = unsafe {
            (self.ceph.rados.rados_cluster_fsid)(
                self.cluster,
                octets.as_mut_ptr().cast(),
                octets.len(),
            )
        };
        check(result, "identify its cluster")?;
        // SAFETY: the handle is valid.
        Ok((text(&octets), unsafe { (self.ceph.rados.rados_ioctx_get_id)(self.io) }))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: both are ours, and nothing uses them any more.
        unsafe {
            if !self.io.is_null() {
                (self.ceph.rados.rados_ioctx_destroy)(self.io);
            }
            (self.ceph.rados.rados_shutdown)(self.cluster);
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

/// A negative result is an error.
pub(super) fn check(result: c_int, action: &str) -> Result<(), Failure> {
    match result {
        0.. => Ok(()),
        _ => Err(Failure { action: action.to_owned(), errno: Some(-result) }),
    }
}

pub(super) fn c_text(text: &str) -> Result<CString, Failure> {
    CString::new(text).map_err(|_| Failure::text("a name contains NUL"))
}

fn c_path(path: &Path) -> Result<CString, Failure> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Failure::text("a path contains NUL"))
}

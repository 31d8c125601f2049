//! An object of a pool with a map of names and values, which several processes share: they change it atomically, and
//! are notified of changes.

use super::cluster::{CephPool, c_text, check};
use super::library::{CephHandle, Rados, Text, ceph};
use super::{RbdFailure, RbdImage};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, slice};

/// Longest wait for the cluster, in seconds. After that the result of a change is unknown.
const WAIT_SECONDS: &str = "20";
/// Most names of one reply of the cluster.
const NAMES_MAX: u64 = 1024;
/// `LIBRADOS_CMPXATTR_OP_EQ`
const EQUAL: u8 = 1;
/// `LIBRADOS_CREATE_IDEMPOTENT`
const IF_MISSING: c_int = 0;
/// `LIBRADOS_OPERATION_FULL_FORCE`: also while the pool is full. The written data is small, and replaces older data.
const ALSO_WHEN_FULL: c_int = 128;
/// Time after which the cluster drops a silent watcher, in seconds.
const WATCH_SECONDS: u32 = 10;

/// Names and values.
pub type ObjectMap = BTreeMap<String, Vec<u8>>;
/// Function that makes the reply to a notification from its payload.
pub type NotifyHandler = dyn Fn(&[u8]) -> Vec<u8> + Send + Sync;

/// Error of an object, with its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectError {
    object: String,
    problem: String,
    /// True if the cluster was not reached.
    is_connect: bool,
}

impl ObjectError {
    /// Makes an error of an object that a program keeps instead of the cluster, as tests do.
    #[must_use]
    pub fn new(object: &str, problem: &str) -> ObjectError {
        ObjectError { object: object.into(), problem: problem.into(), is_connect: false }
    }

    /// True if the cluster was not reached at all.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        self.is_connect
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rados:{}: {}", self.object, self.problem)
    }
}

impl std::error::Error for ObjectError {}

/// An object of a pool, over a connection of its own. Its map is empty while it does not exist.
#[derive(Debug)]
pub struct RadosObject {
    pool: Arc<CephPool>,
    object: CString,
    /// Name for people.
    name: String,
}

/// A conditional change of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectMapChange {
    /// Expected values; an empty one stands for a missing name.
    pub expected: ObjectMap,
    /// Names with their new values.
    pub set: ObjectMap,
    /// Names to remove.
    pub removed: Vec<String>,
}

/// Replies to a notification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotifyReplies {
    /// Replies that arrived in time.
    pub replies: Vec<Vec<u8>>,
    /// True if all watchers have replied.
    pub is_complete: bool,
}

impl RadosObject {
    /// Connects to the pool of `at`, with its access parameters; its image does not matter.
    ///
    /// # Errors
    /// Fails if librados, the cluster or its pool is missing, or without permission.
    pub fn open(at: &RbdImage, object: &str) -> Result<RadosObject, ObjectError> {
        let name = format!("{}/{object}", at.pool);
        let failed = |failure: RbdFailure| {
            let is_connect = ceph().is_ok();
            ObjectError { object: name.clone(), problem: failure.to_string(), is_connect }
        };
        let pool = CephPool::connect_alone(at).map_err(failed)?;
        pool.set("rados_osd_op_timeout", WAIT_SECONDS).map_err(failed)?;
        let object = c_text(object).map_err(failed)?;
        Ok(RadosObject { pool: Arc::new(pool), object, name })
    }

    fn rados(&self) -> &'static Rados {
        &self.pool.ceph().rados
    }

    fn failed(&self, failure: &RbdFailure) -> ObjectError {
        let problem = match failure.errno {
            Some(libc::ETIMEDOUT) => format!(
                "{failure}: the cluster does not answer within {WAIT_SECONDS} s, so what became of that is not known: \
                 see `ceph -s`"
            ),
            Some(libc::EPERM | libc::EACCES) => {
                format!("{failure}: the user needs osd 'profile rbd pool=POOL'")
            }
            _ => failure.to_string(),
        };
        ObjectError { object: self.name.clone(), problem, is_connect: false }
    }

    /// Returns all of the map whose names begin with `prefix`, as a consistent snapshot.
    ///
    /// # Errors
    /// Fails if the cluster does not return it, or if there are more than 1,024 names.
    pub fn read(&self, prefix: &str) -> Result<ObjectMap, ObjectError> {
        self.read_map(prefix).map_err(|failure| self.failed(&failure))
    }

    fn read_map(&self, prefix: &str) -> Result<ObjectMap, RbdFailure> {
        let (rados, prefix) = (self.rados(), c_text(prefix)?);
        // SAFETY: the call has no preconditions.
        let op = unsafe { (rados.rados_create_read_op)() };
        let (mut values, mut more, mut result) = (null_mut(), 0, 0);
        // SAFETY: the operation was just made, and the places stay until it is released.
        let done = unsafe {
            (rados.rados_read_op_omap_get_vals2)(
                op,
                c"".as_ptr(),
                prefix.as_ptr(),
                NAMES_MAX,
                &mut values,
                &mut more,
                &mut result,
            );
            (rados.rados_read_op_operate)(op, self.pool.io(), self.object.as_ptr(), 0)
        };
        let read = match done {
            _ if done == -libc::ENOENT => Ok(ObjectMap::new()),
            _ if more != 0 => {
                Err(RbdFailure::text("has more names than are expected: what else uses it?"))
            }
            _ => check(done.min(result), "read it").and_then(|()| take(rados, values)),
        };
        // SAFETY: both have no other user any more.
        unsafe {
            if !values.is_null() {
                (rados.rados_omap_get_end)(values);
            }
            (rados.rados_release_read_op)(op);
        }
        read
    }

    /// Makes a change, all of it or nothing. Returns `false` if a value is not as expected.
    ///
    /// # Errors
    /// Fails if the cluster refuses.
    pub fn change(&self, change: &ObjectMapChange) -> Result<bool, ObjectError> {
        self.change_map(change).map_err(|failure| self.failed(&failure))
    }

    fn change_map(&self, change: &ObjectMapChange) -> Result<bool, RbdFailure> {
        let rados = self.rados();
        // SAFETY: the call has no preconditions.
        let op = unsafe { (rados.rados_create_write_op)() };
        let mut compared = vec![0; change.expected.len()];
        let expected = change.expected.iter().zip(&mut compared);
        let removed = change.removed.iter().map(|name| name.as_bytes());
        let (removed, set) = (Texts::new(removed), &change.set);
        let names = Texts::new(set.keys().map(|name| name.as_bytes()));
        let values = Texts::new(set.values().map(Vec::as_slice));
        // SAFETY: the operation was just made, is released once, and copies its arguments except for the places of
        // results, which stay until then.
        let done = unsafe {
            (rados.rados_write_op_create)(op, IF_MISSING, null());
            for ((name, value), place) in expected {
                let (key, key_bytes) = (name.as_ptr().cast(), name.len());
                let (value, value_bytes) = (value.as_ptr().cast(), value.len());
                (rados.rados_write_op_omap_cmp2)(
                    op,
                    key,
                    EQUAL,
                    value,
                    key_bytes,
                    value_bytes,
                    place,
                );
            }
            let (keys, values, key_bytes) =
                (names.at.as_ptr(), values.at.as_ptr(), values.bytes.as_ptr());
            (rados.rados_write_op_omap_set2)(
                op,
                keys,
                values,
                names.bytes.as_ptr(),
                key_bytes,
                names.at.len(),
            );
            let (keys, key_bytes) = (removed.at.as_ptr(), removed.bytes.as_ptr());
            (rados.rados_write_op_omap_rm_keys2)(op, keys, key_bytes, removed.at.len());
            let object = self.object.as_ptr();
            let done = (rados.rados_write_op_operate2)(
                op,
                self.pool.io(),
                object,
                null_mut(),
                ALSO_WHEN_FULL,
            );
            (rados.rados_release_write_op)(op);
            done
        };
        match done {
            _ if done == -libc::ECANCELED => Ok(false),
            _ => check(done, "change it").map(|()| true),
        }
    }

    /// Answers notifications of the object with `handler` from now on, on a thread of librados. It must not block.
    ///
    /// # Errors
    /// Fails if the object does not exist, or without permission.
    pub fn watch(&self, handler: Box<NotifyHandler>) -> Result<ObjectWatch, ObjectError> {
        let (pool, object) = (self.pool.clone(), self.object.clone());
        let watcher =
            Box::new(ObjectWatcher { pool, object, handler, is_lost: AtomicBool::new(false) });
        let watcher = Box::into_raw(watcher);
        let (mut cookie, object) = (0, self.object.as_ptr());
        // SAFETY: the places are ours, and the watcher stays until the watch has ended.
        let result = unsafe {
            (self.rados().rados_watch3)(
                self.pool.io(),
                object,
                &mut cookie,
                notified,
                lost,
                WATCH_SECONDS,
                watcher.cast(),
            )
        };
        let watched = check(result, "watch it").map_err(|failure| self.failed(&failure));
        watched.inspect_err(|_| {
            // SAFETY: librados has not taken it.
            drop(unsafe { Box::from_raw(watcher) });
        })?;
        Ok(ObjectWatch { cookie, watcher })
    }

    /// Notifies all watchers, and returns the replies that arrive within `within`.
    ///
    /// # Errors
    /// Fails if the cluster does not deliver it.
    pub fn notify(&self, what: &[u8], within: Duration) -> Result<NotifyReplies, ObjectError> {
        let (mut reply, mut bytes) = (null_mut::<c_char>(), 0);
        let millis = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let (text, length) = (what.as_ptr().cast(), what.len() as c_int);
        // SAFETY: the payload is valid, and the places are ours.
        let result = unsafe {
            let (io, object) = (self.pool.io(), self.object.as_ptr());
            (self.rados().rados_notify2)(io, object, text, length, millis, &mut reply, &mut bytes)
        };
        let mut replies = Vec::new();
        if !reply.is_null() {
            // SAFETY: librados has returned that many bytes, which are freed once.
            unsafe {
                replies = parse_replies(slice::from_raw_parts(reply.cast(), bytes));
                (self.rados().rados_buffer_free)(reply);
            }
        }
        match -result {
            libc::ETIMEDOUT => Ok(NotifyReplies { replies, is_complete: false }),
            // The object does not exist, so it has no watchers.
            libc::ENOENT => Ok(NotifyReplies { replies, is_complete: true }),
            _ => check(result, "notify its watchers")
                .map(|()| NotifyReplies { replies, is_complete: true }),
        }
        .map_err(|failure| self.failed(&failure))
    }
}

/// Reads the map from an iterator of librados.
fn take(rados: &Rados, values: CephHandle) -> Result<ObjectMap, RbdFailure> {
    let mut map = ObjectMap::new();
    loop {
        let (mut name, mut value, mut name_bytes, mut value_bytes) = (null_mut(), null_mut(), 0, 0);
        // SAFETY: the iterator comes from an operation that has ended, and the places are ours.
        let result = unsafe {
            (rados.rados_omap_get_next2)(
                values,
                &mut name,
                &mut value,
                &mut name_bytes,
                &mut value_bytes,
            )
        };
        check(result, "read it")?;
        if name.is_null() {
            return Ok(map);
        }
        // SAFETY: both are valid, with that many bytes, until the iterator ends.
        let (name, value) = unsafe { (bytes(name, name_bytes), bytes(value, value_bytes)) };
        map.insert(String::from_utf8_lossy(name).into_owned(), value.to_owned());
    }
}

/// # Safety
/// `at` points to that many bytes, or `bytes` is 0.
unsafe fn bytes<'a>(at: *const c_char, bytes: usize) -> &'a [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { slice::from_raw_parts(at.cast(), bytes) }
}

/// Texts in the form that librados takes.
struct Texts {
    at: Vec<Text>,
    bytes: Vec<usize>,
}

impl Texts {
    fn new<'a>(texts: impl Iterator<Item = &'a [u8]> + Clone) -> Texts {
        let at = texts.clone().map(|text| text.as_ptr().cast()).collect();
        Texts { at, bytes: texts.map(<[u8]>::len).collect() }
    }
}

/// Parses the replies in librados' format: their number, then client, handle, length and bytes of each.
fn parse_replies(bytes: &[u8]) -> Vec<Vec<u8>> {
    const CLIENT_BYTES: usize = 16;
    fn number(bytes: &mut &[u8]) -> Option<usize> {
        let (head, rest) = bytes.split_first_chunk::<4>()?;
        *bytes = rest;
        Some(u32::from_le_bytes(*head) as usize)
    }
    let mut rest = bytes;
    let count = number(&mut rest).unwrap_or(0);
    let mut answer = || {
        rest = rest.get(CLIENT_BYTES..)?;
        let bytes = number(&mut rest)?;
        let (answer, after) = rest.split_at_checked(bytes)?;
        rest = after;
        Some(answer.to_owned())
    };
    (0..count).map_while(|_| answer()).collect()
}

/// Answers notifications of an object, until this is dropped.
#[derive(Debug)]
pub struct ObjectWatch {
    cookie: u64,
    /// Freed when librados does not call it any more.
    watcher: *mut ObjectWatcher,
}

// SAFETY: the watcher may be used by several threads, and is freed once.
unsafe impl Send for ObjectWatch {}

struct ObjectWatcher {
    pool: Arc<CephPool>,
    object: CString,
    handler: Box<NotifyHandler>,
    is_lost: AtomicBool,
}

impl ObjectWatch {
    /// True if the cluster has dropped the watch: no notifications are received any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        // SAFETY: the watcher is valid until this is dropped.
        unsafe { &*self.watcher }.is_lost.load(Ordering::Relaxed)
    }
}

impl Drop for ObjectWatch {
    fn drop(&mut self) {
        // SAFETY: the watcher is valid until the end of this function.
        let pool = unsafe { &*self.watcher }.pool.clone();
        let rados = &pool.ceph().rados;
        // SAFETY: librados has returned the handle; after these two calls it does not call the watcher any more.
        unsafe {
            (rados.rados_unwatch2)(pool.io(), self.cookie);
            (rados.rados_watch_flush)(pool.cluster());
            drop(Box::from_raw(self.watcher));
        }
    }
}

/// Answers a notification; librados calls this on one of its threads.
unsafe extern "C" fn notified(
    watcher: *mut c_void,
    notification: u64,
    cookie: u64,
    _from: u64,
    what: *mut c_void,
    length: usize,
) {
    // SAFETY: `watch` has passed the pointer, which is valid until the watch has ended.
    let watcher = unsafe { &*watcher.cast::<ObjectWatcher>() };
    // SAFETY: that many bytes are valid during this call.
    let answer = (watcher.handler)(unsafe { bytes(what.cast(), length) });
    let (io, object): (_, &CStr) = (watcher.pool.io(), &watcher.object);
    let (text, length) = (answer.as_ptr().cast(), answer.len() as c_int);
    let rados = &watcher.pool.ceph().rados;
    // SAFETY: all arguments are valid during the call.
    unsafe { (rados.rados_notify_ack)(io, object.as_ptr(), notification, cookie, text, length) };
}

/// Records the loss of a watch; librados calls this.
unsafe extern "C" fn lost(watcher: *mut c_void, _cookie: u64, _error: c_int) {
    // SAFETY: `watch` has passed the pointer, which is valid until the watch has ended.
    unsafe { &*watcher.cast::<ObjectWatcher>() }.is_lost.store(true, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_as_far_as_they_are_there() {
        let answer = |text: &str| {
            [&[7; 16], &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
        };
        let both = [&2_u32.to_le_bytes()[..], &answer("one"), &answer(""), &[0; 4]].concat();
        assert_eq!(parse_replies(&both), [b"one".to_vec(), Vec::new()]);
        for bytes in 0..both.len() - 4 {
            assert!(parse_replies(&both[..bytes]).len() < 2, "{bytes}");
        }
        let far = [&u32::MAX.to_le_bytes()[..], &[7; 16], &u32::MAX.to_le_bytes()].concat();
        assert_eq!(parse_replies(&far), Vec::<Vec<u8>>::new());
    }
}

//! An object of a pool with a map of names and values, which several processes share: they change it all or nothing,
//! and are told when one of them has.

use super::cluster::{Pool, c_text, check};
use super::library::{Handle, Rados, Text, ceph};
use super::{Failure, RbdImage};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fmt, slice};

/// Longest wait for the cluster, in seconds. After that it is not known whether a change was made.
const WAIT_SECONDS: &str = "20";
/// Names that the cluster gives at once.
const NAMES_MAX: u64 = 1024;
/// `LIBRADOS_CMPXATTR_OP_EQ`
const EQUAL: u8 = 1;
/// `LIBRADOS_CREATE_IDEMPOTENT`
const IF_MISSING: c_int = 0;
/// `LIBRADOS_OPERATION_FULL_FORCE`: also while the pool is full. What is written is small, and replaces what was there.
const ALSO_WHEN_FULL: c_int = 128;
/// When the cluster takes a watcher for gone that says nothing.
const WATCH_SECONDS: u32 = 10;

/// Names and values.
pub type Map = BTreeMap<String, Vec<u8>>;
/// What an answer to a notification is made by: it gets what was said.
pub type Heard = dyn Fn(&[u8]) -> Vec<u8> + Send + Sync;

/// What cannot be done with an object, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectError {
    object: String,
    problem: String,
    /// The cluster was not reached.
    is_connect: bool,
}

impl ObjectError {
    /// A problem with an object that a program keeps instead of the cluster, as tests do.
    #[must_use]
    pub fn new(object: &str, problem: &str) -> ObjectError {
        ObjectError { object: object.into(), problem: problem.into(), is_connect: false }
    }

    /// Whether the cluster was not reached at all.
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

/// An object of a pool, over a connection of its own. It need not be there: then its map is empty.
#[derive(Debug)]
pub struct RadosObject {
    pool: Arc<Pool>,
    object: CString,
    /// As people write it.
    name: String,
}

/// What is to become of a map, if it is as expected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapChange {
    /// Values that have to be there; an empty one: none.
    pub expected: Map,
    /// Names that get a value.
    pub set: Map,
    /// Names that go.
    pub removed: Vec<String>,
}

/// Replies to a notification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notified {
    /// Replies that came in time.
    pub replies: Vec<Vec<u8>>,
    /// All watchers have replied.
    pub is_complete: bool,
}

impl RadosObject {
    /// Connects. The pool and how to get at it are those of `at`, whose image does not matter.
    ///
    /// # Errors
    /// librados, the cluster or its pool is not there, or does not let us in.
    pub fn open(at: &RbdImage, object: &str) -> Result<RadosObject, ObjectError> {
        let name = format!("{}/{object}", at.pool);
        let failed = |failure: Failure| {
            let is_connect = ceph().is_ok();
            ObjectError { object: name.clone(), problem: failure.to_string(), is_connect }
        };
        let pool = Pool::connect_alone(at).map_err(failed)?;
        pool.set("rados_osd_op_timeout", WAIT_SECONDS).map_err(failed)?;
        let object = c_text(object).map_err(failed)?;
        Ok(RadosObject { pool: Arc::new(pool), object, name })
    }

    fn rados(&self) -> &'static Rados {
        &self.pool.ceph().rados
    }

    fn failed(&self, failure: &Failure) -> ObjectError {
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

    /// All of the map whose names begin with `prefix`, as it was at one time.
    ///
    /// # Errors
    /// The cluster does not give it, or there are more than 1,024 names.
    pub fn read(&self, prefix: &str) -> Result<Map, ObjectError> {
        self.read_map(prefix).map_err(|failure| self.failed(&failure))
    }

    fn read_map(&self, prefix: &str) -> Result<Map, Failure> {
        let (rados, prefix) = (self.rados(), c_text(prefix)?);
        // SAFETY: nothing is asked of us.
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
            _ if done == -libc::ENOENT => Ok(Map::new()),
            _ if more != 0 => {
                Err(Failure::text("has more names than are expected: what else uses it?"))
            }
            _ => check(done.min(result), "read it").and_then(|()| take(rados, values)),
        };
        // SAFETY: nobody uses them any more.
        unsafe {
            if !values.is_null() {
                (rados.rados_omap_get_end)(values);
            }
            (rados.rados_release_read_op)(op);
        }
        read
    }

    /// Makes a change, all of it or nothing. `false`: something is not as expected.
    ///
    /// # Errors
    /// The cluster does not do it.
    pub fn change(&self, change: &MapChange) -> Result<bool, ObjectError> {
        self.change_map(change).map_err(|failure| self.failed(&failure))
    }

    fn change_map(&self, change: &MapChange) -> Result<bool, Failure> {
        let rados = self.rados();
        // SAFETY: nothing is asked of us.
        let op = unsafe { (rados.rados_create_write_op)() };
        let mut compared = vec![0; change.expected.len()];
        let expected = change.expected.iter().zip(&mut compared);
        let removed = change.removed.iter().map(|name| name.as_bytes());
        let (removed, set) = (Texts::new(removed), &change.set);
        let names = Texts::new(set.keys().map(|name| name.as_bytes()));
        let values = Texts::new(set.values().map(Vec::as_slice));
        // SAFETY: the operation was just made, is released once, and copies what it is given but for the places of
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

    /// Has `heard` answer what is said at the object from now on, on a thread of librados. It must not wait.
    ///
    /// # Errors
    /// The object is not there, or the cluster does not let us.
    pub fn watch(&self, heard: Box<Heard>) -> Result<Watch, ObjectError> {
        let (pool, object) = (self.pool.clone(), self.object.clone());
        let watcher = Box::new(Watcher { pool, object, heard, is_lost: AtomicBool::new(false) });
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
        Ok(Watch { cookie, watcher })
    }

    /// Notifies all watchers, and returns the replies that come within a time.
    ///
    /// # Errors
    /// The cluster does not pass it on.
    pub fn notify(&self, what: &[u8], within: Duration) -> Result<Notified, ObjectError> {
        let (mut reply, mut bytes) = (null_mut::<c_char>(), 0);
        let millis = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let (text, length) = (what.as_ptr().cast(), what.len() as c_int);
        // SAFETY: what is said is there, and the places are ours.
        let result = unsafe {
            let (io, object) = (self.pool.io(), self.object.as_ptr());
            (self.rados().rados_notify2)(io, object, text, length, millis, &mut reply, &mut bytes)
        };
        let mut replies = Vec::new();
        if !reply.is_null() {
            // SAFETY: so many octets were given to us; they are given back once.
            unsafe {
                replies = parse_answers(slice::from_raw_parts(reply.cast(), bytes));
                (self.rados().rados_buffer_free)(reply);
            }
        }
        match -result {
            libc::ETIMEDOUT => Ok(Notified { replies, is_complete: false }),
            // There is nothing to watch.
            libc::ENOENT => Ok(Notified { replies, is_complete: true }),
            _ => check(result, "notify its watchers")
                .map(|()| Notified { replies, is_complete: true }),
        }
        .map_err(|failure| self.failed(&failure))
    }
}

/// What was read, by an iterator of librados.
fn take(rados: &Rados, values: Handle) -> Result<Map, Failure> {
    let mut map = Map::new();
    loop {
        let (mut name, mut value, mut name_bytes, mut value_bytes) = (null_mut(), null_mut(), 0, 0);
        // SAFETY: the iterator was given by an operation that has ended, and the places are ours.
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
        // SAFETY: both are there, with so many octets, until the iterator ends.
        let (name, value) = unsafe { (octets(name, name_bytes), octets(value, value_bytes)) };
        map.insert(String::from_utf8_lossy(name).into_owned(), value.to_owned());
    }
}

/// # Safety
/// So many octets are there, or none.
unsafe fn octets<'a>(at: *const c_char, bytes: usize) -> &'a [u8] {
    if bytes == 0 {
        return &[];
    }
    // SAFETY: as the caller says.
    unsafe { slice::from_raw_parts(at.cast(), bytes) }
}

/// Texts as librados takes them.
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

/// The answers in what librados gives: a number, then client, handle, length and octets of each.
fn parse_answers(octets: &[u8]) -> Vec<Vec<u8>> {
    const WHO_BYTES: usize = 16;
    fn number(octets: &mut &[u8]) -> Option<usize> {
        let (head, rest) = octets.split_first_chunk::<4>()?;
        *octets = rest;
        Some(u32::from_le_bytes(*head) as usize)
    }
    let mut rest = octets;
    let count = number(&mut rest).unwrap_or(0);
    let mut answer = || {
        rest = rest.get(WHO_BYTES..)?;
        let bytes = number(&mut rest)?;
        let (answer, after) = rest.split_at_checked(bytes)?;
        rest = after;
        Some(answer.to_owned())
    };
    (0..count).map_while(|_| answer()).collect()
}

/// Somebody answers what is said at an object, until this is dropped.
#[derive(Debug)]
pub struct Watch {
    cookie: u64,
    /// Freed when librados does not call any more.
    watcher: *mut Watcher,
}

// SAFETY: what it points to may be used by several threads, and is freed once.
unsafe impl Send for Watch {}

struct Watcher {
    pool: Arc<Pool>,
    object: CString,
    heard: Box<Heard>,
    is_lost: AtomicBool,
}

impl Watch {
    /// The cluster has forgotten it: nothing is heard any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        // SAFETY: it is there until this is dropped.
        unsafe { &*self.watcher }.is_lost.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // SAFETY: it is there until the end of this.
        let pool = unsafe { &*self.watcher }.pool.clone();
        let rados = &pool.ceph().rados;
        // SAFETY: the handle is one that was given; after these two librados calls no more.
        unsafe {
            (rados.rados_unwatch2)(pool.io(), self.cookie);
            (rados.rados_watch_flush)(pool.cluster());
            drop(Box::from_raw(self.watcher));
        }
    }
}

/// Called by librados, on one of its threads, when something is said.
unsafe extern "C" fn notified(
    watcher: *mut c_void,
    notification: u64,
    cookie: u64,
    _from: u64,
    what: *mut c_void,
    bytes: usize,
) {
    // SAFETY: it is what `watch` has given, and is there until the watch has ended.
    let watcher = unsafe { &*watcher.cast::<Watcher>() };
    // SAFETY: so many octets are there during this call.
    let answer = (watcher.heard)(unsafe { octets(what.cast(), bytes) });
    let (io, object): (_, &CStr) = (watcher.pool.io(), &watcher.object);
    let (text, length) = (answer.as_ptr().cast(), answer.len() as c_int);
    let rados = &watcher.pool.ceph().rados;
    // SAFETY: all of it is there during the call.
    unsafe { (rados.rados_notify_ack)(io, object.as_ptr(), notification, cookie, text, length) };
}

/// Called by librados when it cannot watch any more.
unsafe extern "C" fn lost(watcher: *mut c_void, _cookie: u64, _error: c_int) {
    // SAFETY: it is what `watch` has given, and is there until the watch has ended.
    unsafe { &*watcher.cast::<Watcher>() }.is_lost.store(true, Ordering::Relaxed);
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
        assert_eq!(parse_answers(&both), [b"one".to_vec(), Vec::new()]);
        for bytes in 0..both.len() - 4 {
            assert!(parse_answers(&both[..bytes]).len() < 2, "{bytes}");
        }
        let far = [&u32::MAX.to_le_bytes()[..], &[7; 16], &u32::MAX.to_le_bytes()].concat();
        assert_eq!(parse_answers(&far), Vec::<Vec<u8>>::new());
    }
}

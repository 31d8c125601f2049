//! Ownership of an image that several targets reach: the owner sends heartbeats, the others check them and fence a
//! silent owner.
//!
//! The lock in the image's header names the owner. Heartbeats are an attribute of the same object, so that they move
//! with the image, and a heartbeat proves access to the lock.

use super::RbdFailure;
use super::cluster::{CephPool, check};
use super::image::OpenImage;
use crate::BlockOwnership;
use roadtrain_proto::digest::digest;
use roadtrain_proto::ownership::{
    BlockClaim, BlockOwner, FenceVerdict, ObservedOwner, OwnershipObserver, OwnershipState,
    OwnershipTiming,
};
use roadtrain_proto::time::Instant;
use roadtrain_system::clock;
use std::ffi::CString;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tracing::{error, info, warn};

const ATTRIBUTE: &std::ffi::CStr = c"roadtrain.beat";
/// Buffer for a heartbeat, in bytes; larger than any.
const BEAT_BYTES: usize = 256;

/// Object with the lock and the heartbeats.
#[derive(Debug)]
struct Header {
    pool: Arc<CephPool>,
    object: CString,
}

impl Header {
    fn of(image: &OpenImage) -> Result<Header, RbdFailure> {
        let object = super::cluster::c_text(&format!("rbd_header.{}", image.id()?))?;
        Ok(Header { pool: image.pool().clone(), object })
    }

    /// Writes a heartbeat of the owner at `address`. Waits for the cluster.
    fn beat(&self, number: u64, address: &str) -> Result<(), RbdFailure> {
        let text = format!("{number} {address}");
        let (rados, object) = (&self.pool.ceph().rados, self.object.as_ptr());
        // SAFETY: the pool is open, names end with NUL, and the text has that many bytes.
        let result = unsafe {
            (rados.rados_setxattr)(
                self.pool.io(),
                object,
                ATTRIBUTE.as_ptr(),
                text.as_ptr().cast(),
                text.len(),
            )
        };
        check(result, "write its heartbeat")
    }

    /// Returns the last heartbeat with its owner. Waits for the cluster.
    fn last_beat(&self) -> Result<Option<(u64, String)>, RbdFailure> {
        let mut bytes = [0_u8; BEAT_BYTES];
        let (rados, object) = (&self.pool.ceph().rados, self.object.as_ptr());
        // SAFETY: the pool is open, names end with NUL, and there is room for that many bytes.
        let result = unsafe {
            (rados.rados_getxattr)(
                self.pool.io(),
                object,
                ATTRIBUTE.as_ptr(),
                bytes.as_mut_ptr().cast(),
                bytes.len(),
            )
        };
        if result == -libc::ENODATA {
            return Ok(None);
        }
        check(result, "read its owner's heartbeat")?;
        let text = bytes.get(..result as usize).and_then(|text| std::str::from_utf8(text).ok());
        let parts = text.and_then(|text| text.split_once(' '));
        Ok(parts.and_then(|(number, address)| Some((number.parse().ok()?, address.into()))))
    }
}

/// State that a heartbeat or check thread shares with the store.
#[derive(Debug)]
struct ThreadState<T> {
    state: Mutex<(T, bool)>,
    woken: Condvar,
}

impl<T> ThreadState<T> {
    fn new(state: T) -> Arc<ThreadState<T>> {
        Arc::new(ThreadState { state: Mutex::new((state, false)), woken: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, (T, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.lock().1 = true;
        self.woken.notify_all();
    }

    /// Waits for `time`, or until it is woken. True to continue.
    fn wait(&self, time: Duration) -> bool {
        let state = self.lock();
        if state.1 {
            return false;
        }
        let waited = self.woken.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner);
        !waited.0.1
    }
}

/// An image that this target owns.
#[derive(Debug)]
pub(super) struct OwnedImage {
    turns: Arc<ThreadState<(BlockOwner, OwnershipState)>>,
}

impl OwnedImage {
    /// Takes the image if no client has it, and starts its heartbeats. Waits for the cluster.
    pub(super) fn take(
        image: &Arc<OpenImage>,
        timing: OwnershipTiming,
    ) -> Result<OwnedImage, RbdFailure> {
        image.check_lockable()?;
        // An owner gets no request to release the lock, as `lock` would send: it may comply.
        if let Some(owner) = image.owner()? {
            return Err(RbdFailure::taken(owner));
        }
        let begun = clock::now();
        image.lock()?;
        let address = image.owner()?.ok_or_else(|| RbdFailure::text("its lock is gone again"))?;
        image.drop_object_map()?;
        let header = Header::of(image)?;
        let last = clock::now();
        header.beat(0, &address)?;
        let ms = clock::now().since(begun).as_millis();
        info!(image = image.name(), as = address, "has it, after {ms} ms");
        let owner = BlockOwner::new(timing, last);
        let turns = ThreadState::new((owner, OwnershipState::Serves));
        let (shared, name, weak) = (turns.clone(), image.name().to_owned(), Arc::downgrade(image));
        let beats = move || {
            let mut number = 0;
            while shared.wait(timing.heartbeat) {
                number += 1;
                let Some(image) = weak.upgrade() else { break };
                match beat(&image, &header, (number, &address), &shared) {
                    Ok(()) => {}
                    Err(failure) if failure.errno == Some(libc::ESHUTDOWN) => {
                        shared.lock().0.0.fenced();
                    }
                    Err(failure) => warn!(image = name, "{failure}"),
                }
                if shared.lock().0.0.state(clock::now()) == OwnershipState::Fenced {
                    error!(image = name, "another target has taken it over");
                    break;
                }
            }
        };
        spawn(beats)?;
        Ok(OwnedImage { turns })
    }

    /// Returns the current owner. Completes the operations in flight if they cannot be served, and refuses further ones
    /// then.
    pub(super) fn ownership(&self, image: &OpenImage, now: Instant) -> BlockOwnership {
        let mut state = self.turns.lock();
        let (owner, known) = &mut state.0;
        if image.is_lost() {
            owner.fenced();
        }
        let standing = owner.state(now);
        let is_news = std::mem::replace(known, standing) != standing;
        let Some(in_flight) = image.in_flight() else { return BlockOwnership::Ours };
        // Before the mutex is unlocked: other threads would overtake with their own changes.
        match standing {
            _ if !is_news => {}
            OwnershipState::Serves => in_flight.open(),
            OwnershipState::CutOff => in_flight.close(),
            OwnershipState::Fenced => {
                image.set_lost();
                in_flight.close();
            }
        }
        drop(state);
        let name = image.name();
        match standing {
            OwnershipState::Serves if is_news => info!(image = name, "reaches the cluster again"),
            OwnershipState::CutOff if is_news => {
                error!(image = name, "does not reach the cluster: hosts are sent to other paths");
            }
            _ => {}
        }
        match standing {
            OwnershipState::Serves => BlockOwnership::Ours,
            OwnershipState::CutOff => BlockOwnership::CutOff,
            OwnershipState::Fenced => BlockOwnership::Lost,
        }
    }

    /// Stops the heartbeats.
    pub(super) fn end(&self) {
        self.turns.end();
    }
}

impl Drop for OwnedImage {
    fn drop(&mut self) {
        self.end();
    }
}

/// Writes a heartbeat, and checks the ownership if it is not certain.
fn beat(
    image: &OpenImage,
    header: &Header,
    (number, address): (u64, &str),
    turns: &ThreadState<(BlockOwner, OwnershipState)>,
) -> Result<(), RbdFailure> {
    let begun = clock::now();
    header.beat(number, address)?;
    if turns.lock().0.0.confirmed(begun, clock::now()) {
        let is_ours = image.owner()?.is_some_and(|owner| owner == address);
        turns.lock().0.0.ownership_checked(is_ours, clock::now());
    }
    Ok(())
}

/// An image that another target may own.
#[derive(Debug)]
pub(super) struct ObservedImage {
    turns: Arc<ThreadState<BlockClaim<String>>>,
}

impl ObservedImage {
    /// Starts to check the image.
    pub(super) fn begin(
        image: Arc<OpenImage>,
        timing: OwnershipTiming,
    ) -> Result<ObservedImage, RbdFailure> {
        image.check_lockable()?;
        let header = Header::of(&image)?;
        let turns = ThreadState::new(BlockClaim::new(image.owner()?));
        let shared = turns.clone();
        let run_checks = move || {
            let mut observer = OwnershipObserver::new(timing);
            while shared.wait(timing.check) {
                if let Err(failure) = check_owner(&image, &header, &mut observer, &shared) {
                    warn!(image = image.name(), "{failure}");
                }
            }
        };
        spawn(run_checks)?;
        Ok(ObservedImage { turns })
    }

    pub(super) fn ownership(&self) -> BlockOwnership {
        if self.turns.lock().0.is_free() { BlockOwnership::Free } else { BlockOwnership::Theirs }
    }

    /// Takes the image away from its owner.
    pub(super) fn seize(&self) {
        self.turns.lock().0.seize();
        self.turns.woken.notify_all();
    }
}

impl Drop for ObservedImage {
    fn drop(&mut self) {
        self.turns.end();
    }
}

/// Checks the owner, and takes the image from an owner that is silent or that a claim names.
fn check_owner(
    image: &OpenImage,
    header: &Header,
    observer: &mut OwnershipObserver,
    turns: &ThreadState<BlockClaim<String>>,
) -> Result<(), RbdFailure> {
    let sent_at = clock::now();
    let (owner, beat) = (image.owner()?, header.last_beat()?);
    let seen = match (&owner, beat) {
        (None, _) => ObservedOwner::NoOwner,
        (Some(owner), Some((number, from))) if from == *owner => {
            let number = digest(&[owner.as_bytes(), &number.to_le_bytes()]);
            ObservedOwner::Heartbeat(number as u64)
        }
        (Some(owner), _) if image.is_watched_by(owner)? => ObservedOwner::OpenWithoutHeartbeat,
        (Some(owner), _) => ObservedOwner::Absent(digest(&[owner.as_bytes()]) as u64),
    };
    let verdict = observer.check_completed(sent_at, clock::now(), seen);
    let is_wanted = turns.lock().0.owner_checked(owner.as_ref());
    let Some(owner) = owner else { return Ok(()) };
    if verdict != FenceVerdict::Fence && !is_wanted {
        return Ok(());
    }
    let why = match seen {
        _ if is_wanted => "as requested",
        ObservedOwner::Absent(_) => "is gone",
        _ => "is silent",
    };
    warn!(image = image.name(), owner, why, "takes it from its owner");
    let begun = clock::now();
    image.break_lock(&owner)?;
    turns.lock().0.fenced();
    let ms = clock::now().since(begun).as_millis();
    info!(image = image.name(), owner, "its owner is fenced, after {ms} ms");
    Ok(())
}

fn spawn(run: impl FnOnce() + Send + 'static) -> Result<(), RbdFailure> {
    let thread = thread::Builder::new().name("roadtrain-rbd".into()).spawn(run);
    thread.map(drop).map_err(|error| RbdFailure::text(format!("cannot start a thread: {error}")))
}

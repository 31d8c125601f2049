//! Snapshots and clones of an image.

use super::cluster::{CephPool, c_text};
use super::image::OpenImage;
use super::library::{CephHandle, SnapInfo};
use super::{RbdImage, RbdStore, differences};
use crate::{DifferencesQuery, DiskDifferences, SnapshotError, Snapshots, StoreSnapshot};
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

/// Initial room for snapshots: images have few.
const FEW: c_int = 32;

impl Snapshots for RbdStore {
    fn list(&self) -> Result<Vec<StoreSnapshot>, SnapshotError> {
        let mut infos = infos(&self.image)?;
        infos.sort_by_key(|(id, ..)| *id);
        infos.into_iter().map(|info| describe(&self.image, info)).collect()
    }

    fn create(&self, name: &str) -> Result<(), SnapshotError> {
        if name.is_empty() || name.contains(['@', '/']) {
            let why = format!("'{name}' is no name of a snapshot: leave out @ and /");
            return Err(SnapshotError::Refused(why));
        }
        call(&self.image, name, self.image.rbd().rbd_snap_create)
    }

    fn remove(&self, name: &str) -> Result<(), SnapshotError> {
        call(&self.image, name, self.image.rbd().rbd_snap_remove)
    }

    fn protect(&self, name: &str) -> Result<(), SnapshotError> {
        match is_protected(&self.image, name)? {
            true => Ok(()),
            false => call(&self.image, name, self.image.rbd().rbd_snap_protect),
        }
    }

    fn unprotect(&self, name: &str) -> Result<(), SnapshotError> {
        match is_protected(&self.image, name)? {
            true => call(&self.image, name, self.image.rbd().rbd_snap_unprotect),
            false => Ok(()),
        }
    }

    fn clone_to(&self, name: &str, to: &str) -> Result<(), SnapshotError> {
        let place = parse_image_name(&self.spec, to)?;
        let failed = |failure: super::RbdFailure| SnapshotError::Failed(failure.to_string());
        let pool = self.image.pool();
        let there = CephPool::over_same_connection(pool, &place).map_err(failed)?;
        let rbd = self.image.rbd();
        let (parent, child) = (text(&self.spec.image)?, text(&place.image)?);
        let snapshot = text(name)?;
        let mut options = null_mut();
        // SAFETY: the place is ours.
        unsafe { (rbd.rbd_image_options_create)(&mut options) };
        // SAFETY: both pools are open, names end with NUL, the options were just made.
        let result = unsafe {
            (rbd.rbd_clone3)(
                pool.io(),
                parent.as_ptr(),
                snapshot.as_ptr(),
                there.io(),
                child.as_ptr(),
                options,
            )
        };
        // SAFETY: the options have no other user any more.
        unsafe { (rbd.rbd_image_options_destroy)(options) };
        match -result {
            libc::EEXIST => Err(SnapshotError::Exists(format!("an image {to}"))),
            libc::EINVAL => Err(SnapshotError::Refused(format!(
                "snapshot {name} is not protected: do that first"
            ))),
            _ => outcome(result, name),
        }
    }

    fn roll_back(
        &self,
        name: &str,
        check: &dyn Fn() -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError> {
        let flush = || self.image.flush().map_err(|e| SnapshotError::Failed(e.to_string()));
        let roll_back = || call(&self.image, name, self.image.rbd().rbd_snap_rollback);
        without_users(&self.is_resting, check, flush, roll_back)
    }

    fn differences(
        &self,
        from: &str,
        to: Option<&str>,
        query: DifferencesQuery,
    ) -> Result<DiskDifferences, SnapshotError> {
        let infos = infos(&self.image)?;
        let known = |name: &str| {
            let found = infos.iter().find(|(.., other)| other == name);
            found.ok_or_else(|| SnapshotError::Unknown(name.into()))
        };
        let &(from_id, from_bytes, _) = known(from)?;
        let failed = |failure: super::RbdFailure| SnapshotError::Failed(failure.to_string());
        let Some(to) = to else {
            let bytes = self.image.bytes().map_err(failed)?;
            return differences::find(&self.image, (from, from_bytes), bytes, query);
        };
        let &(to_id, to_bytes, _) = known(to)?;
        if from_id > to_id {
            let why = format!("snapshot {from} is newer than {to}: name the older one first");
            return Err(SnapshotError::Refused(why));
        }
        let spec = RbdImage { snapshot: Some(to.into()), shared: false, ..self.spec.clone() };
        let pool = CephPool::over_same_connection(self.image.pool(), &spec).map_err(failed)?;
        let image = OpenImage::open(pool, &spec, true).map_err(failed)?;
        differences::find(&image, (from, from_bytes), to_bytes, query)
    }
}

/// Rolls back an image without users. New commands are refused from the start, so a user that comes after the last
/// `check` changes nothing. `flush` ends earlier commands, which takes a while.
fn without_users(
    is_resting: &AtomicBool,
    check: &dyn Fn() -> Result<(), SnapshotError>,
    flush: impl FnOnce() -> Result<(), SnapshotError>,
    roll_back: impl FnOnce() -> Result<(), SnapshotError>,
) -> Result<(), SnapshotError> {
    is_resting.store(true, Ordering::SeqCst);
    let rolled = check().and_then(|()| flush()).and_then(|()| check()).and_then(|()| roll_back());
    is_resting.store(false, Ordering::SeqCst);
    rolled
}

type Info = (u64, u64, String);

/// Returns number, bytes and name of each snapshot.
fn infos(image: &OpenImage) -> Result<Vec<Info>, SnapshotError> {
    let (rbd, mut room) = (image.rbd(), FEW);
    loop {
        let mut infos = vec![SnapInfo::default(); room as usize];
        // SAFETY: the image is open, and there is room for that many.
        let count = unsafe { (rbd.rbd_snap_list)(image.handle(), infos.as_mut_ptr(), &mut room) };
        if count == -libc::ERANGE {
            continue;
        }
        outcome(count.min(0), "")?;
        let read = |info: &SnapInfo| {
            // SAFETY: librbd has made the text for us.
            let name = unsafe { CStr::from_ptr(info.name) }.to_string_lossy().into_owned();
            (info.id, info.size, name)
        };
        let read = infos.iter().take(count as usize).map(read).collect();
        // SAFETY: librbd has filled the array. An empty one needs no cleanup.
        unsafe { (rbd.rbd_snap_list_end)(infos.as_mut_ptr()) };
        return Ok(read);
    }
}

fn describe(image: &OpenImage, (id, bytes, name): Info) -> Result<StoreSnapshot, SnapshotError> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the image is open, the place is ours.
    let result = unsafe { (image.rbd().rbd_snap_get_timestamp)(image.handle(), id, &mut time) };
    let created = (result >= 0 && time.tv_sec > 0).then_some(time.tv_sec as u64);
    Ok(StoreSnapshot { is_protected: is_protected(image, &name)?, name, bytes, created })
}

fn is_protected(image: &OpenImage, name: &str) -> Result<bool, SnapshotError> {
    let (mut protected, text) = (0, text(name)?);
    // SAFETY: the image is open, the name ends with NUL, the place is ours.
    let result = unsafe {
        (image.rbd().rbd_snap_is_protected)(image.handle(), text.as_ptr(), &mut protected)
    };
    outcome(result, name).map(|()| protected != 0)
}

fn call(
    image: &OpenImage,
    name: &str,
    function: unsafe extern "C" fn(CephHandle, *const c_char) -> c_int,
) -> Result<(), SnapshotError> {
    let text = text(name)?;
    // SAFETY: the image is open, the name ends with NUL.
    outcome(unsafe { function(image.handle(), text.as_ptr()) }, name)
}

fn outcome(result: c_int, name: &str) -> Result<(), SnapshotError> {
    let why = || std::io::Error::from_raw_os_error(-result);
    match -result {
        ..=0 => Ok(()),
        libc::ENOENT => Err(SnapshotError::Unknown(name.into())),
        libc::EEXIST => Err(SnapshotError::Exists(format!("a snapshot {name}"))),
        libc::EBUSY => Err(SnapshotError::Refused(format!(
            "snapshot {name} is protected, or has clones: `rbd children` lists them"
        ))),
        libc::EROFS => Err(SnapshotError::Refused(
            "the image is read-only here, or another client has its lock".into(),
        )),
        _ => Err(SnapshotError::Failed(format!("the cluster refuses: {}", why()))),
    }
}

/// Parses the name of an image of the same cluster: `[POOL/[NAMESPACE/]]IMAGE`.
fn parse_image_name(beside: &RbdImage, to: &str) -> Result<RbdImage, SnapshotError> {
    let parts: Vec<&str> = to.split('/').collect();
    let is_whole = parts.iter().all(|part| !part.is_empty() && !part.contains('@'));
    let (pool, namespace, image) = match parts[..] {
        [image] if is_whole => (beside.pool.as_str(), beside.namespace.as_deref(), image),
        [pool, image] if is_whole => (pool, None, image),
        [pool, namespace, image] if is_whole => (pool, Some(namespace), image),
        _ => {
            let why =
                format!("'{to}' is no image: write IMAGE, POOL/IMAGE or POOL/NAMESPACE/IMAGE");
            return Err(SnapshotError::Refused(why));
        }
    };
    let (pool, namespace) = (pool.to_owned(), namespace.map(str::to_owned));
    Ok(RbdImage { pool, namespace, image: image.into(), ..beside.clone() })
}

fn text(text: &str) -> Result<CString, SnapshotError> {
    c_text(text).map_err(|failure| SnapshotError::Refused(failure.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    #[test]
    fn users_are_checked_again_when_nothing_comes_in_any_more() {
        let refusal = || SnapshotError::Refused("a host is connected".into());
        let failure = || SnapshotError::Failed("the cluster is away".into());
        for (users_at, flushed, expected_steps, expected) in [
            (None, Ok(()), vec!["check", "flush", "check", "roll back"], Ok(())),
            (Some(1), Ok(()), vec!["check"], Err(refusal())),
            // A host that has connected while earlier commands ended.
            (Some(2), Ok(()), vec!["check", "flush", "check"], Err(refusal())),
            (None, Err(failure()), vec!["check", "flush"], Err(failure())),
        ] {
            let (is_resting, steps) = (AtomicBool::new(false), RefCell::new(Vec::new()));
            let checks = Cell::new(0);
            let step = |name| {
                assert!(is_resting.load(Ordering::SeqCst), "{name} while commands are taken");
                steps.borrow_mut().push(name);
            };
            let check = || {
                step("check");
                checks.set(checks.get() + 1);
                if users_at == Some(checks.get()) { Err(refusal()) } else { Ok(()) }
            };
            let flush = || {
                step("flush");
                flushed
            };
            let roll_back = || {
                step("roll back");
                Ok(())
            };
            assert_eq!(without_users(&is_resting, &check, flush, roll_back), expected);
            assert_eq!(steps.into_inner(), expected_steps);
            assert!(!is_resting.into_inner(), "commands are taken again");
        }
    }

    #[test]
    fn clones_lie_beside_their_image_or_where_it_is_said() {
        let beside = RbdImage {
            pool: "p".into(),
            namespace: Some("n".into()),
            image: "i".into(),
            ..RbdImage::default()
        };
        let name = |to| parse_image_name(&beside, to).map(|image| image.to_string());
        assert_eq!(name("c").unwrap(), "p/n/c");
        assert_eq!(name("q/c").unwrap(), "q/c");
        assert_eq!(name("q/m/c").unwrap(), "q/m/c");
        for wrong in ["", "a/", "/a", "a/b/c/d", "a@b"] {
            assert!(matches!(name(wrong), Err(SnapshotError::Refused(_))), "{wrong}");
        }
    }
}

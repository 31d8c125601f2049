//! One call at a time for each volume.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use tonic::Status;

/// Objects that calls work on.
#[derive(Clone, Debug, Default)]
pub(crate) struct VolumeLocks(Arc<Mutex<HashSet<String>>>);

/// A lock of an object, until it is dropped.
#[derive(Debug)]
pub(crate) struct LockGuard {
    locks: VolumeLocks,
    key: String,
}

impl VolumeLocks {
    /// VolumeLocks an object.
    ///
    /// # Errors
    /// ABORTED: another call works on it.
    pub(crate) fn lock(&self, key: impl Into<String>) -> Result<LockGuard, Status> {
        let key = key.into();
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !held.insert(key.clone()) {
            return Err(Status::aborted(format!(
                "{key}: another call for it has not ended: try again"
            )));
        }
        Ok(LockGuard { locks: self.clone(), key })
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.locks.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_at_a_time() {
        let locks = VolumeLocks::default();
        let held = locks.lock("a").unwrap();
        assert_eq!(locks.lock("a").unwrap_err().code(), tonic::Code::Aborted);
        let _other = locks.lock("b").unwrap();
        drop(held);
        locks.lock("a").unwrap();
    }
}

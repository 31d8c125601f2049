//! Counters of requests, by method.

use crate::metrics::Calls;
use roadtrain_reactor::metrics::{BUCKETS, Latency, bounds};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Counters of all methods.
#[derive(Debug, Default)]
pub(super) struct CallCounts(Mutex<BTreeMap<&'static str, MethodCounts>>);

#[derive(Debug, Default)]
struct MethodCounts {
    codes: BTreeMap<i32, u64>,
    latency: Latency,
}

impl CallCounts {
    /// Counts a call of an existing method with its response code (0: success) and its duration.
    pub(super) fn count(&self, method: &'static str, code: i32, took: Duration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let MethodCounts { codes, latency } = all.entry(method).or_default();
        *codes.entry(code).or_default() += 1;
        let seconds = took.as_secs_f64();
        latency.buckets.resize(BUCKETS, 0);
        latency.buckets[bounds().partition_point(|bound| *bound < seconds)] += 1;
        latency.sum_seconds += seconds;
    }

    /// Returns the counters.
    pub(super) fn all(&self) -> Vec<Calls> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = all.iter().map(|(method, MethodCounts { codes, latency })| Calls {
            method: (*method).to_owned(),
            codes: codes.iter().map(|(code, count)| (*code, *count)).collect(),
            latency: latency.clone(),
        });
        calls.collect()
    }
}

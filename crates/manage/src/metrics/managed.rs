//! Families of a managed target: JSON-RPC requests and stores of volumes.

use super::out::{Buckets, Out};
use roadtrain_reactor::metrics::Latency;
use std::fmt;

/// Counters of the management of a target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManagementSample {
    /// Requests by method.
    pub calls: Vec<Calls>,
    /// Changes that could not be written to the state file.
    pub state_write_errors: u64,
    /// Stores of volumes.
    pub stores: Vec<StoreSample>,
}

/// Requests of one method.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    /// Name of the method.
    pub method: String,
    /// Responses by code; 0: success.
    pub codes: Vec<(i32, u64)>,
    /// Latency of the requests.
    pub latency: Latency,
}

/// A store of volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreSample {
    /// Name of the store.
    pub name: String,
    /// Capacity in bytes.
    pub capacity_bytes: u64,
    /// Bytes left for new volumes.
    pub free_bytes: u64,
    /// Volumes, snapshots among them.
    pub volumes: u64,
}

/// Writes the families.
pub(super) fn all(shown: &ManagementSample, out: &mut Out<'_>) -> fmt::Result {
    let codes: Vec<_> = shown
        .calls
        .iter()
        .flat_map(|calls| {
            calls.codes.iter().map(move |(code, count)| (calls, code.to_string(), *count))
        })
        .collect();
    let requests = codes.iter().map(|(calls, code, count)| {
        ([("method", calls.method.as_str()), ("code", code.as_str())], *count)
    });
    let help = "JSON-RPC requests by method and code of their answer; 0: done";
    out.counters(("roadtrain_rpc_requests", help), requests)?;
    let latencies =
        shown.calls.iter().map(|calls| ([("method", calls.method.as_str())], &calls.latency));
    out.latencies(("roadtrain_rpc_seconds", "How long they took"), Buckets::Coarse, latencies)?;
    let help = "Changes that could not be written to the state file, and were undone";
    let errors = [([("", ""); 0], shown.state_write_errors)];
    out.counters(("roadtrain_state_write_errors", help), errors)?;
    let of = |value: fn(&StoreSample) -> u64| {
        shown.stores.iter().map(move |store| ([("lvstore", store.name.as_str())], value(store)))
    };
    let help = "Bytes that a store of volumes may have";
    out.gauges(("roadtrain_store_capacity_bytes", help), of(|store| store.capacity_bytes))?;
    let help = "Bytes that new volumes may have";
    out.gauges(("roadtrain_store_free_bytes", help), of(|store| store.free_bytes))?;
    let help = "Volumes of a store, snapshots among them";
    out.gauges(("roadtrain_store_volumes", help), of(|store| store.volumes))
}

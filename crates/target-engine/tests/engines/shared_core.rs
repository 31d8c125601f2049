//! Policies receive whether both ends of a lane share a core.

use crate::harness::*;
use crate::skipped::skipped;
use crate::told::{Ends, listening, nothing};
use roadtrain_host_engine::Client;
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Server, ServerConfig};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::sync::atomic::Ordering::Relaxed;

/// More requests than an end needs to detect it.
const REQUESTS: usize = 4096;

static ON_ONE: Ends = nothing();
static ON_TWO: Ends = nothing();

/// Starts a target and connects a host, on these cores.
fn pair(policy: PolicyConfig, host: usize, target: usize) -> (Server, Client) {
    let config = server_config(vec![memory(1, MIB, 512)]);
    let server = Server::start(ServerConfig { policy, cores: vec![target], ..config }).unwrap();
    let mut config = host_config(address(&server));
    (config.policy, config.cores, config.lanes) = (policy, vec![host], 1);
    let client = Client::connect(config).unwrap();
    (server, client)
}

#[test]
fn ends_on_one_core_are_told_and_others_are_not() {
    let allowed = sched_getaffinity(None).unwrap();
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    let (one, other) = (cores.next().expect("we run somewhere"), cores.next());

    let policy = PolicyConfig::custom(|role| listening(&ON_ONE, role));
    let (_server, client) = pair(policy, one, one);
    for _ in 0..REQUESTS {
        client.read(1, 0, Buffer::alloc(512)).unwrap();
    }
    assert!(ON_ONE.iter().all(|told| told.shares_core.load(Relaxed)), "{ON_ONE:?}");

    let Some(other) = other else { return skipped("ends on two cores: there is one") };
    let policy = PolicyConfig::custom(|role| listening(&ON_TWO, role));
    let (_server, client) = pair(policy, one, other);
    for _ in 0..REQUESTS {
        client.read(1, 0, Buffer::alloc(512)).unwrap();
        assert!(!ON_TWO.iter().any(|told| told.shares_core.load(Relaxed)), "{ON_TWO:?}");
    }
}

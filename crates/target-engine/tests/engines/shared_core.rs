//! Policies receive whether both ends of a lane share a core.

use crate::harness::*;
use crate::observing_policy::{EndObservations, no_observations, observing};
use crate::skipped::skipped;
use roadtrain_host_engine::HostClient;
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Server, ServerConfig};
use rustix::thread::{CpuSet, sched_getaffinity};
use std::sync::atomic::Ordering::Relaxed;

/// More requests than an end needs to detect it.
const REQUESTS: usize = 4096;

static ON_ONE: EndObservations = no_observations();
static ON_TWO: EndObservations = no_observations();

/// Starts a target and connects a host, on these cores.
fn pair(policy: PolicyConfig, host: usize, target: usize) -> (Server, HostClient) {
    let config = server_config(vec![memory(1, MIB, 512)]);
    let server = Server::start(ServerConfig { policy, cores: vec![target], ..config }).unwrap();
    let mut config = host_config(address(&server));
    (config.policy, config.cores, config.lanes) = (policy, vec![host], 1);
    let client = HostClient::connect(config).unwrap();
    (server, client)
}

#[test]
fn policies_know_whether_ends_share_a_core() {
    let allowed = sched_getaffinity(None).unwrap();
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    let (one, other) = (cores.next().expect("we run somewhere"), cores.next());

    let policy = PolicyConfig::custom(|role| observing(&ON_ONE, role));
    let (_server, client) = pair(policy, one, one);
    for _ in 0..REQUESTS {
        client.read(1, 0, Buffer::alloc(512)).unwrap();
    }
    assert!(ON_ONE.iter().all(|end| end.shares_core.load(Relaxed)), "{ON_ONE:?}");

    let Some(other) = other else { return skipped("ends on two cores: there is one") };
    let policy = PolicyConfig::custom(|role| observing(&ON_TWO, role));
    let (_server, client) = pair(policy, one, other);
    for _ in 0..REQUESTS {
        client.read(1, 0, Buffer::alloc(512)).unwrap();
        assert!(!ON_TWO.iter().any(|end| end.shares_core.load(Relaxed)), "{ON_TWO:?}");
    }
}

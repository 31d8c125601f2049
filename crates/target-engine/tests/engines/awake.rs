//! Both ends poll where the configuration permits it, and inform their policies.

use crate::harness::*;
use crate::observing_policy::{EndObservations, no_observations, observing};
use roadtrain_host_engine::HostClient;
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_reactor::waits::WaitPolicy;
use roadtrain_system::buffer::Buffer;
use roadtrain_target_engine::{Server, ServerConfig};
use std::sync::atomic::Ordering::Relaxed;

/// Number of requests that makes both ends poll.
const REQUESTS: usize = 2048;

static SPINNING: EndObservations = no_observations();
static ASLEEP: EndObservations = no_observations();

fn read(policy: PolicyConfig, waiting: WaitPolicy) {
    let config = server_config(vec![memory(1, MIB, 512)]);
    let server = Server::start(ServerConfig { policy, waiting, ..config }).unwrap();
    let mut config = host_config(address(&server));
    (config.policy, config.waiting, config.lanes) = (policy, waiting, 1);
    let client = HostClient::connect(config).unwrap();
    for _ in 0..REQUESTS {
        client.read(1, 0, Buffer::alloc(512)).unwrap();
    }
}

#[test]
fn both_ends_poll_unless_they_are_configured_to_sleep() {
    read(PolicyConfig::custom(|role| observing(&SPINNING, role)), WaitPolicy::Adaptive);
    assert!(SPINNING.iter().all(|end| end.polled.load(Relaxed)), "{SPINNING:?}");
    read(PolicyConfig::custom(|role| observing(&ASLEEP, role)), WaitPolicy::Sleep);
    assert!(!ASLEEP.iter().any(|end| end.polled.load(Relaxed)), "{ASLEEP:?}");
}

//! Whether both ends hear that a few requests are to be tried awake.

use crate::harness::*;
use roadtrain_engine::buffer::Buffer;
use roadtrain_engine::host::Client;
use roadtrain_engine::spin::Waiting;
use roadtrain_engine::target::{Server, ServerConfig};
use roadtrain_proto::caravan::Limits;
use roadtrain_proto::policy::{
    Backlog, BatchPolicy, Cause, Doorbell, Freight, Parcel, PolicyConfig, Role,
};
use roadtrain_proto::time::Instant;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// More than the turns before a trial, and those in which the target joins.
const REQUESTS: usize = 2048;

/// Whether the ends of a pair were ever told: host, target.
type Told = [AtomicBool; 2];

static SPINNING: Told = [const { AtomicBool::new(false) }; 2];
static ASLEEP: Told = [const { AtomicBool::new(false) }; 2];

/// Sends at once, and notes what it is told.
struct Listening(&'static AtomicBool);

impl BatchPolicy for Listening {
    fn on_enqueue(&mut self, _: Instant, _: &Backlog, _: &Parcel) -> Doorbell {
        Doorbell::Ring(Cause::Drained)
    }

    fn limits(&self, _: Freight) -> Limits {
        PolicyConfig::none().limits
    }

    fn is_few(&self) -> bool {
        true
    }

    fn set_awake(&mut self, awake: bool) {
        self.0.fetch_or(awake, Relaxed);
    }
}

fn listening(told: &'static Told, role: Role) -> Box<dyn BatchPolicy + Send> {
    Box::new(Listening(&told[usize::from(role == Role::Target)]))
}

fn read(policy: PolicyConfig, waiting: Waiting) {
    let config = server_config(vec![memory(1, MIB, 512)]);
    let server = Server::start(ServerConfig { policy, waiting, ..config }).unwrap();
    let mut config = host_config(address(&server));
    (config.policy, config.waiting, config.lanes) = (policy, waiting, 1);
    let client = Client::connect(config).unwrap();
    for _ in 0..REQUESTS {
        client.read(1, 0, Buffer::alloc(512)).unwrap();
    }
}

#[test]
fn both_ends_try_to_stay_awake_unless_they_are_told_to_sleep() {
    read(PolicyConfig::custom(|role| listening(&SPINNING, role)), Waiting::Adaptive);
    assert!(SPINNING.iter().all(|told| told.load(Relaxed)), "{SPINNING:?}");
    read(PolicyConfig::custom(|role| listening(&ASLEEP, role)), Waiting::Sleep);
    assert!(!ASLEEP.iter().any(|told| told.load(Relaxed)), "{ASLEEP:?}");
}

//! Requirements of a host for a controller.

use core::time::Duration;
use roadtrain_proto::policy::Class;
use roadtrain_proto::security::SealUse;
use roadtrain_proto::security::dhchap::DhchapKeys;

/// Requirements of a host for a controller.
#[derive(Clone, Debug)]
pub struct Wants {
    /// Subsystem to connect to.
    pub subsystem_nqn: String,
    /// NQN of this host.
    pub host_nqn: String,
    /// Host identifier, a UUID.
    pub host_id: [u8; 16],
    /// Keep-alive timeout; zero for none.
    pub keep_alive: Duration,
    /// Maximum wait for a reply.
    pub timeout: Duration,
    /// Entries of an I/O queue.
    pub queue_entries: u16,
    /// Class of the I/O queues.
    pub class: Class,
    /// Request SQ flow control at once; else only if the target requires it.
    pub sq_flow_control: bool,
    /// Authentication keys. With a controller key the controller has to authenticate, too.
    pub keys: DhchapKeys,
    /// Sealing of frames of lanes over Ethernet; not used over TCP.
    pub seals: SealUse,
    /// Negotiate a PSK in the clear, and secure all connections with TLS and this PSK.
    pub concatenates: bool,
}

//! Requirements of a host for a controller.

use core::time::Duration;
use roadtrain_proto::policy::Class;
use roadtrain_proto::security::SealUse;
use roadtrain_proto::security::dhchap::Keys;

/// Requirements of a host for a controller.
#[derive(Clone, Debug)]
pub struct Wants {
    /// Subsystem to connect to.
    pub subsystem_nqn: String,
    /// Who this host says it is.
    pub host_nqn: String,
    /// Host identifier, a UUID.
    pub host_id: [u8; 16],
    /// Keep-alive timeout; zero for none.
    pub keep_alive: Duration,
    /// Longest wait for an answer.
    pub timeout: Duration,
    /// Entries of an I/O queue.
    pub queue_entries: u16,
    /// Class of the I/O queues.
    pub class: Class,
    /// Ask for SQ flow control at once; else only where the target insists on it.
    pub sq_flow_control: bool,
    /// Keys to authenticate with. With one of the controller's it has to prove that it has the key, too.
    pub keys: Keys,
    /// Whether frames of lanes over Ethernet are sealed; over TCP never.
    pub seals: SealUse,
    /// Authenticate in the clear to make a PSK, and connect everything with TLS and that.
    pub concatenates: bool,
}

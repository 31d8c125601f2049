//! Faults of networks: each network has its own, as some of them reach into hosts and targets.

use crate::host::Host;
use crate::plan::Fault;
use crate::target::Target;
use crate::transport::Transport;
use roadtrain_proto::time::Instant;

/// A network that faults happen to.
pub trait Faults: Transport {
    /// A fault that is the network's.
    fn strike(
        &mut self,
        now: Instant,
        fault: &Fault,
        hosts: &mut [Host<Self>],
        targets: &mut [Target<Self>],
    );
    /// Faults may be over.
    fn relieve(&mut self, _now: Instant, _hosts: &mut [Host<Self>], _targets: &mut [Target<Self>]) {
    }
}

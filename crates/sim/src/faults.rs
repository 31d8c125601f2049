//! Faults of networks. Each network has its own, as some of them reach into hosts and targets.

use crate::host::Host;
use crate::plan::Fault;
use crate::target::Target;
use crate::transport::Transport;
use roadtrain_proto::time::Instant;

/// A network with faults.
pub trait Faults: Transport {
    /// Applies a fault of the network.
    fn strike(
        &mut self,
        now: Instant,
        fault: &Fault,
        hosts: &mut [Host<Self>],
        targets: &mut [Target<Self>],
    );
    /// Ends faults that are due.
    fn relieve(&mut self, _now: Instant, _hosts: &mut [Host<Self>], _targets: &mut [Target<Self>]) {
    }
}

//! Faults of networks. Each network has its own, as some of them reach into hosts and targets.

use crate::host::SimHost;
use crate::plan::SimFault;
use crate::target::SimTarget;
use crate::transport::SimTransport;
use roadtrain_proto::time::Instant;

/// A network with faults.
pub trait Faults: SimTransport {
    /// Applies a fault of the network.
    fn strike(
        &mut self,
        now: Instant,
        fault: &SimFault,
        hosts: &mut [SimHost<Self>],
        targets: &mut [SimTarget<Self>],
    );
    /// Ends faults that are due.
    fn relieve(
        &mut self,
        _now: Instant,
        _hosts: &mut [SimHost<Self>],
        _targets: &mut [SimTarget<Self>],
    ) {
    }
}

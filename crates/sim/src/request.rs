//! A request of the load, as lanes and connections use it.

use crate::disk::BLOCK_BYTES;
use roadtrain_host_proto::express::RequestTraffic;
use roadtrain_host_proto::old_commands::BlockRange;
use roadtrain_host_proto::qpair::CommandTransfer;
use roadtrain_host_proto::requests::RequestProperties;
use roadtrain_host_proto::write_verifier::Durability;
use roadtrain_proto::policy::{Class, Urgency};
use roadtrain_wire::sqe::{Sqe, cdw12, opcode};

/// A request that a lane has taken.
#[derive(Clone, Debug)]
pub struct LoadRequest {
    /// Its number, in order of submission.
    pub token: u64,
    /// Its command.
    pub sqe: Sqe,
    /// First command of a Compare and Write, whose second is `sqe`.
    pub compare: Option<Sqe>,
    /// Its data.
    pub data: CommandTransfer,
    /// Its buffer.
    pub buffer: Vec<u8>,
    /// Urgency: an urgent request does not wait to be batched.
    pub urgency: Urgency,
    /// True for a deliberate fault: the request does not report the blocks that it changes.
    pub hides_blocks: bool,
}

impl RequestProperties for LoadRequest {
    fn nsid(&self) -> u32 {
        self.sqe.nsid.get()
    }

    fn traffic(&self) -> RequestTraffic {
        self.traffic()
    }

    fn may_repeat(&self) -> bool {
        self.compare.is_none()
    }

    fn has_effect(&self) -> bool {
        !matches!(self.sqe.opcode, opcode::READ | opcode::COMPARE | opcode::FLUSH)
    }

    fn changes(&self) -> BlockRange {
        match self.sqe.opcode {
            _ if self.hides_blocks => {
                BlockRange { nsid: self.nsid(), first: self.token, count: 1 } // a range of its own
            }
            opcode::DATASET_MANAGEMENT | opcode::COPY => BlockRange::all(self.nsid()),
            _ => {
                let count = u64::from(self.sqe.cdw12.get() & 0xffff) + 1;
                BlockRange { nsid: self.nsid(), first: self.sqe.slba(), count }
            }
        }
    }
    fn durability(&self) -> Durability {
        let is_forced = self.sqe.cdw12.get() & cdw12::FUA != 0;
        match self.sqe.opcode {
            opcode::FLUSH => Durability::Flush,
            opcode::READ | opcode::COMPARE | opcode::WRITE_UNCORRECTABLE => Durability::Unchanged,
            _ if is_forced => Durability::Unchanged,
            _ => Durability::NeedsFlush,
        }
    }
}

impl LoadRequest {
    /// Returns its kind of traffic.
    pub fn traffic(&self) -> RequestTraffic {
        let class = Class::from_dsm(self.sqe.cdw13.get()).unwrap_or_default();
        // The buffer may be with its command.
        let bytes = ((self.sqe.cdw12.get() & 0xffff) + 1) * BLOCK_BYTES as u32;
        match self.sqe.opcode {
            opcode::READ => match RequestTraffic::of(class, bytes) {
                RequestTraffic::Plain => RequestTraffic::Critical, // gives express connections traffic
                other => other,
            },
            // The simulation's namespaces have no large writes: any write is bulk that is not latency-critical.
            opcode::WRITE => match class {
                Class::Latency => RequestTraffic::Critical,
                Class::Bulk | Class::Normal => RequestTraffic::Bulk(bytes),
            },
            _ => RequestTraffic::Plain,
        }
    }
}

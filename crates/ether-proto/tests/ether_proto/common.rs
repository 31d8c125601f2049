//! Both ends of a connection in memory: a host queue pair with buffers, a target queue pair with a disk.
#![allow(dead_code, unreachable_pub, reason = "each test uses its own part")]

pub mod host_end;
pub mod raw;
pub mod show;
pub mod target_end;

use host_end::PairHostEnd;
use roadtrain_host_proto as host;
use roadtrain_proto::error::QpairError;
use roadtrain_proto::policy::{Class, PolicyConfig};
use roadtrain_proto::time::Instant;
use roadtrain_target_proto as target;
use roadtrain_wire::pdu::Digests;
use target_end::PairTargetEnd;

/// Logical block size of every test, as a power of two.
pub const LBA_SHIFT: u8 = 9;
/// Bytes of a logical block.
pub const BLOCK: u32 = 1 << LBA_SHIFT;
/// Offset of HPDA (ICReq) and CPDA (ICResp).
const PDA_OFFSET: usize = 10;

/// Delivery of bytes to a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// All bytes at once.
    Whole,
    /// A fixed number of bytes in each call.
    Pieces(usize),
    /// Data directly into its place by `wanted` and `placed`, at most that many bytes at once.
    Placed(usize),
}

/// Parameters of a connection.
#[derive(Clone, Copy, Debug)]
pub struct PairSetup {
    pub digests: Digests,
    pub hpda: u8,
    pub cpda: u8,
    pub maxh2cdata: u32,
    pub in_capsule_bytes: u32,
    pub entries: u16,
    pub sq_flow_control: bool,
    pub policy: PolicyConfig,
    /// Class of the connection.
    pub class: Class,
    pub delivery: Delivery,
}

impl Default for PairSetup {
    fn default() -> Self {
        PairSetup {
            digests: Digests::default(),
            hpda: 0,
            cpda: 0,
            maxh2cdata: 4096,
            in_capsule_bytes: 8192,
            entries: 32,
            sq_flow_control: true,
            policy: PolicyConfig::none(),
            class: Class::Normal,
            delivery: Delivery::Whole,
        }
    }
}

impl PairSetup {
    pub fn host(&self) -> host::qpair::HostQpairConfig {
        host::qpair::HostQpairConfig {
            digests: self.digests,
            queue_entries: self.entries,
            in_capsule_bytes: self.in_capsule_bytes,
            policy: self.policy,
        }
    }

    pub fn target(&self) -> target::qpair::TargetQpairConfig {
        target::qpair::TargetQpairConfig {
            digests: Digests { header: true, data: true },
            maxh2cdata: self.maxh2cdata,
            in_capsule_bytes_max: self.in_capsule_bytes.max(1024),
            policy: self.policy,
        }
    }
}

/// A host and a target, connected.
pub struct ConnectionPair {
    pub setup: PairSetup,
    pub now: Instant,
    pub host: PairHostEnd,
    pub target: PairTargetEnd,
}

impl ConnectionPair {
    /// Creates both ends before the first byte.
    pub fn new(setup: PairSetup) -> Self {
        let now = Instant(0);
        let (host, target) =
            (PairHostEnd::new(now, setup.host()), PairTargetEnd::new(setup.target()));
        ConnectionPair { setup, now, host, target }
    }

    /// Creates both ends after ICReq, ICResp and Connect.
    pub fn connected(setup: PairSetup) -> Self {
        let mut pair = ConnectionPair::new(setup);
        let mut icreq = pair.host.send(pair.now);
        icreq[PDA_OFFSET] = setup.hpda;
        pair.target.receive(pair.now, &icreq, setup.delivery).expect("ICReq is valid");
        let mut icresp = pair.target.send(pair.now);
        icresp[PDA_OFFSET] = setup.cpda;
        pair.host.receive(pair.now, &icresp, setup.delivery).expect("ICResp is valid");
        assert!(pair.host.qpair.is_ready());
        pair.host.connect(pair.now, &setup);
        pair.settle().expect("Connect succeeds");
        assert_eq!(pair.host.take_completions().len(), 1);
        pair
    }

    /// Carries bytes in both directions until nothing moves. Returns the bytes that each end sent.
    pub fn settle(&mut self) -> Result<(Vec<u8>, Vec<u8>), QpairError> {
        let (mut from_host, mut from_target) = (Vec::new(), Vec::new());
        loop {
            let out = self.host.send(self.now);
            self.target.receive(self.now, &out, self.setup.delivery)?;
            let back = self.target.send(self.now);
            self.host.receive(self.now, &back, self.setup.delivery)?;
            if out.is_empty() && back.is_empty() {
                return Ok((from_host, from_target));
            }
            from_host.extend(out);
            from_target.extend(back);
        }
    }
}

/// Returns recognisable data that differs in every byte and by `seed`.
pub fn pattern(length: u32, seed: u8) -> Vec<u8> {
    (0..length).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed).collect()
}

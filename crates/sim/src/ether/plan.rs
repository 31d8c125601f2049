//! What a seed stands for: links, both ends' settings, the disk, the load and the faults.

use super::net::Manners;
use crate::network::End;
use crate::plan::{self, policy};
use crate::rng::Rng;
use core::time::Duration;
use roadtrain_proto::ether::Packing;
use roadtrain_proto::policy::PolicyConfig;
use roadtrain_proto::time::Instant;
use roadtrain_wire::ether::{DATA_RECORD_BYTES, FRAME_HEADER_BYTES, PAGE_BYTES};

/// A fault, or another event from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A link is cut for a while.
    Cut {
        /// Which.
        link: u8,
        /// How long.
        time: Duration,
        /// The ends are told that there is no carrier.
        told: bool,
        /// What is sent meanwhile waits in the interface, and leaves when the link is back.
        sticks: bool,
    },
    /// Nothing arrives over a link in one direction for a while.
    Deaf {
        /// Which.
        link: u8,
        /// In which direction.
        to: End,
        /// How long.
        time: Duration,
    },
    /// An end does nothing for a while.
    Stall {
        /// Which.
        end: End,
        /// How long.
        time: Duration,
    },
    /// The host's lanes move to other socket numbers.
    Move,
    /// An end says that it has little room, or none, for a while.
    Narrow {
        /// Which.
        end: End,
        /// Room.
        credits: u16,
        /// How long.
        time: Duration,
    },
    /// An end ends a lane.
    Leave(End),
    /// The target's process dies and comes back.
    Kill {
        /// How long it is away.
        time: Duration,
    },
    /// The target's machine loses power and comes back.
    PowerLoss {
        /// How long it is away.
        time: Duration,
    },
    /// The disk does nothing for a while, as one whose path fails over.
    StallDisk {
        /// How long.
        time: Duration,
    },
    /// Somebody on the segment sends frames: replayed, truncated, changed, random.
    Flood {
        /// So many.
        frames: u32,
    },
}

/// A link.
#[derive(Clone, Copy, Debug)]
pub struct LinkPlan {
    /// Largest frame: header and body.
    pub frame_bytes: u16,
    /// To the host, to the target.
    pub ways: [Manners; 2],
}

/// One end's manner of sending.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    /// When.
    pub policy: PolicyConfig,
    /// What goes together.
    pub packing: Packing,
    /// Frames of one send.
    pub frames_per_send: usize,
}

/// Everything a seed decides.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it has in common with runs over TCP; that one's network and faults are not looked at.
    pub base: plan::Plan,
    /// Pages of a lane's damq.
    pub pages: u32,
    /// PIECE.
    pub piece_bytes: u16,
    /// Bodies have check sums.
    pub body_crc: bool,
    /// The host's manner.
    pub host: Sending,
    /// The target's manner.
    pub target: Sending,
    /// The links.
    pub links: Vec<LinkPlan>,
    /// Frames that a receiver who does not look has room for.
    pub ring_frames: usize,
    /// Faults, in order of time.
    pub faults: Vec<(Instant, Fault)>,
}

/// What a piece may be so that frames of all these links carry it.
#[must_use]
pub fn piece_bytes(links: &[LinkPlan]) -> u16 {
    let smallest = links.iter().map(|link| usize::from(link.frame_bytes)).min().unwrap_or(0);
    let body = smallest.saturating_sub(FRAME_HEADER_BYTES + DATA_RECORD_BYTES) & !7;
    body.min(PAGE_BYTES) as u16
}

fn sending(rng: &mut Rng) -> Sending {
    let packing = Packing { requests: rng.chance(80), pieces: rng.chance(80) };
    Sending { policy: policy(rng), packing, frames_per_send: rng.pick(&[1, 4, 64, 1000]) }
}

fn manners(rng: &mut Rng, frame_bytes: u16, body_crc: bool, calm: bool) -> Manners {
    let longest = rng.pick(&[5, 50, 500, 5000]);
    let delay = rng.between(2, longest);
    let rate_mbit = rng.chance(40).then(|| rng.pick(&[100, 1000, 10_000]));
    let queue_octets = rng.pick(&[20_000, 100_000, 1_000_000]).max(4 * u64::from(frame_bytes));
    let good = Manners::good(delay, rate_mbit, queue_octets);
    if calm {
        return good;
    }
    Manners {
        delay_us: (delay, rng.pick(&[0, 0, 10, 300])),
        lost_ppm: rng.pick(&[0, 1000, 10_000, 50_000, 200_000]),
        repeated_ppm: rng.pick(&[0, 0, 1000, 50_000]),
        damaged_ppm: rng.pick(&[0, 0, 1000, 50_000]),
        overtaken_ppm: rng.pick(&[0, 0, 10_000, 300_000]),
        damages_bodies: body_crc,
        ..good
    }
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn new(rng: &mut Rng) -> Self {
        let body_crc = rng.chance(70);
        let (is_calm, is_asymmetric) = (rng.chance(15), rng.chance(50));
        let links: Vec<LinkPlan> = (0..rng.between(1, 4))
            .map(|_| {
                let frame_bytes = rng.pick(&[1500, 4256, 9000, 9000, 65_000]);
                let mut manners = || manners(rng, frame_bytes, body_crc, is_calm);
                let to_host = manners();
                let to_target = if is_asymmetric { manners() } else { to_host };
                LinkPlan { frame_bytes, ways: [to_host, to_target] }
            })
            .collect();
        let (count, host) = (links.len() as u64, sending(rng));
        let mut base = plan::Plan::new(rng);
        let requests = rng.between(100, 1200) as u32;
        (base.pool_bytes, base.faults) = (32 << 20, Vec::new());
        base.pause = base.chaos * base.lanes as u32 * u32::from(base.hosts) / requests;
        // Links take their time, and no lane ends for that.
        base.keep_alive = Duration::ZERO;
        (base.io_timeout, base.timeout) = (None, Duration::from_secs(10));
        base.host.policy = host.policy;
        let faults = if is_calm { Vec::new() } else { faults(rng, base.chaos, count) };
        Plan {
            base,
            pages: rng.pick(&[8, 32, 512]),
            piece_bytes: piece_bytes(&links),
            body_crc,
            host,
            target: sending(rng),
            links,
            ring_frames: rng.pick(&[16, 256, 4096]),
            faults,
        }
    }
}

fn faults(rng: &mut Rng, chaos: Duration, links: u64) -> Vec<(Instant, Fault)> {
    let mut faults = Vec::new();
    for _ in 0..rng.below(12) {
        let time = rng.micros(0, 30_000) * rng.pick(&[1, 1, 5]);
        let link = rng.below(links) as u8;
        let end = rng.pick(&[End::Host, End::Target]);
        let fault = match rng.below(100) {
            0..30 => Fault::Cut { link, time, told: rng.chance(50), sticks: rng.chance(30) },
            30..42 => Fault::Deaf { link, to: end, time },
            42..55 => Fault::Stall { end, time },
            55..63 => Fault::Move,
            63..71 => Fault::Narrow { end, credits: rng.pick(&[0, 1, 5, 60]), time },
            71..77 => Fault::Leave(end),
            77..81 => Fault::Kill { time },
            81..85 => Fault::PowerLoss { time },
            85..89 => Fault::StallDisk { time },
            _ => Fault::Flood { frames: rng.between(1, 3000) as u32 },
        };
        faults.push((rng.moment(chaos), fault));
    }
    faults.sort_by_key(|(at, _)| *at);
    faults
}

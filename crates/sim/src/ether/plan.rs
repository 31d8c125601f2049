//! Plan of a seed: links, both ends' settings, the disk, the load and the faults.

use super::net::LinkBehaviour;
use super::settings::{EtherSettings, LinkPlan, Sending, piece_bytes};
use crate::ends::ConnEnd;
use crate::plan::{SimFault, SimPlan, policy};
use crate::rng::SimRng;
use core::time::Duration;
use roadtrain_ether_proto::Packing;
use roadtrain_proto::time::Instant;

/// Timeout of a control plane command, longer than a target's timeout for querying a host about its lanes.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Timeouts after which commands are aborted.
const IO_TIMEOUTS: [Duration; 2] = [Duration::from_millis(60), Duration::from_millis(300)];

fn sending(rng: &mut SimRng) -> Sending {
    let packing = Packing { requests: rng.chance(80), pieces: rng.chance(80) };
    Sending { policy: policy(rng), packing, frames_per_send: rng.pick(&[1, 4, 64, 1000]) }
}

fn behaviour(rng: &mut SimRng, frame_bytes: u16, body_crc: bool, calm: bool) -> LinkBehaviour {
    let longest = rng.pick(&[5, 50, 500, 5000]);
    let delay = rng.between(2, longest);
    let rate_mbit = rng.chance(40).then(|| rng.pick(&[100, 1000, 10_000]));
    let queue_bytes = rng.pick(&[20_000, 100_000, 1_000_000]).max(4 * u64::from(frame_bytes));
    let good = LinkBehaviour::good(delay, rate_mbit, queue_bytes);
    if calm {
        return good;
    }
    LinkBehaviour {
        delay_us: (delay, rng.pick(&[0, 0, 10, 300])),
        lost_ppm: rng.pick(&[0, 1000, 10_000, 50_000, 200_000]),
        repeated_ppm: rng.pick(&[0, 0, 1000, 50_000]),
        damaged_ppm: rng.pick(&[0, 0, 1000, 50_000]),
        overtaken_ppm: rng.pick(&[0, 0, 10_000, 300_000]),
        damages_bodies: body_crc,
        ..good
    }
}

/// Returns the plan of a seed.
pub(super) fn plan(rng: &mut SimRng) -> SimPlan {
    let body_crc = rng.chance(70);
    let (is_calm, is_asymmetric) = (rng.chance(15), rng.chance(50));
    let links: Vec<LinkPlan> = (0..rng.between(1, 4))
        .map(|_| {
            let frame_bytes = rng.pick(&[1500, 4256, 9000, 9000, 65_000]);
            let mut behaviour = || behaviour(rng, frame_bytes, body_crc, is_calm);
            let to_host = behaviour();
            let to_target = if is_asymmetric { behaviour() } else { to_host };
            LinkPlan { frame_bytes, directions: [to_host, to_target] }
        })
        .collect();
    let (count, host) = (links.len() as u64, sending(rng));
    let mut plan = SimPlan::new(rng);
    let requests = rng.between(100, 1200) as u32;
    plan.pause = plan.chaos * plan.lanes as u32 * u32::from(plan.hosts) / requests;
    // Links are slow: lanes have to survive any impairment only in runs without timeouts.
    (plan.timeout, plan.io_timeout) = (TIMEOUT, rng.chance(50).then(|| rng.pick(&IO_TIMEOUTS)));
    if plan.io_timeout.is_none() {
        (plan.keep_alive, plan.pool_bytes) = (Duration::ZERO, 32 << 20);
    }
    plan.host.policy = host.policy;
    plan.faults = if is_calm { Vec::new() } else { faults(rng, &plan, count) };
    let (pages, ring_frames) = (rng.pick(&[8, 32, 512]), rng.pick(&[16, 256, 4096]));
    let (piece_bytes, target) = (piece_bytes(&links), sending(rng));
    let seals = false; // enabled by runs about sealing
    plan.ether =
        EtherSettings { pages, piece_bytes, body_crc, seals, host, target, links, ring_frames };
    plan
}

fn faults(rng: &mut SimRng, plan: &SimPlan, links: u64) -> Vec<(Instant, SimFault)> {
    let mut faults = Vec::new();
    for _ in 0..rng.below(12) {
        let time = rng.micros(0, 30_000) * rng.pick(&[1, 1, 5]);
        let link = rng.below(links) as u8;
        let end = rng.pick(&[ConnEnd::Host, ConnEnd::Target]);
        let fault = match rng.below(100) {
            0..30 => {
                SimFault::Cut { link, time, is_notified: rng.chance(50), sticks: rng.chance(30) }
            }
            30..42 => SimFault::DropTowards { link, to: end, time },
            42..55 => SimFault::Stall { end, time },
            55..63 => SimFault::Move,
            63..71 => SimFault::Narrow { end, credits: rng.pick(&[0, 1, 5, 60]), time },
            71..77 => SimFault::Leave(end),
            77..81 => SimFault::Kill { target: 0, time },
            81..85 => SimFault::PowerLoss { time },
            85..89 => SimFault::StallDisk { time },
            89..92 => SimFault::KillHost { host: rng.below(plan.hosts.into()) as u8, time },
            92..94 => SimFault::Resize,
            94..96 => SimFault::Namespace,
            _ => SimFault::Flood { frames: rng.between(1, 3000) as u32 },
        };
        faults.push((rng.moment(plan.chaos), fault));
    }
    faults.sort_by_key(|(at, _)| *at);
    faults
}

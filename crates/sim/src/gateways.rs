//! Placement and failover of a group of gateways, larger than a machine can run: how evenly images are distributed, how
//! many move when a gateway leaves or joins, and how long the recovery from a failed gateway takes.
//!
//! The decisions are the product's: [`preferred`], [`Members`] and [`OwnershipObserver`] with their timing. The model adds the
//! polling times of gateways, the cluster's time for a fence, and the time to open an image.

use crate::rng::SimRng;
use core::time::Duration;
use roadtrain_proto::ownership::{FenceVerdict, ObservedOwner, OwnershipObserver, OwnershipTiming};
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::gateways::{Members, preferred};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Group sizes.
pub const GATEWAYS: [usize; 5] = [2, 3, 8, 16, 32];
/// Numbers of images.
pub const IMAGES: [usize; 4] = [10, 100, 1000, 10_000];

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
/// Time at which the gateway fails.
const DEATH: u64 = 20 * SECOND;
/// Latency of a request to the cluster.
const ANSWER: u64 = 2 * MS;
/// Interval of a gateway's rounds.
const ROUND: u64 = 500 * MS;
/// Interval of checks for free images.
const FREE_CHECK: u64 = 100 * MS;
/// Shortest interval of changes of the cluster's map (`paxos_propose_interval`); `DISTRIBUTE` is the time to distribute it.
const PROPOSE: u64 = SECOND;
const DISTRIBUTE: u64 = 100 * MS;
/// Time to open and lock an image, one after the other.
pub const OPEN: u64 = 100 * MS;

fn names(gateways: usize) -> Vec<String> {
    (0..gateways).map(|n| format!("gate{n}")).collect()
}

/// Returns the gateway that serves each image.
fn place(images: usize, members: &[String]) -> Vec<&str> {
    let of = |image| {
        preferred(&format!("disks/image{image}"), members.iter().map(String::as_str)).unwrap_or("")
    };
    (0..images).map(of).collect()
}

/// Balance of a placement, and its moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayPlacement {
    /// Images of the gateway with the fewest.
    pub fewest: usize,
    /// Images of the gateway with the most.
    pub most: usize,
    /// Least and most images that move when a gateway leaves, over all gateways.
    pub leaves: (usize, usize),
    /// Images that move when a gateway joins.
    pub comes: usize,
    /// Images that move in either case between gateways that stay.
    pub needless: usize,
}

/// Distributes `images` over `gateways`, lets each of them leave, and one more join.
#[must_use]
pub fn placement(gateways: usize, images: usize) -> GatewayPlacement {
    let members = names(gateways);
    let before = place(images, &members);
    let mut shares: BTreeMap<&str, usize> = members.iter().map(|name| (name.as_str(), 0)).collect();
    before.iter().for_each(|gateway| *shares.entry(gateway).or_default() += 1);
    let (mut moved, mut needless) = (Vec::new(), 0);
    for gone in &members {
        let rest: Vec<String> = members.iter().filter(|name| *name != gone).cloned().collect();
        let after = place(images, &rest);
        let moves = before.iter().zip(&after).filter(|(old, new)| old != new);
        needless += moves.clone().filter(|(old, _)| *old != gone).count();
        moved.push(moves.count());
    }
    let more = names(gateways + 1);
    let after = place(images, &more);
    let moves = before.iter().zip(&after).filter(|(old, new)| old != new);
    needless += moves.clone().filter(|(_, new)| **new != more[gateways]).count();
    let least_and_most = |counts: &[usize]| {
        (counts.iter().copied().min().unwrap_or(0), counts.iter().copied().max().unwrap_or(0))
    };
    let counts: Vec<usize> = shares.into_values().collect();
    let (fewest, most) = least_and_most(&counts);
    GatewayPlacement {
        fewest,
        most,
        leaves: least_and_most(&moved),
        comes: moves.count(),
        needless,
    }
}

/// Recovery of the images of a failed gateway; times are after its failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Images that it had.
    pub images: usize,
    /// Time at which all others have noticed the failure.
    pub known: Duration,
    /// Time at which the first image is served again.
    pub first: Duration,
    /// Time at which the last image is served again.
    pub last: Duration,
    /// Requests of all gateways to the cluster per second, before the failure.
    pub operations: u64,
}

/// Returns when a gateway with rounds at `phase` notices that one with heartbeats at phase `its` has failed.
fn known(phase: u64, its: u64) -> u64 {
    let mut members = Members::default();
    let beat_at = |now: u64| 1 + (now.min(DEATH).saturating_sub(its)) / (ROUND + ANSWER);
    let mut now = phase;
    loop {
        let own = now;
        members.round([("own", own), ("its", beat_at(now))]);
        if now > DEATH && !members.lives("its") {
            return now;
        }
        now += ROUND + ANSWER;
    }
}

/// Returns when an observer of an image, with checks from `phase` on, has the owner fenced that sent heartbeats at
/// phase `its`.
fn silent(timing: OwnershipTiming, phase: u64, its: u64) -> u64 {
    let (beat, check) = (timing.heartbeat.as_nanos() as u64, timing.check.as_nanos() as u64);
    let mut observer = OwnershipObserver::new(timing);
    let mut now = phase;
    loop {
        let number = (now.min(DEATH) + beat - its) / beat;
        let verdict = observer.check_completed(
            Instant(now),
            Instant(now + ANSWER),
            ObservedOwner::Heartbeat(number),
        );
        if verdict == FenceVerdict::Fence {
            return now + ANSWER;
        }
        now += ANSWER + check;
    }
}

/// Simulates the failure of the gateway with the most images in a group of `gateways`.
#[must_use]
pub fn recovery(seed: u64, gateways: usize, images: usize) -> Recovery {
    let (mut rng, timing) = (SimRng::new(seed), OwnershipTiming::default());
    let members = names(gateways);
    let before = place(images, &members);
    let count = |name: &str| before.iter().filter(|gateway| **gateway == name).count();
    let Some(dead) = members.iter().max_by_key(|name| count(name)) else {
        unreachable!("a gateway")
    };
    let rest: Vec<String> = members.iter().filter(|name| *name != dead).cloned().collect();
    let its = rng.below(ROUND);
    let known: BTreeMap<&str, u64> =
        rest.iter().map(|name| (name.as_str(), known(rng.below(ROUND), its))).collect();
    // Times at which images become free, by the gateway that takes them over.
    let mut free: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let check = timing.check.as_nanos() as u64;
    for (image, _) in before.iter().enumerate().filter(|(_, gateway)| *gateway == dead) {
        let beats = rng.below(SECOND);
        // All standby gateways observe the image; the first one fences the owner.
        let fenced =
            rest.iter().map(|_| silent(timing, rng.below(check), beats)).min().unwrap_or(DEATH);
        let fenced = fenced + rng.below(PROPOSE) + DISTRIBUTE;
        let seen = fenced + rng.below(check + ANSWER);
        let name = format!("disks/image{image}");
        let successor = preferred(&name, rest.iter().map(String::as_str)).unwrap_or("");
        free.entry(successor).or_default().push(seen);
    }
    let served = free
        .into_iter()
        .flat_map(|(successor, free)| served(known[successor], rng.below(FREE_CHECK), free));
    let served: Vec<u64> = served.collect();
    let since = |at: Option<u64>| Duration::from_nanos(at.map_or(0, |at| at - DEATH));
    Recovery {
        images: served.len(),
        known: since(known.values().copied().max()),
        first: since(served.iter().copied().min()),
        last: since(served.iter().copied().max()),
        operations: operations(timing, gateways, images),
    }
}

/// Returns when a successor serves each image: it opens those that are free at a check one after the other.
fn served(known: u64, phase: u64, mut free: Vec<u64>) -> Vec<u64> {
    free.sort_unstable();
    let (mut now, mut served) = (phase, Vec::new());
    while !free.is_empty() {
        now += FREE_CHECK;
        let count = if now < known { 0 } else { free.iter().take_while(|at| **at <= now).count() };
        served.extend((1..=count as u64).map(|n| now + n * OPEN));
        now += count as u64 * OPEN;
        free.drain(..count);
    }
    served
}

/// Returns requests per second: owners' heartbeats, reads of lock and heartbeat by standby gateways, and gateways' own
/// rounds.
fn operations(timing: OwnershipTiming, gateways: usize, images: usize) -> u64 {
    let per_second = |pause: Duration| 1.0 / pause.as_secs_f64();
    let checks = 2.0 * (gateways - 1) as f64 * per_second(timing.check);
    let rounds = 2.0 * gateways as f64 * per_second(Duration::from_nanos(ROUND));
    (images as f64 * (per_second(timing.heartbeat) + checks) + rounds) as u64
}

/// Returns the tables of docs/internals/gateways.md.
#[must_use]
pub fn tables() -> String {
    let mut text = String::from(
        "| gateways | images | fewest to most | one leaves: move | one comes: move | move needlessly |\n\
         |---|---|---|---|---|---|\n",
    );
    let pairs =
        || GATEWAYS.into_iter().flat_map(|gateways| IMAGES.map(|images| (gateways, images)));
    for (gateways, images) in pairs() {
        let GatewayPlacement { fewest, most, leaves: (least, largest), comes, needless } =
            placement(gateways, images);
        let _ = writeln!(
            text,
            "| {gateways} | {images} | {fewest} to {most} | {least} to {largest} | {comes} | {needless} |"
        );
    }
    text.push_str(
        "\n| gateways | images | of the dead | away after | first served | last served | operations a second |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (gateways, images) in pairs() {
        let Recovery { images: gone, known, first, last, operations } =
            recovery(7, gateways, images);
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        let (known, first, last) = (seconds(known), seconds(first), seconds(last));
        let _ = writeln!(
            text,
            "| {gateways} | {images} | {gone} | {known} | {first} | {last} | {operations} |"
        );
    }
    text
}

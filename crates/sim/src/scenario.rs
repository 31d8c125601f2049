//! Scenarios: purposeful changes of a seed's plan. Tests run some seeds of each, the program any number.

mod reactors;
mod targets;

pub use reactors::{reactors, swapping};
pub use targets::{drawn, failing_fast, moving, standing_still, sticking, targets};

use crate::ends::ConnEnd;
use crate::plan::{Sabotage, SimFault, SimPlan};
use core::time::Duration;
use roadtrain_host_proto::express::ExpressRules;
use roadtrain_proto::time::Instant;
use roadtrain_wire::pdu::Digests;

/// A change of a seed's plan.
pub type SimScenario = fn(&mut SimPlan);

/// Every scenario that must succeed, by name.
pub const ALL: [(&str, SimScenario); 39] = [
    ("drawn", drawn),
    ("losing", losing),
    ("losing-in-turn", losing_in_turn),
    ("losing-paths", losing_paths),
    ("power-loss", power_loss),
    ("forgetting", forgetting),
    ("killing", killing),
    ("half-open", half_open),
    ("lost-resets", lost_resets),
    ("replaced", replaced),
    ("pausing", pausing),
    ("stalling", stalling),
    ("unread", unread),
    ("unheard", unheard),
    ("unheard-stalling", unheard_stalling),
    ("resizing", resizing),
    ("starving", starving),
    ("authenticating", authenticating),
    ("tls", tls),
    ("forging", forging),
    ("renewing", renewing),
    ("mixing", mixing),
    ("paths", paths),
    ("late-write", late_write),
    ("counting", counting),
    ("counting-paths", counting_paths),
    ("taking", taking),
    ("taking-paths", taking_paths),
    ("fence", fence),
    ("marking", marking),
    ("marking-paths", marking_paths),
    ("targets", targets),
    ("sticking", sticking),
    ("failing-fast", failing_fast),
    ("moving", moving),
    ("standing-still", standing_still),
    ("reactors", reactors),
    ("swapping", swapping),
    ("neighbours", neighbours),
];

/// Sets `count` faults and no others, spread over the run.
fn only(plan: &mut SimPlan, count: u32, fault: impl Fn(u32) -> SimFault) {
    plan.faults.clear();
    also(plan, count, fault);
}

/// Adds `count` faults, spread over the run.
fn also(plan: &mut SimPlan, count: u32, fault: impl Fn(u32) -> SimFault) {
    let at = |part| Instant(0) + plan.chaos * (part + 1) / (count + 1);
    plan.faults.extend((0..count).map(|part| (at(part), fault(part))));
    plan.faults.sort_by_key(|(at, _)| *at);
}

/// Storage whose flushes fail and lose the data they were for, power losses that reveal it, and hosts that share it.
pub fn losing(plan: &mut SimPlan) {
    (plan.hosts, plan.blocks) = (3, 64);
    plan.behaviour.losing_percent = 25;
    // A flush that is repeated after the death of the target's process does not get the failure of the first attempt.
    // Nor does a host's process know the failures that its predecessor has received.
    plan.faults
        .retain(|(_, fault)| !matches!(fault, SimFault::Kill { .. } | SimFault::KillHost { .. }));
    also(plan, 7, |_| SimFault::PowerLoss { time: Duration::from_millis(1) });
}

/// As [`losing`], with lost connections and a stalled store between power losses.
pub fn losing_in_turn(plan: &mut SimPlan) {
    losing(plan);
    also(plan, 18, |part| match part % 3 {
        0 => SimFault::Reset,
        1 => SimFault::StallDisk { time: Duration::from_millis(5) },
        _ => SimFault::PowerLoss { time: Duration::from_millis(1) },
    });
}

/// As [`losing`], with hosts that write and flush over two paths, which fail.
pub fn losing_paths(plan: &mut SimPlan) {
    losing(plan);
    paths(plan);
}

/// The target's machine loses power again and again, and its process dies in between: a flush fails once after each
/// power loss that took acknowledged writes, and never else.
pub fn power_loss(plan: &mut SimPlan) {
    (plan.hosts, plan.blocks) = (2, 32);
    plan.behaviour.failing_per_mille = 0;
    also(plan, 10, |part| match part % 2 {
        0 => SimFault::PowerLoss { time: Duration::from_millis(1) },
        _ => SimFault::Kill { target: 0, time: Duration::from_millis(1) },
    });
}

/// A disk whose physical blocks have eight logical ones: a write of some is made by read-modify-write, next to those of
/// other hosts. The target's process dies, its machine loses power, the disk is stalled, and connections are lost.
pub fn neighbours(plan: &mut SimPlan) {
    (plan.hosts, plan.blocks, plan.physical_bytes) = (3, 16, 4096);
    if plan.ether.links.is_empty() {
        // A pair has two entries.
        (plan.swaps_percent, plan.queue_entries) = (10, plan.queue_entries.max(8));
        plan.host.queue_entries = plan.queue_entries;
    }
    also(plan, 12, |part| match part % 4 {
        0 => SimFault::Kill { target: 0, time: Duration::from_millis(1) },
        1 => SimFault::StallDisk { time: Duration::from_millis(3) },
        2 => SimFault::PowerLoss { time: Duration::from_millis(1) },
        _ => SimFault::Reset,
    });
}

/// The target does not respond to one command of a hundred: hosts abort it, then reconnect.
pub fn forgetting(plan: &mut SimPlan) {
    plan.sabotage = Some(Sabotage::DroppedResponse);
    plan.io_timeout.get_or_insert(Duration::from_millis(60));
}

/// Three hosts on few blocks; their processes die one after the other, with requests in flight.
pub fn killing(plan: &mut SimPlan) {
    (plan.hosts, plan.blocks) = (3, 16);
    plan.behaviour.slow_percent = 20;
    let time = Duration::from_micros(100);
    only(plan, 9, |part| SimFault::KillHost { host: (part % 3) as u8, time });
}

/// Connections fall silent one after the other, without any notice of an end.
pub fn half_open(plan: &mut SimPlan) {
    plan.keep_alive = Duration::from_millis(100);
    only(plan, 6, |_| SimFault::Swallow);
}

/// Connections are reset with notice to one end only, each end in turn. In between the disk is stalled, so that much is
/// unread and without a response.
pub fn lost_resets(plan: &mut SimPlan) {
    plan.keep_alive = Duration::from_millis(100);
    (plan.blocks, plan.behaviour.slow_percent) = (16, 30);
    only(plan, 12, |part| match part % 3 {
        0 => SimFault::StallDisk { time: Duration::from_millis(25) },
        _ => {
            SimFault::ResetOne { end: if part % 3 == 1 { ConnEnd::Target } else { ConnEnd::Host } }
        }
    });
}

/// The target serves another namespace when it restarts.
pub fn replaced(plan: &mut SimPlan) {
    (plan.hosts, plan.controller_loss_timeout) = (2, None);
    only(plan, 24, |part| match part % 4 {
        3 => SimFault::Kill { target: 0, time: Duration::from_micros(200) },
        _ => SimFault::Namespace,
    });
}

/// All arrivals are held for about the keep-alive timeout, or half of it: some associations survive, some end, at
/// either end first.
pub fn pausing(plan: &mut SimPlan) {
    plan.keep_alive = Duration::from_millis(100);
    plan.chaos = Duration::from_millis(800);
    plan.pause *= 4;
    let ms = [49, 50, 51, 99, 100, 101, 151];
    only(plan, 7, |part| SimFault::Hold { time: Duration::from_millis(ms[part as usize]) });
}

/// The disk is stalled, and connections are lost meanwhile: hosts reconnect while commands of their lost connections
/// are still on the disk.
pub fn stalling(plan: &mut SimPlan) {
    (plan.blocks, plan.behaviour.slow_percent) = (16, 30);
    plan.controller_loss_timeout = None;
    also(plan, 24, |part| match part % 4 {
        0 => SimFault::StallDisk { time: Duration::from_millis(25) },
        _ => SimFault::Reset,
    });
}

/// The target does not read connections that hosts lose.
pub fn unread(plan: &mut SimPlan) {
    also(plan, 30, |part| match part % 2 {
        0 => SimFault::Stall { end: ConnEnd::Target, time: Duration::from_millis(30) },
        _ => SimFault::Reset,
    });
}

/// Every 30 ms the target does not read for a while. Meanwhile hosts lose all their connections, reconnect, and repeat
/// their writes. The target is not notified: the old connections still have unread data.
pub fn unheard(plan: &mut SimPlan) {
    without_news(plan);
    let time = Duration::from_millis(20);
    plan.faults = rounds(|at| [(at, SimFault::Unread { time }), (at + SOON, SimFault::Partition)]);
}

/// As [`unheard`], but the target has read everything, and its store is stalled.
pub fn unheard_stalling(plan: &mut SimPlan) {
    without_news(plan);
    let time = Duration::from_millis(20);
    plan.faults =
        rounds(|at| [(at, SimFault::StallDisk { time }), (at + SOON, SimFault::Partition)]);
}

const SOON: Duration = Duration::from_millis(3);

/// So many writes to a few blocks that each is soon written again, and no keep-alive timer ends connections in time.
fn without_news(plan: &mut SimPlan) {
    (plan.blocks, plan.controller_loss_timeout) = (16, None);
    // Over Ethernet, orphaned lanes query their hosts until the timer ends them.
    let keep_alive_ms = if plan.ether.links.is_empty() { 3000 } else { 200 };
    (plan.keep_alive, plan.chaos) =
        (Duration::from_millis(keep_alive_ms), Duration::from_millis(300));
    (plan.reconnect_delay, plan.pause) = (Duration::from_millis(1), Duration::from_micros(500));
    plan.network_behaviour.delay_us = (5, 100);
}

fn rounds(round: impl Fn(Instant) -> [(Instant, SimFault); 2]) -> Vec<(Instant, SimFault)> {
    (1..9).flat_map(|number| round(Instant(number * 30_000_000))).collect()
}

/// The namespace in use changes its size all the time, which no request notices.
pub fn resizing(plan: &mut SimPlan) {
    (plan.behaviour.failing_per_mille, plan.controller_loss_timeout) = (0, None);
    only(plan, 40, |part| if part % 5 == 4 { SimFault::Namespace } else { SimFault::Resize });
}

/// Connections of three hosts need many times the available buffers; some fall silent and keep theirs.
pub fn starving(plan: &mut SimPlan) {
    plan.pool_bytes = 24 << 10;
    (plan.hosts, plan.lanes, plan.depth) = (3, 4, 40);
    plan.keep_alive = Duration::from_secs(2);
    only(plan, 16, |_| SimFault::Swallow);
}

/// Hosts and target authenticate each other on every queue, in spite of lost connections.
pub fn authenticating(plan: &mut SimPlan) {
    plan.authenticates = true;
    plan.dh_compute_us = plan.dice.clone().fork().pick(&[0, 500, 13_000]);
}

/// Connections have TLS and hosts authenticate, in addition to everything else of a seed. An attacker on the wire
/// changes data, and ends close connections in order.
pub fn tls(plan: &mut SimPlan) {
    (plan.tls, plan.authenticates) = (true, true);
    // Only a timer detects bytes that an attacker has dropped.
    plan.keep_alive = Duration::from_millis(100);
    also(plan, 12, |part| match part % 3 {
        0 => SimFault::Forge,
        1 => SimFault::Leave(ConnEnd::Target),
        _ => SimFault::Leave(ConnEnd::Host),
    });
}

/// An attacker on the wire changes data all the time, without any other fault.
pub fn forging(plan: &mut SimPlan) {
    plan.tls = true;
    plan.keep_alive = Duration::from_millis(100);
    plan.host.digests = Digests::default();
    only(plan, 40, |_| SimFault::Forge);
}

/// Keys of hosts are used up all the time, without any other fault.
pub fn renewing(plan: &mut SimPlan) {
    (plan.tls, plan.controller_loss_timeout) = (true, None);
    (plan.hosts, plan.lanes, plan.depth, plan.queue_entries) = (2, 1, 8, 8);
    plan.host.queue_entries = 8;
    // More than all requests of a lane have: some are completed before it is used up.
    plan.security.blocks_max = [16_000, 1 << 30];
    plan.security.other_sends_per_mille = 0;
    plan.faults.clear();
}

/// Latency-critical requests and bulk meet in lanes, which open and close express connections all the time (over TCP).
pub fn mixing(plan: &mut SimPlan) {
    plan.pause /= 4;
    plan.depth = plan.depth.max(8);
    let depth = plan.depth as u64;
    plan.express = Some(ExpressRules {
        bulk_bytes: 1,
        check_interval: Duration::from_micros(depth % 2 * 100),
        opens_after: Duration::from_micros(depth % 3 * 200),
        meetings: 1 + plan.depth as u32 % 2,
        meets_within: Duration::from_millis(20),
        closes_after: Duration::from_millis(2 + depth % 16),
        refused_pause: Duration::from_millis(10),
    });
}

/// Hosts with two paths, which fail in all ways. One falls silent while the target does not read it, and cannot
/// reconnect for longer than the target's timeout, or shorter.
pub fn paths(plan: &mut SimPlan) {
    if !plan.ether.links.is_empty() {
        return; // over TCP only
    }
    two_paths(plan);
    plan.keep_alive = Duration::from_millis(30);
    let ms = |ms: u64| Duration::from_millis(ms);
    also(plan, 24, |part| match part % 6 {
        0 => SimFault::Silence { path: (part / 6 % 4) as u8, time: ms(10) },
        1 => SimFault::Isolate { path: (part / 6 % 4) as u8, time: ms(180) },
        2 => SimFault::Reset,
        3 => SimFault::Swallow,
        4 => SimFault::ResetOne { end: ConnEnd::Target },
        _ => SimFault::Isolate { path: (part / 6 % 4) as u8, time: ms(20) },
    });
}

/// The hazard of several paths: data that a path has sent is unread at the target while the path cannot be reached. It
/// must not be repeated and overwritten over the other path, and then read after all.
pub fn late_write(plan: &mut SimPlan) {
    if !plan.ether.links.is_empty() {
        return; // over TCP only
    }
    two_paths(plan);
    without_news(plan);
    plan.faults = rounds(|at| {
        let (path, time) = ((at.0 / 30_000_000 % 2) as u8, Duration::from_millis(20));
        [(at, SimFault::Silence { path, time }), (at + SOON, SimFault::Isolate { path, time })]
    });
}

/// Three hosts count with Compare and Write, and their connections are cut all the time: outcomes are unknown.
pub fn counting(plan: &mut SimPlan) {
    if !plan.ether.links.is_empty() {
        return; // over TCP only
    }
    plan.hosts = 3;
    counters(plan);
    also(plan, 24, |part| match part % 3 {
        0 => SimFault::StallDisk { time: Duration::from_millis(3) },
        _ => SimFault::Reset,
    });
}

/// As [`counting`], with two paths of each host, which fail.
pub fn counting_paths(plan: &mut SimPlan) {
    if !plan.ether.links.is_empty() {
        return; // over TCP only
    }
    late_write(plan);
    counters(plan);
}

/// Makes two blocks counters. Requests wait for connections without a timeout: if they failed, it would be unknown
/// whether parts of them come late.
fn counters(plan: &mut SimPlan) {
    (plan.blocks, plan.counters, plan.controller_loss_timeout) = (16, 2, None);
    plan.queue_entries = plan.queue_entries.max(8); // a pair has two
    plan.host.queue_entries = plan.queue_entries;
}

/// Three hosts take the namespace from one another by reservations, and their connections are cut all the time.
pub fn taking(plan: &mut SimPlan) {
    plan.hosts = 3;
    takers(plan);
    plan.behaviour.slow_percent = 20;
    also(plan, 24, |part| match part % 4 {
        0 => SimFault::StallDisk { time: Duration::from_millis(3) },
        1 => SimFault::Stall { end: ConnEnd::Target, time: Duration::from_millis(5) },
        _ => SimFault::Reset,
    });
}

/// As [`taking`], with two hosts with two paths each, which fail: data that one has sent stays unread.
pub fn taking_paths(plan: &mut SimPlan) {
    if !plan.ether.links.is_empty() {
        return; // over TCP only
    }
    late_write(plan);
    plan.hosts = 2;
    takers(plan);
}

/// Gives four blocks to the takers. No reservation outlives the target here, so the target survives. Hosts that do not
/// know the outcome of a write stop taking, so few faults leave one without a response.
fn takers(plan: &mut SimPlan) {
    (plan.blocks, plan.reserved, plan.controller_loss_timeout) = (16, 4, None);
    plan.behaviour.failing_per_mille = 0;
    plan.faults
        .retain(|(_, fault)| !matches!(fault, SimFault::Kill { .. } | SimFault::PowerLoss { .. }));
}

/// The hazard of [`late_write`], with a path that cannot reconnect for long, and without timers: only the other path
/// can have the lost controller ended.
pub fn fence(plan: &mut SimPlan) {
    if !plan.ether.links.is_empty() {
        return; // over TCP only
    }
    two_paths(plan);
    without_news(plan);
    // A path helps as soon as its admin queue is free, which must not wait for a buffer.
    plan.pool_bytes = 4 << 20;
    plan.chaos = Duration::from_millis(600);
    let fall = |number: u64| {
        let (path, at) = ((number % 2) as u8, Instant(number * 70_000_000));
        let silence = SimFault::Silence { path, time: Duration::from_millis(40) };
        let isolation = SimFault::Isolate { path, time: Duration::from_millis(60) };
        [(at, silence), (at + SOON, isolation)]
    };
    plan.faults = (1..8).flat_map(fall).collect();
}

fn two_paths(plan: &mut SimPlan) {
    (plan.hosts, plan.paths, plan.lanes) = (plan.hosts.min(2), 2, plan.lanes.min(2));
    (plan.blocks, plan.express, plan.controller_loss_timeout) = (16, None, None);
    // A host with several paths reads the ANA log: no other page is as long, and it has to fit a buffer.
    plan.pool_bytes = plan.pool_bytes.max(64 << 10);
    // A single path of a host is never killed.
    plan.faults.retain(|(_, fault)| !matches!(fault, SimFault::KillHost { .. }));
}

/// Hosts mark blocks as uncorrectable and write them again. Marks are kept in a file whose saves fail sometimes, and
/// the target's process and machine die at any time.
pub fn marking(plan: &mut SimPlan) {
    (plan.hosts, plan.blocks, plan.marks_percent) = (2, 16, 20);
    also(plan, 24, |part| match part % 4 {
        0 => SimFault::PowerLoss { time: Duration::from_millis(1) },
        1 => SimFault::StallDisk { time: Duration::from_millis(3) },
        2 => SimFault::Kill { target: 0, time: Duration::from_millis(1) },
        _ => SimFault::Reset,
    });
}

/// As [`marking`], with two paths of each host, which fail: a repeated mark must not follow a later write.
pub fn marking_paths(plan: &mut SimPlan) {
    if !plan.ether.links.is_empty() {
        return; // over TCP only
    }
    late_write(plan);
    plan.marks_percent = 20;
}

//! Faults of links and interfaces.

use super::forger;
use super::setup::{EtherNetwork, Relief};
use crate::ends::ConnEnd;
use crate::faults::Faults;
use crate::host::SimHost;
use crate::plan::SimFault;
use crate::target::SimTarget;
use core::time::Duration;
use roadtrain_ether_proto::Item;
use roadtrain_ether_proto::links::LaneLinks;
use roadtrain_proto::time::Instant;

/// Time for which the end of a lane is hidden from its other end.
const NOTICE_LOSS: Duration = Duration::from_millis(1);

/// All hosts, and the target.
struct LaneEnds<'a> {
    hosts: &'a mut [SimHost<EtherNetwork>],
    target: &'a mut SimTarget<EtherNetwork>,
}

impl LaneEnds<'_> {
    /// Applies a change to the links of every lane at one end.
    fn each(&mut self, end: ConnEnd, mut change: impl FnMut(&mut LaneLinks<Item>)) {
        match end {
            ConnEnd::Host => {
                let ends = self.hosts.iter_mut().flat_map(SimHost::links);
                let qpairs = ends.filter_map(|end| end.qpair.as_mut());
                qpairs.for_each(|qpair| change(&mut qpair.end.links));
            }
            ConnEnd::Target => self.target.ends().for_each(|end| change(&mut end.qpair.end.links)),
        }
    }

    /// Notifies both ends of a change of a link's carrier.
    fn set_carrier(&mut self, now: Instant, link: u8, has_carrier: bool) {
        for end in [ConnEnd::Host, ConnEnd::Target] {
            self.each(end, |links| links.set_carrier(now, link, has_carrier));
        }
    }
}

impl Faults for EtherNetwork {
    fn strike(
        &mut self,
        now: Instant,
        fault: &SimFault,
        hosts: &mut [SimHost<EtherNetwork>],
        targets: &mut [SimTarget<EtherNetwork>],
    ) {
        strike(self, now, fault, hosts, &mut targets[0]);
    }

    fn relieve(
        &mut self,
        now: Instant,
        hosts: &mut [SimHost<EtherNetwork>],
        targets: &mut [SimTarget<EtherNetwork>],
    ) {
        relieve(self, now, hosts, &mut targets[0]);
    }
}

fn strike(
    network: &mut EtherNetwork,
    now: Instant,
    fault: &SimFault,
    hosts: &mut [SimHost<EtherNetwork>],
    target: &mut SimTarget<EtherNetwork>,
) {
    let over = now + fault.time();
    match *fault {
        SimFault::Reset => end(network, now, ConnEnd::Host, target),
        SimFault::Leave(at) => end(network, now, at, target),
        SimFault::ResetOne { end: at } => {
            drop_towards(network, at.peer(), now + NOTICE_LOSS);
            end(network, now, at, target);
        }
        SimFault::Swallow => {
            [ConnEnd::Host, ConnEnd::Target].iter().for_each(|&to| drop_towards(network, to, over))
        }
        SimFault::Hold { .. } => {
            network.stalled_until = network.stalled_until.map(|at| at.max(over))
        }
        SimFault::Partition => {
            drop_towards(network, ConnEnd::Target, now + NOTICE_LOSS);
            network.end_all(now);
        }
        SimFault::Unread { .. } => stall(network, ConnEnd::Target, over),
        SimFault::Stall { end, .. } => stall(network, end, over),
        SimFault::Cut { link, is_notified, sticks, .. } => {
            network.net.cut(link, sticks);
            if is_notified {
                LaneEnds { hosts, target }.set_carrier(now, link, false);
            }
            network.reliefs.push((over, Relief::Mend { link, is_notified }));
        }
        SimFault::DropTowards { link, to, .. } => network.net.drop_towards(link, to, over),
        SimFault::Echo { to, .. } => {
            drop_towards(network, to, over);
            network.echo_until = over;
            forger::echo(now, over, to, &mut network.net);
        }
        SimFault::Move => {
            for link in hosts.iter_mut().flat_map(SimHost::links) {
                let number = network.change_socket_number(link.id);
                let qpair = link.qpair.iter_mut();
                qpair.for_each(|qpair| qpair.end.links.set_socket_number(number));
            }
        }
        SimFault::Narrow { end, credits, .. } => {
            LaneEnds { hosts, target }.each(end, |links| links.set_credits(now, credits));
            network.reliefs.push((over, Relief::Widen(end)));
        }
        SimFault::Flood { frames } => {
            let seals = network.plan().ether.seals;
            forger::flood(now, frames, seals, &mut network.net, &mut network.rng);
        }
        _ => {}
    }
}

/// Stalls an end until `until`.
fn stall(network: &mut EtherNetwork, end: ConnEnd, until: Instant) {
    let stalled_until = &mut network.stalled_until[usize::from(end == ConnEnd::Target)];
    *stalled_until = until.max(*stalled_until);
}

/// Makes an end close one of its lanes.
fn end(
    network: &mut EtherNetwork,
    now: Instant,
    at: ConnEnd,
    target: &mut SimTarget<EtherNetwork>,
) {
    match at {
        ConnEnd::Host => network.end_any(now),
        ConnEnd::Target => target.close_any(now, network),
    }
}

/// Drops everything sent towards an end.
fn drop_towards(network: &mut EtherNetwork, to: ConnEnd, until: Instant) {
    for link in 0..network.net.links() {
        network.net.drop_towards(link, to, until);
    }
}

fn relieve(
    network: &mut EtherNetwork,
    now: Instant,
    hosts: &mut [SimHost<EtherNetwork>],
    target: &mut SimTarget<EtherNetwork>,
) {
    let mut ends = LaneEnds { hosts, target };
    for (_, relief) in network.reliefs.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
        match relief {
            Relief::Mend { link, is_notified } => {
                network.net.mend(now, link);
                if is_notified {
                    ends.set_carrier(now, link, true);
                }
            }
            Relief::Widen(end) => ends.each(end, |links| links.set_credits(now, u16::MAX)),
        }
    }
}

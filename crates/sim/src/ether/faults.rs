//! Faults of links and interfaces.

use super::forger;
use super::setup::{Ether, Relief};
use crate::ends::End;
use crate::faults::Faults;
use crate::host::Host;
use crate::plan::Fault;
use crate::target::Target;
use core::time::Duration;
use roadtrain_ether_proto::Item;
use roadtrain_ether_proto::links::Links;
use roadtrain_proto::time::Instant;

/// Time for which the end of a lane is hidden from its other end.
const UNHEARD: Duration = Duration::from_millis(1);

/// All hosts, and the target.
struct Ends<'a> {
    hosts: &'a mut [Host<Ether>],
    target: &'a mut Target<Ether>,
}

impl Ends<'_> {
    /// Applies a change to the links of every lane at one end.
    fn each(&mut self, end: End, mut change: impl FnMut(&mut Links<Item>)) {
        match end {
            End::Host => {
                let ends = self.hosts.iter_mut().flat_map(Host::links);
                let qpairs = ends.filter_map(|end| end.qpair.as_mut());
                qpairs.for_each(|qpair| change(&mut qpair.end.links));
            }
            End::Target => self.target.ends().for_each(|end| change(&mut end.qpair.end.links)),
        }
    }

    /// Notifies both ends of a change of a link's carrier.
    fn set_carrier(&mut self, now: Instant, link: u8, has_carrier: bool) {
        for end in [End::Host, End::Target] {
            self.each(end, |links| links.set_carrier(now, link, has_carrier));
        }
    }
}

impl Faults for Ether {
    fn strike(
        &mut self,
        now: Instant,
        fault: &Fault,
        hosts: &mut [Host<Ether>],
        targets: &mut [Target<Ether>],
    ) {
        strike(self, now, fault, hosts, &mut targets[0]);
    }

    fn relieve(&mut self, now: Instant, hosts: &mut [Host<Ether>], targets: &mut [Target<Ether>]) {
        relieve(self, now, hosts, &mut targets[0]);
    }
}

fn strike(
    network: &mut Ether,
    now: Instant,
    fault: &Fault,
    hosts: &mut [Host<Ether>],
    target: &mut Target<Ether>,
) {
    let over = now + fault.time();
    match *fault {
        Fault::Reset => end(network, now, End::Host, target),
        Fault::Leave(at) => end(network, now, at, target),
        Fault::ResetOne { end: at } => {
            deafen(network, at.peer(), now + UNHEARD);
            end(network, now, at, target);
        }
        Fault::Swallow => [End::Host, End::Target].iter().for_each(|&to| deafen(network, to, over)),
        Fault::Hold { .. } => network.stalled_until = network.stalled_until.map(|at| at.max(over)),
        Fault::Partition => {
            deafen(network, End::Target, now + UNHEARD);
            network.end_all(now);
        }
        Fault::Unread { .. } => stall(network, End::Target, over),
        Fault::Stall { end, .. } => stall(network, end, over),
        Fault::Cut { link, told, sticks, .. } => {
            network.net.cut(link, sticks);
            if told {
                Ends { hosts, target }.set_carrier(now, link, false);
            }
            network.reliefs.push((over, Relief::Mend { link, told }));
        }
        Fault::Deaf { link, to, .. } => network.net.deafen(link, to, over),
        Fault::Echo { to, .. } => {
            deafen(network, to, over);
            network.echo_until = over;
            forger::echo(now, over, to, &mut network.net);
        }
        Fault::Move => {
            for link in hosts.iter_mut().flat_map(Host::links) {
                let number = network.change_socket_number(link.id);
                let qpair = link.qpair.iter_mut();
                qpair.for_each(|qpair| qpair.end.links.set_socket_number(number));
            }
        }
        Fault::Narrow { end, credits, .. } => {
            Ends { hosts, target }.each(end, |links| links.set_credits(now, credits));
            network.reliefs.push((over, Relief::Widen(end)));
        }
        Fault::Flood { frames } => {
            let seals = network.plan().ether.seals;
            forger::flood(now, frames, seals, &mut network.net, &mut network.rng);
        }
        _ => {}
    }
}

/// Stalls an end until `until`.
fn stall(network: &mut Ether, end: End, until: Instant) {
    let stalled_until = &mut network.stalled_until[usize::from(end == End::Target)];
    *stalled_until = until.max(*stalled_until);
}

/// Makes an end close one of its lanes.
fn end(network: &mut Ether, now: Instant, at: End, target: &mut Target<Ether>) {
    match at {
        End::Host => network.end_any(now),
        End::Target => target.close_any(now, network),
    }
}

/// Drops everything sent towards an end.
fn deafen(network: &mut Ether, to: End, until: Instant) {
    for link in 0..network.net.links() {
        network.net.deafen(link, to, until);
    }
}

fn relieve(
    network: &mut Ether,
    now: Instant,
    hosts: &mut [Host<Ether>],
    target: &mut Target<Ether>,
) {
    let mut ends = Ends { hosts, target };
    for (_, relief) in network.reliefs.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
        match relief {
            Relief::Mend { link, told } => {
                network.net.mend(now, link);
                if told {
                    ends.set_carrier(now, link, true);
                }
            }
            Relief::Widen(end) => ends.each(end, |links| links.set_credits(now, u16::MAX)),
        }
    }
}

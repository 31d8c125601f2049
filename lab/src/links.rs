//! A laboratory for links: a host and a target in network namespaces of their own, one to six pairs of veth interfaces
//! between them, named as `tests/lib/links.sh` does. Shaped or impaired links go through a third namespace, as through
//! a switch; the others are a pair each, back to back.
//!
//! ```text
//! host          middle           target
//!  lan0 ------ h0 => t0 ---------- lan0      => passes every frame on without its socket, or loses or spoils it;
//!  lan1 ------ h1 => t1 ---------- lan1         tbf shapes what leaves h0 and t0
//! ```

mod command;
mod namespace;
mod segment;

use crate::command::{find, run};
use crate::impair::{self, Impairment};
use anyhow::{Context, ensure};
pub(crate) use command::{LinksArgs, main};
pub(crate) use namespace::NetworkNamespace;
pub(crate) use segment::{LinkSpeed, SegmentWiring};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);
/// Programs that make and change interfaces.
const TOOLS: [&str; 2] = ["ip", "tc"];
const LINKS_MAX: usize = 16;

/// Namespaces and the links between them; all is gone when it is dropped.
#[derive(Debug)]
pub(crate) struct NamespaceLinks {
    pub(crate) host: NetworkNamespace,
    pub(crate) target: NetworkNamespace,
    middle: Option<Middle>,
    links: usize,
}

/// The switch between host and target.
#[derive(Debug)]
struct Middle {
    namespace: NetworkNamespace,
    /// The passage of each link.
    passages: Vec<impair::ImpairedPassage>,
}

/// Why no links can be made, if so.
pub(crate) fn unavailable() -> Option<String> {
    // SAFETY: no pointers are involved.
    if unsafe { libc::geteuid() } != 0 {
        return Some("network namespaces need root".into());
    }
    let missing = TOOLS.iter().find(|tool| find(tool).is_none());
    missing.map(|tool| format!("{tool} is not installed"))
}

impl NamespaceLinks {
    /// Makes one.
    pub(crate) fn new(links: usize, wiring: &SegmentWiring) -> anyhow::Result<Self> {
        ensure!((1..=LINKS_MAX).contains(&links), "1 to {LINKS_MAX} links");
        let (host, target) = (NetworkNamespace::new()?, NetworkNamespace::new()?);
        for namespace in [&host, &target] {
            namespace.run(segment::quiet)?;
        }
        let middle = match wiring.is_direct() {
            true => {
                for link in 0..links {
                    let lan = format!("lan{link}");
                    segment::pair(&host, &lan, &target, &lan, wiring)?;
                }
                None
            }
            false => Some(Middle::new(&host, &target, links, wiring)?),
        };
        for link in 0..links {
            let [h, t] = addresses(link);
            tool(&host, &format!("ip addr add {h}/24 dev lan{link}"))?;
            tool(&target, &format!("ip addr add {t}/24 dev lan{link}"))?;
        }
        for namespace in [&host, &target] {
            tool(namespace, "ip link set lo up")?;
        }
        Ok(Self { host, target, middle, links })
    }

    /// The namespace in the middle of links that are not direct.
    pub(crate) fn middle(&self) -> anyhow::Result<&NetworkNamespace> {
        Ok(&self.middle.as_ref().context("the links are direct")?.namespace)
    }

    /// The interfaces of either end, as an option takes them.
    pub(crate) fn interfaces(&self) -> String {
        (0..self.links).map(|link| format!("lan{link}")).collect::<Vec<_>>().join(",")
    }

    /// Has the kernel make a subflow over each link for connections over MPTCP to the target's address at the first one.
    pub(crate) fn add_subflows(&self) -> anyhow::Result<()> {
        for namespace in [&self.host, &self.target] {
            tool(namespace, "ip mptcp limits set subflows 8 add_addr_accepted 8")?;
        }
        for link in 1..self.links {
            let [_, address] = addresses(link);
            let line = format!("ip mptcp endpoint add {address} dev lan{link} signal");
            tool(&self.target, &line)?;
        }
        Ok(())
    }

    /// From now on a link treats frames so, both ways.
    pub(crate) fn impair(&self, link: usize, impairment: Impairment) -> anyhow::Result<()> {
        let middle = self.middle.as_ref().context("the links are direct")?;
        middle.passages.get(link).context("no such link")?.set(impairment)
    }

    /// Takes the carrier from a link at both ends, or gives it back.
    pub(crate) fn set_carrier(&self, link: usize, on: bool) -> anyhow::Result<()> {
        let state = if on { "up" } else { "down" };
        for end in ['h', 't'] {
            tool(self.middle()?, &format!("ip link set {end}{link} {state}"))?;
        }
        Ok(())
    }
}

impl Middle {
    fn new(
        host: &NetworkNamespace,
        target: &NetworkNamespace,
        links: usize,
        wiring: &SegmentWiring,
    ) -> anyhow::Result<Self> {
        let namespace = NetworkNamespace::new()?;
        namespace.run(segment::quiet)?;
        let mut passages = Vec::new();
        for link in 0..links {
            namespace.run(|| {
                segment::steer(link);
                Ok(())
            })?;
            let [h, t, lan] = ["h", "t", "lan"].map(|name| format!("{name}{link}"));
            segment::pair(host, &lan, &namespace, &h, wiring)?;
            segment::pair(target, &lan, &namespace, &t, wiring)?;
            for end in [&h, &t] {
                segment::shape(&namespace, end, wiring)?;
            }
            let open = || impair::ImpairedPassage::new(&h, &t, wiring.impairment_of(link));
            passages.push(namespace.run(open)?);
        }
        Ok(Self { namespace, passages })
    }
}

/// The IPv4 addresses of a link's ends: host, target.
pub(crate) fn addresses(link: usize) -> [String; 2] {
    [1, 2].map(|end| format!("10.77.{link}.{end}"))
}

/// Runs a command line in a namespace, to its end.
fn tool(namespace: &NetworkNamespace, line: &str) -> anyhow::Result<()> {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap_or_default();
    let mut command = Command::new(find(name).with_context(|| format!("no {name}"))?);
    namespace.enter(command.args(words));
    run(&mut command, LIMIT).with_context(|| line.to_owned()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    const JUMBO: SegmentWiring = SegmentWiring::plain(9000);

    fn arrivals(wiring: &SegmentWiring) -> anyhow::Result<Vec<u8>> {
        let links = NamespaceLinks::new(1, wiring)?;
        let [from, to] = addresses(0);
        let socket = links.target.run(|| Ok(UdpSocket::bind((to.as_str(), 4000))?))?;
        socket.set_read_timeout(Some(LIMIT))?;
        links.host.run(|| {
            let sender = UdpSocket::bind((from, 0))?;
            (1..=2).try_for_each(|n| Ok(sender.send_to(&[n], (to.as_str(), 4000)).map(drop)?))
        })?;
        let expected = if wiring.impairment_of(0).duplicate > 0.0 { 4 } else { 2 };
        let receive = |_| {
            let mut byte = [0];
            Ok(socket.recv(&mut byte).map(|_| byte[0])?)
        };
        (0..expected).map(receive).collect()
    }

    #[test]
    fn frames_pass_directly_through_the_kernel_and_through_a_process() {
        if let Some(why) = unavailable() {
            println!("SKIPPED: {why}");
            return;
        }
        let doubled = Impairment { duplicate: 100.0, ..Impairment::NONE };
        let process = Impairment { delay_us: 1, ..doubled };
        let arrivals = |wiring: SegmentWiring| arrivals(&wiring).expect("a pair of ends");
        assert_eq!(arrivals(JUMBO), [1, 2]);
        assert_eq!(arrivals(SegmentWiring { shape: Some(LinkSpeed::GIGABIT), ..JUMBO }), [1, 2]);
        assert_eq!(arrivals(SegmentWiring { impairment: doubled, ..JUMBO }), [1, 1, 2, 2]);
        let another = SegmentWiring { impairment: doubled, impaired: Some(1), ..JUMBO };
        assert_eq!(arrivals(another), [1, 2]);
        let mut late = arrivals(SegmentWiring { impairment: process, ..JUMBO });
        late.sort_unstable();
        assert_eq!(late, [1, 1, 2, 2]);
    }
}

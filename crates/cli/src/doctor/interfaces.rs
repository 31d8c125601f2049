//! Each network interface that has a device.

use super::Finding;
use super::machine::ExaminedMachine;
use roadtrain_system::platform::InterfaceTopology;

/// Payload bytes of a jumbo frame.
const JUMBO: u64 = 9000;

/// A network card with the data for its checks.
struct NetworkCard<'a> {
    name: &'a str,
    folder: String,
    interface: InterfaceTopology,
    queues: usize,
    cores: usize,
    machine: &'a ExaminedMachine,
}

/// Checks all interfaces.
pub(super) fn all(machine: &ExaminedMachine) -> Vec<Finding> {
    let names = machine.entries("sys/class/net");
    let cards = names.iter().filter(|name| machine.has(&format!("sys/class/net/{name}/device")));
    let findings: Vec<Finding> = cards.flat_map(|name| examine(machine, name)).collect();
    match findings.is_empty() {
        true => vec![Finding::ok(
            "interfaces",
            "none with a device: only this machine is reached, or through virtual ones",
        )],
        false => findings,
    }
}

fn examine(machine: &ExaminedMachine, name: &str) -> Vec<Finding> {
    let folder = format!("sys/class/net/{name}");
    if machine.text(&format!("{folder}/operstate")).as_deref() == Some("down") {
        return vec![Finding::ok(name, "down")];
    }
    let queues = machine.entries(&format!("{folder}/queues"));
    let queues = queues.iter().filter(|queue| queue.starts_with("rx-")).count();
    let interface = InterfaceTopology::read(machine.root(), name);
    let card = NetworkCard { name, folder, interface, queues, cores: machine.cores(), machine };
    vec![card.queues(), card.interrupts(), card.steering(), card.mtu(), card.offloads()]
}

impl NetworkCard<'_> {
    fn check(&self, what: &str) -> String {
        format!("{} {what}", self.name)
    }

    /// Checks that there are as many queues as cores, so that each core receives packets.
    fn queues(&self) -> Finding {
        let (check, name) = (self.check("queues"), self.name);
        let found = format!("{} for {} cores", self.queues, self.cores);
        let wanted =
            self.machine.probes.channels.get(name).map_or(0, |all| all.combined_max as usize);
        let wanted = wanted.min(self.cores);
        match self.queues < wanted {
            true => Finding::advice(
                &check,
                format!("{found}; it can have more"),
                format!("sudo ethtool -L {name} combined {wanted}"),
            ),
            false => Finding::ok(&check, found),
        }
    }

    /// Checks that the interrupts of several queues go to several cores.
    fn interrupts(&self) -> Finding {
        let (check, cpus) = (self.check("interrupts"), &self.interface.interrupt_cpus);
        let balanced = match self.machine.runs("irqbalance") {
            true => " (irqbalance moves them)",
            false => "",
        };
        if cpus.is_empty() {
            return Finding::ok(&check, "not known");
        }
        let found = format!("to cores {cpus}{balanced}");
        match cpus.single().is_some() && self.queues > 1 && self.cores > 1 {
            true => Finding::advice(
                &check,
                format!("all {found}"),
                "sudo systemctl enable --now irqbalance, or give each a core in /proc/irq/N/smp_affinity_list",
            ),
            false => Finding::ok(&check, found),
        }
    }

    /// Checks RPS and RFS: with one queue the kernel can pass packets on to the cores of the receiving threads.
    fn steering(&self) -> Finding {
        let check = self.check("RPS, RFS");
        let flows = self.machine.number("proc/sys/net/core/rps_sock_flow_entries").unwrap_or(0);
        let queue = format!("/{}/queues/rx-0", self.folder);
        match (self.interface.hands_on, flows) {
            (true, 0) => Finding::advice(
                &check,
                "packets are handed on, and not to the cores that wait for them",
                format!(
                    "sudo sysctl -w net.core.rps_sock_flow_entries=32768; echo 32768 | sudo tee {queue}/rps_flow_cnt"
                ),
            ),
            (true, _) => {
                Finding::ok(&check, "packets are handed on to the cores that wait for them")
            }
            (false, _) if self.queues == 1 && self.cores > 2 => Finding::advice(
                &check,
                "one queue, so one core takes all packets",
                format!("echo {} | sudo tee {queue}/rps_cpus", mask(self.cores)),
            ),
            (false, _) => Finding::ok(&check, "off"),
        }
    }

    /// Checks the MTU: large frames cost less CPU time.
    fn mtu(&self) -> Finding {
        let (check, name) = (self.check("MTU"), self.name);
        let mtu = self.machine.number(&format!("{}/mtu", self.folder)).unwrap_or(0);
        match mtu < JUMBO {
            true => Finding::advice(
                &check,
                format!("{mtu}; with {JUMBO} a fifth of the packets do"),
                format!(
                    "if every switch and machine of the network has it: sudo ip link set {name} mtu {JUMBO}"
                ),
            ),
            false => Finding::ok(&check, mtu.to_string()),
        }
    }

    /// Checks the offloads: the card, or the kernel late in its stack, splits and joins packets.
    fn offloads(&self) -> Finding {
        let (check, name) = (self.check("offloads"), self.name);
        let Some(have) = self.machine.probes.offloads.get(name) else {
            return Finding::ok(&check, "not known");
        };
        let all = [("gro", have.gro), ("gso", have.gso), ("tso", have.tso)];
        let off: Vec<&str> = all.iter().filter(|(_, on)| !on).map(|(name, _)| *name).collect();
        match off.is_empty() {
            true => Finding::ok(&check, "gro, gso and tso are on"),
            false => Finding::advice(
                &check,
                format!("without {}", off.join(", ")),
                format!("sudo ethtool -K {name} {} on", off.join(" on ")),
            ),
        }
    }
}

/// Formats a set of cores as the kernel does: words of 32 bits, the highest first.
fn mask(cores: usize) -> String {
    let (words, rest) = (cores / 32, cores % 32);
    let highest = (rest > 0).then(|| format!("{:x}", (1u64 << rest) - 1));
    let all = highest.into_iter().chain(std::iter::repeat_n("ffffffff".to_owned(), words));
    all.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    #[test]
    fn masks_are_the_kernels() {
        for (cores, text) in
            [(4, "f"), (32, "ffffffff"), (33, "1,ffffffff"), (96, "ffffffff,ffffffff,ffffffff")]
        {
            assert_eq!(super::mask(cores), text);
        }
    }
}

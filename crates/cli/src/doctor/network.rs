//! TCP settings, and the use of targets' ports.

use super::Finding;
use super::machine::ExaminedMachine;

/// Ports of targets and of discovery controllers.
pub(super) const PORTS: [u16; 2] = [4420, 8009];
/// Least window for a fast network with some distance.
const WINDOW: u64 = 4 << 20;
/// Listening state in /proc/net/tcp.
const LISTENS: &str = "0A";

/// Checks TCP's congestion control.
pub(super) fn congestion_control(machine: &ExaminedMachine) -> Vec<Finding> {
    let check = "congestion control";
    let Some(name) = machine.text("proc/sys/net/ipv4/tcp_congestion_control") else {
        return Vec::new();
    };
    vec![match name.as_str() {
        "reno" | "vegas" | "lp" => Finding::advice(
            check,
            format!("{name} is slow after a loss"),
            "sudo sysctl -w net.ipv4.tcp_congestion_control=cubic (or dctcp, where switches mark packets)",
        ),
        _ => Finding::ok(check, name),
    }]
}

/// Checks the size of TCP windows.
pub(super) fn buffers(machine: &ExaminedMachine) -> Vec<Finding> {
    let largest = |name: &str| {
        let text = machine.text(&format!("proc/sys/net/ipv4/{name}"))?;
        text.split_whitespace().nth(2)?.parse::<u64>().ok()
    };
    let (Some(read), Some(write)) = (largest("tcp_rmem"), largest("tcp_wmem")) else {
        return Vec::new();
    };
    let found = format!("up to {} KiB to receive, {} KiB to send", read >> 10, write >> 10);
    vec![match read.min(write) < WINDOW {
        true => Finding::advice(
            "TCP buffers",
            found,
            "sudo sysctl -w net.ipv4.tcp_rmem='4096 131072 33554432' net.ipv4.tcp_wmem='4096 65536 33554432'",
        ),
        false => Finding::ok("TCP buffers", found),
    }]
}

/// Checks whether a process listens at these ports.
pub(super) fn ports(machine: &ExaminedMachine) -> Vec<Finding> {
    let taken: Vec<u16> = PORTS.into_iter().filter(|port| is_taken(machine, *port)).collect();
    let ports = "sys/kernel/config/nvmet/ports";
    let linux = machine.entries(ports).into_iter().filter(|port| {
        let number = machine.number(&format!("{ports}/{port}/addr_trsvcid"));
        number.is_some_and(|number| PORTS.map(u64::from).contains(&number))
    });
    if linux.count() > 0 {
        return vec![Finding::advice(
            "ports",
            "Linux's own target (nvmet) has a port of 4420 and 8009",
            "serve with another one (-s 4421), or remove that port: ls /sys/kernel/config/nvmet/ports",
        )];
    }
    vec![match &taken[..] {
        [] => Finding::ok("ports", "no process listens at 4420 and 8009"),
        taken => {
            let list: Vec<String> = taken.iter().map(u16::to_string).collect();
            Finding::ok(
                "ports",
                format!("a process listens at {} already (ss -ltnp shows it)", list.join(" and ")),
            )
        }
    }]
}

fn is_taken(machine: &ExaminedMachine, port: u16) -> bool {
    let text = ["proc/net/tcp", "proc/net/tcp6"].map(|file| machine.text(file).unwrap_or_default());
    text.iter().flat_map(|text| text.lines().skip(1)).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next().unwrap_or_default(), words.nth(1));
        local.ends_with(&format!(":{port:04X}")) && state == Some(LISTENS)
    })
}

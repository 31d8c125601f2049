//! Limits of this process: descriptors, locked memory, capabilities.

use super::Finding;
use super::machine::ExaminedMachine;

/// Connections of `serve` without options, and a few descriptors.
const OPEN_FILES: u64 = 16384 + 64;
/// Least descriptors for a host with some cores.
const OPEN_FILES_LEAST: u64 = 256;
/// Memory of an AF_XDP port's frames.
const LOCKED: u64 = 64 << 20;

const IPC_LOCK: u32 = 14;
/// Capabilities with their purpose.
const CAPABILITIES: &[(u32, &str, &str)] = &[
    (13, "CAP_NET_RAW", "-t ether"),
    (12, "CAP_NET_ADMIN", "AF_XDP"),
    (39, "CAP_BPF", "AF_XDP"),
    (21, "CAP_SYS_ADMIN", "attach --as ublk and --as fuse"),
    (10, "CAP_NET_BIND_SERVICE", "ports below 1024"),
];

/// Checks the possible number of connections.
pub(super) fn open_files(machine: &ExaminedMachine) -> Vec<Finding> {
    let Some(hard) = limit(machine, "Max open files") else { return Vec::new() };
    let advice = "raise the hard limit: ulimit -Hn 1048576 as root, nofile in /etc/security/limits.conf, \
                  LimitNOFILE=1048576 in a unit";
    let found = format!("{} descriptors, one for each connection", shown(hard));
    vec![match hard {
        ..OPEN_FILES_LEAST => Finding::problem("open files", found, advice),
        OPEN_FILES_LEAST..OPEN_FILES => Finding::advice("open files", found, advice),
        _ => Finding::ok("open files", found),
    }]
}

/// Checks that enough memory can be locked for AF_XDP and large rings.
pub(super) fn locked_memory(machine: &ExaminedMachine) -> Vec<Finding> {
    let check = "locked memory";
    let Some(hard) = limit(machine, "Max locked memory") else { return Vec::new() };
    let is_free = effective(machine) & (1 << IPC_LOCK) != 0;
    vec![match hard {
        _ if is_free => Finding::ok(check, "not limited (CAP_IPC_LOCK)"),
        ..LOCKED => Finding::advice(
            check,
            format!("{} KiB: not enough for --port-kind xdp", hard >> 10),
            "ulimit -l unlimited as root, memlock in /etc/security/limits.conf, LimitMEMLOCK=infinity in a unit",
        ),
        _ => Finding::ok(check, "enough for --port-kind xdp"),
    }]
}

/// Lists the functions that need root.
pub(super) fn capabilities(machine: &ExaminedMachine) -> Vec<Finding> {
    let check = "capabilities";
    let have = effective(machine);
    let missing = CAPABILITIES.iter().filter(|(bit, ..)| have & (1 << bit) == 0);
    let missing: Vec<String> = missing.map(|(_, name, what)| format!("{name} ({what})")).collect();
    vec![match missing.is_empty() {
        true => Finding::ok(check, "all that are ever needed"),
        false => Finding::advice(
            check,
            format!("without {}", missing.join(", ")),
            "nothing, for serve, bench and attach --as nbd over TCP; for what is in parentheses run it as root, \
             or for Ethernet: sudo setcap cap_net_raw+ep \"$(command -v roadtrain)\"",
        ),
    }]
}

/// Returns a hard limit of this process.
fn limit(machine: &ExaminedMachine, name: &str) -> Option<u64> {
    let text = machine.text("proc/self/limits")?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let word = rest.split_whitespace().nth(1)?;
    if word == "unlimited" { Some(u64::MAX) } else { word.parse().ok() }
}

fn effective(machine: &ExaminedMachine) -> u64 {
    let status = machine.text("proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn shown(number: u64) -> String {
    if number == u64::MAX { "any number of".to_owned() } else { number.to_string() }
}

//! Kernel checks: version, io_uring, modules.

use super::Finding;
use super::machine::ExaminedMachine;

/// Oldest kernel with all that is needed.
const OLDEST: (u32, u32) = (6, 1);

/// Checks the kernel's version.
pub(super) fn version(machine: &ExaminedMachine) -> Vec<Finding> {
    let check = "kernel";
    let Some(release) = machine.text("proc/sys/kernel/osrelease") else { return Vec::new() };
    let found = format!("Linux {release}");
    let is_old = number(&release).is_none_or(|number| number < OLDEST);
    vec![match is_old {
        true => Finding::problem(
            check,
            found,
            format!("install Linux {}.{} or later", OLDEST.0, OLDEST.1),
        ),
        false => Finding::ok(check, found),
    }]
}

/// Returns the first two numbers of a release.
fn number(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Checks that this user can create rings.
pub(super) fn io_uring(machine: &ExaminedMachine) -> Vec<Finding> {
    let check = "io_uring";
    let switch = machine.number("proc/sys/kernel/io_uring_disabled").unwrap_or(0);
    let enable = "sudo sysctl -w kernel.io_uring_disabled=0 (to keep it: a file in /etc/sysctl.d)";
    vec![match (&machine.probes.no_ring, switch) {
        (_, 2..) => Finding::problem(check, "switched off for everybody", enable),
        (Some(error), 1) => {
            let text = format!("only for the group of kernel.io_uring_group and root: {error}");
            Finding::problem(check, text, enable)
        }
        (Some(error), _) => {
            let (error, advice) =
                error.split_once(": ").unwrap_or((error, "use Linux 6.1 or later"));
            Finding::problem(check, format!("no ring can be made: {error}"), advice)
        }
        (None, 1) => {
            Finding::advice(check, "works here, and not for users outside a group", enable)
        }
        (None, _) => Finding::ok(check, "works"),
    }]
}

/// Checks optional kernel modules.
pub(super) fn modules(machine: &ExaminedMachine) -> Vec<Finding> {
    let wanted = [
        ("tls", "TLS by the kernel", "TLS is done by the program, which takes more CPU time"),
        (
            "nvme_tcp",
            "Linux's own host",
            "`nvme connect` does not work here; roadtrain attach does",
        ),
        ("nvmet_tcp", "Linux's own target", "Linux cannot serve from here; roadtrain serve does"),
    ];
    wanted.map(|(name, what, without)| module(machine, name, what, without)).into()
}

fn module(machine: &ExaminedMachine, name: &str, what: &str, without: &str) -> Finding {
    let check = format!("module {name}");
    match presence(machine, name) {
        ModulePresence::Here => Finding::ok(&check, format!("{what}: loaded")),
        // Programs load it when they need it, except TLS, which an unprivileged one cannot load.
        ModulePresence::Installed if name != "tls" => {
            Finding::ok(&check, format!("{what}: is loaded by modprobe {name}"))
        }
        ModulePresence::Installed => {
            let keep = format!(
                "sudo modprobe {name}; echo {name} | sudo tee /etc/modules-load.d/{name}.conf"
            );
            Finding::advice(&check, format!("{what}: not loaded; {without}"), keep)
        }
        // Only another kernel would have it, and nothing needs it.
        ModulePresence::Absent => {
            Finding::ok(&check, format!("{what}: not in this kernel; {without}"))
        }
    }
}

/// Availability of a kernel module.
pub(super) enum ModulePresence {
    /// Loaded, or built in.
    Here,
    /// A file that can be loaded.
    Installed,
    /// Not available.
    Absent,
}

/// Returns the availability of a module.
pub(super) fn presence(machine: &ExaminedMachine, name: &str) -> ModulePresence {
    let release = machine.text("proc/sys/kernel/osrelease").unwrap_or_default();
    let listed = |file: &str| {
        let list = machine.text(&format!("lib/modules/{release}/{file}")).unwrap_or_default();
        list.lines().any(|line| {
            let path = line.split(':').next().unwrap_or_default();
            let file = path.rsplit('/').next().unwrap_or_default();
            file.split(".ko").next().is_some_and(|stem| stem.replace('-', "_") == name)
        })
    };
    let loaded = machine.text("proc/modules").unwrap_or_default();
    let is_loaded = loaded.lines().any(|line| line.split(' ').next() == Some(name));
    if is_loaded || machine.has(&format!("sys/module/{name}")) || listed("modules.builtin") {
        return ModulePresence::Here;
    }
    // A kernel without modules lists its protocols here.
    let protocols = machine.text("proc/sys/net/ipv4/tcp_available_ulp").unwrap_or_default();
    if name == "tls" && protocols.split_whitespace().any(|protocol| protocol == "tls") {
        return ModulePresence::Here;
    }
    if listed("modules.dep") { ModulePresence::Installed } else { ModulePresence::Absent }
}

//! Kernel support for local block devices, and the library for images of Ceph clusters.

use super::Finding;
use super::kernel::{ModulePresence, presence};
use super::machine::ExaminedMachine;

/// Directories of libraries.
const LIBRARIES: &[&str] = &["usr/lib64", "lib64", "usr/lib", "lib", "usr/local/lib"];

/// `attach --as ublk`
pub(super) fn ublk(machine: &ExaminedMachine) -> Vec<Finding> {
    let check = "ublk";
    vec![match (machine.has("dev/ublk-control"), presence(machine, "ublk_drv")) {
        (true, _) => Finding::ok(check, "attach --as ublk can be used"),
        (false, ModulePresence::Absent) => Finding::ok(
            check,
            "this kernel has none (CONFIG_BLK_DEV_UBLK): use attach --as fuse, vhost-user or nbd",
        ),
        (false, _) => Finding::advice(
            check,
            "the driver is not loaded: attach --as ublk does not work",
            "sudo modprobe ublk_drv; echo ublk_drv | sudo tee /etc/modules-load.d/ublk.conf",
        ),
    }]
}

/// `attach --as fuse`
pub(super) fn fuse(machine: &ExaminedMachine) -> Vec<Finding> {
    let check = "FUSE";
    let switch = "sys/module/fuse/parameters/enable_uring";
    vec![match (machine.has("dev/fuse"), machine.text(switch).as_deref()) {
        (false, _) => Finding::advice(
            check,
            "there is no /dev/fuse: attach --as fuse does not work",
            "sudo modprobe fuse",
        ),
        (true, Some("Y")) => Finding::ok(check, "over io_uring"),
        (true, Some(_)) => {
            Finding::ok(check, "over io_uring: attach switches it on for its own mount")
        }
        (true, None) => Finding::ok(check, "not over io_uring, which Linux 6.14 has"),
    }]
}

/// `attach --as fuse --loop`
pub(super) fn loop_devices(machine: &ExaminedMachine) -> Vec<Finding> {
    let check = "loop devices";
    vec![match machine.has("dev/loop-control") {
        true => Finding::ok(check, "attach --as fuse:PATH --loop can be used"),
        false => Finding::advice(
            check,
            "there is no /dev/loop-control: attach --loop does not work",
            "sudo modprobe loop",
        ),
    }]
}

/// `serve --namespace rbd:`
pub(super) fn librbd(machine: &ExaminedMachine) -> Vec<Finding> {
    let check = "librbd";
    let is_library = |folder: &str| machine.has(&format!("{folder}/librbd.so.1"));
    let multiarch = |folder: &&&str| {
        let inner = machine.entries(folder);
        inner
            .iter()
            .any(|name| name.contains("-linux-gnu") && is_library(&format!("{folder}/{name}")))
    };
    let found = LIBRARIES.iter().find(|folder| is_library(folder) || multiarch(folder));
    vec![match found {
        Some(_) => Finding::ok(check, "images of Ceph clusters can be served"),
        None => {
            Finding::ok(check, "not here; only --namespace rbd: needs it (apt-get install librbd1)")
        }
    }]
}

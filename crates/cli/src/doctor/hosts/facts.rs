//! Requirements of hosts of other makers, as far as public sources name them. A requirement without a source is
//! `unknown`: nothing is assumed.

use super::export::{CheckedExport, CheckedNamespace};
use super::{HostFinding, HostFindingState};
use crate::args::ForeignHost;

/// Result of a check: state, found value, action.
type HostVerdict = (HostFindingState, String, Option<String>);

/// A requirement of a host.
struct HostFact {
    check: &'static str,
    requirement: &'static str,
    tried: &'static str,
    source: Option<&'static str>,
    judge: fn(&CheckedExport) -> HostVerdict,
}

const NO_ESXI: &str = "not tried: no ESXi here";
const NO_WINDOWS: &str = "not tried: no Windows here";
const NO_SPDK: &str = "not tried: no host of SPDK here";
const IN_GUESTS: &str = "tried: Linux in a guest (make vm-test)";

const CEPH_158: &str =
    "ceph/ceph-nvmeof issue 158, README example for VMware ESX initiator connection";
const SPDK_2428: &str = "spdk/spdk issue 2428, Expected second of fused commands, with ESXi 7.0.3";
const VSPHERE_CONNECT: &str = "vSphere Web Services API, HostNvmeConnectSpec";
const VSPHERE_RULES: &str =
    "VMware vSphere Storage, Requirements and Limitations of VMware NVMe Storage";
const WINDOWS_PREVIEW: &str =
    "Future of Memory and Storage, talk on the NVMe-oF initiator of Windows (TCP, RDMA, ANA)";
const LINUX_FABRICS: &str = "Linux, drivers/nvme/host/fabrics.c and fabrics.h";
const LINUX_CORE: &str = "Linux, drivers/nvme/host/core.c";
const SPDK_BDEV: &str = "SPDK, module/bdev/nvme/bdev_nvme.c";

/// Checks the export against all facts about the host.
pub(super) fn check(host: ForeignHost, export: &CheckedExport) -> Vec<HostFinding> {
    let facts = match host {
        ForeignHost::Esxi => ESXI,
        ForeignHost::Windows => WINDOWS,
        ForeignHost::Kernel => KERNEL,
        ForeignHost::Spdk => SPDK,
    };
    let finding = |fact: &HostFact| {
        let (state, finding, advice) = (fact.judge)(export);
        let HostFact { check, requirement, tried, source, .. } = *fact;
        HostFinding { check, state, requirement, finding, advice, tried, source }
    };
    facts.iter().map(finding).collect()
}

const ESXI: &[HostFact] = &[
    HostFact {
        check: "transport",
        requirement: "NVMe over TCP, and no second transport to the same namespace",
        tried: NO_ESXI,
        source: Some(VSPHERE_RULES),
        judge: only_tcp,
    },
    HostFact {
        check: "block size",
        requirement: "logical blocks of 512 bytes: ESXi registers no device with others",
        tried: NO_ESXI,
        source: Some(CEPH_158),
        judge: small_blocks,
    },
    HostFact {
        check: "fused command",
        requirement: "Compare and Write of one block as fused commands, which ESXi 7.0.3 sends",
        tried: "not tried with ESXi; tried: Compare and Write of our own host",
        source: Some(SPDK_2428),
        judge: compare_and_write,
    },
    HostFact {
        check: "identity",
        requirement: "an NGUID that stays: ESXi names its devices eui.NGUID",
        tried: NO_ESXI,
        source: Some(CEPH_158),
        judge: identity,
    },
    HostFact {
        check: "paths",
        requirement: "an active path (ANA): without one ESXi does not register the namespace",
        tried: NO_ESXI,
        source: Some(VSPHERE_RULES),
        judge: active_path,
    },
    HostFact {
        check: "keep alive",
        requirement: "a keep-alive timeout of 60 s by default",
        tried: NO_ESXI,
        source: Some(VSPHERE_CONNECT),
        judge: any_keep_alive,
    },
    HostFact {
        check: "queues",
        requirement: "an admin queue of 16 entries; numbers for I/O queues are not known",
        tried: NO_ESXI,
        source: Some(VSPHERE_CONNECT),
        judge: queues_unknown,
    },
    HostFact {
        check: "security",
        requirement: "TLS and authentication of ESXi are not known",
        tried: NO_ESXI,
        source: None,
        judge: security_unknown,
    },
];

const WINDOWS: &[HostFact] = &[
    HostFact {
        check: "transport",
        requirement: "NVMe over TCP: a preview of an initiator with TCP and RDMA is announced",
        tried: NO_WINDOWS,
        source: Some(WINDOWS_PREVIEW),
        judge: needs_tcp,
    },
    HostFact {
        check: "paths",
        requirement: "multipath by ANA",
        tried: NO_WINDOWS,
        source: Some(WINDOWS_PREVIEW),
        judge: active_path,
    },
    HostFact {
        check: "block size",
        requirement: "not known for the initiator",
        tried: NO_WINDOWS,
        source: None,
        judge: block_size_unknown,
    },
    HostFact {
        check: "identity",
        requirement: "not known for the initiator; an identity that stays does no harm",
        tried: NO_WINDOWS,
        source: None,
        judge: identity_unknown,
    },
    HostFact {
        check: "fused command",
        requirement: "not known for the initiator",
        tried: NO_WINDOWS,
        source: None,
        judge: fused_unknown,
    },
    HostFact {
        check: "keep alive",
        requirement: "not known for the initiator",
        tried: NO_WINDOWS,
        source: None,
        judge: keep_alive_unknown,
    },
    HostFact {
        check: "queues",
        requirement: "not known for the initiator",
        tried: NO_WINDOWS,
        source: None,
        judge: queues_unknown,
    },
    HostFact {
        check: "security",
        requirement: "TLS and authentication of the initiator are not known",
        tried: NO_WINDOWS,
        source: None,
        judge: security_unknown,
    },
];

const KERNEL: &[HostFact] = &[
    HostFact {
        check: "transport",
        requirement: "NVMe over TCP; frames without TCP are of this project",
        tried: IN_GUESTS,
        source: Some(LINUX_FABRICS),
        judge: needs_tcp,
    },
    HostFact {
        check: "block size",
        requirement: "logical blocks from 512 bytes to a page",
        tried: "tried: 512 and 4096, Linux in a guest (make vm-test)",
        source: Some(LINUX_CORE),
        judge: any_block_size,
    },
    HostFact {
        check: "identity",
        requirement: "UUID and NGUID that stay: the host drops a namespace whose identifiers change",
        tried: IN_GUESTS,
        source: Some(LINUX_CORE),
        judge: identity,
    },
    HostFact {
        check: "paths",
        requirement: "an optimized or non-optimized path (ANA)",
        tried: IN_GUESTS,
        source: Some(LINUX_CORE),
        judge: active_path,
    },
    HostFact {
        check: "fused command",
        requirement: "none: the host's block layer sends no fused commands",
        tried: IN_GUESTS,
        source: Some(LINUX_CORE),
        judge: fused_unused,
    },
    HostFact {
        check: "keep alive",
        requirement: "a keep-alive timeout of 5 s by default",
        tried: IN_GUESTS,
        source: Some(LINUX_FABRICS),
        judge: any_keep_alive,
    },
    HostFact {
        check: "queues",
        requirement: "an I/O queue for each CPU, with 128 entries, 16 at least and 1024 at most",
        tried: IN_GUESTS,
        source: Some(LINUX_FABRICS),
        judge: queues_of_128,
    },
    HostFact {
        check: "security",
        requirement: "TLS needs a kernel with CONFIG_NVME_TCP_TLS and tlshd; authentication nvme-cli's keys",
        tried: "tried: Linux in guests (make vm-test)",
        source: Some(LINUX_FABRICS),
        judge: security_supported,
    },
];

const SPDK: &[HostFact] = &[
    HostFact {
        check: "transport",
        requirement: "NVMe over TCP",
        tried: NO_SPDK,
        source: Some(SPDK_BDEV),
        judge: needs_tcp,
    },
    HostFact {
        check: "block size",
        requirement: "any: the device has the blocks of the namespace",
        tried: NO_SPDK,
        source: Some(SPDK_BDEV),
        judge: any_block_size,
    },
    HostFact {
        check: "identity",
        requirement: "the same identifiers on all paths of a namespace",
        tried: NO_SPDK,
        source: Some(SPDK_BDEV),
        judge: identity,
    },
    HostFact {
        check: "paths",
        requirement: "an optimized or non-optimized path (ANA)",
        tried: NO_SPDK,
        source: Some(SPDK_BDEV),
        judge: active_path,
    },
    HostFact {
        check: "fused command",
        requirement: "Compare and Write, if programs on top use it",
        tried: "not tried with SPDK; tried: Compare and Write of our own host",
        source: Some(SPDK_BDEV),
        judge: compare_and_write,
    },
    HostFact {
        check: "keep alive",
        requirement: "a keep-alive timeout of 10 s, unless bdev_nvme_set_options sets another one",
        tried: NO_SPDK,
        source: Some(SPDK_BDEV),
        judge: any_keep_alive,
    },
    HostFact {
        check: "queues",
        requirement: "an I/O queue for each thread that uses the device; the most are not known",
        tried: NO_SPDK,
        source: Some(SPDK_BDEV),
        judge: queues_unknown,
    },
    HostFact {
        check: "security",
        requirement: "TLS with keys of identity version 0; authentication",
        tried: NO_SPDK,
        source: Some(SPDK_BDEV),
        judge: security_supported,
    },
];

fn ok(finding: impl Into<String>) -> HostVerdict {
    (HostFindingState::Ok, finding.into(), None)
}

fn advice(finding: impl Into<String>, advice: impl Into<String>) -> HostVerdict {
    (HostFindingState::Advice, finding.into(), Some(advice.into()))
}

fn problem(finding: impl Into<String>, advice: impl Into<String>) -> HostVerdict {
    (HostFindingState::Problem, finding.into(), Some(advice.into()))
}

fn unknown(finding: impl Into<String>) -> HostVerdict {
    (HostFindingState::Unknown, finding.into(), None)
}

/// Names the namespaces for which `is_it` is true.
fn names(export: &CheckedExport, is_it: impl Fn(&CheckedNamespace) -> bool) -> Option<String> {
    let found: Vec<&str> =
        export.namespaces.iter().filter(|one| is_it(one)).map(|one| one.name.as_str()).collect();
    (!found.is_empty()).then(|| found.join(", "))
}

fn needs_tcp(export: &CheckedExport) -> HostVerdict {
    match export.has_tcp {
        true => ok("listens on TCP"),
        false => problem("does not listen on TCP", "add an address: address = \"192.0.2.1\""),
    }
}

fn only_tcp(export: &CheckedExport) -> HostVerdict {
    match (export.has_tcp, export.has_ether) {
        (true, true) => advice(
            "listens on TCP, and on Ethernet without TCP",
            "let the hosts that share a namespace use one of both",
        ),
        _ => needs_tcp(export),
    }
}

fn block_sizes(export: &CheckedExport) -> String {
    let mut sizes: Vec<u32> = export.namespaces.iter().map(|one| one.block_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
    if sizes.is_empty() {
        "no namespaces".into()
    } else {
        format!("blocks of {} bytes", sizes.join(" and "))
    }
}

fn small_blocks(export: &CheckedExport) -> HostVerdict {
    match names(export, |one| one.block_bytes != 512) {
        None => ok(block_sizes(export)),
        Some(names) => problem(
            format!("blocks of 4096 bytes: {names}"),
            "serve it with lba=512, which a disk with blocks of 4096 takes as well; content written in \
             blocks of 4096 has to be copied",
        ),
    }
}

fn any_block_size(export: &CheckedExport) -> HostVerdict {
    ok(block_sizes(export))
}

fn block_size_unknown(export: &CheckedExport) -> HostVerdict {
    unknown(block_sizes(export))
}

fn compare_and_write(export: &CheckedExport) -> HostVerdict {
    let announced = "announced (FUSES), of one block, over TCP";
    match names(export, |one| one.read_only) {
        None => ok(announced),
        Some(names) => advice(
            format!("{announced}; not for {names}, which is read-only"),
            "serve it for writing, if a file system that hosts share is to be on it",
        ),
    }
}

fn fused_unused(_: &CheckedExport) -> HostVerdict {
    ok("announced (FUSES), and not needed")
}

fn fused_unknown(_: &CheckedExport) -> HostVerdict {
    unknown("Compare and Write is announced (FUSES)")
}

fn identity(export: &CheckedExport) -> HostVerdict {
    match names(export, |one| !one.keeps_identity) {
        None => ok("each NGUID and UUID stays as long as the blocks"),
        Some(names) => advice(
            format!("another NGUID each time the target starts: {names}"),
            "give it uuid= or nguid=, if hosts are to find it again; its content is lost all the same",
        ),
    }
}

fn identity_unknown(export: &CheckedExport) -> HostVerdict {
    unknown(match names(export, |one| !one.keeps_identity) {
        None => "each NGUID and UUID stays as long as the blocks".to_owned(),
        Some(names) => format!("another NGUID each time the target starts: {names}"),
    })
}

fn active_path(export: &CheckedExport) -> HostVerdict {
    match export.has_active_path {
        true => ok("ANA is reported, and a path is optimized or non-optimized"),
        false => problem(
            "no path is optimized or non-optimized",
            "roadtrain ctl listener set, or the table [ana] of the file",
        ),
    }
}

fn any_keep_alive(_: &CheckedExport) -> HostVerdict {
    ok("the host's timeout is taken, and every command counts")
}

fn keep_alive_unknown(_: &CheckedExport) -> HostVerdict {
    unknown("the host's timeout is taken, and every command counts")
}

fn queues(export: &CheckedExport) -> String {
    match (export.max_queues, export.queue_size) {
        (Some(queues), Some(entries)) => {
            format!("up to {queues} I/O queues of up to {entries} entries for each host")
        }
        _ => "a running target does not report its limits; --config FILE does".to_owned(),
    }
}

fn queues_unknown(export: &CheckedExport) -> HostVerdict {
    unknown(queues(export))
}

fn queues_of_128(export: &CheckedExport) -> HostVerdict {
    let found = queues(export);
    match export.queue_size {
        None => unknown(found),
        Some(entries) if entries < 128 => {
            advice(found, "the host uses shorter queues: queue_size = 128 in [limits]")
        }
        Some(_) => ok(found),
    }
}

fn security(export: &CheckedExport) -> &'static str {
    match (export.requires_tls, export.requires_auth) {
        (true, true) => "TLS and authentication are required",
        (true, false) => "TLS is required",
        (false, true) => "authentication is required",
        (false, false) => "neither TLS nor authentication is required",
    }
}

fn security_supported(export: &CheckedExport) -> HostVerdict {
    ok(security(export))
}

fn security_unknown(export: &CheckedExport) -> HostVerdict {
    match export.requires_tls || export.requires_auth {
        false => ok(security(export)),
        true => unknown(security(export)),
    }
}

//! Families that ceph-nvmeof has as well: the same names, labels and meanings, apart from the prefix.

use super::{SampleGetter, numbers};
use crate::metrics::out::Out;
use roadtrain_reactor::metrics::{
    DeviceSample, IoCounters, MetricsSnapshot, NamespaceSample, SubsystemSample,
};
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

/// Group label of a target without a group: Prometheus treats an empty label as absent.
const NO_GROUP: &str = "_null_";
/// Address label of a host that is not connected.
const NO_ADDRESS: &str = "<n/a>";

pub(super) fn ceph(shown: &MetricsSnapshot, out: &mut Out<'_>) -> fmt::Result {
    gateway(shown, out)?;
    bdevs(shown, out)?;
    connections(shown, out)?;
    subsystems(shown, out)?;
    let numbers = numbers(&shown.namespaces);
    let groups: Vec<String> = shown.namespaces.iter().map(|n| n.ana_group.to_string()).collect();
    let metadata = shown.namespaces.iter().zip(&numbers).zip(&groups).map(|((n, nsid), group)| {
        let labels = [
            ("nqn", n.nqn.as_str()),
            ("nsid", nsid.as_str()),
            ("bdev_name", n.device.as_str()),
            ("anagrpid", group.as_str()),
        ];
        (labels, 1u64)
    });
    out.gauges(("roadtrain_subsystem_namespace_metadata", "A namespace"), metadata)
}

/// Returns the gateway's name and its group.
fn names(shown: &MetricsSnapshot) -> (&str, &str) {
    shown.gateway.as_ref().map_or((&shown.id, NO_GROUP), |gateway| (&gateway.name, &gateway.group))
}

fn gateway(shown: &MetricsSnapshot, out: &mut Out<'_>) -> fmt::Result {
    let first = shown.transports.listeners.first();
    let listener = first.and_then(|first| first.parse::<SocketAddr>().ok());
    let (addr, port) = listener.map_or_else(Default::default, |listener| {
        (listener.ip().to_string(), listener.port().to_string())
    });
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let (name, group) = names(shown);
    let info = [
        ("name", name),
        ("version", shown.version.as_str()),
        ("spdk_version", ""),
        ("addr", &addr),
        ("port", &port),
        ("hostname", hostname.trim()),
        ("group", group),
    ];
    out.gauges(("roadtrain_gateway_info", "The target, always 1"), [(info, 1u64)])
}

/// A device, with or without a namespace.
struct Bdev<'a> {
    name: &'a str,
    place: &'a str,
    product: &'a str,
    block_bytes: String,
    capacity_bytes: u64,
    io: &'a IoCounters,
}

impl<'a> Bdev<'a> {
    fn shown(namespace: &'a NamespaceSample) -> Self {
        Bdev {
            name: &namespace.device,
            place: place(&namespace.store),
            product: &namespace.product,
            block_bytes: namespace.block_bytes.to_string(),
            capacity_bytes: namespace.capacity_bytes,
            io: &namespace.io,
        }
    }

    fn alone(device: &'a DeviceSample, io: &'a IoCounters) -> Self {
        Bdev {
            name: &device.name,
            place: place(&device.store),
            product: &device.product,
            block_bytes: device.block_bytes.to_string(),
            capacity_bytes: device.capacity_bytes,
            io,
        }
    }

    /// Returns pool, namespace and name of an image of a Ceph cluster.
    fn image(&self) -> (&'a str, &'a str, &'a str) {
        if self.product != "Ceph Rbd Disk" {
            return Default::default();
        }
        let parts: Vec<&str> = self.place.split('/').collect();
        match parts[..] {
            [pool, image] => (pool, "", image),
            [pool, namespace, image] => (pool, namespace, image),
            _ => ("", "", self.place),
        }
    }
}

/// Returns the path or address of the blocks, without the kind of the store.
fn place(store: &str) -> &str {
    let kinds = ["file:", "block:", "rbd:"];
    kinds.iter().find_map(|kind| store.strip_prefix(kind)).unwrap_or(store)
}

fn bdevs(shown: &MetricsSnapshot, out: &mut Out<'_>) -> fmt::Result {
    let nothing = IoCounters::default();
    let alone = shown.unused_devices.iter().map(|device| Bdev::alone(device, &nothing));
    let all: Vec<Bdev<'_>> = shown.namespaces.iter().map(Bdev::shown).chain(alone).collect();
    let metadata = all.iter().map(|bdev| {
        let (pool, namespace, image) = bdev.image();
        let labels = [
            ("bdev_name", bdev.name),
            ("pool_name", pool),
            ("namespace", namespace),
            ("rbd_name", image),
            ("block_size", bdev.block_bytes.as_str()),
            ("product_name", bdev.product),
            ("device", bdev.place),
        ];
        (labels, 1u64)
    });
    out.gauges(("roadtrain_bdev_metadata", "A device"), metadata)?;
    let capacity = all.iter().map(|bdev| ([("bdev_name", bdev.name)], bdev.capacity_bytes));
    out.gauges(("roadtrain_bdev_capacity_bytes", "Capacity of a device"), capacity)?;
    let counters: [(&str, &str, SampleGetter<IoCounters, u64>); 4] = [
        ("roadtrain_bdev_reads_completed", "Reads completed", |io| io.reads),
        ("roadtrain_bdev_writes_completed", "Writes completed", |io| io.writes),
        ("roadtrain_bdev_read_bytes", "Bytes read", |io| io.read_bytes),
        ("roadtrain_bdev_written_bytes", "Bytes written", |io| io.written_bytes),
    ];
    for (name, help, value) in counters {
        let rows = all.iter().map(|bdev| ([("bdev_name", bdev.name)], value(bdev.io)));
        out.counters((name, help), rows)?;
    }
    let seconds: [(&str, &str, SampleGetter<IoCounters, f64>); 2] = [
        ("roadtrain_bdev_read_seconds", "Sum of the latencies of reads", |io| {
            io.read_latency.sum_seconds
        }),
        ("roadtrain_bdev_write_seconds", "Sum of the latencies of writes", |io| {
            io.write_latency.sum_seconds
        }),
    ];
    for (name, help, value) in seconds {
        let rows = all.iter().map(|bdev| ([("bdev_name", bdev.name)], value(bdev.io)));
        out.counters((name, help), rows)?;
    }
    Ok(())
}

/// Writes hosts that are or were connected, and those that are allowed and never connected.
fn connections(shown: &MetricsSnapshot, out: &mut Out<'_>) -> fmt::Result {
    let (gateway, _) = names(shown);
    let row = |nqn, host, address: Option<&'_ str>, is_connected: bool| {
        let address = address.unwrap_or(NO_ADDRESS).to_owned();
        let labels: [(&str, String); 4] = [
            ("gw_name", gateway.to_owned()),
            ("nqn", String::clone(nqn)),
            ("host_nqn", String::clone(host)),
            ("host_addr", address),
        ];
        (labels, u64::from(is_connected))
    };
    let seen = shown
        .hosts
        .iter()
        .map(|host| row(&host.nqn, &host.host_nqn, host.address.as_deref(), host.io_queues > 0));
    let known: BTreeSet<(&str, &str)> =
        shown.hosts.iter().map(|host| (host.nqn.as_str(), host.host_nqn.as_str())).collect();
    let named = shown.subsystems.iter().flat_map(|one| {
        let known = &known;
        let never =
            one.named_hosts.iter().filter(move |host| !known.contains(&(&*one.nqn, &**host)));
        never.map(move |host| row(&one.nqn, host, None, false))
    });
    let states = seen.chain(named);
    out.gauges(("roadtrain_host_connection_state", "1 if a host is connected"), states)
}

fn subsystems(shown: &MetricsSnapshot, out: &mut Out<'_>) -> fmt::Result {
    let all = &shown.subsystems;
    let (_, group) = names(shown);
    let says = |is_it: bool| if is_it { "yes" } else { "no" };
    let metadata = all.iter().map(|s| {
        let labels = [
            ("nqn", s.nqn.as_str()),
            ("serial_number", s.serial.as_str()),
            ("model_number", s.model.as_str()),
            ("allow_any_host", says(s.allow_hosts.is_none())),
            ("ha_enabled", says(s.shared)),
            ("group", group),
        ];
        (labels, 1u64)
    });
    out.gauges(("roadtrain_subsystem_metadata", "A subsystem"), metadata)?;
    let gauges: [(&str, &str, SampleGetter<SubsystemSample, u64>); 4] = [
        ("roadtrain_subsystem_listener_count", "Listeners of a subsystem", |s| s.listener_count),
        ("roadtrain_subsystem_host_count", "Hosts that are named for a subsystem", |s| {
            s.named_hosts.len() as u64
        }),
        ("roadtrain_subsystem_namespace_count", "Namespaces of a subsystem", |s| s.namespace_count),
        ("roadtrain_subsystem_namespace_limit", "The most that there may be", |s| s.namespaces_max),
    ];
    for (name, help, value) in gauges {
        out.gauges((name, help), all.iter().map(|s| ([("nqn", s.nqn.as_str())], value(s))))?;
    }
    Ok(())
}

//! The families of metrics: names, what they mean, labels. docs/reference/metrics.md has them all.

use super::encode::{Buckets, Out};
use super::process::Process;
use roadtrain_engine::metrics::{
    AttachmentSample, Batching, FrameCount, HostSample, Io, Kind, Latency, LatencyOf, LinkSample,
    NamespaceSample, ReactorSample, Snapshot, StatusCount, SubsystemSample,
};
use std::fmt;

/// What a family shows of a thing.
type Of<T, V> = fn(&T) -> V;

/// All of a snapshot.
pub(super) fn all(shown: &Snapshot, out: &mut Out<'_>) -> fmt::Result {
    let revision = option_env!("ROADTRAIN_REVISION").unwrap_or("unknown");
    let build = [("version", shown.version.as_str()), ("revision", revision)];
    out.gauges(("roadtrain_build_info", "The program, always 1"), [(build, 1u64)])?;
    let reload = shown.last_reload_successful.map(|is_it| ([("", ""); 0], u64::from(is_it)));
    let help = "Whether the configuration file could be used when it was read last";
    out.gauges(("roadtrain_config_last_reload_successful", help), reload)?;
    let health = [([("", ""); 0], u64::from(shown.problems.is_empty()))];
    out.gauges(("roadtrain_healthy", "Whether nothing is wrong, as GET /healthz says"), health)?;
    reactors(&shown.reactors, out)?;
    match shown.kind {
        Kind::Target => target(shown, out)?,
        Kind::Attachment => attachment(shown, out)?,
    }
    process(out)
}

fn target(shown: &Snapshot, out: &mut Out<'_>) -> fmt::Result {
    let numbers: Vec<String> = shown.reactors.iter().map(|r| r.reactor.to_string()).collect();
    let labels: Vec<_> = numbers.iter().map(|number| [("reactor", number.as_str())]).collect();
    let rows: Vec<_> = labels.into_iter().zip(shown.reactors.iter().map(|r| r.batching)).collect();
    batching(&rows, out)?;
    let sizes = numbers.iter().zip(&shown.reactors);
    sizes_of(sizes.map(|(number, r)| ([("reactor", number.as_str())], r)), out)?;
    let of = |(number, reactor): (&'_ String, &'_ ReactorSample)| {
        let row =
            |of: &LatencyOf| (number.clone(), of.op.clone(), of.class.clone(), of.latency.clone());
        reactor.latencies.iter().map(row).collect::<Vec<_>>()
    };
    let latencies: Vec<_> = numbers.iter().zip(&shown.reactors).flat_map(of).collect();
    let rows = latencies.iter().map(|(reactor, op, class, latency)| {
        ([("reactor", reactor.as_str()), ("op", op.as_str()), ("class", class.as_str())], latency)
    });
    let help = "From when a command was received until its answer has left";
    out.latencies(("roadtrain_io_seconds", help), Buckets::Fine, rows)?;
    gateway(shown, out)?;
    subsystems(shown, out)?;
    namespaces(&shown.namespaces, out)?;
    hosts(&shown.hosts, out)?;
    transport(shown, out)
}

fn reactors(reactors: &[ReactorSample], out: &mut Out<'_>) -> fmt::Result {
    let names: Vec<[String; 3]> = reactors.iter().map(names).collect();
    let of = || names.iter().zip(reactors);
    let one = |name: &'static str, help: &'static str, value: fn(&ReactorSample) -> u64| {
        let rows = names
            .iter()
            .zip(reactors)
            .map(move |([name, ..], r)| ([("reactor", name.as_str())], value(r)));
        ((name, help), rows.collect::<Vec<_>>())
    };
    let info = of().map(|([name, core, node], _)| {
        ([("reactor", name.as_str()), ("core", core.as_str()), ("node", node.as_str())], 1u64)
    });
    out.gauges(("roadtrain_reactor_info", "A reactor with its core and memory node"), info)?;
    let modes: [(&str, Of<ReactorSample, f64>); 3] =
        [("busy", |r| r.busy_seconds), ("idle", |r| r.idle_seconds), ("spin", |r| r.spin_seconds)];
    let seconds = of().flat_map(|([name, ..], r)| {
        modes.map(|(mode, value)| ([("name", name.as_str()), ("mode", mode)], value(r)))
    });
    let help = "Time in which a reactor worked, slept, or looked for work in vain";
    out.counters(("roadtrain_reactor_seconds", help), seconds)?;
    let cpu = of().flat_map(|([name, ..], r)| {
        let modes = [("user", r.user_seconds), ("system", r.system_seconds)];
        modes.map(|(mode, seconds)| ([("reactor", name.as_str()), ("mode", mode)], seconds))
    });
    out.counters(("roadtrain_reactor_cpu_seconds", "CPU time of a reactor's thread"), cpu)?;
    let gauges: [(&str, &str, Of<ReactorSample, u64>); 3] = [
        ("roadtrain_reactor_lanes", "Lanes on a reactor", |r| r.lanes),
        ("roadtrain_reactor_buffer_bytes", "Memory of data in flight", |r| r.buffer_bytes),
        ("roadtrain_reactor_buffer_limit_bytes", "The most that may be", |r| r.buffer_limit_bytes),
    ];
    for (name, help, value) in gauges {
        let (name, rows) = one(name, help, value);
        out.gauges(name, rows)?;
    }
    let counters: [(&str, &str, Of<ReactorSample, u64>); 4] = [
        ("roadtrain_reactor_turns", "Turns of a reactor", |r| r.turns),
        ("roadtrain_reactor_waits", "Sleeps of a reactor", |r| r.waits),
        ("roadtrain_reactor_buffer_waits", "Requests that waited for a buffer", |r| r.buffer_waits),
        ("roadtrain_reactor_context_switches", "Context switches of a reactor's thread", |r| {
            r.context_switches
        }),
    ];
    for (name, help, value) in counters {
        let (name, rows) = one(name, help, value);
        out.counters(name, rows)?;
    }
    Ok(())
}

fn names(reactor: &ReactorSample) -> [String; 3] {
    let show = |number: Option<String>| number.unwrap_or_default();
    [
        reactor.reactor.to_string(),
        show(reactor.core.map(|core| core.to_string())),
        show(reactor.node.map(|node| node.to_string())),
    ]
}

/// How requests travel, by one label.
fn batching(rows: &[([(&'static str, &str); 1], Batching)], out: &mut Out<'_>) -> fmt::Result {
    let counters: [(&str, &str, Of<Batching, u64>); 6] = [
        ("roadtrain_requests", "Requests answered, admin commands among them", |b| b.requests),
        ("roadtrain_caravans", "Caravans sent", |b| b.caravans),
        ("roadtrain_caravan_requests", "Requests or answers in caravans", |b| b.caravan_requests),
        ("roadtrain_caravan_bytes", "Octets in caravans", |b| b.caravan_bytes),
        ("roadtrain_sends", "Send system calls", |b| b.sends),
        ("roadtrain_receives", "Receive system calls", |b| b.receives),
    ];
    for (name, help, value) in counters {
        out.counters((name, help), rows.iter().map(|(labels, b)| (*labels, value(b))))?;
    }
    let doorbells = rows.iter().flat_map(|([label], b)| {
        let causes = [
            ("size", b.doorbells_size),
            ("timer", b.doorbells_timer),
            ("urgent", b.doorbells_urgent),
            ("drained", b.doorbells_drained),
        ];
        causes.map(|(cause, count)| ([*label, ("cause", cause)], count))
    });
    out.counters(("roadtrain_doorbells", "Doorbells by what has rung them"), doorbells)
}

fn sizes_of<'a>(
    rows: impl Iterator<Item = ([(&'static str, &'a str); 1], &'a ReactorSample)>,
    out: &mut Out<'_>,
) -> fmt::Result {
    let rows = rows.filter(|(_, r)| !r.caravan_sizes.is_empty()).map(|(labels, r)| {
        let last = r.caravan_sizes.len() - 1;
        let bound = |at: usize| if at == last { f64::INFINITY } else { (1u64 << at) as f64 };
        let buckets = r.caravan_sizes.iter().enumerate().map(|(at, count)| (bound(at), *count));
        (labels, (r.batching.caravan_requests as f64, buckets.collect()))
    });
    out.sizes(("roadtrain_caravan_size_requests", "Requests or answers in a caravan"), rows)
}

/// As ceph-nvmeof shows them.
fn gateway(shown: &Snapshot, out: &mut Out<'_>) -> fmt::Result {
    let listener = shown.transport.listeners.first().map_or("", String::as_str);
    let (addr, port) = listener.rsplit_once(':').unwrap_or((listener, ""));
    let (id, version) = (shown.id.as_str(), shown.version.as_str());
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let info = [
        ("name", id),
        ("version", version),
        ("spdk_version", ""),
        ("addr", addr),
        ("port", port),
        ("hostname", hostname.trim()),
        ("group", ""),
    ];
    out.gauges(("roadtrain_gateway_info", "The target, always 1"), [(info, 1u64)])?;
    let all = &shown.namespaces;
    let sizes: Vec<String> = all.iter().map(|n| n.block_bytes.to_string()).collect();
    let metadata = all.iter().zip(&sizes).map(|(n, size)| {
        let (pool, namespace, image) = image(n);
        let labels = [
            ("bdev_name", n.name.as_str()),
            ("pool_name", pool),
            ("namespace", namespace),
            ("rbd_name", image),
            ("block_size", size.as_str()),
            ("product_name", n.product.as_str()),
            ("device", n.device.as_str()),
        ];
        (labels, 1u64)
    });
    out.gauges(("roadtrain_bdev_metadata", "A device that is exported"), metadata)?;
    let by_name = |value: fn(&NamespaceSample) -> u64| {
        all.iter().map(move |n| ([("bdev_name", n.name.as_str())], value(n)))
    };
    let capacity = by_name(|n| n.capacity_bytes);
    out.gauges(("roadtrain_bdev_capacity_bytes", "Capacity of a device"), capacity)?;
    let counters: [(&str, &str, Of<NamespaceSample, u64>); 4] = [
        ("roadtrain_bdev_reads_completed", "Reads completed", |n| n.io.reads),
        ("roadtrain_bdev_writes_completed", "Writes completed", |n| n.io.writes),
        ("roadtrain_bdev_read_bytes", "Octets read", |n| n.io.read_bytes),
        ("roadtrain_bdev_written_bytes", "Octets written", |n| n.io.written_bytes),
    ];
    for (name, help, value) in counters {
        out.counters((name, help), by_name(value))?;
    }
    let seconds: [(&str, &str, Of<NamespaceSample, f64>); 2] = [
        ("roadtrain_bdev_read_seconds", "Sum of the latencies of reads", |n| {
            n.io.read_latency.seconds
        }),
        ("roadtrain_bdev_write_seconds", "Sum of the latencies of writes", |n| {
            n.io.write_latency.seconds
        }),
    ];
    for (name, help, value) in seconds {
        let rows = all.iter().map(|n| ([("bdev_name", n.name.as_str())], value(n)));
        out.counters((name, help), rows)?;
    }
    let states = shown.hosts.iter().map(|host| {
        let labels = [
            ("gw_name", id),
            ("nqn", host.nqn.as_str()),
            ("host_nqn", host.host_nqn.as_str()),
            ("host_addr", host.address.as_deref().unwrap_or_default()),
        ];
        (labels, u64::from(host.io_queues > 0))
    });
    out.gauges(("roadtrain_host_connection_state", "Whether a host is connected"), states)
}

/// Pool, namespace and name of an image of a Ceph cluster.
fn image(namespace: &NamespaceSample) -> (&str, &str, &str) {
    if namespace.product != "Ceph Rbd Disk" {
        return Default::default();
    }
    let parts: Vec<&str> = namespace.device.split('/').collect();
    match parts[..] {
        [pool, image] => (pool, "", image),
        [pool, namespace, image] => (pool, namespace, image),
        _ => ("", "", &namespace.device),
    }
}

fn subsystems(shown: &Snapshot, out: &mut Out<'_>) -> fmt::Result {
    let all = &shown.subsystems;
    let metadata = all.iter().map(|s| {
        let any = if s.allowed_hosts.is_none() { "yes" } else { "no" };
        let labels = [
            ("nqn", s.nqn.as_str()),
            ("serial_number", s.serial.as_str()),
            ("model_number", s.model.as_str()),
            ("allow_any_host", any),
            ("ha_enabled", "no"),
            ("group", ""),
        ];
        (labels, 1u64)
    });
    out.gauges(("roadtrain_subsystem_metadata", "A subsystem"), metadata)?;
    let listeners = shown.transport.listeners.len() as u64;
    let by_nqn = |value: &dyn Fn(&SubsystemSample) -> u64| {
        all.iter().map(|s| ([("nqn", s.nqn.as_str())], value(s))).collect::<Vec<_>>()
    };
    let name = |what| (what, "Of a subsystem");
    out.gauges(name("roadtrain_subsystem_listener_count"), by_nqn(&|_| listeners))?;
    let hosts = by_nqn(&|s| s.allowed_hosts.unwrap_or_default());
    out.gauges(name("roadtrain_subsystem_host_count"), hosts)?;
    out.gauges(name("roadtrain_subsystem_namespace_count"), by_nqn(&|s| s.namespaces))?;
    out.gauges(name("roadtrain_subsystem_namespace_limit"), by_nqn(&|s| s.namespace_limit))?;
    let numbers = numbers(&shown.namespaces);
    let metadata = shown.namespaces.iter().zip(&numbers).map(|(n, nsid)| {
        let labels = [
            ("nqn", n.nqn.as_str()),
            ("nsid", nsid.as_str()),
            ("bdev_name", n.name.as_str()),
            ("anagrpid", nsid.as_str()),
        ];
        (labels, 1u64)
    });
    out.gauges(("roadtrain_subsystem_namespace_metadata", "A namespace"), metadata)
}

fn numbers(namespaces: &[NamespaceSample]) -> Vec<String> {
    namespaces.iter().map(|namespace| namespace.nsid.to_string()).collect()
}

fn namespaces(all: &[NamespaceSample], out: &mut Out<'_>) -> fmt::Result {
    let numbers = numbers(all);
    let labels = |at: usize| [("nqn", all[at].nqn.as_str()), ("nsid", numbers[at].as_str())];
    let rows = |value: fn(&NamespaceSample) -> u64| {
        all.iter().enumerate().map(move |(at, n)| (at, value(n)))
    };
    let gauges: [(&str, &str, Of<NamespaceSample, u64>); 2] = [
        ("roadtrain_namespace_capacity_bytes", "Capacity of a namespace", |n| n.capacity_bytes),
        ("roadtrain_namespace_in_flight", "Commands under way", |n| n.io.in_flight.max(0) as u64),
    ];
    for (name, help, value) in gauges {
        out.gauges((name, help), rows(value).map(|(at, value)| (labels(at), value)))?;
    }
    let counters: [(&str, &str, Of<NamespaceSample, u64>); 7] = [
        ("roadtrain_namespace_reads_completed", "Reads that ended well", |n| n.io.reads),
        ("roadtrain_namespace_writes_completed", "Writes that ended well", |n| n.io.writes),
        ("roadtrain_namespace_flushes_completed", "Flushes that ended well", |n| n.io.flushes),
        ("roadtrain_namespace_discards_completed", "Discards that ended well", |n| n.io.discards),
        ("roadtrain_namespace_read_bytes", "Octets read", |n| n.io.read_bytes),
        ("roadtrain_namespace_written_bytes", "Octets written", |n| n.io.written_bytes),
        ("roadtrain_namespace_discarded_bytes", "Octets deallocated", |n| n.io.discarded_bytes),
    ];
    for (name, help, value) in counters {
        out.counters((name, help), rows(value).map(|(at, value)| (labels(at), value)))?;
    }
    let errors = all.iter().enumerate().flat_map(|(at, n)| {
        n.statuses.iter().map(move |of| {
            let [nqn, nsid] = labels(at);
            ([nqn, nsid, ("status", of.status.as_str())], of.count)
        })
    });
    out.counters(("roadtrain_namespace_errors", "Commands that failed, by status"), errors)?;
    let latencies = all.iter().enumerate().flat_map(|(at, n)| {
        ops(&n.io).map(|(op, latency)| {
            let [nqn, nsid] = labels(at);
            ([nqn, nsid, ("op", op)], latency)
        })
    });
    let help = "From when a command was received until its answer has left";
    out.latencies(("roadtrain_namespace_io_seconds", help), Buckets::Coarse, latencies)
}

fn ops(io: &Io) -> [(&'static str, &Latency); 2] {
    [("read", &io.read_latency), ("write", &io.write_latency)]
}

fn hosts(hosts: &[HostSample], out: &mut Out<'_>) -> fmt::Result {
    let labels = |h: &'_ HostSample| -> [(&'static str, String); 2] {
        [("nqn", h.nqn.clone()), ("host_nqn", h.host_nqn.clone())]
    };
    let gauges: [(&str, &str, Of<HostSample, u64>); 2] = [
        ("roadtrain_host_io_queues", "I/O queues of a host", |h| h.io_queues),
        ("roadtrain_host_in_flight", "Commands under way", |h| h.io.in_flight.max(0) as u64),
    ];
    for (name, help, value) in gauges {
        out.gauges((name, help), hosts.iter().map(|h| (labels(h), value(h))))?;
    }
    let counters: [(&str, &str, Of<HostSample, u64>); 3] = [
        ("roadtrain_host_read_bytes", "Octets read by a host", |h| h.io.read_bytes),
        ("roadtrain_host_written_bytes", "Octets written by a host", |h| h.io.written_bytes),
        ("roadtrain_host_connects", "Controllers that a host has connected", |h| h.connects),
    ];
    for (name, help, value) in counters {
        out.counters((name, help), hosts.iter().map(|h| (labels(h), value(h))))?;
    }
    let commands = hosts.iter().flat_map(|h| {
        let counts = [
            ("read", h.io.reads),
            ("write", h.io.writes),
            ("flush", h.io.flushes),
            ("discard", h.io.discards),
            ("other", h.io.others),
        ];
        counts.map(|(op, count)| {
            let [nqn, host] = labels(h);
            ([nqn, host, ("op", op.to_owned())], count)
        })
    });
    out.counters(("roadtrain_host_commands", "Commands that ended well"), commands)?;
    let reasons = |of: fn(&HostSample) -> &[StatusCount]| {
        hosts.iter().flat_map(move |h| {
            of(h).iter().map(move |count| {
                let [nqn, host] = labels(h);
                ([nqn, host, ("reason", count.status.clone())], count.count)
            })
        })
    };
    let losses = reasons(|h| &h.losses).collect::<Vec<_>>();
    out.counters(("roadtrain_host_losses", "Queues of a host that have ended"), losses)?;
    let refusals = reasons(|h| &h.refusals).collect::<Vec<_>>();
    out.counters(("roadtrain_host_refusals", "Connects that were refused"), refusals)
}

fn transport(shown: &Snapshot, out: &mut Out<'_>) -> fmt::Result {
    let of = &shown.transport;
    let connections = of
        .connections
        .iter()
        .map(|c| ([("transport", c.transport.as_str()), ("outcome", c.outcome.as_str())], c.count));
    out.counters(("roadtrain_connections", "Connections by what has become of them"), connections)?;
    let open = [([("", ""); 0], of.open)];
    out.gauges(("roadtrain_connections_open", "Connections that there are"), open)?;
    let by = |label: &'static str, counts: &'_ [StatusCount]| {
        counts.iter().map(|c| ([(label, c.status.clone())], c.count)).collect::<Vec<_>>()
    };
    let help = "Connections that ended because the host broke the protocol, by Fatal Error Status";
    out.counters(("roadtrain_protocol_errors", help), by("fes", &of.protocol_errors))?;
    let digests = by("kind", &of.digest_errors);
    out.counters(("roadtrain_digest_errors", "Digests that were wrong"), digests)?;
    for (name, help, count) in [
        ("roadtrain_frames_sent", "Frames sent", (|of| of.sent) as fn(&FrameCount) -> u64),
        ("roadtrain_frames_received", "Frames received", |of| of.received),
        ("roadtrain_frames_lost", "Frames given up: what was in them was sent again", |of| of.lost),
    ] {
        let by = |of: &'_ FrameCount| ([("interface", of.interface.clone())], count(of));
        out.counters((name, help), of.frames.iter().map(by))?;
    }
    let dropped = of
        .frames_dropped
        .iter()
        .map(|c| ([("interface", "all"), ("reason", c.status.as_str())], c.count));
    out.counters(("roadtrain_frames_dropped", "Frames that were dropped"), dropped)
}

fn attachment(shown: &Snapshot, out: &mut Out<'_>) -> fmt::Result {
    let Some(of) = &shown.attachment else { return Ok(()) };
    let id = ("id", shown.id.as_str());
    let device = of.devices.first().map_or("", String::as_str);
    let (nqn, front, transport) = (of.nqn.as_str(), of.front.as_str(), of.transport.as_str());
    let info = [id, ("nqn", nqn), ("front", front), ("device", device), ("transport", transport)];
    out.gauges(("roadtrain_attachment_info", "An attachment, always 1"), [(info, 1u64)])?;
    let gauges: [(&str, &str, u64); 5] = [
        ("roadtrain_attachment_connected", "Whether its target can be used", of.connected.into()),
        ("roadtrain_attachment_lanes", "Its lanes", shown.lanes.len() as u64),
        ("roadtrain_attachment_in_flight", "Requests taken and not completed", of.in_flight),
        ("roadtrain_attachment_waiting", "Of those, requests that wait to be sent", of.waiting),
        ("roadtrain_attachment_size_bytes", "Octets that it shows", of.size_bytes),
    ];
    for (name, help, value) in gauges {
        out.gauges((name, help), [([id], value)])?;
    }
    attachment_counters(id, of, out)?;
    let sum = shown.reactors.iter().fold(Batching::default(), |sum, r| sum + r.batching);
    batching(&[([id], sum)], out)?;
    links(id, &shown.links, out)
}

fn attachment_counters(
    id: (&'static str, &str),
    of: &AttachmentSample,
    out: &mut Out<'_>,
) -> fmt::Result {
    let counters: [(&str, &str, u64); 6] = [
        ("roadtrain_attachment_reads_completed", "Reads that ended well", of.io.reads),
        ("roadtrain_attachment_writes_completed", "Writes that ended well", of.io.writes),
        ("roadtrain_attachment_read_bytes", "Octets read", of.io.read_bytes),
        ("roadtrain_attachment_written_bytes", "Octets written", of.io.written_bytes),
        ("roadtrain_attachment_errors", "Requests that failed", of.io.errors),
        ("roadtrain_attachment_reconnects", "Connections made again", of.reconnects),
    ];
    for (name, help, value) in counters {
        out.counters((name, help), [([id], value)])?;
    }
    let rows = ops(&of.io).map(|(op, latency)| ([id, ("op", op)], latency));
    let help = "From when a request was taken until it has ended";
    out.latencies(("roadtrain_attachment_io_seconds", help), Buckets::Fine, rows)
}

fn links(id: (&'static str, &str), links: &[LinkSample], out: &mut Out<'_>) -> fmt::Result {
    let labels =
        |link: &'_ LinkSample| [(id.0, id.1.to_owned()), ("interface", link.interface.clone())];
    let rtt = links.iter().map(|link| (labels(link), link.rtt_seconds));
    out.gauges(("roadtrain_link_rtt_seconds", "Round-trip time of a link"), rtt)?;
    let suspect = links.iter().map(|link| (labels(link), u64::from(link.suspect)));
    out.gauges(("roadtrain_link_suspect", "Whether new frames avoid a link"), suspect)?;
    let sent = links.iter().map(|link| (labels(link), link.sent));
    out.counters(("roadtrain_link_sent", "Frames sent over a link"), sent)?;
    let lost = links.iter().map(|link| (labels(link), link.lost));
    out.counters(("roadtrain_link_lost", "Frames given up on a link"), lost)
}

fn process(out: &mut Out<'_>) -> fmt::Result {
    let now = Process::now();
    let none = [("", ""); 0];
    let cpu = ("process_cpu_seconds", "CPU time of the process");
    out.counters(cpu, [(none, now.cpu_seconds)])?;
    let gauges: [(&str, &str, u64); 5] = [
        ("process_resident_memory_bytes", "Resident memory of the process", now.resident_bytes),
        ("process_virtual_memory_bytes", "Virtual memory of the process", now.virtual_bytes),
        ("process_threads", "Threads of the process", now.threads),
        ("process_open_fds", "Open descriptors of the process", now.open_fds),
        ("process_max_fds", "The most that may be", now.max_fds),
    ];
    for (name, help, value) in gauges {
        out.gauges((name, help), [(none, value)])?;
    }
    let start = ("process_start_time_seconds", "When the process began, since 1970");
    out.gauges(start, [(none, now.start_seconds)])
}

#[cfg(test)]
mod tests {
    use super::super::encode::{Format, text};
    use super::super::managed::{Calls, Managed, StoreSample};
    use super::*;
    use roadtrain_engine::metrics::{ConnectionCount, LaneSample, TransportSample};
    use std::collections::{BTreeMap, BTreeSet};

    const PAGE: &str = include_str!("../../../../docs/reference/metrics.md");

    fn some(status: &str) -> Vec<StatusCount> {
        vec![StatusCount { status: status.into(), count: 2 }]
    }

    fn io() -> Io {
        let latency = Latency { buckets: vec![1, 2, 3], seconds: 6e-5 };
        Io {
            reads: 6,
            writes: 6,
            read_latency: latency.clone(),
            write_latency: latency,
            ..Io::default()
        }
    }

    /// With something of everything.
    fn full(kind: Kind) -> Snapshot {
        let of = |op: &str| LatencyOf {
            op: op.into(),
            class: "normal".into(),
            latency: io().read_latency,
        };
        let reactor = ReactorSample {
            caravan_sizes: vec![1; 12],
            latencies: vec![of("read"), of("write")],
            ..ReactorSample::default()
        };
        let host = HostSample {
            losses: some("closed"),
            refusals: some("HOSTNQN"),
            io: io(),
            ..HostSample::default()
        };
        let connection =
            ConnectionCount { transport: "tcp".into(), outcome: "accepted".into(), count: 1 };
        Snapshot {
            kind,
            id: "a \"name\"\\".into(),
            last_reload_successful: Some(true),
            reactors: vec![reactor],
            namespaces: vec![NamespaceSample {
                statuses: some("x"),
                io: io(),
                ..NamespaceSample::default()
            }],
            hosts: vec![host],
            lanes: vec![LaneSample::default()],
            subsystems: vec![SubsystemSample::default()],
            transport: TransportSample {
                listeners: vec!["[::1]:4420".into()],
                connections: vec![connection],
                protocol_errors: some("LimitExceeded"),
                digest_errors: some("data"),
                frames: vec![FrameCount { interface: "eth1".into(), ..FrameCount::default() }],
                frames_dropped: some("token"),
                ..TransportSample::default()
            },
            links: vec![LinkSample::default()],
            attachment: Some(AttachmentSample { io: io(), ..AttachmentSample::default() }),
            ..Snapshot::default()
        }
    }

    fn managed() -> Managed {
        let call = Calls {
            method: "spdk_get_version".into(),
            codes: vec![(0, 5), (-32602, 1)],
            latency: io().read_latency,
        };
        let store = StoreSample { name: "lvs0".into(), ..StoreSample::default() };
        Managed { calls: vec![call], state_write_errors: 1, stores: vec![store] }
    }

    /// Families with their kind and labels.
    type Families = BTreeMap<String, (String, BTreeSet<String>)>;

    fn families(text: &str) -> Families {
        let mut found = Families::new();
        let mut family = String::new();
        for line in text.lines() {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                family = name.to_owned();
                found.insert(family.clone(), (kind.to_owned(), BTreeSet::new()));
            } else if !line.starts_with('#') {
                let labels =
                    line.split_once('{').map_or("", |(_, rest)| rest.rsplit_once('}').unwrap().0);
                let names = labels.split("\",").filter_map(|label| label.split_once('='));
                let names = names.map(|(name, _)| name.to_owned()).filter(|name| name != "le");
                found.get_mut(&family).unwrap().1.extend(names);
            }
        }
        found
    }

    fn on_the_page() -> Families {
        let row = |line: &str| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let name = cells.get(1)?.strip_prefix('`')?.strip_suffix('`')?;
            let labels = cells.get(3)?.split(',').map(|label| label.trim().trim_matches('`'));
            let labels = labels.filter(|label| !label.is_empty()).map(str::to_owned).collect();
            Some((name.to_owned(), (cells.get(2)?.to_string(), labels)))
        };
        PAGE.lines().filter(|line| line.starts_with("| `")).filter_map(row).collect()
    }

    #[test]
    fn the_page_has_every_metric_with_its_labels() {
        let shown = [Kind::Target, Kind::Attachment]
            .map(|kind| text(&full(kind), Some(&managed()), Format::Plain));
        let mut shown: Vec<Families> = shown.iter().map(|text| families(text)).collect();
        let mut all = shown.remove(0);
        for (name, (kind, labels)) in shown.remove(0) {
            all.entry(name).or_insert_with(|| (kind, BTreeSet::new())).1.extend(labels);
        }
        let page = on_the_page();
        let row = |(name, (kind, labels)): (&String, &(String, BTreeSet<String>))| {
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            format!("| `{name}` | {kind} | {} | ... |", labels.join(", "))
        };
        let missing = all.iter().filter(|(name, _)| !page.contains_key(*name)).map(row);
        let missing: Vec<String> = missing.collect();
        assert!(missing.is_empty(), "docs/reference/metrics.md lacks\n{}", missing.join("\n"));
        assert_eq!(page, all);
    }

    #[test]
    fn names_and_numbers_are_as_prometheus_wants_them() {
        for kind in [Kind::Target, Kind::Attachment] {
            let text = text(&full(kind), Some(&managed()), Format::Plain);
            let mut series = BTreeSet::new();
            for line in text.lines().filter(|line| !line.starts_with('#')) {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert!(value.parse::<f64>().is_ok(), "{line}");
                assert!(series.insert(name), "twice: {name}");
            }
            for (name, (kind, _)) in families(&text) {
                assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
                assert!(name.starts_with("roadtrain_") || name.starts_with("process_"), "{name}");
            }
        }
    }

    #[test]
    fn a_scrape_of_a_thousand_namespaces_is_as_long_as_it_has_to_be() {
        let mut snapshot = full(Kind::Target);
        let one = snapshot.namespaces[0].clone();
        let number = |nsid| NamespaceSample { nsid, name: format!("{nsid}"), ..one.clone() };
        snapshot.namespaces = (1..=1000).map(number).collect();
        let text = text(&snapshot, None, Format::Plain);
        let lines =
            text.lines().filter(|line| line.contains("nsid=") || line.contains("bdev_name="));
        assert_eq!(lines.count(), 1000 * (8 + 1 + 9 + 1 + 2 * 13));
    }
}

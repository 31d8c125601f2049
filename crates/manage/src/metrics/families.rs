//! Families of metrics: names, help, labels. docs/reference/metrics.md lists them.

mod attachment;
mod ceph;

use super::out::{Buckets, Out};
use super::process::ProcessCounters;
use roadtrain_reactor::metrics::{
    Batching, FrameCount, HostSample, IoCounters, Latency, LatencyOf, MetricsSnapshot,
    NamespaceSample, ReactorSample, ReasonCount, SnapshotKind, SubsystemSample,
};
use roadtrain_target_engine::AnaState;
use std::fmt;

/// Getter of one value of a sample.
type SampleGetter<T, V> = fn(&T) -> V;

/// Writes all families of a snapshot.
pub(super) fn all(shown: &MetricsSnapshot, out: &mut Out<'_>) -> fmt::Result {
    let revision = option_env!("ROADTRAIN_REVISION").unwrap_or("unknown");
    let build = [("version", shown.version.as_str()), ("revision", revision)];
    out.gauges(("roadtrain_build_info", "The program, always 1"), [(build, 1u64)])?;
    let reload = shown.last_reload_successful.map(|is_it| ([("", ""); 0], u64::from(is_it)));
    let help = "1 if the last read of the configuration file succeeded";
    out.gauges(("roadtrain_config_last_reload_successful", help), reload)?;
    let health = [([("", ""); 0], u64::from(shown.problems.is_empty()))];
    out.gauges(
        ("roadtrain_healthy", "1: nothing needs a person, as the problems of /snapshot.json say"),
        health,
    )?;
    reactors(&shown.reactors, out)?;
    match shown.kind {
        SnapshotKind::Target => target(shown, out)?,
        SnapshotKind::Attachment => attachment::attachment(shown, out)?,
    }
    process(out)
}

fn target(shown: &MetricsSnapshot, out: &mut Out<'_>) -> fmt::Result {
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
    let help = "Time from the receipt of a command until its response has left";
    out.latencies(("roadtrain_io_seconds", help), Buckets::Fine, rows)?;
    ceph::ceph(shown, out)?;
    listener_ana_states(&shown.subsystems, out)?;
    namespaces(&shown.namespaces, out)?;
    let help = "Namespaces that the limit of the scrape has left out";
    let left_out = [([("", ""); 0], shown.namespaces_left_out)];
    out.gauges(("roadtrain_namespaces_left_out", help), left_out)?;
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
    let modes: [(&str, SampleGetter<ReactorSample, f64>); 3] =
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
    let gauges: [(&str, &str, SampleGetter<ReactorSample, u64>); 3] = [
        ("roadtrain_reactor_lanes", "Lanes on a reactor", |r| r.lane_count),
        ("roadtrain_reactor_buffer_bytes", "Memory of data in flight", |r| r.buffer_bytes),
        ("roadtrain_reactor_buffer_limit_bytes", "The most that may be", |r| r.buffer_limit_bytes),
    ];
    for (name, help, value) in gauges {
        let (name, rows) = one(name, help, value);
        out.gauges(name, rows)?;
    }
    let counters: [(&str, &str, SampleGetter<ReactorSample, u64>); 4] = [
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

/// Writes batching counters with one label.
fn batching(rows: &[([(&'static str, &str); 1], Batching)], out: &mut Out<'_>) -> fmt::Result {
    let counters: [(&str, &str, SampleGetter<Batching, u64>); 6] = [
        ("roadtrain_requests", "Completed requests, including admin commands", |b| b.requests),
        ("roadtrain_caravans", "Caravans sent", |b| b.caravans),
        ("roadtrain_caravan_requests", "Requests or responses in caravans", |b| b.caravan_requests),
        ("roadtrain_caravan_bytes", "Bytes in caravans", |b| b.caravan_bytes),
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
    out.counters(("roadtrain_doorbells", "Doorbells by cause"), doorbells)
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
    out.sizes(("roadtrain_caravan_size_requests", "Requests or responses in a caravan"), rows)
}

/// Writes the ANA states that subsystems report to hosts, by listener.
fn listener_ana_states(subsystems: &[SubsystemSample], out: &mut Out<'_>) -> fmt::Result {
    let states = subsystems.iter().flat_map(|one| {
        one.ana_listeners.iter().flat_map(|listener_state| {
            AnaState::ALL.map(|state| {
                let (nqn, listener) = (one.nqn.as_str(), listener_state.listener.as_str());
                let labels = [("nqn", nqn), ("listener", listener), ("state", state.name())];
                (labels, u64::from(listener_state.ana == state.name()))
            })
        })
    });
    let help = "ANA state that a listener reports for a subsystem's namespaces";
    out.gauges(("roadtrain_listener_ana_state", help), states)
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
    let gauges: [(&str, &str, SampleGetter<NamespaceSample, u64>); 3] = [
        ("roadtrain_namespace_capacity_bytes", "Capacity of a namespace", |n| n.capacity_bytes),
        ("roadtrain_namespace_in_flight", "Commands under way", |n| n.io.in_flight.max(0) as u64),
        ("roadtrain_namespace_accessible", "1 if hosts can use the namespace here", |n| {
            n.accessible.into()
        }),
    ];
    for (name, help, value) in gauges {
        out.gauges((name, help), rows(value).map(|(at, value)| (labels(at), value)))?;
    }
    let counters: [(&str, &str, SampleGetter<NamespaceSample, u64>); 7] = [
        ("roadtrain_namespace_reads_completed", "Successful reads", |n| n.io.reads),
        ("roadtrain_namespace_writes_completed", "Successful writes", |n| n.io.writes),
        ("roadtrain_namespace_flushes_completed", "Successful flushes", |n| n.io.flushes),
        ("roadtrain_namespace_discards_completed", "Successful discards", |n| n.io.discards),
        ("roadtrain_namespace_read_bytes", "Bytes read", |n| n.io.read_bytes),
        ("roadtrain_namespace_written_bytes", "Bytes written", |n| n.io.written_bytes),
        ("roadtrain_namespace_discarded_bytes", "Bytes deallocated", |n| n.io.discarded_bytes),
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
    let help = "Time from the receipt of a command until its response has left";
    out.latencies(("roadtrain_namespace_io_seconds", help), Buckets::Coarse, latencies)
}

fn ops(io: &IoCounters) -> [(&'static str, &Latency); 2] {
    [("read", &io.read_latency), ("write", &io.write_latency)]
}

fn hosts(hosts: &[HostSample], out: &mut Out<'_>) -> fmt::Result {
    let labels = |h: &'_ HostSample| -> [(&'static str, String); 2] {
        [("nqn", h.nqn.clone()), ("host_nqn", h.host_nqn.clone())]
    };
    let gauges: [(&str, &str, SampleGetter<HostSample, u64>); 2] = [
        ("roadtrain_host_io_queues", "I/O queues of a host", |h| h.io_queues),
        ("roadtrain_host_in_flight", "Commands under way", |h| h.io.in_flight.max(0) as u64),
    ];
    for (name, help, value) in gauges {
        out.gauges((name, help), hosts.iter().map(|h| (labels(h), value(h))))?;
    }
    let counters: [(&str, &str, SampleGetter<HostSample, u64>); 3] = [
        ("roadtrain_host_read_bytes", "Bytes read by a host", |h| h.io.read_bytes),
        ("roadtrain_host_written_bytes", "Bytes written by a host", |h| h.io.written_bytes),
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
    out.counters(("roadtrain_host_commands", "Successful commands"), commands)?;
    let reasons = |of: fn(&HostSample) -> &[ReasonCount]| {
        hosts.iter().flat_map(move |h| {
            of(h).iter().map(move |count| {
                let [nqn, host] = labels(h);
                ([nqn, host, ("reason", count.reason.clone())], count.count)
            })
        })
    };
    let losses = reasons(|h| &h.losses).collect::<Vec<_>>();
    out.counters(("roadtrain_host_losses", "Ended queues of a host"), losses)?;
    let refusals = reasons(|h| &h.refused_connects).collect::<Vec<_>>();
    out.counters(("roadtrain_host_refusals", "Connects that were refused"), refusals)
}

fn transport(shown: &MetricsSnapshot, out: &mut Out<'_>) -> fmt::Result {
    let of = &shown.transports;
    let connections = of
        .connection_counts
        .iter()
        .map(|c| ([("transport", c.transport.as_str()), ("outcome", c.outcome.as_str())], c.count));
    out.counters(("roadtrain_connections", "Connections by outcome"), connections)?;
    let open = [([("", ""); 0], of.connections)];
    out.gauges(("roadtrain_connections_open", "Open connections"), open)?;
    let by = |label: &'static str, counts: &'_ [ReasonCount]| {
        counts.iter().map(|c| ([(label, c.reason.clone())], c.count)).collect::<Vec<_>>()
    };
    let help = "Connections that ended because the host broke the protocol, by Fatal Error Status";
    out.counters(("roadtrain_protocol_errors", help), by("fes", &of.protocol_errors))?;
    let digests = by("kind", &of.digest_errors);
    out.counters(("roadtrain_digest_errors", "Wrong digests"), digests)?;
    for (name, help, count) in [
        ("roadtrain_frames_sent", "Frames sent", (|of| of.sent_frames) as fn(&FrameCount) -> u64),
        ("roadtrain_frames_received", "Frames received", |of| of.received_frames),
        ("roadtrain_frames_lost", "Lost frames, sent again", |of| of.lost_frames),
    ] {
        let by = |of: &'_ FrameCount| ([("interface", of.interface.clone())], count(of));
        out.counters((name, help), of.frames.iter().map(by))?;
    }
    let dropped = of
        .frames_dropped
        .iter()
        .map(|c| ([("interface", "all"), ("reason", c.reason.as_str())], c.count));
    out.counters(("roadtrain_frames_dropped", "Frames and records that were dropped"), dropped)
}

fn process(out: &mut Out<'_>) -> fmt::Result {
    let now = ProcessCounters::now();
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
    let start = ("process_start_time_seconds", "Start time of the process, in seconds since 1970");
    out.gauges(start, [(none, now.start_seconds)])
}

#[cfg(test)]
mod tests;

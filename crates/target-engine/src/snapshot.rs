//! Snapshot of everything that a target has counted.

use super::ether::Drops;
use super::export::{Export, ExportBlocks};
use super::order::TargetReactorMessage;
use super::server::Server;
use roadtrain_reactor::metrics::{
    AnaSample, FrameCount, IoCounters, LaneSample, MetricsSnapshot, NamespaceSample, ReactorSample,
    ReasonCount, SnapshotKind, SubsystemSample, bounds, name_in_file,
};
use roadtrain_store::StoreKind;
use roadtrain_target_proto::{
    AnaListener, AnaState, NAMESPACES_MAX, NamespaceConfig, SubsystemConfig, TargetConfig,
};
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

impl Server {
    /// Returns the current counters. Reactors publish them; only frame counters need a query. The caller sets `id`,
    /// `version` and `uptime_seconds`.
    #[must_use]
    pub fn snapshot(&self) -> MetricsSnapshot {
        let meters = &self.control.meters;
        let (seen, _) = self.view();
        let (exports, serials) = (self.exports(), self.control.serials());
        let lanes = meters.lane_samples();
        let mut namespaces = namespaces(&seen, &exports);
        namespaces.iter_mut().for_each(|namespace| meters.fill(namespace));
        let mut transports = meters.transport_sample();
        transports.listeners = self.addresses().iter().map(ToString::to_string).collect();
        let reactors = self.reactors();
        transports.connections = reactors.iter().map(|reactor| reactor.lane_count).sum();
        (transports.frames, transports.frames_dropped) = self.frames();
        let serial = |nqn: &str| serials.get(nqn).cloned().unwrap_or_default();
        let sample = |one: &SubsystemConfig| {
            let (listener_count, ana_listeners) = ana_samples(one, &seen, self.has_interfaces);
            let serial = serial(&one.nqn);
            SubsystemSample { serial, listener_count, ana_listeners, ..subsystem(one) }
        };
        let subsystems = seen.subsystems.iter().map(sample).collect();
        let problems: Vec<String> = self.failure().into_iter().collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        MetricsSnapshot {
            kind: SnapshotKind::Target,
            unix_seconds: now.as_secs_f64(),
            state: if problems.is_empty() { "serving" } else { "failing" }.to_owned(),
            problems,
            latency_bounds_seconds: bounds().to_vec(),
            reactors,
            namespaces,
            hosts: meters.host_samples(&lanes),
            lanes,
            subsystems,
            transports,
            ..MetricsSnapshot::default()
        }
    }

    /// Returns the counters of all queues, including admin queues (QID 0).
    #[must_use]
    pub fn queues(&self) -> Vec<LaneSample> {
        self.control.meters.queue_samples()
    }

    /// Describes the problems of the exports: blocks that are not accessible, flushes that have failed.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        self.control.problems()
    }

    /// Returns the counters of the reactors.
    #[must_use]
    pub fn reactors(&self) -> Vec<ReactorSample> {
        let samples = self.control.meters.reactor_samples().into_iter().zip(&self.affinities);
        let placed =
            |(sample, affinity): (ReactorSample, &roadtrain_system::platform::Affinity)| {
                ReactorSample { core: affinity.cpus.single(), node: affinity.node, ..sample }
            };
        samples.map(placed).collect()
    }

    /// Returns frames by interface and dropped frames by reason, over all reactors.
    fn frames(&self) -> (Vec<FrameCount>, Vec<ReasonCount>) {
        let (mut of_all, mut dropped) = (Vec::<FrameCount>::new(), Drops::default());
        // Without interfaces there are no frames, and no reactor is queried.
        if !self.has_interfaces {
            return (of_all, Vec::new());
        }
        for (drops, ports) in self.query_reactors(TargetReactorMessage::Frames) {
            dropped = dropped + drops;
            for port in ports {
                match of_all.iter_mut().find(|of| of.interface == port.interface) {
                    Some(of) => {
                        of.sent_frames += port.sent_frames;
                        of.received_frames += port.received_frames;
                        of.lost_frames += port.lost_frames;
                    }
                    None => of_all.push(port),
                }
            }
        }
        let count = |(reason, count): (&str, u64)| ReasonCount { reason: reason.into(), count };
        (of_all, dropped.by_reason().map(count).collect())
    }
}

/// Returns the namespaces as hosts see them.
fn namespaces(seen: &TargetConfig, exports: &TargetConfig<Export>) -> Vec<NamespaceSample> {
    let configured = exports.subsystems.iter().map(|one| (one.nqn.as_str(), &one.namespaces[..]));
    let configured: HashMap<&str, &[Export]> = configured.collect();
    let of = |subsystem: &SubsystemConfig| {
        let exports = configured.get(subsystem.nqn.as_str()).copied().unwrap_or_default();
        let by_nsid: HashMap<u32, &Export> = exports.iter().map(|one| (one.nsid, one)).collect();
        let sample = |namespace: &NamespaceConfig| {
            let export = by_nsid.get(&namespace.nsid);
            let (store, product) = export.map_or_else(Default::default, |export| {
                (export.blocks.place(), product(&export.blocks))
            });
            let NamespaceConfig { nsid, blocks, lba_shift, read_only, .. } = *namespace;
            NamespaceSample {
                nqn: subsystem.nqn.clone(),
                nsid,
                device: name_in_file(&subsystem.nqn, nsid),
                store,
                block_bytes: 1 << lba_shift,
                product: product.to_owned(),
                capacity_bytes: blocks << lba_shift,
                ana_group: namespace.view.ana_group,
                read_only,
                accessible: namespace.ana.is_usable(),
                io: IoCounters::default(),
                statuses: Vec::new(),
            }
        };
        subsystem.namespaces.iter().map(sample).collect::<Vec<_>>()
    };
    seen.subsystems.iter().flat_map(of).collect()
}

/// Returns the kind of a namespace's storage, in the words of SPDK where it has one.
fn product(blocks: &ExportBlocks) -> &'static str {
    match blocks.spec().map(|spec| &spec.kind) {
        None => "Embedded",
        Some(StoreKind::Memory { .. }) => "Malloc disk",
        Some(StoreKind::Ssd { .. }) => "Emulated SSD",
        Some(StoreKind::Null { .. }) => "Null disk",
        Some(StoreKind::File { .. }) => "AIO disk",
        Some(StoreKind::Block { .. }) => "URING bdev",
        Some(StoreKind::Remote(blocks)) => blocks.source().product(),
        #[cfg(feature = "rbd")]
        Some(StoreKind::Rbd(_)) => "Ceph Rbd Disk",
    }
}

/// Returns the number of TCP listeners of a subsystem, and the ANA states of all its paths.
fn ana_samples(
    subsystem: &SubsystemConfig,
    seen: &TargetConfig,
    has_interfaces: bool,
) -> (u64, Vec<AnaSample>) {
    let state_sample = |listener: AnaListener, state: AnaState| AnaSample {
        listener: listener.to_string(),
        ana: state.to_string(),
    };
    if let Some(named) = &subsystem.listeners {
        let samples = named.iter().map(|(at, state)| state_sample(AnaListener::Tcp(*at), *state));
        return (named.len() as u64, samples.collect());
    }
    let shared = seen.listeners.iter().filter(|listener| !listener.named_only);
    let mut samples: Vec<AnaSample> = shared
        .map(|one| state_sample(AnaListener::Tcp(one.address), seen.ana.at(one.address)))
        .collect();
    let listeners = samples.len() as u64;
    if has_interfaces {
        samples.push(state_sample(
            AnaListener::Ether,
            seen.ana.get(AnaListener::Ether).unwrap_or_default(),
        ));
    }
    // One address of a wildcard listener may have its own state.
    for (listener, state) in seen.ana.iter() {
        let own = state_sample(listener, state);
        if samples.iter().all(|path| path.listener != own.listener) {
            samples.push(own);
        }
    }
    (listeners, samples)
}

fn subsystem(subsystem: &SubsystemConfig) -> SubsystemSample {
    SubsystemSample {
        nqn: subsystem.nqn.clone(),
        model: subsystem.model.clone(),
        allow_hosts: subsystem.allowed_hosts.as_ref().map(|hosts| hosts.iter().cloned().collect()),
        named_hosts: subsystem.allowed_hosts.iter().flatten().cloned().collect(),
        namespace_count: subsystem.namespaces.len() as u64,
        namespaces_max: NAMESPACES_MAX.into(),
        ..SubsystemSample::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ServerConfig, Subsystem};
    use roadtrain_host_engine::{HostClient, HostConfig};
    use roadtrain_reactor::metrics::{Batching, HostSample, LaneSample, StatusCount};
    use roadtrain_store::StoreSpec;
    use roadtrain_system::buffer::Buffer;
    use roadtrain_target_proto::{TargetListener, TlsUse};

    const NQN: &str = "nqn.2024-01.test:disk";
    const HOST: &str = "nqn.2024-01.test:host";

    fn start(hosts: Option<&str>) -> Server {
        let kind = StoreKind::Memory { size: 1 << 20 };
        let namespaces = [1, 7].map(|nsid| {
            let store = StoreSpec { kind: kind.clone(), lba_bytes: 512, read_only: false };
            Export::new(nsid, store)
        });
        let allowed_hosts = hosts.map(|host| [host.to_owned()].into());
        let subsystem =
            Subsystem { namespaces: namespaces.into(), allowed_hosts, ..Subsystem::new(NQN) };
        let listen = vec!["127.0.0.1:0".parse().unwrap()];
        Server::start(ServerConfig::new(listen, vec![subsystem])).unwrap()
    }

    fn host(server: &Server, name: &str) -> HostConfig {
        HostConfig::new(server.addresses()[0], NQN, name, [7; 16])
    }

    /// Waits until the counters show what a test expects. They are published at the end of a turn and read one after
    /// the other.
    fn when(server: &Server, is_there: impl Fn(&MetricsSnapshot) -> bool) -> MetricsSnapshot {
        for _ in 0..1000 {
            let snapshot = server.snapshot();
            if is_there(&snapshot) {
                return snapshot;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("not counted: {:#?}", server.snapshot());
    }

    /// Returns the number of commands with a measured latency.
    fn timed(snapshot: &MetricsSnapshot) -> u64 {
        let latencies = snapshot.reactors.iter().flat_map(|reactor| &reactor.latencies);
        latencies.map(|of| of.latency.count()).sum()
    }

    #[test]
    fn every_command_is_counted_once_for_its_namespace_its_host_and_its_lane() {
        let server = start(None);
        let client = HostClient::connect(host(&server, HOST)).unwrap();
        for _ in 0..3 {
            client.write(1, 0, Buffer::alloc(4096), false).unwrap();
        }
        client.read(1, 8, Buffer::alloc(512)).unwrap();
        client.read(7, 0, Buffer::alloc(1024)).unwrap();
        client.flush(1).unwrap();
        client.discard(1, 0, 16).unwrap();
        let error = client.read(1, 1 << 40, Buffer::alloc(512)).unwrap_err();
        let snapshot = when(&server, |s| {
            let lane = &s.lanes[0];
            let is_counted = (lane.batching.requests, lane.io.in_flight) == (9, 0);
            let all = s.reactors[0].batching.requests;
            is_counted && s.namespaces[0].io.errors == 1 && timed(s) == 5 && all > 9
        });
        let [one, seven] = &snapshot.namespaces[..] else { panic!("{snapshot:#?}") };
        let io = &one.io;
        assert_eq!((io.reads, io.writes, io.flushes, io.discards), (1, 3, 1, 1), "{error}");
        assert_eq!(
            (io.read_bytes, io.written_bytes, io.discarded_bytes),
            (512, 3 * 4096, 16 * 512)
        );
        assert_eq!((io.in_flight, one.capacity_bytes), (0, 1 << 20));
        let status = StatusCount { status: "LBA Out of Range".into(), count: 1 };
        assert_eq!(one.statuses, [status]);
        assert_eq!((seven.io.reads, seven.io.read_bytes, seven.io.errors), (1, 1024, 0));
        let [HostSample { io, io_queues: 1, connects: 1, host_nqn, .. }] = &snapshot.hosts[..]
        else {
            panic!("{snapshot:#?}")
        };
        assert_eq!((io.reads, io.writes, io.errors, host_nqn.as_str()), (2, 3, 1, HOST));
        let [LaneSample { qid: 1, batching, transport, .. }] = &snapshot.lanes[..] else {
            panic!("{snapshot:#?}")
        };
        assert_eq!((batching.requests, transport.as_str()), (9, "tcp"), "Connect and eight");
        let reactor = &snapshot.reactors[0];
        assert_eq!(reactor.lane_count, 2);
        assert!(reactor.idle_seconds > 0.0, "{reactor:?}");
        assert!(snapshot.subsystems[0].serial.len() == 20, "{:?}", snapshot.subsystems);
        drop(client);
        let snapshot = when(&server, |s| s.lanes.is_empty() && s.hosts[0].io_queues == 0);
        assert_eq!(snapshot.hosts[0].io.writes, 3);
        assert!(snapshot.reactors[0].batching.requests > 9, "what has ended stays counted");
    }

    #[test]
    fn refused_hosts_are_counted_with_the_reason() {
        let server = start(Some(HOST));
        let stranger = host(&server, "nqn.2024-01.test:stranger");
        assert!(HostClient::connect(stranger).is_err());
        let hosts = server.snapshot().hosts;
        let [HostSample { refused_connects, connects: 0, host_nqn, .. }] = &hosts[..] else {
            panic!("{hosts:?}")
        };
        assert_eq!(host_nqn, "", "anybody can make a name up: it would stay for ever");
        assert_eq!(
            (refused_connects[0].reason.as_str(), refused_connects[0].count),
            ("HOSTNQN", 1)
        );
    }

    #[test]
    fn a_namespace_that_is_gone_takes_its_counters_along_and_leaves_latencies() {
        let server = start(None);
        let client = HostClient::connect(host(&server, HOST)).unwrap();
        client.read(7, 0, Buffer::alloc(512)).unwrap();
        when(&server, |s| s.namespaces[1].io.reads == 1 && timed(s) == 1);
        let operation = crate::ConfigOperation::RemoveNamespace { nqn: NQN.into(), nsid: 7 };
        server.apply(&[operation]).unwrap();
        let snapshot = server.snapshot();
        assert_eq!(snapshot.namespaces.len(), 1);
        assert_eq!(timed(&snapshot), 1);
    }

    /// The counters of a hanging reactor are read like those of others, without a query or a wait.
    #[test]
    fn reactors_are_not_queried() {
        let server = start(None);
        let client = HostClient::connect(host(&server, HOST)).unwrap();
        client.read(1, 0, Buffer::alloc(512)).unwrap();
        when(&server, |s| s.namespaces[0].io.reads == 1);
        let (release, held) = std::sync::mpsc::sync_channel::<()>(0);
        let (arrived, there) = std::sync::mpsc::sync_channel(1);
        server.call(0, move || {
            arrived.send(()).unwrap();
            let _ = held.recv();
        });
        there.recv().unwrap();
        let snapshot = server.snapshot();
        assert_eq!((snapshot.namespaces[0].io.reads, snapshot.transports.connections), (1, 2));
        drop(release); // the reactor has made no turn before this
    }

    /// Commands of a lane are counted once, also those in flight, whichever reactor it is on.
    #[test]
    fn lanes_that_move_are_counted_on() {
        let kind = StoreKind::Memory { size: 1 << 20 };
        let store = StoreSpec { kind, lba_bytes: 512, read_only: false };
        let subsystem =
            Subsystem { namespaces: vec![Export::new(1, store)], ..Subsystem::new(NQN) };
        let config = ServerConfig::new(vec!["127.0.0.1:0".parse().unwrap()], vec![subsystem]);
        let server = Server::start(ServerConfig { cores: vec![0, 0], ..config }).unwrap();
        let client = HostClient::connect(host(&server, HOST)).unwrap();
        let mut before = Batching::default();
        for round in 1..=20 {
            client.read(1, 0, Buffer::alloc(512)).unwrap();
            let snapshot = when(&server, |s| s.namespaces[0].io.reads == round);
            assert_eq!(snapshot.namespaces[0].io.in_flight, 0);
            let sum: Batching = snapshot.reactors.iter().map(|reactor| reactor.batching).sum();
            assert!(sum.requests >= before.requests, "{round}: {sum:?} after {before:?}");
            before = sum;
            let from = snapshot.lanes[0].reactor;
            server.move_lanes(from, 1 - from);
            when(&server, |s| s.lanes[0].reactor == 1 - from);
        }
        when(&server, |s| s.hosts[0].io.reads == 20 && timed(s) == 20);
    }

    /// Each subsystem has the listeners where it is reachable, with their ANA states.
    #[test]
    fn subsystems_have_their_own_listeners() {
        let named = |state| Some([("127.0.0.1:4421".parse().unwrap(), state)].into());
        let own = SubsystemConfig {
            listeners: named(AnaState::NonOptimized),
            allowed_hosts: Some([HOST.to_owned()].into()),
            ..SubsystemConfig::new(NQN)
        };
        let listener = |portid, address: &str, named_only| TargetListener {
            portid,
            address: address.parse().unwrap(),
            tls: TlsUse::Off,
            named_only,
        };
        let mut seen = TargetConfig {
            listeners: vec![
                listener(1, "0.0.0.0:4420", false),
                listener(2, "[::1]:4420", false),
                listener(3, "127.0.0.1:4421", true),
            ],
            ..TargetConfig::default()
        };
        let at = |text: &str| AnaListener::Tcp(text.parse().unwrap());
        seen.ana.set(at("[::1]:4420"), Some(AnaState::Inaccessible));
        seen.ana.set(at("127.0.0.2:4420"), Some(AnaState::Change));
        let shown = |(listeners, samples): (u64, Vec<AnaSample>)| {
            let samples = samples.into_iter().map(|path| format!("{} {}", path.listener, path.ana));
            (listeners, samples.collect::<Vec<_>>())
        };
        assert_eq!(
            shown(ana_samples(&own, &seen, true)),
            (1, vec!["127.0.0.1:4421 non-optimized".to_owned()])
        );
        let shared = [
            "0.0.0.0:4420 optimized",
            "[::1]:4420 inaccessible",
            "ether optimized",
            "127.0.0.2:4420 change",
        ];
        let plain = SubsystemConfig::new("nqn.2024-01.test:other");
        assert_eq!(shown(ana_samples(&plain, &seen, true)), (2, shared.map(str::to_owned).into()));
        assert_eq!(subsystem(&own).named_hosts, [HOST]);
    }
}

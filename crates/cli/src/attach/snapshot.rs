//! Counters of an attachment at one time.

use super::running::RunningAttachment;
use crate::failure::{CommandFailure, CommandResult};
use crate::status::report::{AttachmentDetails, AttachmentReport, PathState};
use roadtrain_host_engine::{LaneReading, PathReport};
use roadtrain_manage::metrics::{self, MetricsSource};
use roadtrain_reactor::metrics::{
    AttachmentSample, IoCounters, LaneSample, MetricsSnapshot, NamespaceSample, PathSample,
    ReactorSample, SnapshotKind, bounds,
};
use roadtrain_system::platform::listen_problem;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::info;

/// A reactor that makes no progress for this time hangs.
const TURN_LIMIT: Duration = Duration::from_secs(2);

/// An attachment as the source of its metrics.
struct AttachmentMetrics(Weak<RunningAttachment>);

impl MetricsSource for AttachmentMetrics {
    fn snapshot(&self) -> MetricsSnapshot {
        self.0.upgrade().map_or_else(MetricsSnapshot::default, |running| running.snapshot())
    }

    fn problems(&self) -> Vec<String> {
        let Some(running) = self.0.upgrade() else { return vec!["it ends".into()] };
        let silent = running.pulse().and_then(|pulse| pulse.check(TURN_LIMIT).err());
        // One dead path of several is no reason for a probe to end what still works.
        running
            .report()
            .state_problem()
            .into_iter()
            .chain(silent.map(|silent| silent.to_string()))
            .collect()
    }
}

impl RunningAttachment {
    /// Starts the HTTP server at `address`.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub(super) fn serve_metrics(self: &Arc<Self>, address: SocketAddr) -> CommandResult {
        let server = metrics::serve(address, AttachmentMetrics(Arc::downgrade(self)));
        let server = server.map_err(|error| {
            let problem = listen_problem(address, &error);
            CommandFailure::failed(format!("--metrics {address}: {problem}"))
        })?;
        info!("metrics at http://{}/", server.address());
        self.keep_http(server);
        Ok(())
    }

    /// Returns all counters.
    pub(super) fn snapshot(&self) -> MetricsSnapshot {
        let (report, view) = (self.report(), self.view());
        let (reactors, readings) = (view.reactors(), view.lanes());
        let mut io = IoCounters::default();
        reactors.iter().for_each(|(_, of)| io += of);
        let taken: i64 = readings.iter().map(|lane| i64::from(lane.in_flight)).sum();
        io.in_flight = taken;
        let AttachmentReport { id, state, problems, address, nqn, spec, inside, .. } = report;
        let Some(inside) = inside else { return MetricsSnapshot::default() };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let attachment = attachment((&nqn, spec, address), &inside, &readings, io.clone());
        let connected = state == crate::status::report::AttachmentState::Connected;
        MetricsSnapshot {
            kind: SnapshotKind::Attachment,
            id,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            unix_seconds: now.as_secs_f64(),
            uptime_seconds: inside.uptime_seconds,
            state: state.to_string(),
            problems,
            latency_bounds_seconds: bounds().to_vec(),
            namespaces: namespaces(&nqn, &inside, &io),
            lanes: lanes(&nqn, &readings, &reactors),
            reactors: reactors.into_iter().map(|(sample, _)| sample).collect(),
            links: inside.links.clone(),
            paths: view.routes().into_iter().map(path).collect(),
            attachment: Some(AttachmentSample { connected, ..attachment }),
            ..MetricsSnapshot::default()
        }
    }
}

fn attachment(
    (nqn, front, address): (&str, String, String),
    inside: &AttachmentDetails,
    readings: &[LaneReading],
    io: IoCounters,
) -> AttachmentSample {
    let devices = inside.devices.iter();
    AttachmentSample {
        nqn: nqn.to_owned(),
        front,
        names: devices.clone().flat_map(|device| device.names.clone()).collect(),
        transport: if inside.links.is_empty() { "tcp" } else { "ether" }.to_owned(),
        address,
        connected: false,
        in_flight: inside.in_flight,
        waiting_requests: readings.iter().map(|lane| u64::from(lane.waiting)).sum(),
        capacity_bytes: devices.filter_map(|device| device.capacity_bytes).sum(),
        reconnects: readings.iter().map(|lane| lane.reconnects).sum(),
        io,
    }
}

/// Returns the namespaces that the devices show. Counters cover all namespaces, so a namespace has them only if it is
/// the only one.
fn namespaces(nqn: &str, inside: &AttachmentDetails, io: &IoCounters) -> Vec<NamespaceSample> {
    let is_alone = inside.devices.len() == 1;
    let sample = |device: &crate::status::report::DeviceReport| NamespaceSample {
        nqn: nqn.to_owned(),
        nsid: device.nsid,
        device: device.names.first().cloned().unwrap_or_default(),
        block_bytes: device.block_bytes.unwrap_or_default(),
        capacity_bytes: device.capacity_bytes.unwrap_or_default(),
        read_only: device.read_only.unwrap_or_default(),
        io: if is_alone { io.clone() } else { IoCounters::default() },
        ..NamespaceSample::default()
    };
    inside.devices.iter().map(sample).collect()
}

fn lanes(
    nqn: &str,
    readings: &[LaneReading],
    reactors: &[(ReactorSample, IoCounters)],
) -> Vec<LaneSample> {
    let sample = |(lane, reading): (usize, &LaneReading)| LaneSample {
        nqn: nqn.to_owned(),
        qid: u16::try_from(lane + 1).unwrap_or(u16::MAX),
        reactor: lane % reactors.len().max(1),
        io: IoCounters {
            in_flight: reading.in_flight.into(),
            errors: reading.errors,
            ..IoCounters::default()
        },
        batching: reading.batching,
        reconnects: reading.reconnects,
        ..LaneSample::default()
    };
    readings.iter().enumerate().map(sample).collect()
}

fn path(path: PathReport) -> PathSample {
    PathSample {
        address: path.address,
        state: PathState::from(path.link.state).to_string(),
        ana: path.ana.map(|state| state.to_string()),
        requests: path.requests,
        data_bytes: path.data_bytes,
        loss_count: path.losses,
        in_flight: path.in_flight.into(),
        waiting_requests: path.waiting.into(),
    }
}

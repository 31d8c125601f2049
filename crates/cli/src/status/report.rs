//! State of an attachment, as reported by its process and as shown.

use super::waiting::{self, WaitReport};
use crate::output::columns;
use crate::registry::AttachmentEntry;
use crate::units::{show_bandwidth, show_bytes, show_seconds, show_us};
use roadtrain_host_engine::LinkState;
use roadtrain_reactor::metrics::LinkSample;
use serde::{Deserialize, Serialize};
use std::fmt;

/// State of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AttachmentState {
    /// It connects for the first time.
    Starting,
    /// It is connected.
    Connected,
    /// The connection is lost and reconnects; requests wait.
    Reconnecting,
    /// The connection is lost for longer than `--ctrl-loss-tmo`; requests fail.
    Failing,
    /// It ends.
    Stopping,
    /// Its process does not reply.
    Silent,
    /// Its process has ended.
    Gone,
}

impl fmt::Display for AttachmentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// An attachment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AttachmentReport {
    /// `attachment`: targets are in the same list.
    #[serde(default = "attachment")]
    pub kind: String,
    /// Name.
    pub id: String,
    /// Front-end with its place.
    #[serde(rename = "as")]
    pub spec: String,
    /// Process ID.
    pub pid: u32,
    /// User of the process.
    #[serde(default)]
    pub uid: u32,
    /// State.
    pub state: AttachmentState,
    /// Duration of the state, if known.
    pub state_seconds: Option<f64>,
    /// Reason of the last failure, while there is no connection.
    pub error: Option<String>,
    /// Problems that need a person; empty if all is well.
    #[serde(default)]
    pub problems: Vec<String>,
    /// Address of the target.
    pub address: String,
    /// The subsystem.
    pub nqn: String,
    /// Data that only its process has; `None` if that does not reply.
    #[serde(flatten)]
    pub inside: Option<AttachmentDetails>,
}

fn attachment() -> String {
    "attachment".into()
}

/// Data that only the process has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AttachmentDetails {
    /// Batching policy.
    pub policy: String,
    /// Priority class of requests.
    pub class: String,
    /// Seconds since it was ready.
    pub uptime_seconds: f64,
    /// Devices.
    pub devices: Vec<DeviceReport>,
    /// Its lanes.
    pub lanes: Vec<AttachmentLaneReport>,
    /// Links of the lanes, if these have no connections of their own.
    #[serde(default)]
    pub links: Vec<LinkSample>,
    /// The paths to its namespaces: one for each address.
    #[serde(default)]
    pub paths: Vec<PathLine>,
    /// Requests completed by the target.
    pub requests: u64,
    /// Bytes of their data.
    pub data_bytes: u64,
    /// Requests that did not succeed.
    pub errors: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Wait statistics of its reactors.
    #[serde(default)]
    pub waiting: Vec<WaitReport>,
    /// Recent rates: of the last 10 s, or since the former sample with `--watch`.
    pub recent: RecentRates,
}

/// State of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PathState {
    /// Connected: it carries requests.
    Live,
    /// The connection is lost and reconnects.
    Connecting,
    /// The connection is lost for longer than `--ctrl-loss-tmo`.
    Lost,
}

impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl From<LinkState> for PathState {
    fn from(state: LinkState) -> PathState {
        match state {
            LinkState::Connected => PathState::Live,
            LinkState::Reconnecting => PathState::Connecting,
            LinkState::Failing => PathState::Lost,
        }
    }
}

/// A path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PathLine {
    /// Address.
    pub address: String,
    /// State.
    pub state: PathState,
    /// ANA state, the best of all namespaces; `None` if the target does not report one, or if it was not queried as
    /// there is only one path.
    pub ana: Option<String>,
    /// Recent requests completed in a second.
    pub iops: f64,
    /// Requests completed.
    pub requests: u64,
    /// Reason of the last failure, while it is not live.
    pub error: Option<String>,
}

/// A namespace that a device shows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DeviceReport {
    /// The namespace.
    pub nsid: u32,
    /// Names of the device.
    pub names: Vec<String>,
    /// Present size in bytes; `None` if the target has removed it.
    pub capacity_bytes: Option<u64>,
    /// Bytes of a block.
    pub block_bytes: Option<u32>,
    /// Refuses writes.
    pub read_only: Option<bool>,
}

/// A lane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AttachmentLaneReport {
    /// Index.
    pub lane: usize,
    /// State of its controller: all connections are lost and made together.
    pub state: AttachmentState,
    /// Requests completed by the target.
    pub requests: u64,
    /// Bytes of their data.
    pub data_bytes: u64,
    /// Requests in flight.
    pub in_flight: u32,
    /// Number of reconnects.
    pub reconnects: u64,
    /// Its express connection, whose requests count above as well.
    #[serde(default)]
    pub express: ExpressReport,
}

/// A lane's express connection, for latency-critical requests that pass bulk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExpressReport {
    /// True if it is open.
    pub open: bool,
    /// Number of times it was opened.
    pub opened: u64,
    /// Requests completed over the open connection.
    pub requests: u64,
    /// Requests in flight on it.
    pub in_flight: u32,
}

/// Rates in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecentRates {
    /// Duration of the interval.
    pub seconds: f64,
    /// Requests a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Failed requests in the interval.
    #[serde(default)]
    pub errors: u64,
}

impl AttachmentReport {
    /// Creates a report without the process's data, with the reason why it does not reply.
    pub(crate) fn without_process(
        entry: &AttachmentEntry,
        state: AttachmentState,
        error: Option<String>,
    ) -> AttachmentReport {
        AttachmentReport {
            kind: attachment(),
            id: entry.id.clone(),
            spec: entry.spec.clone(),
            pid: entry.process.pid,
            state,
            uid: entry.process.owner,
            state_seconds: None,
            error,
            problems: Vec::new(),
            address: entry.address.clone(),
            nqn: entry.nqn.clone(),
            inside: None,
        }
        .with_problems()
    }

    /// Lists the problems: the state, then paths, namespaces and requests, which may have problems while it is
    /// connected.
    #[must_use]
    pub(crate) fn with_problems(mut self) -> AttachmentReport {
        let inside = self.inside.iter().flat_map(AttachmentDetails::problems);
        self.problems = self.state_problem().into_iter().chain(inside).collect();
        self
    }

    /// Returns the problem that makes the attachment unusable as a whole.
    pub(crate) fn state_problem(&self) -> Option<String> {
        let is_bad = !matches!(
            self.state,
            AttachmentState::Starting | AttachmentState::Connected | AttachmentState::Stopping
        );
        is_bad.then(|| self.error.clone().unwrap_or_else(|| format!("it is {}", self.state)))
    }

    /// Formats the report.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        let seconds = self.state_seconds.map(|s| format!(" for {}", show_seconds(s)));
        let mut text =
            format!("{}  {}  {}{}\n", self.id, self.spec, self.state, seconds.unwrap_or_default());
        let mut line = |name: &str, value: String| text.push_str(&format!("  {name:<9}{value}\n"));
        line("target", format!("{}  {}", self.address, self.nqn));
        for problem in &self.problems {
            line("problem", problem.clone());
        }
        let Some(inside) = &self.inside else {
            line("process", super::process(self.pid, self.uid));
            return text;
        };
        let process = super::process(self.pid, self.uid);
        line("process", format!("{process}, up for {}", show_seconds(inside.uptime_seconds)));
        let lanes = inside.lanes.len();
        line("lanes", format!("{lanes}, policy {}, class {}", inside.policy, inside.class));
        if let Some(express) = inside.express() {
            line("express", express);
        }
        line("load", inside.load());
        line("total", inside.total());
        if let Some(waiting) = waiting::text(&inside.waiting) {
            line("waiting", waiting);
        }
        let rows: Vec<Vec<String>> = inside.devices.iter().map(DeviceReport::cells).collect();
        let devices = columns(&["  nsid", "size", "block", "access", "device"], &rows);
        let rows: Vec<Vec<String>> = inside.links.iter().map(link_cells).collect();
        let links = match rows.is_empty() {
            true => String::new(),
            false => columns(&["  link", "node", "to", "state", "rtt", "frames", "lost"], &rows),
        };
        let rows: Vec<Vec<String>> = inside.paths.iter().map(PathLine::cells).collect();
        let paths = match rows.len() {
            0 | 1 => String::new(),
            _ => columns(&["  path", "state", "ana", "IOPS"], &rows),
        };
        for row in devices.lines().chain(links.lines()).chain(paths.lines()) {
            text.push_str(&format!("{row}\n"));
        }
        text
    }
}

impl AttachmentReport {
    /// Sets the rates to those since the sample `before` of the same process.
    pub(crate) fn since(&mut self, before: &AttachmentReport) {
        let (Some(inside), Some(before)) = (&mut self.inside, &before.inside) else { return };
        let seconds = inside.uptime_seconds - before.uptime_seconds;
        if seconds > 0.0 {
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            for path in &mut inside.paths {
                let earlier = before.paths.iter().find(|other| other.address == path.address);
                path.iops = rate(path.requests, earlier.map_or(0, |other| other.requests));
            }
            inside.recent = RecentRates {
                seconds,
                iops: rate(inside.requests, before.requests),
                bytes_per_second: rate(inside.data_bytes, before.data_bytes),
                errors: inside.errors.saturating_sub(before.errors),
            };
        }
    }
}

impl AttachmentDetails {
    /// Problems of paths, namespaces and requests.
    fn problems(&self) -> Vec<String> {
        let is_live = |path: &PathLine| path.state == PathState::Live;
        // Without any live path the attachment itself has the problem.
        let paths: &[PathLine] = if self.paths.iter().any(is_live) { &self.paths } else { &[] };
        let paths = paths.iter().filter(|path| !is_live(path)).map(PathLine::problem);
        let removed = self.devices.iter().filter(|device| device.capacity_bytes.is_none());
        let removed = removed.map(|device| {
            format!("namespace {} is removed, or another one has its place", device.nsid)
        });
        let RecentRates { seconds, errors, .. } = self.recent;
        let failed = (errors > 0)
            .then(|| format!("{errors} requests failed in the last {}", show_seconds(seconds)));
        paths.chain(removed).chain(failed).collect()
    }

    /// Summarises express connections, if there were any.
    fn express(&self) -> Option<String> {
        let of_lanes = || self.lanes.iter().map(|lane| lane.express);
        let opened: u64 = of_lanes().map(|express| express.opened).sum();
        let open = of_lanes().filter(|express| express.open).count();
        let requests: u64 = of_lanes().map(|express| express.requests).sum();
        let in_flight: u32 = of_lanes().map(|express| express.in_flight).sum();
        (opened > 0).then(|| {
            format!(
                "{open} open, {requests} requests, {in_flight} in flight, opened {opened} times"
            )
        })
    }

    fn load(&self) -> String {
        let RecentRates { seconds, iops, bytes_per_second, .. } = self.recent;
        format!(
            "{iops:.0} IOPS, {} in {}, {} in flight",
            show_bandwidth(bytes_per_second),
            show_seconds(seconds),
            self.in_flight
        )
    }

    fn total(&self) -> String {
        let reconnects = self.lanes.iter().map(|lane| lane.reconnects).max().unwrap_or(0);
        format!(
            "{} requests, {}, {} errors, {reconnects} reconnects",
            self.requests,
            show_bytes(self.data_bytes),
            self.errors
        )
    }
}

impl DeviceReport {
    fn cells(&self) -> Vec<String> {
        let dash = || "-".to_owned();
        let access = |read_only| if read_only { "read-only" } else { "read-write" }.to_owned();
        vec![
            format!("  {}", self.nsid),
            self.capacity_bytes.map_or_else(|| "removed".to_owned(), show_bytes),
            self.block_bytes.map_or_else(dash, |bytes| bytes.to_string()),
            self.read_only.map_or_else(dash, access),
            self.names.join(" "),
        ]
    }
}

impl PathLine {
    fn problem(&self) -> String {
        let PathLine { address, state, error, .. } = self;
        let reason = error.iter().map(|error| format!(": {error}"));
        format!("path {address} is {state}{}", reason.collect::<String>())
    }

    fn cells(&self) -> Vec<String> {
        let state = match self.state {
            PathState::Live => "live",
            PathState::Connecting => "connecting",
            PathState::Lost => "lost",
        };
        vec![
            format!("  {}", self.address),
            state.to_owned(),
            self.ana.clone().unwrap_or_else(|| "-".to_owned()),
            format!("{:.0}", self.iops),
        ]
    }
}

fn link_cells(link: &LinkSample) -> Vec<String> {
    let percent = link.lost_frames as f64 * 100.0 / (link.sent_frames.max(1) as f64);
    vec![
        format!("  {}", link.interface),
        link.node.map_or_else(|| "-".to_owned(), |node| node.to_string()),
        link.peer.clone(),
        format!(
            "{}{}",
            if link.up { "up" } else { "suspect" },
            if link.sealed { ", sealed" } else { "" }
        ),
        show_us(link.rtt_us),
        link.sent_frames.to_string(),
        format!("{percent:.2} %"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    pub(crate) fn report() -> AttachmentReport {
        let lane = AttachmentLaneReport {
            lane: 0,
            state: AttachmentState::Reconnecting,
            requests: 100,
            data_bytes: 4096,
            in_flight: 3,
            reconnects: 2,
            express: ExpressReport { open: true, opened: 2, requests: 60, in_flight: 1 },
        };
        AttachmentReport {
            kind: attachment(),
            id: "nbd0".into(),
            spec: "nbd:unix:/a".into(),
            pid: 7,
            uid: 0,
            state: AttachmentState::Reconnecting,
            problems: Vec::new(),
            state_seconds: Some(3.25),
            error: Some("cannot reach 192.0.2.7:4420".into()),
            address: "192.0.2.7:4420".into(),
            nqn: "nqn.x:y".into(),
            inside: Some(AttachmentDetails {
                policy: "auto".into(),
                class: "normal".into(),
                uptime_seconds: 150.0,
                devices: [Some(1 << 30), None]
                    .into_iter()
                    .zip(1..)
                    .map(|(capacity_bytes, nsid)| DeviceReport {
                        nsid,
                        names: vec!["/dev/x".into()],
                        capacity_bytes,
                        block_bytes: Some(4096),
                        read_only: Some(false),
                    })
                    .collect(),
                lanes: vec![lane],
                links: vec![LinkSample {
                    interface: "eth1".into(),
                    node: Some(1),
                    peer: "02:00:00:00:00:01".into(),
                    up: true,
                    sealed: true,
                    rtt_us: 31.4,
                    sent_frames: 1000,
                    lost_frames: 1,
                }],
                paths: [
                    ("192.0.2.7:4420", PathState::Connecting),
                    ("192.0.2.8:4420", PathState::Live),
                ]
                .map(|(address, state)| PathLine {
                    address: address.into(),
                    state,
                    ana: Some("optimized".into()),
                    iops: 12.3,
                    requests: 50,
                    error: (state != PathState::Live).then(|| "Connection refused".into()),
                })
                .into(),
                requests: 100,
                data_bytes: 4096,
                errors: 1,
                in_flight: 3,
                waiting: vec![WaitReport { sleep_cost_us: 12.0, spin_bound_us: 24.0, caught: 0.5 }],
                recent: RecentRates {
                    seconds: 2.0,
                    iops: 50.0,
                    bytes_per_second: 2048.0,
                    errors: 3,
                },
            }),
        }
    }

    #[test]
    fn people_see_what_matters() {
        let text = AttachmentReport { uid: registry::ProcessIdentity::this().owner, ..report() }
            .with_problems()
            .text();
        for part in [
            "nbd0  nbd:unix:/a  reconnecting for 3.25 s\n",
            "  problem  cannot reach 192.0.2.7:4420\n",
            "  problem  path 192.0.2.7:4420 is connecting: Connection refused\n",
            "  problem  namespace 2 is removed, or another one has its place\n",
            "  problem  3 requests failed in the last 2.00 s\n",
            "  process  7, up for 2.50 min\n",
            "  express  1 open, 60 requests, 1 in flight, opened 2 times\n",
            "  load     50 IOPS, 2.00 KiB/s in 2.00 s, 3 in flight\n",
            "  total    100 requests, 4 KiB, 1 errors, 2 reconnects\n",
            "  waiting  a sleep costs 12.0 us, spins up to 24.0 us and catches 50 %\n",
            "  1     1 GiB    4096   read-write  /dev/x\n",
            "  192.0.2.7:4420  connecting  optimized  12\n",
            "  192.0.2.8:4420  live        optimized  12\n",
            "  eth1  1     02:00:00:00:00:01  up, sealed  31.4 us  1000    0.10 %\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn json_is_flat_and_read_back() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!((&json["kind"], &json["state"]), (&"attachment".into(), &"reconnecting".into()));
        assert_eq!(json["recent"]["iops"], 50.0);
        assert_eq!(json["waiting"][0]["spin_bound_us"], 24.0);
        assert_eq!(json["paths"][0]["state"], "connecting");
        assert_eq!(json["paths"][1]["iops"], 12.3);
        assert_eq!(json["lanes"][0]["express"]["open"], true);
        assert_eq!(json["devices"][0]["capacity_bytes"], 1u64 << 30);
        let back: AttachmentReport = serde_json::from_value(json).unwrap();
        assert_eq!(back.inside.unwrap().lanes[0].in_flight, 3);
        let gone = AttachmentReport { inside: None, ..report() };
        let json = serde_json::to_value(gone).unwrap();
        assert!(json.get("requests").is_none());
        assert!(serde_json::from_value::<AttachmentReport>(json).unwrap().inside.is_none());
    }
}

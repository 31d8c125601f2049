//! Recorded requests of reactors ([`roadtrain_proto::recorder`]), for other threads and programs.

use roadtrain_proto::recorder::{FlightRecorder, RecordReason, RequestRecord, TimelineEnd};
use roadtrain_system::clock;
use roadtrain_wire::sqe::opcode;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Recent requests that reactors have recorded.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct RecordedRequests {
    /// Time of the copy, in seconds since 1970.
    pub unix_seconds: f64,
    /// The same time on the machine's monotonic clock, in nanoseconds: the clock of the requests' timestamps.
    pub clock_ns: u64,
    /// Boot ID of the machine: clocks of two processes are the same when it is the same.
    pub boot: String,
    /// Recorders by the number of their reactor.
    pub reactors: Vec<RecorderState>,
    /// Connections of the requests.
    #[serde(rename = "recorded_connections")]
    pub connections: Vec<ConnectionInfo>,
    /// Requests: each reactor's slow ones, then its sampled ones, each kind from the oldest on.
    #[serde(rename = "recorded_requests")]
    pub requests: Vec<RecordedRequest>,
}

/// Settings of a reactor's recorder.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct RecorderState {
    /// Latency in microseconds from which on requests are slow; `None`: nothing is recorded.
    pub slow_over_us: Option<f64>,
    /// Sampling interval in requests.
    pub sampled_one_in: u32,
}

/// Addresses and IDs of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConnectionInfo {
    /// NQN of the subsystem.
    pub nqn: String,
    /// NQN of the host; empty at an attachment.
    pub host_nqn: String,
    /// Local address, for a TCP connection that this process made.
    pub local: String,
    /// Address of the peer.
    pub peer: String,
    /// Controller ID; 0 at an attachment.
    pub cntlid: u16,
    /// Queue ID: an attachment's lanes count from 1.
    pub qid: u16,
    /// Number of the path, at an attachment with several.
    pub path: usize,
}

/// A request that has ended.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct RecordedRequest {
    /// End of the connection that recorded it.
    pub end: RecordingEnd,
    /// Reason why it was recorded.
    pub why: RecordingReason,
    /// Index of its connection in [`RecordedRequests::connections`].
    pub connection: usize,
    /// Number of the reactor.
    pub reactor: usize,
    /// Command identifier.
    pub cid: u16,
    /// Operation: `read`, `write`, `flush`, `discard` and so on, or the opcode as a number.
    pub op: String,
    /// Namespace ID.
    pub nsid: u32,
    /// First block, if the command has one.
    pub lba: Option<u64>,
    /// Bytes of data.
    pub bytes: u32,
    /// Result: `success`, or the status.
    pub status: String,
    /// End of the request, in seconds since 1970.
    pub unix_seconds: f64,
    /// Start of the request on the machine's monotonic clock, in nanoseconds.
    pub begun_ns: u64,
    /// Latency in microseconds.
    pub total_us: f64,
    /// Name of the longest stage.
    pub longest: String,
    /// Stages, in order: each begins when the one before it ends.
    pub stages: Vec<StageTime>,
}

/// End of the connection that recorded a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordingEnd {
    /// The host.
    #[default]
    Host,
    /// The target.
    Target,
}

/// Reason why a request was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordingReason {
    /// It was the next sample.
    #[default]
    Sampled,
    /// It was slow.
    Slow,
}

/// A stage of a request.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct StageTime {
    /// Name of the stage.
    pub stage: String,
    /// Time in microseconds.
    pub us: f64,
}

/// Records of one reactor.
pub struct ReactorRecords<W> {
    state: RecorderState,
    records: Vec<RequestRecord<Arc<W>>>,
}

impl<W> Default for ReactorRecords<W> {
    fn default() -> Self {
        ReactorRecords { state: RecorderState::default(), records: Vec::new() }
    }
}

impl<W> ReactorRecords<W> {
    /// Copies the records, for another thread.
    pub fn of(recorder: &FlightRecorder<Arc<W>>) -> Self {
        let threshold = recorder.threshold();
        let state = RecorderState {
            slow_over_us: threshold.map(|time| time.as_secs_f64() * 1e6),
            sampled_one_in: recorder.interval(),
        };
        ReactorRecords { state, records: recorder.records().cloned().collect() }
    }
}

impl RecordedRequests {
    /// Joins the records of reactors; `line` describes a connection.
    pub fn new<W>(
        reactors: impl Iterator<Item = ReactorRecords<W>>,
        line: impl Fn(&W) -> ConnectionInfo,
    ) -> RecordedRequests {
        let (now, clock_ns) = (SystemTime::now(), clock::now().0);
        let unix_seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = boot.trim().to_owned();
        let mut recorded =
            RecordedRequests { unix_seconds, clock_ns, boot, ..RecordedRequests::default() };
        let mut known: Vec<Arc<W>> = Vec::new();
        for (reactor, of) in reactors.enumerate() {
            recorded.reactors.push(of.state);
            for record in &of.records {
                let place = known.iter().position(|known| Arc::ptr_eq(known, &record.connection));
                let connection = place.unwrap_or_else(|| {
                    recorded.connections.push(line(&record.connection));
                    known.push(record.connection.clone());
                    known.len() - 1
                });
                let request = request(record, (unix_seconds, clock_ns));
                recorded.requests.push(RecordedRequest { reactor, connection, ..request });
            }
        }
        recorded
    }
}

fn request<W>(record: &RequestRecord<W>, (unix_seconds, clock_ns): (f64, u64)) -> RecordedRequest {
    let RequestRecord { command: params, timeline, status, .. } = record;
    let ago = clock_ns.saturating_sub(timeline.ended().0) as f64 / 1e9;
    let stage = |(stage, _, time): (&str, _, std::time::Duration)| StageTime {
        stage: stage.to_owned(),
        us: time.as_nanos() as f64 / 1e3,
    };
    RecordedRequest {
        end: match timeline.end() {
            TimelineEnd::Host => RecordingEnd::Host,
            TimelineEnd::Target => RecordingEnd::Target,
        },
        why: match record.reason {
            RecordReason::Sampled => RecordingReason::Sampled,
            RecordReason::Slow => RecordingReason::Slow,
        },
        cid: record.cid,
        op: op_name(params.opcode),
        nsid: params.nsid,
        lba: params.slba,
        bytes: params.bytes,
        status: if status.is_success() { "success".to_owned() } else { status.to_string() },
        unix_seconds: unix_seconds - ago,
        begun_ns: timeline.begun().0,
        total_us: timeline.total_ns() as f64 / 1e3,
        longest: timeline.longest().to_owned(),
        stages: timeline.stages().map(stage).collect(),
        ..RecordedRequest::default()
    }
}

fn op_name(code: u8) -> String {
    let name = match code {
        opcode::READ => "read",
        opcode::WRITE => "write",
        opcode::FLUSH => "flush",
        opcode::COMPARE => "compare",
        opcode::VERIFY => "verify",
        opcode::COPY => "copy",
        opcode::WRITE_ZEROES => "write-zeroes",
        opcode::WRITE_UNCORRECTABLE => "write-uncorrectable",
        opcode::DATASET_MANAGEMENT => "discard",
        code => return format!("{code:#04x}"),
    };
    name.to_owned()
}

/// Returns the first block of commands that have one.
pub fn first_block(code: u8, slba: u64) -> Option<u64> {
    let has_one = [
        opcode::READ,
        opcode::WRITE,
        opcode::COMPARE,
        opcode::VERIFY,
        opcode::COPY,
        opcode::WRITE_ZEROES,
        opcode::WRITE_UNCORRECTABLE,
    ];
    has_one.contains(&code).then_some(slba)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_proto::recorder::{RecordedParams, SlowOver, Timeline};
    use roadtrain_proto::time::Instant;
    use roadtrain_wire::status::Status;
    use std::time::Duration;

    #[test]
    fn records_have_their_connection_and_the_time_of_day() {
        let mut recorder = FlightRecorder::new(SlowOver::Time(Duration::from_micros(5)));
        let who = Arc::new(3u16);
        let ended = clock::now().0 - 2_000_000_000;
        let at = |us: u64| Instant(ended - 100_000 + us * 1000);
        let params = RecordedParams { opcode: opcode::READ, nsid: 2, slba: Some(8), bytes: 4096 };
        let (cid, status, why) = (17, Status::SUCCESS, RecordReason::Slow);
        let timeline = Timeline::at_host([at(0), at(10), at(20), at(90), at(100)]);
        recorder.slow(
            at(100),
            RequestRecord { connection: who, command: params, cid, status, reason: why, timeline },
        );
        let of = ReactorRecords::of(&recorder);
        let line = |qid: &u16| ConnectionInfo { qid: *qid, ..ConnectionInfo::default() };
        let recorded = RecordedRequests::new([ReactorRecords::default(), of].into_iter(), line);
        let request = &recorded.requests[0];
        assert_eq!((request.reactor, &*request.op, &*request.longest), (1, "read", "target"));
        assert_eq!(recorded.connections[request.connection].qid, 3);
        let ago = recorded.unix_seconds - request.unix_seconds;
        assert!((2.0..30.0).contains(&ago), "{ago}");
        let times: Vec<_> = request.stages.iter().map(|stage| (&*stage.stage, stage.us)).collect();
        let expected = [("lane", 10.0), ("caravan", 10.0), ("target", 70.0), ("data", 10.0)];
        assert_eq!((&times[..], request.total_us), (&expected[..], 100.0));
        assert_eq!(recorded.reactors[1].slow_over_us, Some(5.0));
    }
}

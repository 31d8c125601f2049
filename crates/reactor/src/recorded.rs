//! Requests that reactors have recorded ([`roadtrain_proto::recorder`]), as other threads and programs see them.

use roadtrain_proto::recorder::{End, Record, Recorder, Why};
use roadtrain_system::clock;
use roadtrain_wire::sqe::opcode;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Requests that reactors have recorded of late.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Recorded {
    /// When this was, in seconds since 1970.
    pub unix_seconds: f64,
    /// The same by the machine's monotonic clock, in nanoseconds: what the moments of requests are told by.
    pub clock_ns: u64,
    /// The machine since it was started: clocks of two processes are one when this is the same.
    pub boot: String,
    /// By number.
    pub reactors: Vec<RecorderState>,
    /// The connections that the requests were on.
    pub connections: Vec<Line>,
    /// Each reactor's slow ones, then its sampled ones, each kind from the oldest on.
    pub requests: Vec<RecordedRequest>,
}

/// What a reactor records.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct RecorderState {
    /// Requests that take longer are slow; `None`: nothing is recorded.
    pub slow_over_us: Option<f64>,
    /// One request in so many is sampled.
    pub sampled_one_in: u32,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Line {
    /// The subsystem.
    pub nqn: String,
    /// The host; empty at an attachment.
    pub host_nqn: String,
    /// Our address, if it is one over TCP that we made.
    pub local: String,
    /// The other end's address.
    pub peer: String,
    /// The controller; 0 at an attachment.
    pub cntlid: u16,
    /// The queue: what is called lane here counts from 1.
    pub qid: u16,
    /// The path, at an attachment with several.
    pub path: usize,
}

/// A request that has ended.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct RecordedRequest {
    /// Whose view it is.
    pub end: Side,
    /// Why it was recorded.
    pub why: Reason,
    /// Its connection, by its place among [`Recorded::connections`].
    pub connection: usize,
    /// The reactor.
    pub reactor: usize,
    /// Command identifier.
    pub cid: u16,
    /// What it did: `read`, `write`, `flush`, `discard` and so on, or the opcode as a number.
    pub op: String,
    /// Namespace.
    pub nsid: u32,
    /// First block, where there is one.
    pub lba: Option<u64>,
    /// Octets of data.
    pub bytes: u32,
    /// How it has ended: `success`, or its status.
    pub status: String,
    /// When it ended, in seconds since 1970.
    pub unix_seconds: f64,
    /// When it began, by the machine's monotonic clock.
    pub begun_ns: u64,
    /// How long it took.
    pub total_us: f64,
    /// The stage that took longest.
    pub longest: String,
    /// Its stages, in their order: each begins when the one before it ends.
    pub stages: Vec<StageTime>,
}

/// Whose view of a request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The host's.
    #[default]
    Host,
    /// The target's.
    Target,
}

/// Why a request was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// It was its turn.
    #[default]
    Sampled,
    /// It took long.
    Slow,
}

/// A stage of a request.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct StageTime {
    /// Its name.
    pub stage: String,
    /// How long it took.
    pub us: f64,
}

/// What one reactor has recorded.
pub struct OfReactor<W> {
    state: RecorderState,
    records: Vec<Record<Arc<W>>>,
}

impl<W> Default for OfReactor<W> {
    fn default() -> Self {
        OfReactor { state: RecorderState::default(), records: Vec::new() }
    }
}

impl<W> OfReactor<W> {
    /// A copy, for another thread.
    pub fn of(recorder: &Recorder<Arc<W>>) -> Self {
        let threshold = recorder.threshold();
        let state = RecorderState {
            slow_over_us: threshold.map(|time| time.as_secs_f64() * 1e6),
            sampled_one_in: recorder.interval(),
        };
        OfReactor { state, records: recorder.records().cloned().collect() }
    }
}

impl Recorded {
    /// What reactors have recorded; `line` says what is known of a connection.
    pub fn new<W>(
        reactors: impl Iterator<Item = OfReactor<W>>,
        line: impl Fn(&W) -> Line,
    ) -> Recorded {
        let (now, clock_ns) = (SystemTime::now(), clock::now().0);
        let unix_seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = boot.trim().to_owned();
        let mut recorded = Recorded { unix_seconds, clock_ns, boot, ..Recorded::default() };
        let mut known: Vec<Arc<W>> = Vec::new();
        for (reactor, of) in reactors.enumerate() {
            recorded.reactors.push(of.state);
            for record in &of.records {
                let place = known.iter().position(|known| Arc::ptr_eq(known, &record.who));
                let connection = place.unwrap_or_else(|| {
                    recorded.connections.push(line(&record.who));
                    known.push(record.who.clone());
                    known.len() - 1
                });
                let request = request(record, (unix_seconds, clock_ns));
                recorded.requests.push(RecordedRequest { reactor, connection, ..request });
            }
        }
        recorded
    }
}

fn request<W>(record: &Record<W>, (unix_seconds, clock_ns): (f64, u64)) -> RecordedRequest {
    let Record { asked, timeline, status, .. } = record;
    let ago = clock_ns.saturating_sub(timeline.ended().0) as f64 / 1e9;
    let stage = |(stage, _, time): (&str, _, std::time::Duration)| StageTime {
        stage: stage.to_owned(),
        us: time.as_nanos() as f64 / 1e3,
    };
    RecordedRequest {
        end: match timeline.end() {
            End::Host => Side::Host,
            End::Target => Side::Target,
        },
        why: match record.why {
            Why::Sampled => Reason::Sampled,
            Why::Slow => Reason::Slow,
        },
        cid: record.cid,
        op: op_name(asked.opcode),
        nsid: asked.nsid,
        lba: asked.slba,
        bytes: asked.bytes,
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

/// First block of commands that have one.
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
    use roadtrain_proto::recorder::{Asked, SlowOver, Timeline};
    use roadtrain_proto::time::Instant;
    use roadtrain_wire::status::Status;
    use std::time::Duration;

    #[test]
    fn what_was_recorded_is_told_with_its_connection_and_the_time_of_day() {
        let mut recorder = Recorder::new(SlowOver::Time(Duration::from_micros(5)));
        let who = Arc::new(3u16);
        let ended = clock::now().0 - 2_000_000_000;
        let at = |us: u64| Instant(ended - 100_000 + us * 1000);
        let asked = Asked { opcode: opcode::READ, nsid: 2, slba: Some(8), bytes: 4096 };
        let (cid, status, why) = (17, Status::SUCCESS, Why::Slow);
        let timeline = Timeline::at_host([at(0), at(10), at(20), at(90), at(100)]);
        recorder.slow(at(100), Record { who, asked, cid, status, why, timeline });
        let of = OfReactor::of(&recorder);
        let line = |qid: &u16| Line { qid: *qid, ..Line::default() };
        let recorded = Recorded::new([OfReactor::default(), of].into_iter(), line);
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

//! `roadtrain ctl trace`: recorded requests as JSON trace events, which Perfetto and Chrome show.
//!
//! A target or attachment is a process, a lane one thread or several: overlapping requests are on parallel tracks. A
//! request is a slice, its stages are slices within it. An arrow leads from a host's request to the same request at its
//! target.

use super::RecordSource;
use super::join::{JoinedRequests, RecordIndex};
use crate::failure::{CommandFailure, CommandResult};
use crate::output;
use crate::units::show_bytes;
use roadtrain_reactor::recorded::{ConnectionInfo, RecordedRequest, RecordingEnd, RecordingReason};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Most tracks of a lane: further simultaneous requests are not shown in parallel.
const ROWS_MAX: usize = 1000;

/// Writes a trace of all records; to stdout without a file.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(sources: &[RecordSource], file: Option<&Path>) -> CommandResult {
    let trace = trace(sources);
    let write = |to: &mut dyn Write| -> io::Result<()> {
        serde_json::to_writer(&mut *to, &trace)?;
        to.write_all(b"\n")?;
        to.flush()
    };
    match file {
        None => Ok(write(&mut BufWriter::new(io::stdout().lock()))?),
        Some(path) => {
            let written = File::create(path).and_then(|file| write(&mut BufWriter::new(file)));
            written.map_err(|error| {
                let problem = output::file_problem(path, &error);
                CommandFailure::failed(format!("-o {}: {problem}", path.display()))
            })
        }
    }
}

/// Converts all records to trace events.
pub(super) fn trace(sources: &[RecordSource]) -> Value {
    let joined = JoinedRequests::new(sources);
    let mut places: Vec<RecordIndex> = joined.places().collect();
    places.sort_by_key(|place| joined.request(*place).begun_ns);
    let origin = places.first().map_or(0, |first| joined.request(*first).begun_ns);
    let mut events = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        let args = json!({ "name": source.id });
        events.push(json!({ "ph": "M", "name": "process_name", "pid": number + 1, "args": args }));
    }
    let mut tracks = Tracks::default();
    for place in places {
        let (request, line) = (joined.request(place), joined.line(place));
        let track = tracks.take(place.source, (request, line), &mut events);
        let slice = Slice { pid: place.source + 1, tid: track, origin, request };
        slice.write(line, &mut events);
        if let Some(other) = joined.other_end(place) {
            let host = if request.end == RecordingEnd::Host { place } else { other };
            events.push(slice.arrow(format!("{}.{}", host.source, host.request)));
        }
    }
    json!({ "displayTimeUnit": "ns", "traceEvents": events })
}

/// Tracks of lanes, each with the time when it is free.
#[derive(Default)]
struct Tracks {
    /// By process and lane name.
    lanes: BTreeMap<(usize, String), (usize, Vec<u64>)>,
}

impl Tracks {
    /// Takes a track for a request. Requests come in the order of their start times.
    fn take(
        &mut self,
        source: usize,
        (request, line): (&RecordedRequest, &ConnectionInfo),
        events: &mut Vec<Value>,
    ) -> usize {
        let number = self.lanes.len();
        let name = lane_name(line);
        let (lane, rows) =
            self.lanes.entry((source, name.clone())).or_insert_with(|| (number, Vec::new()));
        let end = request.begun_ns + nanos(request.total_us);
        let free = rows.iter().position(|until| *until <= request.begun_ns);
        let row = free.unwrap_or_else(|| {
            rows.push(0);
            rows.len() - 1
        });
        rows[row] = end;
        let tid = *lane * ROWS_MAX + row + 1;
        if free.is_none() {
            let name = if row == 0 { name } else { format!("{name} +{row}") };
            let mut name_track = |what: &str, args: Value| {
                events.push(json!({
                    "ph": "M", "name": what, "pid": source + 1, "tid": tid, "args": args,
                }));
            };
            name_track("thread_name", json!({ "name": name }));
            name_track("thread_sort_index", json!({ "sort_index": tid }));
        }
        tid
    }
}

fn lane_name(line: &ConnectionInfo) -> String {
    let lane = format!("lane {}", line.qid);
    match (line.host_nqn.as_str(), line.path) {
        ("", 0) => lane,
        ("", path) => format!("path {path} {lane}"),
        (host, _) => format!("{host} {lane} of controller {}", line.cntlid),
    }
}

fn nanos(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

/// A request on its track.
struct Slice<'a> {
    pid: usize,
    tid: usize,
    origin: u64,
    request: &'a RecordedRequest,
}

impl Slice<'_> {
    fn write(&self, line: &ConnectionInfo, events: &mut Vec<Value>) {
        let RecordedRequest { begun_ns, total_us, .. } = *self.request;
        let RecordedRequest { op, bytes, why, .. } = self.request;
        let category = if *why == RecordingReason::Slow { "slow" } else { "sampled" };
        let name =
            if *bytes > 0 { format!("{op} {}", show_bytes((*bytes).into())) } else { op.clone() };
        let args = json!({
            "nsid": self.request.nsid, "lba": self.request.lba, "status": self.request.status,
            "cid": self.request.cid, "longest": self.request.longest, "unix_seconds": self.request.unix_seconds,
            "peer": line.peer, "reactor": self.request.reactor,
        });
        events.push(self.slice((name, category), (begun_ns, nanos(total_us)), args));
        let mut from = begun_ns;
        for stage in &self.request.stages {
            let length = nanos(stage.us);
            if length > 0 {
                events.push(self.slice((stage.stage.clone(), "stage"), (from, length), json!({})));
            }
            from += length;
        }
    }

    fn slice(
        &self,
        (name, category): (String, &str),
        (begun_ns, length): (u64, u64),
        args: Value,
    ) -> Value {
        json!({
            "ph": "X", "name": name, "cat": category, "pid": self.pid, "tid": self.tid,
            "ts": self.us(begun_ns), "dur": length as f64 / 1e3, "args": args,
        })
    }

    /// Returns the microseconds since the first request.
    fn us(&self, ns: u64) -> f64 {
        ns.saturating_sub(self.origin) as f64 / 1e3
    }

    /// Returns the start or the end of an arrow with that ID.
    fn arrow(&self, id: String) -> Value {
        let is_host = self.request.end == RecordingEnd::Host;
        let mut from = self.request.begun_ns;
        if is_host {
            // The arrow starts when the target has the request.
            let before = self.request.stages.iter().take_while(|stage| stage.stage != "target");
            from += before.map(|stage| nanos(stage.us)).sum::<u64>();
        }
        let mut arrow = json!({
            "ph": if is_host { "s" } else { "f" }, "name": "at the target", "cat": "request",
            "id": id, "pid": self.pid, "tid": self.tid, "ts": self.us(from),
        });
        if !is_host {
            arrow["bp"] = "e".into();
        }
        arrow
    }
}

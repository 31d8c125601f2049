//! `roadtrain slow`: slow requests, and the stages in which they spent their time.

mod join;
mod table;
pub(crate) mod trace;

use crate::args::{GlobalArgs, SlowArgs};
use crate::control::Call;
use crate::failure::{CommandFailure, CommandResult};
use crate::running::{self, ControlledProcess};
use crate::units::{show_bytes, show_us};
use crate::{logs, output, terminal};
use join::JoinedRequests;
use roadtrain_reactor::recorded::{
    ConnectionInfo, RecordedRequest, RecordedRequests, RecorderState, RecordingEnd, RecordingReason,
};
use serde::Serialize;
use table::TableRow;

/// Records of one process.
#[derive(Clone, Debug)]
pub(crate) struct RecordSource {
    /// Name of the process.
    pub(crate) id: String,
    pub(crate) recorded: RecordedRequests,
}

/// A request in the output, with the other end's record if that is known.
#[derive(Debug, Serialize)]
struct ShownRequest<'a> {
    /// The target or the attachment.
    id: &'a str,
    #[serde(flatten)]
    request: &'a RecordedRequest,
    line: &'a ConnectionInfo,
    /// The same request's record at the other end.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_end: Option<Box<ShownRequest<'a>>>,
}

/// A target or an attachment, and its recording thresholds.
#[derive(Debug, Serialize)]
struct RecorderReport<'a> {
    id: &'a str,
    reactors: &'a [RecorderState],
}

/// Output of the command.
#[derive(Debug, Serialize)]
struct SlowReport<'a> {
    recorders: Vec<RecorderReport<'a>>,
    /// Requests, the slowest first.
    #[serde(rename = "recorded_requests")]
    requests: Vec<ShownRequest<'a>>,
}

/// `roadtrain slow`
pub(crate) fn run(args: &SlowArgs, global: &GlobalArgs) -> CommandResult {
    logs::start("warn", global.verbose);
    let processes = running::processes(&args.names, &args.traddr)?;
    let (sources, failed) = gather(processes);
    let report = report(&sources, args.count, args.sampled);
    match global.json {
        true => output::json(&report),
        false => output::line(&text(&report, terminal::width())),
    }?;
    failed.map_or(Ok(()), Err)
}

/// Collects the records of the processes, and the failure of one that has not replied.
pub(crate) fn gather(
    processes: Vec<ControlledProcess>,
) -> (Vec<RecordSource>, Option<CommandFailure>) {
    let mut failed = None;
    let mut sources = Vec::new();
    for ControlledProcess { id, socket, owner } in processes {
        match running::query((&socket, owner), &Call::Recorded) {
            Ok(recorded) => sources.push(RecordSource { id, recorded }),
            Err(error) => failed = Some(CommandFailure::failed(format!("{id}: {error}"))),
        }
    }
    (sources, failed)
}

fn report<'a>(sources: &'a [RecordSource], count: usize, sampled: bool) -> SlowReport<'a> {
    let joined = JoinedRequests::new(sources);
    let mut places: Vec<join::RecordIndex> = joined.places().collect();
    let request = |place: &join::RecordIndex| joined.request(*place);
    places.retain(|place| sampled || request(place).why == RecordingReason::Slow);
    // A request with records of both ends is listed once.
    places.retain(|place| {
        let host = (request(place).end == RecordingEnd::Target)
            .then(|| joined.other_end(*place))
            .flatten();
        host.is_none_or(|host| !sampled && request(&host).why != RecordingReason::Slow)
    });
    places.sort_by(|a, b| request(b).total_us.total_cmp(&request(a).total_us));
    places.truncate(count);
    let shown = |place: join::RecordIndex| ShownRequest {
        id: &sources[place.source].id,
        request: joined.request(place),
        line: joined.line(place),
        other_end: None,
    };
    let requests = places.into_iter().map(|place| {
        let other_end = joined.other_end(place).map(|other| Box::new(shown(other)));
        ShownRequest { other_end, ..shown(place) }
    });
    let recorder = |source: &'a RecordSource| RecorderReport {
        id: &source.id,
        reactors: &source.recorded.reactors,
    };
    SlowReport { recorders: sources.iter().map(recorder).collect(), requests: requests.collect() }
}

/// Formats the report, in lines of at most `width` characters if given.
fn text(report: &SlowReport<'_>, width: Option<usize>) -> String {
    if report.recorders.is_empty() {
        return "nothing is attached or served here".into();
    }
    let mut text = String::new();
    for recorder in &report.recorders {
        text.push_str(&format!("{}: {}\n", recorder.id, state(recorder.reactors)));
    }
    text.push('\n');
    if report.requests.is_empty() {
        text.push_str("no recent request was slow");
        return text;
    }
    let mut rows = Vec::new();
    for shown in &report.requests {
        rows.push(row(shown, false));
        rows.extend(shown.other_end.iter().map(|other| row(other, true)));
    }
    text.push_str(&table::table(&rows, width));
    text
}

fn state(reactors: &[RecorderState]) -> String {
    let slow = reactors.iter().filter_map(|reactor| reactor.slow_over_us);
    let slow: Vec<String> = slow.map(show_us).collect();
    if slow.is_empty() {
        return "records nothing (--slow-over off)".into();
    }
    let one_in = reactors.iter().map(|reactor| reactor.sampled_one_in.to_string());
    let one_in: Vec<String> = one_in.collect();
    let (slow, one_in) = (slow.join(", "), one_in.join(", "));
    format!("slow is over {slow} now, by reactor; one in {one_in} is sampled")
}

fn row(shown: &ShownRequest<'_>, is_other_end: bool) -> TableRow {
    let ShownRequest { id, request, line, .. } = shown;
    let is_failed = request.status != "success";
    let stage = |stage: &roadtrain_reactor::recorded::StageTime| {
        let star = if stage.stage == request.longest { "*" } else { "" };
        format!("{star}{} {}", stage.stage, show_us(stage.us))
    };
    let mut stages: Vec<String> = request.stages.iter().map(stage).collect();
    if is_failed {
        stages.push(format!("({})", request.status));
    }
    let time = if is_other_end { "  there:".to_owned() } else { time_of_day(request.unix_seconds) };
    let cells = [
        time,
        (*id).to_owned(),
        request.op.clone(),
        if request.bytes > 0 {
            show_bytes(request.bytes.into()).replace(' ', "")
        } else {
            "-".into()
        },
        request.lba.map_or_else(|| "-".into(), |lba| lba.to_string()),
        request.nsid.to_string(),
        if line.host_nqn.is_empty() { "-".into() } else { line.host_nqn.clone() },
        if line.path > 0 { format!("{}/{}", line.path, line.qid) } else { line.qid.to_string() },
        show_us(request.total_us),
    ];
    TableRow { cells, stages }
}

/// Formats the time of day, as in the log.
fn time_of_day(unix_seconds: f64) -> String {
    let ms = (unix_seconds * 1e3) as u64 % 86_400_000;
    let (hours, minutes) = (ms / 3_600_000, ms / 60_000 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:03}", ms / 1000 % 60, ms % 1000)
}

#[cfg(test)]
mod tests;

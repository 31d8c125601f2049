//! Families of an attachment.

use super::{SampleGetter, batching, ops, sizes_of};
use crate::metrics::out::{Buckets, Out};
use roadtrain_reactor::metrics::{
    AttachmentSample, LinkSample, MetricsSnapshot, PathSample, ReactorSample,
};
use roadtrain_target_engine::AnaState;
use std::fmt;

/// All states of a path.
const PATH_STATES: [&str; 3] = ["live", "connecting", "lost"];

/// Label that names the attachment.
type Id<'a> = (&'static str, &'a str);

pub(super) fn attachment(shown: &MetricsSnapshot, out: &mut Out<'_>) -> fmt::Result {
    let Some(of) = &shown.attachment else { return Ok(()) };
    let id = ("id", shown.id.as_str());
    let device = of.names.first().map_or("", String::as_str);
    let (nqn, front, transport) = (of.nqn.as_str(), of.front.as_str(), of.transport.as_str());
    let info = [id, ("nqn", nqn), ("front", front), ("device", device), ("transport", transport)];
    out.gauges(("roadtrain_attachment_info", "An attachment, always 1"), [(info, 1u64)])?;
    let gauges: [(&str, &str, u64); 5] = [
        (
            "roadtrain_attachment_connected",
            "1 if the attachment's target can be used",
            of.connected.into(),
        ),
        ("roadtrain_attachment_lanes", "Its lanes", shown.lanes.len() as u64),
        ("roadtrain_attachment_in_flight", "Requests taken and not completed", of.in_flight),
        ("roadtrain_attachment_waiting", "Requests that wait to be sent", of.waiting_requests),
        ("roadtrain_attachment_size_bytes", "Capacity of an attachment", of.capacity_bytes),
    ];
    for (name, help, value) in gauges {
        out.gauges((name, help), [([id], value)])?;
    }
    counters(id, of, out)?;
    let sum = sum(&shown.reactors);
    batching(&[([id], sum.batching)], out)?;
    sizes_of([([id], &sum)].into_iter(), out)?;
    paths(id, &shown.paths, out)?;
    links(id, &shown.links, out)
}

/// Sums batching counters over all reactors.
fn sum(reactors: &[ReactorSample]) -> ReactorSample {
    let mut sum = ReactorSample::default();
    for reactor in reactors {
        sum.batching += reactor.batching;
        let longest = sum.caravan_sizes.len().max(reactor.caravan_sizes.len());
        sum.caravan_sizes.resize(longest, 0);
        for (sum, count) in sum.caravan_sizes.iter_mut().zip(&reactor.caravan_sizes) {
            *sum += count;
        }
    }
    sum
}

fn counters(id: Id<'_>, of: &AttachmentSample, out: &mut Out<'_>) -> fmt::Result {
    let counters: [(&str, &str, u64); 6] = [
        ("roadtrain_attachment_reads_completed", "Successful reads", of.io.reads),
        ("roadtrain_attachment_writes_completed", "Successful writes", of.io.writes),
        ("roadtrain_attachment_read_bytes", "Bytes read", of.io.read_bytes),
        ("roadtrain_attachment_written_bytes", "Bytes written", of.io.written_bytes),
        ("roadtrain_attachment_errors", "Requests that failed", of.io.errors),
        ("roadtrain_attachment_reconnects", "Connections made again", of.reconnects),
    ];
    for (name, help, value) in counters {
        out.counters((name, help), [([id], value)])?;
    }
    let rows = ops(&of.io).map(|(op, latency)| ([id, ("op", op)], latency));
    let help = "Time from the submission of a request until its completion";
    out.latencies(("roadtrain_attachment_io_seconds", help), Buckets::Fine, rows)
}

/// Writes the families of the paths, labelled by their addresses.
fn paths(id: Id<'_>, paths: &[PathSample], out: &mut Out<'_>) -> fmt::Result {
    let labels =
        |path: &'_ PathSample| [(id.0, id.1.to_owned()), ("address", path.address.clone())];
    let is_in = |path: &'_ PathSample, state: &'static str, is_it: bool| {
        let [id, address] = labels(path);
        ([id, address, ("state", state.to_owned())], u64::from(is_it))
    };
    let states = paths
        .iter()
        .flat_map(|path| PATH_STATES.map(|state| is_in(path, state, path.state == state)));
    let help = "State of a path: live, connecting or lost";
    out.gauges(("roadtrain_path_state", help), states)?;
    let states = paths.iter().flat_map(|path| {
        let reported = path.ana.as_deref().into_iter();
        reported.flat_map(|reported| {
            AnaState::ALL.map(|state| is_in(path, state.name(), reported == state.name()))
        })
    });
    let help = "ANA state of a path, the best of all namespaces";
    out.gauges(("roadtrain_path_ana_state", help), states)?;
    let gauges: [(&str, &str, SampleGetter<PathSample, u64>); 2] = [
        ("roadtrain_path_in_flight", "Requests given to a path and not completed", |p| p.in_flight),
        ("roadtrain_path_waiting", "Requests that wait to be sent", |p| p.waiting_requests),
    ];
    for (name, help, value) in gauges {
        out.gauges((name, help), paths.iter().map(|path| (labels(path), value(path))))?;
    }
    let counters: [(&str, &str, SampleGetter<PathSample, u64>); 3] = [
        ("roadtrain_path_requests", "Requests completed over a path", |p| p.requests),
        ("roadtrain_path_bytes", "Bytes of their data", |p| p.data_bytes),
        ("roadtrain_path_losses", "Connections of a path that were lost", |p| p.loss_count),
    ];
    for (name, help, value) in counters {
        out.counters((name, help), paths.iter().map(|path| (labels(path), value(path))))?;
    }
    Ok(())
}

fn links(id: Id<'_>, links: &[LinkSample], out: &mut Out<'_>) -> fmt::Result {
    let labels =
        |link: &'_ LinkSample| [(id.0, id.1.to_owned()), ("interface", link.interface.clone())];
    let rtt = links.iter().map(|link| (labels(link), link.rtt_us / 1e6));
    out.gauges(("roadtrain_link_rtt_seconds", "Round-trip time of a link"), rtt)?;
    let suspect = links.iter().map(|link| (labels(link), u64::from(!link.up)));
    out.gauges(("roadtrain_link_suspect", "1 if new frames avoid the link"), suspect)?;
    let sent = links.iter().map(|link| (labels(link), link.sent_frames));
    out.counters(("roadtrain_link_sent", "Frames sent over a link"), sent)?;
    let lost = links.iter().map(|link| (labels(link), link.lost_frames));
    out.counters(("roadtrain_link_lost", "Frames counted as lost on a link"), lost)
}

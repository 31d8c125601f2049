//! A running attachment: replies to requests, records changes, ends on request.

use crate::control::socket::PendingReply;
use crate::control::{ATTACHMENT_METHODS, Call, ControlRefusal, RefusalReason};
use crate::failure::{CommandFailure, CommandResult};
use crate::registry::{self, DeviceEntry, Registration};
use crate::signals::{self, BlockedSignals, Signal};
use crate::status::report::{
    AttachmentDetails, AttachmentLaneReport, AttachmentReport, AttachmentState, DeviceReport,
    ExpressReport, PathLine, RecentRates,
};
use crate::status::waiting::WaitReport;
use roadtrain_front::attachment::{AttachedDevice, Attachment};
use roadtrain_host_engine::{
    HostControllerView, LaneReading, LinkState, NamespaceInfo, PathReading, PathReport,
};
use roadtrain_manage::bursts::Bursts;
use roadtrain_manage::rpc::message::{KeptRequest, MethodParams};
use roadtrain_manage::rpc::{CallerAccess, MethodOutcome, MethodTable, RpcError, UnixServer};
use roadtrain_reactor::metrics::LinkSample;
use roadtrain_reactor::probes::ReactorProbes;
use roadtrain_reactor::recorded::RecordedRequests;
use serde_json::json;
use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{error, warn};

/// Interval between checks for changes.
const POLL: Duration = Duration::from_secs(1);
/// Rates cover this window, or the time since the start.
const WINDOW: Duration = Duration::from_secs(10);

/// Constant properties of an attachment.
pub(super) struct AttachmentFacts {
    pub id: String,
    pub spec: String,
    pub address: String,
    pub nqn: String,
    pub policy: &'static str,
    pub class: String,
}

/// A running attachment, shared by the main thread and the control server.
pub(super) struct RunningAttachment {
    facts: AttachmentFacts,
    begun: Instant,
    view: HostControllerView,
    /// The namespaces at the start.
    shown: Vec<NamespaceInfo>,
    /// The front-end with its connection; `None` once the attachment stops.
    attachment: Mutex<Option<Box<dyn Attachment>>>,
    /// Recent samples, oldest first; never empty.
    history: Mutex<VecDeque<RateSample>>,
    /// The HTTP server, while it runs.
    http: Mutex<Option<roadtrain_manage::http::HttpServer>>,
    /// Callers that have requested the end; each receives a list of what was lost.
    stop_requests: Mutex<Vec<PendingReply>>,
    bursts: Bursts,
}

/// Counters at one time. The main thread takes samples independent of requests, so that all callers see the same rates.
#[derive(Clone)]
struct RateSample {
    at: Instant,
    sum: LaneReading,
    /// Request counts by path address; paths may be added and removed.
    paths: Vec<(String, u64)>,
}

impl MethodTable for RunningAttachment {
    fn names(&self) -> Vec<&'static str> {
        ATTACHMENT_METHODS.iter().map(|method| method.name).chain(["rpc_get_methods"]).collect()
    }

    fn run(&self, name: &str, params: MethodParams<'_>, _: CallerAccess) -> Option<MethodOutcome> {
        let method = ATTACHMENT_METHODS.iter().find(|method| method.name == name)?;
        let refuse = |why: String| ControlRefusal::new(RefusalReason::Request, why);
        let params = params.read().map_err(|error| refuse(error.to_string()));
        let result =
            params.and_then(|params| Call::read(name, params)).and_then(|call| match call {
                Call::Status => Ok(json!(self.report())),
                Call::Snapshot => Ok(json!(self.snapshot())),
                Call::Recorded => Ok(json!(self.recorded())),
                _ => Err(refuse(format!("{name} is not for an attachment"))),
            });
        let (name, changes) = (method.name, method.changes);
        Some(MethodOutcome { name, changes, result: result.map_err(RpcError::from) })
    }

    fn bursts(&self) -> &Bursts {
        &self.bursts
    }

    fn keeps_stream(&self, name: &str) -> bool {
        ATTACHMENT_METHODS.iter().any(|method| method.name == name && method.keeps_stream)
    }

    /// Queues a request to end the attachment: the only method whose reply comes later.
    fn keep(&self, request: KeptRequest, stream: UnixStream) {
        let mut stop_requests = self.stop_requests.lock().unwrap_or_else(PoisonError::into_inner);
        stop_requests.push(PendingReply::new(request, stream));
        signals::stop_self();
    }
}

impl RunningAttachment {
    pub(super) fn new(
        facts: AttachmentFacts,
        attachment: Box<dyn Attachment>,
    ) -> RunningAttachment {
        let view = attachment.controller().view().clone();
        let shown = view.info().namespaces;
        let begun = Instant::now();
        let first = RateSample { at: begun, sum: LaneReading::default(), paths: Vec::new() };
        let history = Mutex::new(VecDeque::from([first]));
        let attachment = Mutex::new(Some(attachment));
        let (http, stop_requests, bursts) = Default::default();
        RunningAttachment {
            facts,
            begun,
            view,
            shown,
            attachment,
            history,
            http,
            stop_requests,
            bursts,
        }
    }

    fn attachment(&self) -> MutexGuard<'_, Option<Box<dyn Attachment>>> {
        self.attachment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the devices that are present now.
    pub(super) fn devices(&self) -> Vec<DeviceEntry> {
        let devices = self.attachment().as_ref().map_or_else(Vec::new, |a| a.devices());
        devices.into_iter().map(DeviceEntry::from).collect()
    }

    /// Records the devices and the resources to clean up, if they have changed.
    ///
    /// # Errors
    /// The folder is gone, or full.
    pub(super) fn update_entry(&self, registration: &mut Registration) -> CommandResult {
        let devices = self.devices();
        let resources = self.attachment().as_ref().map(|attachment| attachment.resources());
        resources.map_or(Ok(()), |resources| registration.update(devices, &resources))
    }

    /// Serves the control socket until the result is dropped.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub(super) fn serve_control(self: &Arc<Self>, socket: &Path) -> CommandResult<UnixServer> {
        let server = UnixServer::start_control(socket, self.clone());
        server.map_err(|e| CommandFailure::failed(format!("{}: {e}", socket.display())))
    }

    /// Keeps the HTTP server until the attachment ends.
    pub(super) fn keep_http(&self, server: roadtrain_manage::http::HttpServer) {
        *self.http.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
    }

    /// Returns the pulse, with which a caller checks that all reactors make progress.
    pub(super) fn pulse(&self) -> Option<ReactorProbes> {
        self.attachment().as_ref().map(|attachment| attachment.controller().pulse())
    }

    /// Waits for a signal to stop.
    ///
    /// # Errors
    /// The attachment has ended by itself.
    pub(super) fn until_stopped(
        &self,
        signals: &BlockedSignals,
        registration: &mut Registration,
    ) -> CommandResult {
        let mut has_warned = false;
        loop {
            if signals.wait_for(POLL) == Some(Signal::Stop) {
                return Ok(());
            }
            let paths =
                self.view.routes().into_iter().map(|path| (path.address, path.requests)).collect();
            self.add_sample(Instant::now(), self.view.lanes().into_iter().sum(), paths);
            if self.attachment().as_ref().is_none_or(|a| a.controller().has_ended()) {
                let by_itself = || "the attachment has ended by itself: was it taken away?".into();
                let text = self.view.failure().unwrap_or_else(by_itself);
                error!("{text}");
                return Err(CommandFailure::failed(text));
            }
            if let Err(failure) = self.update_entry(registration)
                && !std::mem::replace(&mut has_warned, true)
            {
                warn!("{}", failure.message);
            }
        }
    }

    /// Stops the attachment.
    ///
    /// # Errors
    /// Something may be lost.
    pub(super) fn stop(&self) -> CommandResult {
        drop(self.http.lock().unwrap_or_else(PoisonError::into_inner).take());
        let attachment = self.attachment().take();
        if let Some(attachment) = attachment {
            attachment.stop();
        }
        let lost = self.view.lost();
        for caller in self.take_stop_requests() {
            let _ = caller.send(Ok(json!({ "lost": lost }))); // may be gone
        }
        if lost.is_empty() { Ok(()) } else { Err(CommandFailure::failed(lost.join("; "))) }
    }

    fn take_stop_requests(&self) -> Vec<PendingReply> {
        std::mem::take(&mut *self.stop_requests.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the view of the controller.
    pub(super) fn view(&self) -> &HostControllerView {
        &self.view
    }

    /// Returns recent slow requests, and a sample of others.
    fn recorded(&self) -> RecordedRequests {
        let attachment = self.attachment();
        let recorded = attachment.as_ref().map(|attachment| attachment.controller().recorded());
        let mut recorded = recorded.unwrap_or_default();
        for line in &mut recorded.connections {
            line.nqn.clone_from(&self.facts.nqn);
        }
        recorded
    }

    pub(super) fn report(&self) -> AttachmentReport {
        let link = self.view.link();
        let devices = self.attachment().as_ref().map(|attachment| attachment.devices());
        let state = match link.state {
            _ if devices.is_none() => AttachmentState::Stopping,
            LinkState::Connected => AttachmentState::Connected,
            LinkState::Reconnecting => AttachmentState::Reconnecting,
            LinkState::Failing => AttachmentState::Failing,
        };
        let facts = &self.facts;
        AttachmentReport {
            kind: "attachment".into(),
            id: facts.id.clone(),
            spec: facts.spec.clone(),
            pid: std::process::id(),
            uid: registry::ProcessIdentity::this().owner,
            state,
            state_seconds: Some(link.since.elapsed().as_secs_f64()),
            error: link.error,
            problems: Vec::new(),
            address: facts.address.clone(),
            nqn: facts.nqn.clone(),
            inside: Some(self.inside(state, devices.unwrap_or_default())),
        }
        .with_problems()
    }

    fn inside(&self, state: AttachmentState, devices: Vec<AttachedDevice>) -> AttachmentDetails {
        let lanes = self.view.lanes();
        let sum: LaneReading = lanes.iter().copied().sum();
        AttachmentDetails {
            policy: self.facts.policy.to_owned(),
            class: self.facts.class.clone(),
            uptime_seconds: self.begun.elapsed().as_secs_f64(),
            devices: devices.into_iter().map(|device| self.device(device)).collect(),
            lanes: lanes.iter().enumerate().map(|(n, lane)| lane_report(n, lane, state)).collect(),
            links: links(&self.view.paths()),
            paths: self.paths(Instant::now()),
            requests: sum.batching.requests,
            data_bytes: sum.batching.data_bytes,
            errors: sum.errors,
            in_flight: sum.in_flight.into(),
            waiting: self.view.waiting().into_iter().map(WaitReport::from).collect(),
            recent: self.rates(Instant::now(), sum),
        }
    }

    fn device(&self, device: AttachedDevice) -> DeviceReport {
        let AttachedDevice { nsid, names } = device;
        let shown = self.shown.iter().find(|shown| shown.nsid == nsid);
        // Another namespace with the same NSID is not the one that the device shows.
        let is_shown = |now: &NamespaceInfo| shown.is_none_or(|shown| shown.is_same(now));
        let found = self.view.namespace(nsid).filter(is_shown);
        let found = found.as_ref();
        DeviceReport {
            nsid,
            names,
            capacity_bytes: found.map(|n| n.blocks.saturating_mul(n.block_bytes.into())),
            block_bytes: found.map(|n| n.block_bytes),
            read_only: found.map(|n| n.read_only),
        }
    }

    fn history(&self) -> MutexGuard<'_, VecDeque<RateSample>> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_sample(&self, now: Instant, sum: LaneReading, paths: Vec<(String, u64)>) {
        add_sample(&mut self.history(), RateSample { at: now, sum, paths });
    }

    /// Returns the paths with their rates.
    fn paths(&self, now: Instant) -> Vec<PathLine> {
        let first = self.history().front().cloned();
        let line = |path: PathReport| {
            let of_path = |first: &RateSample| {
                first.paths.iter().find(|(address, _)| *address == path.address).map(|of| of.1)
            };
            let before = first.as_ref().and_then(of_path);
            let time = first.as_ref().map_or(Duration::ZERO, |first| now.duration_since(first.at));
            path_line(path, time, before.unwrap_or(0))
        };
        self.view.routes().into_iter().map(line).collect()
    }

    /// Returns the rates of the window; a query does not change it.
    fn rates(&self, now: Instant, sum: LaneReading) -> RecentRates {
        let first = self.history().front().cloned();
        first.map_or_else(RecentRates::default, |f| rates(now.duration_since(f.at), &f.sum, &sum))
    }
}

/// Adds a sample, and drops those older than the window, except the newest of them.
fn add_sample(history: &mut VecDeque<RateSample>, sample: RateSample) {
    let at = sample.at;
    history.push_back(sample);
    while history.get(1).is_some_and(|next| at.duration_since(next.at) >= WINDOW) {
        history.pop_front();
    }
}

fn rates(time: Duration, before: &LaneReading, now: &LaneReading) -> RecentRates {
    let seconds = time.as_secs_f64();
    let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    let done = now.batching - before.batching;
    RecentRates {
        seconds,
        iops: per_second(done.requests),
        bytes_per_second: per_second(done.data_bytes),
        errors: now.errors.saturating_sub(before.errors),
    }
}

fn path_line(path: PathReport, time: Duration, before: u64) -> PathLine {
    let seconds = time.as_secs_f64();
    let done = path.requests.saturating_sub(before) as f64;
    PathLine {
        address: path.address,
        state: path.link.state.into(),
        ana: path.ana.map(|state| state.to_string()),
        iops: if seconds > 0.0 { done / seconds } else { 0.0 },
        requests: path.requests,
        error: path.link.error,
    }
}

/// Sums the readings of all lanes by link.
fn links(paths: &[PathReading]) -> Vec<LinkSample> {
    let mut links: Vec<LinkSample> = Vec::new();
    for path in paths {
        let PathReading { interface, node, peer, smoothed_rtt, sent, lost, .. } = path;
        let (is_suspect, sealed) = (path.is_suspect, path.is_sealed);
        let rtt_us = smoothed_rtt.as_secs_f64() * 1e6;
        let is_same = |link: &&mut LinkSample| (&link.interface, &link.peer) == (interface, peer);
        match links.iter_mut().find(is_same) {
            Some(link) => {
                link.up &= !is_suspect;
                link.sealed &= sealed;
                link.rtt_us = link.rtt_us.max(rtt_us);
                link.sent_frames += sent;
                link.lost_frames += lost;
            }
            None => links.push(LinkSample {
                interface: interface.clone(),
                node: *node,
                peer: peer.clone(),
                up: !is_suspect,
                sealed,
                rtt_us,
                sent_frames: *sent,
                lost_frames: *lost,
            }),
        }
    }
    links
}

fn lane_report(lane: usize, reading: &LaneReading, state: AttachmentState) -> AttachmentLaneReport {
    AttachmentLaneReport {
        lane,
        state,
        requests: reading.batching.requests,
        data_bytes: reading.batching.data_bytes,
        in_flight: reading.in_flight,
        reconnects: reading.reconnects,
        express: ExpressReport {
            open: reading.express.is_open,
            opened: reading.express.opened,
            requests: reading.express.requests,
            in_flight: reading.express.in_flight,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_reactor::metrics::Batching;

    #[test]
    fn links_are_summed_over_lanes() {
        let path = |interface: &str, is_suspect, us, sent| PathReading {
            interface: interface.into(),
            node: Some(1),
            peer: "02:00:00:00:00:01".into(),
            is_suspect,
            is_sealed: false,
            smoothed_rtt: Duration::from_micros(us),
            sent,
            lost: 1,
        };
        let paths = [path("a", false, 30, 10), path("b", true, 9, 20), path("a", false, 40, 30)];
        let got: Vec<_> = links(&paths)
            .into_iter()
            .map(|l| (l.interface, l.up, l.rtt_us.round() as u32, l.sent_frames, l.lost_frames))
            .collect();
        assert_eq!(got, [("a".into(), true, 40, 40, 2), ("b".into(), false, 9, 20, 1)]);
    }

    fn reading(requests: u64, data_bytes: u64) -> LaneReading {
        let batching = Batching { requests, data_bytes, ..Batching::default() };
        LaneReading { batching, ..LaneReading::default() }
    }

    #[test]
    fn the_window_moves_by_itself() {
        let begun = Instant::now();
        let sample = |seconds: u64| RateSample {
            at: begun + Duration::from_secs(seconds),
            sum: reading(100 * seconds, 0),
            paths: vec![("a".into(), 100 * seconds)],
        };
        let mut history = VecDeque::from([sample(0)]);
        for seconds in 1..60 {
            add_sample(&mut history, sample(seconds));
            let first = history[0].clone();
            let now = sample(seconds);
            let window = now.at.duration_since(first.at);
            assert_eq!(window, Duration::from_secs(seconds.min(10)));
            assert_eq!(rates(window, &first.sum, &now.sum).iops, 100.0);
        }
        assert_eq!(history.len(), 11);
    }

    #[test]
    fn rates_are_differences_over_time() {
        let (before, now) = (reading(100, 1000), reading(300, 9000));
        let got = rates(Duration::from_secs(2), &before, &now);
        assert_eq!(
            got,
            RecentRates { seconds: 2.0, iops: 100.0, bytes_per_second: 4000.0, errors: 0 }
        );
        assert_eq!(rates(Duration::ZERO, &before, &now).iops, 0.0);
    }
}

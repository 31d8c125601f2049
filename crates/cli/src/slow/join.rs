//! Joins the host's and the target's record of one request.
//!
//! Both ends run on this machine if they report the same boot ID: then they use the same clock. The connection is the
//! same if the local address of one end is the peer address of the other. A connection uses a command identifier for
//! one command at a time. A Roadtrain host reuses an identifier after at least 32 other commands, so the target's time
//! span lies within the host's. Timestamps may be early by one turn of a reactor, as they are taken at its beginning.

use super::RecordSource;
use roadtrain_reactor::recorded::{ConnectionInfo, RecordedRequest, RecordingEnd};
use std::collections::HashMap;
use std::net::SocketAddr;

/// Error of timestamps due to turns: less than the duration of 32 commands.
const SLACK_NS: u64 = 100_000;

/// A request, by the index of its source and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RecordIndex {
    pub(super) source: usize,
    pub(super) request: usize,
}

/// All requests, with the links between the two ends of one request.
pub(super) struct JoinedRequests<'a> {
    sources: &'a [RecordSource],
    other_ends: HashMap<RecordIndex, RecordIndex>,
}

impl<'a> JoinedRequests<'a> {
    pub(super) fn new(sources: &'a [RecordSource]) -> JoinedRequests<'a> {
        let mut joined = JoinedRequests { sources, other_ends: HashMap::new() };
        let mut commands: HashMap<_, Vec<RecordIndex>> = HashMap::new();
        for place in joined.places() {
            if joined.request(place).end == RecordingEnd::Target
                && let Some(key) = joined.key(place)
            {
                commands.entry(key).or_default().push(place);
            }
        }
        let hosts: Vec<RecordIndex> = joined
            .places()
            .filter(|place| joined.request(*place).end == RecordingEnd::Host)
            .collect();
        for host in hosts {
            let candidates = joined.key(host).and_then(|key| commands.get(&key));
            let fits = |place: &&RecordIndex| joined.lies_within(**place, host);
            let mut fitting = candidates.into_iter().flatten().filter(fits);
            if let (Some(&target), None) = (fitting.next(), fitting.next()) {
                joined.other_ends.insert(host, target);
                joined.other_ends.insert(target, host);
            }
        }
        joined
    }

    pub(super) fn places(&self) -> impl Iterator<Item = RecordIndex> + use<'a> {
        let of = |(source, from): (usize, &'a RecordSource)| {
            (0..from.recorded.requests.len()).map(move |request| RecordIndex { source, request })
        };
        self.sources.iter().enumerate().flat_map(of)
    }

    pub(super) fn request(&self, place: RecordIndex) -> &'a RecordedRequest {
        &self.sources[place.source].recorded.requests[place.request]
    }

    pub(super) fn line(&self, place: RecordIndex) -> &'a ConnectionInfo {
        static NONE: ConnectionInfo = ConnectionInfo {
            nqn: String::new(),
            host_nqn: String::new(),
            local: String::new(),
            peer: String::new(),
            cntlid: 0,
            qid: 0,
            path: 0,
        };
        let lines = &self.sources[place.source].recorded.connections;
        lines.get(self.request(place).connection).unwrap_or(&NONE)
    }

    /// Returns the same request's record at the other end.
    pub(super) fn other_end(&self, place: RecordIndex) -> Option<RecordIndex> {
        self.other_ends.get(&place).copied()
    }

    /// Returns the boot ID, the host's address, the queue and the command identifier.
    fn key(&self, place: RecordIndex) -> Option<(&'a str, SocketAddr, u16, u16)> {
        let (request, line) = (self.request(place), self.line(place));
        let address = if request.end == RecordingEnd::Host { &line.local } else { &line.peer };
        let address: SocketAddr = address.parse().ok()?;
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let boot = &*self.sources[place.source].recorded.boot;
        (!boot.is_empty()).then_some((boot, address, line.qid, request.cid))
    }

    fn lies_within(&self, target: RecordIndex, host: RecordIndex) -> bool {
        let span = |place: RecordIndex| {
            let request = self.request(place);
            (request.begun_ns, request.begun_ns + (request.total_us * 1e3) as u64)
        };
        let ((from, to), (host_from, host_to)) = (span(target), span(host));
        from + SLACK_NS >= host_from && to <= host_to + SLACK_NS
    }
}

//! Probe of a link's largest frame: devices between the ports may take less than the ports do.

use super::ports::{HostFrame, Ports};
use super::query::{EtherQuery, run_query};
use super::route::{FRAME_MIN, LinkPath};
use roadtrain_ether_proto::query_timer::QueryIntervals;
use roadtrain_wire::ether::{FRAME_HEADER_BYTES, FrameHeader, FrameType, MacAddress};
use std::io;
use std::time::Duration;

/// Frame sizes to try besides that of the ports: jumbo frames; a page and its header; the standard size.
const SIZES: [u16; 3] = [9000, 4096 + 160, 1500];
/// Pace of the probes of one size.
const PACE: QueryIntervals = QueryIntervals {
    first: Duration::from_millis(20),
    longest: Duration::from_millis(80),
    total: Duration::from_millis(220),
};

struct FrameProbe {
    path: LinkPath,
    frame_bytes: u16,
    has_arrived: bool,
}

impl FrameProbe {
    fn body_bytes(&self) -> usize {
        usize::from(self.frame_bytes).saturating_sub(FRAME_HEADER_BYTES)
    }

    fn peer(&self) -> MacAddress {
        self.path.route.peer
    }
}

impl EtherQuery for FrameProbe {
    fn put(&mut self, ports: &mut Ports) {
        let header = FrameHeader { kind: FrameType::Probe as u8, ..FrameHeader::default() };
        ports.put(self.path.route.port, self.peer(), header, &vec![0; self.body_bytes()]);
    }

    fn receive(&mut self, received: &HostFrame<'_>) {
        let is_answer = received.kind == FrameType::Probed && received.source == self.peer();
        let bytes = received.body.first_chunk().map(|bytes| u16::from_le_bytes(*bytes));
        self.has_arrived |= is_answer && bytes == Some(self.frame_bytes);
    }

    fn is_answered(&self) -> bool {
        self.has_arrived
    }
}

/// Probes a path. Returns it with the frame size that it takes; `None`: not even the smallest, or none that is large
/// enough.
pub(crate) fn probe(ports: &mut Ports, path: LinkPath) -> io::Result<Option<LinkPath>> {
    for frame_bytes in sizes(path.frame_bytes).filter(|&size| size >= FRAME_MIN) {
        let mut probe = FrameProbe { path, frame_bytes, has_arrived: false };
        if run_query(ports, PACE, &mut probe)? {
            return Ok(Some(LinkPath { frame_bytes, ..path }));
        }
    }
    Ok(None)
}

fn sizes(largest: u16) -> impl Iterator<Item = u16> {
    std::iter::once(largest).chain(SIZES.into_iter().filter(move |&size| size < largest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use roadtrain_ether_proto::fence::LaneRoute;

    #[test]
    fn sizes_go_down() {
        assert!(sizes(1500).eq([1500]));
        assert!(sizes(9000).eq([9000, 4256, 1500]));
        assert!(sizes(u16::MAX).eq([u16::MAX, 9000, 4256, 1500]));
        assert!(sizes(600).eq([600]));
    }

    #[test]
    fn frames_that_are_too_small_are_not_tried() {
        let route = LaneRoute { port: 0, peer: MacAddress([1; 6]) };
        for frame_bytes in [0, 1, FRAME_HEADER_BYTES as u16, FRAME_MIN - 1] {
            let found = probe(&mut Ports::default(), LinkPath { route, frame_bytes }).unwrap();
            assert_eq!(found, None);
        }
    }
}

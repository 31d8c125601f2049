//! Writer of a lane's frames to the ports.

use super::ports::Ports;
use super::route::route;
use roadtrain_ether_port::{FrameSeal, seals};
use roadtrain_ether_proto::fence::LaneRoute;
use roadtrain_ether_proto::frame_writer::FrameWriter;
use roadtrain_reactor::metrics::ReactorCells;
use roadtrain_wire::ether::{FrameHeader, FrameType};

/// Source of the data of a lane's requests.
pub(crate) trait CommandDataSource {
    /// Returns data that the slot's command sends. It stays in place until the ports are flushed.
    fn data(&self, slot: u16, offset: u32, length: u32) -> Option<&[u8]>;
}

/// Writer of frames at the ports of a lane's links.
pub(super) struct PortWriter<'a, S> {
    ports: &'a mut Ports,
    routes: &'a [(u8, LaneRoute)],
    source: &'a S,
    /// Counters of caravan sizes, if they are counted.
    cells: Option<&'a ReactorCells>,
    seal: Option<&'a mut FrameSeal>,
    /// Route of the current frame.
    route: Option<LaneRoute>,
    is_whole: bool,
    /// Number of records in the current frame.
    records: u64,
    sent: BuiltFrames,
}

/// Frames that a lane has built.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BuiltFrames {
    pub(crate) frames: u64,
    /// Bytes of their bodies.
    pub(crate) bytes: u64,
}

impl<'a, S> PortWriter<'a, S> {
    pub(super) fn new(
        ports: &'a mut Ports,
        routes: &'a [(u8, LaneRoute)],
        (source, cells): (&'a S, Option<&'a ReactorCells>),
        seal: Option<&'a mut FrameSeal>,
    ) -> Self {
        let sent = BuiltFrames::default();
        let (route, is_whole, records) = (None, true, 0);
        PortWriter { ports, routes, source, cells, seal, route, is_whole, records, sent }
    }

    /// Returns the frames built so far.
    pub(super) fn built(&self) -> BuiltFrames {
        self.sent
    }

    /// Returns the port of the current frame.
    fn port(&self) -> usize {
        self.route.map_or(0, |route| route.port)
    }
}

impl<S: CommandDataSource> FrameWriter for PortWriter<'_, S> {
    fn has_room(&self, link: u8) -> bool {
        route(self.routes, link).is_some_and(|route| self.ports.has_room(route.port))
    }

    fn begin(&mut self, link: u8) {
        self.route = route(self.routes, link);
        (self.is_whole, self.records) = (self.route.is_some(), 0);
        let port = self.port();
        self.ports.port(port).begin();
    }

    fn bytes(&mut self, length: usize) -> &mut [u8] {
        self.sent.bytes += length as u64;
        self.records += 1;
        let port = self.port();
        self.ports.port(port).bytes(length)
    }

    fn payload(&mut self, slot: u16, offset: u32, length: u32) {
        self.sent.bytes += u64::from(length);
        let port = self.ports.port(self.route.map_or(0, |route| route.port));
        match self.source.data(slot, offset, length) {
            // SAFETY: by the source's promise.
            Some(data) => unsafe { port.payload(data.as_ptr(), data.len()) },
            None => {
                debug_assert!(false, "data of an unknown request");
                self.is_whole = false;
                port.bytes(length as usize).fill(0);
            }
        }
    }

    fn end(&mut self, mut header: FrameHeader) {
        if !self.is_whole {
            header.token = 0.into(); // no lane takes it
        }
        if let Some(cells) = self.cells.filter(|_| header.kind == FrameType::Cargo as u8) {
            cells.caravan(self.records);
        }
        let destination = self.route.map_or_else(Default::default, |route| route.peer);
        let port = self.port();
        match &mut self.seal {
            Some(seal) if seals(&header) => {
                self.ports.port(port).end_sealed(destination, header, seal);
            }
            _ => self.ports.port(port).end(destination, header),
        }
        self.sent.frames += 1;
    }
}

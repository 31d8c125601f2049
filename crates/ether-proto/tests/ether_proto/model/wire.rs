//! Connections. Data is only counted: its bytes are never read.

use roadtrain_proto::caravan::Caravan;
use roadtrain_proto::time::Instant;
use std::collections::VecDeque;

/// A PDU in flight.
#[derive(Debug)]
pub struct Pdu {
    pub header: Vec<u8>,
    pub data_bytes: u32,
}

impl Pdu {
    pub fn bytes(&self) -> u32 {
        self.header.len() as u32 + self.data_bytes
    }
}

/// Contents of one send.
#[derive(Default)]
pub struct Cargo {
    pub pdus: Vec<Pdu>,
}

impl Caravan for Cargo {
    fn has_capacity(&self) -> bool {
        true
    }

    fn header(&mut self, length: usize) -> &mut [u8] {
        self.pdus.push(Pdu { header: vec![0; length], data_bytes: 0 });
        &mut self.pdus.last_mut().expect("just pushed").header
    }

    fn payload(&mut self, _: u16, _: u32, length: u32, digest: bool) {
        assert!(!digest, "no digests were agreed on");
        self.pdus.last_mut().expect("data follows a header").data_bytes += length;
    }
}

/// A connection.
#[derive(Default)]
pub struct ModelWires {
    pub to_host: ModelWire,
    pub to_target: ModelWire,
}

/// One direction: PDUs in flight and arrived, in order.
#[derive(Default)]
pub struct ModelWire {
    pdus: VecDeque<(Instant, Pdu)>,
}

impl ModelWire {
    pub fn put(&mut self, arrival: Instant, pdus: impl Iterator<Item = Pdu>) {
        self.pdus.extend(pdus.map(|pdu| (arrival, pdu)));
    }

    /// Arrival time of the next PDU.
    pub fn next(&self) -> Option<Instant> {
        self.pdus.front().map(|&(arrival, _)| arrival)
    }

    /// Takes the PDUs that have arrived by `until`.
    pub fn take(&mut self, until: Instant) -> Vec<Pdu> {
        let count = self.pdus.partition_point(|&(arrival, _)| arrival <= until);
        self.pdus.drain(..count).map(|(_, pdu)| pdu).collect()
    }
}

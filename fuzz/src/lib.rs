//! What the fuzz targets share.

use roadtrain_proto::caravan::Caravan;
use roadtrain_proto::framing::{Framer, Step};
use roadtrain_wire::pdu::Digests;

/// A caravan that keeps the octets as they would be sent; payload is zeroes, a data digest is right.
#[derive(Default)]
pub struct Octets(pub Vec<u8>);

impl Caravan for Octets {
    fn has_room(&self) -> bool {
        self.0.len() < 1 << 20
    }

    fn header(&mut self, length: usize) -> &mut [u8] {
        let start = self.0.len();
        self.0.resize(start + length, 0);
        &mut self.0[start..]
    }

    fn payload(&mut self, _slot: u16, _offset: u32, length: u32, digest: bool) {
        let data = vec![0; length as usize];
        self.0.extend_from_slice(&data);
        if digest {
            let crc = roadtrain_wire::pdu::header_digest(&data);
            self.0.extend_from_slice(&crc);
        }
    }
}

/// Panics unless `octets` are whole PDUs of that end, with right digests.
pub fn assert_well_formed(from_host: bool, digests: Digests, alignment: u32, octets: &[u8]) {
    let mut framer = Framer::new(from_host);
    framer.agree(digests, alignment);
    let mut at = 0;
    loop {
        let (used, step) = framer.next(&octets[at..]).expect("we sent a malformed PDU");
        at += used;
        match step {
            Step::Need(_) => break,
            Step::DataEnd { intact } => assert!(intact, "we sent a wrong data digest"),
            Step::Header(_) | Step::Data(_) => {}
        }
    }
    assert_eq!(at, octets.len(), "we sent half a PDU");
}

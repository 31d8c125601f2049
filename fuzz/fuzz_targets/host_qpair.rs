//! Any bytes from a target, in pieces of any size, into a host's queue pair with commands in flight: no panic, every
//! command completes at most once, every PDU sent is well-formed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_fuzz::{assert_well_formed, bytes, policy};
use roadtrain_host_proto::qpair::{CommandTransfer, HostQpair, HostQpairConfig, HostRxEvent};
use roadtrain_proto::manifest::Manifest;
use roadtrain_proto::policy::Urgency;
use roadtrain_proto::time::Instant;
use roadtrain_wire::pdu::Digests;
use roadtrain_wire::sqe::{Sqe, opcode};

/// Commands kept in flight, of every kind of data.
const COMMANDS: [(u8, CommandTransfer); 5] = [
    (opcode::READ, CommandTransfer::In(4096)),
    (opcode::WRITE, CommandTransfer::Out(512)),
    (opcode::WRITE, CommandTransfer::Out(65536)),
    (opcode::FLUSH, CommandTransfer::None),
    (opcode::READ, CommandTransfer::In(16384)),
];

fuzz_target!(|input: &[u8]| {
    let Some((&[shape, piece], stream)) = input.split_first_chunk() else { return };
    let digests = Digests { header: shape & 1 != 0, data: shape & 2 != 0 };
    let policy = policy(shape);
    let config = HostQpairConfig { digests, queue_entries: 16, in_capsule_bytes: 8192, policy };
    let mut end = HostQpairEnd::new(config);
    let mut kept: Vec<u8> = Vec::new();
    for piece in stream.chunks(usize::from(piece) + 1) {
        end.submit();
        kept.extend_from_slice(piece);
        let mut at = 0;
        let goes_on = end.receive(&kept, &mut at);
        end.send();
        if !goes_on {
            return;
        }
        kept.drain(..at);
    }
});

struct HostQpairEnd {
    qpair: HostQpair,
    now: Instant,
    is_set_up: bool,
    /// True for a slot with a command in flight.
    in_flight: Vec<bool>,
    submitted: usize,
}

impl HostQpairEnd {
    fn new(config: HostQpairConfig) -> Self {
        let now = Instant(0);
        let qpair = HostQpair::new(now, config);
        let mut end =
            HostQpairEnd { qpair, now, is_set_up: false, in_flight: vec![false; 16], submitted: 0 };
        end.send();
        end
    }

    fn submit(&mut self) {
        while self.qpair.room() > 0 {
            let (opcode, data) = COMMANDS[self.submitted % COMMANDS.len()];
            let sqe = Sqe::rw(opcode, 1, 8 * self.submitted as u64, 8);
            let Some(slot) = self.qpair.submit(self.now, &sqe, data, Urgency::Normal) else {
                return;
            };
            let was = std::mem::replace(&mut self.in_flight[usize::from(slot)], true);
            assert!(!was, "slot given twice");
            self.submitted += 1;
        }
    }

    fn receive(&mut self, input: &[u8], at: &mut usize) -> bool {
        loop {
            let in_flight = &self.in_flight;
            let fill = |slot, _, _: &[u8]| assert!(in_flight[usize::from(slot)]);
            match self.qpair.poll_rx(self.now, input, at, fill) {
                Ok(Some(HostRxEvent::Complete { slot, .. })) => {
                    let was = std::mem::take(&mut self.in_flight[usize::from(slot)]);
                    assert!(was, "a command completed twice");
                }
                Ok(Some(HostRxEvent::Ready)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn send(&mut self) {
        self.now.0 += 1_000_000;
        self.qpair.batcher().drained(self.now);
        self.qpair.batcher().expire(self.now);
        loop {
            let mut caravan = Manifest::default();
            if !self.qpair.poll_tx(&mut caravan) {
                break;
            }
            let digests = if self.is_set_up { self.qpair.digests() } else { Digests::default() };
            assert_well_formed(true, digests, 1, &bytes(&caravan));
            self.is_set_up = true;
        }
    }
}

//! Any bytes from a host, in pieces of any size, into a target's queue pair that executes all commands: no panic, no
//! more commands than the queue holds, one response for each command, every PDU sent well-formed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use roadtrain_fuzz::{DATA_BYTES_MAX, assert_well_formed, bytes, policy};
use roadtrain_proto::manifest::Manifest;
use roadtrain_proto::policy::Class;
use roadtrain_proto::time::Instant;
use roadtrain_target_proto::io::{BlockGeometry, TargetIoCommand};
use roadtrain_target_proto::qpair::{TargetQpair, TargetQpairConfig, TargetRxEvent};
use roadtrain_wire::pdu::{Digests, PduType};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;

const GEOMETRY: BlockGeometry = BlockGeometry {
    lba_shift: 9,
    blocks: 1 << 20,
    read_only: false,
    transfer_bytes_max: DATA_BYTES_MAX as u32,
};

fuzz_target!(|input: &[u8]| {
    let Some((&[shape, piece], stream)) = input.split_first_chunk() else { return };
    let policy = policy(shape);
    let both = Digests { header: true, data: true };
    let config =
        TargetQpairConfig { digests: both, maxh2cdata: 65536, in_capsule_bytes_max: 16384, policy };
    let block_bytes = if shape & 4 == 0 { 1 } else { 1 << GEOMETRY.lba_shift };
    let mut end = TargetQpairEnd {
        qpair: TargetQpair::new(config),
        now: Instant(0),
        is_set_up: false,
        block_bytes,
    };
    end.qpair.set_connected(1, 16, shape & 2 == 0, Class::from_cattr(shape));
    // As in an engine, bytes arrive in pieces, and unused ones are kept in front of the next piece.
    let mut kept: Vec<u8> = Vec::new();
    for piece in stream.chunks(usize::from(piece) + 1) {
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

struct TargetQpairEnd {
    qpair: TargetQpair,
    now: Instant,
    is_set_up: bool,
    /// Unit of delivered data in bytes, until a block is split.
    block_bytes: u32,
}

impl TargetQpairEnd {
    fn receive(&mut self, input: &[u8], at: &mut usize) -> bool {
        loop {
            match self.qpair.poll_rx(self.now, input, at, |_, _, _| {}) {
                Ok(Some(event)) => self.handle(event),
                Ok(None) => return true,
                Err(_) => return false,
            }
            assert!(self.qpair.in_flight() <= 16 + 1);
        }
    }

    fn handle(&mut self, event: TargetRxEvent<'_>) {
        match event {
            TargetRxEvent::Initialized => {}
            TargetRxEvent::Command { slot, sqe, in_capsule_bytes } => {
                self.qpair.deliver_whole(slot, self.block_bytes);
                if in_capsule_bytes == 0 {
                    self.execute(slot, sqe);
                }
            }
            TargetRxEvent::SplitBlock { offset, .. } => {
                assert!(self.block_bytes > 1 && offset.is_multiple_of(self.block_bytes));
            }
            TargetRxEvent::DataDone { slot, intact } => {
                let status = if intact { Status::SUCCESS } else { Status::INTERNAL_ERROR };
                self.qpair.respond(self.now, slot, status, 0);
            }
        }
    }

    fn execute(&mut self, slot: u16, sqe: &Sqe) {
        match TargetIoCommand::parse(sqe, &GEOMETRY, 0) {
            Ok(TargetIoCommand::Read { length, .. }) => {
                self.qpair.respond_with_data(self.now, slot, length, 0);
            }
            Ok(command) if command.data_out_bytes() > 0 => {
                self.qpair.request_data(self.now, slot, command.data_out_bytes());
            }
            Ok(_) => self.qpair.respond(self.now, slot, Status::SUCCESS, 7),
            Err(status) => self.qpair.respond(self.now, slot, status, 0),
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
            self.check_sent(&bytes(&caravan));
            self.qpair.sent(|_, _, _| {});
        }
        assert!(!self.qpair.has_tx());
    }

    fn check_sent(&mut self, sent: &[u8]) {
        let mut sent = sent;
        if !self.is_set_up && sent[0] == PduType::IcResp as u8 {
            self.is_set_up = true;
            assert_well_formed(false, Digests::default(), 1, &sent[..128]);
            sent = &sent[128..];
        }
        let digests = if self.is_set_up { self.qpair.digests() } else { Digests::default() };
        assert_well_formed(false, digests, 1, sent);
    }
}

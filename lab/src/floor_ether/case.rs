//! A measurement, and how its frames are filled.

use super::args::{FloorEtherArgs, FloorPortKind};
use crate::floor::DataDirection;
use roadtrain_wire::ether::{
    COMMAND_RECORD_BYTES, COMPLETION_RECORD_BYTES, DATA_RECORD_BYTES, FRAME_HEADER_BYTES,
    PAGE_BYTES, RECORDS_MAX,
};
use serde::Serialize;
use std::fmt;

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct FloorEtherCase {
    pub(crate) kind: FloorPortKind,
    pub(crate) mtu: usize,
    pub(crate) rw: DataDirection,
    pub(crate) bs: usize,
    pub(crate) depth: usize,
    /// Most payloads of a frame.
    pub(crate) payloads: usize,
}

/// From this frame on a piece is a page: one, its head and those of two requests fit twice.
const PAGE_FRAME_BYTES: usize = 8400;

impl FloorEtherCase {
    /// All wanted ones with one MTU, each once: kinds next to each other, to be compared.
    pub(super) fn all(args: &FloorEtherArgs, mtu: usize) -> impl Iterator<Item = FloorEtherCase> {
        let mut cases: Vec<FloorEtherCase> = Vec::new();
        for &rw in &args.rw {
            for &depth in &args.depth {
                for &payloads in &args.payloads {
                    for &kind in &args.kind {
                        let case = FloorEtherCase { kind, mtu, rw, bs: args.bs, depth, payloads };
                        let payloads = payloads.min(case.payloads_max()).min(case.pieces() * depth);
                        let case = FloorEtherCase { payloads, ..case };
                        if !cases.contains(&case) {
                            cases.push(case);
                        }
                    }
                }
            }
        }
        cases.into_iter()
    }

    /// Bytes of records that a frame has room for.
    pub(super) fn room(&self) -> usize {
        self.mtu.min(usize::from(u16::MAX)) - FRAME_HEADER_BYTES
    }

    /// Bytes of payload in a data record, but for a request's last.
    pub(super) fn piece(&self) -> usize {
        let piece = if self.mtu >= PAGE_FRAME_BYTES {
            PAGE_BYTES
        } else {
            (self.room() - DATA_RECORD_BYTES).min(PAGE_BYTES) / 8 * 8
        };
        piece.min(self.bs)
    }

    /// Data records of a request.
    pub(super) fn pieces(&self) -> usize {
        self.bs.div_ceil(self.piece())
    }

    /// Offset of a request's piece, and its bytes.
    pub(super) fn span(&self, index: usize) -> (usize, usize) {
        let at = index * self.piece();
        (at, self.piece().min(self.bs - at))
    }

    /// Payloads that fit into a frame, with what belongs to them: a command or a completion each.
    fn payloads_max(&self) -> usize {
        let beside = match self.rw {
            DataDirection::Read => COMPLETION_RECORD_BYTES,
            DataDirection::Write => COMMAND_RECORD_BYTES,
        };
        let each = DATA_RECORD_BYTES + self.piece() + beside;
        (self.room() / each).clamp(1, RECORDS_MAX / 2)
    }
}

impl fmt::Display for FloorEtherCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FloorEtherCase { kind, mtu, rw, bs, depth, payloads } = self;
        write!(f, "{kind:?}, MTU {mtu}, {rw:?} of {bs}, depth {depth}, payloads {payloads}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(mtu: usize, rw: DataDirection) -> FloorEtherCase {
        FloorEtherCase { kind: FloorPortKind::Packet, mtu, rw, bs: 4096, depth: 128, payloads: 64 }
    }

    #[test]
    fn pieces_cover_a_request() {
        for mtu in [576, 1500, 4256, 9000, 65535] {
            for bs in [512, 4096, 16384, 5000] {
                let case = FloorEtherCase { bs, ..case(mtu, DataDirection::Read) };
                let spans: Vec<_> = (0..case.pieces()).map(|index| case.span(index)).collect();
                let mut at = 0;
                for &(start, bytes) in &spans {
                    assert_eq!(start, at, "MTU {mtu}");
                    assert!(bytes > 0 && DATA_RECORD_BYTES + bytes <= case.room());
                    at += bytes;
                }
                assert_eq!(at, bs);
            }
        }
    }

    #[test]
    fn frames_hold_what_the_format_says() {
        assert_eq!(case(1500, DataDirection::Read).piece(), 1408);
        assert_eq!(case(1500, DataDirection::Read).pieces(), 3);
        assert_eq!(case(1500, DataDirection::Read).payloads_max(), 1);
        for rw in [DataDirection::Read, DataDirection::Write] {
            assert_eq!(case(9000, rw).pieces(), 1);
            assert_eq!(case(9000, rw).payloads_max(), 2);
            assert_eq!(case(65535, rw).payloads_max(), 15);
        }
    }

    #[test]
    fn cases_that_are_alike_are_run_once() {
        let args = FloorEtherArgs::default();
        // Two kinds and directions; depth 1 has one payload, depth 128 those that fit.
        assert_eq!(FloorEtherCase::all(&args, 9000).count(), 2 * 2 * (1 + 2));
        assert_eq!(FloorEtherCase::all(&args, 65535).count(), 2 * 2 * (1 + 3));
        assert_eq!(FloorEtherCase::all(&args, 1500).count(), 2 * 2 * (1 + 1));
    }
}

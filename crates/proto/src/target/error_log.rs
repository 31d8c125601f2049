//! Error Information log of a controller.

use roadtrain_wire::discovery::trtype;
use roadtrain_wire::log::{ErrorEntry, PARAMETER_NONE};
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use roadtrain_wire::zerocopy::FromZeros;
use std::collections::VecDeque;

/// Entries kept (ELPE + 1).
pub(super) const ERROR_ENTRIES: usize = 64;

/// The newest errors, newest first.
#[derive(Debug, Default)]
pub(super) struct ErrorLog {
    count: u64,
    entries: VecDeque<ErrorEntry>,
}

impl ErrorLog {
    /// Adds the failure of `sqe` on queue `qid`; `octet` of the command is to blame.
    pub(super) fn record(&mut self, qid: u16, sqe: &Sqe, status: Status, octet: Option<u8>) {
        self.count += 1;
        self.entries.truncate(ERROR_ENTRIES - 1);
        self.entries.push_front(ErrorEntry {
            error_count: self.count.into(),
            sqid: qid.into(),
            cid: sqe.cid,
            status: status.to_field().into(),
            parameter: octet.map_or(PARAMETER_NONE, u16::from).into(),
            lba: if qid == 0 { 0 } else { sqe.slba() }.into(),
            nsid: sqe.nsid,
            trtype: trtype::TCP,
            opcode: sqe.opcode,
            version: 1,
            ..ErrorEntry::new_zeroed()
        });
    }

    /// Errors ever recorded.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ErrorEntry> {
        self.entries.iter()
    }
}

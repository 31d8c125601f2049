//! Abort commands that wait for the lane that executes the command to abort (NVMe Base 2.1, section 5.1.1).
//!
//! That lane may run on another thread, and the kernel may be executing the command: an Abort completes once the lane
//! has reported the result. At most [`ABORTS_MAX`] are pending at a time, as the host reads from ACL.

/// Pending Abort commands of a controller at most (ACL + 1).
pub(super) const ABORTS_MAX: u8 = 4;

/// A pending Abort command.
#[derive(Clone, Copy, Debug)]
struct PendingAbort {
    id: u32,
    /// Command identifier of the Abort itself.
    cid: u16,
    /// Queue of the command to abort.
    qid: u16,
}

/// The pending Aborts of a controller.
#[derive(Debug, Default)]
pub(super) struct Aborts {
    last: u32,
    waiting: Vec<PendingAbort>,
}

impl Aborts {
    /// Starts the Abort `cid` of a command on queue `qid`. Returns its number for [`Aborts::finish`], or `None` when
    /// too many are pending.
    pub(super) fn begin(&mut self, cid: u16, qid: u16) -> Option<u32> {
        if self.waiting.len() >= usize::from(ABORTS_MAX) {
            return None;
        }
        self.last = self.last.wrapping_add(1);
        self.waiting.push(PendingAbort { id: self.last, cid, qid });
        Some(self.last)
    }

    /// Ends an Abort whose lane has reported the result. Returns the Abort's command identifier, unless it has ended
    /// before.
    pub(super) fn finish(&mut self, id: u32) -> Option<u16> {
        let index = self.waiting.iter().position(|waiting| waiting.id == id)?;
        Some(self.waiting.swap_remove(index).cid)
    }

    /// Ends the Aborts of commands on queue `qid`, which is gone. Returns their command identifiers.
    pub(super) fn remove_queue(&mut self, qid: u16) -> Vec<u16> {
        self.waiting.extract_if(.., |waiting| waiting.qid == qid).map(|gone| gone.cid).collect()
    }

    /// Ends all Aborts, for a controller reset. Returns their command identifiers.
    pub(super) fn reset(&mut self) -> Vec<u16> {
        self.waiting.drain(..).map(|waiting| waiting.cid).collect()
    }
}

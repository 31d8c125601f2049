//! Abort commands that wait for the lane which has the command (NVMe Base 2.1, section 5.1.1).
//!
//! The lane of the aborted command may be served elsewhere, and the kernel may have the command: an Abort ends when
//! that lane has said what has become of it. There are never more than the host was told (ACL).

/// Commands an Abort may be under way for (ACL + 1).
pub(super) const ABORTS_MAX: u8 = 4;

/// An Abort that is under way.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    id: u32,
    /// The Abort's own identifier.
    cid: u16,
    /// The queue of the command that is to be aborted.
    qid: u16,
}

/// The Aborts of a controller.
#[derive(Debug, Default)]
pub(super) struct Aborts {
    last: u32,
    waiting: Vec<Waiting>,
}

impl Aborts {
    /// Abort `cid` waits for queue `qid`: its name for [`Aborts::finish`], or `None` when there are too many.
    pub(super) fn begin(&mut self, cid: u16, qid: u16) -> Option<u32> {
        if self.waiting.len() >= usize::from(ABORTS_MAX) {
            return None;
        }
        self.last = self.last.wrapping_add(1);
        self.waiting.push(Waiting { id: self.last, cid, qid });
        Some(self.last)
    }

    /// The lane has answered: the Abort's identifier, unless it has ended before.
    pub(super) fn finish(&mut self, id: u32) -> Option<u16> {
        let index = self.waiting.iter().position(|waiting| waiting.id == id)?;
        Some(self.waiting.swap_remove(index).cid)
    }

    /// Queue `qid` is gone, with all its commands: identifiers of the Aborts that waited for it.
    pub(super) fn leave(&mut self, qid: u16) -> Vec<u16> {
        self.waiting.extract_if(.., |waiting| waiting.qid == qid).map(|gone| gone.cid).collect()
    }

    /// Controller reset: identifiers of all.
    pub(super) fn reset(&mut self) -> Vec<u16> {
        self.waiting.drain(..).map(|waiting| waiting.cid).collect()
    }
}

//! Tags of a queue: their owner, driver or server, and the buffer of each.

#![allow(unsafe_code, reason = "the driver reads and writes buffers of tags")]

use super::abi::{IoDescriptor, QueueOp, RESULT_ABORT, UblkIoCommand};
use super::descriptors::Descriptors;
use roadtrain_host_engine::{FrontTurn, UringCommand};
use roadtrain_system::buffer::Buffer;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Owner of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TagOwner {
    /// No fetch was sent yet.
    New,
    /// The driver, with the tag's buffer.
    Driver,
    /// The server: a request is to be answered.
    Server,
    /// The driver gives the tag no more requests.
    Gone,
}

struct Tag {
    owner: TagOwner,
    /// Buffer; `None` while a lane has it.
    buffer: Option<Buffer>,
}

/// Outcome of a tag's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagOutcome {
    Request(IoDescriptor),
    /// The tag is gone.
    Gone,
    /// The tag is gone, because the driver refused the command with this errno.
    Refused(i32),
}

/// One queue of a device.
///
/// While the driver has a tag, its buffer stays here: the driver may write to it.
pub(crate) struct Tags {
    device: Arc<File>,
    queue: u16,
    encoded: bool,
    descriptors: Descriptors,
    io_bytes: u32,
    tags: Vec<Tag>,
    /// Tags that are not gone.
    left: u16,
}

impl Tags {
    /// Makes the `depth` tags of queue `queue`, each with a buffer of `io_bytes`. `encoded` selects encoded command
    /// numbers.
    ///
    /// # Errors
    /// Fails if the descriptors cannot be mapped.
    pub(crate) fn new(
        device: Arc<File>,
        queue: u16,
        depth: u16,
        io_bytes: u32,
        encoded: bool,
    ) -> io::Result<Self> {
        let descriptors = Descriptors::map(device.as_fd(), queue, depth)?;
        Ok(Tags { device, queue, encoded, descriptors, io_bytes, tags: Vec::new(), left: depth })
    }

    /// Fetches the first request of every tag, on the thread that will answer them all. `take` returns a buffer for a
    /// tag, `key` the key of its commands.
    pub(crate) fn fetch_all(
        &mut self,
        turn: &mut dyn FrontTurn,
        mut take: impl FnMut() -> Buffer,
        key: impl Fn(u16) -> u64,
    ) {
        debug_assert!(self.tags.is_empty(), "fetched twice");
        for tag in 0..self.left {
            let buffer = Some(take()).filter(|buffer| self.has_room(buffer));
            self.tags.push(Tag { owner: TagOwner::New, buffer });
            self.command(turn, QueueOp::Fetch, tag, 0, key(tag));
        }
    }

    /// Returns the number of tags that may bring requests.
    pub(crate) fn depth(&self) -> u16 {
        self.left
    }

    /// True if the driver gives no more requests.
    pub(crate) fn are_gone(&self) -> bool {
        self.left == 0
    }

    /// Takes the outcome of a tag's command; `result` is the driver's.
    pub(crate) fn returned(&mut self, tag: u16, result: i32) -> TagOutcome {
        let Some(found) = self.tags.get_mut(usize::from(tag)) else { return TagOutcome::Gone };
        if found.owner != TagOwner::Driver {
            debug_assert!(false, "tag {tag} was not the driver's");
            return TagOutcome::Gone;
        }
        if result == 0 {
            found.owner = TagOwner::Server;
            return TagOutcome::Request(self.descriptors.get(tag));
        }
        found.owner = TagOwner::Gone;
        self.left -= 1;
        if result == RESULT_ABORT { TagOutcome::Gone } else { TagOutcome::Refused(result) }
    }

    /// Answers a tag's request with `result` (bytes moved, or a negative errno) and fetches the next. The tag has its
    /// buffer.
    pub(crate) fn commit(&mut self, turn: &mut dyn FrontTurn, tag: u16, result: i32, key: u64) {
        debug_assert_eq!(self.tags[usize::from(tag)].owner, TagOwner::Server);
        self.command(turn, QueueOp::CommitAndFetch, tag, result, key);
    }

    fn command(&mut self, turn: &mut dyn FrontTurn, op: QueueOp, tag: u16, result: i32, key: u64) {
        let entry = &mut self.tags[usize::from(tag)];
        if !matches!(entry.owner, TagOwner::New | TagOwner::Server) {
            return debug_assert!(false, "tag {tag} is not ours");
        }
        // A tag without a buffer, which should not happen, gets a new one.
        let buffer = entry.buffer.get_or_insert_with(|| Buffer::alloc(self.io_bytes as usize));
        let addr = buffer.as_mut_ptr() as u64;
        entry.owner = TagOwner::Driver;
        let command = UblkIoCommand { q_id: self.queue, tag, result, addr };
        let mut payload = [0; 80];
        payload[..size_of::<UblkIoCommand>()].copy_from_slice(command.as_bytes());
        let (fd, op) = (self.device.as_raw_fd(), op.code(self.encoded));
        let command = UringCommand { fd, op, address: 0, length: 0, payload };
        // SAFETY: the buffer stays in its tag until the command has completed: `take` and `bytes` refuse it. It has
        // room for the largest request of the device. The device stays open as long as the tags exist.
        unsafe { turn.command(&command, key) };
    }

    /// Takes the buffer of a tag that the server owns, for a lane.
    pub(crate) fn take(&mut self, tag: u16) -> Option<Buffer> {
        let tag = &mut self.tags[usize::from(tag)];
        debug_assert_eq!(tag.owner, TagOwner::Server);
        tag.buffer.take_if(|_| tag.owner == TagOwner::Server)
    }

    /// Puts the tag's buffer back from the lane.
    pub(crate) fn put(&mut self, tag: u16, buffer: Buffer) {
        let has_room = self.has_room(&buffer);
        let tag = &mut self.tags[usize::from(tag)];
        debug_assert!(has_room && tag.buffer.is_none() && tag.owner == TagOwner::Server);
        if has_room && tag.buffer.is_none() {
            tag.buffer = Some(buffer);
        }
    }

    fn has_room(&self, buffer: &Buffer) -> bool {
        buffer.capacity() >= self.io_bytes as usize
    }

    /// True if a lane has the tag's buffer.
    pub(crate) fn is_out(&self, tag: u16) -> bool {
        self.tags[usize::from(tag)].buffer.is_none()
    }

    /// Returns the first `length` bytes of the buffer of a tag that the server owns.
    pub(crate) fn bytes(&mut self, tag: u16, length: u32) -> &mut [u8] {
        let tag = &mut self.tags[usize::from(tag)];
        debug_assert_eq!(tag.owner, TagOwner::Server);
        match &mut tag.buffer {
            Some(buffer) if tag.owner == TagOwner::Server => {
                buffer.set_len((length as usize).min(buffer.capacity()));
                buffer
            }
            _ => &mut [],
        }
    }
}

//! Replies of one connection to be sent: headers and ranges of buffers, in order, for gather sends.

use roadtrain_system::buffer::Buffer;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

/// Sent bytes at which the header buffer is compacted.
const COMPACT_BYTES: usize = 16 << 10;

#[derive(Debug)]
enum ReplySegment {
    /// This many bytes of `ReplyQueue::bytes`.
    Bytes(usize),
    Data(Buffer, Range<usize>),
}

/// Data to send: small parts copied, and buffers owned until they are sent.
#[derive(Debug, Default)]
pub struct ReplyQueue {
    bytes: Vec<u8>,
    /// Bytes of `bytes` that are sent.
    sent: usize,
    segments: VecDeque<ReplySegment>,
}

impl ReplyQueue {
    /// True if everything is sent.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Returns the unsent bytes of headers and messages; buffers are not counted.
    pub fn header_bytes(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Appends a copy of `bytes`.
    pub fn push(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.bytes.extend_from_slice(bytes);
        match self.segments.back_mut() {
            Some(ReplySegment::Bytes(count)) => *count += bytes.len(),
            _ => self.segments.push_back(ReplySegment::Bytes(bytes.len())),
        }
    }

    /// Appends a range of `buffer`, which is given back when it is sent.
    pub(crate) fn push_data(&mut self, buffer: Buffer, range: Range<usize>) {
        debug_assert!(!range.is_empty() && range.end <= buffer.len());
        self.segments.push_back(ReplySegment::Data(buffer, range));
    }

    /// Fills `slices` with the first unsent data; returns how many are filled.
    pub(crate) fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut at = self.sent;
        for (slice, segment) in slices.iter_mut().zip(&self.segments) {
            *slice = match segment {
                ReplySegment::Bytes(count) => {
                    at += count;
                    IoSlice::new(&self.bytes[at - count..at])
                }
                ReplySegment::Data(buffer, range) => IoSlice::new(&buffer[range.clone()]),
            };
        }
        slices.len().min(self.segments.len())
    }

    /// Removes the first `count` bytes, which are sent, and gives their buffers back.
    pub(crate) fn advance(&mut self, mut count: usize, mut give: impl FnMut(Buffer)) {
        while count > 0 {
            let Some(first) = self.segments.front_mut() else {
                debug_assert!(false, "more bytes sent than there were");
                return;
            };
            let (left, step) = match first {
                ReplySegment::Bytes(left) => {
                    let step = count.min(*left);
                    *left -= step;
                    self.sent += step;
                    (*left, step)
                }
                ReplySegment::Data(_, range) => {
                    let step = count.min(range.len());
                    range.start += step;
                    (range.len(), step)
                }
            };
            count -= step;
            if left == 0
                && let Some(ReplySegment::Data(buffer, _)) = self.segments.pop_front()
            {
                give(buffer);
            }
        }
        self.compact();
    }

    /// Drops everything and gives the buffers back.
    pub(crate) fn clear(&mut self, mut give: impl FnMut(Buffer)) {
        for segment in self.segments.drain(..) {
            if let ReplySegment::Data(buffer, _) = segment {
                give(buffer);
            }
        }
        self.bytes.clear();
        self.sent = 0;
    }

    fn compact(&mut self) {
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        } else if self.sent >= COMPACT_BYTES {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Takes all unsent data as one vector.
    #[cfg(test)]
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut slices = vec![IoSlice::new(&[]); self.segments.len()];
        let filled = self.gather(&mut slices);
        let bytes = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
        self.clear(drop);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn buffer(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::alloc(4096);
        buffer[..bytes.len()].copy_from_slice(bytes);
        buffer
    }

    #[test]
    fn headers_in_a_row_are_one_segment() {
        let mut replies = ReplyQueue::default();
        replies.push(b"one");
        replies.push(b"two");
        replies.push(b"");
        assert_eq!(replies.segments.len(), 1);
        assert_eq!(replies.header_bytes(), 6);
        assert_eq!(replies.take(), b"onetwo");
        assert!(replies.is_empty());
    }

    proptest! {
        #[test]
        fn bytes_leave_in_order_whatever_is_accepted(
            parts in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 1..200)), 1..40),
            steps in prop::collection::vec((1usize..300, 1usize..8), 1..400),
        ) {
            let (mut replies, mut wanted, mut datas) = (ReplyQueue::default(), Vec::new(), 0);
            for (data, bytes) in &parts {
                wanted.extend_from_slice(bytes);
                if *data {
                    datas += 1;
                    replies.push_data(buffer(bytes), 0..bytes.len());
                } else {
                    replies.push(bytes);
                }
            }
            let (mut sent, mut given) = (Vec::new(), 0);
            for (most, slices_max) in steps.into_iter().chain(std::iter::repeat((1 << 20, 3))) {
                if replies.is_empty() {
                    break;
                }
                let mut slices = vec![IoSlice::new(&[]); slices_max];
                let filled = replies.gather(&mut slices);
                let bytes: Vec<u8> = slices[..filled].iter().flat_map(|s| s.to_vec()).collect();
                let accepted = bytes.len().min(most);
                sent.extend_from_slice(&bytes[..accepted]);
                replies.advance(accepted, |_| given += 1);
            }
            prop_assert_eq!(sent, wanted);
            prop_assert_eq!(given, datas);
            prop_assert_eq!(replies.header_bytes(), 0);
        }
    }
}

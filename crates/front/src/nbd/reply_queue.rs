//! Replies of one connection to be sent: headers and ranges of buffers, in order, for gather sends.

use roadtrain_system::buffer::Buffer;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

/// Sent bytes at which the header buffer is compacted.
const COMPACT_BYTES: usize = 16 << 10;

#[derive(Debug)]
enum ReplySegment {
    /// This many bytes of `ReplyQueue::octets`.
    Octets(usize),
    Data(Buffer, Range<usize>),
}

/// Data to send: small parts copied, and buffers owned until they are sent.
#[derive(Debug, Default)]
pub struct ReplyQueue {
    octets: Vec<u8>,
    /// Bytes of `octets` that are sent.
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
        self.octets.len() - self.sent
    }

    /// Appends a copy of `octets`.
    pub fn push(&mut self, octets: &[u8]) {
        if octets.is_empty() {
            return;
        }
        self.octets.extend_from_slice(octets);
        match self.segments.back_mut() {
            Some(ReplySegment::Octets(count)) => *count += octets.len(),
            _ => self.segments.push_back(ReplySegment::Octets(octets.len())),
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
                ReplySegment::Octets(count) => {
                    at += count;
                    IoSlice::new(&self.octets[at - count..at])
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
                debug_assert!(false, "more octets sent than there were");
                return;
            };
            let (left, step) = match first {
                ReplySegment::Octets(left) => {
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
        self.octets.clear();
        self.sent = 0;
    }

    fn compact(&mut self) {
        if self.sent == self.octets.len() {
            self.octets.clear();
            self.sent = 0;
        } else if self.sent >= COMPACT_BYTES {
            self.octets.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Takes all unsent data as one vector.
    #[cfg(test)]
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut slices = vec![IoSlice::new(&[]); self.segments.len()];
        let filled = self.gather(&mut slices);
        let octets = slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect();
        self.clear(drop);
        octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn buffer(octets: &[u8]) -> Buffer {
        let mut buffer = Buffer::alloc(4096);
        buffer[..octets.len()].copy_from_slice(octets);
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
        fn octets_leave_in_order_whatever_is_accepted(
            parts in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 1..200)), 1..40),
            steps in prop::collection::vec((1usize..300, 1usize..8), 1..400),
        ) {
            let (mut replies, mut wanted, mut datas) = (ReplyQueue::default(), Vec::new(), 0);
            for (data, octets) in &parts {
                wanted.extend_from_slice(octets);
                if *data {
                    datas += 1;
                    replies.push_data(buffer(octets), 0..octets.len());
                } else {
                    replies.push(octets);
                }
            }
            let (mut sent, mut given) = (Vec::new(), 0);
            for (most, slices_max) in steps.into_iter().chain(std::iter::repeat((1 << 20, 3))) {
                if replies.is_empty() {
                    break;
                }
                let mut slices = vec![IoSlice::new(&[]); slices_max];
                let filled = replies.gather(&mut slices);
                let octets: Vec<u8> = slices[..filled].iter().flat_map(|s| s.to_vec()).collect();
                let accepted = octets.len().min(most);
                sent.extend_from_slice(&octets[..accepted]);
                replies.advance(accepted, |_| given += 1);
            }
            prop_assert_eq!(sent, wanted);
            prop_assert_eq!(given, datas);
            prop_assert_eq!(replies.header_bytes(), 0);
        }
    }
}

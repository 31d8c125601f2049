//! A TCP connection: frames in and out of its stream.

use super::{TSocketsPeer, mac};
use roadtrain_ether_port::port::ETHERNET_HEADER_BYTES;
use roadtrain_wire::ether::{FRAME_HEADER_BYTES, FrameHeader, MacAddress, VERSION};
use roadtrain_wire::zerocopy::FromBytes;
use socket2::Socket;
use std::io::{self, Read, Write};
use std::mem;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

/// Bytes received before they are handled; more than four of the largest frames.
const INPUT_BYTES: usize = 320 << 10;
/// Bytes that may wait for TCP to take them.
const WAITING_MAX: usize = 64 << 20;

/// Frames that were not taken.
pub(super) struct Dropped;

pub(super) struct TSocketsPipe {
    socket: Socket,
    ip: Ipv4Addr,
    /// Socket number of the other end; `None` until its first frame.
    socket_number: Option<u16>,
    /// With room for Ethernet's header before the first frame; made when something comes.
    input: Vec<u8>,
    /// Limits of the bytes that were not shown yet: from, to.
    unread: (usize, usize),
    /// Bytes that the socket had no room for, from `waits_from` on.
    waiting: Vec<u8>,
    waits_from: usize,
    is_connecting: bool,
    /// Its room to send is watched.
    is_watched: bool,
    is_closed: bool,
}

impl TSocketsPipe {
    /// Over `socket`, which may still be connecting if the socket number is known.
    pub(super) fn new(socket: Socket, ip: Ipv4Addr, socket_number: Option<u16>) -> Self {
        TSocketsPipe {
            socket,
            ip,
            socket_number,
            input: Vec::new(),
            unread: (ETHERNET_HEADER_BYTES, ETHERNET_HEADER_BYTES),
            waiting: Vec::new(),
            waits_from: 0,
            is_connecting: socket_number.is_some(),
            is_watched: socket_number.is_some(),
            is_closed: false,
        }
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(super) fn leads_to(&self, end: TSocketsPeer) -> bool {
        !self.is_closed && (self.ip, self.socket_number) == (end.ip, Some(end.socket_number))
    }

    /// Nothing waits for room to send.
    pub(super) fn is_calm(&self) -> bool {
        !self.is_connecting && self.waiting.is_empty()
    }

    /// True or false when its room to send is to be watched, or no longer.
    pub(super) fn change_of_watch(&mut self) -> Option<bool> {
        let wanted = !self.is_calm();
        (mem::replace(&mut self.is_watched, wanted) != wanted).then_some(wanted)
    }

    /// It is of no use any more, but for what was received.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// It is of no use any more at all.
    pub(super) fn is_over(&self) -> bool {
        self.is_closed && !self.has_frame()
    }

    /// Sends frames, or keeps them until there is room.
    ///
    /// # Safety
    /// Every piece is readable.
    pub(super) unsafe fn send(&mut self, pieces: &mut [libc::iovec]) -> Result<(), Dropped> {
        let mut taken = 0;
        if self.is_calm() {
            // SAFETY: an all-zero header is valid: no address, no control data.
            let mut message: libc::msghdr = unsafe { mem::zeroed() };
            message.msg_iov = pieces.as_mut_ptr();
            message.msg_iovlen = pieces.len() as _;
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: the message names the pieces, readable by the caller's promise.
            let sent = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const message, flags) };
            match usize::try_from(sent) {
                Ok(bytes) => taken = bytes,
                Err(_) if is_for_now(&io::Error::last_os_error()) => {}
                Err(_) => {
                    self.is_closed = true; // its end is noticed when it is received from
                    return Err(Dropped);
                }
            }
        }
        if self.waiting.len() - self.waits_from > WAITING_MAX {
            return Err(Dropped); // nothing of these frames has gone: something waits
        }
        for piece in pieces {
            let skip = taken.min(piece.iov_len);
            taken -= skip;
            // SAFETY: readable by the caller's promise.
            let bytes =
                unsafe { std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) };
            self.waiting.extend_from_slice(&bytes[skip..]);
        }
        Ok(())
    }

    /// There is room to send, or it turns out that there is no connection.
    ///
    /// # Errors
    /// The connection is over.
    pub(super) fn writable(&mut self) -> io::Result<()> {
        if mem::take(&mut self.is_connecting)
            && let Some(error) = self.socket.take_error()?
        {
            return Err(error);
        }
        while self.waits_from < self.waiting.len() {
            match (&self.socket).write(&self.waiting[self.waits_from..]) {
                Ok(bytes) => self.waits_from += bytes,
                Err(error) if is_for_now(&error) => break,
                Err(error) => return Err(error),
            }
        }
        if self.waits_from > self.waiting.len() / 2 {
            self.waiting.drain(..self.waits_from);
            self.waits_from = 0;
        }
        Ok(())
    }

    /// Receives what has come, once.
    ///
    /// # Errors
    /// The connection is over.
    pub(super) fn receive(&mut self) -> io::Result<()> {
        if self.input.is_empty() {
            self.input = vec![0; INPUT_BYTES];
        }
        let (from, to) = self.unread;
        if from > INPUT_BYTES / 2 || from == to {
            self.input.copy_within(from..to, ETHERNET_HEADER_BYTES);
            self.unread = (ETHERNET_HEADER_BYTES, ETHERNET_HEADER_BYTES + to - from);
        }
        let room = &mut self.input[self.unread.1..];
        if room.is_empty() {
            return Ok(()); // what is there is shown first
        }
        match (&self.socket).read(room) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                self.unread.1 += bytes;
                Ok(())
            }
            Err(error) if is_for_now(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The frame that comes next, if all of it is there: where it begins and ends, and its REPLY.
    fn frame(&self) -> Option<(usize, usize, u16)> {
        let (from, to) = self.unread;
        let (header, _) = FrameHeader::ref_from_prefix(self.input.get(from..to)?).ok()?;
        let end = from + FRAME_HEADER_BYTES + usize::from(header.body.get());
        (end <= to).then_some((from, end, header.reply.get()))
    }

    /// True if a frame was received that was not shown.
    pub(super) fn has_frame(&self) -> bool {
        self.frame().is_some()
    }

    /// Shows up to `max` frames that have come, each behind an Ethernet's header; how many.
    pub(super) fn show(
        &mut self,
        max: usize,
        local: MacAddress,
        show: &mut dyn FnMut(&[u8]),
    ) -> usize {
        let mut shown = 0;
        while shown < max
            && let Some((from, end, reply)) = self.frame()
        {
            if self.input[from] != VERSION {
                self.is_closed = true; // no frame, so the next one is not to be found
                self.unread = (ETHERNET_HEADER_BYTES, ETHERNET_HEADER_BYTES);
                break;
            }
            self.socket_number.get_or_insert(reply);
            // Over the end of the frame before, or the room in front of the first.
            let outside = &mut self.input[from - ETHERNET_HEADER_BYTES..end];
            outside[..6].copy_from_slice(&local.0);
            outside[6..12].copy_from_slice(&mac(self.ip).0);
            show(outside);
            self.unread.0 = end;
            shown += 1;
        }
        shown
    }
}

fn is_for_now(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        || error.raw_os_error() == Some(libc::EINPROGRESS)
}

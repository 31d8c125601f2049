//! The frontend's channel for the backend's requests, which notifies it of a changed configuration.
//!
//! The `vhost` crate wraps the channel in a type that cannot send this notification. So the one message that carries
//! the channel is received here, before the crate sees it.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send,
};
use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// VHOST_USER_SET_BACKEND_REQ_FD
const SET_BACKEND_REQ_FD: u32 = 21;
/// VHOST_USER_BACKEND_CONFIG_CHANGE_MSG
const CONFIG_CHANGE: u32 = 2;
const VERSION: u32 = 1;
const IS_REPLY: u32 = 4;
const NEEDS_REPLY: u32 = 8;
/// Bytes of the header: request, flags, size of the payload.
const HEADER_BYTES: usize = 12;

/// Channel on which the frontend receives the backend's requests.
pub(crate) struct BackendChannel(OwnedFd);

impl BackendChannel {
    /// Returns the channel, if the next message of `stream`, which is readable, carries one.
    ///
    /// # Errors
    /// Fails if the message is invalid.
    pub(crate) fn receive(stream: &UnixStream) -> io::Result<Option<Self>> {
        let mut bytes = [0; HEADER_BYTES];
        let (peeked, _) = recv(stream, &mut bytes, RecvFlags::PEEK)?;
        let [request, flags, size] = words(&bytes);
        if peeked < HEADER_BYTES || request != SET_BACKEND_REQ_FD {
            return Ok(None);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut bytes)];
        recvmsg(stream, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let files = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let file = files.flatten().next().filter(|_| size == 0);
        if flags & NEEDS_REPLY != 0 {
            let failed = u32::from(file.is_none());
            let reply = [SET_BACKEND_REQ_FD, VERSION | IS_REPLY, 8, failed, 0];
            send(stream, &bytes_of(&reply), SendFlags::NOSIGNAL)?;
        }
        let wrong = || io::Error::new(ErrorKind::InvalidData, "a channel without a descriptor");
        file.map(BackendChannel).map(Some).ok_or_else(wrong)
    }

    /// Notifies the frontend that the configuration space has changed. Requests no reply: the frontend reads the
    /// configuration, from the thread that would wait for the reply.
    ///
    /// # Errors
    /// Fails if the frontend does not take the message.
    pub(crate) fn config_changed(&self) -> io::Result<()> {
        let message = bytes_of(&[CONFIG_CHANGE, VERSION, 0]);
        send(&self.0, &message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(())
    }
}

fn words(bytes: &[u8; HEADER_BYTES]) -> [u32; 3] {
    let word =
        |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    [word(0), word(4), word(8)]
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

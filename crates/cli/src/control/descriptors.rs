//! Transfer of file descriptors with a line on a Unix socket, and peer credentials.

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, UCred, recvmsg, sendmsg, sockopt,
};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Most descriptors of a message in the kernel (SCM_MAX_FD).
pub(crate) const DESCRIPTORS_MAX: usize = 253;
/// Longest line with descriptors.
const LINE_BYTES_MAX: usize = 4096;

/// Sends a short line with descriptors.
///
/// # Errors
/// The peer is gone, or does not accept it.
pub(super) fn send(
    stream: &UnixStream,
    line: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = vec![MaybeUninit::uninit(); space()];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(ErrorKind::InvalidInput, "too many descriptors"));
    }
    let sent = sendmsg(stream, &[IoSlice::new(line)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == line.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

/// Receives a line with its descriptors, which are close-on-exec.
///
/// # Errors
/// The peer is gone, or sends an incomplete line.
pub(super) fn receive(stream: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut space = vec![MaybeUninit::uninit(); space()];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut line = vec![0; LINE_BYTES_MAX];
    let received = loop {
        let mut places = [IoSliceMut::new(&mut line)];
        match recvmsg(stream, &mut places, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    line.truncate(received.bytes);
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            descriptors.extend(some);
        }
    }
    match line.last() {
        None => Err(ErrorKind::UnexpectedEof.into()),
        Some(b'\n') if !received.flags.contains(ReturnFlags::CTRUNC) => Ok((line, descriptors)),
        Some(_) => Err(io::Error::new(ErrorKind::InvalidData, "it has not come as a whole")),
    }
}

/// Returns the credentials of the peer.
///
/// # Errors
/// The kernel does not report them.
pub(crate) fn peer(stream: &UnixStream) -> io::Result<UCred> {
    Ok(sockopt::socket_peercred(stream)?)
}

fn space() -> usize {
    rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    #[test]
    fn descriptors_come_with_their_line() {
        let (here, there) = UnixStream::pair().unwrap();
        let (mut kept, given) = UnixStream::pair().unwrap();
        send(&here, b"all\n", &vec![given.as_fd(); DESCRIPTORS_MAX]).unwrap();
        drop(given);
        let (line, mut descriptors) = receive(&there).unwrap();
        assert_eq!((&line[..], descriptors.len()), (&b"all\n"[..], DESCRIPTORS_MAX));
        let flags = rustix::io::fcntl_getfd(&descriptors[0]).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        let mut last = UnixStream::from(descriptors.remove(7));
        drop(descriptors);
        last.write_all(b"x").unwrap();
        let mut byte = [0];
        kept.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
        assert!(send(&here, b"x\n", &vec![last.as_fd(); DESCRIPTORS_MAX + 1]).is_err());
    }

    #[test]
    fn half_a_line_and_nothing_are_errors() {
        let (here, there) = UnixStream::pair().unwrap();
        send(&here, b"half", &[]).unwrap();
        assert_eq!(receive(&there).unwrap_err().kind(), ErrorKind::InvalidData);
        drop(here);
        assert_eq!(receive(&there).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn the_other_end_is_known() {
        let (here, _there) = UnixStream::pair().unwrap();
        let peer = peer(&here).unwrap();
        assert_eq!(peer.pid.as_raw_nonzero().get() as u32, std::process::id());
        assert_eq!(peer.uid, rustix::process::geteuid());
    }
}

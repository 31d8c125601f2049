//! TLS by the kernel: after the handshake it has the keys, and the socket carries bytes as a plain one does.
//!
//! Records without data arrive one at a time: alerts, and changes of the peer's key.

use super::{Incoming, message_of};
use roadtrain_system::platform::mptcp;
use roadtrain_tls::{
    CONTENT_TYPE_ALERT, CONTENT_TYPE_DATA, CONTENT_TYPE_HANDSHAKE, IDLE_MAX, KEY_UPDATE_MESSAGE,
    TlsError, TlsSessionKeys, TrafficSecret, alert_message, parse_control_record, sealed_blocks,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::slice::from_raw_parts;
use std::sync::OnceLock;

/// Constants from linux/tcp.h, linux/socket.h and linux/tls.h.
const TCP_ULP: libc::c_int = 31;
const SOL_TLS: libc::c_int = 282;
const TLS_TX: libc::c_int = 1;
const TLS_RX: libc::c_int = 2;
const TLS_SET_RECORD_TYPE: libc::c_int = 1;
const TLS_GET_RECORD_TYPE: libc::c_int = 2;

/// Size of a control message with one byte.
// SAFETY: a computation without memory access.
const CONTROL_BYTES: usize = unsafe { libc::CMSG_SPACE(1) } as usize;

/// Buffer for a control message, aligned as its header.
#[repr(C, align(8))]
struct ControlBuffer([u8; CONTROL_BYTES]);

/// One direction of a connection.
struct KernelTlsHalf {
    secret: TrafficSecret,
    option: libc::c_int,
    blocks_left: u64,
    blocks_max: u64,
}

impl KernelTlsHalf {
    fn new(secret: &TrafficSecret, option: libc::c_int, blocks_max: u64) -> Self {
        KernelTlsHalf { secret: secret.clone(), option, blocks_left: blocks_max, blocks_max }
    }

    /// Gives the key to the kernel.
    fn install(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let key = self.secret.for_linux()?;
        set_option(socket, SOL_TLS, self.option, &key)
    }

    /// Replaces the key by the next one.
    fn update(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.secret = self.secret.next()?;
        self.blocks_left = self.blocks_max;
        let refused =
            |error| io::Error::other(format!("the kernel takes no next TLS key: {error}"));
        self.install(socket).map_err(refused)
    }

    /// Counts bytes that were sealed or opened, in as few records as possible.
    fn count(&mut self, bytes: usize) -> io::Result<()> {
        let left = self.blocks_left.checked_sub(sealed_blocks(bytes));
        self.blocks_left = left.ok_or(TlsError::UsedUp)?;
        Ok(())
    }
}

/// A stream whose records the kernel seals and opens.
pub struct KernelTls {
    socket: OwnedFd,
    sends: KernelTlsHalf,
    receives: KernelTlsHalf,
    is_host: bool,
    /// True if the last receive filled its buffers, or ended at a record without data.
    is_full: bool,
    is_closed: bool,
    /// True if the peer has requested another key for our next data.
    update_due: bool,
}

impl AsFd for KernelTls {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &[u8],
) -> io::Result<()> {
    let length = value.len() as libc::socklen_t;
    // SAFETY: the kernel reads the value, which is `length` long.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), length)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Result of the first try to enable TLS. Each further try may have the kernel search for a module.
static KERNEL_HAS_TLS: OnceLock<bool> = OnceLock::new();

/// True if the socket is ready for keys. Those of MPTCP never are, and prove nothing about others.
fn is_offered(socket: BorrowedFd<'_>) -> bool {
    if mptcp::is_mptcp(&socket) {
        return false;
    }
    let enable = || set_option(socket, libc::SOL_TCP, TCP_ULP, b"tls\0").is_ok();
    let mut enabled = None;
    let known = *KERNEL_HAS_TLS.get_or_init(|| *enabled.insert(enable()));
    known && enabled.unwrap_or_else(enable)
}

impl KernelTls {
    /// Gives the keys of a handshake to the kernel; returns the socket where the kernel has no TLS.
    ///
    /// # Errors
    /// The kernel has taken the keys of one direction only, so the connection has to end.
    pub(super) fn new(socket: OwnedFd, keys: &TlsSessionKeys) -> io::Result<Result<Self, OwnedFd>> {
        if !keys.rest.is_empty() || !is_offered(socket.as_fd()) {
            return Ok(Err(socket));
        }
        let receives = KernelTlsHalf::new(keys.opener.secret(), TLS_RX, keys.blocks_max);
        let sends = KernelTlsHalf::new(keys.sealer.secret(), TLS_TX, keys.blocks_max);
        if receives.install(socket.as_fd()).is_err() {
            return Ok(Err(socket));
        }
        sends.install(socket.as_fd())?;
        let is_host = keys.is_host;
        let (is_full, is_closed, update_due) = (false, false, false);
        Ok(Ok(KernelTls { socket, sends, receives, is_host, is_full, is_closed, update_due }))
    }

    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// # Safety
    /// The places name writable memory that nothing else uses meanwhile, for more bytes than a record has.
    pub(super) unsafe fn receive(&mut self, places: &mut [libc::iovec]) -> io::Result<Incoming> {
        let room: usize = places.iter().map(|place| place.iov_len).sum();
        for _ in 0..IDLE_MAX {
            if self.is_closed {
                return Ok(Incoming::Closed);
            }
            // SAFETY: by this function's contract.
            let (incoming, kind) = match unsafe { self.receive_records(places) } {
                Err(error) if error.raw_os_error() == Some(libc::EBADMSG) => {
                    return Err(self.refuse(TlsError::Tag));
                }
                received => received?,
            };
            let Incoming::Bytes(got) = incoming else {
                self.is_full = false;
                return Ok(incoming);
            };
            if kind == CONTENT_TYPE_DATA {
                self.receives.count(got)?;
                self.is_full = got == room;
                return Ok(Incoming::Bytes(got));
            }
            // SAFETY: the kernel has written that many bytes there.
            self.handle_control_record(kind, &unsafe { copied(places, got) })?;
        }
        Err(self.refuse(TlsError::Idle))
    }

    /// Receives once: bytes of records of one type.
    ///
    /// # Safety
    /// As [`KernelTls::receive`].
    unsafe fn receive_records(&mut self, places: &mut [libc::iovec]) -> io::Result<(Incoming, u8)> {
        let mut control = ControlBuffer([0; CONTROL_BYTES]);
        let mut message = message_of(places);
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = CONTROL_BYTES;
        // SAFETY: the places by this function's contract; the control message has its buffer.
        let incoming = unsafe { super::receive(self.socket.as_raw_fd(), &mut message) }?;
        // SAFETY: the kernel has written the header of a control message, or its absence.
        let kind = unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            match header.as_ref() {
                Some(h) if (h.cmsg_level, h.cmsg_type) == (SOL_TLS, TLS_GET_RECORD_TYPE) => {
                    *libc::CMSG_DATA(header)
                }
                _ => CONTENT_TYPE_DATA,
            }
        };
        Ok((incoming, kind))
    }

    /// Handles a record without data.
    fn handle_control_record(&mut self, kind: u8, content: &[u8]) -> io::Result<()> {
        let record = parse_control_record(kind, content, self.is_host)
            .map_err(|error| self.refuse(error))?;
        if record.key_updated {
            self.receives.update(self.socket.as_fd())?;
        }
        self.is_closed |= record.closed;
        self.update_due |= record.key_requested;
        Ok(())
    }

    /// Makes the socket ready for data. False if it has no capacity for a record that has to leave before.
    pub(super) fn prepare(&mut self) -> io::Result<bool> {
        if self.update_due {
            if !self.send_message(CONTENT_TYPE_HANDSHAKE, &KEY_UPDATE_MESSAGE) {
                return Ok(false);
            }
            self.sends.update(self.socket.as_fd())?;
            self.update_due = false;
        }
        Ok(true)
    }

    /// Counts bytes that the socket has taken.
    pub(super) fn sent(&mut self, bytes: usize) -> io::Result<()> {
        self.sends.count(bytes)
    }

    /// Sends the alert that ends the stream.
    pub(super) fn close_notify(&self) {
        self.send_message(CONTENT_TYPE_ALERT, &alert_message(0));
    }

    /// Sends the alert of an error, and returns the error.
    fn refuse(&self, error: TlsError) -> io::Error {
        // A record that does not open is an error of the socket, which the next send would return.
        let _ = socket2::SockRef::from(&self.socket).take_error();
        self.send_message(CONTENT_TYPE_ALERT, &alert_message(error.alert()));
        error.into()
    }

    /// Sends a record without data. True if the socket had capacity for it.
    fn send_message(&self, kind: u8, content: &[u8]) -> bool {
        let mut control = ControlBuffer([0; CONTROL_BYTES]);
        let (iov_base, iov_len) = (content.as_ptr().cast_mut().cast(), content.len());
        let mut places = [libc::iovec { iov_base, iov_len }];
        let mut message = message_of(&mut places);
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = CONTROL_BYTES;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the buffer holds the one control message; the kernel only reads what the message names.
        let sent = unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = SOL_TLS;
            (*header).cmsg_type = TLS_SET_RECORD_TYPE;
            (*header).cmsg_len = libc::CMSG_LEN(1) as usize;
            *libc::CMSG_DATA(header) = kind;
            libc::sendmsg(self.socket.as_raw_fd(), &raw const message, flags)
        };
        sent == content.len() as isize
    }
}

/// Copies the first `length` bytes of `places`.
///
/// # Safety
/// The bytes are initialised.
unsafe fn copied(places: &[libc::iovec], length: usize) -> Vec<u8> {
    let mut all = Vec::with_capacity(length);
    for place in places {
        let count = place.iov_len.min(length - all.len());
        if count > 0 {
            // SAFETY: by this function's contract.
            all.extend_from_slice(unsafe { from_raw_parts(place.iov_base.cast::<u8>(), count) });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::ConnectionStream;
    use super::super::tests::{receive, send, wait_readable};
    use super::super::tls::TlsStream;
    use super::super::tls::tests::{far_and_near, keys};
    use super::*;
    use roadtrain_tls::BLOCKS_MAX;
    use std::io::Write;
    use std::net::TcpStream;

    /// A peer with user-space TLS and a near end with kernel TLS, for `blocks` blocks; `None`, with a message, where
    /// the kernel has no TLS.
    fn kernels(test: &str, blocks: u64) -> Option<(TlsStream, ConnectionStream)> {
        let [(far, host), (near, target)] = far_and_near();
        let near = match KernelTls::new(near, &keys(target, blocks)).unwrap() {
            Ok(tls) => ConnectionStream::KernelTls(Box::new(tls)),
            Err(_) => {
                println!("SKIPPED {test}: this kernel has no TLS");
                return None;
            }
        };
        Some((TlsStream::new(far, keys(host, BLOCKS_MAX)), near))
    }

    /// Waits for the next bytes or the end.
    fn wait_for(stream: &mut ConnectionStream, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match receive(stream, bytes)? {
                Incoming::Bytes(got) => return Ok(got),
                Incoming::Closed => return Ok(0),
                Incoming::Nothing => wait_readable(stream),
            }
        }
    }

    /// The peer's key changes between data, with and without a request for another one of ours. A kernel that takes no
    /// second key ends the connection, with an error.
    #[test]
    fn keys_of_the_peer_change() {
        let Some((far, mut near)) = kernels("keys_of_the_peer_change", BLOCKS_MAX) else { return };
        let mut far = ConnectionStream::Tls(Box::new(far));
        let mut bytes = vec![0; 64 << 10];
        for round in 0..6u8 {
            let ConnectionStream::Tls(tls) = &mut far else { unreachable!("it is") };
            tls.update(round.is_multiple_of(2));
            assert_eq!(send(&mut far, &[round; 5000]).unwrap(), Some(5000));
            match wait_for(&mut near, &mut bytes) {
                Ok(got) => assert!(got == 5000 && bytes[..5000] == [round; 5000], "{got}"),
                Err(error) => {
                    let error = error.to_string();
                    return assert!(error.contains("takes no next TLS key"), "{error}");
                }
            }
            assert_eq!(send(&mut near, &[round; 3000]).unwrap(), Some(3000));
            assert_eq!(wait_for(&mut far, &mut bytes).unwrap(), 3000);
            assert_eq!(bytes[..3000], [round; 3000]);
        }
    }

    /// The first socket decides for the process, unless it is of MPTCP.
    #[test]
    fn a_socket_of_mptcp_does_not_decide_for_those_of_tcp() {
        let socket = mptcp::stream_socket(socket2::Domain::IPV4, true).unwrap();
        assert!(!mptcp::is_mptcp(&socket) || !is_offered(socket.as_fd()));
        let [(far, _), (near, _)] = far_and_near();
        let has_tls = set_option(far.as_fd(), libc::SOL_TCP, TCP_ULP, b"tls\0").is_ok();
        assert_eq!(is_offered(near.as_fd()), has_tls);
    }

    #[test]
    fn used_up_keys_end_the_stream() {
        let test = "used_up_keys_end_the_stream";
        let Some((_far, mut near)) = kernels(test, 100) else { return };
        send(&mut near, &[0; 1000]).unwrap();
        let error = send(&mut near, &[0; 1000]).unwrap_err();
        assert!(error.to_string().contains("used up"), "{error}");

        let Some((far, mut near)) = kernels(test, 100) else { return };
        let mut far = ConnectionStream::Tls(Box::new(far));
        let mut bytes = vec![0; 64 << 10];
        send(&mut far, &[1; 1000]).unwrap();
        assert_eq!(wait_for(&mut near, &mut bytes).unwrap(), 1000);
        send(&mut far, &[1; 1000]).unwrap();
        let error = wait_for(&mut near, &mut bytes).unwrap_err();
        assert!(error.to_string().contains("used up"), "{error}");
    }

    /// Bytes that were not sealed end the stream, and the peer receives the reason.
    #[test]
    fn the_peer_receives_the_alert() {
        let test = "the_peer_receives_the_alert";
        let Some((far, mut near)) = kernels(test, BLOCKS_MAX) else { return };
        let mut bytes = vec![0; 64 << 10];
        let mut forged = vec![23, 3, 3, 0, 32];
        forged.resize(5 + 32, 9);
        let mut raw = TcpStream::from(far.as_fd().try_clone_to_owned().unwrap());
        raw.write_all(&forged).unwrap();
        let error = wait_for(&mut near, &mut bytes).unwrap_err();
        assert_eq!(error.to_string(), "a TLS record whose tag is wrong");
        let error = wait_for(&mut ConnectionStream::Tls(Box::new(far)), &mut bytes).unwrap_err();
        assert!(error.to_string().contains("bad_record_mac"), "{error}");
    }

    #[test]
    fn an_orderly_end_is_reported() {
        let Some((far, mut near)) = kernels("an_orderly_end_is_reported", BLOCKS_MAX) else {
            return;
        };
        let mut bytes = vec![0; 64 << 10];
        let mut far = ConnectionStream::Tls(Box::new(far));
        send(&mut far, b"last").unwrap();
        far.end();
        assert_eq!(wait_for(&mut near, &mut bytes).unwrap(), 4);
        assert_eq!(wait_for(&mut near, &mut bytes).unwrap(), 0);
        near.end();
        assert_eq!(wait_for(&mut far, &mut bytes).unwrap(), 0);
    }
}

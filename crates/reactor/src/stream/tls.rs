//! TLS in user space: sent bytes are sealed into one buffer, received bytes are opened into their destination.
//!
//! The two buffers belong to the thread and are shared by its streams, so an idle connection holds no memory of its
//! own. `roadtrain_tls::TlsRecords` processes records; this module connects it to the socket.

use super::{Incoming, RecvFlags, send_bytes};
use roadtrain_system::memory::{CACHE_LINE_BYTES, prefetch};
use roadtrain_tls::{RecordSocket, TlsRecords, TlsSessionKeys};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes sealed at once, and so in one send: the caches hold them while the kernel copies.
const SEALED_BYTES: usize = 256 << 10;
/// Bytes received at once.
const RECEIVED_BYTES: usize = 512 << 10;
/// Distance of the piece whose bytes are prefetched from the one that is sealed: a header and its data. Reads of 4 KiB
/// from a large memory gain 13 % of their throughput.
const PREFETCH_DISTANCE: usize = 2;
/// Maximum cache lines of a piece that are prefetched: 4 KiB. The processor itself fetches the rest of longer ones.
const PREFETCH_LINES_MAX: usize = 64;
/// Maximum buffers of a receive: one for payload, and the buffer after it.
const PLACES_MAX: usize = 2;

/// Buffers of a thread.
struct Scratch {
    sealed: Box<[u8]>,
    received: Box<[u8]>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        sealed: vec![0; SEALED_BYTES].into_boxed_slice(),
        received: vec![0; RECEIVED_BYTES].into_boxed_slice(),
    });
}

/// A stream whose handshake is complete.
pub struct TlsStream {
    socket: TlsSocket,
    records: TlsRecords,
}

/// Socket below the records.
struct TlsSocket(OwnedFd);

impl RecordSocket for TlsSocket {
    type Error = io::Error;

    fn send(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        send_bytes(self.0.as_fd(), bytes)
    }

    fn receive(&mut self, place: &mut [u8]) -> io::Result<Incoming> {
        super::receive_bytes(self.0.as_fd(), place, RecvFlags::empty())
    }
}

impl AsFd for TlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.0.as_fd()
    }
}

impl TlsStream {
    /// A stream on a socket whose handshake has made `keys`.
    #[inline]
    pub fn new(socket: OwnedFd, keys: TlsSessionKeys) -> Self {
        TlsStream { socket: TlsSocket(socket), records: TlsRecords::new(keys) }
    }

    pub(super) fn is_full(&self) -> bool {
        self.records.is_full()
    }

    /// # Safety
    /// The places name writable memory that nothing else uses meanwhile, for two records or more.
    pub(super) unsafe fn receive(&mut self, places: &mut [libc::iovec]) -> io::Result<Incoming> {
        debug_assert!(places.len() <= PLACES_MAX);
        let mut slices: [&mut [u8]; PLACES_MAX] = Default::default();
        for (slice, place) in slices.iter_mut().zip(places) {
            if place.iov_len > 0 {
                // SAFETY: writable and ours by this function's contract.
                *slice =
                    unsafe { std::slice::from_raw_parts_mut(place.iov_base.cast(), place.iov_len) };
            }
        }
        SCRATCH.with_borrow_mut(|scratch| {
            self.records.receive(&mut self.socket, &mut scratch.received, &mut slices)
        })
    }

    /// # Safety
    /// The pieces name readable memory.
    pub(super) unsafe fn send(&mut self, pieces: &[libc::iovec]) -> io::Result<Option<usize>> {
        let mut length = 0;
        for piece in pieces {
            length += piece.iov_len;
            if length >= SEALED_BYTES {
                break;
            }
        }
        let bytes = pieces.iter().enumerate().map(|(at, piece)| {
            if let Some(later) = pieces.get(at + PREFETCH_DISTANCE) {
                let lines = later.iov_len.div_ceil(CACHE_LINE_BYTES).min(PREFETCH_LINES_MAX);
                prefetch(later.iov_base.cast(), lines);
            }
            let start = piece.iov_base.cast::<u8>().cast_const();
            // SAFETY: readable by this function's contract; no piece has length 0 or a null pointer.
            unsafe { std::slice::from_raw_parts(start, piece.iov_len) }
        });
        SCRATCH.with_borrow_mut(|scratch| {
            self.records.send(&mut self.socket, bytes, length, &mut scratch.sealed)
        })
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.records.has_unsent()
    }

    pub(super) fn drain(&mut self) -> io::Result<bool> {
        self.records.drain(&mut self.socket)
    }

    #[cfg(test)]
    pub(super) fn update(&mut self, requests_update: bool) {
        self.records.update(requests_update);
    }

    /// Sends the alert that ends the stream.
    pub(super) fn close_notify(&mut self) {
        self.records.close_notify(&mut self.socket);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::ConnectionStream;
    use super::super::tests::{pair, receive, send, wait_readable};
    use super::*;
    use roadtrain_proto::security::{Secret, Suite, TlsPsk};
    use roadtrain_tls::{Acceptor, BLOCKS_MAX, Handshake};
    use std::io::{Read, Write};
    use std::net::TcpStream;

    /// Two sockets with their ends of a complete handshake.
    pub(in super::super) fn far_and_near() -> [(OwnedFd, Handshake); 2] {
        let (far, near) = pair();
        let psk = Secret::new(&[7; 32]);
        let psk = TlsPsk { identity: "someone".into(), psk, suite: Suite::Aes128GcmSha256 };
        let known = psk.clone();
        let acceptor = Acceptor::new(move |_| Some(known.clone())).unwrap();
        let (mut host, mut target) = (Handshake::connect(psk).unwrap(), acceptor.accept().unwrap());
        target.receive(&std::mem::take(host.outgoing())).unwrap();
        host.receive(&std::mem::take(target.outgoing())).unwrap();
        target.receive(&std::mem::take(host.outgoing())).unwrap();
        [(far.into(), host), (near, target)]
    }

    pub(in super::super) fn keys(end: Handshake, blocks: u64) -> TlsSessionKeys {
        end.keys(blocks).unwrap()
    }

    /// Two streams that are secured with the same key, each sealing `blocks` at most.
    fn secured(blocks: u64) -> [ConnectionStream; 2] {
        far_and_near().map(|(socket, end)| {
            ConnectionStream::Tls(Box::new(TlsStream::new(socket, keys(end, blocks))))
        })
    }

    #[test]
    fn bytes_come_and_go() {
        let [mut far, mut near] = secured(BLOCKS_MAX);
        let mut bytes = vec![0; 64 << 10];
        assert_eq!(receive(&mut near, &mut bytes).unwrap(), Incoming::Nothing);
        assert_eq!(send(&mut far, b"hello").unwrap(), Some(5));
        wait_readable(&near);
        assert_eq!(near.unread(), None, "records are no bytes");
        assert_eq!(receive(&mut near, &mut bytes).unwrap(), Incoming::Bytes(5));
        assert_eq!(&bytes[..5], b"hello");
        far.end();
        wait_readable(&near);
        assert_eq!(receive(&mut near, &mut bytes).unwrap(), Incoming::Closed);
    }

    /// More than a socket takes: the taken bytes arrive, in order, as the peer reads.
    #[test]
    fn data_that_the_full_socket_refuses_leaves_later() {
        let [mut far, mut near] = secured(BLOCKS_MAX);
        let data: Vec<u8> = (0..64 << 20).map(|at| (at / 3 + at / 70_000) as u8).collect();
        let mut taken = 0;
        while let Some(sent) = send(&mut far, &data[taken..]).unwrap() {
            taken += sent;
        }
        assert!(!far.drain().unwrap(), "its socket is full");
        let (mut got, mut bytes) = (Vec::new(), vec![0; 300 << 10]);
        while got.len() < taken {
            far.drain().unwrap();
            match receive(&mut near, &mut bytes).unwrap() {
                Incoming::Bytes(count) => got.extend_from_slice(&bytes[..count]),
                Incoming::Nothing => wait_readable(&near),
                Incoming::Closed => panic!("it lives"),
            }
        }
        assert!(far.drain().unwrap() && got == data[..taken]);
    }

    /// Bytes that were not sealed end the stream, and the peer receives the reason.
    #[test]
    fn forged_bytes_are_an_error_with_an_alert() {
        let [mut far, mut near] = secured(BLOCKS_MAX);
        let mut forged = vec![23, 3, 3, 0, 32];
        forged.resize(5 + 32, 9);
        let mut raw = TcpStream::from(far.as_fd().try_clone_to_owned().unwrap());
        raw.write_all(&forged).unwrap();
        wait_readable(&near);
        let mut bytes = vec![0; 64 << 10];
        let error = receive(&mut near, &mut bytes).unwrap_err();
        assert_eq!(error.to_string(), "a TLS record whose tag is wrong");
        wait_readable(&far);
        let error = receive(&mut far, &mut bytes).unwrap_err();
        assert!(error.to_string().contains("bad_record_mac"), "{error}");
    }

    #[test]
    fn sent_data_is_sealed() {
        let [mut far, near] = secured(BLOCKS_MAX);
        send(&mut far, b"a secret that nobody reads").unwrap();
        wait_readable(&near);
        let mut raw = TcpStream::from(near.as_fd().try_clone_to_owned().unwrap());
        let mut bytes = [0; 26 + 22];
        raw.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[..5], [23, 3, 3, 0, 26 + 17]);
        assert!(!bytes.windows(6).any(|part| part == b"secret"));
    }

    #[test]
    fn used_up_keys_end_the_stream() {
        let [mut far, _near] = secured(100);
        send(&mut far, &[0; 1000]).unwrap();
        let error = send(&mut far, &[0; 1000]).unwrap_err();
        assert!(error.to_string().contains("used up"), "{error}");
    }
}

//! Multipath TCP: sockets with fallback to TCP, and the subflows of a connection.
//!
//! The kernel makes and ends subflows (`ip mptcp` configures it) and distributes data over them.

use rustix::io::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Once;
use tracing::{info, warn};

/// Constants from linux/mptcp.h.
const SOL_MPTCP: libc::c_int = 284;
const MPTCP_TCPINFO: libc::c_int = 2;
const MPTCP_SUBFLOW_ADDRS: libc::c_int = 3;

/// Most subflows that are reported; the kernel permits 8 beside the first one.
const SUBFLOWS_MAX: usize = 16;
/// Attempts to read addresses and counters of the same subflows.
const READS: usize = 3;
/// Bytes of a socket address in the kernel's list.
const ADDRESS_BYTES: usize = 128;
/// Bytes of a subflow's addresses: the local and the peer's one.
const ADDRESSES_BYTES: usize = 2 * ADDRESS_BYTES;
/// Bytes of `tcp_info` that are read, and the places of fields in them.
const INFO_BYTES: usize = 136;
const RTT_AT: usize = 68;
const BYTES_ACKED_AT: usize = 120;
const BYTES_RECEIVED_AT: usize = 128;

/// Subflow of a connection over MPTCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MptcpSubflow {
    /// Local address.
    pub local: SocketAddr,
    /// Address of the peer.
    pub peer: SocketAddr,
    /// Smoothed round-trip time in microseconds.
    pub rtt_us: u32,
    /// Bytes that the peer has acknowledged.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
}

/// Header of the kernel's lists of subflows (`struct mptcp_subflow_data`), with space for the items.
#[repr(C, align(8))]
struct SubflowList<const BYTES: usize> {
    header_bytes: u32,
    subflows: u32,
    kernel_item_bytes: u32,
    item_bytes: u32,
    items: [[u8; BYTES]; SUBFLOWS_MAX],
}

/// Creates a stream socket: of MPTCP if `mptcp` is set and the kernel offers it, else of TCP. Logs a fallback once.
///
/// # Errors
/// No socket can be created.
pub fn stream_socket(domain: Domain, mptcp: bool) -> io::Result<Socket> {
    static FALLBACK: Once = Once::new();
    if mptcp {
        match Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP)) {
            Err(error) if is_unsupported(&error) => FALLBACK.call_once(|| {
                warn!(
                    "--mptcp: this kernel offers no MPTCP ({error}), so connections use TCP: set \
                     net.mptcp.enabled=1 (sysctl), or use Linux 5.16 or newer with CONFIG_MPTCP"
                );
            }),
            made => return made,
        }
    }
    Socket::new(domain, Type::STREAM, Some(Protocol::TCP))
}

/// True if the kernel has no MPTCP, or it is disabled in this network namespace.
fn is_unsupported(error: &io::Error) -> bool {
    let unsupported = [Errno::PROTONOSUPPORT, Errno::NOPROTOOPT, Errno::INVAL]; // the last one before Linux 5.6
    Errno::from_io_error(error).is_some_and(|code| unsupported.contains(&code))
}

/// True if the kernel made the socket for MPTCP; its connection may have fallen back to TCP.
pub fn is_mptcp(socket: &impl AsFd) -> bool {
    SockRef::from(socket).protocol().ok().flatten() == Some(Protocol::MPTCP)
}

/// Reports once that a connected socket of MPTCP has fallen back to TCP, as the peer does not accept MPTCP.
pub fn report_fallback(socket: &impl AsFd, peer: SocketAddr) {
    static FALLBACK: Once = Once::new();
    if is_mptcp(socket) && subflows(socket).is_empty() {
        FALLBACK.call_once(|| {
            info!("--mptcp: {peer} accepts TCP only: it needs a target with serve --mptcp");
        });
    }
}

/// Returns the subflows of a connection; empty over TCP, also after a fallback.
pub fn subflows(socket: &impl AsFd) -> Vec<MptcpSubflow> {
    for _ in 0..READS {
        let Some(addresses) = list::<ADDRESSES_BYTES>(socket, MPTCP_SUBFLOW_ADDRS) else { break };
        let Some(infos) = list::<INFO_BYTES>(socket, MPTCP_TCPINFO) else { break };
        if addresses.len() == infos.len() {
            return addresses.iter().zip(&infos).filter_map(|(a, i)| subflow(a, i)).collect();
        }
    }
    Vec::new()
}

/// Reads one of the kernel's lists; `None` if the connection has none.
fn list<const BYTES: usize>(socket: &impl AsFd, option: libc::c_int) -> Option<Vec<[u8; BYTES]>> {
    let mut list = SubflowList {
        header_bytes: 16,
        subflows: 0,
        kernel_item_bytes: 0,
        item_bytes: BYTES as u32,
        items: [[0; BYTES]; SUBFLOWS_MAX],
    };
    let mut length = size_of::<SubflowList<BYTES>>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes to the list, which accepts any bytes.
    let failed =
        unsafe { libc::getsockopt(fd, SOL_MPTCP, option, (&raw mut list).cast(), &raw mut length) };
    let found = (list.subflows as usize).min(SUBFLOWS_MAX);
    (failed == 0).then(|| list.items[..found].to_vec())
}

fn subflow(addresses: &[u8; ADDRESSES_BYTES], info: &[u8; INFO_BYTES]) -> Option<MptcpSubflow> {
    let counter = |at: usize| u64::from_ne_bytes(info[at..at + 8].try_into().expect("8 bytes"));
    Some(MptcpSubflow {
        local: address(&addresses[..ADDRESS_BYTES])?,
        peer: address(&addresses[ADDRESS_BYTES..])?,
        rtt_us: u32::from_ne_bytes(info[RTT_AT..RTT_AT + 4].try_into().expect("4 bytes")),
        sent_bytes: counter(BYTES_ACKED_AT),
        received_bytes: counter(BYTES_RECEIVED_AT),
    })
}

/// Parses a socket address as the kernel lays it out.
fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes([bytes[0], bytes[1]]);
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    match libc::c_int::from(family) {
        libc::AF_INET => {
            let ip: [u8; 4] = bytes[4..8].try_into().ok()?;
            Some(SocketAddr::new(Ipv4Addr::from(ip).into(), port))
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = bytes[8..24].try_into().ok()?;
            Some(SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::packets_core;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn listener(mptcp: bool) -> TcpListener {
        let socket = stream_socket(Domain::IPV4, mptcp).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.listen(4).unwrap();
        socket.into()
    }

    /// Returns a connection's two ends after a byte each way.
    fn connected(mptcp: bool, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let socket = stream_socket(Domain::IPV4, mptcp).unwrap();
        socket.connect(&listener.local_addr().unwrap().into()).unwrap();
        let (mut near, mut far) = (TcpStream::from(socket), listener.accept().unwrap().0);
        near.write_all(b"a").unwrap();
        far.read_exact(&mut [0]).unwrap();
        far.write_all(b"b").unwrap();
        near.read_exact(&mut [0]).unwrap();
        (near, far)
    }

    #[test]
    fn both_ends_see_the_first_subflow() {
        let listener = listener(true);
        if !is_mptcp(&listener) {
            println!("SKIPPED: this kernel offers no MPTCP");
            return;
        }
        let (near, far) = connected(true, &listener);
        let [seen] = &subflows(&near)[..] else { panic!("{:?}", subflows(&near)) };
        assert_eq!(seen.local, near.local_addr().unwrap());
        assert_eq!(seen.peer, listener.local_addr().unwrap());
        assert!(seen.received_bytes >= 1, "{seen:?}");
        let [seen] = &subflows(&far)[..] else { panic!("{:?}", subflows(&far)) };
        assert_eq!(
            (seen.local, seen.peer),
            (far.local_addr().unwrap(), near.local_addr().unwrap())
        );
        assert!(seen.sent_bytes >= 1 && seen.received_bytes >= 1, "{seen:?}");
        assert_eq!(
            (packets_core(&near), packets_core(&far)),
            (None, None),
            "there is no such core"
        );
    }

    #[test]
    fn a_fallback_has_no_subflows() {
        for (host, target) in [(false, true), (true, false), (false, false)] {
            let (near, far) = connected(host, &listener(target));
            assert!(subflows(&near).is_empty() && subflows(&far).is_empty(), "{host} {target}");
            assert!(!is_mptcp(&far), "the kernel accepts a TCP connection as such");
        }
    }

    #[test]
    fn a_kernel_without_mptcp_is_recognized() {
        let unsupported = |code| is_unsupported(&io::Error::from_raw_os_error(code));
        assert!(unsupported(libc::EPROTONOSUPPORT) && unsupported(libc::ENOPROTOOPT));
        assert!(!unsupported(libc::EMFILE));
    }

    #[test]
    fn addresses_of_both_families_are_parsed() {
        let mut bytes = [0; ADDRESS_BYTES];
        assert_eq!(address(&bytes), None);
        bytes[2..4].copy_from_slice(&4420_u16.to_be_bytes());
        bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        bytes[4..8].copy_from_slice(&[192, 0, 2, 1]);
        assert_eq!(address(&bytes), Some("192.0.2.1:4420".parse().unwrap()));
        bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        bytes[8..24].fill(0);
        bytes[23] = 1;
        assert_eq!(address(&bytes), Some("[::1]:4420".parse().unwrap()));
    }
}

//! Network interfaces of connections: the one that has the local address, or the configured ones.

use super::mptcp;
use socket2::SockRef;
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// Known properties of a connection's route.
#[derive(Clone, Debug, Default)]
pub struct ConnectionRoute {
    /// Local interfaces, if they are known.
    interfaces: Vec<String>,
    /// Local address.
    pub local: Option<IpAddr>,
    /// Core that received last.
    pub incoming_cpu: Option<usize>,
}

impl ConnectionRoute {
    /// The route of a connected socket.
    pub fn of(socket: &socket2::Socket) -> ConnectionRoute {
        let local = socket.local_addr().ok().and_then(|address| address.as_socket());
        ConnectionRoute {
            interfaces: Vec::new(),
            local: local.map(|address| address.ip().to_canonical()),
            incoming_cpu: packets_core(socket),
        }
    }

    /// A route over those interfaces.
    pub fn over(interfaces: Vec<String>) -> ConnectionRoute {
        ConnectionRoute { interfaces, ..ConnectionRoute::default() }
    }

    /// Returns the names of the interfaces.
    pub fn interfaces(&self) -> Vec<String> {
        let Some(local) = self.local else { return self.interfaces.clone() };
        let all = addresses().unwrap_or_default();
        all.into_iter().find(|(_, ip)| *ip == local).map(|(name, _)| name).into_iter().collect()
    }
}

/// Returns the core that has processed the last packet of a connection, if one is known. Subflows of MPTCP have one
/// each: the kernel reports the core of the first packet for ever.
pub fn packets_core(socket: &impl AsFd) -> Option<usize> {
    let core = SockRef::from(socket).cpu_affinity().ok()?;
    let is_known = i32::try_from(core).is_ok(); // -1: none yet
    (is_known && !mptcp::is_mptcp(socket)).then_some(core)
}

/// Returns the NAPI instance (the kernel's number of a receive queue) of the last packet of a connection; `None` over
/// loopback.
pub fn packets_napi_id(socket: &impl AsFd) -> Option<u32> {
    let mut id: libc::c_uint = 0;
    let mut length = size_of_val(&id) as libc::socklen_t;
    // SAFETY: the option is an unsigned int, and `id` is one that lives longer than the call.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_INCOMING_NAPI_ID,
            (&raw mut id).cast(),
            &raw mut length,
        )
    };
    (failed == 0 && id > 0).then_some(id)
}

/// Returns the interfaces with one of the `listened` addresses; all of them where one is unspecified.
pub(super) fn interface_names(listened: &[SocketAddr]) -> BTreeSet<String> {
    let any = listened.iter().any(|address| address.ip().is_unspecified());
    let wanted = |ip: &IpAddr| any || listened.iter().any(|a| a.ip().to_canonical() == *ip);
    let all = addresses().unwrap_or_default();
    all.into_iter().filter(|(_, ip)| wanted(ip)).map(|(name, _)| name).collect()
}

/// Returns the addresses of all interfaces.
fn addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: `first` is a valid place for the list's start.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: the list is valid until it is freed, and ends with a null pointer.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: an entry of the list: its name is a string, its address null or of its family's length.
        unsafe {
            if let Some(ip) = ip(entry.ifa_addr) {
                let name = CStr::from_ptr(entry.ifa_name);
                found.push((name.to_string_lossy().into_owned(), ip));
            }
        }
        next = entry.ifa_next;
    }
    // SAFETY: from getifaddrs, freed once.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// # Safety
/// `address` is null or points to a socket address of the length that its family has.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: every socket address begins with its family.
    let family = unsafe { address.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: of this family, so of this length.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: of this family, so of this length.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn loopback_is_found_by_its_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let route = ConnectionRoute::of(&stream.into());
        assert_eq!(route.interfaces(), ["lo"]);
    }

    #[test]
    fn listeners_name_their_interfaces() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert_eq!(interface_names(&[at("127.0.0.1:0")]), BTreeSet::from(["lo".to_owned()]));
        assert!(interface_names(&[at("192.0.2.77:0")]).is_empty());
        assert!(interface_names(&[at("0.0.0.0:0")]).contains("lo"));
    }
}

//! Connections to a target, by blocking calls: names, sockets, TLS handshakes, lanes over raw Ethernet. Control plane
//! only.

mod ether;
mod near;
mod secure;
mod tcp;

use super::address::TargetAddress;
use super::command_queue::CommandQueue;
use super::config::HostConfig;
use super::ether::Whereabouts;
use super::link::LinkError;
use super::name::TargetName;
use super::race::first_of;
use roadtrain_ether_proto::fence::Fence;
use roadtrain_proto::security::TlsPsk;
use roadtrain_proto::time::TimeLimit;
use roadtrain_system::clock;
use roadtrain_system::platform::ConnectionRoute;
use socket2::SockRef;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Connected admin queue, and the address of its target.
pub(crate) struct AdminQueue {
    pub(crate) queue: CommandQueue,
    pub(crate) origin: QueueOrigin,
}

/// Target of a connected queue, for further queues.
pub(crate) enum QueueOrigin {
    Tcp(tcp::TcpOrigin),
    Ether(ether::EtherOrigin),
}

/// Connects the admin queue, with the negotiated PSK if there is one; no call waits longer than
/// [`HostConfig::timeout`]. Before, the `fence` ends earlier lanes.
///
/// # Errors
/// No connection, or a peer that violates the protocol.
pub(crate) fn connect_admin(
    config: &HostConfig,
    entries: u16,
    psk: Option<&TlsPsk>,
    fence: &mut Fence,
) -> Result<AdminQueue, LinkError> {
    let psk = config.psk(psk);
    let tcp = |address| {
        let origin = tcp::TcpOrigin { address, psk: psk.clone() };
        let (queue, origin) = tcp::connect(&origin, config, entries, None)?;
        Ok(AdminQueue { queue, origin: QueueOrigin::Tcp(origin) })
    };
    match &config.address {
        TargetAddress::Tcp(address) => tcp(*address),
        TargetAddress::Name(name) => by_name(name, config, tcp),
        TargetAddress::Ether(address) => {
            let (queue, origin) = ether::connect_admin(address, config, entries, fence)?;
            Ok(AdminQueue { queue, origin: QueueOrigin::Ether(origin) })
        }
    }
}

/// Connects to the first address of a name that replies. A silent one delays the others for a moment only.
fn by_name(
    name: &TargetName,
    config: &HostConfig,
    connect: impl Fn(SocketAddr) -> Result<AdminQueue, LinkError> + Sync,
) -> Result<AdminQueue, LinkError> {
    let addresses = name.addresses(config.timeout)?;
    let connect =
        |address: &SocketAddr| connect(*address).map_err(|error| format!("{address}: {error}"));
    match first_of(&addresses, connect) {
        Ok((at, admin)) => {
            name.connected(addresses[at]);
            Ok(admin)
        }
        Err(failures) => Err(LinkError::Nowhere(failures.join("; "))),
    }
}

impl QueueOrigin {
    /// Connects the queue pair of lane `number` (over all reactors).
    ///
    /// # Errors
    /// As [`connect_admin`].
    pub(crate) fn connect(
        &self,
        config: &HostConfig,
        entries: u16,
        number: u16,
    ) -> Result<CommandQueue, LinkError> {
        match self {
            QueueOrigin::Tcp(origin) => {
                let core = config.core_of(number.into());
                tcp::connect(origin, config, entries, core).map(|(queue, _)| queue)
            }
            QueueOrigin::Ether(origin) => ether::connect_lane(origin, config, entries, number),
        }
    }

    /// Returns the target, if there may be more links to it.
    pub(crate) fn whereabouts(&self, config: &HostConfig) -> Option<Whereabouts> {
        match self {
            QueueOrigin::Ether(origin) => origin.whereabouts(config),
            QueueOrigin::Tcp(_) => None,
        }
    }
}

impl AdminQueue {
    /// Returns the interface by which the target was reached, if it has a link-local address; else 0.
    pub(crate) fn scope(&self) -> u32 {
        match &self.origin {
            QueueOrigin::Tcp(tcp::TcpOrigin { address: SocketAddr::V6(address), .. }) => {
                address.scope_id()
            }
            QueueOrigin::Tcp(_) | QueueOrigin::Ether(_) => 0,
        }
    }

    /// Returns the network route of the connection.
    pub(crate) fn route(&self) -> ConnectionRoute {
        match (&self.origin, self.queue.fd()) {
            (QueueOrigin::Ether(origin), _) => ConnectionRoute::over(origin.interfaces.clone()),
            (QueueOrigin::Tcp(_), Some(fd)) => {
                // SAFETY: the queue, which is borrowed, has the socket.
                let socket = unsafe { BorrowedFd::borrow_raw(fd) };
                ConnectionRoute::of(&SockRef::from(&socket))
            }
            (QueueOrigin::Tcp(_), None) => ConnectionRoute::default(),
        }
    }
}

/// Waits for the target by `wait`, and deducts the time from the limit; the host's own work is not deducted.
fn waiting<T>(limit: &mut TimeLimit, wait: impl FnOnce(Duration) -> T) -> T {
    let now = clock::now();
    limit.begin(now);
    let waited = wait(limit.left(now));
    limit.end(clock::now());
    waited
}

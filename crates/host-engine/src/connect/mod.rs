//! Connections to a target, by calls that wait: names, sockets, handshakes of TLS, lanes straight on Ethernet.
//! Control plane only.

mod ether;
mod near;
mod secure;
mod tcp;

use super::address::Address;
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
use roadtrain_system::platform::Route;
use socket2::SockRef;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A connected admin queue, and where it leads to.
pub(crate) struct AdminQueue {
    pub(crate) queue: CommandQueue,
    pub(crate) origin: Origin,
}

/// Where a queue was connected to, for others beside it.
pub(crate) enum Origin {
    Tcp(tcp::Origin),
    Ether(ether::Origin),
}

/// Connects the admin queue, with the PSK that was made for it, if there is one; no call waits longer than
/// [`HostConfig::timeout`]. Before, the `fence` ends earlier lanes.
///
/// # Errors
/// There is no connection, or a peer that does not speak the protocol.
pub(crate) fn connect_admin(
    config: &HostConfig,
    entries: u16,
    psk: Option<&TlsPsk>,
    fence: &mut Fence,
) -> Result<AdminQueue, LinkError> {
    let psk = config.psk(psk);
    let tcp = |address| {
        let origin = tcp::Origin { address, psk: psk.clone() };
        let (queue, origin) = tcp::connect(&origin, config, entries, None)?;
        Ok(AdminQueue { queue, origin: Origin::Tcp(origin) })
    };
    match &config.address {
        Address::Tcp(address) => tcp(*address),
        Address::Name(name) => by_name(name, config, tcp),
        Address::Ether(address) => {
            let (queue, origin) = ether::connect_admin(address, config, entries, fence)?;
            Ok(AdminQueue { queue, origin: Origin::Ether(origin) })
        }
    }
}

/// The first address of a name that answers. One that is silent keeps the others waiting for a moment only.
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

impl Origin {
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
            Origin::Tcp(origin) => {
                let core = config.core_of(number.into());
                tcp::connect(origin, config, entries, core).map(|(queue, _)| queue)
            }
            Origin::Ether(origin) => ether::connect_lane(origin, config, entries, number),
        }
    }

    /// The target, if there may be more links to it.
    pub(crate) fn whereabouts(&self, config: &HostConfig) -> Option<Whereabouts> {
        match self {
            Origin::Ether(origin) => origin.whereabouts(config),
            Origin::Tcp(_) => None,
        }
    }
}

impl AdminQueue {
    /// The interface by which the target was reached, if it has a link-local address; else 0.
    pub(crate) fn scope(&self) -> u32 {
        match &self.origin {
            Origin::Tcp(tcp::Origin { address: SocketAddr::V6(address), .. }) => address.scope_id(),
            Origin::Tcp(_) | Origin::Ether(_) => 0,
        }
    }

    /// The way that it takes.
    pub(crate) fn route(&self) -> Route {
        match (&self.origin, self.queue.fd()) {
            (Origin::Ether(origin), _) => Route::over(origin.interfaces.clone()),
            (Origin::Tcp(_), Some(fd)) => {
                // SAFETY: the queue, which is borrowed, has the socket.
                let socket = unsafe { BorrowedFd::borrow_raw(fd) };
                Route::of(&SockRef::from(&socket))
            }
            (Origin::Tcp(_), None) => Route::default(),
        }
    }
}

/// Waits for the target, by `wait`, which takes of the limit what it lasts; what we do meanwhile takes nothing.
fn waiting<T>(limit: &mut TimeLimit, wait: impl FnOnce(Duration) -> T) -> T {
    let now = clock::now();
    limit.begin(now);
    let waited = wait(limit.left(now));
    limit.end(clock::now());
    waited
}

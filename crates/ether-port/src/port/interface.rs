//! Properties of a port's interface.

use super::sys;
use roadtrain_system::platform;
use roadtrain_wire::ether::MacAddress;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Smallest MTU that a frame with a useful body fits into.
const MTU_MIN: usize = 576;

/// An interface, in its state at the query.
#[derive(Clone, Debug)]
pub struct PortInterface {
    /// Its name.
    pub name: String,
    /// Interface index.
    pub index: i32,
    /// MAC address.
    pub mac: MacAddress,
    /// Most bytes of a frame behind Ethernet's header.
    pub mtu: usize,
    /// Receive queues in use.
    pub queues: u32,
    /// NUMA node of its device, if it is known.
    pub node: Option<u32>,
}

impl PortInterface {
    /// Queries it, in the network namespace of `socket`.
    pub(super) fn read(socket: &OwnedFd, name: &str) -> io::Result<PortInterface> {
        let index = sys::index(socket, name)?;
        let (kind, mac) = sys::address(socket, name)?;
        if kind != libc::ARPHRD_ETHER {
            let reason = format!("{name} is no Ethernet interface");
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        let mtu = sys::mtu(socket, name)?;
        if mtu < MTU_MIN {
            let reason = format!("the MTU of {name} is {mtu}, less than {MTU_MIN}");
            return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
        }
        Ok(PortInterface {
            name: name.to_owned(),
            index,
            mac: MacAddress(mac),
            mtu,
            queues: sys::queues(socket, name).unwrap_or(1),
            node: platform::InterfaceTopology::read(Path::new("/"), name).nodes.first().copied(),
        })
    }

    /// True if there is an interface of that name.
    pub(super) fn is_there(socket: &OwnedFd, name: &str) -> bool {
        sys::index(socket, name).is_ok()
    }

    /// True if the interface of its name is unchanged, as far as a port is concerned.
    pub(super) fn is_same(&self, socket: &OwnedFd) -> bool {
        let name = &self.name;
        sys::index(socket, name).is_ok_and(|index| index == self.index)
            && sys::address(socket, name).is_ok_and(|(_, mac)| mac == self.mac.0)
            && sys::mtu(socket, name).is_ok_and(|mtu| mtu == self.mtu)
    }

    /// True if the interface is up and has a link.
    pub(super) fn has_carrier(&self, socket: &OwnedFd) -> bool {
        let both = libc::IFF_UP | libc::IFF_RUNNING;
        sys::flags(socket, &self.name).is_ok_and(|flags| flags & both == both)
    }
}

//! In the place of `ether` where the program is built without Ethernet: what other modules name of it. Types that
//! have no values say that there is nothing of that kind.

use super::address::Address;
use super::error::HostError;
use super::link::LinkError;
use roadtrain_ether_proto::fence::Fence;
use roadtrain_proto::security::SealUse;
use roadtrain_wire::ether::MacAddress;
use std::fmt;
use std::io;

/// No target can be reached straight on Ethernet.
#[derive(Clone, Debug)]
pub enum EtherAddress {}

impl EtherAddress {
    pub(super) fn seals(&self) -> SealUse {
        match *self {}
    }

    pub(super) fn ports(&self) -> usize {
        match *self {}
    }
}

impl fmt::Display for EtherAddress {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// What nobody offers.
pub struct EtherOffer {
    /// Our interface.
    pub interface: String,
    /// The target's port there.
    pub address: MacAddress,
    /// NQN of the subsystem.
    pub nqn: String,
}

/// There is nowhere to look.
///
/// # Errors
/// None.
pub fn discover_ether(address: &EtherAddress, _: &str) -> Result<Vec<EtherOffer>, HostError> {
    match *address {}
}

#[derive(Default)]
pub(crate) struct Ports(());

impl Ports {
    pub(crate) fn of_reactor<'a>(
        _: impl Iterator<Item = &'a Address>,
        _: usize,
    ) -> Result<Ports, LinkError> {
        Ok(Ports::default())
    }

    pub(crate) fn flush(&mut self) {}

    pub(crate) fn calls(&self) -> u64 {
        0
    }
}

#[derive(Clone)]
pub(crate) enum Found {}

impl Found {
    pub(crate) fn after(&self, _: usize) -> Found {
        match *self {}
    }

    pub(crate) fn tell(&self, _: &mut Fence) {
        match *self {}
    }
}

pub(crate) enum Survey {}
pub(crate) enum Whereabouts {}
pub(crate) enum PathDiscovery {}

impl PathDiscovery {
    pub(crate) fn start(target: Whereabouts, _: impl Fn(Found)) -> io::Result<PathDiscovery> {
        match target {}
    }

    pub(crate) fn tell(&self, _: Survey) {
        match *self {}
    }
}

//! In the place of `frames` where the program is built without Ethernet: there are no ports.

use super::Reactor;
use crate::ring::UserData;
use crate::target::ether::{Drops, EtherParts, Port, Request};
use crate::target::lane::Lane;
use roadtrain_proto::time::Instant;

#[derive(Default)]
pub(super) struct Frames {
    /// Never.
    pub(super) has_more: bool,
    pub(super) drops: Drops,
}

impl Frames {
    pub(super) fn new(_: EtherParts, _: usize) -> (Vec<Port>, Self) {
        (Vec::new(), Frames::default())
    }

    pub(super) fn check_at(&self) -> Option<Instant> {
        None
    }

    pub(super) fn forget(&mut self, _: &Lane) {}
}

impl Reactor {
    pub(super) fn take_frames(&mut self) {}
    pub(super) fn check_frames(&mut self) {}
    pub(super) fn flush_ports(&mut self) {}
    pub(super) fn arm_ports(&mut self) {}
    pub(super) fn port_polled(&mut self, _: &UserData, _: i32) {}
    pub(super) fn interfaces_changed(&mut self) {}
    pub(super) fn forget_ports(&mut self) {}
    pub(super) fn ask(&mut self, _: &str) {}

    pub(super) fn port_sends(&mut self) -> u64 {
        0
    }

    pub(super) fn take_request(&mut self, request: &Request) {
        match *request {}
    }
}

//! In the place of `frames` where the program is built without Ethernet: there are no ports.

use super::Reactor;
use crate::api::Front;
use crate::ether::{Found, Ports};
use roadtrain_system::ring::UserData;

#[derive(Default)]
pub(super) struct Frames {
    /// Never.
    pub(super) came: bool,
}

impl Frames {
    pub(super) fn new(_: &Ports) -> Self {
        Frames::default()
    }
}

impl Reactor {
    pub(super) fn poll_ports(&mut self) {}
    pub(super) fn port_polled(&mut self, _: &UserData, _: i32) {}
    pub(super) fn poll_carrier(&mut self) {}
    pub(super) fn check_carriers(&mut self) {}
    pub(super) fn receive_frames(&mut self, _: &mut dyn Front) {}
    pub(super) fn write_paths(&mut self) {}

    pub(super) fn holds_back(&mut self) -> bool {
        false
    }

    pub(super) fn offer(&mut self, _: u32, found: &Found) {
        match *found {}
    }
}

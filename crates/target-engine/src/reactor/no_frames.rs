//! In the place of `frames` where the program is built without Ethernet: there are no ports.

use super::Peers;
use super::lanes::Lanes;
use crate::ether::{Drops, EtherParts, Port, Request};
use crate::lane::TargetLane;
use roadtrain_proto::time::Instant;
use roadtrain_reactor::metrics::FrameCount;
use roadtrain_system::ring::UserData;
use std::time::Duration;

pub(super) struct Hosts;

impl Hosts {
    pub(super) fn new(_: usize) -> Self {
        Hosts
    }

    pub(super) fn forget(&mut self, _: &TargetLane) {}
}

#[derive(Default)]
pub(super) struct Frames {
    /// Never.
    pub(super) has_more: bool,
}

impl Frames {
    pub(super) fn new(_: EtherParts) -> (Vec<Port>, Self) {
        (Vec::new(), Frames::default())
    }

    pub(super) fn check_at(&self, _: &Lanes) -> Option<Instant> {
        None
    }

    pub(super) fn take_frames(&mut self, _: &mut Lanes, _: &Peers) {}
    pub(super) fn check_frames(&mut self, _: &mut Lanes, _: Duration) {}
    pub(super) fn poll_ports(&mut self, _: &mut Lanes) {}
    pub(super) fn port_polled(&mut self, _: &mut Lanes, _: &UserData, _: i32) {}
    pub(super) fn interfaces_changed(&mut self, _: &mut Lanes) {}
    pub(super) fn forget_ports(&mut self) {}

    pub(super) fn take_request(&mut self, _: &mut Lanes, request: &Request) {
        match *request {}
    }
}

pub(super) fn flush_ports(_: &mut Lanes) {}
pub(super) fn ask(_: &mut Lanes, _: &str) {}

pub(super) fn port_sends(_: &mut Lanes) -> u64 {
    0
}

pub(super) fn dropped(_: &Frames, _: &mut Lanes) -> Drops {
    Drops::default()
}

pub(super) fn counts(_: &mut Frames, _: &mut Lanes) -> Vec<FrameCount> {
    Vec::new()
}

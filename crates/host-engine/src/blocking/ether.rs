//! The same straight on Ethernet, over ports of its own.

use super::{Completed, Wire};
use crate::address::Address;
use crate::config::HostConfig;
use crate::ether::{
    EtherAddress, EtherLane, Found, Heard, Joining, Path, Ports, Source, Survey, Target,
    Whereabouts, beside, end_lanes, find, join, probe,
};
use crate::link::ether::EtherLink;
use crate::link::{Link, LinkError};
use roadtrain_ether_proto::fence::Fence;
use roadtrain_ether_proto::host_queue::RxEvent;
use roadtrain_host_proto::qpair::Data;
use roadtrain_proto::policy::{PolicyConfig, Urgency};
use roadtrain_proto::seal::Limits;
use roadtrain_proto::security::FrameSecret;
use roadtrain_system::clock;
use roadtrain_system::platform::Route;
use roadtrain_wire::ether::FrameType;
use roadtrain_wire::sqe::Sqe;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of the admin queue's lane.
const ADMIN: u16 = u16::MAX;
/// Most octets of a request's data.
const DATA_BYTES_MAX: u32 = 1 << 20;
/// About how much memory frames that arrive may take.
const RECEIVE_BYTES: usize = 256 << 10;
/// Most frames handled at once.
const FRAMES: usize = 64;
/// A lane of which nothing was heard for so long is over, unless the keep-alive timeout is longer.
const SILENCE: Duration = Duration::from_secs(30);

/// The way to a target.
#[derive(Clone, Debug)]
pub(super) struct Way {
    /// Which target.
    endpoint: [u8; 16],
    paths: Arc<[Path]>,
}

/// A lane, and ports that it has for itself.
pub(crate) struct EtherWire {
    ports: Ports,
    /// `None`: handed over.
    lane: Option<EtherLane>,
    way: Way,
    interfaces: Vec<String>,
    is_admin: bool,
    seal_limits: Limits,
}

/// Data of the command that is waited for.
struct OutData<'a> {
    slot: Option<u16>,
    data: &'a [u8],
}

impl Source for OutData<'_> {
    fn data(&self, slot: u16, offset: u32, length: u32) -> Option<&[u8]> {
        let data = self.data.get(offset as usize..)?.get(..length as usize)?;
        (Some(slot) == self.slot).then_some(data)
    }
}

impl EtherAddress {
    /// Connects the admin queue, when the `fence` has ended earlier lanes.
    pub(crate) fn connect(
        &self,
        config: &HostConfig,
        entries: u16,
        fence: &mut Fence,
    ) -> Result<Box<dyn Wire>, LinkError> {
        Ok(Box::new(EtherWire::connect(self, config, entries, None, None, fence)?))
    }
}

impl EtherWire {
    /// Finds the target (or goes the `way` of another lane), ends earlier lanes, makes a lane.
    pub(super) fn connect(
        address: &EtherAddress,
        config: &HostConfig,
        entries: u16,
        lane: Option<u16>,
        way: Option<Way>,
        fence: &mut Fence,
    ) -> Result<Self, LinkError> {
        let mut ports = Ports::open(address, &beside(&address.port, RECEIVE_BYTES))?;
        let way = match way {
            Some(way) => way,
            None => find_way(&mut ports, &config.subsystem_nqn, fence)?,
        };
        let joining = Joining {
            endpoint: way.endpoint,
            nqn: config.subsystem_nqn.as_str().into(),
            number: lane.unwrap_or(ADMIN),
            entries,
            data_bytes_max: DATA_BYTES_MAX,
            packing: address.packing,
            body_crc: config.digests.data,
            silence_max: match lane {
                // It asks when nothing comes; without it the target ends the controller after that time.
                None if !config.keep_alive.is_zero() => config.keep_alive,
                _ => SILENCE.max(config.keep_alive),
            },
        };
        let made = join(&mut ports, &way.paths, &joining)?;
        let interfaces = address.interfaces.clone();
        let (is_admin, seal_limits) = (lane.is_none(), address.seal_limits);
        Ok(EtherWire { ports, lane: Some(made), way, interfaces, is_admin, seal_limits })
    }

    fn send(&mut self, slot: Option<u16>, data: &[u8]) -> Result<(), LinkError> {
        let EtherWire { ports, lane: Some(lane), .. } = self else { return Ok(()) };
        let now = clock::now();
        lane.check_carriers(now, ports);
        lane.qpair.batcher().drained(now);
        lane.keep(now, ports, self.is_admin);
        lane.send(now, ports, &OutData { slot, data }, None);
        ports.flush();
        lane.check(now)
    }

    fn take_frames(
        &mut self,
        slot: Option<u16>,
        input: &mut [u8],
        completed: &mut Completed,
    ) -> usize {
        let EtherWire { ports, lane: Some(lane), .. } = self else { return 0 };
        let now = clock::now();
        let mut hear = |heard: &Heard<'_>| {
            if heard.kind == FrameType::Offer {
                return lane.hear_offer(now, heard);
            }
            if heard.header.token.get() != lane.token() {
                return;
            }
            lane.deliver(now, heard, &mut |body, event| match event {
                RxEvent::Data { slot: number, offset, start, length } if Some(number) == slot => {
                    let data = &body[start..start + length as usize];
                    input[offset as usize..][..data.len()].copy_from_slice(data);
                }
                RxEvent::Data { .. } => {}
                RxEvent::Complete { slot, cqe, .. } => completed.push((slot, cqe)),
            });
        };
        (0..ports.len()).map(|port| ports.receive(port, FRAMES, &mut hear)).sum()
    }

    /// Time until the lane has something to do by itself.
    fn until_due(&self) -> Option<Duration> {
        let due = self.lane.as_ref()?.deadline(self.is_admin)?;
        Some(due.since(clock::now()))
    }
}

impl Wire for EtherWire {
    fn beside(
        &self,
        config: &HostConfig,
        entries: u16,
        number: u16,
    ) -> Result<Box<dyn Wire>, LinkError> {
        let Address::Ether(address) = &config.address else { return Err(LinkError::Closed) };
        let (number, way) = (Some(number), Some(self.way.clone()));
        let none = &mut Fence::default();
        Ok(Box::new(EtherWire::connect(address, config, entries, number, way, none)?))
    }

    /// Which target it is.
    fn whereabouts(&self, config: &HostConfig) -> Option<Whereabouts> {
        let Address::Ether(address) = &config.address else { return None };
        let (address, nqn) = (address.clone(), config.subsystem_nqn.clone());
        Some(Whereabouts { address, nqn, endpoint: self.way.endpoint })
    }

    /// What has become of the target's addresses and of links to them.
    fn take_survey(&mut self) -> Option<Survey> {
        self.lane.as_mut()?.take_survey()
    }

    /// A path that was found since.
    fn offer(&mut self, found: &Found) {
        if let Some(lane) = &mut self.lane {
            lane.offer(clock::now(), &found.endpoint, found.path, &found.addresses);
        }
    }

    fn data_bytes_max(&self) -> u32 {
        self.lane.as_ref().map_or(0, |lane| lane.qpair.data_bytes_max() & !4095)
    }

    fn seal(&mut self, secret: &FrameSecret) -> Result<(), LinkError> {
        let lane = self.lane.as_mut().ok_or(LinkError::Closed)?;
        lane.seal(secret, self.seal_limits)
    }

    fn submit(&mut self, sqe: &Sqe, data: Data) -> Option<u16> {
        self.lane.as_mut()?.qpair.submit(clock::now(), sqe, data, Urgency::Urgent)
    }

    fn flush(
        &mut self,
        slot: Option<u16>,
        data: &[u8],
        _timeout: Duration,
    ) -> Result<(), LinkError> {
        self.send(slot, data)
    }

    /// Waits until something has come, or is to be sent; `false`: it is too late.
    fn receive(
        &mut self,
        deadline: Instant,
        slot: Option<u16>,
        input: &mut [u8],
        completed: &mut Completed,
    ) -> Result<bool, LinkError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        if self.take_frames(slot, input, completed) == 0 {
            let wait = self.until_due().map_or(left, |due| due.min(left));
            self.ports.wait(None, wait)?;
            self.take_frames(slot, input, completed);
        }
        Ok(true)
    }

    /// Handles what has come; `false`: nothing of it is left to be waited for.
    fn has_input(&mut self, completed: &mut Completed) -> Result<bool, LinkError> {
        self.take_frames(None, &mut [], completed);
        self.send(None, &[])?;
        Ok(false)
    }

    /// Waits for `other`, for a completion, or for news about links, and meanwhile does what the lane has to do.
    fn wait(
        &mut self,
        other: RawFd,
        timeout: Duration,
        completed: &mut Completed,
    ) -> Result<(), LinkError> {
        let end = Instant::now() + timeout;
        loop {
            self.take_frames(None, &mut [], completed);
            self.send(None, &[])?;
            let left = end.saturating_duration_since(Instant::now());
            let has_news = self.lane.as_ref().is_some_and(EtherLane::has_news);
            if !completed.is_empty() || has_news || left.is_zero() {
                return Ok(());
            }
            let wait = self.until_due().map_or(left, |due| due.min(left));
            if self.ports.wait(Some(other), wait)? {
                return Ok(());
            }
        }
    }

    fn route(&self) -> Route {
        Route::over(self.interfaces.clone())
    }

    fn into_link(mut self: Box<Self>, _: u32, policy: PolicyConfig) -> Result<Link, LinkError> {
        let Some(mut lane) = self.lane.take() else { return Err(LinkError::Closed) };
        lane.qpair.set_policy(policy);
        Ok(Link::Ether(EtherLink::new(lane)))
    }

    /// Adds the lane to those that must be ended before others are made.
    fn reset(self: Box<Self>, fence: &mut Fence) {
        self.lane.iter().for_each(|lane| fence.add(lane.earlier()));
    }
}

impl Drop for EtherWire {
    fn drop(&mut self) {
        if let Some(mut lane) = self.lane.take() {
            lane.leave(clock::now(), &mut self.ports);
        }
    }
}

/// The way to the target that earlier lanes went to, if it is there; they have ended then.
fn find_way(ports: &mut Ports, nqn: &str, fence: &mut Fence) -> Result<Way, LinkError> {
    if fence.endpoints().is_empty() {
        ports.report(); // once, not whenever it is tried again
    }
    let Target { endpoint, offered, there } = find(ports, nqn, &fence.endpoints())?;
    let routes: Vec<_> = offered.iter().map(|path| path.route).collect();
    fence.begin(clock::now(), endpoint, &routes, &there);
    end_lanes(fence, ports)?;
    let mut paths = Vec::new();
    for path in offered {
        paths.extend(probe(ports, path)?);
    }
    Ok(Way { endpoint, paths: paths.into() })
}

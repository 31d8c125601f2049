//! Lane over raw Ethernet, on ports of its own until a reactor takes it over.

use crate::address::TargetAddress;
use crate::command_queue::CommandQueue;
use crate::config::HostConfig;
use crate::ether::{
    EtherAddress, FoundTarget, Joining, LinkPath, Ports, Whereabouts, end_lanes, find, join, probe,
    shared_port_config,
};
use crate::link::ether::EtherLink;
use crate::link::{LinkError, QpairLink};
use roadtrain_ether_proto::fence::Fence;
use roadtrain_system::clock;
use std::time::Duration;

/// Number of the admin queue's lane.
const ADMIN: u16 = u16::MAX;
/// Maximum bytes of a request's data.
const DATA_BYTES_MAX: u32 = 1 << 20;
/// Approximate memory for received frames, in bytes.
const RECEIVE_BYTES: usize = 256 << 10;
/// Silence after which a lane is over, unless the keep-alive timeout is longer.
const SILENCE: Duration = Duration::from_secs(30);

/// Endpoint of a target and the links to it.
pub(crate) struct EtherOrigin {
    /// Endpoint identifier of the target.
    endpoint: [u8; 16],
    paths: Vec<LinkPath>,
    pub(super) interfaces: Vec<String>,
}

impl EtherOrigin {
    pub(super) fn whereabouts(&self, config: &HostConfig) -> Option<Whereabouts> {
        let TargetAddress::Ether(address) = &config.address else { return None };
        let (address, nqn) = (address.clone(), config.subsystem_nqn.clone());
        Some(Whereabouts { address, nqn, endpoint: self.endpoint })
    }
}

/// Finds the target and makes the admin queue's lane, after the `fence` has ended earlier lanes.
pub(super) fn connect_admin(
    address: &EtherAddress,
    config: &HostConfig,
    entries: u16,
    fence: &mut Fence,
) -> Result<(CommandQueue, EtherOrigin), LinkError> {
    let mut ports = open_ports(address)?;
    let origin = find_target(&mut ports, address, &config.subsystem_nqn, fence)?;
    let queue = connect(&origin, (address, ports), config, entries, None)?;
    Ok((queue, origin))
}

/// Makes lane `number` to the found target.
pub(super) fn connect_lane(
    origin: &EtherOrigin,
    config: &HostConfig,
    entries: u16,
    number: u16,
) -> Result<CommandQueue, LinkError> {
    let TargetAddress::Ether(address) = &config.address else { return Err(LinkError::Closed) };
    connect(origin, (address, open_ports(address)?), config, entries, Some(number))
}

fn open_ports(address: &EtherAddress) -> Result<Ports, LinkError> {
    Ports::open(address, &shared_port_config(&address.port, RECEIVE_BYTES))
}

/// Makes a lane; `None`: the admin queue's lane.
fn connect(
    origin: &EtherOrigin,
    (address, mut ports): (&EtherAddress, Ports),
    config: &HostConfig,
    entries: u16,
    number: Option<u16>,
) -> Result<CommandQueue, LinkError> {
    let joining = Joining {
        endpoint: origin.endpoint,
        nqn: config.subsystem_nqn.as_str().into(),
        number: number.unwrap_or(ADMIN),
        entries,
        data_bytes_max: DATA_BYTES_MAX,
        packing: address.packing,
        body_crc: config.digests.data,
        silence_max: match number {
            // It probes a silent target; without it the target ends the controller after that time.
            None if !config.keep_alive.is_zero() => config.keep_alive,
            _ => SILENCE.max(config.keep_alive),
        },
    };
    let lane = join(&mut ports, &origin.paths, &joining)?;
    let link = EtherLink::new(lane, address.seal_limits, number.is_none());
    Ok(CommandQueue::new(QpairLink::Ether(link), ports, config.timeout)?)
}

/// Finds the target of the earlier lanes, if it is there, and ends these lanes.
fn find_target(
    ports: &mut Ports,
    address: &EtherAddress,
    nqn: &str,
    fence: &mut Fence,
) -> Result<EtherOrigin, LinkError> {
    if fence.endpoints().is_empty() {
        ports.report(); // once, not on every attempt
    }
    let FoundTarget { endpoint, offered, there } = find(ports, nqn, &fence.endpoints())?;
    let routes: Vec<_> = offered.iter().map(|path| path.route).collect();
    fence.begin(clock::now(), endpoint, &routes, &there);
    end_lanes(fence, ports)?;
    let mut paths = Vec::new();
    for path in offered {
        paths.extend(probe(ports, path)?);
    }
    Ok(EtherOrigin { endpoint, paths, interfaces: address.interfaces.clone() })
}

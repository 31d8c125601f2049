//! A remote namespace as a ublk device: connects a controller, makes the device or takes it over, and serves its queues
//! on the controller's reactors.

use super::control::UblkControl;
use super::device::{self, DesiredDevice, PreparedDevice};
use super::end::{self, DeviceEnd};
use super::follow;
use super::params;
use super::pending::PendingServer;
use super::server::UblkServer;
use super::shared::UblkShared;
use super::tags::Tags;
use crate::attachment::{AttachError, AttachedDevice, Attachment};
use crate::disk::{DiskInfo, LiveDisk, Poller};
use crate::reclaim;
use crate::system_resource::SystemResource;
use roadtrain_host_engine::{HostConfig, HostController};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Default depth of a queue, in requests.
pub const QUEUE_DEPTH: u16 = 128;
/// Bytes of the largest read or write, unless the target takes less: each tag has a buffer that large.
const IO_BYTES_MAX: u32 = 512 << 10;
/// Interval of checks for a refusal while the device starts.
const START_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Configuration of a ublk device.
#[derive(Clone, Debug)]
pub struct UblkConfig {
    /// The namespace.
    pub nsid: u32,
    /// Number of the device; `None` lets the driver choose.
    pub id: Option<u32>,
    /// True to take over a device that a process which is gone has left, and to make none.
    pub recover: bool,
    /// Depth of a queue, in requests.
    pub queue_depth: u16,
}

impl UblkConfig {
    /// Shows namespace `nsid` as device `id`, with defaults for the rest.
    #[must_use]
    pub fn new(nsid: u32, id: Option<u32>) -> Self {
        UblkConfig { nsid, id, recover: false, queue_depth: QUEUE_DEPTH }
    }
}

/// A namespace that is shown as a ublk device. Dropping it stops the device.
pub struct UblkAttachment {
    controller: Option<HostController>,
    nsid: u32,
    id: u32,
    recovered: bool,
    /// True once the device has been started.
    started: bool,
    disk: Arc<LiveDisk>,
    shared: Arc<UblkShared>,
    file: Option<Arc<File>>,
    follower: Option<Poller>,
}

/// A reactor that waits for its server.
struct ReactorLink {
    lanes: usize,
    server: Sender<UblkServer>,
}

impl UblkAttachment {
    /// Connects to `host` and makes the device of `config`. Programs can open the device when this returns.
    ///
    /// # Errors
    /// Fails if the controller, the namespace or the device is not available; nothing keeps running.
    pub fn start(host: HostConfig, config: &UblkConfig) -> Result<Self, AttachError> {
        let what = config.id.map_or("ublk".into(), |id| format!("ublk device {id}"));
        let show = |source| AttachError::Show { what: what.clone(), source };
        let mut control = UblkControl::open().map_err(show)?;
        let nqn = host.subsystem_nqn.clone();
        let mut reactors = Vec::new();
        reclaim::prepare();
        let controller = HostController::connect(host, |reactor, _| {
            let (server, coming) = channel();
            reactors.push(ReactorLink { lanes: reactor.lanes, server });
            Box::new(PendingServer::new(coming))
        })?;
        let info = DiskInfo::of(&controller.view().info(), config.nsid)?;
        let wanted = wanted(config, &info, &nqn, reactors.len());
        let disk = Arc::new(LiveDisk::new(info).map_err(show)?);
        let prepared = device::prepare(&mut control, &wanted).map_err(show)?;
        let mut attachment = UblkAttachment {
            controller: Some(controller),
            nsid: config.nsid,
            id: prepared.info.dev_id,
            recovered: prepared.recovered,
            started: false,
            disk,
            shared: Arc::default(),
            file: None,
            follower: None,
        };
        attachment.begin(&mut control, &prepared, reactors).map_err(show)?;
        Ok(attachment)
    }

    /// Path of the block device.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        device::block_path(self.id)
    }

    /// True if another process had left the device.
    #[must_use]
    pub fn is_recovered(&self) -> bool {
        self.recovered
    }

    /// Gives the reactors their queues and starts the device.
    fn begin(
        &mut self,
        control: &mut UblkControl,
        prepared: &PreparedDevice,
        reactors: Vec<ReactorLink>,
    ) -> io::Result<()> {
        let file = Arc::new(device::open(self.id)?);
        self.file = Some(Arc::clone(&file));
        let servers = self.servers(&file, prepared, &reactors, control.is_encoded())?;
        for (reactor, server) in reactors.into_iter().zip(servers) {
            reactor.server.send(server).map_err(|_| io::Error::other("a reactor has ended"))?;
        }
        let pending = control.begin_start(self.id, self.recovered);
        loop {
            if let Some(result) = control.wait(pending, START_CHECK_INTERVAL)? {
                result?;
                break;
            }
            if let Some(error) = self.shared.refusal() {
                return Err(error);
            }
        }
        self.started = true;
        let view = self.controller().view().clone();
        if self.recovered && control.can_resize() {
            follow::update_size(self.id, &self.disk);
        }
        self.follower = Some(follow::follow(self.id, Arc::clone(&self.disk), view)?);
        Ok(())
    }

    /// Makes a server for each reactor, each with its share of the device's queues.
    fn servers(
        &self,
        file: &Arc<File>,
        prepared: &PreparedDevice,
        reactors: &[ReactorLink],
        encoded: bool,
    ) -> io::Result<Vec<UblkServer>> {
        let info = &prepared.info;
        let io_bytes = info.max_io_buf_bytes;
        let mut servers = Vec::new();
        for (index, reactor) in reactors.iter().enumerate().take(info.nr_hw_queues.into()) {
            let queues = (index as u16..info.nr_hw_queues).step_by(reactors.len());
            let queues: io::Result<Vec<Tags>> = queues
                .map(|q| Tags::new(Arc::clone(file), q, info.queue_depth, io_bytes, encoded))
                .collect();
            let (disk, shared) = (Arc::clone(&self.disk), Arc::clone(&self.shared));
            let server = UblkServer::new(disk, shared, queues?, io_bytes, reactor.lanes);
            servers.push(server);
        }
        Ok(servers)
    }
}

fn wanted(config: &UblkConfig, disk: &DiskInfo, nqn: &str, reactors: usize) -> DesiredDevice {
    let io_bytes = params::io_bytes_max(disk, IO_BYTES_MAX);
    DesiredDevice {
        id: config.id,
        recover: config.recover,
        queues: u16::try_from(reactors).unwrap_or(u16::MAX),
        queue_depth: config.queue_depth,
        io_bytes,
        params: params::params(disk, io_bytes),
        identity: device::identity(nqn, disk.nsid, disk.identifier(), disk.lba_bytes),
    }
}

impl Attachment for UblkAttachment {
    fn devices(&self) -> Vec<AttachedDevice> {
        vec![AttachedDevice { nsid: self.nsid, names: vec![self.path().display().to_string()] }]
    }

    /// # Panics
    /// Never: only the drop takes the controller out.
    fn controller(&self) -> &HostController {
        self.controller.as_ref().expect("an attachment has its controller")
    }

    fn resources(&self) -> Vec<SystemResource> {
        vec![SystemResource::Ublk(self.id)]
    }

    fn stop(self: Box<Self>) {}
}

impl Drop for UblkAttachment {
    fn drop(&mut self) {
        self.follower = None;
        let how = match (self.started, self.recovered) {
            (true, _) => DeviceEnd::InUse,
            (false, false) => DeviceEnd::NotStarted,
            (false, true) => DeviceEnd::LeftAgain,
        };
        if let Some(controller) = self.controller.take() {
            end::end(self.id, how, controller, &self.shared, self.file.take());
        }
    }
}

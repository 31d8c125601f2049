//! A frontend's messages on its connection, and their effects.
//!
//! The `vhost` crate receives and decodes the messages; this module turns them into orders to the reactors.

use super::config_space;
use super::inflight::InflightMemory;
use super::memory::MemoryTable;
use super::orders::{OrderKind, QueueOrder};
use super::ring::{QUEUE_SIZE_MAX, QueueSignals, RingSetup};
use crate::disk::LiveDisk;
use roadtrain_system::mailbox::MailboxSender;
use roadtrain_system::ring::EventfdSignaller;
use roadtrain_wire::virtio_blk::feature;
use roadtrain_wire::zerocopy::IntoBytes;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use tracing::debug;
use vhost::vhost_user::message::*;
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};

/// Most queues of a device; the frontend chooses how many it uses.
pub(crate) const QUEUES_MAX: u16 = 128;

/// Disk and servers on which a session acts.
#[derive(Clone)]
pub(crate) struct SessionContext {
    pub(crate) disk: Arc<LiveDisk>,
    /// Index of the disk among the served ones.
    pub(crate) disk_index: usize,
    /// Servers of the reactors. Queues are distributed over them.
    pub(crate) servers: Vec<MailboxSender<QueueOrder>>,
}

impl SessionContext {
    /// Returns the server of a queue. Disks begin at different ones.
    fn server(&self, queue: u16) -> &MailboxSender<QueueOrder> {
        &self.servers[(self.disk_index + usize::from(queue)) % self.servers.len()]
    }

    /// Sends an order about one queue. Returns `false` if the reactor has ended.
    fn order(&self, queue: u16, kind: OrderKind) -> bool {
        self.server(queue).send(QueueOrder { disk: self.disk_index, kind })
    }

    /// Sends an order and waits for its reply; `None` if the reactor has ended.
    fn call<T>(
        &self,
        server: &MailboxSender<QueueOrder>,
        kind: impl FnOnce(SyncSender<T>) -> OrderKind,
    ) -> Option<T> {
        let (reply, answer) = sync_channel(1);
        let order = QueueOrder { disk: self.disk_index, kind: kind(reply) };
        server.send(order).then(|| answer.recv().ok())?
    }
}

/// Settings of one queue so far.
#[derive(Default)]
struct QueuePlan {
    size: u16,
    /// Descriptors, available ring and used ring in the frontend's address space.
    rings: Option<[u64; 3]>,
    base: u16,
    kick: Option<File>,
    call: Option<File>,
    error: Option<File>,
    enabled: bool,
    running: bool,
}

/// One frontend's connection.
pub(crate) struct VhostSession {
    wiring: SessionContext,
    features: u64,
    protocol_features: u64,
    memory: Option<MemoryTable>,
    inflight: Option<Arc<InflightMemory>>,
    queues: Vec<QueuePlan>,
}

impl VhostSession {
    pub(crate) fn new(wiring: SessionContext) -> Self {
        let queues = (0..QUEUES_MAX).map(|_| QueuePlan::default()).collect();
        let (features, protocol_features) = (0, 0);
        VhostSession { wiring, features, protocol_features, memory: None, inflight: None, queues }
    }

    /// True if the frontend may send a channel for the backend's requests.
    pub(crate) fn takes_channel(&self) -> bool {
        self.protocol_features & VhostUserProtocolFeatures::BACKEND_REQ.bits() != 0
    }

    /// Ends the session of a frontend that is gone: no server accesses the guest's memory when this returns.
    pub(crate) fn end(&mut self) {
        for server in &self.wiring.servers {
            self.wiring.call(server, |done| OrderKind::Abandon { done });
        }
    }

    fn queue(&mut self, index: u32) -> Result<(u16, &mut QueuePlan)> {
        let plan = self.queues.get_mut(index as usize).ok_or(Error::InvalidParam)?;
        Ok((index as u16, plan))
    }

    fn has_protocol_features(&self) -> bool {
        self.features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() != 0
    }

    /// Starts a queue once all its settings are known.
    fn start_if_ready(&mut self, index: u16) -> Result<()> {
        let (event_idx, inflight) = (self.features & feature::RING_EVENT_IDX != 0, &self.inflight);
        // Virtio 1.2, 5.2.6.2: FLUSH was offered and not taken.
        let write_through = self.features & feature::FLUSH == 0;
        let plan = &self.queues[usize::from(index)];
        let (Some(table), Some(rings)) = (&self.memory, plan.rings) else { return Ok(()) };
        let (Some(kick), false) = (&plan.kick, plan.running || !plan.enabled) else {
            return Ok(());
        };
        let error = plan.error.as_ref().map(File::try_clone).transpose();
        let signals = QueueSignals {
            call: plan.call.as_ref().map(bell).transpose()?,
            error: error.map_err(internal)?,
        };
        let place = |user| table.guest_address(user).ok_or(Error::InvalidParam);
        let setup = RingSetup {
            index,
            size: plan.size,
            descriptors: place(rings[0])?,
            available: place(rings[1])?,
            used: place(rings[2])?,
            base: plan.base,
            event_idx,
            write_through,
            kick: kick.try_clone().map_err(internal)?,
            signals,
            memory: table.memory().clone(),
            inflight: inflight.clone(),
        };
        debug!(queue = index, size = setup.size, base = setup.base, "vhost-user: queue starts");
        self.queues[usize::from(index)].running = true;
        self.wiring.order(index, OrderKind::Start(Box::new(setup)));
        Ok(())
    }

    /// Stops a queue and records the index at which it would continue.
    fn stop(&mut self, index: u16) -> Result<u16> {
        if std::mem::take(&mut self.queues[usize::from(index)].running) {
            let server = self.wiring.server(index);
            let stopped = self.wiring.call(server, |reply| OrderKind::Stop { queue: index, reply });
            // The reactor has ended: the index is unknown.
            let base = stopped.ok_or(Error::BackendInternalError)?;
            self.queues[usize::from(index)].base = base;
            debug!(queue = index, base, "vhost-user: queue stopped");
        }
        Ok(self.queues[usize::from(index)].base)
    }

    /// Sends an order about a running queue; the others get the setting when they start.
    fn order_if_running(&self, queue: u16, kind: OrderKind) {
        if self.queues[usize::from(queue)].running {
            self.wiring.order(queue, kind);
        }
    }
}

/// Returns a bell that signals `event`, which the frontend shares.
fn bell(event: &File) -> Result<EventfdSignaller> {
    EventfdSignaller::new(event.as_fd()).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => Error::InvalidOperation("an event that is no eventfd"),
        _ => internal(error),
    })
}

fn internal(error: io::Error) -> Error {
    Error::ReqHandlerError(error)
}

fn not_served<T>() -> Result<T> {
    Err(Error::InvalidOperation("not served"))
}

impl VhostUserBackendReqHandlerMut for VhostSession {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        (0..QUEUES_MAX).try_for_each(|index| self.stop(index).map(drop))
    }

    fn reset_device(&mut self) -> Result<()> {
        not_served()
    }

    fn get_features(&mut self) -> Result<u64> {
        let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        Ok(config_space::features(&self.wiring.disk) | protocol)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.get_features()? != 0 {
            return Err(Error::FeatureMismatch);
        }
        self.features = features;
        if !self.has_protocol_features() {
            // Without protocol features no message enables queues.
            self.queues.iter_mut().for_each(|plan| plan.enabled = true);
        }
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        use VhostUserProtocolFeatures as F;
        Ok(F::MQ | F::REPLY_ACK | F::CONFIG | F::INFLIGHT_SHMFD | F::BACKEND_REQ)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        self.protocol_features = features;
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<vhost::VhostUserMemoryRegionBase>>> {
        let table = MemoryTable::map(regions, files).map_err(internal)?;
        for server in &self.wiring.servers {
            let memory = table.memory().clone();
            self.wiring.call(server, |done| OrderKind::Remap { memory, done });
        }
        self.memory = Some(table);
        Ok(None)
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES_MAX.into())
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num).ok().filter(|size| *size <= QUEUE_SIZE_MAX);
        self.queue(index)?.1.size =
            size.filter(|n| n.is_power_of_two()).ok_or(Error::InvalidParam)?;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _: u64,
    ) -> Result<()> {
        self.queue(index)?.1.rings = Some([descriptor, available, used]);
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.queue(index)?.1.base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let (queue, plan) = self.queue(index)?;
        plan.kick = None;
        let base = self.stop(queue)?;
        Ok(VhostUserVringState::new(index, base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, event: Option<File>) -> Result<()> {
        let (queue, _) = self.queue(index.into())?;
        // Without it the queue would have to be polled.
        let event = event.ok_or(Error::InvalidOperation("a queue without kicks"))?;
        // Reads of other files could block. A file that a bell accepts is an eventfd.
        bell(&event)?;
        self.stop(queue)?;
        self.queues[usize::from(queue)].kick = Some(event);
        self.start_if_ready(queue)
    }

    fn set_vring_call(&mut self, index: u8, event: Option<File>) -> Result<()> {
        let bell = event.as_ref().map(bell).transpose()?;
        let (queue, plan) = self.queue(index.into())?;
        plan.call = event;
        self.order_if_running(queue, OrderKind::Call { queue, bell });
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, event: Option<File>) -> Result<()> {
        event.as_ref().map(bell).transpose()?;
        let (queue, plan) = self.queue(index.into())?;
        let copy = event.as_ref().map(File::try_clone).transpose().map_err(internal)?;
        plan.error = event;
        self.order_if_running(queue, OrderKind::Error { queue, event: copy });
        Ok(())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let (queue, plan) = self.queue(index)?;
        plan.enabled = enable;
        match enable {
            true => self.start_if_ready(queue),
            false => self.stop(queue).map(drop),
        }
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let config = config_space::config(&self.wiring.disk, QUEUES_MAX);
        // Fields that the device lacks are zero.
        let bytes = config.as_bytes().iter().copied().chain(std::iter::repeat(0));
        Ok(bytes.skip(offset as usize).take(size as usize).collect())
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        // Nothing can be set, and a guest must not be able to end the connection.
        Ok(())
    }

    fn get_inflight_fd(
        &mut self,
        inflight: &VhostUserInflight,
    ) -> Result<(VhostUserInflight, File)> {
        let (queues, size) = checked(inflight)?;
        let (memory, layout, file) = InflightMemory::create(queues, size).map_err(internal)?;
        self.inflight = Some(Arc::new(memory));
        Ok((layout, file))
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        checked(inflight)?;
        let memory = InflightMemory::map(inflight, file).map_err(internal)?;
        self.inflight = Some(Arc::new(memory));
        Ok(())
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        not_served()
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        not_served()
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        not_served()
    }

    fn add_mem_region(
        &mut self,
        _: &VhostUserSingleMemoryRegion,
        _: File,
        _: Option<bool>,
    ) -> Result<Option<vhost::VhostUserMemoryRegionBase>> {
        not_served()
    }

    fn remove_mem_region(&mut self, _: &VhostUserSingleMemoryRegion) -> Result<()> {
        not_served()
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        not_served()
    }

    fn check_device_state(&mut self) -> Result<()> {
        not_served()
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        not_served()
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        not_served()
    }
}

/// Checks the number and size of queues whose requests are recorded.
fn checked(inflight: &VhostUserInflight) -> Result<(u16, u16)> {
    let (queues, size) = (inflight.num_queues, inflight.queue_size);
    let fits = (1..=QUEUES_MAX).contains(&queues) && (1..=QUEUE_SIZE_MAX).contains(&size);
    fits.then_some((queues, size)).ok_or(Error::InvalidParam)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::test_info;

    #[test]
    fn events_that_are_no_eventfds_are_refused() {
        let disk = Arc::new(LiveDisk::new(test_info()).unwrap());
        let mut session =
            VhostSession::new(SessionContext { disk, disk_index: 0, servers: Vec::new() });
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = || Some(File::from(std::os::fd::OwnedFd::from(near.try_clone().unwrap())));
        assert!(session.set_vring_kick(0, socket()).is_err());
        assert!(session.set_vring_call(0, socket()).is_err());
        assert!(session.set_vring_err(0, socket()).is_err());
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        let event = || Some(File::from(event.try_clone().unwrap()));
        assert!(session.set_vring_kick(0, event()).is_ok());
        assert!(session.set_vring_call(0, event()).is_ok());
        assert!(session.set_vring_err(0, event()).is_ok());
        assert!(session.set_vring_call(0, None).is_ok());
    }
}

//! A remote namespace as a vhost-user disk: connects a controller and serves queues on each of its reactors.

use super::control::{Control, Stop};
use super::server::{Strays, VhostServer};
use super::session::Wiring;
use crate::attachment::{AttachError, Attachment, Device};
use crate::disk::{Disk, DiskInfo, Nothing, Watch};
use crate::leftover::Leftover;
use crate::nbd::Listener;
use roadtrain_engine::host::{Controller, ControllerView, Front, HostConfig, ReactorInfo};
use roadtrain_engine::mailbox::mailbox;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// What to serve, and where.
#[derive(Clone, Debug)]
pub struct VhostUserConfig {
    /// The namespace.
    pub nsid: u32,
    /// The Unix socket that a virtual machine's monitor connects to.
    pub path: PathBuf,
}

/// A namespace that is served. Dropping it stops it.
pub struct VhostUserAttachment {
    config: VhostUserConfig,
    // Ends before the control thread: its reactors finish what the guest waits for.
    controller: Controller,
    control: ControlThread,
}

/// What the reactors' servers and the control thread have in common.
pub(super) struct Shared {
    wiring: Wiring,
    listener: Listener,
    watch: Watch,
    strays: Strays,
}

impl Shared {
    fn new(config: &VhostUserConfig, view: &ControllerView) -> Result<Self, AttachError> {
        let info = DiskInfo::of(&view.info(), config.nsid)?;
        Self::bind(&config.path, info, Watch::new(view.clone())).map_err(system)
    }

    /// Listens at `path` for who is to be served `info`.
    pub(super) fn bind(path: &Path, info: DiskInfo, watch: Watch) -> io::Result<Self> {
        let disk = Arc::new(Disk::new(info)?);
        let wiring = Wiring { disk, servers: Vec::new() };
        let listener = Listener::bind_unix(path)?;
        Ok(Shared { wiring, listener, watch, strays: Strays::default() })
    }

    #[cfg(test)]
    pub(super) fn disk(&self) -> &Arc<Disk> {
        &self.wiring.disk
    }

    /// The next reactor's server.
    pub(super) fn server(&mut self, reactor: ReactorInfo) -> io::Result<VhostServer> {
        let (outbox, inbox) = mailbox()?;
        self.wiring.servers.push(outbox);
        let (disk, strays) = (self.wiring.disk.clone(), self.strays.clone());
        Ok(VhostServer::new(disk, reactor.lanes, reactor.count, inbox, strays))
    }
}

/// The control thread. Dropping it ends it.
pub(super) struct ControlThread {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl ControlThread {
    /// Waits for frontends from now on.
    pub(super) fn start(shared: Shared) -> io::Result<Self> {
        let Shared { wiring, listener, watch, .. } = shared;
        let stop = Arc::new(Stop::new()?);
        let control = Control { listener, wiring, watch, stop: stop.clone() };
        let thread = thread::Builder::new().name("roadtrain-vhost".into());
        let thread = Some(thread.spawn(move || control.run())?);
        Ok(ControlThread { stop, thread })
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        self.stop.ask();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl VhostUserAttachment {
    /// Connects as `host` says and serves what `config` says; a frontend can connect when this returns.
    ///
    /// # Errors
    /// When the controller, the namespace or the path is not to be had; nothing keeps running.
    ///
    /// # Panics
    /// Never: a controller that connects has made a front.
    pub fn start(host: HostConfig, config: &VhostUserConfig) -> Result<Self, AttachError> {
        let mut shared: Option<Result<Shared, AttachError>> = None;
        let controller = Controller::connect(host, |reactor, view| {
            let made = shared.get_or_insert_with(|| Shared::new(config, view));
            let server = match made {
                Ok(shared) => shared.server(reactor).map_err(system),
                Err(_) => return Box::new(Nothing),
            };
            match server {
                Ok(server) => Box::new(server) as Box<dyn Front + Send>,
                Err(error) => {
                    *made = Err(error);
                    Box::new(Nothing)
                }
            }
        })?;
        let shared = shared.expect("a controller has at least one reactor")?;
        let control = ControlThread::start(shared).map_err(system)?;
        Ok(VhostUserAttachment { config: config.clone(), controller, control })
    }
}

fn system(source: io::Error) -> AttachError {
    AttachError::Show { what: "cannot serve vhost-user".into(), source }
}

impl Attachment for VhostUserAttachment {
    fn devices(&self) -> Vec<Device> {
        let names = vec![self.config.path.display().to_string()];
        vec![Device { nsid: self.config.nsid, names }]
    }

    fn controller(&self) -> &Controller {
        &self.controller
    }

    fn leftovers(&self) -> Vec<Leftover> {
        vec![Leftover::Socket(self.config.path.clone())]
    }

    fn stop(self: Box<Self>) {
        let VhostUserAttachment { controller, control, .. } = *self;
        controller.stop();
        controller.join();
        drop(control);
    }
}

//! Remote namespaces as vhost-user disks: connects a controller and serves queues on each of its reactors.

use super::control::{ControlLoop, ControlStop};
use super::orders::QueueOrder;
use super::server::{OrphanCount, VhostDisk, VhostServer};
use super::session::SessionContext;
use crate::attachment::{AttachError, AttachedDevice, Attachment};
use crate::disk::{DiskInfo, IdleFront, LiveDisk, NamespaceWatch, NoNamespace};
use crate::nbd::FrontListener;
use crate::system_resource::SystemResource;
use roadtrain_host_engine::{Front, HostConfig, HostController, HostControllerView, ReactorInfo};
use roadtrain_system::mailbox::{MailboxSender, mailbox};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Default namespace of a socket.
const NSID_DEFAULT: u32 = 1;

/// Configuration of a vhost-user backend.
#[derive(Clone, Debug)]
pub struct VhostUserConfig {
    /// Namespace; `None` serves all in a directory, else the first one.
    pub nsid: Option<u32>,
    /// Unix socket that a virtual machine's monitor connects to. A path that ends with a slash is a directory: it gets
    /// a socket `nvme0nN.sock` for each namespace N.
    pub path: PathBuf,
}

/// True if `path` means a directory for sockets.
pub(crate) fn is_directory(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

impl VhostUserConfig {
    /// Returns the namespaces to serve, out of those present, with their sockets.
    fn sockets(&self, present: impl Iterator<Item = u32>) -> Vec<(u32, PathBuf)> {
        if !is_directory(&self.path) {
            return vec![(self.nsid.unwrap_or(NSID_DEFAULT), self.path.clone())];
        }
        let nsids: Vec<u32> = match self.nsid {
            Some(nsid) => vec![nsid],
            None => present.collect(),
        };
        nsids.into_iter().map(|nsid| (nsid, self.path.join(format!("nvme0n{nsid}.sock")))).collect()
    }
}

/// Namespaces that are served. Dropping it stops them.
pub struct VhostUserAttachment {
    sockets: Vec<(u32, PathBuf)>,
    // Ends before the control threads: its reactors finish the guests' requests.
    controller: HostController,
    controls: Vec<ControlThread>,
}

/// State that the reactors' servers and the control threads share.
#[derive(Default)]
pub(super) struct VhostSetup {
    sockets: Vec<(u32, PathBuf)>,
    disks: Vec<(VhostDisk, FrontListener, NamespaceWatch)>,
    servers: Vec<MailboxSender<QueueOrder>>,
}

impl VhostSetup {
    fn new(config: &VhostUserConfig, view: &HostControllerView) -> Result<Self, AttachError> {
        let (mut shared, controller) = (VhostSetup::default(), view.info());
        let present = controller.namespaces.iter().map(|namespace| namespace.nsid);
        shared.sockets = config.sockets(present);
        if shared.sockets.is_empty() {
            return Err(NoNamespace { nsid: NSID_DEFAULT, present: "none".into() }.into());
        }
        for (nsid, path) in shared.sockets.clone() {
            let info = DiskInfo::of(&controller, nsid)?;
            let show = |source| {
                let what = format!("cannot serve vhost-user at {}", path.display());
                AttachError::Show { what, source }
            };
            shared.add(&path, info, NamespaceWatch::new(view.clone())).map_err(show)?;
        }
        Ok(shared)
    }

    /// Listens at `path` for frontends of the disk `info`.
    pub(super) fn add(
        &mut self,
        path: &Path,
        info: DiskInfo,
        watch: NamespaceWatch,
    ) -> io::Result<&Arc<LiveDisk>> {
        let served =
            VhostDisk { disk: Arc::new(LiveDisk::new(info)?), orphans: OrphanCount::default() };
        let listener = FrontListener::bind_unix(path)?;
        self.disks.push((served, listener, watch));
        Ok(&self.disks[self.disks.len() - 1].0.disk)
    }

    /// Makes the next reactor's server.
    pub(super) fn server(&mut self, reactor: ReactorInfo) -> io::Result<VhostServer> {
        let (outbox, inbox) = mailbox()?;
        self.servers.push(outbox);
        let disks = self.disks.iter().map(|(served, ..)| served.clone());
        Ok(VhostServer::new(disks, reactor.lanes, inbox))
    }

    /// Starts to wait for frontends.
    pub(super) fn listen(self) -> io::Result<Vec<ControlThread>> {
        let servers = self.servers;
        let control = |(place, (served, listener, watch)): (
            usize,
            (VhostDisk, FrontListener, NamespaceWatch),
        )| {
            let wiring =
                SessionContext { disk: served.disk, disk_index: place, servers: servers.clone() };
            ControlThread::start(listener, wiring, watch)
        };
        self.disks.into_iter().enumerate().map(control).collect()
    }
}

/// A control thread: one for each disk. Dropping it ends it.
pub(super) struct ControlThread {
    stop: Arc<ControlStop>,
    thread: Option<JoinHandle<()>>,
}

impl ControlThread {
    fn start(
        listener: FrontListener,
        wiring: SessionContext,
        watch: NamespaceWatch,
    ) -> io::Result<Self> {
        let stop = Arc::new(ControlStop::new()?);
        let control = ControlLoop { listener, wiring, watch, stop: stop.clone() };
        let thread = thread::Builder::new().name("roadtrain-vhost".into());
        let thread = Some(thread.spawn(move || control.run())?);
        Ok(ControlThread { stop, thread })
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        self.stop.request();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl VhostUserAttachment {
    /// Connects to `host` and serves the namespaces of `config`. A frontend can connect when this returns.
    ///
    /// # Errors
    /// Fails if the controller, the namespace or the path is not available; nothing keeps running.
    ///
    /// # Panics
    /// Never: a controller that connects has made a front.
    pub fn start(host: HostConfig, config: &VhostUserConfig) -> Result<Self, AttachError> {
        let mut shared: Option<Result<VhostSetup, AttachError>> = None;
        let controller = HostController::connect(host, |reactor, view| {
            let made = shared.get_or_insert_with(|| VhostSetup::new(config, view));
            let server = match made {
                Ok(shared) => shared.server(reactor).map_err(system),
                Err(_) => return Box::new(IdleFront),
            };
            match server {
                Ok(server) => Box::new(server) as Box<dyn Front + Send>,
                Err(error) => {
                    *made = Err(error);
                    Box::new(IdleFront)
                }
            }
        })?;
        let shared = shared.expect("a controller has at least one reactor")?;
        let sockets = shared.sockets.clone();
        let controls = shared.listen().map_err(system)?;
        Ok(VhostUserAttachment { sockets, controller, controls })
    }
}

fn system(source: io::Error) -> AttachError {
    AttachError::Show { what: "cannot serve vhost-user".into(), source }
}

impl Attachment for VhostUserAttachment {
    fn devices(&self) -> Vec<AttachedDevice> {
        let device = |(nsid, path): &(u32, PathBuf)| AttachedDevice {
            nsid: *nsid,
            names: vec![path.display().to_string()],
        };
        self.sockets.iter().map(device).collect()
    }

    fn controller(&self) -> &HostController {
        &self.controller
    }

    fn resources(&self) -> Vec<SystemResource> {
        self.sockets.iter().map(|(_, path)| SystemResource::Socket(path.clone())).collect()
    }

    fn stop(self: Box<Self>) {
        let VhostUserAttachment { controller, controls, .. } = *self;
        controller.stop();
        controller.join();
        drop(controls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_a_socket_for_each_namespace() {
        let sockets = |path: &str, nsid| {
            let config = VhostUserConfig { nsid, path: path.into() };
            let sockets = config.sockets([1, 7].into_iter());
            sockets.iter().map(|(nsid, path)| format!("{nsid} {}", path.display())).collect()
        };
        let [one, chosen, all, one_of]: [Vec<String>; 4] = [
            sockets("/run/d", None),
            sockets("/run/d", Some(7)),
            sockets("/run/d/", None),
            sockets("/run/d/", Some(7)),
        ];
        assert_eq!((one[0].as_str(), chosen[0].as_str()), ("1 /run/d", "7 /run/d"));
        assert_eq!(all, ["1 /run/d/nvme0n1.sock", "7 /run/d/nvme0n7.sock"]);
        assert_eq!(one_of, all[1..]);
    }
}

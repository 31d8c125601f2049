//! Namespaces as files: connects a controller, mounts, serves on each of its reactors.

use super::loop_device::{self, FuseLoopDevice};
use super::service::{FuseMount, FuseService};
use super::uring::FuseUring;
use crate::attachment::{AttachError, AttachedDevice, Attachment};
use crate::disk::{DiskInfo, IdleFront, NoNamespace, Poller};
use crate::reclaim;
use crate::system_resource::SystemResource;
use roadtrain_host_engine::{Front, HostConfig, HostController, HostControllerView, LinkState};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use tracing::warn;

/// Longest wait for loop devices to write their cached data when they end.
const LOOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Configuration of a FUSE mount.
#[derive(Clone, Debug)]
pub struct FuseConfig {
    /// Mount point.
    pub mountpoint: PathBuf,
    /// Namespace to serve; `None` serves all namespaces of the controller.
    pub nsid: Option<u32>,
    /// True to put a loop device over each file.
    pub loop_devices: bool,
    /// Transport of the kernel's requests: io_uring or `/dev/fuse`.
    pub uring: FuseUring,
}

/// Namespaces that are files of a mount. Dropping it ends the loop devices, then the mount, then the controller.
pub struct FuseAttachment {
    /// Poller that resizes the loop devices; does I/O to the mount.
    resizer: Option<Poller>,
    loops: Vec<FuseLoopDevice>,
    mount: FuseMount,
    controller: HostController,
}

impl FuseAttachment {
    /// Connects to `host` and mounts as `config` says. The files exist when this returns.
    ///
    /// # Errors
    /// Fails if the controller, a namespace or the mount is not available; nothing is left behind then.
    ///
    /// # Panics
    /// Never: a controller that connects has made a front.
    pub fn start(host: HostConfig, config: &FuseConfig) -> Result<Self, AttachError> {
        let cores = host.cores.clone();
        let mut service: Option<Result<FuseService, AttachError>> = None;
        reclaim::prepare();
        let controller = HostController::connect(host, |reactor, view| {
            let service = service.get_or_insert_with(|| prepare(config.nsid, view, &cores));
            let server = match service {
                Ok(service) => service.server(reactor, Some(view)),
                Err(_) => return Box::new(IdleFront),
            };
            server.map_or_else(
                |error| {
                    *service = Err(show("cannot serve files")(error));
                    Box::new(IdleFront) as Box<dyn Front + Send>
                },
                |server| Box::new(server),
            )
        })?;
        let service = service.expect("a controller has at least one reactor")?;
        let place = format!("cannot mount at {}", config.mountpoint.display());
        let mount = service.mount(&config.mountpoint, config.uring).map_err(show(&place))?;
        let (resizer, loops) = (None, Vec::new());
        let mut made = FuseAttachment { resizer, loops, mount, controller };
        if config.loop_devices {
            made.add_loops()?;
        }
        Ok(made)
    }

    fn add_loops(&mut self) -> Result<(), AttachError> {
        let mut followed = Vec::new();
        for (info, file) in self.mount.files() {
            let made = FuseLoopDevice::new(&file, info.lba_bytes, info.read_only);
            let made = made.map_err(show("cannot make a loop device"))?;
            let device = made.path().to_owned();
            followed.push(Followed { nsid: info.nsid, blocks: info.blocks, file, device });
            self.loops.push(made);
        }
        let view = self.controller.view().clone();
        let resize = move || followed.iter_mut().for_each(|device| device.follow(&view));
        let resizer = Poller::start("roadtrain-loop", resize);
        self.resizer = Some(resizer.map_err(show("cannot follow the sizes"))?);
        Ok(())
    }

    /// Ends the loop devices and the mount, and shuts the controller down.
    pub fn stop(self) {}
}

impl Drop for FuseAttachment {
    fn drop(&mut self) {
        self.resizer = None;
        let loops = std::mem::take(&mut self.loops);
        if loops.is_empty() {
            return;
        }
        let paths: Vec<PathBuf> = loops.iter().map(|device| device.path().to_owned()).collect();
        // File systems on the loop devices are written back while the target answers; the devices' end does not do it.
        let is_connected = self.controller.view().link().state == LinkState::Connected;
        let patience =
            if is_connected && !write_back(&loops) { Duration::ZERO } else { LOOP_TIMEOUT };
        // The last close of a device writes its cached data, which takes as long as the target takes to answer. It
        // fails once the mount is gone.
        let (end, ended) = channel::<()>();
        std::thread::spawn(move || {
            drop(loops);
            drop(end);
        });
        if ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            let text =
                format!("what was cached of {} and not written back is lost", names.join(", "));
            warn!("{text}");
            return self.controller.view().lose(text);
        }
        for path in paths.iter().filter(|path| loop_device::has_file(path)) {
            let users = loop_device::users(path).join(", ");
            let path = path.display();
            warn!("{path} is in use ({users}): it goes when that ends, and can write no more");
        }
    }
}

/// Writes back all loop devices at once. True if nothing is left to write.
fn write_back(loops: &[FuseLoopDevice]) -> bool {
    std::thread::scope(|scope| {
        let all: Vec<_> = loops.iter().map(|device| scope.spawn(|| device.write_back())).collect();
        all.into_iter().all(|one| one.join().unwrap_or(false))
    })
}

impl Attachment for FuseAttachment {
    fn devices(&self) -> Vec<AttachedDevice> {
        let device = |(index, (info, file)): (usize, (&DiskInfo, PathBuf))| {
            let over = self.loops.get(index).map(|device| device.path().display().to_string());
            let names = over.into_iter().chain([file.display().to_string()]).collect();
            AttachedDevice { nsid: info.nsid, names }
        };
        self.mount.files().enumerate().map(device).collect()
    }

    fn controller(&self) -> &HostController {
        &self.controller
    }

    fn resources(&self) -> Vec<SystemResource> {
        let loops = self.loops.iter().map(|device| SystemResource::Loop(device.path().to_owned()));
        let folders = self.mount.made_folders().iter().cloned().map(SystemResource::Folder);
        loops.chain([SystemResource::Mount(self.mount.path().to_owned())]).chain(folders).collect()
    }

    fn stop(self: Box<Self>) {
        FuseAttachment::stop(*self);
    }
}

/// Returns the service for the namespaces to be mounted.
fn prepare(
    nsid: Option<u32>,
    view: &HostControllerView,
    cores: &[usize],
) -> Result<FuseService, AttachError> {
    let controller = view.info();
    let nsids = match nsid {
        Some(nsid) => vec![nsid],
        None => controller.namespaces.iter().map(|namespace| namespace.nsid).collect(),
    };
    if nsids.is_empty() {
        return Err(NoNamespace { nsid: 1, present: "none".into() }.into());
    }
    let disks: Result<Vec<_>, _> =
        nsids.into_iter().map(|nsid| DiskInfo::of(&controller, nsid)).collect();
    FuseService::new(disks?, cores).map_err(show("cannot serve files"))
}

fn show(what: &str) -> impl Fn(io::Error) -> AttachError {
    let what = what.to_owned();
    move |source| AttachError::Show { what: what.clone(), source }
}

/// A loop device that follows its namespace's size.
struct Followed {
    nsid: u32,
    /// Size that the loop device has now, in blocks.
    blocks: u64,
    file: PathBuf,
    device: PathBuf,
}

impl Followed {
    fn follow(&mut self, view: &HostControllerView) {
        let Some(blocks) = view.namespace(self.nsid).map(|namespace| namespace.blocks) else {
            return;
        };
        if blocks != std::mem::replace(&mut self.blocks, blocks)
            && let Err(error) = loop_device::resize(&self.device, &self.file)
        {
            warn!("{} does not follow its namespace's size: {error}", self.device.display());
        }
    }
}

#[cfg(test)]
mod tests;

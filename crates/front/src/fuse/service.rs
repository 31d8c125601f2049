//! Files before and while they are mounted: a server for each reactor, then the mount.

use super::mount::KernelMount;
use super::mount_state::MountState;
use super::server::FuseServer;
use super::sys;
use super::tree::{Tree, file_name};
use super::uring::FuseUring;
use crate::disk::{DiskInfo, LiveDisk, NamespaceWatch};
use roadtrain_host_engine::{HostControllerView, ReactorInfo};
use std::io::{self, PipeReader, PipeWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tracing::info;

/// Disks to be mounted as files. Their servers start when the mount exists.
#[derive(Debug)]
pub struct FuseService {
    session: Arc<MountState>,
    /// Cores of the reactors, in order.
    cores: Vec<usize>,
    /// Readable once `beginner` is dropped.
    begin: PipeReader,
    beginner: PipeWriter,
}

impl FuseService {
    /// Makes a file for each of `disks`, served by reactors on `cores` (empty: not pinned).
    ///
    /// # Errors
    /// Fails if a disk is invalid, or without a descriptor for a pipe.
    pub fn new(disks: Vec<DiskInfo>, cores: &[usize]) -> io::Result<Self> {
        let disks = disks.into_iter().map(|info| LiveDisk::new(info).map(Arc::new));
        let time_s = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_secs());
        let tree = Tree::new(disks.collect::<Result<_, _>>()?, sys::user_and_group(), time_s);
        let (begin, beginner) = io::pipe()?;
        let session = Arc::new(MountState::new(tree));
        Ok(FuseService { session, cores: cores.to_owned(), begin, beginner })
    }

    /// Returns the front for `reactor`, which must have one. It follows the changes of `view`.
    ///
    /// # Errors
    /// Fails if no descriptor is left.
    pub fn server(
        &self,
        reactor: ReactorInfo,
        view: Option<&HostControllerView>,
    ) -> io::Result<FuseServer> {
        let watch =
            || view.map_or_else(NamespaceWatch::default, |view| NamespaceWatch::new(view.clone()));
        let (session, begin) = (Arc::clone(&self.session), self.begin.try_clone()?);
        Ok(FuseServer::new(session, reactor, self.cores.clone(), begin, watch))
    }

    /// Mounts the files at `path`, over io_uring if `uring` says so, and starts the servers.
    ///
    /// Fails if the mount is not available; the servers wait for the end of their reactors then.
    pub fn mount(self, path: &Path, uring: FuseUring) -> io::Result<FuseMount> {
        let (mount, mounted) = KernelMount::new(path, uring)?;
        let transport = if mounted.uring { "io_uring" } else { "/dev/fuse" };
        info!("{} is mounted, requests come over {transport}", mount.path().display());
        self.session.begin(mounted);
        drop(self.beginner);
        Ok(FuseMount { mount, session: self.session })
    }
}

/// Mounted files. Dropping it unmounts them, by force if they are in use; the servers' reactors must run until then.
#[derive(Debug)]
pub struct FuseMount {
    mount: KernelMount,
    session: Arc<MountState>,
}

impl FuseMount {
    /// Mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    /// Folders that were made for the mount and are removed with it, innermost first.
    #[must_use]
    pub fn made_folders(&self) -> &[PathBuf] {
        self.mount.made_folders()
    }

    /// Returns each disk with its file.
    pub fn files(&self) -> impl Iterator<Item = (&DiskInfo, PathBuf)> {
        let file = |info: &DiskInfo| self.path().join(file_name(info.nsid));
        self.session.tree.disks().iter().map(move |disk| (disk.info(), file(disk.info())))
    }
}

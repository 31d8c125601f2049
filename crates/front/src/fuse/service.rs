//! Files before and while they are mounted: a server for each reactor, then the mount.

use super::mount::Mount;
use super::server::FuseServer;
use super::session::Session;
use super::sys;
use super::tree::{Tree, file_name};
use super::uring::Uring;
use crate::disk::{Disk, DiskInfo, Watch};
use roadtrain_host_engine::{ControllerView, ReactorInfo};
use std::io::{self, PipeReader, PipeWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tracing::info;

/// Disks that are to be files of one mount. Their servers begin when it is made.
#[derive(Debug)]
pub struct FuseService {
    session: Arc<Session>,
    /// Of the reactors, in order.
    cores: Vec<usize>,
    /// Readable when `beginner` is gone.
    begin: PipeReader,
    beginner: PipeWriter,
}

impl FuseService {
    /// A file for each of `disks`, to be served by reactors on `cores` (empty: pinned to none).
    ///
    /// # Errors
    /// Disks that make no sense; no memory for a pipe.
    pub fn new(disks: Vec<DiskInfo>, cores: &[usize]) -> io::Result<Self> {
        let disks = disks.into_iter().map(|info| Disk::new(info).map(Arc::new));
        let time_s = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_secs());
        let tree = Tree::new(disks.collect::<Result<_, _>>()?, sys::user_and_group(), time_s);
        let (begin, beginner) = io::pipe()?;
        let session = Arc::new(Session::new(tree));
        Ok(FuseService { session, cores: cores.to_owned(), begin, beginner })
    }

    /// The front for `reactor`, which must have one. It follows changes that `view` shows.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn server(
        &self,
        reactor: ReactorInfo,
        view: Option<&ControllerView>,
    ) -> io::Result<FuseServer> {
        let watch = || view.map_or_else(Watch::default, |view| Watch::new(view.clone()));
        let (session, begin) = (Arc::clone(&self.session), self.begin.try_clone()?);
        Ok(FuseServer::new(session, reactor, self.cores.clone(), begin, watch))
    }

    /// Mounts the files at `path`, over io_uring as `uring` says, and lets the servers begin.
    ///
    /// # Errors
    /// The mount is not to be had; the servers wait for their reactors' end then.
    pub fn mount(self, path: &Path, uring: Uring) -> io::Result<FuseMount> {
        let (mount, mounted) = Mount::new(path, uring)?;
        let way = if mounted.uring { "io_uring" } else { "/dev/fuse" };
        info!("{} is mounted, requests come over {way}", mount.path().display());
        self.session.begin(mounted);
        drop(self.beginner);
        Ok(FuseMount { mount, session: self.session })
    }
}

/// Files that are mounted. Dropping it unmounts them, at once if need be; the servers' reactors must run
/// until then.
#[derive(Debug)]
pub struct FuseMount {
    mount: Mount,
    session: Arc<Session>,
}

impl FuseMount {
    /// Where they are.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    /// Folders that were made for it and go with it, innermost first.
    #[must_use]
    pub fn made_folders(&self) -> &[PathBuf] {
        self.mount.made_folders()
    }

    /// Each disk and its file.
    pub fn files(&self) -> impl Iterator<Item = (&DiskInfo, PathBuf)> {
        let file = |info: &DiskInfo| self.path().join(file_name(info.nsid));
        self.session.tree.disks().iter().map(move |disk| (disk.info(), file(disk.info())))
    }
}

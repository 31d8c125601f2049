//! Stores over the network: blocks that another target or server has.
//!
//! This crate does not know their protocols. The program that parses a specification brings the source, which opens
//! the store.

use crate::{OpenError, Store};
use roadtrain_system::guest::GuestSpawner;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// Source of a store over the network: everything that is needed to connect.
pub trait RemoteSource: fmt::Debug + Send + Sync {
    /// Returns the kind on the command line, such as `nvme`.
    fn scheme(&self) -> &'static str;

    /// Returns the location of the blocks as on the command line after the colon, without options.
    fn location(&self) -> String;

    /// Returns the kind of storage for management programs.
    fn product(&self) -> &'static str;

    /// Returns the options that are not defaults, by their names on the command line. A secret appears as the name of
    /// its file.
    fn options(&self) -> Vec<(&'static str, String)>;

    /// Connects. May block.
    ///
    /// # Errors
    /// The blocks cannot be reached or used.
    fn open(&self, context: &RemoteContext) -> Result<Arc<dyn Store>, OpenError>;
}

/// Surroundings of a store over the network.
#[derive(Clone, Default)]
pub struct RemoteContext {
    /// True to refuse writes.
    pub read_only: bool,
    /// Threads of the target that uses the store: work for the store may run on them. `None`: only on own threads.
    pub threads: Option<Arc<dyn GuestSpawner>>,
    /// Addresses on which the target that uses the store listens: the store must not lead back to it.
    pub own_addresses: Vec<SocketAddr>,
}

impl fmt::Debug for RemoteContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = self.threads.as_ref().map(|threads| threads.count());
        let RemoteContext { read_only, own_addresses, .. } = self;
        f.debug_struct("RemoteContext")
            .field("read_only", read_only)
            .field("threads", &threads)
            .field("own_addresses", own_addresses)
            .finish()
    }
}

/// Blocks over the network.
#[derive(Clone)]
pub struct RemoteBlocks(Arc<dyn RemoteSource>);

impl RemoteBlocks {
    /// Makes the blocks of `source`.
    #[must_use]
    pub fn new(source: impl RemoteSource + 'static) -> RemoteBlocks {
        RemoteBlocks(Arc::new(source))
    }

    /// Returns the source.
    #[must_use]
    pub fn source(&self) -> &dyn RemoteSource {
        &*self.0
    }
}

/// Writes the kind and the location, without options.
impl fmt::Display for RemoteBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.scheme(), self.0.location())
    }
}

impl fmt::Debug for RemoteBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Two of the same kind with the same location and options are equal.
impl PartialEq for RemoteBlocks {
    fn eq(&self, other: &RemoteBlocks) -> bool {
        let of =
            |blocks: &RemoteBlocks| (blocks.0.scheme(), blocks.0.location(), blocks.0.options());
        Arc::ptr_eq(&self.0, &other.0) || of(self) == of(other)
    }
}

impl Eq for RemoteBlocks {}

//! Namespaces as one reactor sees them: found without locks, kept alive by commands in execution.

use super::flushes::Unflushed;
use super::meters::NamespaceCells;
use super::open_store::OpenStore;
use roadtrain_proto::policy::Class;
use roadtrain_reactor::tuning::{PREFETCH_LINES, prefetch_read};
use roadtrain_store::InPlace;
use roadtrain_target_proto::SubsystemNamespaces as Table;
use roadtrain_target_proto::io::BlockGeometry;
use roadtrain_target_proto::rate::RateLimit;
use roadtrain_target_proto::reservations::HostAccess;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// Namespace as this reactor sees it.
pub(crate) struct LocalNamespace {
    pub(crate) geometry: BlockGeometry,
    pub(crate) store: Arc<OpenStore>,
    /// Memory of the store, if it lends it.
    pub(crate) in_place: Option<InPlace>,
    /// True if the CPU caches hold little of the namespace.
    pub(crate) is_cold: bool,
    /// Writes of the lane that no flush has covered; `None` if the store loses none.
    pub(crate) unflushed: Option<Unflushed>,
    /// Default class for commands without one.
    pub(crate) class: Option<Class>,
    /// Commands that a reservation forbids to the host.
    pub(crate) access: Arc<HostAccess>,
    /// Counters, by reactor.
    pub(crate) cells: Arc<[NamespaceCells]>,
    /// Rate limits of the namespace and of the host.
    pub(crate) limits: [Option<Arc<RateLimit>>; 2],
}

impl LocalNamespace {
    /// Prefetches the first bytes that a read accesses, if they are in memory. This is a hint: the command is not
    /// validated yet.
    #[inline]
    pub(crate) fn prefetch_ahead(&self, read: &Sqe) {
        let offset = read.slba() << self.geometry.lba_shift;
        let memory = self.in_place.as_ref();
        if let Some(start) = memory.and_then(|memory| memory.read_range(offset, 1)) {
            prefetch_read(start, PREFETCH_LINES);
        }
    }
}

/// Namespaces by NSID. Most commands use the namespace of the previous one.
#[derive(Clone, Default)]
pub(crate) struct ByNsid {
    all: Rc<HashMap<u32, Rc<LocalNamespace>>>,
    last: Option<(u32, Rc<LocalNamespace>)>,
}

/// Namespaces of one subsystem by NSID.
#[derive(Default)]
pub(crate) struct LaneNamespaces {
    by_nsid: ByNsid,
    /// Table of all namespaces, if some are not accessible here.
    refused: Option<Arc<Table>>,
}

impl LaneNamespaces {
    /// Creates the table of the accessible namespaces.
    pub(crate) fn new(
        table: Arc<Table>,
        in_reach: impl IntoIterator<Item = (u32, LocalNamespace)>,
    ) -> Self {
        let all: HashMap<_, _> =
            in_reach.into_iter().map(|(nsid, namespace)| (nsid, Rc::new(namespace))).collect();
        let by_nsid = ByNsid { all: Rc::new(all), last: None };
        let refused = (!table.is_usable()).then_some(table);
        LaneNamespaces { by_nsid, refused }
    }

    /// Returns the status for commands to a namespace, or to all, that exists but is not accessible.
    pub(crate) fn refusal(&self, nsid: u32) -> Option<Status> {
        self.refused.as_ref()?.refusal(nsid)
    }

    /// Returns the namespace with that NSID.
    #[inline]
    pub(crate) fn get(&mut self, nsid: u32) -> Option<Rc<LocalNamespace>> {
        self.by_nsid.get(nsid).cloned()
    }

    /// Borrows the namespace with that NSID.
    #[inline]
    pub(crate) fn peek(&mut self, nsid: u32) -> Option<&LocalNamespace> {
        self.by_nsid.get(nsid).map(Rc::as_ref)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Rc<LocalNamespace>> {
        self.by_nsid.all.values()
    }

    /// Returns the accessible namespaces.
    pub(crate) fn by_nsid(&self) -> ByNsid {
        self.by_nsid.clone()
    }
}

impl ByNsid {
    /// Borrows the namespace with that NSID, without the cache of the last one.
    pub(crate) fn known(&self, nsid: u32) -> Option<&Rc<LocalNamespace>> {
        self.all.get(&nsid)
    }

    /// Borrows the namespace with that NSID.
    #[inline]
    pub(crate) fn get(&mut self, nsid: u32) -> Option<&Rc<LocalNamespace>> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != nsid) {
            self.find(nsid)?;
        }
        self.last.as_ref().map(|(_, namespace)| namespace)
    }

    #[cold]
    fn find(&mut self, nsid: u32) -> Option<()> {
        self.last = Some((nsid, self.all.get(&nsid)?.clone()));
        Some(())
    }
}

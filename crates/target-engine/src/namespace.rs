//! Namespaces as one reactor sees them: found without locks once a lane has used them, kept alive by commands in
//! execution.

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
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// Namespace as this reactor sees it.
pub(crate) struct LocalNamespace {
    /// Version of the open namespace: another one has another store, or other settings.
    pub(crate) version: u64,
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

/// Finds a namespace that a lane has not used before.
pub(crate) trait NamespaceFinder {
    /// Returns the namespace; `None` if it is not accessible.
    fn find(&self, nsid: u32) -> Option<LocalNamespace>;
}

/// Namespaces that a lane has used, by NSID.
type UsedNamespaces = RefCell<HashMap<u32, Rc<LocalNamespace>>>;

/// Namespaces by NSID. Most commands use the namespace of the previous one. The others that the lane has used are in a
/// table, and the first use of a namespace finds it: a lane of thousands of namespaces holds only those in use.
#[derive(Clone, Default)]
pub(crate) struct ByNsid {
    used: Rc<UsedNamespaces>,
    finder: Option<Rc<dyn NamespaceFinder>>,
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
    /// Creates the namespaces of `table`, of which the lane has `used` some.
    pub(crate) fn new(
        table: Arc<Table>,
        finder: Rc<dyn NamespaceFinder>,
        used: impl IntoIterator<Item = (u32, Rc<LocalNamespace>)>,
    ) -> Self {
        let used = Rc::new(RefCell::new(used.into_iter().collect()));
        let by_nsid = ByNsid { used, finder: Some(finder), last: None };
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

    /// Returns the namespaces that the lane has used.
    pub(crate) fn used(&self) -> Vec<(u32, Rc<LocalNamespace>)> {
        let used = self.by_nsid.used.borrow();
        used.iter().map(|(nsid, namespace)| (*nsid, namespace.clone())).collect()
    }

    /// Returns the accessible namespaces.
    pub(crate) fn by_nsid(&self) -> ByNsid {
        self.by_nsid.clone()
    }
}

impl ByNsid {
    /// Returns the namespace with that NSID if the lane has used it.
    pub(crate) fn known(&self, nsid: u32) -> Option<Rc<LocalNamespace>> {
        self.used.borrow().get(&nsid).cloned()
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
        let namespace = match self.known(nsid) {
            Some(known) => known,
            None => {
                let new = Rc::new(self.finder.as_ref()?.find(nsid)?);
                self.used.borrow_mut().insert(nsid, new.clone());
                new
            }
        };
        self.last = Some((nsid, namespace));
        Some(())
    }
}

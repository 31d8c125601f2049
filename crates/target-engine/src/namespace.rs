//! A reactor's own view of the namespaces: looked up without locks, kept by commands in execution.

use super::flushes::Unflushed;
use super::meters::NamespaceCells;
use super::open_store::OpenStore;
use roadtrain_proto::policy::Class;
use roadtrain_reactor::tuning::{PREFETCH_LINES, prefetch_read};
use roadtrain_store::InPlace;
use roadtrain_target_proto::NamespaceTable as Table;
use roadtrain_target_proto::io::Geometry;
use roadtrain_target_proto::rate::RateLimit;
use roadtrain_target_proto::reservations::Access;
use roadtrain_wire::sqe::Sqe;
use roadtrain_wire::status::Status;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// One namespace as this reactor sees it.
pub(crate) struct LocalNamespace {
    pub(crate) geometry: Geometry,
    pub(crate) store: Arc<OpenStore>,
    /// The store's own memory, if it lends that.
    pub(crate) in_place: Option<InPlace>,
    /// The caches hold little of it.
    pub(crate) is_cold: bool,
    /// What the lane has written and nobody has flushed; `None`: nothing is lost.
    pub(crate) unflushed: Option<Unflushed>,
    /// Of commands that do not say theirs.
    pub(crate) class: Option<Class>,
    /// What a reservation keeps its host from.
    pub(crate) access: Arc<Access>,
    /// What is counted, by reactor.
    pub(crate) cells: Arc<[NamespaceCells]>,
    /// What limits its commands' rate: its own limit, and its host's.
    pub(crate) limits: [Option<Arc<RateLimit>>; 2],
}

impl LocalNamespace {
    /// Asks for the first octets of what a read reads, if they are in memory. A hint: nothing of the command has been
    /// checked.
    #[inline]
    pub(crate) fn prefetch_ahead(&self, read: &Sqe) {
        let offset = read.slba() << self.geometry.lba_shift;
        let memory = self.in_place.as_ref();
        if let Some(start) = memory.and_then(|memory| memory.read_range(offset, 1)) {
            prefetch_read(start, PREFETCH_LINES);
        }
    }
}

/// Namespaces by NSID. Most commands name the one that the last one did.
#[derive(Clone, Default)]
pub(crate) struct ByNsid {
    all: Rc<HashMap<u32, Rc<LocalNamespace>>>,
    last: Option<(u32, Rc<LocalNamespace>)>,
}

/// Namespaces of one subsystem by NSID.
#[derive(Default)]
pub(crate) struct NamespaceTable {
    by_nsid: ByNsid,
    /// All of them, if some are not in reach here.
    refused: Option<Arc<Table>>,
}

impl NamespaceTable {
    /// Of those of `table` that are in reach.
    pub(crate) fn new(
        table: Arc<Table>,
        in_reach: impl IntoIterator<Item = (u32, LocalNamespace)>,
    ) -> Self {
        let all: HashMap<_, _> =
            in_reach.into_iter().map(|(nsid, namespace)| (nsid, Rc::new(namespace))).collect();
        let by_nsid = ByNsid { all: Rc::new(all), last: None };
        let refused = (!table.is_usable()).then_some(table);
        NamespaceTable { by_nsid, refused }
    }

    /// What commands are answered for a namespace, or for all, that is there but not in reach.
    pub(crate) fn refusal(&self, nsid: u32) -> Option<Status> {
        self.refused.as_ref()?.refusal(nsid)
    }

    /// The namespace of that number.
    #[inline]
    pub(crate) fn get(&mut self, nsid: u32) -> Option<Rc<LocalNamespace>> {
        self.by_nsid.get(nsid).cloned()
    }

    /// The same, to look at.
    #[inline]
    pub(crate) fn look_at(&mut self, nsid: u32) -> Option<&LocalNamespace> {
        self.by_nsid.get(nsid).map(Rc::as_ref)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Rc<LocalNamespace>> {
        self.by_nsid.all.values()
    }

    /// Those that are in reach.
    pub(crate) fn by_nsid(&self) -> ByNsid {
        self.by_nsid.clone()
    }
}

impl ByNsid {
    /// The same, once.
    pub(crate) fn known(&self, nsid: u32) -> Option<&Rc<LocalNamespace>> {
        self.all.get(&nsid)
    }

    /// The namespace of that number.
    #[inline]
    pub(crate) fn get(&mut self, nsid: u32) -> Option<&Rc<LocalNamespace>> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != nsid) {
            self.look_up(nsid)?;
        }
        self.last.as_ref().map(|(_, namespace)| namespace)
    }

    #[cold]
    fn look_up(&mut self, nsid: u32) -> Option<()> {
        self.last = Some((nsid, self.all.get(&nsid)?.clone()));
        Some(())
    }
}

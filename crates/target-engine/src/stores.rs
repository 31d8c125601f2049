//! Open stores of all exports, and the changes of a new configuration.

use super::export::{Export, ExportBlocks, Subsystem};
use super::open_store::OpenStore;
use super::reservation_file::KeptReservations;
use super::uncorrectable::{Marked, Uncorrectable};
use roadtrain_store::{
    BlockIdentifiers, BlockLimits, BlockLocation, BlockOwnership, OpenError, RemoteContext, Resize,
    StoreGeometry, StoreKind, StoreSpec,
};
use roadtrain_target_proto::rate::RateLimit;
use roadtrain_target_proto::reservations::ReservationState;
use roadtrain_target_proto::uncorrectable::MarkChange;
use roadtrain_target_proto::{
    AnaState, ConfigError, ConfigObject as Named, NamespaceConfig, NamespaceDescription,
    NamespaceId, NamespaceKeys, SubsystemConfig, TargetConfig, TargetControl, TargetListener,
};
use std::collections::{BTreeMap, HashMap};
use std::mem::discriminant;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tracing::{info, warn};

/// Last [`OpenNamespace::version`].
static VERSIONS: AtomicU64 = AtomicU64::new(0);

/// Open namespace: its export, its store, and its configuration.
#[derive(Clone)]
pub(super) struct OpenNamespace {
    /// Number of the opening: another one has another store, or other settings that lanes use.
    pub(super) version: u64,
    pub(super) export: Export,
    place: Option<BlockLocation>,
    pub(super) store: Arc<OpenStore>,
    /// Configuration that hosts see.
    pub(super) config: NamespaceConfig,
    /// Reservations at the time of opening, and the file that keeps them.
    pub(super) kept: Option<KeptReservations>,
    /// Rate limit, with its current use.
    pub(super) limit: Arc<RateLimit>,
}

impl OpenNamespace {
    /// True if hosts see the namespace as inaccessible.
    pub(super) fn is_out_of_reach(&self) -> bool {
        self.config.ana == AnaState::Inaccessible
    }

    /// True if hosts can use the namespace at this target.
    pub(super) fn is_served(&self) -> bool {
        self.config.ana.is_usable() && self.store.store().ownership() == BlockOwnership::Ours
    }

    /// True if the namespace waits for blocks that another target owns.
    pub(super) fn stands_by(&self) -> bool {
        self.store.store().ownership().stands_by()
    }

    /// True if another target may seize the blocks while this one owns them, or this one may lose its paths to them.
    pub(super) fn changes_hands(&self) -> bool {
        match &self.export.blocks {
            ExportBlocks::Spec(spec) => match &spec.kind {
                StoreKind::Remote(_) => true, // its paths come and go
                #[cfg(feature = "rbd")]
                StoreKind::Rbd(image) => image.shared,
                _ => false,
            },
            ExportBlocks::Store(store) => {
                matches!(store.location(), Some(BlockLocation::Remote(_)))
            }
        }
    }

    /// Returns the file of the reservations; while the blocks are out of reach, the file that will keep them.
    fn reservations_path(&self) -> Option<PathBuf> {
        match self.is_out_of_reach() {
            true => KeptReservations::path(&self.export.reservations, self.export.blocks.spec()),
            false => self.kept.as_ref().map(|kept| kept.path.clone()),
        }
    }

    /// True if `next` continues its reservations in another file.
    fn moves_reservations(&self, next: &OpenNamespace) -> bool {
        let of =
            |open: &OpenNamespace| (open.config.id.map(|id| id.nguid), open.config.ownership_term);
        of(self) == of(next) && self.reservations_path() != next.reservations_path()
    }

    /// Returns [`NamespaceConfig::ownership_term`] for the case that `store` gets the blocks: a new number if one of both
    /// stores belongs to a target that does not own them.
    fn tenure_with(&self, store: &Arc<OpenStore>) -> u64 {
        let changes_hands = !self.store.is_own() || !store.is_own();
        let has_changed = !Arc::ptr_eq(&self.store, store) && changes_hands;
        self.config.ownership_term + u64::from(has_changed)
    }

    /// True if the store serves nothing more and must be opened again. Hosts first see the namespace as inaccessible.
    pub(super) fn must_reopen(&self) -> bool {
        match self.store.store().ownership() {
            BlockOwnership::Ours | BlockOwnership::CutOff => false,
            BlockOwnership::Theirs | BlockOwnership::Free => true,
            BlockOwnership::Lost => self.is_out_of_reach(),
        }
    }

    /// True if the owner of the blocks has changed, so that the namespace must be opened or made inaccessible.
    pub(super) fn needs_change(&self) -> bool {
        match self.store.store().ownership() {
            BlockOwnership::Ours => self.is_out_of_reach(),
            BlockOwnership::CutOff => !self.is_out_of_reach(),
            BlockOwnership::Theirs => false,
            BlockOwnership::Lost => true,
            BlockOwnership::Free => !self.export.yields,
        }
    }

    /// Returns the namespace with the settings of `export`, if nothing has to be opened or released for that. One that
    /// stands by keeps doing so whether it yields or not.
    fn reused_for(self: &Arc<Self>, export: &Export) -> Option<Arc<OpenNamespace>> {
        let is_same = self.export == export.viewed(self.export.view.clone());
        let is_it = match self.store.store().ownership() {
            _ if self.export == *export => return Some(self.clone()),
            _ if is_same => true,
            BlockOwnership::Theirs => self.is_alike(export),
            BlockOwnership::Free => self.is_alike(export) && export.yields,
            _ => false,
        };
        is_it.then(|| self.with_settings(export))
    }

    /// True if the exports differ at most in what hosts see and in whether they yield.
    fn is_alike(&self, export: &Export) -> bool {
        self.export
            == Export { yields: self.export.yields, ..export.clone() }
                .viewed(self.export.view.clone())
    }

    fn with_settings(&self, export: &Export) -> Arc<OpenNamespace> {
        let config = self.config.viewed(export.view.clone());
        Arc::new(OpenNamespace { export: export.clone(), config, ..self.clone() })
    }

    /// Returns the namespace with the settings of `export` although its blocks could not be opened: it stays
    /// inaccessible. [`OpenNamespace::needs_change`] is true then, so that a retry follows, for this namespace alone.
    fn kept_inaccessible(&self, export: &Export) -> Option<Arc<OpenNamespace>> {
        let is_it = self.is_alike(export) && self.must_reopen() && self.is_out_of_reach();
        is_it.then(|| self.with_settings(export))
    }
}

/// Open namespaces of one subsystem, by NSID.
pub(super) type OpenByNsid = BTreeMap<u32, Arc<OpenNamespace>>;

/// Open namespaces by subsystem NQN and NSID. A copy costs nothing until it is changed.
#[derive(Clone, Default)]
pub(super) struct OpenNamespaces {
    open: Arc<HashMap<Arc<str>, Arc<OpenByNsid>>>,
    /// Surroundings of stores over the network.
    remote: Arc<RemoteContext>,
}

impl OpenNamespaces {
    /// Returns no namespaces; stores over the network will get `remote`.
    pub(super) fn new(remote: RemoteContext) -> OpenNamespaces {
        OpenNamespaces { remote: Arc::new(remote), ..OpenNamespaces::default() }
    }

    /// Returns the open namespace.
    pub(super) fn get(&self, nqn: &str, nsid: u32) -> Option<&Arc<OpenNamespace>> {
        self.open.get(nqn)?.get(&nsid)
    }

    fn insert(&mut self, nqn: &str, open: Arc<OpenNamespace>) {
        let all = Arc::make_mut(&mut self.open);
        match all.get_mut(nqn) {
            Some(by_nsid) => drop(Arc::make_mut(by_nsid).insert(open.export.nsid, open)),
            None => drop(all.insert(nqn.into(), Arc::new([(open.export.nsid, open)].into()))),
        }
    }

    fn remove(&mut self, nqn: &str, nsid: u32) -> Option<Arc<OpenNamespace>> {
        Arc::make_mut(Arc::make_mut(&mut self.open).get_mut(nqn)?).remove(&nsid)
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &Arc<OpenNamespace>)> {
        self.open.iter().flat_map(|(nqn, by_nsid)| by_nsid.values().map(move |one| (&**nqn, one)))
    }

    /// Returns the open namespaces of a subsystem.
    pub(super) fn of(&self, nqn: &str) -> Arc<OpenByNsid> {
        self.open.get(nqn).cloned().unwrap_or_default()
    }

    /// Returns the open ones of some namespaces.
    pub(super) fn part(&self, keys: &NamespaceKeys) -> OpenNamespaces {
        let mut part = OpenNamespaces { open: Arc::default(), remote: self.remote.clone() };
        for (nqn, nsid) in keys {
            self.get(nqn, *nsid).into_iter().for_each(|open| part.insert(nqn, open.clone()));
        }
        part
    }

    /// Returns all stores: subsystem NQN, NSID, store.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, u32, &Arc<OpenStore>)> {
        self.iter().map(|(nqn, open)| (nqn, open.export.nsid, &open.store))
    }

    /// Returns the namespaces whose blocks may change owners, with their subsystem NQN.
    pub(super) fn changing_hands(&self) -> impl Iterator<Item = (&str, &OpenNamespace)> {
        let all = self.iter().map(|(nqn, open)| (nqn, &**open));
        all.filter(|(_, open)| open.is_out_of_reach() || open.changes_hands())
    }

    /// Returns the reservations at the time of opening: subsystem NQN, NSID, reservations.
    pub(super) fn kept(&self) -> impl Iterator<Item = (&str, u32, &KeptReservations)> {
        self.iter().filter_map(|(nqn, open)| Some((nqn, open.export.nsid, open.kept.as_ref()?)))
    }

    /// Returns the namespaces that had another class in `old`.
    pub(super) fn reclassed(
        &self,
        old: &OpenNamespaces,
    ) -> impl Iterator<Item = (&str, &OpenNamespace)> {
        self.differing(old, |old, new| old.export.class != new.export.class)
    }

    /// Returns the namespaces that had other limits in `old`.
    pub(super) fn relimited(
        &self,
        old: &OpenNamespaces,
    ) -> impl Iterator<Item = (&str, &OpenNamespace)> {
        self.differing(old, |old, new| old.export.rates != new.export.rates)
    }

    fn differing(
        &self,
        old: &OpenNamespaces,
        differ: impl Fn(&OpenNamespace, &OpenNamespace) -> bool,
    ) -> impl Iterator<Item = (&str, &OpenNamespace)> {
        let is_other = move |(nqn, new): &(&str, &OpenNamespace)| {
            let old = old.get(nqn, new.export.nsid);
            old.is_some_and(|old| old.version != new.version && differ(old, new))
        };
        self.iter().map(|(nqn, open)| (nqn, &**open)).filter(is_other)
    }

    /// Opens the stores of `subsystems` that are not open yet, and checks everything, without a change that hosts see.
    /// Takes no lock and may take long. Takes over exports that already match, unless `is_rechecked` is true for their
    /// NQN and NSID.
    ///
    /// # Errors
    ///
    /// The first store that is not available, unless it was out of reach and can stay so; nothing has changed then.
    pub(super) fn prepare(
        &self,
        subsystems: &[Subsystem],
        is_rechecked: impl Fn(&str, u32) -> bool,
    ) -> Result<PreparedStores, ConfigError> {
        let mut prepared = PreparedStores::default();
        prepared.next.remote = self.remote.clone();
        for subsystem in subsystems {
            let nqn = &subsystem.nqn;
            let mut namespaces = Vec::new();
            for export in &subsystem.namespaces {
                let known = self.get(nqn, export.nsid).filter(|_| !is_rechecked(nqn, export.nsid));
                let open = match known.and_then(|open| open.reused_for(export)) {
                    Some(open) => Ok(open),
                    None => prepared.open(self, nqn, export).or_else(|error| {
                        let postponed = known.and_then(|open| open.kept_inaccessible(export));
                        if postponed.is_some() {
                            warn!(
                                "{}: it stays inaccessible",
                                store_error(nqn, export.nsid, &error)
                            );
                        }
                        postponed.ok_or(error)
                    }),
                };
                let config = open.and_then(|open| prepared.add(nqn, open));
                namespaces.push(config.map_err(|error| store_error(nqn, export.nsid, &error))?);
            }
            prepared.configs.push(subsystem.with_namespaces(namespaces));
        }
        Ok(prepared)
    }

    /// Returns the store that an embedding program exports twice.
    fn find_given(&self, blocks: &ExportBlocks) -> Option<Arc<OpenStore>> {
        let ExportBlocks::Store(_) = blocks else { return None };
        let found = self.iter().find(|(_, open)| open.export.blocks == *blocks);
        found.map(|(_, open)| open.store.clone())
    }

    /// Returns the reason why blocks are in use, if this target itself has them open in another way.
    fn explain(&self, error: OpenError, blocks: &ExportBlocks) -> OpenError {
        let (OpenError::InUse { path, .. }, ExportBlocks::Spec(wanted)) = (&error, blocks) else {
            return error;
        };
        let place = wanted.location();
        let is_it = |open: &&Arc<OpenNamespace>| place.is_some() && open.place == place;
        let known = self.iter().map(|(_, open)| open).find(is_it);
        let known = known.and_then(|open| open.export.blocks.spec());
        let differs = |known: &&StoreSpec| {
            (known.lba_bytes, known.read_only) != (wanted.lba_bytes, wanted.read_only)
        };
        let Some(known) = known.filter(differs) else { return error };
        let text = |spec: &StoreSpec| {
            let access = if spec.read_only { "read-only" } else { "for writing" };
            format!("blocks of {} bytes, {access}", spec.lba_bytes)
        };
        OpenError::ServedOtherwise { path: path.clone(), known: text(known), wanted: text(wanted) }
    }

    /// Returns the open store with the same blocks, perhaps with another size or name.
    fn find(&self, nqn: &str, nsid: u32, blocks: &ExportBlocks) -> Option<Arc<OpenStore>> {
        let ExportBlocks::Spec(spec) = blocks else { return self.find_given(blocks) };
        let alike = |open: &OpenNamespace| match &open.export.blocks {
            ExportBlocks::Spec(known) => {
                discriminant(&known.kind) == discriminant(&spec.kind)
                    && (known.lba_bytes, known.read_only) == (spec.lba_bytes, spec.read_only)
            }
            ExportBlocks::Store(_) => false,
        };
        let known = self.get(nqn, nsid).filter(|open| alike(open) && !open.must_reopen());
        if let Some(place) = spec.location() {
            let there = |open: &&Arc<OpenNamespace>| alike(open) && open.place == Some(place);
            let all = || self.iter().map(|(_, open)| open);
            let found = known.filter(there).or_else(|| all().find(there));
            return found.map(|open| open.store.clone());
        }
        let same = |open: &&Arc<OpenNamespace>| matches!(&open.export.blocks, ExportBlocks::Spec(known) if is_alike(&known.kind, &spec.kind));
        let known = known.filter(same)?;
        if let StoreKind::File { path, .. } | StoreKind::Block { path } = &spec.kind {
            warn!(path = %path.display(), "is gone; its blocks stay until the target ends");
        }
        Some(known.store.clone())
    }
}

/// Use of a file next to a store: reservations of one namespace, or marks of one store, by its address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeptFileUse {
    Reservations,
    Marks(*const OpenStore),
}

/// Stores and settings of a new configuration, open and checked. Dropping it leaves everything unchanged.
#[derive(Default)]
pub(super) struct PreparedStores {
    next: OpenNamespaces,
    /// Locations of the blocks of `next`, and whether they are read-only.
    places: HashMap<BlockLocation, bool>,
    /// Files next to the stores of `next`.
    files: HashMap<PathBuf, KeptFileUse>,
    /// Stores of `next` that an embedding program has opened, by their address.
    given: HashMap<*const (), Arc<OpenStore>>,
    /// Configuration for the control plane.
    configs: Vec<SubsystemConfig>,
    /// Stores that were not open before.
    opened: Vec<Arc<OpenStore>>,
    resizes: Vec<Resizing>,
    /// Marks that move to another file.
    moved: Vec<(Arc<OpenStore>, Uncorrectable)>,
    /// Reservations that move to another file: subsystem NQN, NSID, and the current file.
    moved_reservations: Vec<(String, u32, Option<PathBuf>)>,
}

/// Namespace whose size changes.
struct Resizing {
    nqn: String,
    nsid: u32,
    store: Arc<OpenStore>,
    resize: Resize,
}

impl Resizing {
    /// Applies the new size. Clears the marks behind the old and the new end.
    fn switch(&self) {
        let Resize { from, to, .. } = self.resize;
        self.store.store().switch(&self.resize);
        if from != to {
            Uncorrectable::change(&self.store, MarkChange::Truncate(from.min(to)), None);
        }
    }
}

impl PreparedStores {
    /// Opens the store if needed, and plans its size.
    fn open(
        &mut self,
        old: &OpenNamespaces,
        nqn: &str,
        export: &Export,
    ) -> Result<Arc<OpenNamespace>, OpenError> {
        let limit = match old.get(nqn, export.nsid) {
            Some(open) if open.export.rates == export.rates => open.limit.clone(),
            _ => Arc::new(RateLimit::new(&export.rates)),
        };
        // Blocks that other targets have priority for are released.
        let is_kept =
            |open: &Arc<OpenStore>| !export.yields || open.store().ownership().stands_by();
        let known = old.find(nqn, export.nsid, &export.blocks).filter(is_kept);
        let open = match known.or_else(|| self.given.get(&given_address(&export.blocks)?).cloned())
        {
            Some(open) => self.move_marks(open, export)?,
            None => self.open_blocks(export).map_err(|error| old.explain(error, &export.blocks))?,
        };
        let store = open.store();
        let ana = match store.ownership() {
            BlockOwnership::Ours => AnaState::Optimized,
            _ => AnaState::Inaccessible,
        };
        let resize = store.plan(export.bytes())?;
        let geometry = resize.planned(store.geometry());
        let (nqn, nsid) = (nqn.to_owned(), export.nsid);
        self.resizes.push(Resizing { nqn: nqn.clone(), nsid, store: open.clone(), resize });
        let identity = match (export.uuid, export.nguid) {
            (None, None) => store.identity()?,
            _ => 0, // the configuration identifies the namespace
        };
        let id = match (export.uuid, export.nguid) {
            (None, None) => {
                let BlockIdentifiers { uuid, nguid } = store.identifiers();
                NamespaceId::choose(uuid, nguid, identity)
            }
            (uuid, nguid) => NamespaceId::choose(uuid, nguid, identity),
        };
        let spec = export.blocks.spec();
        // The reservations belong to the other process until it has ended.
        let kept = match ana.is_usable() {
            true => KeptReservations::open(&export.reservations, spec, &id.nguid)?,
            false => None,
        };
        let will_keep =
            !ana.is_usable() && KeptReservations::path(&export.reservations, spec).is_some();
        let tenure = old.get(&nqn, nsid).map_or(0, |old| old.tenure_with(&open));
        let config = NamespaceConfig {
            offers_reservations: !matches!(store.location(), Some(BlockLocation::Remote(_))),
            keeps_reservations: kept.is_some() || will_keep,
            ana,
            ownership_term: tenure,
            write_verifier: store.write_verifier(),
            view: export.view.clone(),
            ..namespace_config(nsid, id, &geometry, store.limits())
        };
        let (export, place) = (export.clone(), store.location());
        let version = VERSIONS.fetch_add(1, Ordering::Relaxed) + 1;
        let open = OpenNamespace { version, export, place, store: open, config, kept, limit };
        let moved = old.get(&nqn, nsid).filter(|old| old.moves_reservations(&open));
        self.moved_reservations.extend(moved.map(|old| (nqn, nsid, old.reservations_path())));
        Ok(Arc::new(open))
    }

    /// Prepares the move of an open store's marks to the file of `export`.
    fn move_marks(
        &mut self,
        open: Arc<OpenStore>,
        export: &Export,
    ) -> Result<Arc<OpenStore>, OpenError> {
        let (place, spec) = (&export.uncorrectable, export.blocks.spec());
        if let Some(moved) = open.uncorrectable().moved(place, spec, &**open.store())? {
            self.moved.push((open.clone(), moved));
        }
        Ok(open)
    }

    /// Opens the blocks, or a store that stands by.
    fn open_blocks(&mut self, export: &Export) -> Result<Arc<OpenStore>, OpenError> {
        let spec = match &export.blocks {
            ExportBlocks::Spec(spec) => spec,
            ExportBlocks::Store(store) => {
                let marks = Uncorrectable::open(&export.uncorrectable, None, &**store)?;
                return Ok(Arc::new(OpenStore::new(store.clone(), marks)));
            }
        };
        let remote = &self.next.remote;
        let opened = (!export.yields).then(|| roadtrain_store::open_for(spec, remote));
        let store = match opened.unwrap_or_else(|| roadtrain_store::observe(spec)) {
            Err(error @ (OpenError::InUse { .. } | OpenError::Taken { .. })) if export.standby => {
                info!("stands by: {error}");
                roadtrain_store::observe(spec)?
            }
            opened => opened?,
        };
        let marks = Uncorrectable::open(&export.uncorrectable, Some(spec), &*store);
        let marks = marks.inspect_err(|_| store.undo_opening())?;
        let opened = Arc::new(OpenStore::new(store, marks));
        self.opened.push(opened.clone());
        Ok(opened)
    }

    fn add(&mut self, nqn: &str, open: Arc<OpenNamespace>) -> Result<NamespaceConfig, OpenError> {
        self.check_alone(open.place, &open.export.blocks)?;
        self.keep(&open)?;
        if let Some(address) = given_address(&open.export.blocks) {
            self.given.insert(address, open.store.clone());
        }
        let config = open.config.clone();
        self.next.insert(nqn, open);
        Ok(config)
    }

    /// Checks that the namespaces share no blocks and no file with those in `open`, except `keys`, which they replace.
    ///
    /// # Errors
    ///
    /// The first namespace of `open` that uses the same.
    pub(super) fn check_beside(
        &mut self,
        open: &OpenNamespaces,
        keys: &NamespaceKeys,
    ) -> Result<(), ConfigError> {
        if self.places.is_empty() && self.files.is_empty() {
            return Ok(());
        }
        for (nqn, other) in open.iter() {
            let nsid = other.export.nsid;
            if keys.iter().any(|(of, replaced)| (of.as_str(), *replaced) == (nqn, nsid)) {
                continue;
            }
            let alone = self.check_alone(other.place, &other.export.blocks);
            let alone = alone.and_then(|()| self.keep(other));
            alone.map_err(|error| store_error(nqn, nsid, &error))?;
        }
        Ok(())
    }

    /// Checks that writable blocks have only one export. Locks detect a file that is opened twice.
    fn check_alone(
        &mut self,
        place: Option<BlockLocation>,
        blocks: &ExportBlocks,
    ) -> Result<(), OpenError> {
        let (ExportBlocks::Spec(spec), Some(place)) = (blocks, place) else { return Ok(()) };
        let in_use = match &spec.kind {
            StoreKind::File { path, .. } | StoreKind::Block { path } => {
                OpenError::InUse { path: path.clone(), by: None, has_ended: false }
            }
            StoreKind::Remote(blocks) => OpenError::Remote {
                blocks: blocks.to_string(),
                problem: "another namespace of this target has these blocks: remove that, or make both read-only".into(),
            },
            _ => return Ok(()),
        };
        match self.places.insert(place, spec.read_only) {
            Some(is_read_only) if !(is_read_only && spec.read_only) => Err(in_use),
            _ => Ok(()),
        }
    }

    /// Checks that each file next to a store belongs to one namespace and one use.
    fn keep(&mut self, open: &OpenNamespace) -> Result<(), OpenError> {
        let moved = self.moved.iter().find(|(store, _)| Arc::ptr_eq(store, &open.store));
        let marks = moved.map_or_else(|| open.store.uncorrectable().path(), |(_, m)| m.path());
        let marks = marks.filter(|_| !open.config.read_only);
        let kept = open.kept.as_ref().map(|kept| kept.path.clone());
        let own = KeptFileUse::Marks(Arc::as_ptr(&open.store));
        let uses = [(kept, KeptFileUse::Reservations), (marks, own)];
        for (path, used) in uses.into_iter().filter_map(|(path, used)| Some((path?, used))) {
            let other = self.files.insert(path.clone(), used);
            if other.is_some_and(|other| other != own || used != own) {
                return Err(OpenError::InUse { path, by: None, has_ended: false });
            }
        }
        Ok(())
    }

    /// Runs the last steps that can fail. Hosts do not see them yet.
    ///
    /// # Errors
    ///
    /// The first file that cannot grow.
    pub(super) fn stage(&mut self) -> Result<(), ConfigError> {
        self.resizes.iter_mut().try_for_each(|Resizing { nqn, nsid, store, resize }| {
            store.store().stage(resize).map_err(|error| store_error(nqn, *nsid, &error))
        })
    }

    /// Checks that reservations move only to files with the same content: otherwise a restart would restore something
    /// else. The caller holds the lock until [`PreparedStores::switch`].
    ///
    /// # Errors
    ///
    /// The first namespace with other content.
    pub(super) fn check_moved(&self, target: &TargetControl) -> Result<(), ConfigError> {
        let none = ReservationState::default();
        for (nqn, nsid, old) in &self.moved_reservations {
            let kept = self.next.get(nqn, *nsid).and_then(|open| open.kept.as_ref());
            let state = kept.map_or(&none, |kept| &kept.state);
            if !target.reservations_are_kept_as(nqn, *nsid, state) {
                let place = Named::Namespace(nqn.clone(), *nsid);
                let problem = cannot_move(old.as_deref(), kept.map(|kept| &*kept.path));
                return Err(ConfigError::Store { place, problem });
            }
        }
        Ok(())
    }

    /// Returns the configuration of `exports` that hosts see.
    pub(super) fn config<N>(
        &self,
        exports: &TargetConfig<N>,
        listeners: Vec<TargetListener>,
    ) -> TargetConfig {
        TargetConfig {
            subsystems: self.configs.clone(),
            listeners,
            referrals: exports.referrals.clone(),
            authentication: exports.authentication.clone(),
            tls: exports.tls,
            tls_at: exports.tls_at.clone(),
            ana: exports.ana.clone(),
            limits: exports.limits,
            origin: exports.origin,
            network: exports.network,
        }
    }

    /// Returns the stores of the new configuration.
    pub(super) fn stores(&self) -> OpenNamespaces {
        self.next.clone()
    }

    /// Replaces `open` by the prepared stores. The result has the work that may take long.
    pub(super) fn switch(mut self, open: &mut OpenNamespaces) -> Switched {
        self.opened.clear(); // they stay open
        let resizes = std::mem::take(&mut self.resizes);
        resizes.iter().for_each(Resizing::switch);
        let moved = std::mem::take(&mut self.moved);
        moved.into_iter().for_each(|(open, marks)| open.uncorrectable().follow(marks));
        let old = std::mem::replace(open, std::mem::take(&mut self.next));
        Switched { resizes, _old: old, replaced: Vec::new() }
    }

    /// Replaces the namespaces `keys` of `open` by the prepared ones, as [`PreparedStores::switch`] does with all.
    pub(super) fn switch_part(
        mut self,
        open: &mut OpenNamespaces,
        keys: &NamespaceKeys,
    ) -> Switched {
        let replaced = keys.iter().filter_map(|(nqn, nsid)| open.remove(nqn, *nsid)).collect();
        let next = std::mem::take(&mut self.next);
        next.iter().for_each(|(nqn, one)| open.insert(nqn, one.clone()));
        let mut switched = self.switch(&mut OpenNamespaces::default());
        switched.replaced = replaced;
        switched
    }
}

impl Drop for PreparedStores {
    fn drop(&mut self) {
        self.resizes.iter().for_each(|one| one.store.store().unstage(&one.resize));
        self.opened.iter().for_each(|open| open.store().undo_opening());
    }
}

/// Work after a switch. Dropping it releases what the new configuration does not need; the caller must not hold a lock.
pub(super) struct Switched {
    resizes: Vec<Resizing>,
    _old: OpenNamespaces,
    replaced: Vec<Arc<OpenNamespace>>,
}

impl Drop for Switched {
    fn drop(&mut self) {
        self.resizes.iter().for_each(|one| one.store.store().settle(&one.resize));
    }
}

/// Returns the address of a store that an embedding program has opened.
fn given_address(blocks: &ExportBlocks) -> Option<*const ()> {
    match blocks {
        ExportBlocks::Store(store) => Some(Arc::as_ptr(store).cast()),
        ExportBlocks::Spec(_) => None,
    }
}

/// Returns the configuration of a namespace that hosts see.
fn namespace_config(
    nsid: u32,
    id: NamespaceId,
    geometry: &StoreGeometry,
    limits: BlockLimits,
) -> NamespaceConfig {
    NamespaceConfig {
        read_only: geometry.read_only,
        id: Some(id),
        volatile_cache: geometry.volatile_cache,
        limits,
        ..NamespaceConfig::new(nsid, geometry.blocks, geometry.lba_shift)
    }
}

/// Returns the error for a store that is not available.
fn store_error(nqn: &str, nsid: u32, error: &OpenError) -> ConfigError {
    let place = Named::Namespace(nqn.to_owned(), nsid);
    ConfigError::Store { place, problem: error.to_string() }
}

/// Advice for reservations that no file would keep.
pub(super) const KEPT_NOWHERE: &str = "would be kept nowhere: have its hosts clear them first";

/// Returns the reason why reservations cannot move, and the remedy.
fn cannot_move(old: Option<&Path>, new: Option<&Path>) -> String {
    let text = |path: &Path| path.display().to_string();
    match (old.map(text), new.map(text)) {
        (Some(old), Some(new)) => format!(
            "its reservations are in {old}, and {new} does not say the same: copy the file there first"
        ),
        (Some(old), None) => format!("its reservations are in {old}, and {KEPT_NOWHERE}"),
        (None, new) => format!(
            "{} has reservations that are not in force: remove it first",
            new.unwrap_or_default()
        ),
    }
}

/// True if two kinds name the same blocks, without a location that can be compared, and a store opened as `a` can be
/// used as `b`.
pub(super) fn is_alike(a: &StoreKind, b: &StoreKind) -> bool {
    match (a, b) {
        (StoreKind::Memory { .. }, StoreKind::Memory { .. })
        | (StoreKind::Null { .. }, StoreKind::Null { .. }) => true,
        (
            StoreKind::Ssd { service: a, parallel: m, .. },
            StoreKind::Ssd { service: b, parallel: n, .. },
        ) => (a, m) == (b, n),
        (StoreKind::File { path: a, .. }, StoreKind::File { path: b, .. })
        | (StoreKind::Block { path: a }, StoreKind::Block { path: b }) => a == b,
        (StoreKind::Remote(a), StoreKind::Remote(b)) => a == b,
        #[cfg(feature = "rbd")]
        (StoreKind::Rbd(a), StoreKind::Rbd(b)) => a.serves_as(b),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::kept_file::KeptPlace;
    use super::super::uncorrectable::PATHS_READ;
    use super::*;
    use roadtrain_store::StoreSpec;

    const NQN: &str = "nqn.2024-01.test:disk";

    fn file(directory: &Path, nsid: u32) -> Export {
        let (path, size) = (directory.join(nsid.to_string()), Some(4096));
        let kind = StoreKind::File { path, size, create: true };
        Export::new(nsid, StoreSpec { kind, lba_bytes: 512, read_only: false })
    }

    fn of(namespaces: Vec<Export>) -> [Subsystem; 1] {
        [Subsystem { namespaces, ..Subsystem::new(NQN) }]
    }

    /// Each change checks each namespace only once, however many there are, even if only one is added.
    #[test]
    fn a_change_costs_as_much_as_there_are_namespaces() {
        let directory = tempfile::tempdir().unwrap();
        for count in [16, 64] {
            let exports: Vec<Export> =
                (1..=count).map(|nsid| file(directory.path(), nsid)).collect();
            let (_, first) = exports.split_last().unwrap();
            let mut stores = OpenNamespaces::default();
            for (exports, added) in [(first, count - 1), (&exports[..], 1)] {
                PATHS_READ.set(0);
                let prepared = stores.prepare(&of(exports.to_vec()), |_, _| false).unwrap();
                assert_eq!(PATHS_READ.get(), exports.len(), "{added} of {} are new", exports.len());
                drop(prepared.switch(&mut stores));
            }
        }
    }

    #[test]
    fn blocks_and_their_files_belong_to_one_namespace() {
        let directory = tempfile::tempdir().unwrap();
        let refused = |exports: Vec<Export>| {
            let error = OpenNamespaces::default().prepare(&of(exports), |_, _| false).err();
            error.map(|error| error.to_string())
        };
        let one = |nsid| file(directory.path(), nsid);
        assert_eq!(refused(vec![one(1), one(2)]), None);
        let again = Export { nsid: 2, ..one(1) };
        assert!(refused(vec![one(1), again]).is_some_and(|error| error.contains("in use")));
        let there = KeptPlace::File(directory.path().join("kept"));
        let marked = |nsid| Export { uncorrectable: there.clone(), ..one(nsid) };
        let reserved = |nsid| Export { reservations: there.clone(), ..one(nsid) };
        for pair in [
            vec![marked(1), marked(2)],
            vec![reserved(1), reserved(2)],
            vec![marked(1), reserved(2)],
            vec![Export { uncorrectable: there.clone(), ..reserved(1) }],
        ] {
            assert!(refused(pair).is_some_and(|error| error.contains("kept")));
        }
    }
}

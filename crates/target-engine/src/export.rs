//! Exports: namespaces and subsystems of a target.

use super::kept_file::KeptPlace;
use roadtrain_proto::policy::Class;
use roadtrain_store::{Store, StoreKind, StoreSpec};
use roadtrain_target_proto::rate::RateSettings;
use roadtrain_target_proto::{NamespaceDescription, NamespaceId, NamespaceView, SubsystemConfig};
use std::sync::Arc;

/// Storage of a namespace's blocks.
#[derive(Clone, Debug)]
pub enum ExportBlocks {
    /// Store that the target opens.
    Spec(StoreSpec),
    /// Open store. Exports of the same `Arc` share one store.
    Store(Arc<dyn Store>),
}

impl ExportBlocks {
    /// Returns the store that the target opens, if it does.
    pub(super) fn spec(&self) -> Option<&StoreSpec> {
        match self {
            ExportBlocks::Spec(spec) => Some(spec),
            ExportBlocks::Store(_) => None,
        }
    }

    /// Returns the place of the blocks, in the form of the option `--namespace`.
    #[must_use]
    pub fn place(&self) -> String {
        let ExportBlocks::Spec(spec) = self else { return "a volume or device".into() };
        match &spec.kind {
            StoreKind::Memory { .. } => "mem".into(),
            StoreKind::Ssd { .. } => "ssd".into(),
            StoreKind::Null { .. } => "null".into(),
            StoreKind::File { path, .. } => format!("file:{}", path.display()),
            StoreKind::Block { path } => format!("block:{}", path.display()),
            StoreKind::Remote(blocks) => blocks.to_string(),
            #[cfg(feature = "rbd")]
            StoreKind::Rbd(image) => format!("rbd:{image}"),
        }
    }
}

impl PartialEq for ExportBlocks {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (ExportBlocks::Spec(one), ExportBlocks::Spec(other)) => one == other,
            (ExportBlocks::Store(one), ExportBlocks::Store(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for ExportBlocks {}

/// A namespace to export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// NSID, 1 to 16,384.
    pub nsid: u32,
    /// Storage of the blocks.
    pub blocks: ExportBlocks,
    /// UUID. `None`: derived from the NGUID if that is set, else from the identity of the store's blocks.
    pub uuid: Option<[u8; 16]>,
    /// NGUID. `None`: derived from the UUID if that is set, else from the identity of the store's blocks.
    pub nguid: Option<[u8; 16]>,
    /// Default class for commands without one; `None`: the class of their connection.
    pub class: Option<Class>,
    /// Rate limits per second, over all hosts.
    pub rates: RateSettings,
    /// File of the reservations that persist through power loss.
    pub reservations: KeptPlace,
    /// File of the blocks that are marked as uncorrectable. For a memory store the marks are in memory, too.
    pub uncorrectable: KeptPlace,
    /// True: if another process has the blocks, the namespace is inaccessible until that process has ended. False: the
    /// start fails then. For files and devices.
    pub standby: bool,
    /// True: other targets have priority for the blocks. While one claims them, this target stands by, even if they are
    /// free.
    pub yields: bool,
    /// Hosts that see the namespace, and its ANA group.
    pub view: NamespaceView,
}

impl Export {
    /// Exports the blocks of `store` as namespace `nsid`, with defaults for everything else.
    #[must_use]
    pub fn new(nsid: u32, store: StoreSpec) -> Self {
        let blocks = ExportBlocks::Spec(store);
        Export::with_blocks(nsid, blocks)
    }

    fn with_blocks(nsid: u32, blocks: ExportBlocks) -> Self {
        let rates = RateSettings::UNLIMITED;
        Export {
            nsid,
            blocks,
            uuid: None,
            nguid: None,
            class: None,
            rates,
            reservations: KeptPlace::default(),
            uncorrectable: KeptPlace::default(),
            standby: false,
            yields: false,
            view: NamespaceView::ALL,
        }
    }

    /// Exports the blocks of a store that the embedding program has opened.
    #[must_use]
    pub fn with_store(nsid: u32, store: Arc<dyn Store>) -> Self {
        let blocks = ExportBlocks::Store(store);
        Export::with_blocks(nsid, blocks)
    }
}

/// A subsystem to export.
pub type Subsystem = SubsystemConfig<Export>;

impl NamespaceDescription for Export {
    fn nsid(&self) -> u32 {
        self.nsid
    }

    fn id(&self) -> Option<NamespaceId> {
        let is_configured = self.uuid.is_some() || self.nguid.is_some();
        is_configured.then(|| NamespaceId::choose(self.uuid, self.nguid, 0))
    }

    fn bytes(&self) -> Option<u64> {
        match &self.blocks {
            ExportBlocks::Spec(spec) => spec.bytes(),
            ExportBlocks::Store(_) => None,
        }
    }

    fn resized(&self, bytes: u64) -> Result<Self, String> {
        let ExportBlocks::Spec(spec) = &self.blocks else {
            return Err("its store belongs to the program that brought it, which resizes it".into());
        };
        let spec = spec.resized(bytes).map_err(|error| error.to_string())?;
        Ok(Export { blocks: ExportBlocks::Spec(spec), ..self.clone() })
    }

    fn rates(&self) -> RateSettings {
        self.rates
    }

    fn limited(&self, rates: RateSettings) -> Self {
        Export { rates, ..self.clone() }
    }

    fn view(&self) -> &NamespaceView {
        &self.view
    }

    fn viewed(&self, view: NamespaceView) -> Self {
        Export { view, ..self.clone() }
    }

    /// Checks nothing: opening the store checks the rest.
    fn check(&self) -> Result<(), (&'static str, String, &'static str)> {
        Ok(())
    }
}

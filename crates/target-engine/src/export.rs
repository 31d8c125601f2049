//! Exports: namespaces and subsystems of a target.

use super::kept_file::KeptPlace;
use roadtrain_proto::policy::Class;
use roadtrain_store::{Store, StoreSpec};
use roadtrain_target_proto::rate::Rates;
use roadtrain_target_proto::{Description, NamespaceId, SubsystemConfig};
use std::sync::Arc;

/// Storage of a namespace's blocks.
#[derive(Clone, Debug)]
pub enum Blocks {
    /// Store that the target opens.
    Spec(StoreSpec),
    /// Open store. Exports of the same `Arc` share one store.
    Store(Arc<dyn Store>),
}

impl Blocks {
    /// Returns the store that the target opens, if it does.
    pub(super) fn spec(&self) -> Option<&StoreSpec> {
        match self {
            Blocks::Spec(spec) => Some(spec),
            Blocks::Store(_) => None,
        }
    }
}

impl PartialEq for Blocks {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Blocks::Spec(one), Blocks::Spec(other)) => one == other,
            (Blocks::Store(one), Blocks::Store(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for Blocks {}

/// A namespace to export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// NSID, 1 to 1,024.
    pub nsid: u32,
    /// Storage of the blocks.
    pub blocks: Blocks,
    /// UUID. `None`: derived from the NGUID if that is set, else from the identity of the store's blocks.
    pub uuid: Option<[u8; 16]>,
    /// NGUID. `None`: derived from the UUID if that is set, else from the identity of the store's blocks.
    pub nguid: Option<[u8; 16]>,
    /// Default class for commands without one; `None`: the class of their connection.
    pub class: Option<Class>,
    /// Rate limits per second, over all hosts.
    pub rates: Rates,
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
}

impl Export {
    /// Exports the blocks of `store` as namespace `nsid`, with defaults for everything else.
    #[must_use]
    pub fn new(nsid: u32, store: StoreSpec) -> Self {
        let blocks = Blocks::Spec(store);
        Export::with_blocks(nsid, blocks)
    }

    fn with_blocks(nsid: u32, blocks: Blocks) -> Self {
        let rates = Rates::UNLIMITED;
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
        }
    }

    /// Exports the blocks of a store that the embedding program has opened.
    #[must_use]
    pub fn with_store(nsid: u32, store: Arc<dyn Store>) -> Self {
        let blocks = Blocks::Store(store);
        Export::with_blocks(nsid, blocks)
    }
}

/// A subsystem to export.
pub type Subsystem = SubsystemConfig<Export>;

impl Description for Export {
    fn nsid(&self) -> u32 {
        self.nsid
    }

    fn id(&self) -> Option<NamespaceId> {
        let is_configured = self.uuid.is_some() || self.nguid.is_some();
        is_configured.then(|| NamespaceId::choose(self.uuid, self.nguid, 0))
    }

    fn bytes(&self) -> Option<u64> {
        match &self.blocks {
            Blocks::Spec(spec) => spec.bytes(),
            Blocks::Store(_) => None,
        }
    }

    fn resized(&self, bytes: u64) -> Result<Self, String> {
        let Blocks::Spec(spec) = &self.blocks else {
            return Err("its store belongs to the program that brought it, which resizes it".into());
        };
        let spec = spec.resized(bytes).map_err(|error| error.to_string())?;
        Ok(Export { blocks: Blocks::Spec(spec), ..self.clone() })
    }

    fn rates(&self) -> Rates {
        self.rates
    }

    fn limited(&self, rates: Rates) -> Self {
        Export { rates, ..self.clone() }
    }

    /// Checks nothing: opening the store checks the rest.
    fn check(&self) -> Result<(), (&'static str, String, &'static str)> {
        Ok(())
    }
}

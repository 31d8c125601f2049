//! What a target exports.

use super::kept_file::KeptPlace;
use roadtrain_proto::policy::Class;
use roadtrain_store::{Store, StoreSpec};
use roadtrain_target_proto::rate::Rates;
use roadtrain_target_proto::{Description, NamespaceId, SubsystemConfig};
use std::sync::Arc;

/// Where a namespace's blocks are kept.
#[derive(Clone, Debug)]
pub enum Blocks {
    /// The target opens it.
    Spec(StoreSpec),
    /// It is open: the same as in another export, if it is the same store.
    Store(Arc<dyn Store>),
}

impl Blocks {
    /// What the target opens.
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
    /// Where the blocks are kept.
    pub blocks: Blocks,
    /// UUID. `None`: follows from the NGUID if that is told, else from what identifies the store's blocks.
    pub uuid: Option<[u8; 16]>,
    /// NGUID. `None`: follows from the UUID if that is told, else from what identifies the store's blocks.
    pub nguid: Option<[u8; 16]>,
    /// Class of its commands that do not say theirs; `None`: their connection's.
    pub class: Option<Class>,
    /// What it may do in a second, whoever uses it.
    pub rates: Rates,
    /// Where reservations are kept that persist through power loss.
    pub reservations: KeptPlace,
    /// Where it is kept which blocks are marked as uncorrectable. Of memory that is memory, too.
    pub uncorrectable: KeptPlace,
    /// If another process has the blocks, the namespace is there, inaccessible, and is served as soon as that one has
    /// ended. Else the start fails then. For files and devices.
    pub standby: bool,
    /// Other targets have the first claim to the blocks: while that is so it stands by, even if they are free.
    pub yields: bool,
}

impl Export {
    /// The blocks of `store` as namespace `nsid`, everything else by default.
    #[must_use]
    pub fn new(nsid: u32, store: StoreSpec) -> Self {
        let blocks = Blocks::Spec(store);
        Export::of(nsid, blocks)
    }

    fn of(nsid: u32, blocks: Blocks) -> Self {
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

    /// The blocks of a store of the embedding program's own.
    #[must_use]
    pub fn with_store(nsid: u32, store: Arc<dyn Store>) -> Self {
        let blocks = Blocks::Store(store);
        Export::of(nsid, blocks)
    }
}

/// A subsystem to export.
pub type Subsystem = SubsystemConfig<Export>;

impl Description for Export {
    fn nsid(&self) -> u32 {
        self.nsid
    }

    fn id(&self) -> Option<NamespaceId> {
        let is_told = self.uuid.is_some() || self.nguid.is_some();
        is_told.then(|| NamespaceId::choose(self.uuid, self.nguid, 0))
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

    /// The rest is seen when its store is opened.
    fn check(&self) -> Result<(), (&'static str, String, &'static str)> {
        Ok(())
    }
}

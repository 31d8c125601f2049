//! State that associations to the same namespaces share, and the query of a controller's namespaces and ANA states.

use super::PathTaskOutput;
use crate::bringup::{self, NamespaceInfo};
use crate::namespace_identity::ExpectedNamespaces;
use crate::paths::AnaTable;
use crate::procedure::{ProcedureDriver, ProcedureFailure};
use crate::write_verifier::WriteVerifiers;
use roadtrain_wire::identify::IdentifyController;

/// Constraints that the other associations of a host place on a new one.
#[derive(Clone, Debug, Default)]
pub struct SiblingConstraints {
    /// Expected namespaces; any other is stale.
    pub namespaces: Vec<NamespaceInfo>,
    /// Namespaces as any association first saw them; others are stale, too.
    pub pinned: ExpectedNamespaces,
    /// Acknowledged writes of all paths.
    pub writes: WriteVerifiers,
    /// Minimum transfer size in bytes; a controller that takes less is not used.
    pub transfer_bytes: u32,
}

/// Reads the active namespaces, and their ANA states if `identify` is given.
pub(super) async fn read_namespaces<E>(
    driver: &ProcedureDriver<E>,
    identify: Option<&IdentifyController>,
) -> Result<PathTaskOutput<E>, ProcedureFailure<E>> {
    let namespaces = bringup::namespaces(driver).await?;
    let ana = match identify {
        Some(identify) => bringup::ana(driver, identify).await?,
        None => AnaTable::default(),
    };
    Ok(PathTaskOutput::Namespaces(namespaces, ana))
}

//! State that associations to the same namespaces share, and the query of a controller's namespaces and ANA states.

use super::Done;
use crate::bringup::{self, NamespaceInfo};
use crate::paths::AnaTable;
use crate::pins::Pinned;
use crate::procedure::{Driver, Failure};
use crate::write_verifier::WriteVerifiers;
use roadtrain_wire::identify::IdentifyController;

/// Constraints that the other associations of a host place on a new one.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// Expected namespaces; any other is stale.
    pub namespaces: Vec<NamespaceInfo>,
    /// Namespaces as any association first saw them; others are stale, too.
    pub pinned: Pinned,
    /// Acknowledged writes of all paths.
    pub writes: WriteVerifiers,
    /// Minimum transfer size in bytes; a controller that takes less is not used.
    pub transfer_bytes: u32,
}

/// Reads the active namespaces, and their ANA states if `identify` is given.
pub(super) async fn look<E>(
    driver: &Driver<E>,
    identify: Option<&IdentifyController>,
) -> Result<Done<E>, Failure<E>> {
    let namespaces = bringup::namespaces(driver).await?;
    let ana = match identify {
        Some(identify) => bringup::ana(driver, identify).await?,
        None => AnaTable::default(),
    };
    Ok(Done::Namespaces(namespaces, ana))
}

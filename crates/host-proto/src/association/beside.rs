//! An association beside others that lead to the same namespaces: what they have, and how well a controller reaches them.

use super::Done;
use crate::bringup::{self, NamespaceInfo};
use crate::paths::AnaTable;
use crate::pins::Pinned;
use crate::procedure::{Driver, Failure};
use crate::write_verifier::WriteVerifiers;
use roadtrain_wire::identify::IdentifyController;

/// What an association of the host has beside which another one is kept.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// Other namespaces than these are stale.
    pub namespaces: Vec<NamespaceInfo>,
    /// So are others than those that any of them has seen first.
    pub pinned: Pinned,
    /// Acknowledged writes over all paths.
    pub writes: WriteVerifiers,
    /// A controller that takes less data in a command is not used.
    pub transfer_bytes: u32,
}

/// The namespaces that there are, and how the controller of that page reaches them.
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

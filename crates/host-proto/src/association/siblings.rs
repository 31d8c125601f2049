//! State that associations to the same namespaces share, and the query of a controller's namespaces and ANA states.

use super::PathTaskOutput;
use crate::bringup::{ControllerInfo, NamespaceInfo};
use crate::namespace_identity::ExpectedNamespaces;
use crate::namespace_scan::{self, ChangedNsids};
use crate::paths::AnaTable;
use crate::procedure::{ProcedureDriver, ProcedureFailure};
use crate::write_verifier::WriteVerifiers;
use roadtrain_wire::feature::{AsyncEvent, notice};
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
    let namespaces = namespace_scan::all(driver).await?;
    let ana = match identify {
        Some(identify) => namespace_scan::ana(driver, identify).await?,
        None => AnaTable::default(),
    };
    Ok(PathTaskOutput::Namespaces(namespaces, ana))
}

/// Reads what an event has announced: the namespaces of the Changed Namespace List, or the ANA states. ANA states are
/// read if `has_others`. Reading acknowledges the event, so that the controller sends the next one.
pub(super) async fn read_changes<E>(
    driver: &ProcedureDriver<E>,
    info: &ControllerInfo,
    event: &AsyncEvent,
    has_others: bool,
) -> Result<PathTaskOutput<E>, ProcedureFailure<E>> {
    let namespaces = match event.information {
        notice::ANA_CHANGE if has_others => info.namespaces.clone(),
        notice::NAMESPACE_ATTRIBUTE => {
            let changed = namespace_scan::changed(driver).await?;
            namespace_scan::again(driver, &info.namespaces, &changed).await?
        }
        _ => namespace_scan::again(driver, &[], &ChangedNsids::Any).await?,
    };
    let ana = match has_others {
        true => namespace_scan::ana(driver, &info.identify).await?,
        false => AnaTable::default(),
    };
    Ok(PathTaskOutput::Namespaces(namespaces, ana))
}

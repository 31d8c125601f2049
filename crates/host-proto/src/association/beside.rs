//! An association beside others that lead to the same namespaces: how well its controller reaches them.

use super::{Action, Association, Done};
use crate::bringup::{self, NamespaceInfo};
use crate::paths::AnaTable;
use crate::pins::Pinned;
use crate::procedure::{Driver, Failure};
use crate::write_verifier::WriteVerifiers;
use roadtrain_proto::time::Instant;
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

impl<E: Send + 'static> Association<E> {
    /// The path's ANA log has said so.
    pub(super) fn set_ana(&mut self, now: Instant, ana: AnaTable) {
        let (ana, late) = self.path.transitions.read(now, ana);
        self.actions.push_back(Action::SetAna { ana });
        if !late.is_empty() {
            self.actions.push_back(Action::LateTransition { nsids: late });
        }
    }
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

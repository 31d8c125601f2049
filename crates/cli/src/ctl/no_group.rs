//! Replacement for `group` in a program without images of Ceph clusters.

use crate::args::{CtlCommand, CtlTarget, GlobalArgs};
use crate::failure::{CommandFailure, CommandResult};

/// `roadtrain ctl --group`
pub(super) fn run(_: &CtlTarget, _: &CtlCommand, _: &GlobalArgs) -> CommandResult {
    Err(CommandFailure::failed(
        "this program was built without images of Ceph clusters (feature rbd), so without gateway groups",
    ))
}

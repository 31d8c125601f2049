//! Replacement for `group` in a program without images of Ceph clusters: no target is a gateway of a group.

use crate::args::ServeArgs;
use crate::config::ServeConfig;
use crate::failure::{CommandFailure, CommandResult};
use roadtrain_reactor::metrics::GatewaySample;
use roadtrain_target_engine::Subsystem;
use std::sync::Arc;

/// Never exists.
pub(super) enum GroupMember {}

impl GroupMember {
    pub(super) fn join(
        _: &ServeArgs,
        _: ServeConfig,
    ) -> CommandResult<(Arc<GroupMember>, ServeConfig)> {
        Err(CommandFailure::failed(
            "this program was built without images of Ceph clusters (feature rbd), so without gateway groups",
        ))
    }

    pub(super) fn source(&self) -> String {
        match *self {}
    }

    pub(super) fn sample(&self) -> GatewaySample {
        match *self {}
    }

    pub(super) fn share(&self, _: &mut [Subsystem]) {
        match *self {}
    }

    pub(super) fn start<T>(self: &Arc<Self>, _: &Arc<T>) -> CommandResult {
        match **self {}
    }

    pub(super) fn leave<T>(self: &Arc<Self>, _: &Arc<T>) {
        match **self {}
    }

    pub(super) fn retry(&self) {
        match *self {}
    }
}

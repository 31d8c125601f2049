//! Replacement for `group` in a program without images of Ceph clusters: no target is a gateway of a group.

use crate::args::ServeArgs;
use crate::config::ServeConfig;
use crate::failure::{Failure, Outcome};
use roadtrain_reactor::metrics::GatewaySample;
use roadtrain_target_engine::Subsystem;
use std::sync::Arc;

/// Never exists.
pub(super) enum Member {}

impl Member {
    pub(super) fn join(_: &ServeArgs, _: ServeConfig) -> Outcome<(Arc<Member>, ServeConfig)> {
        Err(Failure::failed(
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

    pub(super) fn start<T>(self: &Arc<Self>, _: &Arc<T>) -> Outcome {
        match **self {}
    }

    pub(super) fn leave<T>(self: &Arc<Self>, _: &Arc<T>) {
        match **self {}
    }

    pub(super) fn retry(&self) {
        match *self {}
    }
}

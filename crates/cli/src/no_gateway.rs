//! In the place of `gateway` in a program without images of Ceph clusters.

use crate::args::{GatewayArgs, GlobalArgs};
use crate::failure::{Failure, Outcome};

/// `roadtrain gateway`
pub(crate) fn run(_: &GatewayArgs, _: &GlobalArgs) -> Outcome {
    Err(Failure::failed(
        "this program was built without images of Ceph clusters (feature rbd), so without gateway groups",
    ))
}

//! A target as others see it over HTTP.

use super::control::Served;
use roadtrain_engine::metrics::Snapshot;
use roadtrain_manage::metrics::{Managed, Source};
use roadtrain_manage::rpc::Manager;
use std::sync::Arc;
use std::time::Duration;

/// A reactor that has not made a turn for so long hangs.
const TURN_LIMIT: Duration = Duration::from_secs(2);

/// What [`Served`] shows, and who manages it.
#[derive(Clone)]
pub(super) struct Observed {
    pub(super) served: Arc<Served>,
    pub(super) manager: Option<Arc<Manager>>,
}

impl Source for Observed {
    fn snapshot(&self) -> Snapshot {
        let snapshot = self.served.snapshot();
        let inside = self.served.server().problems();
        let problems = snapshot.problems.into_iter().chain(inside).collect();
        Snapshot { problems, ..snapshot }
    }

    fn managed(&self) -> Option<Managed> {
        self.manager.as_ref().map(|manager| manager.managed())
    }

    fn problems(&self) -> Vec<String> {
        let server = self.served.server();
        let silent = server.pulse().check(TURN_LIMIT).err();
        let failure = server.failure();
        let hangs = silent.map(|silent| silent.to_string()).filter(|_| failure.is_none());
        failure.into_iter().chain(hangs).chain(server.problems()).collect()
    }
}
